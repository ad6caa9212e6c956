"""Training steps in time: under a policy or by a plan, with the waits for switches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Amount, InputError, Value, integer, number
from optmatch.model.display import html_summary
from optmatch.model.problem import write_amount
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import link
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, COMPUTE
from optmatch.problems.rails.training.times import ends_s, find_rounds, orders
from optmatch.solvers.rails.policies import NO_SPLIT, plan_policy

RailPolicy = Literal["all-links", "static", "on-demand", "provisioned"]
"""When a rail is switched: never, as all links are there or all have a share of the ports; when
all who need a circuit are ready; or when all communication before has ended."""

_TIMES = ("asked_s", "begun_s", "ready_s", "window_s", "exposed_s")


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
        circuits.
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
        """Show the step in Jupyter: its policy, its time, and what changed in it."""
        figures = {
            "step": write_amount(self.step_s, "s"),
            "reconfiguration delay": write_amount(self.delay_s, "s"),
            "boundaries with a change": f"{int(self.switched.sum())} of {len(self.switched)}",
            "circuits set up": str(self.circuits_changed),
            "longest wait for circuits": write_amount(float(self.exposed_s.max(initial=0.0)), "s"),
        }
        return html_summary(f"one training step, policy {self.policy}", figures)

    def switches_per_rank(self, job: RailJob) -> NDArray[np.int64]:
        """Count the boundaries with a change that each rank sees; of several rails, on all."""
        counts = np.zeros(job.step().n_ranks, np.int64)
        for phase, switched in zip(job.phases(), self.switched.tolist(), strict=True):
            counts[list(phase.ranks)] += switched
        return counts


def simulate_rails(
    job: RailJob, policy: RailPolicy = "on-demand", *, delay_s: float | None = None
) -> RailSimulation:
    """Run one step under a policy, as the method of the same name plans it.

    Parameters
    ----------
    job
        The job.
    policy
        ``"on-demand"``: a rank changes its circuits when all parts of the next communication that
        needs others are ready, and its last one over the old circuits has ended.
        ``"provisioned"``: when that last one has ended, and all communication over rails that the
        next one waits for. ``"static"``: each kind of circuit has ports of its own all the
        time. ``"all-links"``: the circuits of all phases are there at once, over all ports.
    delay_s
        As if a reconfiguration took so long; None for that of the job.

    Returns
    -------
    RailSimulation
        The step begins with the circuits that it ends with: it repeats.

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
    if policy not in get_args(RailPolicy):
        allowed = ", ".join(get_args(RailPolicy))
        raise InputError(f"policy = {policy!r}: one of {allowed}", where="policy")
    if delay_s is not None:
        job = job.with_delay(delay_s)
    if policy != "all-links":
        plan = plan_policy(job, policy)
        if plan is None:
            raise InputError(f"ports: {NO_SPLIT}", where="ports")
        return replace(read_plan(job, plan), policy=policy)
    given = job.events()
    end = ends_s(given)
    none = np.zeros(len(job.phases()))
    return RailSimulation(
        policy=policy,
        delay_s=job.network.delay_s,
        step_s=job.lower_bound(),
        start_s=(end - given.duration_s)[given.event_of],
        end_s=end[given.event_of],
        switched=none != 0,
        circuits=none,  # type: ignore[arg-type]
        circuits_changed=0,
        **dict.fromkeys(_TIMES, none),
    )


