"""The root of trust: answers are replayed here by code that no method shares."""

from typing import TYPE_CHECKING

from optmatch.model.later import import_later
from optmatch.verify.replay import verify
from optmatch.verify.report import Report, Violation

if TYPE_CHECKING:
    from optmatch.verify.budget import Budget, Margin
    from optmatch.verify.measure import measure_optics
    from optmatch.verify.optics import Optics
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

__getattr__ = import_later(
    __name__,
    {
        "Budget": "budget",
        "Margin": "budget",
        "Optics": "optics",
        "check_steering": "steering",
        "measure_optics": "measure",
    },
)
