"""Method `min-jct`: the assignment with the least mean time to the last resource, by CP-SAT.

JCT is the job completion time: from the moment at which a job asks to its last resource. A *class*
is all resources that may serve the same jobs.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Bound, Event, Limits, NewBest, OnEvent, Solution, SolverError
from optmatch.problems import PortSharing
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel
from optmatch.solvers.sharing.conclusion import conclude
from optmatch.solvers.sharing.network import Network

MOST = 50_000
"""The most kinds of resources times jobs that a model may have."""

_MOST_STEPS = 2.0**45
"""The most steps that all jobs wait together: exact in a float, and far from CP-SAT's overflow."""


class Kinds(NamedTuple):
    """Resources of one class that come at one time are of one kind."""

    kind_of_resource: NDArray[np.intp]
    """(resources,): the kind of each, from 0."""
    class_of_kind: NDArray[np.int64]
    """(kinds,): the class that its resources are of."""
    arrival_s: NDArray[np.float64]
    """(kinds,): when its resources come, in seconds."""
    sizes: NDArray[np.int64]
    """(kinds,): how many resources there are."""


def takes(problem: PortSharing) -> bool:
    """Tell whether the model is small enough."""
    if problem.objective != "min-jct":
        return False
    if problem.resources.n_resources * problem.jobs.n_jobs <= MOST:
        return True
    return len(_find_kinds(problem).sizes) * problem.jobs.n_jobs <= MOST


