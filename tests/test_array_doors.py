"""Arrays as users have them: each entrance reads the same numbers, or refuses them alike."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import optmatch as om

SQUARE = [[0, 3], [3, 0]]
"""Symmetric, with equal sums of lines, so that each entrance of matrices takes it."""
SWAP = [1, 0]


class Quantity:
    """A number with a unit, as pint has them."""

    def __init__(self, magnitude: Any, units: str) -> None:
        """Keep both."""
        self.magnitude = np.asarray(magnitude)
        self.units = units

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Drop the unit, as pint does with a warning."""
        return self.magnitude.astype(dtype or self.magnitude.dtype)


def masked(numbers: Any, *, hides: bool) -> Any:
    """Return a masked array with no masked entry, or with its last entry masked."""
    array = np.ma.masked_array(numbers, mask=np.zeros(np.shape(numbers), dtype=bool))
    if hides:
        array[(-1,) * array.ndim] = np.ma.masked
    return array


def relabelled(numbers: Any) -> Any:
    """Return a table of pandas whose labels stand in another order than its entries."""
    if np.ndim(numbers) == 1:
        return pd.Series(numbers, index=range(len(numbers))[::-1])
    return pd.DataFrame(numbers, index=["a", "b"], columns=["b", "a"])


def with_attribute(numbers: Any) -> Any:
    """Return a frame whose attributes name a unit."""
    frame = pd.DataFrame(numbers) if np.ndim(numbers) == 2 else pd.Series(numbers)
    frame.attrs["units"] = "GB"
    return frame


def durations(numbers: Any) -> Any:
    """Return numbers of milliseconds that NumPy counts as durations."""
    return np.asarray(numbers).astype("timedelta64[ms]")


SAME: dict[str, Callable[[Any], Any]] = {
    "nested lists": lambda numbers: numbers,
    "tuples": lambda numbers: tuple(map(tuple, numbers)) if np.ndim(numbers) == 2 else (*numbers,),
    "int8": lambda numbers: np.asarray(numbers, dtype=np.int8),
    "uint64": lambda numbers: np.asarray(numbers, dtype=np.uint64),
    "float32": lambda numbers: np.asarray(numbers, dtype=np.float32),
    "big-endian": lambda numbers: np.asarray(numbers, dtype=">f8"),
    "columns first": lambda numbers: np.asfortranarray(np.asarray(numbers, dtype=np.float64)),
    "every second one": lambda numbers: np.repeat(np.asarray(numbers), 2, axis=0)[::2],
    "whole numbers of Python": lambda numbers: np.asarray(numbers, dtype=object),
    "decimals": lambda numbers: np.vectorize(Decimal, otypes=[object])(np.asarray(numbers)),
    "masked, nothing hidden": lambda numbers: masked(numbers, hides=False),
    "pandas": lambda numbers: (
        pd.DataFrame(numbers) if np.ndim(numbers) == 2 else pd.Series(numbers)
    ),
    "no dimension": lambda numbers: Quantity(numbers, "dimensionless"),
}
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "masked": (lambda numbers: masked(numbers, hides=True), "is masked"),
    "masked rows": (lambda numbers: [masked(row, hides=True) for row in numbers], "is masked"),
    "a unit": (lambda numbers: Quantity(numbers, "gigabyte"), "has the unit 'gigabyte'"),
    "a unit of an attribute": (with_attribute, "has the unit 'GB'"),
    "labels in another order": (relabelled, "another order"),
    "durations": (durations, "is not an array of numbers"),
    "dates": (
        lambda numbers: np.asarray(numbers).astype("datetime64[s]"),
        "is not an array of numbers",
    ),
    "texts": (lambda numbers: np.asarray(numbers).astype(str), "is not an array of numbers"),
    "objects that are texts": (
        lambda numbers: np.asarray(numbers).astype(str).astype(object),
        "is not an array of numbers",
    ),
    "complex": (lambda numbers: np.asarray(numbers) * 1j, "is not an array of numbers"),
}


def _rolling(matrix: Any) -> Any:
    rolling = om.RollingSchedule(om.IdealSwitch(2), 0.1)
    rolling.add(matrix)
    return rolling.queued_bytes


