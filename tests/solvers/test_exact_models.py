"""The base of models for CP-SAT, and the search that refutes a count k, then k + 1."""

from collections.abc import Callable

import pytest

from optmatch.model import Clock, Event, Limit, Limits, NewBest, ignore
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import Asked, ExactModel, refute_in_turn


class Coins(ExactModel[list[int]]):
    """Pay a sum by exactly so many coins of 1, 4 and 5; the most of one kind is the least."""

    def __init__(self, total: int, n_coins: int) -> None:
        super().__init__()
        self.numbers = [self.model.new_int_var(0, n_coins, "") for _ in range(3)]
        most = self.model.new_int_var(0, n_coins, "")
        self.model.add(sum(self.numbers) == n_coins)
        self.model.add(
            sum(value * n for value, n in zip((1, 4, 5), self.numbers, strict=True)) == total
        )
        for number in self.numbers:
            self.model.add(number <= most)
        self.model.minimize(most)

    def read(self, outcome: Outcome) -> list[int]:
        """Return how many coins of each value are paid."""
        return [outcome.value(number) for number in self.numbers]


def pay(total: int, clock: Clock) -> Callable[[int], Asked[list[int]]]:
    """Return a function that asks for a payment by so many coins."""

    def ask(n_coins: int) -> Asked[list[int]]:
        model = Coins(total, n_coins)
        return model, model.solve(clock, ignore, seed=0)

    return ask


def test_the_first_count_that_has_an_answer_ends_the_search() -> None:
    clock = Limits().start()
    refuted: list[int] = []
    verdict = refute_in_turn(range(1, 9), pay(13, clock), clock, refuted.append)
    assert verdict.count == 3 and verdict.answer == [0, 2, 1] and verdict.limit is None
    assert verdict.outcome is not None and verdict.outcome.optimal
    assert refuted == [1, 2]


def test_counts_may_all_be_refuted() -> None:
    clock = Limits().start()
    refuted: list[int] = []
    verdict = refute_in_turn(range(1, 3), pay(13, clock), clock, refuted.append)
    assert (verdict.count, verdict.answer, verdict.outcome, verdict.limit) == (None,) * 4
    assert refuted == [1, 2]


def test_a_limit_leaves_a_count_open() -> None:
    clock = Limits(iterations=0).start()
    verdict = refute_in_turn(range(1, 9), pay(13, clock), clock)
    assert (verdict.count, verdict.outcome, verdict.limit) == (1, None, Limit.ITERATIONS)


def test_a_model_that_is_not_built_leaves_its_count_open() -> None:
    def refuse(count: int) -> Asked[list[int]] | Limit:
        return Limit.MEMORY

    verdict = refute_in_turn(range(4, 9), refuse, Limits().start())
    assert (verdict.count, verdict.answer, verdict.limit) == (4, None, Limit.MEMORY)


@pytest.mark.parametrize("tells", [False, True])
def test_objectives_are_told_only_if_they_are_those_of_the_problem(tells: bool) -> None:
    class Told(Coins):
        pass

    Told.tells = tells
    events: list[Event] = []
    Told(13, 3).solve(Limits().start(), events.append, seed=0)
    assert any(isinstance(event, NewBest) for event in events) is tells


def test_an_amount_counts_only_if_its_literal_is_true() -> None:
    model = Coins(13, 3)
    amount = model.model.new_int_var(4, 7, "")
    counted = model.new_amount_if(model.model.new_constant(1), amount, 9)
    left_out = model.new_amount_if(model.model.new_constant(0), amount, 9)
    outcome = model.solve(Limits().start(), ignore, seed=0)
    assert outcome.value(counted) == outcome.value(amount) >= 4
    assert outcome.value(left_out) == 0
