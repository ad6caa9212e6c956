"""Training steps in time: under a policy or by a plan, with the waits for switches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Amount, InputError, Value, integer, number, write_amount
from optmatch.model.declarations import form_of
from optmatch.model.display import html_summary
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import link_triggers
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, COMPUTE
from optmatch.problems.rails.training.times import ends_s, find_rounds, orders
from optmatch.solvers.rails.policies import NO_SPLIT, plan_policy

RailPolicy = Literal["all-links", "static", "on-demand", "provisioned"]
"""When a rail is switched: never, as all links are there or all have a share of the ports; when
all who need a circuit are ready; or when all communication before has ended."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailSimulation(Value):
    """The events and times of one step.

    A *boundary* is where a stage of a rail goes from one phase to the next, or from the last
    phase of the step before to its first one. Boundaries are in the order of the job's phases,
    which they lead to.

    Parameters
    ----------
    policy
        When rails were switched; ``"plan"`` if a plan says so.
    step_s
        When the step ended, in seconds from its beginning.
    start_s, end_s
        ``start_s[operation]``, ``end_s[operation]``, in seconds.
    switched
        ``switched[boundary]``: whether circuits of the stage were changed.
    asked_s
        ``asked_s[boundary]``: when the change was asked for; 0 where nothing is changed.
    begun_s, ready_s
        When it began and when the new circuits were there.
    window_s
        ``window_s[boundary]``: from the last end of the phase before to the first moment when an
        operation of the next one was ready, at any rank of the stage; of a first phase, from the
        beginning of the step.
    exposed_s
        ``exposed_s[boundary]``: how long the first operation that was ready waited for its
        circuits, from when these were asked for until they were there. A plan may put an
        operation off for other reasons, which do not count. The step need not be longer for a
        wait, as others may end later anyway.
    circuits
        ``circuits[boundary]``: how many new circuits start at the stage.
    circuits_changed
        How many circuits were set up in the step, on all rails, within phases too.
    """

    policy: Literal[RailPolicy, "plan"]
    delay_s: Amount
    step_s: Amount
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    switched: NDArray[np.bool_]
    asked_s: NDArray[np.float64]
    begun_s: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    window_s: NDArray[np.float64]
    exposed_s: NDArray[np.float64]
    circuits: NDArray[np.int64]
    circuits_changed: int

    def _repr_html_(self) -> str:
        figures = {
            "step": write_amount(self.step_s, "s"),
            "reconfiguration delay": write_amount(self.delay_s, "s"),
            "boundaries with a change": f"{int(self.switched.sum())} of {len(self.switched)}",
            "circuits set up": str(self.circuits_changed),
            "longest wait for circuits": write_amount(float(self.exposed_s.max(initial=0.0)), "s"),
        }
        return html_summary(f"one training step, policy {self.policy}", figures)

    def switches_per_rank(self, job: RailJob) -> NDArray[np.int64]:
        """Count by rank the boundaries at which its circuits change."""
        counts = np.zeros(job.step().n_ranks, np.int64)
        for phase, switched in zip(job.phases(), self.switched.tolist(), strict=True):
            counts[list(phase.ranks)] += switched
        return counts