MATRICES: dict[str, Callable[[Any], Any]] = {
    "Demand": lambda matrix: om.Demand(om.IdealSwitch(2), matrix, delay_s=0.1).demand_bytes,
    "Demand.from_matrix": lambda matrix: om.Demand.from_matrix(matrix, delay_s=0.1).demand_bytes,
    "schedule": lambda matrix: om.schedule(matrix, 0.1).durations_s,
    "decompose": lambda matrix: om.decompose(matrix).weights,
    "decompose, filled": lambda matrix: om.decompose(matrix, fill=True).weights,
    "RollingSchedule": _rolling,
    "IdealSwitch": lambda matrix: om.IdealSwitch(2, loss_db=matrix, budget_db=9.0).loss_db,
}
VECTORS: dict[str, Callable[[Any], Any]] = {
    "Routing": lambda ports: om.Routing(om.IdealSwitch(2), ports).matching,
    "Schedule": lambda ports: (
        om.Schedule(
            matchings=[[1, 0], [0, 1]], durations_s=[1, 1], delay_s=1.0, delays_s=ports
        ).delays_s
    ),
    "Router.route": lambda ports: om.Router(om.Benes(2)).route(ports).states,
    "Router.reroute": lambda ports: om.Router(om.Benes(2)).reroute([0], ports).states,
    "IdealSwitch budgets": lambda ports: (
        om.IdealSwitch(2, loss_db=[[0, 0], [0, 0]], budget_db=ports).budget_db
    ),
}
ENTRANCES = [*((name, call, SQUARE) for name, call in MATRICES.items())] + [
    (name, call, SWAP) for name, call in VECTORS.items()
]


@pytest.mark.parametrize("array", SAME)
@pytest.mark.parametrize(("name", "call", "numbers"), ENTRANCES, ids=[row[0] for row in ENTRANCES])
def test_the_same_numbers_in_another_array_are_the_same_answer(
    name: str, call: Callable[[Any], Any], numbers: Any, array: str
) -> None:
    expected = np.asarray(call(numbers), dtype=np.float64)
    assert np.array_equal(np.asarray(call(SAME[array](numbers)), dtype=np.float64), expected)


@pytest.mark.parametrize("array", REFUSED)
@pytest.mark.parametrize(("name", "call", "numbers"), ENTRANCES, ids=[row[0] for row in ENTRANCES])
def test_what_an_array_says_beside_its_numbers_is_not_dropped(
    name: str, call: Callable[[Any], Any], numbers: Any, array: str
) -> None:
    make, message = REFUSED[array]
    if array == "masked rows" and np.ndim(numbers) == 1:
        pytest.skip("a vector has no rows")
    with pytest.raises(om.InputError, match=message):
        call(make(numbers))


@pytest.mark.parametrize("name", MATRICES)
def test_sparse_entries_of_one_place_add_up_in_more_than_their_own_eight_bits(name: str) -> None:
    places = ([0, 0, 1, 1], [1, 1, 0, 0])
    sparse = scipy.sparse.coo_array((np.array([100, 100, 100, 100], np.int8), places), (2, 2))
    expected = np.asarray(MATRICES[name]([[0, 200], [200, 0]]), dtype=np.float64)
    if name == "IdealSwitch":
        loss_db = om.IdealSwitch(2, loss_db=sparse, budget_db=900.0).loss_db
        assert np.array_equal(np.asarray(loss_db), [[0, 200], [200, 0]])
        return
    assert np.array_equal(np.asarray(MATRICES[name](sparse), dtype=np.float64), expected)


def test_numbers_that_numpy_counts_as_whole_are_no_durations() -> None:
    five: Any = np.timedelta64(5, "ms")
    demand = om.Demand.from_matrix(SQUARE, delay_s=1.0)
    for call in (
        lambda: om.Demand.from_matrix(SQUARE, delay_s=five),
        lambda: om.schedule(SQUARE, five),
        lambda: om.solve(demand, seed=0, time_limit_s=five),
        lambda: om.solve(demand, seed=five),
        lambda: om.IdealSwitch(five),
    ):
        with pytest.raises(om.InputError, match="timedelta64"):
            call()
