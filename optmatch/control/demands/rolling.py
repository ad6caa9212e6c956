"""A schedule that runs while demand arrives: slots are committed one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.control.demands.schedules import Slots, schedule
from optmatch.control.routing.router import Router
from optmatch.entrances import solve
from optmatch.fabrics import Fabric
from optmatch.model import FREE, IDLE, InputError, LimitReached, frozen, number
from optmatch.model.declarations import Amount, Positive, form_of
from optmatch.problems import Demand

_REST = 1e-12  # of an entry: what rounding leaves of it


class Slot(NamedTuple):
    """A slot that is committed."""

    matching: NDArray[np.int32]
    """``matching[source] = destination``, -1 where idle."""
    cell_states: NDArray[np.int8] | None
    """States that hold it, by few toggles from those before; None without cells."""
    start_s: float
    """When the switch may begin to change; light goes from `light_s` on."""
    light_s: float
    end_s: float


@dataclass(eq=False)
class _Batch:
    """What was added at once."""

    added_s: float
    left: NDArray[np.float64]
    rest: NDArray[np.float64]
    done_s: float
    complete: bool = False


class RollingSchedule:
    """Plans the slots of a switch while demand arrives and slots run.

    `add` puts demand into the queue, `next_slot` commits the slot that comes next, `advance` moves
    the clock and serves the queue, the oldest first. After demand has come, the rest of the plan
    and a new plan of all that is not served by committed slots are compared: the shorter one goes
    on. Not for several threads at once.

    Parameters
    ----------
    fabric
        A switch.
    delay_s
        How long nothing is carried where the matching changes.
    rate_bytes_per_s
        What one circuit carries; at 1 demand is in seconds.
    time_limit_s
        How long a plan may take; None for a number of steps. Fabrics that cannot hold every
        matching go by the default method of `Demand` and need a second or so.

    See Also
    --------
    schedule : One demand, all at once.

    Examples
    --------
    >>> import optmatch as om
    >>> rolling = om.RollingSchedule(om.IdealSwitch(2), delay_s=0.5)
    >>> rolling.add([[0, 3], [2, 0]])
    >>> slot = rolling.next_slot()
    >>> slot.matching.tolist(), slot.light_s, slot.end_s
    ([1, 0], 0.5, 3.5)
    >>> rolling.advance(2.5)
    >>> rolling.queued_bytes.tolist(), rolling.figures()["completed"]
    ([[0.0, 1.0], [0.0, 0.0]], 0)
    """

    def __init__(
        self,
        fabric: Fabric,
        delay_s: float,
        *,
        rate_bytes_per_s: float = 1.0,
        time_limit_s: float | None = 0.005,
    ) -> None:
        from optmatch.solvers.feedforward import holds_every_matching

        self._router = Router(fabric)
        self.fabric, self.delay_s = fabric, number("delay_s", delay_s)
        self.rate_bytes_per_s = form_of(Positive).check("rate_bytes_per_s", rate_bytes_per_s)
        self._limit_s = form_of(Amount | None).check("time_limit_s", time_limit_s)
        self._any = holds_every_matching(fabric)
        self._states = np.full(fabric.n_cells, FREE, dtype=np.int8)
        self._held = np.full(fabric.n_ports, IDLE, dtype=np.int32)
        self._batches: list[_Batch] = []
        self._slots: list[Slot] = []  # committed, and not over yet
        self._plan: Slots | None = None
        self._new, self._free_s, self.now_s = False, 0.0, 0.0
        self._sizes = {"completed": 0, "completion_s": 0.0, "wait_s": 0.0, "slots": 0}

    @property
    def queued_bytes(self) -> NDArray[np.float64]:
        """``queued_bytes[source, destination]``: what has come and is not served yet."""
        queued = np.zeros((self.fabric.n_ports,) * 2)
        for batch in self._batches:
            queued += batch.left
        return queued

    def add(self, demand_bytes: ArrayLike) -> None:
        """Put demand into the queue, now.

        Parameters
        ----------
        demand_bytes
            ``demand_bytes[source, destination]`` >= 0.

        Raises
        ------
        InputError
            As of `Demand`.
        """
        demand = frozen("demand_bytes", demand_bytes, 2, np.float64)
        Demand(self.fabric, demand, delay_s=self.delay_s)  # checks it
        batch = _Batch(self.now_s, demand.copy(), demand * _REST, self.now_s)
        self._batches.append(batch)
        self._new = True
        self._finish(batch)

    def next_slot(self) -> Slot | None:
        """Commit the slot after those that are committed; None if these serve all there is.

        Raises
        ------
        LimitReached
            If no plan was found in time, on a fabric that cannot hold every matching.
        """
        left = self._uncommitted()
        if not left.any():
            self._plan = None
            return None
        plan = self._make_plan(left)
        asked = (plan.matchings != IDLE) & (left[np.arange(len(left)), plan.matchings] > 0)
        kept = (plan.matchings == self._held) & asked
        goes_on = (kept | ~asked).all(axis=1) & (self._sizes["slots"] > 0)
        first = int(np.lexsort((-kept.sum(axis=1), ~goes_on))[0])
        start_s = max(self.now_s, self._free_s)
        light_s = start_s if goes_on[first] else start_s + self.delay_s
        matching = self._held.copy() if goes_on[first] else plan.matchings[first].copy()
        if not goes_on[first] and self._any:  # idle ports keep what still serves
            free = np.setdiff1d(np.arange(len(left)), matching)
            stay = (matching == IDLE) & np.isin(self._held, free)
            stay &= left[np.arange(len(left)), self._held] > 0
            matching[stay] = self._held[stay]
        if self.fabric.n_cells:
            self._states = self._router.reroute(self._states, matching).states
        slot = Slot(
            matching,
            self._states.copy() if self.fabric.n_cells else None,
            start_s,
            light_s,
            light_s + float(plan.durations_s[first]),
        )
        others = np.arange(len(plan.durations_s)) != first
        self._plan = plan._replace(
            matchings=plan.matchings[others], durations_s=plan.durations_s[others]
        )
        self._slots.append(slot)
        self._held, self._free_s = matching, slot.end_s
        self._sizes["slots"] += 1
        return slot

    def advance(self, now_s: float) -> None:
        """Let time pass: committed slots serve the queue.

        Raises
        ------
        InputError
            If `now_s` is before the present.
        """
        now_s = number("now_s", now_s)
        if now_s < self.now_s:
            raise InputError(f"now_s = {now_s:g}: before {self.now_s:g}", where="now_s")
        for slot in self._slots:
            begin_s, end_s = max(self.now_s, slot.light_s), min(now_s, slot.end_s)
            if end_s > begin_s:
                self._serve(slot.matching, begin_s, end_s)
        self._slots = [slot for slot in self._slots if slot.end_s > now_s]
        self._batches = [batch for batch in self._batches if not batch.complete]
        self.now_s = now_s

    def figures(self) -> dict[str, float]:
        """Return how things go, by name.

        Returns
        -------
        dict
            ``queued_bytes``; ``waiting``, demands that are not complete; ``completed``, and how
            long these took on average and at most, ``mean_wait_s`` and ``max_wait_s``; when the
            last one was complete, ``completion_s``; ``slots`` committed so far.
        """
        sizes = self._sizes
        return {
            "queued_bytes": float(self.queued_bytes.sum()),
            "waiting": sum(not batch.complete for batch in self._batches),
            "completed": sizes["completed"],
            "mean_wait_s": sizes["wait_s"] / max(1, sizes["completed"]),
            "max_wait_s": sizes.get("max_wait_s", 0.0),
            "completion_s": sizes["completion_s"],
            "slots": sizes["slots"],
        }

    def _uncommitted(self) -> NDArray[np.float64]:
        """Return what the committed slots leave of the queue."""
        left, rest = self.queued_bytes, np.zeros((self.fabric.n_ports,) * 2)
        for batch in self._batches:
            rest += batch.rest
        for slot in self._slots:
            sources = np.flatnonzero(slot.matching != IDLE)
            served = self.rate_bytes_per_s * (slot.end_s - max(self.now_s, slot.light_s))
            left[sources, slot.matching[sources]] -= served
        left[left <= rest] = 0.0
        return left

    def _make_plan(self, left: NDArray[np.float64]) -> Slots:
        """Plan what is left: go on as planned, or anew if that is shorter."""
        rate, limit_s = self.rate_bytes_per_s, self._limit_s
        if not self._any:
            problem = Demand(self.fabric, left, delay_s=self.delay_s, rate_bytes_per_s=rate)
            found = solve(problem, seed=0, time_limit_s=limit_s)
            if found.schedule is None or found.objective is None:
                raise LimitReached("no plan of the queue was found in time")
            held = found.schedule
            return Slots(held.matchings, held.durations_s, found.objective, found.lower_bound)
        before = self._plan if self._plan is not None and len(self._plan.durations_s) else None
        if before is not None and not self._new:
            return before
        self._new = False
        plan = partial(schedule, left, self.delay_s, rate_bytes_per_s=rate, time_limit_s=limit_s)
        anew = plan()
        if before is None:
            return anew
        old = plan(previous=before)
        return min(old, anew, key=lambda plan: plan.completion_s)

    def _serve(self, matching: NDArray[np.int32], begin_s: float, end_s: float) -> None:
        """Let circuits carry what waits, the oldest first."""
        sources = np.flatnonzero(matching != IDLE)
        place = sources, matching[sources]
        room = np.full(len(sources), self.rate_bytes_per_s * (end_s - begin_s))
        carried = np.zeros(len(sources))
        for batch in self._batches:
            taken = np.clip(room - carried, 0.0, batch.left[place])  # below 0 by rounding alone
            carried += taken
            batch.left[place] -= taken
            if taken.any():
                last = float(carried[taken > 0].max()) / self.rate_bytes_per_s
                batch.done_s = max(batch.done_s, begin_s + last)
            self._finish(batch)

    def _finish(self, batch: _Batch) -> None:
        """Note that a demand is complete, if it is."""
        batch.left[batch.left <= batch.rest] = 0.0
        if batch.complete or batch.left.any():
            return
        batch.complete = True
        wait_s, sizes = batch.done_s - batch.added_s, self._sizes
        sizes["completed"] += 1
        sizes["wait_s"] += wait_s
        sizes["max_wait_s"] = max(sizes.get("max_wait_s", 0.0), wait_s)
        sizes["completion_s"] = max(sizes["completion_s"], batch.done_s)
