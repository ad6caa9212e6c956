"""The answer to a collective: rounds of sends, and the circuits that carry them."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    stored_ranks
        The ranks whose chunks are stored, with all their sends; 0: those of all ranks. With k
        stored ranks of n all ranks do the same: what rank r sends of a chunk of rank s, rank
        ``r + k`` sends of the same chunk of rank ``s + k``, modulo n. In an all-reduce of n m
        chunks the rank s counts as that of the chunks from ``s * m`` on. See `spelled_out`.
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
    stored_ranks: Index = 0
    among: Literal["whole-blocks", "all"] = "whole-blocks"

    def __post_init__(self) -> None:
        """Check that the arrays of the plan fit each other; what they say is not checked here."""
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

    def spelled_out(self, operation: str) -> CollectivePlan:
        """Return the plan with the sends of all ranks, if it stores those of a few.

        With ``stored_ranks`` above 0 a plan has the chunks of so many first ranks, which stand for
        those of all: a *turn* moves all ranks onward by a multiple of this number.

        Parameters
        ----------
        operation
            The operation of the collective.

        Returns
        -------
        CollectivePlan
            The same plan with ``stored_ranks=0``.

        Raises
        ------
        InputError
            If the stored ranks divide neither ranks nor chunks.

        Examples
        --------
        >>> plan = CollectivePlan(
        ...     sends=[[0, 0, 1, 0, 0], [1, 1, 2, 0, 0]],
        ...     chunk_bytes=[8.0],
        ...     circuits=[[[1, 2, 0]]],
        ...     epoch_of_round=[0, 0],
        ...     stored_ranks=1,
        ... )
        >>> plan.spelled_out("all-gather").sends[:3].tolist()
        [[0, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0, 2, 0, 2, 0]]
        """
        if not self.stored_ranks:
            return self
        n_ranks = self.circuits.shape[2]
        self._check_stored(operation, n_ranks)
        n_turns = n_ranks // self.stored_ranks
        turn = np.arange(n_turns, dtype=np.int32)[:, None]
        turned = turn * self.stored_ranks  # by how many ranks

        # turned_chunks[turn, chunk]: the chunk that a stored one stands for in each turn. In an
        # all-to-all source and destination are turned: with 8 ranks, one of which is stored, chunk
        # 3 (from 0 to 3) becomes chunk 1 * 8 + 4 (from 1 to 4) in turn 1.
        chunks = np.arange(len(self.chunk_bytes))
        if operation == "all-to-all":
            sender, receiver = np.divmod(chunks, n_ranks)
            turned_chunks = (sender + turned) * n_ranks + (receiver + turned) % n_ranks
        else:
            turned_chunks = chunks + turned * (len(chunks) // self.stored_ranks)
        chunk_bytes = np.empty(turned_chunks.size)
        chunk_bytes[turned_chunks] = self.chunk_bytes

        # All sends of turn 0, then those of turn 1, and so on, are sorted by round.
        round_, source, destination, chunk, kind = self.sends.T
        columns = np.broadcast_arrays(
            round_,
            (source + turned) % n_ranks,
            (destination + turned) % n_ranks,
            turned_chunks[:, chunk],
            kind,
        )
        sends = np.stack(columns, axis=-1).reshape(-1, 5)
        by_round = np.argsort(sends[:, 0], kind="stable")

        # Links name their send, whose number is its place in the new order. Of 5 stored sends,
        # number 2 is row 7 in turn 1 before they are sorted.
        number_of_row = np.empty(len(sends), dtype=np.int64)
        number_of_row[by_round] = np.arange(len(sends))
        send, link_from, link_to = self.links.T
        links = np.stack(
            np.broadcast_arrays(
                number_of_row[send + turn * len(self.sends)],
                (link_from + turned) % n_ranks,
                (link_to + turned) % n_ranks,
            ),
            axis=-1,
        ).reshape(-1, 3)

        # Parts and places have a row for each send, or no rows, which take nothing of the order.
        return replace(
            self,
            stored_ranks=0,
            sends=sends[by_round],
            chunk_bytes=chunk_bytes,
            links=links[np.argsort(links[:, 0], kind="stable")],
            parts=np.tile(self.parts, (n_turns, 1))[by_round[: len(self.parts) * n_turns]],
            places=np.tile(self.places, (n_turns, 1))[by_round[: len(self.places) * n_turns]],
        )

    def _check_stored(self, operation: str, n_ranks: int, where: str = "") -> None:
        """Refuse stored ranks that cannot be turned to all ranks along with their chunks."""
        is_divisor = n_ranks % self.stored_ranks == 0
        n_chunks = len(self.chunk_bytes)
        has_chunks = n_chunks % self.stored_ranks == 0
        if operation == "all-to-all":
            has_chunks = n_chunks == self.stored_ranks * n_ranks
        if not (is_divisor and has_chunks):
            raise InputError(
                f"stored_ranks = {self.stored_ranks} of {n_ranks}, with {n_chunks} chunks: a"
                " divisor of both is expected",
                where=f"{where}stored_ranks",
            )

    def check_fits(self, problem: Any, where: str = "") -> None:
        """Refuse a plan of a collective whose arrays belong to other ranks, epochs or chunks.

        `where` comes before the names of fields in errors, such as ``answer.``.
        """
        n_ranks = problem.n_ranks
        expected = (self.n_epochs, problem.lanes, n_ranks)
        if self.n_epochs and self.circuits.shape != expected:
            raise InputError(
                f"circuits has shape {self.circuits.shape}, the problem needs {expected}",
                where=f"{where}circuits",
            )
        check_below(f"{where}circuits", self.circuits, n_ranks, "rank")
        check_below(f"{where}epoch_of_round", self.epoch_of_round, self.n_epochs, "epoch")

        if self.stored_ranks:
            self._check_stored(problem.operation, n_ranks, where)

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
    """Return the plan of a solution with all its sends, to be read without the verifier."""
    plan = solution.answer
    if not isinstance(plan, CollectivePlan) or not len(plan.sends):
        raise InputError(f"status {solution.status.value}: there are no sends")
    plan.check_fits(solution.problem)
    return plan.spelled_out(solution.problem.operation)  # type: ignore[attr-defined]


def _refuse(name: str, got: Any, rule: str) -> None:
    """Raise the error for a field: its name, what was given, and the rule that it breaks."""
    raise InputError(f"{name}: {got} given, {rule} expected", where=name)
