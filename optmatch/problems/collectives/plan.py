"""The answer to a collective: rounds of sends, and the circuits that carry them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Amount,
    Axes,
    Given,
    Index,
    InputError,
    Range,
    Solution,
    Value,
    check_fields,
    frozen,
)
from optmatch.model.numbers import check_below

COPY = 0
"""A kind of send: the receiver has what the sender had."""
REDUCE = 1
"""A kind of send: the receiver adds it to what it has itself."""
KEEP = 2
"""A kind of send: the receiver adds it to its sum, and keeps what came in another place."""
REPLACE = 3
"""A kind of send: the sum of all that comes to a place in the round replaces what was there."""
KINDS = ("copy", "reduce", "keep", "replace")
"""The names of the kinds of sends, by number."""

SUM = 0
"""A place of a chunk at a rank: the sum. Places other than `SUM` and `OWN` are empty at first."""
OWN = 1
"""A place of a chunk at a rank: what the rank had itself."""

SEND_COLUMNS = ("round", "source", "destination", "chunk", "kind")
"""The columns of `CollectivePlan.sends`."""

# Empty arrays of so many dimensions.
_ONE: Any = ()
_TWO: Any = ((),)
_THREE: Any = (((),),)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectivePlan(Value):
    """Rounds of sends over epochs of circuits.

    A *send* brings one chunk, or a part of it, from one rank to another in one round. An *epoch*
    are rounds in a row with the same circuits. A *lane* is a port of a rank on some plane, where a
    plane is a switch of its own. A *place* is a memory of a rank for a chunk.

    Chunks of an all-to-all are ``source * n + destination``. Those of an all-gather and a
    reduce-scatter are ``rank * pieces + piece`` of the block of a rank, those of an all-reduce and
    a broadcast pieces of the whole buffer.

    Parameters
    ----------
    sends
        Rows of round, source, destination, chunk and kind (0 copy, 1 reduce, 2 add to the sum and
        keep, 3 replace by the sum of all that comes in the round), ascending by round; int32,
        shape (sends, 5). A send has what its source had at the start of the round.
    chunk_bytes
        ``chunk_bytes[chunk]``; float64.
    circuits
        ``circuits[epoch, lane, rank]``: the rank to which this rank transmits, or -1; int32. Lanes
        are ``plane * ports + port``.
    epoch_of_round
        ``epoch_of_round[round]``, ascending from 0 without gaps; int32.
    links
        Rows of send, from and to: what a forwarded send passes in order, ascending by send; int32,
        shape (links, 3). A send without rows goes over one circuit.
    shares_bytes, start_s, end_s
        For plans whose planes change circuits by themselves: what each plane carries in each round
        of a busiest circuit, and when; float64, shape (rounds, planes). Each round has an epoch
        of its own then, in which a plane without a share has no circuits.
    time_s
        When the last round ends, in seconds since the first rank was ready.
    n_rounds_late
        Rounds that start when the last late rank is ready, or later; 0 if none is late.
    parts
        The part of its chunk that each send takes: first byte and bytes; float64, shape (sends,
        2). No rows: all sends take whole chunks.
    places
        For sums: from which place of its chunk each send is, and into which; int32, shape
        (sends, 2). Place 0 is the sum, 1 what a rank had itself, others are empty at first. No
        rows: all are sums.
    among
        The plans of which the claims of a solution speak: ``"all"``, or those in which
        ``"whole-blocks"`` are sent. Bounds that are counted hold for all.

    Raises
    ------
    InputError
        If shapes disagree, or rounds, epochs or links do not ascend.

    See Also
    --------
    Collective : The problem that it answers.

    Examples
    --------
    >>> import optmatch as om
    >>> plan = om.solve(om.Collective("all-gather", 3, 3.0), "ring").answer
    >>> plan.n_rounds, plan.circuits.tolist()
    (2, [[[1, 2, 0]]])
    >>> plan.sends[:3].tolist()
    [[0, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0, 2, 0, 2, 0]]
    """

    sends: Annotated[Given[np.int32], Axes(2, 5), Range(0)] = _TWO
    chunk_bytes: Given[np.float64] = _ONE
    circuits: Annotated[Given[np.int32], Axes(3), Range(-1)] = _THREE
    epoch_of_round: Annotated[Given[np.int32], Range(0)] = _ONE
    links: Annotated[Given[np.int32], Axes(2, 3), Range(0)] = _TWO
    shares_bytes: Annotated[Given[np.float64], Axes(2), Range(0)] = _TWO
    start_s: Annotated[Given[np.float64], Axes(2), Range(0)] = _TWO
    end_s: Annotated[Given[np.float64], Axes(2), Range(0)] = _TWO
    time_s: Amount = 0.0
    n_rounds_late: Index = 0
    parts: Annotated[Given[np.float64], Axes(2, 2), Range(0)] = _TWO
    places: Annotated[Given[np.int32], Axes(2, 2), Range(0)] = _TWO
    among: Literal["whole-blocks", "all"] = "whole-blocks"

    def __post_init__(self) -> None:
        """Check that the arrays of the plan fit each other; what they say is not checked here.

        Raises
        ------
        InputError
            Naming the first field that is wrong: if starts and ends have another shape than the
            shares of planes, if there are parts or places of some sends only, or if sends do not
            ascend by round, or links by send.
        """
        check_fields(self)
        for name in ("circuits", "shares_bytes", "start_s", "end_s"):
            array = getattr(self, name)
            if not array.size:  # text does not tell how many columns no rows have
                empty = frozen(name, np.empty((0,) * array.ndim), array.ndim, array.dtype.type)
                object.__setattr__(self, name, empty)
        for name in ("start_s", "end_s"):
            if getattr(self, name).shape != self.shares_bytes.shape:
                _refuse(name, getattr(self, name).shape, f"shape {self.shares_bytes.shape}")
        for name in ("parts", "places"):
            if len(getattr(self, name)) not in (0, len(self.sends)):
                _refuse(name, f"{len(getattr(self, name))} rows", "one for each send, or none")
        for name, column in (("sends", self.sends[:, 0]), ("links", self.links[:, 0])):
            if len(column) and ((np.diff(column) < 0).any() or column[0] < 0):
                _refuse(name, "other rows", f"rows that ascend by {name[:-1]}, from 0")

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return max(len(self.epoch_of_round), len(self.shares_bytes))

    @property
    def sent_bytes(self) -> NDArray[np.float64]:
        """``sent_bytes[send]``: the bytes of its part, or of its whole chunk without parts."""
        if len(self.parts):
            return self.parts[:, 1]
        return self.chunk_bytes[self.sends[:, 3]]

    @property
    def n_epochs(self) -> int:
        """The number of times that circuits were set up, the first included."""
        return len(self.circuits)

    def check_fits(self, problem: Any, where: str = "") -> None:
        """Refuse a plan of a collective whose arrays belong to other ranks, epochs or chunks."""
        n_ranks = problem.n_ranks
        n_epochs = len(self.circuits)
        expected = (n_epochs, problem.lanes, n_ranks)
        if n_epochs and self.circuits.shape != expected:
            raise InputError(
                f"circuits has shape {self.circuits.shape}, the problem needs {expected}",
                where=f"{where}circuits",
            )
        check_below(f"{where}circuits", self.circuits, n_ranks, "rank")
        check_below(f"{where}epoch_of_round", self.epoch_of_round, n_epochs, "epoch")

        # Each column of the sends is an index; these are the numbers that it has to stay below.
        limits = (self.n_rounds, n_ranks, n_ranks, len(self.chunk_bytes), len(KINDS))
        for column, (noun, count) in enumerate(zip(SEND_COLUMNS, limits, strict=True)):
            check_below(f"{where}sends", self.sends[:, column], count, noun)
        check_below(f"{where}links", self.links[:, 0], len(self.sends), "send")
        check_below(f"{where}links", self.links[:, 1:], n_ranks, "rank")
        if len(self.shares_bytes) and self.shares_bytes.shape[1] != problem.planes:
            raise InputError(
                f"shares_bytes has rows of {self.shares_bytes.shape[1]} entries, the problem has"
                f" {problem.planes} planes",
                where=f"{where}shares_bytes",
            )


def plan_of(solution: Solution) -> CollectivePlan:
    """Return the plan of a solution, to be read without a look at the verifier."""
    plan = solution.answer
    if not isinstance(plan, CollectivePlan) or not len(plan.sends):
        raise InputError(f"status {solution.status.value}: there are no sends")
    # The limit below which each column of sends has to stay.
    epochs, _, ranks = plan.circuits.shape
    limits = (len(plan.epoch_of_round), ranks, ranks, len(plan.chunk_bytes), len(KINDS))
    for name, column, limit in zip(SEND_COLUMNS, plan.sends.T, limits, strict=True):
        if column.max() >= limit:
            _refuse("sends", f"{name} {column.max()}", f"less than {limit}")
    if plan.epoch_of_round.max() >= epochs:
        _refuse("epoch_of_round", int(plan.epoch_of_round.max()), f"less than {epochs}")
    if ranks != solution.problem.n_ranks:  # type: ignore[attr-defined]
        _refuse("circuits", f"{ranks} ranks", "those of the problem")
    return plan


def _refuse(name: str, got: Any, rule: str) -> None:
    """Raise the error for a field: its name, what was given, and the rule that it breaks."""
    raise InputError(f"{name}: {got} given, {rule} expected", where=name)
