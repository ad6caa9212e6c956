"""Exact models for CP-SAT, and the search that refutes a count k, then k + 1.

`ExactModel` is the base of all models: a subclass writes its variables and constraints when it is
made, `solve` runs CP-SAT, and `read` turns the values of a solution into an answer.

`refute_in_turn` is the search over a count, such as that of slots: it asks for an answer of one
count after another, from the least one on, until there is one. Whoever asks decides which model a
count has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import Clock, Limit, OnEvent
from optmatch.solvers.cpsat import WORKERS, Literal, Outcome, minimise

Answer = TypeVar("Answer")
"""What the solution of a model stands for: a plan, routes, the ports of hosts."""


class ExactModel(ABC, Generic[Answer]):
    """A model for CP-SAT: it is built, solved, and read.

    A subclass adds variables and constraints to `model` in its constructor, after that of this
    class, and an objective if it has one.

    Attributes
    ----------
    model
        CP-SAT's own model.
    workers
        How many strategies of CP-SAT take turns.
    uses_relaxations
        Whether CP-SAT uses linear relaxations; without them, models of conditions are searched
        faster.
    tells
        Whether events report its objectives and bounds: only where they are those of the problem.
    """

    workers: ClassVar[int] = WORKERS
    uses_relaxations: ClassVar[bool] = True
    tells: ClassVar[bool] = False

    def __init__(self) -> None:
        """Begin with no variables."""
        self.model = cp_model.CpModel()

    def new_amount_if(self, literal: Literal, amount: Any, most: int) -> cp_model.IntVar:
        """Add a variable from 0 to `most` that equals an amount if a literal is true, else 0."""
        product = self.model.new_int_var(0, most, "")
        self.model.add(product == amount).only_enforce_if(literal)
        self.model.add(product == 0).only_enforce_if(~literal)
        return product

    def solve(
        self, clock: Clock, on_event: OnEvent, *, seed: int, work: float = math.inf
    ) -> Outcome:
        """Run CP-SAT until it is done, a limit is reached, or Ctrl-C.

        Iterations are conflicts. `work` is a limit in seconds that CP-SAT counts by its steps.
        """
        return minimise(
            self.model,
            clock,
            on_event,
            seed=seed,
            workers=self.workers,
            linear=self.uses_relaxations,
            work=work,
            tell=self.tells,
        )

    @abstractmethod
    def read(self, outcome: Outcome) -> Answer:
        """Return the answer that a solution stands for; `outcome.found` is true."""


def draw_seed(rng: np.random.Generator) -> int:
    """Draw a seed for CP-SAT."""
    return int(rng.integers(1 << 30))


Asked = tuple[ExactModel[Answer], Outcome]
"""A model of a count, after CP-SAT has worked on it, and what came of it."""


@dataclass(frozen=True, slots=True)
class CountVerdict(Generic[Answer]):
    """Where a search over counts has ended: all counts before `count` are refuted.

    There are four ends. All counts are refuted: all fields are None. Or CP-SAT has an answer of
    `count`; or it ran and leaves open whether there is one, with an outcome and no answer; or a
    limit came before it ran, with neither.
    """

    count: int | None = None
    """The count at which the search has ended."""
    answer: Answer | None = None
    """An answer of this count."""
    outcome: Outcome | None = None
    """The outcome of CP-SAT for this count."""
    limit: Limit | None = None
    """The limit that ended the search; None if it ended by itself."""


def refute_in_turn(
    counts: Iterable[int],
    ask: Callable[[int], Asked[Answer] | Limit],
    clock: Clock,
    on_refuted: Callable[[int], None] = lambda count: None,
) -> CountVerdict[Answer]:
    """Ask CP-SAT for an answer of each count in turn: refute k, then k + 1.

    The search ends at the first count that has an answer, and at the first that CP-SAT can neither
    answer nor refute. `counts` ascend, and may be made while the search goes on; `ask` returns a
    model and its outcome, or the limit that forbids to build it. `on_refuted` is told each count
    that has no answer.
    """
    for count in counts:
        limit = clock.exceeded(0)
        if limit is not None:
            return CountVerdict(count, limit=limit)
        asked = ask(count)
        if isinstance(asked, Limit):
            return CountVerdict(count, limit=asked)

        # A model was solved: it has an answer, or refutes the count, or met a limit.
        model, outcome = asked
        if outcome.found:
            return CountVerdict(count, model.read(outcome), outcome, outcome.limit)
        if not outcome.infeasible:
            return CountVerdict(count, outcome=outcome, limit=outcome.limit)
        on_refuted(count)
    return CountVerdict()  # all counts are refuted
