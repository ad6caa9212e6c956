"""Rounds of jobs in time: devices check in, answer and leave; a policy assigns them to jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, OnEvent, Tick, Value, frozen, ignore, number
from optmatch.model.display import html_summary
from optmatch.model.problem import write_amount
from optmatch.simulation.sharing.pool import Pool

_AHEAD, _EVERY = 512, 500  # devices that are looked at together, events between two reports


class Moment(NamedTuple):
    """The state that a policy sees when it decides."""

    time_s: float
    asks: NDArray[np.bool_]
    """``asks[job]``: whether it has a round that wants more devices."""
    residual: NDArray[np.int64]
    """``residual[job]``: how many devices its round still wants."""
    had: NDArray[np.int64]
    """``had[job]``: how many its round has had."""
    demand: NDArray[np.int64]
    """``demand[job]``: results that it wants in a round."""
    rounds_left: NDArray[np.int64]
    given: NDArray[np.int64]
    """``given[job]``: devices that it has had in all."""
    asked_s: NDArray[np.float64]
    """``asked_s[job]``: when its first round asked."""
    draws: NDArray[np.float64]
    """``draws[job]``: a number in [0, 1), drawn anew at each request."""
    eligible: NDArray[np.bool_]
    """``eligible[class, job]``."""
    rates: NDArray[np.float64]
    """``rates[class]``: how many devices check in, each second on average."""
    tier: NDArray[np.int32]
    """``tier[class]``: speed, 0 is the fastest."""


Policy = Callable[[Moment], NDArray[np.float64]]
"""Gives ``priority[job]`` or ``priority[class, job]``: a device serves the job of the highest
priority that asks and that it may serve, of equals the first; never one with minus infinity."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolRun(Value):
    """The times of the jobs, and the use of the devices.

    Parameters
    ----------
    completion_s
        ``completion_s[job]``: from its first request to its last result; NaN if it is
        not done at the end.
    waited_s
        ``waited_s[job]``: how long its rounds gathered devices in all, failed ones included.
    given
        ``given[job]``: devices that served it.
    failed
        ``failed[job]``: rounds that missed their deadline.
    n_requests
        How many rounds were asked for, failed ones included.
    checked_in
        Devices that came.
    useful
        Results that counted.
    busy_s, present_s
        Device-seconds of work, and of presence, of all who came, until they leave.
    end_s
        When the last job was done, or the simulation ended.
    log
        ``log[k]``: device, job, and request of the job that it served; devices of the next turn of
        the trace have the next numbers. Empty unless asked for.
    log_s
        When.
    """

    completion_s: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    given: NDArray[np.int64]
    failed: NDArray[np.int64]
    n_requests: int
    checked_in: int
    useful: int
    busy_s: float
    present_s: float
    end_s: float
    log: NDArray[np.int64]
    log_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("waited_s", "log_s"):
            object.__setattr__(self, name, frozen(name, getattr(self, name), 1, np.float64))
        for name, ndim in (("given", 1), ("failed", 1), ("log", 2)):
            object.__setattr__(self, name, frozen(name, getattr(self, name), ndim, np.int64))
        self.completion_s.setflags(write=False)

    def _repr_html_(self) -> str:
        """Show the run in Jupyter: how many jobs are done, and the use of the devices."""
        done = int(np.isfinite(self.completion_s).sum())
        figures = {
            "rounds asked for": str(self.n_requests),
            "rounds that failed": str(int(self.failed.sum())),
            "devices that came": str(self.checked_in),
            "results that counted": str(self.useful),
            "utilisation of devices": f"{self.utilisation:.2%}",
            "end": write_amount(self.end_s, "s"),
        }
        return html_summary(f"{done} of {len(self.completion_s)} jobs are done", figures)

    @property
    def utilisation(self) -> float:
        """The part of its presence that a device works."""
        return self.busy_s / self.present_s if self.present_s else 0.0

    @property
    def throughput_per_s(self) -> float:
        """Results that counted, each second."""
        return self.useful / self.end_s if self.end_s else 0.0


