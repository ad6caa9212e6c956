"""A step folded: ranks that do the same at the same time stand for each other.

Partition refinement, as in the minimisation of automata. Words of this module:

Class
    Two ranks are of one class if their programs agree in all numbers, and all their partners,
    place by place, are of the same classes. The first rank of a class stands for it.
Program
    The operations of one rank, in their order; a place is the position of an operation in it.
Node
    A computation of a class, or a communication with all of its parts in all classes.
Colour
    The number of a class while classes are refined.

By induction over time the ranks of a class then do everything at the same moments, as long as a
plan treats them alike. Nothing is lost by that: take any plan, pick one pipeline, and let all
others do what it does; its collectives do not last longer, since a ring goes at the speed of its
slowest member.

In two equal pipelines of two ranks each, both first ranks are class 0 and both last ones class 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import check_time
from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import Step
from optmatch.problems.rails.training.times import orders
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


class Folded(NamedTuple):
    """The operations of the classes of ranks, each once."""

    step: Step
    """The step that is folded."""
    class_of: NDArray[np.int64]
    """``class_of[rank]``; classes are numbered in the order of their first ranks."""
    first: tuple[int, ...]
    """``first[class]``: the first rank of the class, which stands for the others."""
    begin: NDArray[np.int64]
    """``begin[class]``: where the program of the class begins in `own` and `nodes`."""
    own: NDArray[np.int64]
    """The operations of the first ranks, class by class; shape (rows,)."""
    nodes: NDArray[np.int64]
    """``nodes[row]``: the node of each of these operations, with all parts of its
    communication."""
    part: NDArray[np.int64]
    """``part[node]``: one operation of the node."""
    before: NDArray[np.int64]
    """``before[k]`` has to end before ``after[k]`` starts: pairs of nodes, each once; shape
    (pairs,)."""
    after: NDArray[np.int64]
    """As `before` says; shape (pairs,)."""
    order: tuple[NDArray[np.int64], ...]
    """``order[class]``: the nodes on a rail in program order."""

    def node_of(self, operations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up the nodes of operations of any ranks.

        Ranks that do the same are a *class*, and only the operations of the first rank of each
        class are written down. A *node* is such an operation, or several of them that are one
        communication. The ranks of a class have their operations in the same order: the node of an
        operation is that of the operation at the same place in the program of the first rank.

        Parameters
        ----------
        operations
            Operations of any ranks, as numbers in the step; shape (operations,).

        Returns
        -------
        int array, shape (operations,)
            The numbers of their nodes.
        """
        ranks = self.step.rank[operations]
        place_in_program = operations - self.step.rank_start[ranks]
        nodes: NDArray[np.int64] = self.nodes[self.begin[self.class_of[ranks]] + place_in_program]
        return nodes

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Copy values of the first rank of each class to all ranks of the class.

        A *class* is ranks that do the same; only the operations of its first rank are written
        down, as the rows ``self.own``. Each other rank gets the same values for its operations, in
        their order.

        Parameters
        ----------
        values
            A value for each of these rows, of any type; shape (rows,).

        Returns
        -------
        array, shape (operations,)
            A value for each operation of the step; it cannot be written to.
        """
        value_of = np.empty(self.step.n_operations, values.dtype)
        first_rows = self.begin[self.class_of].tolist()
        for first_row, (start, end) in zip(first_rows, _spans(self.step), strict=True):
            value_of[start:end] = values[first_row : first_row + end - start]
        value_of.flags.writeable = False  # a plan does not copy it
        return value_of


def fold(job: RailJob, labels: Sequence[bytes] = ()) -> Folded:
    """Find the ranks that do the same, so that a step can be planned for one of them alone.

    Ranks that do the same at the same time are a *class*, and its first rank stands for the
    others. Two ranks are of one class if

    * their programs (operations in order, with kinds and sizes) are equal, and
    * the partners of their communications, operation by operation, are of equal classes.

    In two equal pipelines of two ranks each, both first ranks are one class and both last ranks
    another one.

    Classes are refined until they are stable, as in the minimisation of automata. Partners are
    compared by sums of 64-bit hashes; if two different ones ever agreed, the plan would be wrong
    and its replay would say so.

    Parameters
    ----------
    job
        The job whose step is folded. It keeps the answer: a second call returns the same object.
    labels
        ``labels[rank]``: bytes that are compared like a part of the program, so that only ranks
        with equal labels can be of one class. Empty if programs alone decide.

    Returns
    -------
    Folded
        With these fields:

        * ``class_of[rank]``, and ``first[class]``: its first rank;
        * ``own[row]``: the operations of these first ranks, class by class. The rows of a class
          begin at ``begin[class]``;
        * ``nodes[row]``: a number that rows have in common if they happen together. The parts of
          one communication in several classes are one such node; a computation is a node of its
          own;
        * ``part[node]``: one operation of the node;
        * ``before[pair]`` and ``after[pair]``: two nodes, the second of which waits for the first;
        * ``order[class]``: its nodes on rails, in the order of its program.
    """
    return job.once(("fold", *labels), lambda: _fold(job.step(), labels))


def _fold(step: Step, labels: Sequence[bytes]) -> Folded:
    """Find the ranks that do the same, and write down once what they do.

    This takes three steps:

    1. Ranks are sorted into *classes*. Two ranks are of one class if their programs are equal and
       their communication partners are of equal classes. They do the same, and the first rank of a
       class stands for the others.
    2. The operations of these first ranks are written down, class by class. Each of them is a
       *row*.
    3. Rows that happen together become one *node*. A communication between classes has a row in
       each of them, and these rows are one node; each computation is a node of its own.

    Example: four ranks do the same. Each computes, then all of them gather. There is one class,
    with the operations of rank 0 as its two rows, which are two nodes. If the ranks computed for
    different times, there would be four classes and eight rows, but five nodes: four computations
    and one gathering.

    Parameters
    ----------
    step
        The step.
    labels
        ``labels[rank]``: bytes that are compared like a part of the program, so that only ranks
        with equal labels can be of one class. Empty if programs alone decide.

    Returns
    -------
    Folded
        With these fields:

        * ``class_of[rank]``, and ``first[class]``: its first rank;
        * ``begin[class]``: its first row;
        * ``own[row]``: the operation, and ``nodes[row]``: its node;
        * ``part[node]``: one of its operations;
        * ``before[pair]`` and ``after[pair]``: two nodes, the second of which waits for the first;
        * ``order[class]``: its nodes on rails, in the order of its program.
    """
    programs: Iterable[bytes] = _programs(step, list_places(step))
    if labels:
        programs = (program + label for program, label in zip(programs, labels, strict=True))
    class_of, hash_of_match = _refine(step, _number(programs))

    # The first rank of each class, and its operations: all others are copies.
    first_ranks = np.unique(class_of, return_index=True)[1].tolist()
    spans = [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in first_ranks]
    row_operations = np.concatenate([*spans, np.empty(0, np.int64)]).astype(np.int64)

    # Each row gets a key, and rows with equal keys are one node. The parts of a communication have
    # its hash as key; a computation, which is a node of its own, has the number of its row. Among
    # 2**64 values a hash hardly ever is one of these numbers, which are small; if one were, the
    # plan would be wrong and its replay would say so. Nodes are numbered in the order of rows, so
    # that neighbours in a program are neighbours in memory.
    match = step.match[row_operations]
    row_numbers = np.arange(len(row_operations), dtype=np.uint64)
    key_of_row = np.where(match >= 0, hash_of_match[match], row_numbers)
    node_of_row = number_first(key_of_row)

    # Pairs of nodes as single numbers, so that each is kept once.
    first_row_of_node = np.unique(node_of_row, return_index=True)[1]
    n_nodes = max(1, len(first_row_of_node))
    former, later = orders(step, row_operations)
    former_node = node_of_row[np.searchsorted(row_operations, former)]
    later_node = node_of_row[np.searchsorted(row_operations, later)]
    before, after = np.divmod(np.unique(former_node * n_nodes + later_node), n_nodes)

    # The nodes of each class that ride a rail, in the order of its program.
    begin = np.cumsum([0, *(len(span) for span in spans)])[:-1]
    nodes_on_rail = tuple(
        node_of_row[first_row : first_row + len(span)][step.rail[span] >= 0]
        for first_row, span in zip(begin.tolist(), spans, strict=True)
    )
    return Folded(
        step=step,
        class_of=class_of,
        first=tuple(first_ranks),
        begin=begin,
        own=row_operations,
        nodes=node_of_row,
        part=row_operations[first_row_of_node],
        before=before,
        after=after,
        order=nodes_on_rail,
    )


def _spans(step: Step) -> Iterator[tuple[int, int]]:
    """List by rank where its operations begin in the step, and where those of the next one do."""
    return pairwise(step.rank_start.tolist())


def _refine(step: Step, colour: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Split classes of ranks until the ranks of one class have partners of the same classes.

    A *colour* is the number of a class. At first ranks with equal programs have one colour. In
    each round ranks of one colour get different ones if their partners differ in colour. The
    rounds end when none splits a colour any more (partition refinement).

    Example: rank 0 sends to 1, which then sends to 2, which then sends to 3. Ranks 1 and 2 have
    equal programs. They are split in the first round, as rank 2 receives from one that has
    received before, and rank 1 from one that has not.

    Parameters
    ----------
    step
        The step; its `match` has by operation the number of its communication.
    colour
        ``colour[rank]`` at first: ranks with equal programs have one colour.

    Returns
    -------
    colour : int array, shape (ranks,)
        The classes, numbered in the order of their first ranks.
    hash_of_match : uint64 array, shape (communications,)
        ``hash_of_match[match]``: a hash, the same for communications of ranks of the same classes
        at the same places of their programs. These happen at the same time.
    """
    hash_of_match = np.empty(1 + int(step.match.max(initial=0)), np.uint64)
    hashes = np.empty(len(colour), np.uint64)
    while True:
        check_time()
        with np.errstate(over="ignore"):
            _meet(step.rank_start, step.match, colour, hash_of_match, hashes)
        refined = number_first(hashes)

        # Colours are only ever split: as many as before means that nothing was split.
        if refined.max(initial=-1) == colour.max(initial=-1):
            return colour, hash_of_match
        colour = refined


