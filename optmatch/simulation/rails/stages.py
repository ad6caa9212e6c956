"""Stages of rails in time: each serves a phase, and is switched to the next one."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.phases import stage_keys
from optmatch.problems.rails.times import Events


class _Change(NamedTuple):
    """A boundary that was passed."""

    switched: bool
    asked: float
    begun: float
    ready: float


class _Stage:
    """A stage of a rail: its phases, and where it stands."""

    def __init__(self, rail: int) -> None:
        self.rail = rail
        self.changes_to: list[bool] = []  # whether a phase needs other circuits than the last one
        self.left: list[int] = []  # events of each phase that have not ended
        self.now = -1  # the phase it is in
        self.turning = False
        self.asked: dict[int, float] = {}
        self.idle_s: list[float] = []  # when the last event of each phase ended
        self.wanted: dict[int, float] = {}  # when the first event of each phase was ready
        self.changes: list[_Change] = []


class Run:
    """One step in time.

    Parameters
    ----------
    job
        The job.
    early
        Whether a stage asks for its next phase as soon as the last one has ended.
    delay_s
        The reconfiguration delay, in seconds.
    given
        The events of one rank of each class.
    changed
        ``changed[phase]``: whether it needs other circuits than those before it.
    rounds
        For events in rounds how long each lasts, and whether circuits change before it.
    """

    def __init__(
        self,
        job: RailJob,
        early: bool,
        delay_s: float,
        given: Events,
        changed: NDArray[np.bool_],
        rounds: Mapping[int, list[tuple[float, bool]]],
    ) -> None:
        self.early, self.rounds = early, rounds
        self.delay, self.all_stop = delay_s, job.network.switching == "all-stop"
        self.given, self.step, self.phases = given, job.step(), job.phases()
        self.stages, self.places, self.stage_of = _stages(job, changed)
        n = len(given.part)
        self.start, self.end = np.full(n, -1.0), np.full(n, -1.0)
        self.turn: dict[int, int] = {}  # which round of an event is next
        self.waiting: dict[int, set[int]] = {k: set() for k in range(len(self.stages))}
        self.sending: dict[int, set[int]] = {stage.rail: set() for stage in self.stages}
        self.still_s: dict[int, tuple[float, float]] = {}  # rails that stand still: from, until
        self.queue: list[tuple[float, int, int]] = []  # when, what: event, or ~stage
        self._advance()

    def _advance(self) -> None:
        order = np.argsort(self.given.before, kind="stable")
        after = self.given.after[order].tolist()
        n = len(self.given.part)
        first = np.searchsorted(self.given.before[order], np.arange(n + 1)).tolist()
        waits = np.bincount(self.given.after, minlength=n).tolist()
        for event in [event for event in range(n) if waits[event] == 0]:
            self._issue(event, 0.0)
        ended = 0
        while self.queue:
            now, _, what = heappop(self.queue)
            if what < 0:
                self._turned(~what, now)
                continue
            if self.end[what] > now:  # it stood still in the meantime
                heappush(self.queue, (self.end[what], 1, what))
                continue
            if self._goes_on(what, now):
                continue
            ended += 1
            for later in after[first[what] : first[what + 1]]:
                waits[later] -= 1
                if waits[later] == 0:
                    self._issue(later, now)
            self._ended(what, now)
        if ended < n:
            operation = int(self.given.part[np.flatnonzero(self.end < 0)[0]])
            raise InputError(
                f"{self.step.describe(operation)} never starts: its ranks go through their phases"
                " in an order that no switching can serve",
                where="groups",
            )

    def _issue(self, event: int, now: float) -> None:
        """All that comes before an event has ended: it starts, or asks for its circuits."""
        for number_, phase in self.places.get(event, ()):
            stage = self.stages[number_]
            stage.wanted.setdefault(phase, now)
            if not self.early or phase == 0:
                stage.asked.setdefault(phase, now)
                self._turn(number_, now)
        self._start(event, now)

    def _start(self, event: int, now: float) -> None:
        places = self.places.get(event, ())
        for number_, phase in places:
            if self.stages[number_].now != phase:
                self.waiting[number_].add(event)
                return
        if places:
            rail = self.stages[places[0][0]].rail
            now = max(now, self.still_s.get(rail, (0.0, 0.0))[1])
            self.sending[rail].add(event)
        self.start[event] = self.end[event] = now
        if not self._goes_on(event, now):
            self.end[event] = now + self.given.duration_s[event]
            heappush(self.queue, (self.end[event], 1, event))

    def _goes_on(self, event: int, now: float) -> bool:
        """Begin the next round of an event, if it has one; between two, circuits may change."""
        rounds, turn = self.rounds.get(event, []), self.turn.get(event, 0)
        if turn == len(rounds):
            return False
        lasts, changes = rounds[turn]
        self.turn[event] = turn + 1
        if changes:
            rail = self.stages[self.places[event][0][0]].rail
            now = (self._stand_still(rail, now)[0] if self.all_stop else now) + self.delay
        self.end[event] = now + lasts
        heappush(self.queue, (self.end[event], 1, event))
        return True

    def _ended(self, event: int, now: float) -> None:
        for number_, phase in self.places.get(event, ()):
            stage = self.stages[number_]
            self.sending[stage.rail].discard(event)
            stage.left[phase] -= 1
            if stage.left[phase] == 0:
                stage.idle_s[phase] = now
                if self.early:
                    stage.asked.setdefault(phase + 1, now)
                self._turn(number_, now)

    def _turn(self, number_: int, now: float) -> None:
        """Begin to switch a stage to its next phase, if it was asked for and can be."""
        stage = self.stages[number_]
        following = stage.now + 1
        if (
            stage.turning
            or following == len(stage.changes_to)
            or following not in stage.asked
            or (stage.now >= 0 and stage.left[stage.now])
        ):
            return
        begin, ready = now, now
        switched = stage.changes_to[following]
        if switched:
            begin, ready = self._stand_still(stage.rail, now) if self.all_stop else (now, now)
            ready = begin + self.delay
        stage.turning = True
        stage.changes.append(_Change(switched, stage.asked[following], begin, ready))
        heappush(self.queue, (ready, 0, ~number_))

    def _stand_still(self, rail: int, now: float) -> tuple[float, float]:
        """Stop everything on a rail, after an earlier stop that is not over."""
        since, until = self.still_s.get(rail, (-1.0, -1.0))
        if since == now or now < since:
            return since, until  # together with one that begins at the same time
        begin = max(now, until)
        self.still_s[rail] = (begin, begin + self.delay)
        for event in self.sending[rail]:
            if self.end[event] > begin:
                self.end[event] += self.delay
                if self.start[event] >= begin:
                    self.start[event] = begin + self.delay
        return begin, begin + self.delay

    def _turned(self, number_: int, now: float) -> None:
        stage = self.stages[number_]
        stage.now, stage.turning = stage.now + 1, False
        free, self.waiting[number_] = sorted(self.waiting[number_]), set()
        for event in free:
            self._start(event, now)

    def changes(self) -> dict[str, NDArray[Any]]:
        """Write down all boundaries, by phase."""
        rows = []
        for phase in self.phases:
            stage, k = self.stages[self.stage_of[phase.rail, phase.stage]], phase.position
            change = stage.changes[k]
            before = stage.idle_s[k - 1] if k else 0.0
            rows.append(
                (
                    *change,
                    max(0.0, stage.wanted[k] - before),
                    max(0.0, change.ready - max(stage.wanted[k], before)),
                )
            )
        table = np.array(rows, dtype=np.float64).reshape(-1, 6)
        names = ("switched", "asked_s", "begun_s", "ready_s", "window_s", "exposed_s")
        return {**dict(zip(names, table.T, strict=True)), "switched": table[:, 0] != 0}


def _stages(
    job: RailJob, changed: NDArray[np.bool_]
) -> tuple[list[_Stage], dict[int, list[tuple[int, int]]], dict[tuple[int, int], int]]:
    """Take one stage of each class; say which phases an event is part of, and what stands where.

    Returns
    -------
    tuple
        The stages; by event the numbers of stage and phase; by rail and stage of a phase the
        number of the one that stands for it.
    """
    step, folded = job.step(), job.fold()
    rail = step.rail
    classes = dict(zip(stage_keys(step), folded.stage_class.tolist(), strict=True))
    stands: dict[int, tuple[int, int]] = {}  # for each class its first stage
    number_of: dict[int, int] = {}
    stage_of: dict[tuple[int, int], int] = {}
    found: list[_Stage] = []
    places: dict[int, list[tuple[int, int]]] = {}
    for k, phase in enumerate(job.phases()):
        key = phase.rail, phase.stage
        kind = classes[key]
        if stands.setdefault(kind, key) == key:
            if phase.position == 0:
                number_of[kind] = len(found)
                found.append(_Stage(phase.rail))
            stage = found[number_of[kind]]
            spans = zip(phase.first.tolist(), phase.last.tolist(), strict=True)
            own = np.concatenate([np.arange(first, last + 1) for first, last in spans])
            inside = np.unique(folded.event[own[rail[own] == phase.rail]]).tolist()
            for event in inside:
                places.setdefault(event, []).append((number_of[kind], phase.position))
            stage.changes_to.append(bool(changed[k]))
            stage.left.append(len(inside))
            stage.idle_s.append(0.0)
        stage_of[key] = number_of[kind]
    return found, places, stage_of
