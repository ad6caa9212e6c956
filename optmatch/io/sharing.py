"""Resources and jobs from tables: a row each, CSV or Parquet, packed or not."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.io.text import check_content, read_bytes, unzip
from optmatch.model import FormatError, SolverUnavailable, naming
from optmatch.model.files import path_name
from optmatch.problems import Jobs, Resources

_TIMES = ("arrival_s", "departure_s")
_PLACES = ("plane", "pod")
_OF_JOBS = ("arrival_s", "all_or_nothing", "fair_share")
_CAP = "cap."

Columns = dict[str, NDArray[Any]]


def read_resources(path: str | os.PathLike[str]) -> Resources:
    """Read resources: every column but the known ones is an attribute.

    Parameters
    ----------
    path
        CSV with a line of names, or Parquet; ``.gz`` is unpacked. The columns ``arrival_s``,
        ``departure_s``, ``plane`` and ``pod`` may be there.

    Returns
    -------
    Resources
        In the order of the lines; attributes have the shape (attributes, resources).

    Raises
    ------
    FormatError
        If the file is cut short, its rows differ in length, or an entry is no number.
    InputError
        If a value breaks a rule of `Resources`.
    SolverUnavailable
        If pyarrow is not installed.
    """
    name = path_name(path)
    columns = _read_columns(name)
    times_and_places = {key: columns.pop(key) for key in (*_TIMES, *_PLACES) if key in columns}

    # All other columns are attributes.
    rows = list(columns.values())
    public = np.array(rows, dtype=np.float64).reshape(len(rows), len(rows[0]) if rows else 0)
    with naming(name):
        return Resources(public=public, names=tuple(columns), **times_and_places)


def read_jobs(path: str | os.PathLike[str], resources: Resources) -> Jobs:
    """Read a table of jobs that want resources, a line for each job.

    Resources have attributes, numbers such as a memory size. A job may state the least value that
    its resources must have.

    Parameters
    ----------
    path
        CSV with a line of names, or Parquet; ``.gz`` is unpacked. Its columns are

        - ``demand``: how many resources the job wants;
        - names of attributes: the least value; an attribute without a column has no bound;
        - perhaps ``arrival_s``, ``all_or_nothing`` and ``fair_share``;
        - perhaps ``cap.0``, ``cap.1`` and so on, the limit on each plane.
    resources
        The resources whose attributes the columns name.

    Returns
    -------
    Jobs
        In the order of the lines.

    Raises
    ------
    FormatError
        If the file cannot be read, or a column is unknown or missing.
    """
    name = path_name(path)
    columns = _read_columns(name)
    if "demand" not in columns:
        raise FormatError("column 'demand' is missing", path=name)
    demand = columns.pop("demand")
    job_fields = {key: columns.pop(key) for key in _OF_JOBS if key in columns}

    # Planes are numbered from 0 on without a gap.
    n_planes = sum(key.startswith(_CAP) for key in columns)
    if n_planes:
        cap_names = [f"{_CAP}{plane}" for plane in range(n_planes)]
        for missing_name in set(cap_names) - set(columns):
            raise FormatError(f"column {missing_name!r} is missing", path=name)
        job_fields["plane_caps"] = np.column_stack([columns.pop(key) for key in cap_names])

    # All other columns are the least values of attributes; those without a column have no bound.
    for key in columns:
        if key not in resources.names:
            known = ", ".join(resources.names)
            raise FormatError(f"column {key!r}: known are {known}", path=name)
    least = np.array(
        [
            columns.get(key, np.full(len(demand), np.finfo(np.float64).min))
            for key in resources.names
        ]
    ).reshape(len(resources.names), len(demand))
    with naming(name):
        return Jobs(demand=demand, public=least, **job_fields)


def _read_columns(name: str) -> Columns:
    """Read all columns of a table, CSV or Parquet, perhaps gzipped, as numbers by their names.

    `name` is the file; the result is ``columns[name][row]``. Texts, empty entries, and columns
    that are there twice, are refused.
    """
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError as exc:
        raise SolverUnavailable("tables need pyarrow: pip install 'optmatch[parquet]'") from exc
    content = unzip(read_bytes(name), name)
    is_parquet = content[:4] == b"PAR1"
    if not is_parquet and not content.endswith(b"\n"):
        raise FormatError("the last line does not end: the file is cut off", path=name)
    source = pa.BufferReader(content)
    try:
        if is_parquet:
            # The size that the metadata state is checked before the table is read.
            metadata = parquet.read_metadata(source)
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            n_bytes = sum(group.total_byte_size for group in groups)
            n_entries = max(metadata.num_rows * metadata.num_columns, n_bytes // 8)
            check_content("entries", n_entries, name)
            table = parquet.read_table(source)
        else:
            # Only an empty entry is missing: ``nan`` is a number, which is refused later.
            options = csv.ConvertOptions(null_values=[""])
            table = csv.read_csv(source, convert_options=options)
        names = table.column_names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        first_line = str(exc).partition("\n")[0]
        raise FormatError(f"cannot be read: {first_line}", path=name) from exc
    if len(set(names)) < len(names):
        raise FormatError("two columns have one name", path=name)

    columns = {}
    for key, column in zip(names, table.columns, strict=True):
        kind = column.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if table.num_rows and not is_number:
            raise FormatError(
                f"column {key!r}: numbers are expected, not {kind}; rows are numbered from 0, and"
                " have no names",
                path=name,
            )
        if table.num_rows and column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            raise FormatError(f"column {key!r}, row {row}: empty", path=name)
        columns[key] = column.to_numpy() if table.num_rows else np.zeros(0)
    return columns