def simulate_pool(
    pool: Pool,
    policy: Policy,
    *,
    seed: int = 0,
    over_selection: float = 1.3,
    enough: float = 0.8,
    patient: bool = True,
    until_s: float = 1e8,
    record: bool = False,
    on_event: OnEvent = ignore,
) -> PoolRun:
    """Let devices serve jobs as a policy says, until all rounds are done, or until `until_s`.

    A job asks for its demand times `over_selection` devices. The round succeeds with the result
    that makes up the part `enough` of the demand, and the next one asks at once. At its deadline,
    counted from the request, it fails, its devices are lost, and it asks anew. A device serves one
    job; if it is `patient` it waits until one wants it or it leaves, else it leaves at once; if it
    leaves before its result, that is lost.

    The policy is asked whenever a job asks, has all its devices, or a round ends. The seed is that
    of the numbers that are drawn for requests; the same arguments give the same run in any
    process. With `record` the run has a log of the job of each device. `on_event` hears a `Tick`
    now and then; an interrupt that it raises ends the simulation.

    Between two events the job that a class serves is fixed, so devices are handled by thousands:
    the cost grows with the events, not with the devices. At one time devices come first, then
    results, deadlines, and first requests; jobs in their order.
    """
    if number("over_selection", over_selection) < 1:
        raise InputError(f"over_selection = {over_selection:g}: >= 1", where="over_selection")
    if not 0 < number("enough", enough) <= 1:
        raise InputError(f"enough = {enough:g}: above 0, at most 1", where="enough")
    rng = np.random.default_rng(seed)
    run = _Run(pool, policy, rng, over_selection, enough, patient, until_s, record)
    events = 0
    while run.step():
        if events % _EVERY == 0:
            on_event(Tick("pool", int(run.n_done), len(pool.demand)))
        events += 1
    return run.result()


