"""Defects that `optmatch.solve` logs and passes over: where this is imported, they are errors."""

import logging


class DefectError(AssertionError):
    """A method has failed, and another one would have been taken."""


class _Raise(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise DefectError(record.getMessage())


DEFECTS = logging.getLogger("optmatch.defects")
RAISE = _Raise()


def raise_defects() -> None:
    """Let each defect that is logged end what is running."""
    if RAISE not in DEFECTS.handlers:
        DEFECTS.addHandler(RAISE)
