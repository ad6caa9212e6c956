"""How a training job is split over its ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from optmatch.model import Count, InputError, Range, Value, check_fields, check_size

Degree = Literal["dp", "tp", "pp", "cp"]
"""The degrees whose product is the number of ranks."""
DEGREES: tuple[Degree, ...] = get_args(Degree)
Axis = Literal["dp", "tp", "pp", "cp", "ep"]
"""The dimensions that an order may name: with ``"ep"``, replicas with different experts are an
axis of their own."""
FsdpStreams = Literal["fsdp1", "fsdp2"]
"""Which generation of PyTorch's FSDP tells the streams of hybrid sharding."""
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parallelism(Value):
    """How a training job is split over its ranks: degrees, their layout, order of micro-batches.

    Parameters
    ----------
    dp
        The degree of data parallelism.
    tp
        The degree of tensor parallelism.
    pp
        The degree of pipeline parallelism.
    cp
        The degree of context parallelism.
    ep
        The degree of expert parallelism, which divides `dp` times `cp`. Consecutive replicas hold
        different experts, and where they are too few, consecutive parts of a sequence do.
    zero_stage
        How much is sharded, 0 to 3; 3 is FSDP. 0: gradients are all-reduced. 1, 2: gradients are
        reduced and scattered, and weights gathered at the end. 3: weights are also gathered before
        every use.
    shard
        Hybrid sharding: over how many consecutive ranks ZeRO shards. These are a part of the `dp`
        times `cp` ranks that have the same weights, parts of a sequence first; their copies
        all-reduce what each has reduced. None: all of them. With `ep` above 1 experts are always
        sharded over all.
    fsdp
        The streams of hybrid sharding: one (fsdp1), or one more for the copies (fsdp2).
        ``"fsdp1"``: all-reduces of copies share the stream in which weights are gathered and
        gradients are reduced and scattered, as in PyTorch's first ``FullyShardedDataParallel``
        (1.12 to 2.0). ``"fsdp2"``: they have a stream of their own, as ``all_reduce_stream`` of
        ``torch.distributed.fsdp.fully_shard``
        (``torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py``), which lets them go on
        beside the other collectives.
    sequence_parallel
        Whether tensor-parallel ranks share activations between layers. They then do an all-gather
        and a reduce-scatter instead of an all-reduce.
    schedule
        The order of micro-batches in the pipeline. The passes of each are listed by
        `optmatch.problems.rails.training.pipeline.list_passes`.
    virtual_stages
        With the schedule ``"interleaved"``: how many parts of the model each rank has.
    overlap
        With the schedule ``"dualpipe"``: whether a forward and a backward pass that stand side by
        side go on together. The all-to-alls and messages of one are then under the computations of
        the other (section 3.2.1 of https://arxiv.org/abs/2412.19437).
    stage_layers
        The layers of each part of the pipeline, in the order of the model, as 7,8,7. Empty: all
        parts have the same number.
    order
        The degrees as they count ranks, fastest first. It may also be written as
        ``"tp-cp-ep-dp-pp"``. With ``"ep"`` in it, ``"dp"`` counts the replicas of the same experts
        alone; without, ``"ep"`` stands before ``"dp"``.
    placement
        The degrees as they fill servers, fastest first. It is written as `order` is.

    Raises
    ------
    InputError
        Naming the option (`where`), if

        - a field has a value outside its range, or there are too many ranks;
        - `order` or `placement` does not name each degree once ("ep" may be left out);
        - `ep` or `shard` does not divide the ranks that hold the same weights, or `shard` is
          set though nothing is sharded;
        - `stage_layers` has another number of entries than the model has parts (`n_parts`);
        - `virtual_stages` is over 1 without the schedule "interleaved", or 1 with it;
        - `overlap` is set without the schedule "dualpipe".

    See Also
    --------
    RailJob : the problem that it is a part of.

    Examples
    --------
    >>> Parallelism(dp=2, tp=8, pp=4).n_ranks
    64
    >>> Parallelism(dp=8, ep=4, order="tp-cp-ep-dp-pp").order
    ('tp', 'cp', 'ep', 'dp', 'pp')
    """

    dp: Count = 1
    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    zero_stage: Annotated[int, Range(0, 3)] = 0
    shard: Count | None = None
    fsdp: FsdpStreams = field(default="fsdp1", metadata={"brief": True})
    sequence_parallel: bool = False
    schedule: PipelineSchedule = "1f1b"
    virtual_stages: Count = 1
    overlap: bool = field(default=False, metadata={"brief": True})
    stage_layers: tuple[Count, ...] = ()
    order: tuple[Axis, ...] = ("dp", "cp", "tp", "pp")
    placement: tuple[Axis, ...] = ("tp", "cp", "dp", "pp")

    def __post_init__(self) -> None:
        """Turn orders that are written as text into tuples, and check that the degrees fit."""
        for name in ("order", "placement"):
            order: object = getattr(self, name)
            if isinstance(order, str):
                parts = order.replace(",", "-").split("-")
                object.__setattr__(self, name, tuple(part.strip() for part in parts))
        check_fields(self)
        check_size("ranks", self.n_ranks, "dp")

        # An order names each degree; experts may be an axis of their own beside them.
        for name in ("order", "placement"):
            axes = getattr(self, name)
            if sorted({*axes} - {"ep"}) != sorted(DEGREES) or len({*axes}) < len(axes):
                raise InputError(
                    f"{name} = {', '.join(map(str, axes))}: each of {', '.join(DEGREES)} once, and"
                    " ep at most once",
                    where=name,
                )

        # The `ep` groups of experts are first spread over the `dp` replicas, gcd(ep, dp) of them.
        # The rest of the degree, `expert_parts`, is spread over the parts of a sequence: with
        # ep = 8, dp = 4 and cp = 2 over 4 replicas and 2 parts. `shard` is the number of
        # ranks that divide weights among them; it has to divide the dp * cp ranks with the same
        # weights.
        replicas = f"dp x cp = {self.dp} x {self.cp}"
        if self.cp % self.expert_parts:
            raise InputError(f"ep = {self.ep}: does not divide {replicas}", where="ep")
        if self.shard is not None and self.dp * self.cp % self.shard:
            raise InputError(f"shard = {self.shard}: does not divide {replicas}", where="shard")
        if self.shard is not None and self.zero_stage == 0:
            raise InputError(
                f"shard = {self.shard} with zero_stage = 0: nothing is sharded", where="shard"
            )

        # Each part of the pipeline has its layers; some options belong to one schedule alone.
        if self.stage_layers and len(self.stage_layers) != self.n_parts:
            raise InputError(
                f"stage_layers: {len(self.stage_layers)} parts, the pipeline has {self.n_parts}",
                where="stage_layers",
            )
        if (self.virtual_stages > 1) != (self.schedule == "interleaved"):
            raise InputError(
                f"virtual_stages = {self.virtual_stages} with schedule {self.schedule}: more than"
                " 1 with interleaved, and with it alone",
                where="virtual_stages",
            )

        if self.overlap and self.schedule != "dualpipe":
            raise InputError(
                f"overlap = True with schedule {self.schedule}: with dualpipe alone",
                where="overlap",
            )

    @property
    def n_ranks(self) -> int:
        """The product of the degrees: how many GPUs the job has."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def expert_replicas(self) -> int:
        """How many consecutive replicas hold different experts."""
        return math.gcd(self.ep, self.dp)

    @property
    def expert_parts(self) -> int:
        """How many consecutive parts of a sequence hold different experts."""
        return self.ep // self.expert_replicas

    @property
    def n_parts(self) -> int:
        """How many parts a pipeline has; with ``"dualpipe"`` each is at two stages."""
        return self.pp if self.schedule == "dualpipe" else self.pp * self.parts_per_rank

    @property
    def parts_per_rank(self) -> int:
        """How many parts of the model each rank has."""
        return 2 if self.schedule in ("zb-v", "dualpipe") else self.virtual_stages
