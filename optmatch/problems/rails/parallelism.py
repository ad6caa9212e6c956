"""How a training job is split over its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from optmatch.model import Count, InputError, Range, Value, check_fields, check_size

Degree = Literal["dp", "tp", "pp", "cp"]
"""The degrees whose product is the number of ranks."""
DEGREES: tuple[Degree, ...] = get_args(Degree)
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parallelism(Value):
    """How a training job is split over its ranks: degrees, their layout, order of micro-batches.

    Parameters
    ----------
    dp, tp, pp, cp
        Degrees of data, tensor, pipeline and context parallelism.
    ep
        Degree of expert parallelism: it divides `dp`, and consecutive replicas share experts.
    zero_stage
        0: gradients are all-reduced. 1, 2: reduced and scattered, weights gathered at the end.
        3 (FSDP): also gathered before every use.
    schedule, virtual_stages
        Order of micro-batches in the pipeline (`optmatch.problems.rails.pipeline.list_passes`):
        ``"gpipe"``, ``"1f1b"``, ``"zb-h1"``, ``"zb-v"``, ``"dualpipe"``, or ``"interleaved"``,
        the last with so many parts of the model at each rank.
    order
        The degrees as they count ranks, fastest first.
    placement
        The degrees as they fill servers, fastest first.

    Raises
    ------
    InputError
        Naming the option: of a degree below 1, an expert degree that does not divide `dp`, or an
        order without all degrees.

    See Also
    --------
    RailJob : the problem that it is a part of.

    Examples
    --------
    >>> Parallelism(dp=2, tp=8, pp=4).n_ranks
    64
    """

    dp: Count = 1
    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    zero_stage: Annotated[int, Range(0, 3)] = 0
    schedule: PipelineSchedule = "1f1b"
    virtual_stages: Count = 1
    order: tuple[Degree, ...] = ("dp", "cp", "tp", "pp")
    placement: tuple[Degree, ...] = ("tp", "cp", "dp", "pp")

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("ranks", self.n_ranks, "dp")
        for name in ("order", "placement"):
            if sorted(getattr(self, name)) != sorted(DEGREES):
                shown, allowed = ", ".join(map(str, getattr(self, name))), ", ".join(DEGREES)
                raise InputError(f"{name} = {shown}: each of {allowed} once", where=name)
        if self.dp % self.ep:
            raise InputError(f"ep = {self.ep}: does not divide dp = {self.dp}", where="ep")
        if (self.virtual_stages > 1) != (self.schedule == "interleaved"):
            raise InputError(
                f"virtual_stages = {self.virtual_stages} with schedule {self.schedule}: more than"
                " 1 with interleaved, and with it alone",
                where="virtual_stages",
            )

    @property
    def n_ranks(self) -> int:
        """The product of the degrees: how many GPUs the job has."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def n_parts(self) -> int:
        """How many parts a pipeline has; with ``"dualpipe"`` each is at two stages."""
        return self.pp if self.schedule == "dualpipe" else self.pp * self.parts_per_rank

    @property
    def parts_per_rank(self) -> int:
        """How many parts of the model each rank has."""
        return 2 if self.schedule in ("zb-v", "dualpipe") else self.virtual_stages
