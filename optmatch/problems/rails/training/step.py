"""One step of a training job: computations, sends and receives of each rank, in order.

An *operation* is a row of the columns of a `Step`: what one rank computes, its part in a
collective, or one end of a message. All parts of a communication have one number in `match`. A
*stream* is a queue of a rank, as in CUDA: its operations are done one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import (
    Given,
    Index,
    InputError,
    Range,
    Value,
    check_fields,
    check_size,
    frozen,
    given,
    read_only,
)
from optmatch.model.numbers import check_below, check_length, refuse_entries

Dimension = Literal["dp", "tp", "pp", "cp", "ep"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

OPERATIONS = (
    *("compute", "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"),
    *("send", "recv"),
)
"""Names of the kinds of operations; the number of a kind is its place here."""
COMPUTE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, SEND, RECV = range(8)
SCALE_UP = -1
"""The rail of a group inside one server."""


@dataclass(frozen=True, slots=True, eq=False)
class Group(Value):
    """Ranks that communicate in one dimension of parallelism.

    Parameters
    ----------
    name
        The name of the group in traces and messages.
    dimension
        ``"dp"``, ``"tp"``, ``"pp"``, ``"cp"`` or ``"ep"``.
    ranks
        The members, in the order of their ring or pipeline.
    rail
        The rail that joins them; -1 if all sit in one server.
    stream
        The name of a stream of its own: its collectives then do not wait for those of other
        groups of the dimension. Empty for the stream that the dimension has in common.
    """

    name: str
    dimension: Dimension
    ranks: tuple[Index, ...]
    rail: Annotated[int, Range(SCALE_UP, 2**31 - 1)] = SCALE_UP
    stream: str = field(default="", metadata={"brief": True})

    def __post_init__(self) -> None:
        """Refuse a group without ranks, and one that has a rank twice.

        Raises
        ------
        InputError
            Naming the group, and the rank.
        """
        check_fields(self)
        if not self.ranks:
            raise InputError(f"group {self.name}: it has no ranks", where="ranks")
        if len(set(self.ranks)) < len(self.ranks):
            repeated = next(rank for rank in self.ranks if self.ranks.count(rank) > 1)
            raise InputError(f"group {self.name}: rank {repeated} is in it twice", where="ranks")


class _Derived(Value):
    """Values that are derived once and are no fields."""

    __slots__ = ("rail", "rank_start")
    rank_start: NDArray[np.int64]
    """Rank r has the operations from ``rank_start[r]`` up to ``rank_start[r + 1]``."""
    rail: NDArray[np.int32]
    """``rail[operation]``: the rail it uses, -1 inside a server or without communication."""


_MOST_MATCHES = 1 << 20
"""Numbers of communications may be anything below, or below the number of operations."""
COLUMNS = ("rank", "kind", "group", "size_bytes", "duration_s", "peer", "match")
"""The columns of a step with an entry for each operation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step(_Derived):
    """The operations of all ranks in one step, as columns.

    The operations of a rank stand together, in program order, ranks ascending. An operation
    starts when all that it depends on has ended, and no earlier than its predecessor in program
    order of the same stream: a rank has one stream for what it computes, one for the collectives
    of each dimension inside its server and one for those on its rail, and one for what it sends
    to, and one for what it receives from, each rank. Groups with a `Group.stream` have further
    streams of these names in their dimension.

    Parameters
    ----------
    groups
        The groups; a rank may be in many.
    rank
        ``rank[operation]``, ascending.
    kind
        ``kind[operation]``: an index of `OPERATIONS`.
    group
        ``group[operation]``: an index of `groups`; -1 of computation.
    size_bytes
        All-reduce, reduce-scatter, all-to-all, broadcast: the whole buffer of a rank. All-gather:
        its own shard. Send and receive: the message. Computation: 0.
    duration_s
        ``duration_s[operation]``: of computation; 0 of communication, which lasts as long as its
        bytes need on the circuits that are there.
    peer
        ``peer[operation]``: the other rank of a send or receive, else -1.
    match
        ``match[operation]``: the same number at all ranks that take part in one collective or in
        one send and receive; -1 of computation.
    names
        ``names[operation]`` in the trace, for messages; empty if there are none.
    dep_start, dep
        Operation k depends on ``dep[dep_start[k]:dep_start[k + 1]]``, operations of its own rank
        that stand before it; `dep_start` has one entry more than there are operations.
    skipped
        The parts of the trace of the step that were left out, and why.

    Raises
    ------
    InputError
        Naming operation, rank and group: of a column of another length, a dependency on what
        comes later, a rank that is not in the group of its operation, or a collective, send or
        receive of which a part is missing or differs.

    Notes
    -----
    Sizes are meant as in Chakra traces under astra-sim. Checks take time O(operations log
    operations).

    Examples
    --------
    >>> pair = Group("pp.0", "pp", (0, 1), rail=0)
    >>> step = Step(
    ...     groups=(pair,), rank=[0, 0, 1], kind=[COMPUTE, SEND, RECV], group=[-1, 0, 0],
    ...     size_bytes=[0, 8, 8], duration_s=[1, 0, 0], peer=[-1, 1, 0], match=[-1, 0, 0],
    ...     dep_start=[0, 0, 1, 1], dep=[0])
    >>> step.n_ranks, step.n_operations, step.rank_start.tolist()
    (2, 3, [0, 2, 3])
    """

    groups: tuple[Group, ...]
    rank: Given[np.int32] = given()
    kind: Annotated[Given[np.int8], Range(0, RECV)] = given()
    group: Annotated[Given[np.int32], Range(-1)] = given()
    size_bytes: Annotated[Given[np.float64], Range(0)] = given()
    duration_s: Annotated[Given[np.float64], Range(0)] = given()
    peer: Given[np.int32] = given()
    match: Given[np.int32] = given()
    dep_start: Given[np.int32] = given()
    dep: Given[np.int32] = given()
    names: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check columns, members and parts in this order, as later checks rely on earlier ones."""
        check_fields(self)
        check_size("ranks", 1 + _last_rank(self), "groups")
        _check_columns(self)
        _check_members(self)
        _check_matches(self)
        self._derive()

    @classmethod
    def of_columns(cls, groups: tuple[Group, ...], **columns: NDArray[Any]) -> Step:
        """Make a step of columns that are known to be right; they are neither copied nor checked.

        Parameters
        ----------
        groups
            The groups.
        columns
            By the names of the fields, arrays of their types, which become read-only. Fields that
            are not among them have their defaults.

        Returns
        -------
        Step
        """
        made = object.__new__(cls)
        for column in columns.values():
            column.flags.writeable = False
        defaults = {column.name: column.default for column in fields(cls)}
        for name, value in (defaults | columns | {"groups": groups}).items():
            object.__setattr__(made, name, value)
        made._derive()
        return made

    def _derive(self) -> None:
        """Set where the operations of each rank begin, and the rail of each operation."""
        start = np.searchsorted(self.rank, np.arange(2 + _last_rank(self)))
        object.__setattr__(self, "rank_start", frozen("rank_start", start, 1, np.int64))
        rails = np.array([*(group.rail for group in self.groups), SCALE_UP], dtype=np.int32)
        object.__setattr__(self, "rail", read_only(rails[self.group]))

    @property
    def n_ranks(self) -> int:
        """The number of ranks: all that act or are in a group."""
        return len(self.rank_start) - 1

    @property
    def n_operations(self) -> int:
        """The number of operations."""
        return len(self.rank)

    def describe(self, operation: int) -> str:
        """Name an operation for a message, with its kind, rank and group.

        Parameters
        ----------
        operation
            The number of the operation in the step.

        Returns
        -------
        str
            Such as ``operation 12 (all-reduce) of rank 3 in group dp.0``.
        """
        kind = OPERATIONS[self.kind[operation]]
        name = f" {self.names[operation]!r}" if self.names else ""
        group = self.group[operation]
        inside = f" in group {self.groups[group].name}" if group >= 0 else ""
        return f"operation {operation}{name} ({kind}) of rank {self.rank[operation]}{inside}"


def dimensions(step: Step) -> NDArray[np.int64]:
    """By operation the place of its dimension in `DIMENSIONS`, -1 of computation."""
    return find_dimensions(step.groups)[step.group]


def find_dimensions(groups: tuple[Group, ...]) -> NDArray[np.int64]:
    """By group the place of its dimension in `DIMENSIONS`; the last entry, -1, is for no group."""
    return np.array([*(DIMENSIONS.index(group.dimension) for group in groups), -1])


def ring_bytes(kind: ArrayLike, size_bytes: ArrayLike, members: ArrayLike) -> NDArray[np.float64]:
    """Return the bytes that each member sends around a ring.

    Of a buffer of n members these are (n - 1) / n, twice in an all-reduce; in an all-gather n - 1
    shards; in a broadcast or message all.
    """
    n = np.maximum(np.asarray(members, dtype=np.float64), 1.0)
    kinds = np.asarray(kind)
    part = (kinds == REDUCE_SCATTER) | (kinds == ALL_TO_ALL) | (kinds == ALL_REDUCE)
    factor = np.where(part, (n - 1) / n, np.where(kinds == ALL_GATHER, n - 1, 1.0))

    # An all-reduce goes round twice: it reduces and scatters, and then gathers.
    factor *= np.where(kinds == ALL_REDUCE, 2.0, kinds != COMPUTE)
    sent_bytes: NDArray[np.float64] = factor * np.asarray(size_bytes, dtype=np.float64)
    return sent_bytes


def count_messages(kind: ArrayLike, members: ArrayLike) -> NDArray[Any]:
    """Count the messages that follow one another around a ring.

    Of n members these are n - 1, and twice as many in an all-reduce, which goes around twice. A
    message counts once, and so does a broadcast, whose pieces follow each other closely.
    """
    kinds = np.asarray(kind)
    n_hops = np.asarray(members) - 1
    messages = np.where(kinds == ALL_REDUCE, 2 * n_hops, n_hops)
    return np.where((kinds >= SEND) | (kinds == BROADCAST), 1, messages)


def _last_rank(step: Step) -> int:
    """Return the highest rank that acts or is in a group; -1 if there is none."""
    members = [max(group.ranks) for group in step.groups]
    return max([*members, int(step.rank.max(initial=-1))], default=-1)


def _check_columns(step: Step) -> None:
    """Check lengths and ranges of columns, and that ranks ascend."""
    n = len(step.rank)
    for name in COLUMNS:
        check_length(name, getattr(step, name), n, "operations")
    check_length("names", step.names or None, n, "operations")
    if n and (step.rank[0] < 0 or (np.diff(step.rank) < 0).any()):
        raise InputError("rank: not ascending from 0 up", where="rank")
    check_below("group", step.group, len(step.groups), "group")
    _check_dependencies(step)


def _check_dependencies(step: Step) -> None:
    """Check that operations depend on earlier ones of their rank."""
    n = len(step.rank)
    start = step.dep_start
    if len(start) != n + 1 or start[0] != 0 or start[-1] != len(step.dep):
        raise InputError(
            f"dep_start: {n + 1} offsets from 0 to {len(step.dep)} are expected", where="dep_start"
        )
    if (np.diff(start) < 0).any():
        raise InputError("dep_start: not ascending", where="dep_start")

    # Entry by entry of `dep`: the operation that depends on it. An index that is out of range is
    # replaced by 0 before its rank is looked up; without operations there is no rank at all.
    later = np.repeat(np.arange(n), np.diff(start))
    wrong = (step.dep < 0) | (step.dep >= later)
    wrong |= step.rank[np.where(wrong, 0, step.dep)] != step.rank[later] if n else wrong
    refuse_entries(
        "dep",
        wrong,
        lambda k: (
            f": {step.describe(int(later[k]))} depends on operation {step.dep[k]}:"
            " an earlier one of the same rank is expected"
        ),
    )


def _check_members(step: Step) -> None:
    """Check that communications, and no computations, have groups with their ranks.

    Peers of messages have to be in the group too. The message names the first operation that is
    wrong.
    """
    communicates = step.kind != COMPUTE
    refuse_entries(
        "group",
        communicates != (step.group >= 0),
        lambda k: f": {step.describe(k)}: communication has a group, computation none",
    )

    # A pair of group and rank is one integer: group * wide + rank.
    wide = 1 + _last_rank(step)
    members = [group * wide + rank for group, g in enumerate(step.groups) for rank in g.ranks]
    inside = np.array(sorted(members), dtype=np.int64)
    for column, has_entry in ((step.rank, communicates), (step.peer, step.kind >= SEND)):
        operations = np.flatnonzero(has_entry)
        ranks = column[operations]
        keys = step.group[operations].astype(np.int64) * wide + ranks
        wrong = ~np.isin(keys, inside) | (ranks < 0) | (ranks >= wide)
        for k in operations[wrong][:1]:
            raise InputError(
                f"{step.describe(int(k))}: rank {column[k]} is not in that group, which has ranks"
                f" {', '.join(map(str, step.groups[step.group[k]].ranks[:8]))}",
                where=f"group[{k}]",
            )


def _check_matches(step: Step) -> None:
    """Check that the parts of each communication are alike and all there.

    Parts of one communication have the same number in `match`, and the same kind (send and receive
    count as one), group and size.
    """
    # Computation has -1 in `match`, and nothing else has.
    communicates = step.kind != COMPUTE
    refuse_entries(
        "match",
        communicates != (step.match >= 0),
        lambda k: f": {step.describe(k)}: match = {step.match[k]}",
    )

    # Tables have a row for each number.
    most = max(len(step.match), _MOST_MATCHES)
    refuse_entries(
        "match", step.match >= most, lambda k: f" = {step.match[k]}: below {most} is expected"
    )

    # `operations` are those that communicate, sorted by `match`: the parts of a communication
    # stand together, in the order of their ranks.
    operations = np.flatnonzero(communicates)
    operations = operations[np.argsort(step.match[operations], kind="stable")]
    if not len(operations):
        return

    # ``first[c]`` is the place of the first part of communication c, and ``n_parts[c]`` the number
    # of its parts. Each part is compared with the first one, its `head`.
    first = np.flatnonzero(np.diff(step.match[operations], prepend=-1))
    n_parts = np.diff(first, append=len(operations))
    head = np.repeat(operations[first], n_parts)
    is_message = step.kind[head] >= SEND
    has_kind = np.where(
        is_message, step.kind[operations] >= SEND, step.kind[operations] == step.kind[head]
    )
    fits = has_kind & (step.group[operations] == step.group[head])
    fits &= step.size_bytes[operations] == step.size_bytes[head]
    refuse_entries(
        "match",
        ~fits,
        lambda k: (
            f": {step.describe(int(operations[k]))} belongs to {step.describe(int(head[k]))}, but"
            " kind, group or size differ"
        ),
        entries=operations,
    )

    # A message has two parts, and a collective one for each member of its group.
    n_members = np.array([len(group.ranks) for group in step.groups])
    expected = np.where(is_message[first], 2, n_members[step.group[operations[first]]])
    heads = operations[first]
    refuse_entries(
        "match",
        n_parts != expected,
        lambda k: (
            f": {step.describe(int(heads[k]))}: {n_parts[k]} of {expected[k]} parts are there"
        ),
        entries=heads,
    )

    # By message, both of its ends: one sends, one receives, and each names the other as its peer.
    row = first[is_message[first]]
    near = operations[row]
    far = operations[row + 1]
    fits = (step.kind[near] + step.kind[far] == SEND + RECV) & (step.kind[near] != step.kind[far])
    fits &= (step.peer[near] == step.rank[far]) & (step.peer[far] == step.rank[near])
    refuse_entries(
        "match",
        ~fits,
        lambda k: (
            f": {step.describe(int(near[k]))} and {step.describe(int(far[k]))} are no send and"
            " receive between the same ranks"
        ),
        entries=near,
    )

    # The parts of a collective ascend by rank, so a rank that is there twice has a neighbour.
    collectives = operations[~is_message]
    is_same_match = np.diff(step.match[collectives], prepend=-1) == 0
    is_same_rank = np.diff(step.rank[collectives], prepend=-1) == 0
    refuse_entries(
        "match",
        is_same_match & is_same_rank,
        lambda k: f": {step.describe(int(collectives[k]))}: the rank takes part twice",
        entries=collectives,
    )