def minimise_completion_times(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Serve all demands with the least mean time from asking to the last resource, by CP-SAT.

    Times are rounded down to whole steps, so that the bound of the model is a bound of the
    problem, too. Without enough resources the problem is infeasible, and a cut is the certificate.
    """
    # A flow shows whether there are enough resources at all.
    jobs = problem.jobs
    network = Network(problem)
    flow = network.serve(jobs.demand)
    if (flow.served < jobs.demand).any():
        return conclude(problem, "min-jct", None, np.inf, certificate=flow.cut)

    # The model minimises the steps that all jobs wait together; the bound is a mean in seconds.
    model = _WaitingModel(problem, network.caps)
    seed = int(rng.integers(2**31))
    steps_per_mean_s = model.steps_per_s * max(jobs.n_jobs, 1)
    bound_of_problem_s = problem.lower_bound()
    tell = partial(_tell_seconds, on_event, steps_per_mean_s, bound_of_problem_s)

    # The bound is the better one of the model and of the problem itself.
    outcome = model.solve(limits.start(), tell, seed=seed)
    bound = max(outcome.lower_bound / steps_per_mean_s, bound_of_problem_s)
    if not outcome.found:
        if outcome.infeasible:
            raise SolverError("CP-SAT finds no answer where a flow serves all")
        return conclude(problem, "min-jct", None, bound, outcome.limit)
    stats = {"bound_by": "cp-sat"} if bound > bound_of_problem_s else {}
    return conclude(problem, "min-jct", model.read(outcome), bound, outcome.limit, stats=stats)


def _tell_seconds(
    on_event: OnEvent, steps_per_mean_s: float, bound_of_problem_s: float, event: Event
) -> None:
    """Report what CP-SAT reports in steps of all jobs as a mean in seconds."""
    if isinstance(event, NewBest):
        event = NewBest(float(event.objective) / steps_per_mean_s)
    elif isinstance(event, Bound):
        event = Bound(max(event.lower_bound / steps_per_mean_s, bound_of_problem_s))
    on_event(event)


class _WaitingModel(ExactModel[NDArray[np.int32]]):
    """The model of a problem, which minimises the steps that all jobs wait together.

    Parameters
    ----------
    problem
        The question.
    caps
        ``caps[job, plane]``: how much a job can take of a plane; None if there are no planes.

    Attributes
    ----------
    amounts
        ``amounts[kind, job]``: the variable of what a job gets of a kind.
    steps_per_s
        How many steps of time are a second.
    """

    tells = True

    def __init__(self, problem: PortSharing, caps: NDArray[np.int64] | None) -> None:
        """Write the variables, the constraints, and the sum of waiting times to be minimised.

        ``amounts[kind, job]`` is how many resources of a kind (one class and one time of arrival,
        see `Kinds`) a job gets. Each job gets its demand in all, of each kind no more is given out
        than there is (``kinds.sizes``), and the caps of jobs on planes hold.
        """
        # Variables by kind and job, the terms of the objective, and caps by job and plane; a kind
        # is on one plane.
        super().__init__()
        self.kinds = _find_kinds(problem)
        self.steps_per_s = _steps_per_s(problem, self.kinds)
        self.amounts: dict[tuple[int, int], Any] = {}
        self._cost: list[Any] = []
        plane_of_kind = problem.classes.plane[self.kinds.class_of_kind]

        # For each kind the jobs that it may serve, and the variables of what they get of it; kinds
        # in the order in which their resources come.
        may_serve = problem.classes.jobs_of[self.kinds.class_of_kind]
        in_time = np.argsort(self.kinds.arrival_s, kind="stable").tolist()
        amounts_of_kind: list[list[Any]] = [[] for _ in self.kinds.sizes]
        asked_s = problem.jobs.arrivals_s

        # What each job takes of each kind adds up to its demand.
        for job, demand in enumerate(problem.jobs.demand.tolist()):
            kinds = [kind for kind in in_time if may_serve[kind, job]]
            for kind in kinds:
                most = min(demand, int(self.kinds.sizes[kind]))
                amount = self.model.new_int_var(0, most, "")
                self.amounts[kind, job] = amount
                amounts_of_kind[kind].append(amount)
            self.model.add(sum(self.amounts[kind, job] for kind in kinds) == demand)
            self._count_waiting(job, demand, kinds, float(asked_s[job]))

            # A job gets no more of a plane than its cap there.
            for plane, cap in enumerate([] if caps is None else caps[job].tolist()):
                on_plane = [kind for kind in kinds if plane_of_kind[kind] == plane]
                self.model.add(sum(self.amounts[kind, job] for kind in on_plane) <= cap)

        # All jobs together get no more of a kind than there is.
        for size, amounts in zip(self.kinds.sizes.tolist(), amounts_of_kind, strict=True):
            self.model.add(sum(amounts) <= size)
        self.model.minimize(sum(self._cost))

    def _count_waiting(self, job: int, demand: int, kinds: list[int], asked_s: float) -> None:
        """Add the time that a job waits for its last resource to the objective, in steps.

        `kinds` are the kinds of resources that may serve the job, which asks at `asked_s` for
        `demand` of them. Time is cut at the arrivals of resources. Example: a job that asks at 0 s
        and takes resources that come at 2 s and at 5 s has the literals "waits until 2 s", with
        cost 2, and "waits from then until 5 s", with cost 3; both are true if it takes anything
        that comes at 5 s.
        """
        if not demand:
            return
        arrival_s = self.kinds.arrival_s

        # The time is cut where resources come. A literal for each piece says whether the job waits
        # through it; if it does, it has waited through the pieces before.
        before_s = asked_s
        waits_before = None
        for time_s in np.unique(arrival_s[kinds]).tolist():
            if time_s <= before_s:
                continue
            # A job that gets anything at this time or later waits until this time at least.
            waits = self.model.new_bool_var("")
            late = [self.amounts[kind, job] for kind in kinds if arrival_s[kind] >= time_s]
            self.model.add(sum(late) <= demand * waits)
            if waits_before is not None:
                self.model.add_implication(waits, waits_before)
            self._cost.append(int((time_s - before_s) * self.steps_per_s) * waits)
            before_s = time_s
            waits_before = waits

    def read(self, outcome: Outcome) -> NDArray[np.int32]:
        """Return ``job_of[resource]``, -1 for none; the first resources of each kind are used.

        Jobs take the resources of a kind in turn: 2 for job 0 and 1 for job 1 are the first two,
        and the third one.
        """
        kinds = self.kinds
        resources_by_kind = np.argsort(kinds.kind_of_resource, kind="stable")
        next_of_kind = (np.cumsum(kinds.sizes) - kinds.sizes).tolist()
        job_of = np.full(len(kinds.kind_of_resource), -1, dtype=np.int32)
        for (kind, job), amount in self.amounts.items():
            first = next_of_kind[kind]
            next_of_kind[kind] += outcome.value(amount)
            job_of[resources_by_kind[first : next_of_kind[kind]]] = job
        return job_of


def _steps_per_s(problem: PortSharing, kinds: Kinds) -> float:
    """Return the steps of a second: 1 where all times are whole, else the largest safe power of 2.

    All jobs together then wait at most ``_MOST_STEPS`` steps.
    """
    asked_s = problem.jobs.arrivals_s
    times_are_whole = bool((kinds.arrival_s % 1 == 0).all() and (asked_s % 1 == 0).all())
    if times_are_whole:
        return 1.0
    last_s = max(float(kinds.arrival_s.max(initial=0.0)), 1e-9)
    most_waiting_s = last_s * max(problem.jobs.n_jobs, 1)
    steps_per_s: float = 2.0 ** np.floor(np.log2(_MOST_STEPS / most_waiting_s))
    return steps_per_s


def _find_kinds(problem: PortSharing) -> Kinds:
    """Put resources together that are of one class and come at one time."""
    # A pair of class and time is one number, so that equal pairs are equal numbers.
    times_s, time_of_resource = np.unique(problem.resources.arrivals_s, return_inverse=True)
    n_times = max(len(times_s), 1)
    code_of_resource = problem.classes.class_of.astype(np.int64) * n_times + time_of_resource
    codes, kind_of_resource = np.unique(code_of_resource, return_inverse=True)
    class_of_kind, time_of_kind = np.divmod(codes, n_times)
    return Kinds(
        kind_of_resource=kind_of_resource,
        class_of_kind=class_of_kind,
        arrival_s=times_s[time_of_kind],
        sizes=np.bincount(kind_of_resource, minlength=len(codes)),
    )
