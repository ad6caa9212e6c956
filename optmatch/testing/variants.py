"""Variants of problems and solutions that a method must not tell apart."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any

import numpy as np

from optmatch.model import Limits, Problem, Solution, ignore
from optmatch.solvers import Method
from optmatch.testing.problems import fewest_slots


def essence(solution: Solution) -> dict[str, Any]:
    """Return what a repeated run must reproduce: all but the times."""
    stats = {name: value for name, value in solution.stats.items() if not name.endswith("_s")}
    kept = {field.name: getattr(solution, field.name) for field in fields(solution)}
    return kept | {"stats": stats, "time_s": 0.0}


def solve_all(method: Method, problems: Sequence[Problem], limits: Limits) -> list[Solution]:
    """Solve several problems; a function of a module, so that another process can be sent it."""
    return [method.run(problem, limits, np.random.default_rng(0), ignore) for problem in problems]


def solve_there(method: Method, problems: Sequence[Problem], limits: Limits) -> list[Solution]:
    """Solve them in a spawned process, which all tests share."""
    return _another_process().apply(solve_all, (method, problems, limits))


@cache
def _another_process() -> Pool:
    pool = get_context("spawn").Pool(1)
    atexit.register(pool.terminate)
    return pool


def rank(solution: Solution) -> tuple[float, ...]:
    """Return what orders solutions: slots, then the objective; empty without an answer."""
    if solution.objective is None:
        return ()
    if fewest_slots(solution.problem) is not None and solution.schedule is not None:
        return float(solution.schedule.n_slots), solution.objective
    levels = solution.objective
    return levels if isinstance(levels, tuple) else (levels,)
