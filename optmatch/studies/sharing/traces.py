"""Traces of devices: who checks in when, read from CSV or Parquet."""

from __future__ import annotations

import os

import numpy as np

from optmatch.io.sharing import read_columns
from optmatch.model import FormatError, InputError
from optmatch.problems.sharing.resources import Resources
from optmatch.simulation.sharing.workloads import NAMES, Trace

COLUMNS = ("arrival_s", "departure_s", "response_s", *NAMES)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read devices: a table with the columns `COLUMNS`, Parquet or CSV.

    After its last check-in the trace starts anew. A file that ends in ``.gz`` is unpacked.
    """
    name = os.fspath(path)
    columns = read_columns(name)
    for missing in set(COLUMNS) - set(columns):
        raise FormatError(f"column {missing!r} is missing", path=name)
    attributes = np.array([columns[column] for column in NAMES])
    response_s = columns["response_s"]
    try:
        times = {column: columns[column] for column in ("arrival_s", "departure_s")}
        devices = Resources(attributes, names=NAMES, **times)
        if not (response_s > 0).all():
            raise InputError("response_s: above 0 is expected")
    except InputError as exc:
        raise FormatError(exc.message, path=name, where=exc.where) from exc
    period_s = float(devices.arrivals_s.max(initial=0)) * (1 + 1e-9) + 1e-9
    return Trace(devices, response_s, period_s)
