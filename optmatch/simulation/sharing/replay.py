"""Rounds of jobs in time: devices check in, answer and leave; a policy assigns them to jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, OnEvent, Tick, Value, frozen, ignore, number
from optmatch.model.html_tables import html_summary
from optmatch.model.problem import write_amount
from optmatch.simulation.sharing.pool import Pool

_DEVICES_AT_ONCE = 512
"""How many devices are handled together, so that they share the cost of calls of NumPy."""
_EVENTS_PER_TICK = 500
"""How many events pass between two reports of progress."""


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
        """Show the run in Jupyter: how many jobs are done, and the use of the devices.

        Returns
        -------
        str
            A table of HTML.
        """
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
    """Simulate jobs that share devices by the rule of a policy, until all jobs are done.

    Devices, such as phones, come and leave. A job has several rounds, one after the other. In a
    round it asks some devices for a result, more than it needs, as some leave too early.

    Example: a demand of 10 with `over_selection` 1.3 asks for 13 devices, and with `enough` 0.8 it
    succeeds at the 8th result. If these are not there at its deadline, counted from the request,
    the round fails, and is begun anew with other devices.

    A device serves one job. If it leaves before its result, that is lost. Devices of one class may
    serve the same jobs and are about equally fast. The policy says which job each class serves
    until the next event: a job asks, a job has all its devices, or a round ends. Many devices are
    handled at once, so that the cost grows with the events and not with the devices.

    If several things happen at one time, devices come first, then results, deadlines, and first
    requests.

    Parameters
    ----------
    pool
        The devices with their times and classes, and the jobs.
    policy
        Gives each job a priority for each class of devices. It is asked at each event.
    seed
        The seed of the random numbers, one for each request; the same arguments give the same run
        in any process.
    over_selection
        Devices that a job asks for, over its demand; at least 1.
    enough
        The part of the demand whose results make a round succeed, above 0 and at most 1.
    patient
        Whether a device waits until a job wants it or it leaves; else it leaves at once.
    until_s
        The simulation ends at this time in seconds, whatever is left.
    record
        Whether the run has a log of the job of each device.
    on_event
        Hears a `Tick` now and then; an interrupt that it raises ends the simulation.

    Returns
    -------
    PoolRun
        By job ``completion_s`` (seconds from its first request to its last result, NaN if it is
        not done), ``waited_s``, ``given`` (devices that served it) and ``failed`` (rounds). For
        all devices how many came, how many results were of use, and how many seconds they worked
        and were there. With `record` also the log.
    """
    if number("over_selection", over_selection) < 1:
        raise InputError(f"over_selection = {over_selection:g}: >= 1", where="over_selection")
    if not 0 < number("enough", enough) <= 1:
        raise InputError(f"enough = {enough:g}: above 0, at most 1", where="enough")
    # Devices that a round asks for, and results that it needs. Products are rounded first, as
    # 1.1 * 10 is a little more than 11.
    n_wanted = np.ceil((pool.demand * over_selection).round(9)).astype(np.int64)
    needed = np.ceil((pool.demand * enough).round(9)).astype(np.int64)
    rng = np.random.default_rng(seed)
    rules = _Rules(policy, n_wanted, needed, patient=patient, until_s=until_s, record=record)
    replay = _PoolReplay(pool, rules, rng)
    n_events = 0
    while replay.step():
        if n_events % _EVENTS_PER_TICK == 0:
            on_event(Tick("pool", int(replay.n_done), len(pool.demand)))
        n_events += 1
    return replay.result()


class _Rules(NamedTuple):
    """What jobs ask for, and how devices behave."""

    policy: Policy
    wanted: NDArray[np.int64]
    """``wanted[job]``: how many devices a round asks for."""
    needed: NDArray[np.int64]
    """``needed[job]``: with how many results a round succeeds."""
    patient: bool
    """Whether a device waits until a job wants it or it leaves."""
    until_s: float
    record: bool
    """Whether the job of each device is logged."""


class _Devices(NamedTuple):
    """Devices that are there at certain times, in the order of these times."""

    places: NDArray[np.int64]
    """Their places in the trace."""
    numbers: NDArray[np.int64]
    """Their numbers: those of the next turn of the trace go on after those of the last."""
    times_s: NDArray[np.float64]
    leaves_s: NDArray[np.float64]


class _LogEntry(NamedTuple):
    """Devices that began to serve one request of a job."""

    devices: NDArray[np.int64]
    job: int
    request: int
    times_s: NDArray[np.float64]


class _PoolReplay:
    """The pool at one time; arrays are indexed by job, by class, or as they say.

    The next event of a job is its first request, the success of its round, or the deadline of its
    round; a time is infinite where there is no such event to come.
    """

    def __init__(self, pool: Pool, rules: _Rules, rng: np.random.Generator) -> None:
        """Begin a simulation of devices that serve jobs, at time 0: nothing has happened yet.

        A job runs in rounds. Each round requests some devices, and succeeds once enough of them
        have sent a result; it fails at its deadline, and is begun anew. Devices of one class may
        serve the same jobs and are about equally fast. A policy says which job each class serves.

        Parameters
        ----------
        pool
            The devices with their times in seconds, their classes, and the jobs.
        rules
            The policy, how many devices a round asks for, how many results it needs, whether
            devices wait for a job, and when the replay ends, in seconds.
        rng
            Draws a number for each request, by which policies may break ties.
        """
        # Constants of the run. ``eligible[class, job]`` is whether a class may serve a job, and
        # ``rates[class]`` how many devices of it come each second.
        n_jobs = len(pool.demand)
        n_classes = len(pool.tier)
        self.pool = pool
        self.rules = rules
        self.rng = rng
        self.eligible = pool.eligible.astype(np.bool_)
        self.rates = pool.rates

        # The time; how many devices came, jobs are done and results were of use; and for how many
        # seconds devices worked, summed over devices.
        self.now_s = 0.0
        self.n_came = 0
        self.n_done = 0
        self.n_useful = 0
        self.busy_s = 0.0
        self.waiting: list[NDArray[np.int64]] = []
        """Numbers of devices that wait for a job; some may have left."""
        self.may_wait = np.zeros(n_classes, np.bool_)
        """``may_wait[class]``: whether devices of a class may be among them."""

        # All below is by job. Devices that it still wants in this round, and those that it was
        # given in all rounds; rounds that failed, and rounds to go.
        self.residual = np.zeros(n_jobs, np.int64)
        self.given = np.zeros(n_jobs, np.int64)
        self.failed = np.zeros(n_jobs, np.int64)
        self.rounds_left = pool.rounds.copy()

        # How many requests there were, and the random number of the last one.
        self.requests = np.zeros(n_jobs, np.int64)
        self.draws = np.zeros(n_jobs)

        # Seconds: when its round began, how long it waited for devices in all, and how long the
        # job took.
        self.begun_s = np.zeros(n_jobs)
        self.waited_s = np.zeros(n_jobs)
        self.completion_s = np.full(n_jobs, np.nan)

        # Times of events to come, infinite if they do not: the first request, the deadline of the
        # round, and its success, as far as the answers of its devices tell.
        self.first_request_s = pool.asked_s.copy()
        self.deadline_s = np.full(n_jobs, np.inf)
        self.success_s = np.full(n_jobs, np.inf)
        self.answers_s = [np.zeros(0) for _ in range(n_jobs)]
        """For each job when the devices of its round answer."""

        # The decision of the policy.
        self.job_of_class = np.full(n_classes, -1)
        """The job that devices of each class serve, -1 for none."""
        self.is_filled = False
        """Whether a job has got all its devices since the policy was asked."""
        self.log: list[_LogEntry] = []

    def step(self) -> bool:
        """Go on to the next event, or past the next devices, whichever comes first.

        An event is the first request of a job, the success of a round, or its deadline.

        Returns
        -------
        bool
            False at the end: all jobs are done, no device will serve any more, or the time of the
            replay is over.
        """
        if self.n_done == len(self.given) or self._is_dry():
            return False
        devices, reaches_event = self._next_devices()
        n_served = self._serve(devices)
        self.n_came += n_served
        if self.is_filled:
            self.now_s = float(devices.times_s[n_served - 1])
        elif n_served == len(devices.times_s) and not reaches_event:
            self.now_s = float(devices.times_s[-1])
            return True
        else:
            # The devices that have just come may have brought the next event nearer.
            event_s = self._next_event_s()
            self.now_s = min(event_s, self.rules.until_s)
            if event_s > self.rules.until_s:
                return False
            self._end_rounds()
        self._ask_policy()
        return True

    def result(self) -> PoolRun:
        """Return the figures of the run, with what devices had to offer until now.

        Returns
        -------
        PoolRun
            Times in seconds by job, and counts of devices and rounds. Its ``log`` has a row
            (device, job, request) for each device that served, shape (entries, 3), empty if none
            was kept.
        """
        pool = self.pool
        # Time that devices were present: whole turns of the trace, and the first ones of this
        # turn.
        turns, rest = divmod(self.n_came, max(1, len(pool.arrival_s)))
        stays_s = pool.departure_s - pool.arrival_s
        present_s = turns * float(stays_s.sum()) + float(stays_s[:rest].sum())
        log = [
            (device, entry.job, entry.request)
            for entry in self.log
            for device in entry.devices.tolist()
        ]
        log_s = np.concatenate([np.zeros(0), *(entry.times_s for entry in self.log)])
        return PoolRun(
            completion_s=self.completion_s,
            waited_s=self.waited_s,
            given=self.given,
            failed=self.failed,
            n_requests=int(self.requests.sum()),
            checked_in=self.n_came,
            useful=self.n_useful,
            busy_s=self.busy_s,
            present_s=present_s,
            end_s=self.now_s,
            log=np.array(log, np.int64).reshape(-1, 3),
            log_s=log_s,
        )

    def _next_devices(self) -> tuple[_Devices, bool]:
        """List the next devices that come before the next event of a job.

        The trace lists devices in the order in which they come. It may start anew after a period:
        the same devices then come again, with higher numbers.

        Returns
        -------
        devices : _Devices
            At most `_DEVICES_AT_ONCE`: places in the trace, numbers over all turns of the trace,
            and when they come and leave in seconds.
        reaches_event : bool
            Whether they are all that come up to the event.
        """
        pool = self.pool
        # The trace starts anew after each period; without a period it is over after one turn.
        turn, first = divmod(self.n_came, max(1, len(pool.arrival_s)))
        is_over = turn > 0 and not pool.period_s
        last = first if is_over else first + _DEVICES_AT_ONCE
        shift_s = turn * pool.period_s
        arrivals_s = pool.arrival_s[first:last] + shift_s
        n_known = len(arrivals_s)

        until_s = min(self._next_event_s(), self.rules.until_s)
        times_s = arrivals_s[: arrivals_s.searchsorted(until_s, side="right")]
        places = np.arange(first, first + len(times_s))
        leaves_s = pool.departure_s[first : first + len(times_s)] + shift_s
        numbers = places + (self.n_came - first)
        reaches_event = len(times_s) < n_known or not n_known
        return _Devices(places, numbers, times_s, leaves_s), reaches_event

    def _next_event_s(self) -> float:
        nearest_s = (self.first_request_s.min(), self.deadline_s.min(), self.success_s.min())
        return float(min(nearest_s))

    def _is_dry(self) -> bool:
        """Tell whether no device will serve any more."""
        is_over = self.n_came >= len(self.pool.arrival_s) and not self.pool.period_s
        if not is_over or self.success_s.min() < np.inf:
            return False
        return not len(self._waiting_devices().places)

    def _waiting_devices(self) -> _Devices:
        """Return the devices that wait for a job and have not left.

        Those that have left are taken out of ``waiting``.

        Returns
        -------
        _Devices
            Places in the trace, numbers over all turns of the trace, the time now, and when they
            leave, in seconds.
        """
        numbers = np.concatenate([np.zeros(0, np.int64), *self.waiting])
        turns, places = np.divmod(numbers, max(1, len(self.pool.arrival_s)))
        leaves_s = self.pool.departure_s[places] + turns * self.pool.period_s
        stays = leaves_s > self.now_s
        self.waiting = [numbers[stays]]
        times_s = np.full(int(stays.sum()), self.now_s)
        return _Devices(places[stays], numbers[stays], times_s, leaves_s[stays])

    def _serve(self, devices: _Devices) -> int:
        """Give devices, in the order in which they come, to the jobs that their classes serve.

        A policy has chosen one job for each class of devices (``job_of_class``, -1 for none). The
        policy must be asked again as soon as a job has all devices that it wants, or a round of a
        job succeeds, as enough results are there. Devices after that moment are left for the next
        call.

        Example: devices come at 1, 2, 3, 4 s, and job 0 still wants two. Devices 1 and 2 serve it,
        the result is 2, and ``is_filled`` is True.

        Parameters
        ----------
        devices
            Devices in the order in which they come: their places in the trace, their numbers, and
            when they come and leave, in seconds.

        Returns
        -------
        int
            How many of them, the first ones, were handled. Changed are ``is_filled`` (whether a
            job has all its devices now), ``busy_s``, the devices of the jobs, and ``waiting``.
        """
        # The job of each device, -1 for none, and when it answers; one that leaves before that
        # does not answer.
        classes = self.pool.class_of[devices.places]
        job_of_device = self.job_of_class[classes]
        answers_s = devices.times_s + self.pool.response_s[devices.places]
        is_answered = answers_s <= devices.leaves_s

        # n_served: how many devices come until the first job has all that it wants.
        n_served = len(devices.places)
        devices_of_job = dict[int, NDArray[np.intp]]()
        for job in {*self.job_of_class.tolist()} - {-1}:
            of_job = (job_of_device == job).nonzero()[0]
            if len(of_job):
                devices_of_job[job] = of_job
            if len(of_job) >= self.residual[job]:
                n_served = min(n_served, int(of_job[self.residual[job] - 1]) + 1)

        # And how many of these come until the first round succeeds.
        for job, of_job in devices_of_job.items():
            served = of_job[: of_job.searchsorted(n_served)]
            success_s = self._success_time_s(job, answers_s[served[is_answered[served]]])
            n_before = int(devices.times_s.searchsorted(success_s, side="right"))
            n_served = min(n_served, n_before)

        # Now the devices up to there serve their jobs.
        self.is_filled = False
        for job, of_job in devices_of_job.items():
            served = of_job[: of_job.searchsorted(n_served)]
            if len(served):
                new_answers_s = answers_s[served[is_answered[served]]]
                work_end_s = np.minimum(answers_s[served], devices.leaves_s[served])
                self.busy_s += float((work_end_s - devices.times_s[served]).sum())
                self._give(job, devices.numbers[served], devices.times_s[served], new_answers_s)

        # Devices without a job wait for one, if that is the rule.
        idle = (job_of_device[:n_served] < 0).nonzero()[0]
        if len(idle) and self.rules.patient:
            self.waiting.append(devices.numbers[idle])
            self.may_wait[classes[idle]] = True
        return n_served

    def _give(
        self,
        job: int,
        numbers: NDArray[np.int64],
        times_s: NDArray[np.float64],
        answers_s: NDArray[np.float64],
    ) -> None:
        """Give devices to the current round of a job.

        Parameters
        ----------
        job
            The job; it wants at least so many devices still.
        numbers
            The numbers of the devices, shape (devices,).
        times_s
            When each of them comes, in seconds and in order, shape (devices,).
        answers_s
            When the results come, in seconds, of those devices that stay long enough.
        """
        self.residual[job] -= len(numbers)
        self.given[job] += len(numbers)
        self.success_s[job] = self._success_time_s(job, answers_s)
        self.answers_s[job] = np.concatenate((self.answers_s[job], answers_s))
        if not self.residual[job]:
            self.is_filled = True
            self.waited_s[job] += times_s[-1] - self.begun_s[job]
        if self.rules.record:
            self.log.append(_LogEntry(numbers, job, int(self.requests[job]), times_s))

    def _success_time_s(self, job: int, more_answers_s: NDArray[np.float64]) -> float:
        """Return when the round of a job succeeds: with the last result that it needs.

        Parameters
        ----------
        job
            The job.
        more_answers_s
            When results come of devices that would be given to it now, in seconds.

        Returns
        -------
        float
            Seconds; infinite while fewer results are to come than it needs.
        """
        n_needed = self.rules.needed[job]
        known_s = self.answers_s[job]
        if len(known_s) + len(more_answers_s) < n_needed:
            return np.inf
        # The result number n_needed in time decides.
        all_answers_s = np.concatenate((known_s, more_answers_s))
        all_answers_s.partition(n_needed - 1)
        return float(all_answers_s[n_needed - 1])

    def _end_rounds(self) -> None:
        """Let rounds succeed or fail that are due now, and jobs ask for the first time.

        A round that succeeds or fails is followed by a request at once. Results count before
        deadlines of the same moment.
        """
        for job in np.flatnonzero(self.success_s <= self.now_s).tolist():
            self.n_useful += int(self.rules.needed[job])
            self.rounds_left[job] -= 1
            self._request(job)
        for job in np.flatnonzero(self.deadline_s <= self.now_s).tolist():
            self.failed[job] += 1
            self._request(job)
        for job in np.flatnonzero(self.first_request_s <= self.now_s).tolist():
            self.first_request_s[job] = np.inf
            self._request(job)

    def _request(self, job: int) -> None:
        """End the present round of a job, and begin the next one, or note that the job is done.

        In a round a job asks for devices and waits for their results until a deadline.

        Parameters
        ----------
        job
            The number of the job. Its ``rounds_left`` has been lowered already if a round has
            succeeded; after a failure it is as before, and the round is tried anew.
        """
        # A round that ends before it has all its devices (`residual` more are wanted) has waited
        # for them until now. No answers are to come, and there is no time of success yet.
        if self.residual[job]:
            self.waited_s[job] += self.now_s - self.begun_s[job]
        self.answers_s[job] = np.zeros(0)
        self.success_s[job] = np.inf

        # Without further rounds the job is done.
        if not self.rounds_left[job]:
            self.residual[job] = 0
            self.deadline_s[job] = np.inf
            self.completion_s[job] = self.now_s - self.pool.asked_s[job]
            self.n_done += 1
            return

        # The next round asks for devices from now on.
        self.residual[job] = self.rules.wanted[job]
        self.begun_s[job] = self.now_s
        self.deadline_s[job] = self.now_s + self.pool.deadline_s[job]
        self.requests[job] += 1
        self.draws[job] = self.rng.random()

    def _ask_policy(self) -> None:
        """Ask the policy which job each class of devices serves, and let waiting devices serve.

        Devices of a class may serve the same jobs. A job that gets all its devices in this way
        wants no more, and the policy is asked again; this ends when no waiting device serves.
        """
        self.is_filled = True
        while self.is_filled:
            self.job_of_class = self._choose_jobs()
            self.is_filled = False
            if not self.may_wait[self.job_of_class >= 0].any():
                return
            devices = self._waiting_devices()
            self.waiting = []
            self.may_wait[:] = False
            n_served = self._serve(devices)
            self.waiting.append(devices.numbers[n_served:])
            self.may_wait[self.pool.class_of[devices.places[n_served:]]] = True

    def _choose_jobs(self) -> NDArray[np.intp]:
        """Choose for each class of devices the job that it serves: the one of highest priority.

        Devices of a class may serve the same jobs. The policy gives each job a priority for each
        class, from what it sees of this moment.

        Returns
        -------
        int array
            ``job[class]``: -1 if no job asks that the class may serve.
        """
        asks = self.residual > 0
        moment = Moment(
            time_s=self.now_s,
            asks=asks,
            residual=self.residual,
            had=self.rules.wanted - self.residual,
            demand=self.pool.demand,
            rounds_left=self.rounds_left,
            given=self.given,
            asked_s=self.pool.asked_s,
            draws=self.draws,
            eligible=self.eligible,
            rates=self.rates,
            tier=self.pool.tier,
        )
        priority = np.where(self.eligible & asks, self.rules.policy(moment), -np.inf)
        # Only jobs that ask, and that the class may serve, count; the first of equal ones wins.
        best_job: NDArray[np.intp] = priority.argmax(axis=1)
        best_priority = priority.max(axis=1, initial=-np.inf)
        best_job[best_priority == -np.inf] = -1
        return best_job
