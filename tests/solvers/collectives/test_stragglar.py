"""Schedules around a late rank: replayed, of the fewest rounds, the same for a seed."""

import numpy as np
import pytest

import optmatch as om
from optmatch.model import InputError
from optmatch.problems.collectives.bounds import fewest_late_rounds
from optmatch.solvers.collectives.stragglar import list_late_sends, new_search, searches, stored
from tests.helpers.contributions import one_late, raw, replay
from tests.helpers.late_ranks import find_copies
from tests.helpers.modes import compiled_only, some

pytestmark = pytest.mark.kernels


def complete(n: int) -> int:
    """Replay the schedule of n ranks, and return its rounds."""
    sends = list_late_sends(n)
    held = replay(one_late(n), sends, two_way=True)
    assert held.all()
    assert len(sends) == n * (n - 1)  # an exchange is two of them, and nothing comes twice
    return int(sends[-1, 0]) + 1


@pytest.mark.parametrize("n", [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 48, 66])
def test_even_numbers_take_as_many_rounds_as_the_bound(n: int) -> None:
    assert complete(n) == fewest_late_rounds(n) == n + int(np.ceil(np.log2(n))) - 2


@pytest.mark.parametrize("n", [13, 15, 17, 21, 31, pytest.param(47, marks=compiled_only), 61, 65])
def test_odd_numbers_take_one_round_more_at_most(n: int) -> None:
    assert fewest_late_rounds(n) <= complete(n) <= fewest_late_rounds(n) + 1


@compiled_only
@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 7, 9, 11, 27, 34, 38, 49, 55, 69, 75, 95, 127])
def test_many_numbers_meet_the_bound(n: int) -> None:
    assert complete(n) == fewest_late_rounds(n)


@compiled_only
@pytest.mark.parametrize("n", sorted(map(int, stored()["copies"])))
def test_each_stored_schedule_is_complete_and_shortest(n: int) -> None:
    assert complete(n) == fewest_late_rounds(n)
    if n < 9:  # the script finds one again, perhaps another
        assert len(find_copies(n)) == len(stored()["copies"][str(n)])


@compiled_only
@pytest.mark.parametrize("n", some(sorted(map(int, stored()["searches"])), 4))
def test_each_stored_search_finds_a_plan(n: int) -> None:
    n_doubles, seed = stored()["searches"][str(n)]
    kept, first = new_search(n, n_doubles, seed), new_search(n, *searches(n, 1)[0])
    assert kept.plan() is not None
    assert first.plan() is None or len(kept.failed) < len(first.failed)
    assert complete(n) <= fewest_late_rounds(n) + n % 2


def test_a_seed_names_a_schedule() -> None:
    assert np.array_equal(list_late_sends(20, seed=3), list_late_sends(20, seed=3))
    assert not np.array_equal(list_late_sends(20, seed=3), list_late_sends(20, seed=4))


def test_a_schedule_of_many_ranks_has_the_fewest_rounds() -> None:
    sends = list_late_sends(130)
    assert len(np.unique(sends[:, 2:4], axis=0)) == len(sends) == 130 * 129
    assert sends[-1, 0] + 1 == fewest_late_rounds(130) == 136


@pytest.mark.parametrize("n", [3, 4, 5, 8, 9])
def test_the_others_reduce_before(n: int) -> None:
    others = n - 1
    for two_way, rounds in ((False, n - 2), (True, n - 2 + others % 2)):
        problem = om.Collective("all-reduce", n, 1.0, two_way=two_way, late_s={n - 1: 1.0})  # type: ignore[dict-item]
        sends = om.solve(problem, "stragglar").answer.sends
        first = sends[sends[:, 0] < rounds]
        held = replay(raw(others, others), first, two_way=two_way)
        assert held[range(others), range(others)].all()
        assert first[-1, 0] + 1 == rounds and (first[:, 1:3] < others).all()
        if not two_way:
            assert ((first[:, 1] + 1) % others == first[:, 2]).all()


@pytest.mark.parametrize("n", [1, 2.5, "8"])
def test_numbers_of_ranks_that_are_none(n: object) -> None:
    with pytest.raises(InputError, match="n"):
        list_late_sends(n)  # type: ignore[arg-type]
