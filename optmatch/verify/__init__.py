"""The root of trust: answers are replayed here by code that no method shares."""

from optmatch.verify.budget import Budget, Margin
from optmatch.verify.measure import measure_optics
from optmatch.verify.optics import Optics
from optmatch.verify.replay import verify
from optmatch.verify.report import Report, Violation
from optmatch.verify.steering import check_steering

__all__ = [
    "Budget",
    "Margin",
    "Optics",
    "Report",
    "Violation",
    "check_steering",
    "measure_optics",
    "verify",
]
