"""Matrices as users have them: nested lists, arrays, sparse ones, DataFrames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, frozen


def plain_matrix(matrix: Any) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Return the numbers of a matrix, and the labels of its rows if it is a DataFrame."""
    dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    labels = None
    if hasattr(dense, "columns"):
        columns = [str(label) for label in dense.columns]
        rows = [str(label) for label in getattr(dense, "index", columns)]
        if rows != columns:
            raise InputError(
                "matrix: its rows and its columns have different labels", where="matrix"
            )
        labels = None if rows == [str(k) for k in range(len(rows))] else tuple(rows)
        dense = dense.to_numpy()
    if isinstance(dense, list | tuple):
        _check_rows(dense)
    return frozen("demand_bytes", dense, 2, np.float64), labels


def _check_rows(matrix: Any) -> None:
    """Refuse a row that has more or fewer numbers than the first one."""
    lengths = [len(row) if hasattr(row, "__len__") else -1 for row in matrix]
    for k, length in enumerate(lengths):
        if length != lengths[0]:
            raise InputError(
                f"demand_bytes[{k}] has {max(length, 0)} numbers, the first row {lengths[0]}",
                where=f"demand_bytes[{k}]",
            )
