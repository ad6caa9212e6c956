"""Toggles: counted as the verifier does, ordered nearly as well as brute force does."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from optmatch.solvers.all_to_all.slot_order import Sequence, reinsert
from tests.helpers.modes import compiled_only

pytestmark = pytest.mark.kernels


def count(states: NDArray[np.int8]) -> int:
    """Count the changes of each cell between the slots that drive it."""
    toggles = 0
    for column in states.T:
        driven = column[column >= 0]
        toggles += int((driven[1:] != driven[:-1]).sum())
    return toggles


def draw(seed: int, slots: int, cells: int) -> NDArray[np.int8]:
    """Draw states, a third of them free."""
    return np.random.default_rng(seed).integers(-1, 2, size=(slots, cells)).astype(np.int8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12))
def test_what_is_reported_is_what_the_order_costs(seed: int, slots: int, cells: int) -> None:
    states = draw(seed, slots, cells)
    sequence = Sequence(states)
    assert sequence.count() == count(states)
    found = sequence.improve(np.random.default_rng(seed))
    assert sorted(sequence.order.tolist()) == list(range(slots))
    assert found == count(states[sequence.order]) <= count(states)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_slot_goes_where_it_costs_fewest_toggles(seed: int, slots: int) -> None:
    states = draw(seed, slots, 8)
    sequence = Sequence(states)
    sequence.order = np.random.default_rng(seed).permutation(slots)
    victim = seed % slots
    rest = [slot for slot in sequence.order.tolist() if slot != victim]
    orders = [[*rest[:place], victim, *rest[place:]] for place in range(slots)]
    work = sequence.last, sequence.following
    found = reinsert(states, sequence.order, np.array([victim]), *work)  # type: ignore[no-untyped-call]
    assert sequence.order.tolist() == min(orders, key=lambda order: count(states[order]))
    assert found == count(states[sequence.order])


@compiled_only
def test_small_orders_are_near_the_best() -> None:
    above, draws = [], 20
    for seed in range(draws):
        states = draw(seed, 6, 10)
        best = min(count(states[list(order)]) for order in permutations(range(6)))
        above.append(Sequence(states).improve(np.random.default_rng(0)) - best)
    assert max(above) < 2
    assert above.count(0) > draws / 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_agreement_is_the_price_of_driving_a_cell(seed: int) -> None:
    states = draw(seed, 5, 6)
    sequence = Sequence(states)
    sequence.count()
    place = seed % 5
    cost = sequence.agreement(place, 1)
    for cell in range(6):
        free = states.copy()
        free[place, cell] = -1
        for state in (0, 1):
            driven = free.copy()
            driven[place, cell] = state
            assert cost[cell, state] == count(driven) - count(free) >= 0
