"""The root of trust: answers are replayed here by code that no method shares."""

from optmatch.verify.report import Report, Violation

__all__ = ["Report", "Violation"]
