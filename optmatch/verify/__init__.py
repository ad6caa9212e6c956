"""The root of trust: answers are replayed here by code that no method shares."""

from optmatch.verify.measure import measure_optics
from optmatch.verify.optics import Optics
from optmatch.verify.replay import verify
from optmatch.verify.report import Report, Violation

__all__ = ["Optics", "Report", "Violation", "measure_optics", "verify"]
