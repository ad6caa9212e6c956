"""A method: what solves the problems of one kind, under a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optmatch.model import Limits, OnEvent, Problem, Solution, uncounted

Run = Callable[[Any, Limits, np.random.Generator, OnEvent], Solution]
"""A method: a function of (problem, limits, rng, on_event)."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to solve problems of one kind.

    Parameters
    ----------
    name
        The name of the method for users. Methods of several kinds may share a name.
    solves
        The class of the problems that it solves.
    load
        Imports and returns the function that solves them. Loaded on first use, so that a list of
        methods loads no solver.
    summary
        One line for `optmatch methods`.
    exact
        Whether it can prove optimality.
    deterministic
        Whether its result is a function of problem, seed and iteration limit alone.
    suits
        Whether it takes a problem of this class; None if it takes all.

    See Also
    --------
    optmatch.kinds.find_method : a method by its name.
    """

    name: str
    solves: type[Problem]
    load: Callable[[], Run]
    summary: str
    exact: bool = False
    deterministic: bool = True
    suits: Callable[[Any], bool] | None = None

    def takes(self, problem: Problem) -> bool:
        """Tell whether this problem can be given to it."""
        return isinstance(problem, self.solves) and (self.suits is None or self.suits(problem))

    def run(
        self, problem: Problem, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> Solution:
        """Solve `problem`, which it must take."""
        with uncounted():
            method = self.load()
        return method(problem, limits, rng, on_event)
