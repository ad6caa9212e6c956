"""Methods of collectives: the known algorithms, and the fastest of all that fit."""

from __future__ import annotations

from functools import partial

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Collective
from optmatch.solvers.collectives.algorithms import ALGORITHMS, fits, list_rounds
from optmatch.solvers.collectives.conclusion import Found, run
from optmatch.solvers.collectives.plans import lay
from optmatch.solvers.method import Run


def algorithm(name: str) -> Run:
    """Return the method that follows one algorithm, with new circuits wherever it needs some.

    Examples
    --------
    >>> from optmatch.model import ignore
    >>> problem = Collective("all-reduce", 4, 4.0, rate_bytes_per_s=1.0)
    >>> algorithm("ring")(problem, Limits(), np.random.default_rng(0), ignore).objective
    6.0
    """
    return partial(_follow, name)


def _follow(
    name: str, problem: Collective, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    return run(
        problem,
        limits,
        on_event,
        name,
        lambda clock: Found(lay(problem, list_rounds(problem, name)), {"algorithm": name}),
    )


def solve_best(
    problem: Collective, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Try all that fit, and take the fastest."""

    def find(clock: object) -> Found:
        plans = {
            name: lay(problem, list_rounds(problem, name))
            for name in ALGORITHMS
            if fits(problem, name)
        }
        if not plans:
            return Found(None, {"reason": "no method knows steps that are given from outside"})
        ranked = sorted(plans, key=lambda name: plans[name].plan.time_s)
        runners = [f"{name} {plans[name].plan.time_s:.6g} s" for name in ranked[1:]]
        return Found(plans[ranked[0]], {"algorithm": ranked[0], "runners_up": runners})

    return run(problem, limits, on_event, "best", find)