@kernel
def _meet(rank_start, match, colour, hash_of_match, hashes):
    """Compute a hash for each rank, which tells ranks apart whose partners differ.

    A *colour* is the number of a class of ranks that have been alike so far. There are two steps:

    1. Each communication gets a hash of the colours of all that take part, whatever their order.
    2. Each rank gets a hash of its colour and of the hashes of its communications, in their order.

    The cost is O(operations).

    Parameters
    ----------
    rank_start : int array, shape (ranks + 1,)
        Rank r has the operations from ``rank_start[r]`` up to, but without, ``rank_start[r + 1]``.
    match : int array, shape (operations,)
        By operation a number that all parts of its communication share; -1 for computation.
    colour : int array, shape (ranks,)
        The colours by now.
    hash_of_match : uint64 array, shape (communications,)
        Written: by communication its hash, the sum over its parts of a hash of the colour and of
        the place of the part in the program of its rank.
    hashes : uint64 array, shape (ranks,)
        Written: by rank its hash.
    """
    # First who meets in each communication, then the communications of each rank. The sum of
    # hashes wraps around at 64 bits, which does no harm.
    hash_of_match[:] = 0
    for rank in range(len(colour)):
        for operation in range(rank_start[rank], rank_start[rank + 1]):
            if match[operation] >= 0:
                place = operation - rank_start[rank]
                hash_of_match[match[operation]] += _mix(colour[rank], place)
    for rank in range(len(colour)):
        hashes[rank] = _mix(colour[rank], 0)
        for operation in range(rank_start[rank], rank_start[rank + 1]):
            if match[operation] >= 0:
                hashes[rank] = _mix(hashes[rank], hash_of_match[match[operation]])


