"""The rows of one job in its slots, in numbers of its own ports: each row lists partners.

``rows[slot, vertex]`` is the partner of a vertex, -1 where idle. Vertices are the ports of a job;
of ports with an input and an output first the inputs, then the outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import IDLE, Limits, check_time, ignore
from optmatch.problems import Collective, CollectivePlan, Tenancy, Tenant
from optmatch.solvers.all_to_all import factors
from optmatch.solvers.collectives.methods import FINDERS, method, suits

TRIES = 50
"""Orders in which circuits of a demand are given slots, before a slot more is allowed."""


class JobRows(NamedTuple):
    """The rows of a job that are not idle."""

    rows: NDArray[np.int64]
    in_order: bool
    plan: CollectivePlan | None


def plan_job(
    problem: Tenancy, tenant: Tenant, slots: int, rng: np.random.Generator
) -> JobRows | None:
    """Split the question of a job into rows, of a collective always the same; None if that failed.

    A demand has at most `slots` rows.
    """
    n, two_way = tenant.n_ports, problem.fabric.bidirectional
    if tenant.question == "demand":
        rows = _split(problem.slots_wanted(tenant), slots, two_way, rng)
        return None if rows is None else JobRows(rows, in_order=False, plan=None)
    if tenant.question == "all-to-all":
        return JobRows(_tournament(n, two_way, rng), in_order=False, plan=None)
    return _plan_collective(problem, tenant)


def _tournament(n: int, two_way: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """Let each two ports meet once, in random order."""
    found = factors.tournament(n, two_way)
    names = rng.permutation(found.shape[1] if two_way else n)
    if not two_way:
        return factors.relabel(found, np.concatenate([names, names + n]))[: n - 1]
    found = factors.relabel(found, names)[: len(found) if n > 1 else 0, :n]
    return np.where(found < n, found, IDLE)


def _plan_collective(problem: Tenancy, tenant: Tenant) -> JobRows:
    """Take the algorithm whose epochs need the fewest slots."""
    asked = problem.question(tenant, tuple(range(tenant.n_ports)))
    assert isinstance(asked, Collective)
    alone = replace(asked, fabric=IdealSwitch(tenant.n_ports))
    best: JobRows | None = None
    for name in FINDERS:
        if not suits(alone, name):
            continue
        found = method(name)(alone, Limits(), np.random.default_rng(0), ignore)
        schedule, plan = found.schedule, found.answer
        if schedule is None or (schedule.matchings == IDLE).all(axis=1).any():
            continue
        held = [problem.slots_for(each) for each in schedule.durations_s.tolist()]
        matchings = np.repeat(schedule.matchings, held, axis=0).astype(np.int64)
        if best is None or len(matchings) < len(best.rows):
            best = JobRows(_as_rows(matchings, asked.two_way), in_order=True, plan=plan)
    check_time()  # methods that are stopped have no plan
    assert best is not None
    return best


def _as_rows(matchings: NDArray[np.int64], two_way: bool) -> NDArray[np.int64]:
    if two_way:
        return matchings
    n = matchings.shape[1]
    rows = np.full((len(matchings), 2 * n), IDLE)
    slots, sources = np.nonzero(matchings != IDLE)
    targets = matchings[slots, sources] + n
    rows[slots, sources], rows[slots, targets] = targets, sources
    return rows


def _split(
    wanted: NDArray[np.int64], slots: int, two_way: bool, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """Give each circuit as many slots as it needs, and exchange two slots where none is free.

    What all pairs have in common is a tournament, several times.
    """
    n = len(wanted)
    rounds = _tournament(n, two_way, rng)
    times = min(
        int(wanted[~np.eye(n, dtype=bool)].min(initial=slots)), slots // max(1, len(rounds))
    )
    wanted = (wanted - times) * (1 - np.eye(n, dtype=np.int64))
    pairs = np.argwhere(np.triu(wanted) if two_way else wanted)
    circuits = np.repeat(pairs, wanted[tuple(pairs.T)], axis=0)
    circuits[:, 1] += 0 if two_way else n
    for _ in range(TRIES):
        rows: NDArray[np.int64] = np.full((slots, n if two_way else 2 * n), IDLE)
        rows[: times * len(rounds)] = np.tile(rounds, (times, 1))
        if all(_place(rows, u, v) for u, v in rng.permutation(circuits).tolist()):
            busy: NDArray[np.int64] = rows[(rows != IDLE).any(axis=1)]
            return busy
    return None


def _place(rows: NDArray[np.int64], u: int, v: int) -> bool:
    """Give a circuit a slot, after an exchange of two slots if none is free at both its ends."""
    check_time()
    free_u, free_v = (np.flatnonzero(rows[:, vertex] == IDLE) for vertex in (u, v))
    ways = [(a, a) for a in np.intersect1d(free_u, free_v)[:1]]
    for a, b in ways or [(a, b) for a in free_u for b in free_v]:
        chain = find_chain(rows[[a, b]], v) if a != b else [v]
        if a == b or u not in chain:
            rows[np.ix_([a, b], chain)] = rows[np.ix_([b, a], chain)]
            rows[a, u], rows[a, v] = v, u
            return True
    return False


def find_chain(two: NDArray[np.int64], vertex: int) -> list[int]:
    """List the vertices that two rows connect with one; both may be exchanged there."""
    chain = [vertex]
    for at in chain:  # grows while it is walked
        chain += [p for p in dict.fromkeys(two[:, at].tolist()) if p != IDLE and p not in chain]
    return chain