def simulate_rails(
    job: RailJob, policy: RailPolicy = "on-demand", *, delay_s: float | None = None
) -> RailSimulation:
    """Simulate one training step of a job whose GPUs communicate over optical switches.

    A rank is a GPU, and a rail is a switch between GPUs. A phase of communication needs certain
    circuits, the next phase may need others, and a change of circuits takes a delay. A policy says
    when a rank changes its circuits.

    Parameters
    ----------
    job
        The training job, which repeats the step.
    policy
        - ``"on-demand"``: circuits change when the data of the next communication are ready, and
          the last one over the old circuits has ended;
        - ``"provisioned"``: they change earlier, when that last one has ended, and all
          communication over rails that the next one waits for;
        - ``"static"``: nothing changes, and each kind of circuit has ports of its own;
        - ``"all-links"``: nothing has to change, as if all circuits could be there at once, each
          over all ports.
    delay_s
        How long a change of circuits takes, in seconds; None for the delay of the job.

    Returns
    -------
    RailSimulation
        The time of the step, begin and end of each operation, and for each change of phase when
        circuits changed and how long operations waited for them, in seconds. The step begins with
        the circuits with which it ends, since it is repeated.

    Raises
    ------
    InputError
        If a step cannot end, since ranks wait for each other; if there are fewer ports than kinds
        of circuits for ``"static"``; if a fabric of bidirectional ports has an odd number for each
        GPU.

    Notes
    -----
    Ranks that behave alike are planned once: time O(operations) to find them, and the longest path
    through the operations of the rest.

    Examples
    --------
    >>> from optmatch.problems import Parallelism, RailNetwork, TransformerModel, Workload
    >>> model = TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                          ffn=4096)
    >>> job = RailJob(parallelism=Parallelism(dp=2, tp=2, pp=2),
    ...               network=RailNetwork(gpus_per_server=2),
    ...               workload=Workload(model=model, batch=8))
    >>> slow, early = (simulate_rails(job, policy, delay_s=1e-4)
    ...                for policy in ("on-demand", "provisioned"))
    >>> slow.switches_per_rank(job).tolist(), slow.step_s > early.step_s > job.lower_bound()
    ([2, 2, 2, 2, 4, 4, 4, 4], True)
    """
    form_of(RailJob).check("job", job)
    form_of(RailPolicy).check("policy", policy)
    if delay_s is not None:
        job = job.with_delay(delay_s)
    if policy != "all-links":
        plan = plan_policy(job, policy)
        if plan is None:
            raise InputError(f"ports: {NO_SPLIT}", where="ports")
        return replace(read_plan(job, plan), policy=policy)

    # All links are there at once: nothing is switched, and an operation ends when the longest path
    # of operations before it has ended.
    events = job.events()
    event_end_s = ends_s(events)
    n_boundaries = len(job.phases())
    zeros_s = np.zeros(n_boundaries)
    return RailSimulation(
        policy=policy,
        delay_s=job.network.delay_s,
        step_s=job.lower_bound(),
        start_s=(event_end_s - events.duration_s)[events.event_of],
        end_s=event_end_s[events.event_of],
        switched=np.zeros(n_boundaries, dtype=np.bool_),
        asked_s=zeros_s,
        begun_s=zeros_s,
        ready_s=zeros_s,
        window_s=zeros_s,
        exposed_s=zeros_s,
        circuits=np.zeros(n_boundaries, dtype=np.int64),
        circuits_changed=0,
    )


def read_plan(job: RailJob, plan: RailPlan) -> RailSimulation:
    """Measure a plan of a training step at the boundaries of phases.

    A phase is a run of communications of a stage of the pipeline that use the same circuits. A
    boundary is switched if a port of its stage has another partner when the phase begins than it
    had in the last operation of the phase before. That the plan keeps all rules is taken for
    granted here; ``verify`` checks it.

    Parameters
    ----------
    job
        The job.
    plan
        A plan of its step: times of all operations, and the circuits of each rail in time.

    Returns
    -------
    RailSimulation
        Times of all operations in seconds; and for each boundary when circuits were asked for,
        began to change and were ready, and how long it waited for them.

    Raises
    ------
    InputError
        If the plan has other operations than the step, or lacks a rail.
    """
    step = job.step()
    if len(plan.start_s) != step.n_operations:
        raise InputError(
            f"a plan of {len(plan.start_s)} operations, the step has {step.n_operations}",
            where="start_s",
        )
    delay_s = job.network.delay_s
    ports_per_gpu = job.network.ports_per_gpu
    ranks_of_rail = ranks_of_rails(step)
    timeline_of_rail = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    # partners_of[id(timeline)][state, way, port]: the port that a port sends to (way 0), or
    # receives from (way 1).
    partners_of = {
        id(timeline): _partners_both_ways(timeline.matchings) for timeline in plan.rails
    }

    # ``data_ready_s[match]``: when all operations before a communication have ended. The last
    # entry, index -1, is of operations that are no communications.
    data_ready_s = np.zeros(2 + int(step.match.max(initial=-1)))
    before, after = orders(step, np.arange(step.n_operations))
    np.maximum.at(data_ready_s, step.match[after], plan.end_s[before])

    # ``last_use_s[operation]``: a time at which it still uses its last circuits. One that changes
    # circuits under way is sure to have them just before its end; any other one at its start.
    changes_circuits = step.kind == ALL_TO_ALL
    for operations, _ in find_rounds(step, job.collectives):
        changes_circuits[operations] = True
    last_use_s = np.where(changes_circuits, np.nextafter(plan.end_s, -np.inf), plan.start_s)

    # Each phase begins with a boundary; the phases of a stage follow each other.
    phases = job.phases()
    switched = np.zeros(len(phases), dtype=np.bool_)
    circuits = np.zeros(len(phases), dtype=np.int64)
    asked_s, begun_s, ready_s, window_s, exposed_s = np.zeros((5, len(phases)))
    for k, phase in enumerate(phases):
        if phase.rail not in timeline_of_rail:
            raise InputError(f"the plan lacks rail {phase.rail}", where="rails")
        timeline = timeline_of_rail[phase.rail]
        partners = partners_of[id(timeline)]

        # A stage begins: its ports. No phase was before.
        if phase.position == 0:
            members = np.searchsorted(ranks_of_rail[phase.rail], phase.ranks)
            ports = members[:, None] * ports_per_gpu + np.arange(ports_per_gpu)
            ports = ports.reshape(-1)
            previous_end_s = 0.0
            previous_use_s = -np.inf

        # The operation whose data are ready first is the one that waits for circuits.
        first = phase.first[np.argmin(data_ready_s[step.match[phase.first]])]
        wanted_s = float(data_ready_s[step.match[first]])
        started_s = float(plan.start_s[first])
        window_s[k] = max(0.0, wanted_s - previous_end_s)

        # The states of the switch when the phase before used its last circuits, and now: state
        # s + 1 is there from ``starts_s[s + 1]`` on.
        times_s = [previous_use_s, started_s]
        old_state, state = np.searchsorted(timeline.starts_s[1:], times_s, side="right").tolist()
        old = partners[old_state][:, ports]
        new = partners[state][:, ports]
        if (new != old).any():
            # The latest changes may have been for other ports: go back as long as the state before
            # has the same circuits at these ports, to the change that set them up.
            while (partners[state - 1][:, ports] == new).all():
                state -= 1
            switched[k] = True
            asked_s[k] = timeline.asked_s[state]
            begun_s[k] = timeline.starts_s[state]
            ready_s[k] = begun_s[k] + delay_s
            # The change is exposed as far as it delays the start of the phase: before it is asked
            # for, and after it has ended, the operation waits for something else. If a change is
            # asked for at 2 s and ready at 5 s, the data are ready at 4 s and the phase starts at
            # 6 s, then 1 s is exposed.
            waits_from_s = max(wanted_s, previous_end_s, asked_s[k])
            exposed_s[k] = max(0.0, min(started_s, ready_s[k]) - waits_from_s)
            circuits[k] = np.count_nonzero((new[0] != old[0]) & (new[0] != IDLE))

        # For the next phase: when this one ends, and a time at which it uses its last circuits.
        previous_end_s = float(plan.end_s[phase.last].max())
        previous_use_s = float(last_use_s[phase.last].max())

    # The circuits that all rails set up.
    n_changed = 0
    for timeline in plan.rails:
        earlier = timeline.matchings[:-1]
        later = timeline.matchings[1:]
        n_new = np.count_nonzero((later != earlier) & (later != IDLE))
        n_changed += int(n_new) * len(timeline.rails)
    return RailSimulation(
        policy="plan",
        delay_s=delay_s,
        step_s=plan.step_s,
        start_s=plan.start_s,
        end_s=plan.end_s,
        switched=switched,
        asked_s=asked_s,
        begun_s=begun_s,
        ready_s=ready_s,
        window_s=window_s,
        exposed_s=exposed_s,
        circuits=circuits,
        circuits_changed=n_changed,
    )


