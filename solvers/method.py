"""A method: a way to solve the problems of one kind, under a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from optmatch.model import InputError, Limits, OnEvent, Problem, Solution, uncounted
from optmatch.solvers.params import Params

Run = Callable[..., Solution]
"""A method: a function of (problem, limits, rng, on_event), and of `start=` and `params=`.

All methods keep the limits of time, gap and iterations, draw from `rng` alone, and tell `on_event`
of ticks, better objectives and better bounds. `start` is a former solution, perhaps of another
problem of the kind, from which the search begins. What a method says of itself is what an
iteration is, and when its solution is optimal or infeasible.
"""


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
        Tells whether it takes a problem of this class; None if it takes all.
    warm
        Whether it can begin with a former solution, perhaps of another problem of the kind. It is
        called with ``start=`` then, repairs that answer, and returns none that is worse.
    follows
        Tells for a problem whether the method may prove, in seconds, what the default method
        leaves open; None if never.
    params
        The class of its parameters, if it has some; it is called with ``params=`` where a user
        sets one.

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
    warm: bool = False
    follows: Callable[[Any], bool] | None = None
    params: type[Params] | None = None

    def takes(self, problem: Problem) -> bool:
        """Tell whether the method accepts a problem: its class, and what `suits` asks for."""
        return isinstance(problem, self.solves) and (self.suits is None or self.suits(problem))

    def with_params(self, values: Mapping[str, Any] | None) -> Params | None:
        """Make the parameters of a run from values by name; None if there are no values.

        InputError names a parameter that the method does not have, or a value out of range.
        """
        if not values:
            return None
        names: tuple[str, ...] = ()
        if self.params is not None:
            names = tuple(field.name for field in fields(self.params))
        for name in values:
            if name not in names:
                raise InputError(
                    f"method {self.name!r}: no parameter {name!r};"
                    f" it has {', '.join(names) or 'none'}",
                    where=name,
                )
        assert self.params is not None
        return self.params(**values)

    def run(
        self,
        problem: Problem,
        limits: Limits,
        rng: np.random.Generator,
        on_event: OnEvent,
        start: Solution | None = None,
        params: Params | None = None,
    ) -> Solution:
        """Solve a problem that the method takes; the solution is not verified here.

        `start` is a former solution, which only a method that is `warm` gets.
        """
        # Loading a solver takes no time of the limit.
        with uncounted():
            import numpy.ma  # noqa: F401 - NumPy itself loads it on the first use of some functions

            solve = self.load()

        # Methods take these two arguments only if they can use them.
        options: dict[str, Any] = {}
        if self.warm and start is not None:
            options["start"] = start
        if params is not None:
            options["params"] = params
        return solve(problem, limits, rng, on_event, **options)
