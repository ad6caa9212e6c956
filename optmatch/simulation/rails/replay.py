"""The replay of a training step over rails that are switched: what waits, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Value, frozen, number
from optmatch.problems import RailJob
from optmatch.problems.rails.fold import Fold
from optmatch.problems.rails.phases import new_circuits
from optmatch.problems.rails.rounds import find_rounds
from optmatch.problems.rails.step import DIMENSIONS, RECV, Dimension, dimensions, ring_bytes
from optmatch.problems.rails.times import Events, durations_s, ends_s, orders
from optmatch.simulation.rails.stages import Run

RailPolicy = Literal["all-links", "static", "on-demand", "provisioned"]
"""When a rail is switched: never, as all links are there or all have a share of the ports; when
all ranks of a group have issued an operation; or as soon as the last phase has ended."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailSimulation(Value):
    """What happened in one step.

    A *boundary* is where a stage of a rail goes from one phase to the next, or from the last
    phase of the step before to its first one. Boundaries are in the order of the job's phases,
    which they lead to.

    Parameters
    ----------
    policy
        When rails were switched; ``"plan"`` if a plan says so.
    delay_s
        The reconfiguration delay, in seconds.
    step_s
        When the last operation ended, in seconds from the beginning of the step.
    start_s, end_s
        ``start_s[operation]``, ``end_s[operation]``, in seconds.
    switched
        ``switched[boundary]``: whether circuits were changed.
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
    """

    policy: RailPolicy | Literal["plan"]
    delay_s: float
    step_s: float
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    switched: NDArray[np.bool_]
    asked_s: NDArray[np.float64]
    begun_s: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    window_s: NDArray[np.float64]
    exposed_s: NDArray[np.float64]
    circuits: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("delay_s", "step_s"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        for name in ("start_s", "end_s", "asked_s", "begun_s", "ready_s", "window_s", "exposed_s"):
            object.__setattr__(self, name, frozen(name, getattr(self, name), 1, np.float64))
        object.__setattr__(self, "switched", frozen("switched", self.switched, 1, np.bool_))
        object.__setattr__(self, "circuits", frozen("circuits", self.circuits, 1, np.int64))

    @property
    def circuits_changed(self) -> int:
        """How many circuits were set up in the step, on all rails."""
        return int(self.circuits[self.switched].sum())

    def switches_per_rank(self, job: RailJob) -> NDArray[np.int64]:
        """Count the reconfigurations that each rank sees; of several rails, on all of them.

        Parameters
        ----------
        job
            What was simulated.
        """
        counts = np.zeros(job.step().n_ranks, np.int64)
        for phase, switched in zip(job.phases(), self.switched.tolist(), strict=True):
            counts[list(phase.ranks)] += switched
        return counts


def simulate_rails(
    job: RailJob,
    policy: RailPolicy = "on-demand",
    *,
    delay_s: float | None = None,
    ports: Mapping[Dimension, int] | None = None,
) -> RailSimulation:
    """Replay one step, event by event.

    Parameters
    ----------
    job
        The job.
    policy
        ``"on-demand"``: a stage is switched when all ranks of a group have issued an operation of
        its next phase (both ends, of a message) and its last phase has ended. ``"provisioned"``:
        as soon as its last phase has ended; the first phase of a step is still asked for on
        demand. ``"all-links"``: the circuits of all phases are there at once. ``"static"``: each
        dimension has some ports of its own all the time.
    delay_s
        As if a reconfiguration took so long; None for that of the job.
    ports
        For ``"static"``: the ports of each dimension that rides rails, in all no more than a GPU
        has; None for those of `split_ports`.

    Returns
    -------
    RailSimulation
        The step begins with the circuits of its last phase: it repeats.

    Raises
    ------
    InputError
        If a step cannot end, since ranks wait for each other; or if `ports` does not fit.

    Notes
    -----
    Each stage of a rail has its own state, and only stages that change are switched: a message
    between two stages needs both in its phase. With ``"per-circuit"`` switching the others go on;
    with ``"all-stop"`` everything on the rail stands still for the delay. Ranks that behave alike
    are simulated once: time O(operations) to find them, and O(e log e) for the e events of the
    rest.

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
    delay = job.network.delay_s if delay_s is None else number("delay_s", delay_s)
    step, phases = job.step(), job.phases()
    folded, (changed, circuits) = job.fold(), new_circuits(phases)
    given = _fold_events(job, folded, _rates(job, ports) if policy == "static" else None)
    if policy in ("all-links", "static"):
        end = ends_s(given, step)
        start, changes = end - given.duration_s, _no_changes(len(phases))
    else:
        run = Run(job, policy == "provisioned", delay, given, changed, _rounds(job, given))
        start, end, changes = run.start, run.end, run.changes()
    return RailSimulation(
        policy=policy,
        delay_s=delay,
        step_s=float(end.max(initial=0.0)),
        start_s=start[folded.event],
        end_s=end[folded.event],
        circuits=circuits,
        **changes,
    )


def _no_changes(n: int) -> dict[str, NDArray[Any]]:
    zeros = np.zeros(n)
    names = ("asked_s", "begun_s", "ready_s", "window_s", "exposed_s")
    return {"switched": zeros != 0, **dict.fromkeys(names, zeros)}


def split_ports(job: RailJob) -> dict[Dimension, int]:
    r"""Share the ports of a GPU among dimensions, in proportion to the square root of traffic.

    With bytes :math:`b_i` over shares :math:`s_i` of the rate, :math:`\sum_i b_i / s_i` is least
    where :math:`s_i \propto \sqrt{b_i}`. Every dimension gets a port, and each further one goes
    where most is missing.

    Parameters
    ----------
    job
        The job; bytes are those of its busiest rank in each dimension.

    Raises
    ------
    InputError
        If there are fewer ports than dimensions that ride rails.

    Examples
    --------
    >>> from optmatch.problems import Parallelism, RailNetwork, TransformerModel, Workload
    >>> model = TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                          ffn=4096)
    >>> split_ports(RailJob(parallelism=Parallelism(dp=2, pp=2),
    ...                     network=RailNetwork(gpus_per_server=1, ports_per_gpu=8),
    ...                     workload=Workload(model=model, batch=8)))
    {'dp': 7, 'pp': 1}
    """
    step, n_ports = job.step(), job.network.ports_per_gpu
    dimension = dimensions(step)
    sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group]
    sent = np.where(step.kind == RECV, 0.0, ring_bytes(step.kind, step.size_bytes, sizes))
    for own, rounds in find_rounds(step, job.collectives):
        sent[own] = step.size_bytes[own] * sum(each.share for each in rounds)
    roots: dict[Dimension, float] = {}
    for number_, name in enumerate(DIMENSIONS):
        own = (dimension == number_) & (step.rail >= 0)
        if own.any():
            roots[name] = float(np.sqrt(np.bincount(step.rank[own], sent[own]).max()))
    if len(roots) > n_ports:
        raise InputError(
            f"ports: {len(roots)} dimensions ride rails ({', '.join(roots)}), a GPU has"
            f" {n_ports}: static shares need a port for each",
            where="ports",
        )
    total, ports = sum(roots.values()) or 1.0, dict.fromkeys(roots, 1)
    while roots and sum(ports.values()) < n_ports:
        ports[max(roots, key=lambda d: n_ports * roots[d] / total - ports[d])] += 1
    return ports


def _rates(job: RailJob, ports: Mapping[Dimension, int] | None) -> dict[Dimension, float]:
    """Return what each dimension sends over its own ports, per second."""
    riding = {group.dimension for group in job.groups() if group.rail >= 0}
    given = split_ports(job) if ports is None else dict(ports)
    for dimension in sorted(riding):
        if given.get(dimension, 0) < 1:
            raise InputError(f"ports: {dimension} rides a rail and has no port", where="ports")
    n_ports = job.network.ports_per_gpu
    if sum(given.values()) > n_ports:
        raise InputError(
            f"ports: {sum(given.values())} in all, a GPU has {n_ports}", where="ports"
        )
    return {dimension: count * job.network.port_bytes_per_s for dimension, count in given.items()}


def _rounds(job: RailJob, given: Events) -> dict[int, list[tuple[float, bool]]]:
    """List for events in rounds how long each lasts, and whether circuits change before it."""
    step = job.step()
    event_of = {int(part): event for event, part in enumerate(given.part.tolist())}
    found = {}
    for own, rounds in find_rounds(step, job.collectives):
        distances = [each.distance for each in rounds]
        changes = [False, *(one != two for one, two in pairwise(distances))]
        for op in own.tolist():
            if op in event_of:
                per_share_s = float(step.size_bytes[op]) / job.network.rail_bytes_per_s
                lasts = [r.share * per_share_s + job.network.latency_s for r in rounds]
                found[event_of[op]] = list(zip(lasts, changes, strict=True))
    return found


def _fold_events(job: RailJob, folded: Fold, rates: dict[Dimension, float] | None) -> Events:
    """List the events of one rank of each class, and what comes before what."""
    step, event = job.step(), folded.event
    stands = np.zeros(step.n_ranks, dtype=bool)
    stands[folded.ranks] = True
    shown = np.flatnonzero(stands[step.rank])
    _, first = np.unique(event[shown], return_index=True)
    one, two = orders(step, shown)
    before, after = np.unique(np.stack([event[one], event[two]]), axis=1)
    part = shown[first]  # every class of events has a part at a rank that stands for others
    lasts = durations_s(step, job.network, job.collectives, rates)[part]
    return Events(event, part, before, after, lasts)