def read_plan(job: RailJob, plan: RailPlan) -> RailSimulation:
    """Measure a plan at the boundaries of phases.

    Whether the plan is true is checked by ``verify``. A boundary is switched if a port of its
    stage has another partner when the phase begins than it had in the last operation of the one
    before.
    """
    step, phases = job.step(), job.phases()
    if len(plan.start_s) != step.n_operations:
        raise InputError(
            f"a plan of {len(plan.start_s)} operations, the step has {step.n_operations}",
            where="start_s",
        )
    ready_s = np.zeros(2 + int(step.match.max(initial=-1)))  # by communication; -1 is the last
    one, two = orders(step, np.arange(step.n_operations))
    np.maximum.at(ready_s, step.match[two], plan.end_s[one])
    timelines = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    facing = {id(timeline): _both_ways(timeline.matchings) for timeline in plan.rails}
    places, k = ranks_of_rails(step), job.network.ports_per_gpu
    several = step.kind == ALL_TO_ALL  # communications that may change circuits while under way
    for own, _ in find_rounds(step, job.collectives):
        several[own] = True
    held_s = np.where(several, np.nextafter(plan.end_s, -np.inf), plan.start_s)
    rows, ended, used = [], 0.0, -np.inf
    for phase in phases:
        if phase.rail not in timelines:
            raise InputError(f"the plan lacks rail {phase.rail}", where="rails")
        timeline = timelines[phase.rail]
        if phase.position == 0:
            ended, used = 0.0, -np.inf
            members = np.searchsorted(places[phase.rail], phase.ranks)
            ports = (members[:, None] * k + np.arange(k)).reshape(-1)
        first = phase.first[np.argmin(ready_s[step.match[phase.first]])]
        wanted, began = float(ready_s[step.match[first]]), float(plan.start_s[first])
        # Before the step the circuits of the first state are up.
        states = np.searchsorted(timeline.starts_s[1:], [used, began], side="right")
        old, new = facing[id(timeline)][states][:, :, ports]
        changed, state = bool((new != old).any()), int(states[1])
        while changed and (facing[id(timeline)][state - 1][:, ports] == new).all():
            state -= 1  # this change was for other ports
        asked = (timeline.asked_s[state], timeline.starts_s[state]) if changed else (0.0, 0.0)
        done = asked[1] + job.network.delay_s if changed else 0.0
        exposed = max(0.0, began - max(wanted, ended)) if changed else 0.0
        circuits = ((new != old) & (new != IDLE))[0].sum()
        rows.append((*asked, done, max(0.0, wanted - ended), exposed, circuits, changed))
        ended, used = float(plan.end_s[phase.last].max()), float(held_s[phase.last].max())
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    return RailSimulation(
        policy="plan",
        delay_s=job.network.delay_s,
        step_s=plan.step_s,
        start_s=plan.start_s,
        end_s=plan.end_s,
        switched=table[:, 6] != 0,
        circuits=table[:, 5].astype(np.int64),
        circuits_changed=sum(_count_new(t) * len(t.rails) for t in plan.rails),
        **dict(zip(_TIMES, table[:, :5].T, strict=True)),
    )


def _count_new(timeline: RailTimeline) -> int:
    rows = timeline.matchings
    return int(((rows[1:] != rows[:-1]) & (rows[1:] != IDLE)).sum())


def _both_ways(matchings: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return ``[state, way, port]``: the port to which a port sends, or from which it receives."""
    back = np.full_like(matchings, IDLE)
    state, source = np.nonzero(matchings != IDLE)
    back[state, matchings[state, source]] = source
    return np.stack([matchings, back], axis=1)


def draw_factors(rng: np.random.Generator, jitter: float, count: int) -> NDArray[np.float64]:
    """Draw by how much computations take longer: log-normal, of mean 1 and this deviation."""
    spread = math.log1p(jitter**2)
    return np.exp(rng.normal(-spread / 2, math.sqrt(spread), count))


def simulate_jitter(
    job: RailJob, plan: RailPlan | None, jitter: float, *, runs: int = 100, seed: int = 0
) -> NDArray[np.float64]:
    """Run a step again and again, in the order of a plan and with other times.

    The circuits of a plan change in its order, each as soon as what it waits for is over
    (`derive_triggers`); without a plan all links are there at once. `jitter` is the standard
    deviation of the factor of each computation. Returns ``step_s[run]``; plans of one job get the
    same factors from a seed.
    """
    jitter = number("jitter", jitter)
    runs, seed = integer("runs", runs, at_least=1), integer("seed", seed, at_least=0)
    events, rng = job.events(), np.random.default_rng(seed)
    computes = np.flatnonzero(job.step().kind[events.part] == COMPUTE)
    nodes = events
    if plan is not None:
        nodes = link(job, derive_triggers(job, plan))[1].one_step()
    step_s = np.empty(runs)
    for run in range(runs):
        lasts = nodes.duration_s.copy()
        lasts[computes] *= draw_factors(rng, jitter, len(computes))
        step_s[run] = ends_s(nodes._replace(duration_s=lasts)).max(initial=0.0)
    return step_s
