"""The declared fields of a collective, and what follows from them without a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import (
    LONGEST_S,
    Amount,
    Axes,
    Count,
    Displayed,
    FrozenMap,
    GivenOrNone,
    GivenOrText,
    Index,
    Range,
    Rate,
    given,
)
from optmatch.model.declarations import Choice, Plain, forms_of

Operation = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast"]
"""The kind of operation."""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class DataFlow(NamedTuple):
    """What an operation asks for, whatever its plan: who has which data, before and after."""

    adds: tuple[bool, ...] = ()
    """The all-gathers that it is made of, one after another, and whether each one runs backwards
    and adds up: an all-reduce is a reduce-scatter and an all-gather. Empty if it is none."""
    has_pairs: bool = False
    """Whether each rank has a block for each other one. Chunks are ``source * n + destination``
    then, in all-to-alls."""
    has_owners: bool = False
    """Whether each block is that of a rank, at first or in the end. Chunks are pieces of blocks
    then, rank by rank; otherwise, without pairs, they are pieces of the whole buffer."""
    from_root: bool = False
    """Whether all data are those of the root, in broadcasts."""

    @property
    def sums_for_all(self) -> bool:
        """Whether every rank gets the whole sum, as in an all-reduce."""
        return len(self.adds) > 1


DATA_FLOWS: dict[Operation, DataFlow] = {
    "all-reduce": DataFlow(adds=(True, False)),
    "reduce-scatter": DataFlow(adds=(True,), has_owners=True),
    "all-gather": DataFlow(adds=(False,), has_owners=True),
    "all-to-all": DataFlow(has_pairs=True),
    "broadcast": DataFlow(from_root=True),
}
"""What each operation asks for."""

Seconds = Annotated[float, Range(0, LONGEST_S)]
"""A time; a longer one would hide the others in rounding errors."""
_Steps = Annotated[GivenOrNone[np.float64], Axes(2, 2), Range(0)]
_Demand = Annotated[GivenOrNone[np.float64], Axes(2), Range(0)]


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveFields(Displayed):
    """The fields of a `Collective`, unchecked, for the bounds that are counted from them.

    A round over circuits lasts `start_up_s` and, unless it is None, `hop_s` for each circuit in a
    row; `delay_s` goes by while circuits change. Rates are those of a port, and inside an island
    of `island` ranks those of a rank; without islands this number is 1. `steps` has rows of a
    configuration and bytes, and `late_s` the seconds of each late rank by its number as a text.
    """

    operation: Operation
    n_ranks: Count
    size_bytes: Amount
    alpha_s: Seconds = field(default=0.0, kw_only=True)
    hop_s: Seconds | None = field(default=None, kw_only=True)
    rate_bytes_per_s: Rate = field(default=50e9, kw_only=True)
    delay_s: Seconds = field(default=0.0, kw_only=True)
    ports: Count = field(default=1, kw_only=True)
    planes: Count = field(default=1, kw_only=True)
    two_way: bool = field(default=False, kw_only=True)
    start: Annotated[GivenOrText[np.int32], Axes(2), Range(-1)] = given(
        default="free", kw_only=True
    )
    steps: _Steps = given(default=None, kw_only=True)
    late_s: Mapping[str, Seconds] = field(default=FrozenMap(), kw_only=True)
    demand_bytes: _Demand = given(default=None, kw_only=True)
    root: Index = field(default=0, kw_only=True)
    align_bytes: Index = field(default=0, kw_only=True)
    fabric: Fabric = field(default=None, kw_only=True)  # type: ignore[assignment]
    island: Count = field(default=1, kw_only=True, metadata={"brief": True})
    island_rate_bytes_per_s: Rate = field(default=450e9, kw_only=True, metadata={"brief": True})
    island_alpha_s: Seconds = field(default=0.0, kw_only=True, metadata={"brief": True})

    def __post_init__(self) -> None:
        """Check nothing: a `Collective` checks its fields here."""

    @property
    def lanes(self) -> int:
        """The ports of a rank, on all planes together."""
        return self.planes * self.ports

    @property
    def flow(self) -> DataFlow:
        """What the operation asks for."""
        return DATA_FLOWS[self.operation]

    @property
    def n_gathers(self) -> int:
        """Of how many gathers it is made, forwards or backwards: an all-reduce of two."""
        return max(1, len(self.flow.adds))

    @property
    def start_up_s(self) -> float:
        """Seconds of a round over circuits, without the time of its hops and bytes."""
        return self.alpha_s

    @property
    def island_start_up_s(self) -> float:
        """Seconds of a round inside islands, without the time of its bytes."""
        return self.island_alpha_s

    @property
    def circuit_s(self) -> float:
        """Seconds that data take for each circuit inside a round; 0 where `hop_s` is None."""
        return self.hop_s or 0.0

    @property
    def round_s(self) -> float:
        """Seconds of a round whose data go over one circuit, without the time of their bytes."""
        return self.start_up_s + self.circuit_s

    @property
    def first_delay_s(self) -> float:
        """Seconds before any first circuits are there; 0 where some are at the start."""
        is_dark = isinstance(self.start, str) and self.start == "dark"
        return self.delay_s if is_dark else 0.0

    @property
    def late(self) -> NDArray[np.float64]:
        """``late[rank]``: when the rank is ready, in seconds."""
        ready = np.zeros(self.n_ranks)
        for rank, delay in self.late_s.items():
            ready[int(rank)] = delay
        return ready

    @property
    def demand(self) -> NDArray[np.float64]:
        """``demand[source, destination]`` of an all-to-all, in bytes; 0 on the diagonal.

        If no demand is given, the data of each rank are n equal parts, one for each rank.
        """
        if self.demand_bytes is not None:
            return self.demand_bytes
        even_bytes = np.full((self.n_ranks, self.n_ranks), self.block_bytes)
        np.fill_diagonal(even_bytes, 0.0)
        return even_bytes

    @property
    def block_bytes(self) -> float:
        """An n-th of the buffer, in bytes: the block of a rank."""
        return self.size_bytes / self.n_ranks

    @property
    def n_islands(self) -> int:
        """The number of islands."""
        return self.n_ranks // self.island

    def sending_s(self, n_bytes: float) -> float:
        """Return how long a rank sends so many bytes over all its lanes, in seconds."""
        return n_bytes / (self.lanes * self.rate_bytes_per_s)


def list_amounts() -> dict[str, Range]:
    """Return the fields that are a number of seconds, bytes or bytes per second, and their ranges.

    None, as of `hop_s`, may be allowed beside the numbers.
    """
    ranges = {}
    for name, form in forms_of(CollectiveFields).items():
        # The form of a number that may also be None is a choice, of which the number comes first.
        number = form.parts[0] if isinstance(form, Choice) else form
        if isinstance(number, Plain) and number.type is float:
            ranges[name] = number.span
    return ranges


def plain_fields(problem: CollectiveFields) -> CollectiveFields:
    """Return the declared fields of a collective without its class, which could say otherwise."""
    declared = {part.name: getattr(problem, part.name) for part in fields(CollectiveFields)}
    return CollectiveFields(**declared)
