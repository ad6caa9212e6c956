"""Defects that `optmatch.solve` logs and passes over end a benchmark that imports this module."""

import logging


class _Raise(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit(record.getMessage())


logging.getLogger("optmatch.defects").addHandler(_Raise())
