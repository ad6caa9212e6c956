"""The fewest slots, heaviest first: as many as the busiest port has partners, and short pairs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from optmatch.model import TimeUp
from optmatch.solvers.demands.edge_colouring import cover_fewest_slots
from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.plans import Plan, serve
from tests.helpers.modes import examples

pytestmark = pytest.mark.kernels


def draw(seed: int) -> NDArray[np.int64]:
    """Draw a demand of up to 90 ports, so that slots need more than one word of bits."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 5, 13, 90]))
    demand = rng.integers(1, 10 ** int(rng.integers(1, 16)), (n, n))
    return np.where(rng.random((n, n)) < rng.uniform(0.05, 1.0), demand, 0)


def cover(demand: NDArray[np.int64], n_sweeps: int, shortest: int = 1) -> Plan:
    """Cover a matrix."""
    entries = Entries.of_matrix(demand)
    return cover_fewest_slots(entries, LineSums.of(entries), shortest, n_sweeps=n_sweeps)


@settings(max_examples=examples(40, plain=6), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, 3]), st.sampled_from([1, 50]))
def test_as_many_slots_as_the_busiest_port_has_partners(
    seed: int, n_sweeps: int, shortest: int
) -> None:
    """Each entry is in one slot, which is as long as its heaviest one."""
    demand = draw(seed)
    plan = cover(demand, n_sweeps, shortest)
    degree = max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max())
    assert len(plan.ticks) == degree
    assert (serve(plan) >= demand).all()
    assert (np.diff(plan.ticks) <= 0).all()
    times = np.zeros(demand.shape, dtype=np.int64)
    for matching, ticks in zip(plan.matchings, plan.ticks, strict=True):
        sources = np.flatnonzero(matching >= 0)
        destinations = matching[sources]
        assert len(set(destinations.tolist())) == len(destinations)
        assert ticks == max(shortest, demand[sources, destinations].max())
        times[sources, destinations] += 1
    assert (times == (demand > 0)).all()


def shortest_pair(
    first: NDArray[np.int32], second: NDArray[np.int32], demand: NDArray[np.int64]
) -> int:
    """Try all ways to divide the entries of two slots between them: the least sum of lengths."""
    entries = [(i, int(j)) for row in (first, second) for i, j in enumerate(row) if j >= 0]
    best = 1 << 62
    for count in range(len(entries) + 1):
        for chosen in combinations(range(len(entries)), count):
            parts = [
                [entry for k, entry in enumerate(entries) if (k in chosen) == side]
                for side in (True, False)
            ]
            if all(
                len({i for i, _ in part}) == len(part) == len({j for _, j in part})
                for part in parts
            ):
                longest = [max((int(demand[pair]) for pair in part), default=0) for part in parts]
                best = min(best, sum(longest))
    return best


def test_no_pair_of_slots_can_be_shorter() -> None:
    """After sweeps that end by themselves."""
    rng = np.random.default_rng(3)
    for _ in range(6):
        demand = rng.integers(1, 1000, (4, 4)) * (rng.random((4, 4)) < 0.8)
        plan = cover(demand, n_sweeps=100)
        for one, other in combinations(range(len(plan.ticks)), 2):
            held = int(plan.ticks[one] + plan.ticks[other])
            assert held == shortest_pair(plan.matchings[one], plan.matchings[other], demand)


def test_it_ends_at_the_deadline() -> None:
    entries = Entries.of_matrix(np.ones((9, 9), dtype=np.int64))
    with pytest.raises(TimeUp):
        cover_fewest_slots(entries, LineSums.of(entries), deadline=0.0)