class _Run:
    """The pool at one time."""

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        rng: np.random.Generator,
        over_selection: float,
        enough: float,
        patient: bool,
        until_s: float,
        record: bool,
    ) -> None:
        jobs = len(pool.demand)
        self.pool, self.policy, self.rng = pool, policy, rng
        # products are rounded first: 1.1 * 10 is a little more than 11
        self.wanted = np.ceil((pool.demand * over_selection).round(9)).astype(np.int64)
        self.needed = np.ceil((pool.demand * enough).round(9)).astype(np.int64)
        self.eligible, self.rates = pool.eligible.astype(np.bool_), pool.rates
        self.now, self.head, self.n_done, self.useful, self.busy_s = 0.0, 0, 0, 0, 0.0
        self.waiting: list[NDArray[np.int64]] = []
        self.idle = np.zeros(len(pool.tier), np.bool_)  # whether devices of a class may wait
        self.residual, self.given = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
        self.failed, self.rounds_left = np.zeros(jobs, np.int64), pool.rounds.copy()
        self.requests, self.draws = np.zeros(jobs, np.int64), np.zeros(jobs)
        self.begun_s, self.waited_s = np.zeros(jobs), np.zeros(jobs)
        self.completion_s = np.full(jobs, np.nan)
        self.first_s, self.due_s = pool.asked_s.copy(), np.full(jobs, np.inf)
        self.success_s = np.full(jobs, np.inf)
        self.ends_s = [np.zeros(0) for _ in range(jobs)]  # when the devices of a round answer
        self.record, self.until_s, self.filled = record, until_s, False
        self.patient = patient
        self.log: list[tuple[NDArray[np.int64], int, int, NDArray[np.float64]]] = []
        self.top, self.classes = np.full(len(pool.tier), -1), np.arange(len(pool.tier))

    def step(self) -> bool:
        """Go on to the next event, or over the next devices; False at the end."""
        if self.n_done == len(self.given) or self._is_dry():
            return False
        turn, first = divmod(self.head, max(1, len(self.pool.arrival_s)))
        ahead = 0 if turn and not self.pool.period_s else _AHEAD
        shift_s = turn * self.pool.period_s
        times_s = self.pool.arrival_s[first : first + ahead] + shift_s
        known, until_s = len(times_s), min(self._next_event(), self.until_s)
        times_s = times_s[: times_s.searchsorted(until_s, side="right")]
        whole = len(times_s) < known or not known
        places = np.arange(first, first + len(times_s))
        leaves_s = self.pool.departure_s[first : first + len(times_s)] + shift_s
        served = self._serve(places, self.head - first, times_s, leaves_s)
        self.head += served
        if self.filled:
            self.now = float(times_s[served - 1])
        elif served == len(times_s) and not whole:
            self.now = float(times_s[-1])
            return True
        else:
            time_s = self._next_event()  # a time that the last devices may have brought near
            self.now = min(time_s, self.until_s)
            if time_s > self.until_s:
                return False
            self._end_rounds()
        self._decide()
        return True

    def result(self) -> PoolRun:
        """Tell what happened."""
        pool, (turns, rest) = self.pool, divmod(self.head, max(1, len(self.pool.arrival_s)))
        stays_s = pool.departure_s - pool.arrival_s
        log = [(d, j, r) for devices, j, r, _ in self.log for d in devices.tolist()]
        return PoolRun(
            completion_s=self.completion_s,
            waited_s=self.waited_s,
            given=self.given,
            failed=self.failed,
            n_requests=int(self.requests.sum()),
            checked_in=self.head,
            useful=self.useful,
            busy_s=self.busy_s,
            present_s=turns * float(stays_s.sum()) + float(stays_s[:rest].sum()),
            end_s=self.now,
            log=np.array(log, np.int64).reshape(-1, 3),
            log_s=np.concatenate([np.zeros(0), *(times_s for *_, times_s in self.log)]),
        )

    def _next_event(self) -> float:
        return float(min(self.first_s.min(), self.due_s.min(), self.success_s.min()))

    def _is_dry(self) -> bool:
        """Tell whether no device will serve any more."""
        over = self.head >= len(self.pool.arrival_s) and not self.pool.period_s
        return over and self.success_s.min() == np.inf and not len(self._present()[0])

    def _present(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the waiting devices that have not left, their places in the trace, and ends."""
        devices = np.concatenate([np.zeros(0, np.int64), *self.waiting])
        turns, places = np.divmod(devices, max(1, len(self.pool.arrival_s)))
        leaves_s = self.pool.departure_s[places] + turns * self.pool.period_s
        here = leaves_s > self.now
        self.waiting = [devices[here]]
        return devices[here], places[here], leaves_s[here]

    def _serve(
        self,
        places: NDArray[np.int64],
        shift: int | NDArray[np.int64],
        times_s: NDArray[np.float64],
        leaves_s: NDArray[np.float64],
    ) -> int:
        """Let devices that are there at some times serve the jobs of their classes, or wait.

        `places` are theirs in the trace, and `shift` makes their numbers of these. Stops after the
        device with which a job has all, and where a round succeeds: returns how many devices that
        are. An answer that comes after a success cannot have made it.
        """
        count, classes = len(places), self.pool.class_of[places]
        job_of = self.top[classes]
        ends_s = times_s + self.pool.response_s[places]
        answers, serving = ends_s <= leaves_s, []
        for job in {*self.top.tolist()} - {-1}:
            mine = (job_of == job).nonzero()[0]
            if len(mine):
                serving.append((job, mine))
            if len(mine) >= self.residual[job]:
                count = min(count, int(mine[self.residual[job] - 1]) + 1)
        for job, mine in serving:
            ours = mine[: mine.searchsorted(count)]
            success_s = self._success_s(job, ends_s[ours[answers[ours]]])
            count = min(count, int(times_s.searchsorted(success_s, side="right")))
        self.filled = False
        for job, mine in serving:
            ours = mine[: mine.searchsorted(count)]
            if not len(ours):
                continue
            self.residual[job] -= len(ours)
            self.given[job] += len(ours)
            good = ends_s[ours[answers[ours]]]
            self.success_s[job] = self._success_s(job, good)
            self.ends_s[job] = np.concatenate((self.ends_s[job], good))
            self.busy_s += float((np.minimum(ends_s[ours], leaves_s[ours]) - times_s[ours]).sum())
            if not self.residual[job]:
                self.filled = True
                self.waited_s[job] += times_s[ours[-1]] - self.begun_s[job]
            if self.record:
                devices = (places + shift)[ours]
                self.log.append((devices, job, int(self.requests[job]), times_s[ours]))
        idle = (job_of[:count] < 0).nonzero()[0]
        if len(idle) and self.patient:
            self.waiting.append((places + shift)[idle])
            self.idle[classes[idle]] = True
        return count

    def _success_s(self, job: int, more_s: NDArray[np.float64]) -> float:
        """Return when the round of a job succeeds, if more devices answer at these times."""
        needed, known_s = self.needed[job], self.ends_s[job]
        if len(known_s) + len(more_s) < needed:
            return np.inf
        together = np.concatenate((known_s, more_s))
        together.partition(needed - 1)
        return float(together[needed - 1])

    def _end_rounds(self) -> None:
        """Let rounds succeed or fail that are due now, and jobs ask for the first time."""
        for job in np.flatnonzero(self.success_s <= self.now).tolist():
            self.useful += int(self.needed[job])
            self.rounds_left[job] -= 1
            self._request(job)
        for job in np.flatnonzero(self.due_s <= self.now).tolist():
            self.failed[job] += 1
            self._request(job)
        for job in np.flatnonzero(self.first_s <= self.now).tolist():
            self.first_s[job] = np.inf
            self._request(job)

    def _request(self, job: int) -> None:
        """End a round of a job, if there is one, and begin the next, if there is one."""
        if self.residual[job]:
            self.waited_s[job] += self.now - self.begun_s[job]
        self.ends_s[job], self.success_s[job] = np.zeros(0), np.inf
        if not self.rounds_left[job]:
            self.residual[job], self.due_s[job] = 0, np.inf
            self.completion_s[job] = self.now - self.pool.asked_s[job]
            self.n_done += 1
            return
        self.residual[job], self.begun_s[job] = self.wanted[job], self.now
        self.due_s[job] = self.now + self.pool.deadline_s[job]
        self.requests[job] += 1
        self.draws[job] = self.rng.random()

    def _decide(self) -> None:
        """Ask the policy, and let waiting devices serve; again while a job has all by that."""
        self.filled = True
        while self.filled:
            asks = self.residual > 0
            now = Moment(
                time_s=self.now,
                asks=asks,
                residual=self.residual,
                had=self.wanted - self.residual,
                demand=self.pool.demand,
                rounds_left=self.rounds_left,
                given=self.given,
                asked_s=self.pool.asked_s,
                draws=self.draws,
                eligible=self.eligible,
                rates=self.rates,
                tier=self.pool.tier,
            )
            priority = np.where(self.eligible & asks, self.policy(now), -np.inf)
            self.top = priority.argmax(axis=1)
            self.top[priority[self.classes, self.top] == -np.inf] = -1
            self.filled = False
            if not self.idle[self.top >= 0].any():
                return
            devices, places, leaves_s = self._present()
            self.waiting, self.idle[:] = [], False
            times_s = np.full(len(devices), self.now)
            served = self._serve(places, devices - places, times_s, leaves_s)
            self.waiting.append(devices[served:])
            self.idle[self.pool.class_of[places[served:]]] = True
