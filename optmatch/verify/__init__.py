"""The root of trust: answers are replayed here by code that no method shares."""

from optmatch.verify.optics.budget import Budget, Margin
from optmatch.verify.optics.figures import Optics
from optmatch.verify.optics.measurement import measure_optics
from optmatch.verify.replay import verify
from optmatch.verify.report import Report, Violation
from optmatch.verify.slices.steering import check_steering

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
