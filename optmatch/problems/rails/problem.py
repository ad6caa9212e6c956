"""A training job on rails: how it is split over GPUs, and what its rails are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, get_args

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import InputError, Value, integer, number
from optmatch.model.schedule import Switching
from optmatch.model.values import FrozenMap
from optmatch.problems.rails.fold import Fold, fold
from optmatch.problems.rails.layout import SPLITS, Split, make_groups, positions
from optmatch.problems.rails.model import TransformerModel
from optmatch.problems.rails.phases import Phase, phases, stages
from optmatch.problems.rails.plan import RailPlan
from optmatch.problems.rails.program import PipelineSchedule, build_step
from optmatch.problems.rails.rounds import ALGORITHMS, Algorithm
from optmatch.problems.rails.step import DIMENSIONS, Group, Step
from optmatch.problems.rails.times import Events, ends_with_all_links, events

T = TypeVar("T")


class _Built(Value):
    """A place for what is derived once and is no field."""

    __slots__ = ("_built",)
    _built: dict[str, Any]

    def _once(self, name: str, derive: Callable[[], T]) -> T:
        if name not in self._built:
            self._built[name] = derive()
        found: T = self._built[name]
        return found


_COUNTS = ("n_gpus", "gpus_per_server", "dp", "tp", "pp", "cp", "ep", "virtual_stages")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailJob(_Built):
    """Run one step of a training job over rails that are optical switches, as fast as possible.

    GPU number r of every server is attached to rail r. A group that sits in one server uses the
    scale-up links; another one rides the rail of its members' number.

    Parameters
    ----------
    fabric
        The switch of each rail, with ``ports_per_gpu`` ports for each of its GPUs; None for an
        ideal one.
    n_gpus, gpus_per_server
        GPUs of the job and of a server: also the number of rails.
    dp, tp, pp, cp
        Degrees of data, tensor, pipeline and context parallelism; their product is `n_gpus`.
    ep
        Degree of expert parallelism: it divides `dp`, and consecutive replicas share experts.
    collectives
        How the collectives of a dimension are done on rails: ``"ring"``, which is the default,
        ``"halving"`` or ``"tree"`` (`optmatch.problems.rails.rounds.list_rounds`).
    zero_stage
        0: gradients are all-reduced. 1, 2: reduced and scattered, weights gathered at the end.
        3 (FSDP): also gathered before every use.
    schedule, virtual_stages
        Order of micro-batches in the pipeline: ``"gpipe"``, ``"1f1b"`` or ``"interleaved"``, the
        last with so many parts of the model at each rank.
    order
        The degrees as they count ranks, fastest first.
    placement
        The degrees as they fill servers, fastest first.
    ports_per_gpu, port_bytes_per_s
        Ports of a GPU on its rail, and what each sends and receives per second.
    scale_up_bytes_per_s
        What a GPU sends inside its server, per second.
    latency_s
        What each message of a collective, and each send, takes longer than its bytes need.
    radix
        Ports of the switch of a rail; None if it is as large as it has to be.
    delay_s, switching
        The reconfiguration delay, and whether circuits that stay go on (``"per-circuit"``).
    model, batch, micro_batch
        The model, the sequences of a step over all replicas, and the sequences of a micro-batch
        at one replica; -1 for all in one.
    peak_flops_per_s, efficiency
        Of a GPU, and the part of it that is reached.
    width_bytes, gradient_width_bytes
        Bytes of an activation or weight, and of a gradient.
    recorded
        A step from a trace, instead of one that is derived from the model.

    Raises
    ------
    InputError
        Naming ranks, groups or the option: degrees that do not multiply to `n_gpus`, a group that
        spans several rails, a rail larger than its switch.

    Examples
    --------
    >>> model = TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                          ffn=4096)
    >>> job = RailJob(n_gpus=8, gpus_per_server=2, dp=2, tp=2, pp=2, model=model, batch=8)
    >>> [(group.name, group.ranks, group.rail) for group in job.groups()[:3]]
    [('dp.0', (0, 1), 0), ('dp.1', (2, 3), 1), ('dp.2', (4, 5), 0)]
    >>> [phase.dimension for phase in job.phases() if (phase.rail, phase.stage) == (0, 1)]
    ['pp', 'dp', 'pp', 'dp']
    """

    fabric: Fabric | None = None
    n_gpus: int
    gpus_per_server: int
    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    collectives: Mapping[str, Algorithm] = FrozenMap()
    zero_stage: int = 0
    schedule: PipelineSchedule = "1f1b"
    virtual_stages: int = 1
    order: tuple[Split, ...] = ("dp", "cp", "tp", "pp")
    placement: tuple[Split, ...] = ("tp", "cp", "dp", "pp")
    ports_per_gpu: int = 1
    port_bytes_per_s: float = 50e9
    scale_up_bytes_per_s: float = 450e9
    latency_s: float = 500e-9
    radix: int | None = None
    delay_s: float = 0.01
    switching: Switching = "per-circuit"
    model: TransformerModel | None = None
    batch: int = 1
    micro_batch: int = -1
    peak_flops_per_s: float = 989e12
    efficiency: float = 0.5
    width_bytes: float = 2.0
    gradient_width_bytes: float = 2.0
    recorded: Step | None = field(default=None, repr=False)
    kind: ClassVar[str] = "rail-job"
    answer_class: ClassVar[type[Value] | None] = RailPlan
    objectives: ClassVar[dict[str, str]] = {"rail-job": "s"}

    def __post_init__(self) -> None:
        for name in _COUNTS:
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=1))
        for name in ("ports_per_gpu", "batch"):
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=1))
        _check_numbers(self)
        _check_choices(self)
        object.__setattr__(self, "_built", {})
        if self.recorded is None:
            _check_degrees(self)
        elif self.recorded.n_ranks > self.n_gpus:
            raise InputError(
                f"recorded: rank {self.recorded.n_ranks - 1} of a job of {self.n_gpus} GPUs",
                where="recorded",
            )
        _check_rails(self)
        _check_collectives(self)

    def groups(self) -> tuple[Group, ...]:
        """List the communicator groups that communicate: of two ranks or more."""
        if self.recorded is not None:
            return self.recorded.groups
        return self._once("groups", lambda: make_groups(self))

    def step(self) -> Step:
        """Return the operations of all ranks in one step."""
        if self.recorded is not None:
            return self.recorded
        return self._once("step", lambda: build_step(self))

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of all rails and stages."""
        return self._once("phases", lambda: phases(self.step(), self.collectives))

    def fold(self) -> Fold:
        """Return the classes of ranks that behave alike."""
        return self._once("fold", lambda: fold(self.step()))

    def events(self) -> Events:
        """Return what happens in the step, and what has to happen before what."""
        return self._once("events", lambda: events(self))

    def lower_bound(self) -> float:
        """Return the time of a step with all links of all phases there at once, in seconds."""
        return self._once("bound", lambda: float(ends_with_all_links(self).max(initial=0.0)))

    @property
    def rail_bytes_per_s(self) -> float:
        """What a GPU sends over its rail with all its ports, per second."""
        return self.ports_per_gpu * self.port_bytes_per_s

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a replica has in a step."""
        return 1 if self.micro_batch == -1 else self.batch // self.dp // self.micro_batch


def _check_numbers(job: RailJob) -> None:
    for name in ("delay_s", "latency_s"):
        object.__setattr__(job, name, number(name, getattr(job, name)))
    for name in (
        *("port_bytes_per_s", "scale_up_bytes_per_s", "peak_flops_per_s", "efficiency"),
        *("width_bytes", "gradient_width_bytes"),
    ):
        value = number(name, getattr(job, name))
        if value == 0:
            raise InputError(f"{name} = 0: must be > 0", where=name)
        object.__setattr__(job, name, value)
    if job.efficiency > 1:
        raise InputError(f"efficiency = {job.efficiency:g}: at most 1", where="efficiency")
    if integer("zero_stage", job.zero_stage, at_least=0) > 3:
        raise InputError(f"zero_stage = {job.zero_stage}: at most 3", where="zero_stage")
    if job.radix is not None:
        object.__setattr__(job, "radix", integer("radix", job.radix, at_least=1))


def _check_choices(job: RailJob) -> None:
    for name, kind in (("schedule", PipelineSchedule), ("switching", Switching)):
        if getattr(job, name) not in get_args(kind):
            allowed = ", ".join(get_args(kind))
            raise InputError(f"{name} = {getattr(job, name)!r}: one of {allowed}", where=name)
    for name in ("order", "placement"):
        object.__setattr__(job, name, tuple(getattr(job, name)))
        if sorted(getattr(job, name)) != sorted(SPLITS):
            shown = ", ".join(map(str, getattr(job, name)))
            raise InputError(f"{name} = {shown}: each of {', '.join(SPLITS)} once", where=name)


def _check_degrees(job: RailJob) -> None:
    product = job.dp * job.tp * job.pp * job.cp
    if product != job.n_gpus:
        raise InputError(
            f"dp {job.dp} x tp {job.tp} x pp {job.pp} x cp {job.cp} = {product} ranks, but"
            f" n_gpus = {job.n_gpus}",
            where="n_gpus",
        )
    if job.n_gpus % job.gpus_per_server:
        raise InputError(
            f"n_gpus = {job.n_gpus}: no multiple of {job.gpus_per_server} GPUs per server",
            where="n_gpus",
        )
    if job.dp % job.ep:
        raise InputError(f"ep = {job.ep}: does not divide dp = {job.dp}", where="ep")
    if job.model is None:
        raise InputError("neither model nor recorded is given", where="model")
    if job.batch % job.dp:
        raise InputError(f"batch = {job.batch}: no multiple of dp = {job.dp}", where="batch")
    if job.micro_batch != -1 and (
        integer("micro_batch", job.micro_batch, at_least=1) > job.batch // job.dp
        or job.batch // job.dp % job.micro_batch
    ):
        raise InputError(
            f"micro_batch = {job.micro_batch}: does not divide the {job.batch // job.dp} sequences"
            " of a replica",
            where="micro_batch",
        )
    _check_pipeline(job, job.model)


def _check_pipeline(job: RailJob, model: TransformerModel) -> None:
    parts = job.pp * job.virtual_stages
    if (job.virtual_stages > 1) != (job.schedule == "interleaved"):
        raise InputError(
            f"virtual_stages = {job.virtual_stages} with schedule {job.schedule}: more than 1 with"
            " interleaved, and with it alone",
            where="virtual_stages",
        )
    if model.layers % parts:
        raise InputError(
            f"model: {model.layers} layers do not split into {parts} equal parts", where="model"
        )
    if job.schedule == "interleaved" and job.micro_batches % job.pp:
        raise InputError(
            f"micro_batch: {job.micro_batches} micro-batches, interleaved needs a multiple of pp ="
            f" {job.pp}",
            where="micro_batch",
        )
    if model.experts % job.ep:
        raise InputError(f"ep = {job.ep}: does not divide the {model.experts} experts", where="ep")


def _check_collectives(job: RailJob) -> None:
    """Refuse what is no algorithm, and groups that cannot be halved."""
    given = job.collectives
    if not isinstance(given, Mapping):
        raise InputError(
            f"collectives = {given!r}: an algorithm for each dimension is expected",
            where="collectives",
        )
    for name, algorithm in given.items():
        if name not in DIMENSIONS or algorithm not in ALGORITHMS:
            raise InputError(
                f"collectives: {name} = {algorithm!r}: one of {', '.join(ALGORITHMS)} for one of"
                f" {', '.join(DIMENSIONS)}",
                where="collectives",
            )
    object.__setattr__(job, "collectives", FrozenMap(given))
    for group in job.groups():
        n = len(group.ranks)
        if group.rail >= 0 and given.get(group.dimension) == "halving" and n & n - 1:
            raise InputError(
                f"collectives: group {group.name} has {n} members, halving needs a power of two",
                where="collectives",
            )


def _check_rails(job: RailJob) -> None:
    """Refuse groups without a rail, and a switch with fewer ports than the GPUs of a rail have."""
    groups = job.groups()
    rail, ranks = _busiest_rail(job)
    needed = len(ranks) * job.ports_per_gpu
    limits = [("radix", job.radix)]
    if job.fabric is not None:
        limits.append(("fabric", job.fabric.n_ports))
    for name, ports in limits:
        if ports is not None and needed > ports:
            first = ranks[ports // job.ports_per_gpu]
            own = [group.name for group in groups if group.rail == rail and first in group.ranks]
            named = f" (of group {own[0]})" if own else ""
            raise InputError(
                f"{name} = {ports} ports: rail {rail} has {len(ranks)} GPUs with"
                f" {job.ports_per_gpu} ports each, {needed} in all; rank {first}{named} is the"
                " first without one",
                where=name,
            )


def _busiest_rail(job: RailJob) -> tuple[int, list[int]]:
    """Return the rail with most GPUs, and their ranks; of a model all rails are alike."""
    if job.recorded is None:
        return 0, np.flatnonzero(positions(job) % job.gpus_per_server == 0).tolist()
    on_rail: dict[int, list[int]] = {0: []}
    for rail, members in stages(job.recorded):
        on_rail.setdefault(rail, []).extend(members)
    busiest = max(on_rail, key=lambda rail: len(on_rail[rail]))
    return busiest, sorted(on_rail[busiest])