def _partners_both_ways(matchings: NDArray[np.int32]) -> NDArray[np.int32]:
    """List by state and port the port that it sends to, and the one that it receives from.

    The result has shape (states, 2, ports).
    """
    receives_from = np.full_like(matchings, IDLE)
    state, source = np.nonzero(matchings != IDLE)
    receives_from[state, matchings[state, source]] = source
    return np.stack([matchings, receives_from], axis=1)


def draw_factors(rng: np.random.Generator, jitter: float, count: int) -> NDArray[np.float64]:
    """Draw factors of mean 1 and standard deviation `jitter` (lognormal)."""
    variance = math.log1p(jitter**2)  # of the logarithm
    return np.exp(rng.normal(-variance / 2, math.sqrt(variance), count))


def simulate_jitter(
    job: RailJob, plan: RailPlan | None, jitter: float, *, runs: int = 100, seed: int = 0
) -> NDArray[np.float64]:
    """Run a step again and again, in the order of a plan and with computations of random length.

    The circuits of a plan change in its order, each as soon as what it waits for is over
    (`derive_triggers`).

    Parameters
    ----------
    job
        The job, whose step is a graph of computations and communications.
    plan
        When circuits change; None if all links are there at once.
    jitter
        The standard deviation of the factor by which each computation is longer; 0 for none.
    runs
        How often the step is run.
    seed
        Plans of one job get the same factors from the same seed.

    Returns
    -------
    float64 array
        ``step_s[run]``: the time of each step in seconds, shape (runs,).
    """
    jitter = number("jitter", jitter)
    runs = integer("runs", runs, at_least=1)
    rng = np.random.default_rng(integer("seed", seed, at_least=0))

    # The events of the job come first in the graph of a plan, which adds changes of circuits.
    events = job.events()
    computations = np.flatnonzero(job.step().kind[events.part] == COMPUTE)
    if plan is not None:
        _, graph = link_triggers(job, derive_triggers(job, plan))
        events = graph.events

    step_s = np.empty(runs)
    for run in range(runs):
        duration_s = events.duration_s.copy()
        duration_s[computations] *= draw_factors(rng, jitter, len(computations))
        step_s[run] = ends_s(events._replace(duration_s=duration_s)).max(initial=0.0)
    return step_s