@inner_kernel
def _mix(first, second):
    """Hash a pair of integers to 64 bits, as splitmix64 does.

    Parameters
    ----------
    first, second : int
        The pair; its order counts.

    Returns
    -------
    uint64
        The hash. Multiplications wrap around at 64 bits.
    """
    z = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15)
    z = z + np.uint64(second) * np.uint64(0xD1B54A32D192ED03)
    z = z + np.uint64(0x8CB92BA72F3D8DD7)  # otherwise twice a number would have twice its hash
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _programs(step: Step, places: Places) -> Iterator[bytes]:
    """Describe what each rank does, without names: equal descriptions for ranks that do the same.

    The *program* of a rank is its operations in their order. The description has the kinds, sizes,
    times and dependencies of the operations, and which of its partners on rails are the same. It
    does not have the names of ranks and groups.

    Parameters
    ----------
    step
        The step: columns of the operations of all ranks, one rank after another.
    places
        The place of each rank among the members of each of its groups.

    Yields
    ------
    bytes
        One description for each rank, in their order.
    """
    # Groups of one shape are not told apart; the last entry is for operations without a group.
    shapes = [(group.dimension, len(group.ranks), group.rail >= 0) for group in step.groups]
    number_of_shape = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    shape_of_group = np.array([*(number_of_shape[shape] for shape in shapes), -1])
    for start, end in _spans(step):
        check_time()

        # Kinds, bytes and times, the shape of the group, dependencies as places in the program,
        # and partners as numbers in the order in which they appear.
        first_dependency = step.dep_start[start]
        last_dependency = step.dep_start[end]
        riding = start + np.flatnonzero(step.rail[start:end] >= 0)
        parts: tuple[NDArray[Any], ...] = (
            step.kind[start:end],
            step.size_bytes[start:end],
            step.duration_s[start:end],
            shape_of_group[step.group[start:end]],
            step.dep_start[start : end + 1] - first_dependency,
            step.dep[first_dependency:last_dependency] - start,
            *_faced(step, places, riding),
        )
        yield b"".join(part.tobytes() for part in parts)


