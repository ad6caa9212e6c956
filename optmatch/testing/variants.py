"""Variants of problems and solutions that a method must not tell apart."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch, Mesh
from optmatch.model import Limits, Problem, Solution, ignore
from optmatch.problems import AllToAll, Demand, RailJob, Reroute, Routing
from optmatch.solvers import Method


def relabelled(problem: Problem, order: Sequence[int] | NDArray[np.int64]) -> Problem:
    """Return the same problem with port ``order[k]`` called k."""
    fabric: Any = problem.fabric
    order = [int(k) for k in order]
    if isinstance(fabric, Mesh):
        sends, receives = ([places[k] for k in order] for places in fabric.perimeter_ports)
        if fabric.bidirectional:
            fabric = replace(fabric, ports=sends)  # type: ignore[type-var]
        else:
            fabric = replace(fabric, tx=sends, rx=receives)  # type: ignore[type-var]
    elif not isinstance(fabric, IdealSwitch):
        return problem
    if isinstance(problem, Routing):
        new = {old: k for k, old in enumerate(order)} | {-1: -1}
        matching = [new[int(problem.matching[old])] for old in order]
        return replace(problem, fabric=fabric, matching=matching)  # type: ignore[arg-type]
    if isinstance(problem, Demand):
        demand = problem.demand_bytes[np.ix_(order, order)]
        return replace(problem, fabric=fabric, demand_bytes=demand)
    if isinstance(problem, Reroute):
        places = {old: k for k, old in enumerate(order)}
        parts = {
            name: tuple(places[port] for port in getattr(problem, name))
            for name in ("spares", "failed_ports")
        }
        pairs = [[places[port] for port in pair] for pair in problem.circuits.tolist()]
        return replace(problem, fabric=fabric, circuits=pairs, **parts)  # type: ignore[arg-type]
    if isinstance(problem, RailJob):
        return replace(problem, network=replace(problem.network, fabric=fabric))
    return replace(problem, fabric=fabric)  # type: ignore[type-var]


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
    if isinstance(solution.problem, AllToAll) and solution.schedule is not None:
        return float(solution.schedule.n_slots), solution.objective
    levels = solution.objective
    return levels if isinstance(levels, tuple) else (levels,)
