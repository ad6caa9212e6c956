"""A step folded: ranks that do the same at the same time stand for each other.

Partition refinement, as in the minimisation of automata. Words of this module:

Class
    Two ranks are of one class if their labels are equal, their programs agree in all numbers, and
    all their partners, place by place, are of the same classes. The first rank of a class stands
    for it.
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
from optmatch.problems.rails.training.arrays import list_ranges
from optmatch.problems.rails.training.step import Step
from optmatch.problems.rails.training.times import orders
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.rails.paths import Ints


class Folded(NamedTuple):
    """The operations of the classes of ranks, each once."""

    step: Step
    """The step that is folded."""
    class_of: Ints
    """``class_of[rank]``; classes are numbered in the order of their first ranks."""
    first: tuple[int, ...]
    """``first[class]``: the first rank of the class, which stands for the others."""
    own: Ints
    """The operations of the first ranks, class by class; shape (rows,)."""
    nodes: Ints
    """``nodes[row]``: the node of each of these operations, with all parts of its
    communication."""
    part: Ints
    """``part[node]``: one operation of the node."""
    pairs: Ints
    """Pairs of nodes, each once, shape (pairs, 2): the second one waits for the first."""

    @property
    def like(self) -> NDArray[np.int32]:
        """``like[rank]``: the first rank of its class, as in a `RailPlan`.

        The operations of ranks that are like themselves are the rows, in their order.
        """
        return np.array(self.first, np.int32)[self.class_of]


def fold(job: RailJob, labels: Sequence[bytes]) -> Folded:
    """Sort ranks into classes that do the same, and list the operations of one rank of each.

    Ranks of one class also have equal ``labels[rank]``. The job keeps the answer: a second call
    with the same labels takes no time. Classes are refined until they are stable, as in the
    minimisation of automata. Partners are compared by sums of 64-bit hashes; if two different ones
    ever agreed, the plan would be wrong and its replay would say so.
    """
    return job.once(("fold", *labels), lambda: _fold_ranks(job, labels))


def _fold_ranks(job: RailJob, labels: Sequence[bytes]) -> Folded:
    """Sort ranks into classes, and list the operations of their first ranks as rows and nodes.

    Ranks with different ``labels[rank]`` are never of one class. A row is an operation of a first
    rank, and a node all rows of one communication, or a computation. Four ranks that compute and
    then gather are one class of two rows, which are two nodes. If they computed for different
    times, they would be four classes of eight rows: four computations and four parts of one
    gathering, which are five nodes.
    """
    # The classes to begin with: equal programs with equal labels. Programs are the same for all
    # labels, and are numbered once for a job. `_refine_classes` then splits classes by their
    # partners, and gives each communication (`match` is its number, -1 for computation) a hash.
    step = job.step()
    number_of_program = job.once("programs", lambda: _number_keys(_describe_programs(step)))
    labelled = zip(number_of_program.tolist(), labels, strict=True)
    colour = _number_keys(b"%d " % number + label for number, label in labelled)
    class_of, hash_of_match = _refine_classes(step, colour)

    # The first rank of each class, and its operations: all others are copies.
    first_ranks = np.unique(class_of, return_index=True)[1].tolist()
    spans = [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in first_ranks]
    row_operations = np.concatenate([*spans, np.empty(0, np.int64)]).astype(np.int64)

    # Rows with equal keys are one node. A computation is a node of its own: its key is the number
    # of its row. The parts of a communication (``match >= 0``) have its 64-bit hash as their key.
    # A hash that is the number of a row by chance would make a wrong plan, and its replay would
    # say so. Nodes are numbered in the order of rows, so that neighbours in a program are
    # neighbours in memory.
    match = step.match[row_operations]
    row_numbers = np.arange(len(row_operations), dtype=np.uint64)
    key_of_row = np.where(match >= 0, hash_of_match[match], row_numbers)
    node_of_row = number_first(key_of_row)

    # Which node comes before which: ``orders`` tells it of operations, `former` and `later`, whose
    # rows are found by bisection, as the operations of the rows ascend. A pair of nodes becomes
    # one number, 37 for the nodes 3 and 7 of 10, and sorting keeps each pair once. On millions of
    # pairs `unique`, which hashes them, takes ten times as long.
    first_row_of_node = np.unique(node_of_row, return_index=True)[1]
    n_nodes = max(1, len(first_row_of_node))
    former, later = orders(step, row_operations)
    former_node = node_of_row[np.searchsorted(row_operations, former)]
    later_node = node_of_row[np.searchsorted(row_operations, later)]
    pair_numbers = np.sort(former_node * n_nodes + later_node)
    is_new = np.diff(pair_numbers, prepend=-1) > 0
    return Folded(
        step=step,
        class_of=class_of,
        first=tuple(first_ranks),
        own=row_operations,
        nodes=node_of_row,
        part=row_operations[first_row_of_node],
        pairs=np.stack(np.divmod(pair_numbers[is_new], n_nodes), axis=1),
    )


def _refine_classes(step: Step, colour: Ints) -> tuple[Ints, NDArray[np.uint64]]:
    """Split classes until the ranks of one class have partners of the same classes.

    ``colour[rank]`` is the class to begin with. Rank 0 sends to 1, which then sends to 2, which
    then sends to 3: ranks 1 and 2 have equal programs, and are split in the first round by their
    partners. Returns the class of each rank, and ``hash_of_match[communication]``: equal for
    communications with members of the same classes at the same places of their programs.
    """
    hash_of_match = np.empty(1 + int(step.match.max(initial=0)), np.uint64)
    hashes = np.empty(len(colour), np.uint64)
    while True:
        check_time()
        with np.errstate(over="ignore"):
            _hash_communications(step.rank_start, step.match, colour, hash_of_match, hashes)
        refined = number_first(hashes)

        # Colours are only ever split: as many as before means that nothing was split.
        if refined.max(initial=-1) == colour.max(initial=-1):
            return colour, hash_of_match
        colour = refined


@kernel
def _hash_communications(rank_start, match, colour, hash_of_match, hashes):
    """Hash communications by the colours of all that take part, and ranks by their communications.

    The operations of a rank are those from ``rank_start[rank]`` up to ``rank_start[rank + 1]``;
    ``match[operation]`` is its communication, -1 if it computes, and ``colour[rank]`` the class of
    a rank. Writes ``hash_of_match[communication]``, the sum over all that take part of a hash of
    colour and place in the program, and ``hashes[rank]``, of its colour and the hashes of its
    communications in their order.
    """
    # First who meets in each communication. The sum, which does not depend on the order of the
    # ranks, wraps around at 64 bits; that does no harm.
    hash_of_match[:] = 0
    for rank in range(len(colour)):
        for operation in range(rank_start[rank], rank_start[rank + 1]):
            if match[operation] >= 0:
                place = operation - rank_start[rank]
                hash_of_match[match[operation]] += _hash_pair(colour[rank], place)

    # Then the communications of each rank.
    for rank in range(len(colour)):
        hashes[rank] = _hash_pair(colour[rank], 0)
        for operation in range(rank_start[rank], rank_start[rank + 1]):
            if match[operation] >= 0:
                hashes[rank] = _hash_pair(hashes[rank], hash_of_match[match[operation]])


@inner_kernel
def _hash_pair(first, second):
    """Hash an ordered pair of integers to 64 bits: (1, 2) and (2, 1) differ (splitmix64)."""
    z = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15)
    z = z + np.uint64(second) * np.uint64(0xD1B54A32D192ED03)
    z = z + np.uint64(0x8CB92BA72F3D8DD7)  # otherwise twice a number would have twice its hash
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _describe_programs(step: Step) -> Iterator[bytes]:
    """Describe the program of each rank by bytes, without names of ranks and groups.

    Ranks that may be of one class have equal bytes: the same kinds, sizes and times of operations
    in the same order, in groups of one shape, with the same dependencies. With whom they
    communicate is compared later, by class (`_refine_classes`).
    """
    # Groups of one shape are not told apart; the last entry is for operations without a group.
    shapes = [(group.dimension, len(group.ranks), group.rail >= 0) for group in step.groups]
    number_of_shape = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    shape_of_group = np.array([*(number_of_shape[shape] for shape in shapes), -1], np.int32)
    for start, end in pairwise(step.rank_start.tolist()):
        check_time()

        # Kinds, bytes and times, the shape of the group, and dependencies as places in the
        # program.
        dep_start = step.dep_start[start : end + 1]
        parts: tuple[NDArray[Any], ...] = (
            step.kind[start:end],
            step.size_bytes[start:end],
            step.duration_s[start:end],
            shape_of_group[step.group[start:end]],
            dep_start - dep_start[0],
            step.dep[dep_start[0] : dep_start[-1]] - start,
        )
        yield b"".join(part.tobytes() for part in parts)


def _number_keys(keys: Iterable[bytes]) -> Ints:
    """Give keys numbers in the order in which they appear; equal keys have one number."""
    seen: dict[bytes, int] = {}
    return np.array(
        [seen.setdefault(blake2b(key, digest_size=16).digest(), len(seen)) for key in keys],
        dtype=np.int64,
    )


def find_places(step: Step, group: Ints, rank: NDArray[np.integer]) -> Ints:
    """Find ``place[k]`` of the rank ``rank[k]`` among the members of the group ``group[k]``.

    Places count from 0: rank 9 has place 2 in the group 3, 5, 9.
    """
    # All members have a number of group and rank, among which those that are asked for are found.
    sizes = np.array([len(one_group.ranks) for one_group in step.groups], np.int64)
    members = np.array(
        [member for one_group in step.groups for member in one_group.ranks], np.int64
    )
    keys = np.repeat(np.arange(len(sizes)), sizes) * step.n_ranks + members
    order = np.argsort(keys)
    member_number = order[np.searchsorted(keys, group * step.n_ranks + rank, sorter=order)]
    return list_ranges(np.zeros_like(sizes), sizes)[member_number]


def number_first(values: NDArray[np.integer]) -> Ints:
    """Give values numbers in the order in which they appear: 7, 3, 7 become 0, 1, 0."""
    # By sorted value where it occurs first. The first argsort lists the values in the order in
    # which they occur; the second one inverts that: by sorted value its number.
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    number_of_value = np.argsort(np.argsort(first))
    numbers: Ints = number_of_value[inverse.reshape(-1)]
    return numbers
