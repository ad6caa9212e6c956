"""1-factorisations: tournaments are ones, and exchanges keep them so."""

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from numpy.typing import NDArray

from optmatch.solvers.all_to_all.factors import (
    divide_three_factors,
    matchings_of,
    relabel,
    tournament,
)
from tests.helpers.modes import examples

pytestmark = pytest.mark.kernels


def assert_factorisation(factors: NDArray[np.int64], ports: int, bidirectional: bool) -> None:
    """Every pair in exactly one factor, partners mutual, nobody their own."""
    found = set()
    for row in factors:
        assert (row[row] == np.arange(len(row))).all()
        assert (row != np.arange(len(row))).all()
    for row in matchings_of(factors, ports, bidirectional):
        for i, j in enumerate(row.tolist()):
            if j >= 0:
                assert (i, j) not in found
                found.add((i, j))
    assert found == {(i, j) for i in range(ports) for j in range(ports) if i != j}


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("ports", range(2, 14))
def test_a_tournament_is_a_factorisation_in_the_fewest_slots(
    ports: int, bidirectional: bool
) -> None:
    factors = tournament(ports, bidirectional)
    assert len(factors) == (ports if bidirectional and ports % 2 else ports - 1)
    assert_factorisation(factors, ports, bidirectional)
    if ports % 2 == 0:  # who sends to a port hears from it in the same slot
        row = matchings_of(factors, ports, bidirectional)
        assert (np.take_along_axis(row, row, axis=1) == np.arange(ports)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_factors_of_jobs_may_have_edges_in_common(half: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    old, new = np.empty((2, 3, 2 * half), dtype=np.int64)
    for row in old:
        pairs = rng.permutation(2 * half).reshape(half, 2)
        row[pairs] = pairs[:, ::-1]
    place, path = np.empty(2 * half, dtype=np.int64), np.empty(2 * half + 2, dtype=np.int64)
    for start in range(2 * half):
        if divide_three_factors(old, start, int(rng.integers(1 << 31)), new, place, path):  # type: ignore[no-untyped-call]
            assert (np.sort(new, axis=0) == np.sort(old, axis=0)).all()
            assert (np.take_along_axis(new, new, axis=1) == np.arange(2 * half)).all()


def cycles(first: NDArray[np.int64], second: NDArray[np.int64]) -> list[list[int]]:
    """List the cycles of two factors that differ somewhere, by their vertices."""
    left, found = set(np.flatnonzero(first != second).tolist()), []
    while left:
        cycle, turn = [min(left)], 0
        while (onward := int((first, second)[turn][cycle[-1]])) != cycle[0]:
            cycle.append(onward)
            turn = 1 - turn
        left -= set(cycle)
        found.append(cycle)
    return found


@settings(max_examples=examples(80, plain=10), deadline=None)
@given(st.integers(4, 20), st.booleans(), st.integers(0, 2**32 - 1))
def test_exchanges_keep_a_factorisation(ports: int, bidirectional: bool, seed: int) -> None:
    """Three new factors have the edges of the three old ones, and change as little as they can.

    The first slot changes along one cycle; the others swap colours only if more agrees then.
    """
    rng = np.random.default_rng(seed)
    factors = tournament(ports, bidirectional)
    assume(len(factors) >= 3)
    vertices = factors.shape[1]
    place, path = np.empty(vertices, dtype=np.int64), np.empty(vertices + 2, dtype=np.int64)
    done, tries = 0, 40
    for _ in range(tries):
        slots = rng.choice(len(factors), 3, replace=False)
        old, new = factors[slots], np.empty((3, vertices), dtype=np.int64)
        start, coins = int(rng.integers(vertices)), int(rng.integers(1 << 31))
        if not divide_three_factors(old, start, coins, new, place, path):  # type: ignore[no-untyped-call]
            continue
        done += 1
        assert (np.sort(new, axis=0) == np.sort(old, axis=0)).all()
        assert len(cycles(old[0], new[0])) == 1
        for cycle in cycles(new[1], new[2]):
            kept = (new[1:, cycle] == old[1:, cycle]).sum()
            assert kept >= (new[1:, cycle] == old[:0:-1, cycle]).sum()
        factors[slots] = new
    assert_factorisation(factors, ports, bidirectional)
    assert done > tries / 4 or ports < 8


def test_relabelling_moves_partners_along() -> None:
    factors = tournament(6, True)
    names = np.array([3, 4, 5, 0, 1, 2])
    renamed = relabel(factors, names)
    assert (renamed[:, names] == names[factors]).all()
    assert_factorisation(renamed, 6, True)


def test_exchanges_leave_a_perfect_factorisation() -> None:
    """Two rounds of 32 ports form one cycle, so pairs of slots cannot be exchanged; three can."""
    rng = np.random.default_rng(0)
    factors = tournament(32, True)
    new, place, path = np.empty((3, 32), np.int64), np.empty(32, np.int64), np.empty(34, np.int64)
    for _ in range(200):
        slots = rng.choice(31, 3, replace=False)
        start, coins = int(rng.integers(32)), int(rng.integers(1 << 31))
        if divide_three_factors(factors[slots], start, coins, new, place, path):  # type: ignore[no-untyped-call]
            rows = {tuple(row) for row in factors[slots].tolist()}
            if any(tuple(row) not in rows for row in new.tolist()):
                return
    pytest.fail("the exchanges only permuted the slots")
