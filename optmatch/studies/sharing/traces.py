"""Traces of devices: who checks in when, read from CSV or Parquet."""

from __future__ import annotations

import os
from io import BytesIO
from typing import Any

import numpy as np

from optmatch.io.contents import read_bytes
from optmatch.model import FormatError, InputError, SolverUnavailable
from optmatch.problems.sharing.resources import Resources
from optmatch.simulation.sharing.workloads import NAMES, Trace

COLUMNS = ("arrival_s", "departure_s", "response_s", *NAMES)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read devices: a table with the columns `COLUMNS`, Parquet or CSV.

    After its last check-in the trace starts anew.

    Parameters
    ----------
    path
        The file; one whose name ends in ``.parquet`` is Parquet.

    Raises
    ------
    FormatError
        If it cannot be read, or is cut off: then nothing of it is used.
    SolverUnavailable
        If pyarrow is not installed.
    """
    name = os.fspath(path)
    content = read_bytes(path)
    try:
        import pyarrow
        from pyarrow import csv, parquet
    except ImportError as exc:
        raise SolverUnavailable("needs pyarrow: pip install 'optmatch[parquet]'") from exc
    is_parquet = name.endswith(".parquet")
    if not is_parquet and not content.endswith(b"\n"):
        raise FormatError("the last line does not end: the file is cut off", path=name)
    try:
        table = (parquet.read_table if is_parquet else csv.read_csv)(BytesIO(content))
        columns: dict[str, Any] = {
            column: table[column].cast("float64").to_numpy() for column in COLUMNS
        }
    except KeyError as exc:
        raise FormatError(f"column {exc.args[0]} is missing", path=name) from exc
    except (pyarrow.ArrowException, OSError) as exc:
        raise FormatError(f"{exc}", path=name) from exc
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
