"""Samples of a yield study: judged in parts, on any executor, and counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from optmatch.entrances import verify
from optmatch.fabrics import Fault, FaultKind, Faulty
from optmatch.model import Limit, OnEvent, Schedule, Solution, Tick, VerificationError, ignore
from optmatch.problems import AllToAll, Routing

PART = 250
"""So many samples are judged together."""


class Part(NamedTuple):
    """Some of the samples, in their order."""

    solution: Solution
    fixed: bool
    kinds: tuple[FaultKind, ...]
    samples: list[tuple[Fault, ...]]
    first: int
    total: int
    left_s: float | None


def judge_part(part: Part, on_event: OnEvent = ignore) -> tuple[Table, Limit | None]:
    """Judge some samples, wherever this runs; say why there are fewer than were asked for."""
    started = time.perf_counter()
    repair = _repair(part.solution, part.fixed, get_ident())
    repair.forget()  # so that no verdict depends on what this process has judged before
    table = Table(part.solution.problem.fabric.n_cells, part.kinds)
    try:
        for number, found in enumerate(part.samples, start=part.first):
            if part.left_s is not None and time.perf_counter() - started > part.left_s:
                return table, Limit.TIME
            verdict = repair.judge(tuple(sorted(found)))
            if verdict.outcome == "survived" and table.counts["survived"].bit_count() <= 1:
                _check(part.solution.problem, found, verdict)
            alone = [repair.judge((fault,)).outcome for fault in found]
            table.add(found, verdict, alone)
            on_event(Tick("samples", number + 1, part.total))
    except KeyboardInterrupt:
        return table, Limit.INTERRUPTED
    return table, None


@lru_cache(maxsize=8)
def _repair(solution: Solution, fixed: bool, thread: int) -> Any:
    """Prepare to repair a schedule, once for each thread."""
    from optmatch.solvers.all_to_all.repair import Repair  # compiled kernels

    assert solution.schedule is not None
    return Repair(solution.problem, solution.schedule, fixed=fixed)


class Table:
    """Counts of samples, by outcome, by what decided, and by cell and kind."""

    def __init__(self, cells: int, kinds: tuple[FaultKind, ...]) -> None:
        self.kinds = kinds
        self.counts: Counter[str] = Counter()
        self.how: Counter[str] = Counter()
        self.broken, self.lost, self.open = np.zeros((3, cells, len(kinds)), dtype=np.int64)
        self.alone = np.full((cells, len(kinds)), -1, dtype=np.int8)

    def add(self, found: Sequence[Fault], verdict: Any, alone: Sequence[str]) -> None:
        """Count a sample, all at once: Ctrl-C comes before or after."""
        known = {"survived": 1, "failed": 0, "unrepaired": -1}
        for fault, outcome in zip(found, alone, strict=True):
            place = fault.place, self.kinds.index(fault.kind)
            self.broken[place] += 1
            self.lost[place] += verdict.outcome == "failed"
            self.open[place] += verdict.outcome == "unrepaired"
            self.alone[place] = known[outcome]
        self.counts[verdict.outcome] += 1
        self.how[verdict.how] += 1

    def merge(self, later: Table) -> None:
        """Count the samples of another table too."""
        self.counts += later.counts
        self.how += later.how
        self.broken += later.broken
        self.lost += later.lost
        self.open += later.open
        self.alone = np.where(later.broken > 0, later.alone, self.alone)


def _check(problem: Any, found: Sequence[Fault], verdict: Any) -> None:
    """Let the verifier look at a repaired schedule."""
    broken = Faulty.of(problem.fabric, found)
    matchings, states = np.asarray(verdict.matchings), np.asarray(verdict.states)
    claims: list[tuple[Any, Schedule]] = []
    if isinstance(problem, AllToAll):
        schedule = Schedule(
            matchings=matchings,
            durations_s=np.full(len(matchings), problem.slot_s),
            delay_s=problem.delay_s,
            cell_states=states,
        )
        claims.append((replace(problem, fabric=broken), schedule))
    for k in range(0 if claims else len(matchings)):
        one = Schedule(
            matchings=matchings[k : k + 1], durations_s=np.ones(1), cell_states=states[k : k + 1]
        )
        claims.append((Routing(broken, matchings[k]), one))
    for question, schedule in claims:
        report = verify(question, schedule)
        if not report.valid:
            raise VerificationError(f"a repaired schedule: {report.complaint}")