def _faced(step: Step, places: Places, riding: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Describe with whom a rank communicates, without names: two ranks that do the same are equal.

    A *contact* is with whom an operation communicates: the other rank of a message, or the whole
    group of a collective. Contacts are numbered as they first appear. A rank that sends to rank 9,
    then to 5, then to 9 again has the contacts 0, 1, 0; so has one that sends to 40, 12 and 40.

    A *face* is a rank that is met at a contact. Each contact has two: for a group the next and the
    previous member, for a message twice the other rank. Faces are numbered as they first appear,
    too: the same rank may be met as the partner of a message and as the next member of a group.

    Parameters
    ----------
    step
        The step.
    places
        The place of each rank among the members of each of its groups: ``member[group, place]`` is
        a rank, and ``place(step, operations)`` looks up places.
    riding
        The operations of one rank that communicate over a rail, ascending; shape (operations,).

    Returns
    -------
    list of two int arrays
        The first, of shape (operations,), has by operation the number of its contact. The second,
        of shape (2 * contacts,), has the numbers of faces: first the next member of each contact,
        then the previous one of each. With the three messages above they are 0, 1, 0 and
        0, 1, 0, 1.
    """
    group = step.group[riding]
    peer = step.peer[riding]

    # Contacts as numbers: a partner by its rank, a group by a number beyond all ranks. `first` is
    # the place where each is met first, `contact_of` the contact of each operation; both are
    # sorted by these numbers here.
    contact = np.where(peer >= 0, peer, step.n_ranks + group)
    _, first, contact_of = np.unique(contact, return_index=True, return_inverse=True)

    # Contacts are numbered by rank so far, and are now numbered as they appear. For the ranks 9,
    # 5, 9 the sorted contacts are 5 and 9, first met at the places 1 and 0, and the operations
    # have the contacts 1, 0, 1. The order of first places is 1, 0; the second argsort turns it
    # into the new number of each contact, and the operations get 0, 1, 0.
    order = np.argsort(first)
    first = first[order]
    renamed = np.argsort(order)[contact_of.reshape(-1)]

    # Both faces of a message are its other rank. A collective has none (-1): its faces are looked
    # up by place, on the circle of members, the next member and the previous one.
    faces = np.stack([peer[first], peer[first]])
    collectives = np.flatnonzero(peer[first] < 0)
    group_met = group[first[collectives]]
    place = places.place(step, riding[first[collectives]])
    n_members = (places.member[group_met] >= 0).sum(axis=1)
    faces[0, collectives] = places.member[group_met, (place + 1) % n_members]
    faces[1, collectives] = places.member[group_met, (place - 1) % n_members]
    return [renamed, number_first(faces.reshape(-1))]


def _number(keys: Iterable[bytes]) -> NDArray[np.int64]:
    """Give equal byte strings equal numbers, counted from 0 in the order of first appearance.

    Hashes of 16 bytes are compared instead of the strings, which would take much memory.

    Parameters
    ----------
    keys
        Strings of any lengths, as the programs of ranks.

    Returns
    -------
    int array, shape (keys,)
        The strings b, a, b become 0, 1, 0.
    """
    seen: dict[bytes, int] = {}
    return np.array(
        [seen.setdefault(blake2b(key, digest_size=16).digest(), len(seen)) for key in keys],
        dtype=np.int64,
    )


class Places(NamedTuple):
    """The places of ranks in their groups."""

    member: NDArray[np.int64]
    """``member[group, place]``, padded with -1."""
    keys: NDArray[np.int64]
    """``group * n_ranks + rank`` of all members, ascending."""
    place_of: NDArray[np.int64]
    """The place of each of these members in its group."""

    def place(self, step: Step, operations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up the places of the ranks of operations in their groups.

        Parameters
        ----------
        step
            The step.
        operations
            Operations that have a group, as numbers in the step; shape (operations,).

        Returns
        -------
        int array, shape (operations,)
            By operation the position of its rank among the members of its group, from 0 on.
        """
        keys = step.group[operations].astype(np.int64) * step.n_ranks + step.rank[operations]
        return self.place_of[np.searchsorted(self.keys, keys)]


def list_places(step: Step) -> Places:
    """Put the groups of a step into tables, to look up members and their places quickly.

    The *place* of a rank is its position among the members of a group.

    Parameters
    ----------
    step
        The step: its groups, each with its ranks in order.

    Returns
    -------
    Places
        With these fields:

        * ``member[group, place]``: the rank, padded with -1 to the length of the largest group;
        * `keys`: the numbers ``group * n_ranks + rank`` of all members, ascending;
        * ``place_of[k]``: the place of the member with ``keys[k]``.
    """
    most_members = max((len(group.ranks) for group in step.groups), default=0)
    member = np.full((len(step.groups), most_members), -1)
    for number, group in enumerate(step.groups):
        member[number, : len(group.ranks)] = group.ranks

    # Members sorted by group and rank, so that a place is found by binary search.
    group_number, place = np.nonzero(member >= 0)
    keys = group_number * step.n_ranks + member[group_number, place]
    order = np.argsort(keys)
    return Places(member, keys[order], place[order])


def number_first(values: NDArray[np.integer]) -> NDArray[np.int64]:
    """Replace values by numbers in the order in which they first occur.

    The values 7, 3, 7, 5 become 0, 1, 0, 2.

    Parameters
    ----------
    values
        Any integers, of any shape.

    Returns
    -------
    int array
        One axis, with an entry for each value.
    """
    # By sorted value where it occurs first. The first argsort lists the values in the order in
    # which they occur; the second one inverts that: by sorted value its number.
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    number_of_value = np.argsort(np.argsort(first))
    numbers: NDArray[np.int64] = number_of_value[inverse.reshape(-1)]
    return numbers
