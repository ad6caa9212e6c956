"""A training job on rails: its split over GPUs, its computations, and its rails."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import Displayed, InputError, check_fields, check_size
from optmatch.model.declarations import FrozenMap
from optmatch.problems.collectives.steps import Algorithm
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.training.layout import list_stages, make_groups, place_ranks
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.phases import Phase, phases
from optmatch.problems.rails.training.pipeline import check_batches
from optmatch.problems.rails.training.stages import build_step
from optmatch.problems.rails.training.step import DIMENSIONS, Group, Step
from optmatch.problems.rails.training.times import Events, ends_s, events, pick_ranks
from optmatch.problems.rails.training.workload import TransformerModel, Workload

T = TypeVar("T")


class _Built(Displayed):
    """A place for values that are derived once and are no fields."""

    __slots__ = ("_built",)
    _built: dict[Hashable, Any]

    def once(self, name: Hashable, derive: Callable[[], T]) -> T:
        """Derive a value when it is asked for first, and keep it under a name."""
        if name not in self._built:
            self._built[name] = derive()
        value: T = self._built[name]
        return value


_MUCH_WAITING = 0.5
"""The part of a step for which stages of a pipeline may wait before a job says so."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailJob(_Built):
    """Run one step of a training job over rails that are optical switches, as fast as possible.

    GPU number r of every server is attached to rail r. A group that sits in one server uses the
    scale-up links; one with all members on one rail rides that. Any other is done by groups of
    both kinds, as `RailNetwork.spanning` says.

    Parameters
    ----------
    parallelism
        How the job is split over ranks. A recorded step has its own groups, and needs none.
    network
        Servers, rails, and the switch of a rail.
    workload
        The model and its batch, or a recorded step.
    collectives
        How the collectives of a dimension are done on rails: ``"ring"``, which is the default,
        ``"halving"`` or ``"tree"`` (`optmatch.problems.collectives.steps.list_rounds`).

    Raises
    ------
    InputError
        Naming ranks, groups or the option: of degrees that do not fit the model, its batch or the
        servers, a group that has not the same rails in each of its servers, a rail larger than its
        switch.

    See Also
    --------
    Parallelism, RailNetwork, Workload : the parts.
    RailPlan : the answer.
    optmatch.simulation.rails.replay.simulate_rails : a step under a policy.

    Examples
    --------
    >>> model = TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                          ffn=4096)
    >>> job = RailJob(parallelism=Parallelism(dp=2, tp=2, pp=2),
    ...               network=RailNetwork(gpus_per_server=2),
    ...               workload=Workload(model=model, batch=8))
    >>> [(group.name, group.ranks, group.rail) for group in job.groups()[:3]]
    [('dp.0', (0, 1), 0), ('dp.1', (2, 3), 1), ('dp.2', (4, 5), 0)]
    >>> [phase.dimension for phase in job.phases() if (phase.rail, phase.stage) == (0, 1)]
    ['pp', 'dp', 'pp', 'dp']
    """

    parallelism: Parallelism = Parallelism()  # noqa: RUF009 - frozen
    network: RailNetwork
    workload: Workload
    collectives: Mapping[str, Algorithm] = FrozenMap()
    kind: ClassVar[str] = "rail-job"
    answer_class: ClassVar[type[RailPlan] | None] = RailPlan
    objectives: ClassVar[dict[str, str]] = {"rail-job": "s"}

    def __post_init__(self) -> None:
        """Check that the parts of the job fit together, as far as none can tell by itself."""
        check_fields(self)
        object.__setattr__(self, "_built", {})
        # A model is split by the degrees; a recorded step is split already.
        # The size of a step is limited before anything is derived: about four operations for each
        # layer or part of the pipeline, and micro-batch.
        if self.workload.model is not None:
            _check_batch(self.parallelism, self.workload)
            _check_model(self.parallelism, self.workload.model)
            parts = self.parallelism.n_parts + self.workload.model.layers
            batches = self.workload.count_micro_batches(self.parallelism.dp)
            check_size("operations", 4 * parts * batches, "workload.batch")
            if self.n_gpus % self.network.gpus_per_server:
                raise InputError(
                    f"{self.n_gpus} ranks: no multiple of {self.network.gpus_per_server} GPUs per"
                    " server",
                    where="network.gpus_per_server",
                )
        elif self.parallelism != Parallelism():
            raise InputError(
                "parallelism: a recorded step has groups of its own", where="parallelism"
            )
        _check_rails(self)
        _check_collectives(self)

    @property
    def fabric(self) -> Fabric | None:
        """The switch of each rail."""
        return self.network.fabric

    @property
    def n_gpus(self) -> int:
        """How many GPUs the job has: the product of the degrees, or those of the recorded step."""
        recorded = self.workload.recorded
        return self.parallelism.n_ranks if recorded is None else recorded.n_ranks

    @property
    def extent(self) -> str:
        """How large the job is, in words."""
        return f"{self.n_gpus} GPUs"

    def groups(self) -> tuple[Group, ...]:
        """List the communicator groups that communicate: of two ranks or more."""
        if self.workload.recorded is not None:
            return self.workload.recorded.groups
        per_server = self.network.gpus_per_server
        return self.once("groups", lambda: make_groups(self.parallelism, per_server))

    def step(self) -> Step:
        """Return the operations of all ranks in one step.

        Returns
        -------
        Step
            The recorded step or, of a model, one that is derived at the first call from the sizes
            of the model and the degrees of parallelism.
        """
        if self.workload.recorded is not None:
            return self.workload.recorded
        return self.once(
            "step",
            lambda: build_step(
                self.parallelism, self.workload, self.groups(), self.network.spanning
            ),
        )

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of all rails and stages."""
        return self.once("phases", lambda: phases(self.step()))

    def events(self) -> Events:
        """Return the operations of the step, and the order in which they have to happen."""
        return self.once("events", lambda: events(self.step(), self.network, self.collectives))

    def with_delay(self, delay_s: float) -> RailJob:
        """Return the job with another delay; what is derived does not depend on it, and stays."""
        job = replace(self, network=replace(self.network, delay_s=delay_s))
        object.__setattr__(job, "_built", self._built)
        return job

    def with_pooled_rails(self) -> RailJob:
        """Return the job on `RailNetwork.pool_rails`; what does not depend on rates is shared.

        Returns
        -------
        RailJob
            In it each GPU has an equal share of all ports of its server, as data change rail
            inside. Step and groups are the same objects; events and the lower bound are derived
            anew.
        """
        return self.once(("pooled", self.network), self._pool_rails)

    def _pool_rails(self) -> RailJob:
        """Make the job on pooled rails; step and groups are derived here if they are not yet."""
        job = replace(self, network=self.network.pool_rails())
        self.step(), self.groups()
        derived = {
            name: value for name, value in self._built.items() if name not in ("events", "bound")
        }
        object.__setattr__(job, "_built", derived)
        return job

    def remarks(self) -> tuple[str, ...]:
        """Return sentences about values that are allowed, but hardly what was meant.

        Returns
        -------
        tuple of str
            Empty if nothing is remarkable.
        """
        split = self.parallelism
        if self.workload.model is None or split.pp == 1:
            return ()
        n_batches = self.workload.count_micro_batches(split.dp)
        waiting = (split.pp - 1) / (n_batches * split.virtual_stages + split.pp - 1)
        if waiting <= _MUCH_WAITING:
            return ()
        return (
            f"stages of the pipeline wait for {waiting:.0%} of the step: {split.pp} stages have"
            f" {n_batches} micro-batches; a smaller micro_batch (--micro-batch) or a larger batch"
            " makes more of them",
        )

    @property
    def all_links_s(self) -> float:
        """How long a step takes where nothing has to change, which is the lower bound."""
        return self.lower_bound()

    def lower_bound(self) -> float:
        """Return the time of a step with all links of all phases there at once, in seconds."""
        return self.once("bound", self._find_bound)

    def _find_bound(self) -> float:
        """Find the longest path of one pipeline, as all are alike, or of a recorded step."""
        if self.workload.recorded is not None:
            return float(ends_s(self.events(), self.step()).max(initial=0.0))
        ranks_of_one_pipeline = sorted(list_stages(self.parallelism)[0].tolist())
        step, _ = pick_ranks(self.step(), ranks_of_one_pipeline)
        events_of_ranks = events(step, self.network, self.collectives)
        return float(ends_s(events_of_ranks, step).max(initial=0.0))


def _check_batch(split: Parallelism, workload: Workload) -> None:
    """Refuse batches that replicas, micro-batches or the schedule do not divide."""
    sequences, remainder = divmod(workload.batch, split.dp)
    if remainder:
        raise InputError(
            f"batch = {workload.batch}: no multiple of dp = {split.dp}", where="workload.batch"
        )
    if workload.micro_batch != -1 and sequences % workload.micro_batch:
        raise InputError(
            f"micro_batch = {workload.micro_batch}: does not divide the {sequences} sequences of a"
            " replica",
            where="workload.micro_batch",
        )
    check_batches(split.schedule, split.pp, workload.count_micro_batches(split.dp))


def _check_model(split: Parallelism, model: TransformerModel) -> None:
    """Refuse layers and experts that do not divide among parts and ranks."""
    # Each part of the pipeline has a layer at least; parts are equal unless `stage_layers` says
    # how many each has.
    layers = model.layers
    parts = split.n_parts
    if layers < parts:
        raise InputError(
            f"model: {layers} layers, fewer than the {parts} parts of the pipeline",
            where="workload.model",
        )
    if split.stage_layers and sum(split.stage_layers) != layers:
        raise InputError(
            f"stage_layers: {sum(split.stage_layers)} layers in all, the model has {layers}",
            where="parallelism.stage_layers",
        )
    if not split.stage_layers and layers % parts:
        # The first parts have a layer more than the others.
        fewest, n_larger = divmod(layers, parts)
        sizes = [fewest + 1] * n_larger + [fewest] * (parts - n_larger)
        example = ",".join(map(str, sizes))
        raise InputError(
            f"model: {layers} layers do not split into {parts} equal parts; give stage_layers"
            f" (--stage-layers), as {example}",
            where="workload.model",
        )

    # Each rank of an expert-parallel group holds equally many experts.
    if model.experts % split.ep:
        raise InputError(
            f"ep = {split.ep}: does not divide the {model.experts} experts", where="parallelism.ep"
        )


def _check_collectives(job: RailJob) -> None:
    """Refuse algorithms for dimensions that do not exist, and halving of no power of two."""
    for name, algorithm in job.collectives.items():
        if name not in DIMENSIONS:
            raise InputError(
                f"collectives: {name} = {algorithm!r}: one of {', '.join(DIMENSIONS)} is expected",
                where="collectives",
            )

    # Recursive halving pairs members at distances of powers of two.
    for group in job.groups():
        n = len(group.ranks)
        is_halved = group.rail >= 0 and job.collectives.get(group.dimension) == "halving"
        if is_halved and n & n - 1:
            raise InputError(
                f"collectives: group {group.name} has {n} members, halving needs a power of two",
                where="collectives",
            )


def _check_rails(job: RailJob) -> None:
    """Refuse a job whose busiest rail needs more ports than its switch has.

    The message names the first rank without a port, and how the job could be divided to fit.
    """
    network = job.network
    groups = job.groups()

    # A rail with the most ranks. Those of a model have equally many: rail 0 has GPU 0 of each
    # server.
    recorded = job.workload.recorded
    if recorded is None:
        gpus = place_ranks(job.parallelism)
        rail = 0
        ranks = np.flatnonzero(gpus % network.gpus_per_server == 0).tolist()
    else:
        on_rail = ranks_of_rails(recorded)
        rail = max(on_rail, key=lambda number: len(on_rail[number]), default=0)
        ranks = [*on_rail.get(rail, ())]
    needed = len(ranks) * network.ports_per_gpu
    check_size("ports", needed, "network.ports_per_gpu")

    # A switch is limited by its radix, and by the ports of its fabric that are not dead.
    limits = [("radix", network.radix, "ports")]
    if network.fabric is not None:
        limits.append(("fabric", len(network.fabric.live_ports), "working ports"))
        over_budget = network.fabric.over_budget
        if over_budget is not None and over_budget.any():
            raise InputError(
                "fabric: plans of rails join any two ports, but some pairs of this switch are over"
                " their link budget",
                where="network.fabric",
            )
    for name, ports, word in limits:
        if ports is not None and needed > ports:
            # GPUs have ports in the order of their ranks: name the first that is left without.
            first = ranks[ports // network.ports_per_gpu]
            names = (
                f" (of group {group.name})"
                for group in groups
                if group.rail == rail and first in group.ranks
            )
            named = next(names, "")
            raise InputError(
                f"{name} = {ports} {word}: rail {rail} has {len(ranks)} GPUs with"
                f" {network.ports_per_gpu} ports each, {needed} in all; rank {first}{named} is the"
                f" first without one{_say_how_to_split(job, needed, ports)}",
                where=f"network.{name}",
            )


def _say_how_to_split(job: RailJob, needed: int, ports: int) -> str:
    """Suggest how many jobs of fewer replicas fit, if any do."""
    n_replicas = job.parallelism.dp
    for n_jobs in range(2, n_replicas + 1):
        if n_replicas % n_jobs == 0 and needed <= ports * n_jobs:
            return (
                f"; {n_jobs} jobs of {job.n_gpus // n_jobs} GPUs (dp = {n_replicas // n_jobs})"
                f" fit, each on switches of its own, or one job on switches of {needed} ports"
            )
    return ""
