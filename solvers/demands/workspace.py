"""The workspace of kernels that peel permutations off a matrix: arrays, and a queue of entries.

Every entry that is not zero is in the graph of entries that may be used, or in one of the lists of
those below the threshold.

A *place* is an entry's row and column in one number, row * n + column. A set of columns is kept as
bits of words: column c is bit c % 64 of word c // 64. A column is *idle* if no row is matched with
it; a row *waits* if it is matched with no column. The *threshold* is the least entry that may be
used, so that any matching within the graph has no smaller one.

The lists are the buckets of a radix heap. The list of an entry follows from the highest bit in
which it differs from the threshold: list k + 1 for bit k. As the entry is below the threshold, it
has a 0 there, and all bits above are alike: the lower this bit, the larger the entry. With a
threshold of 12 (0b1100), 9 (0b1001) differs in bit 2; 4 (0b0100) and 7 (0b0111) differ in bit 3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.arrays import number_of_bit
from optmatch.solvers.kernels.decorators import inner_kernel

WORD = 64
"""Columns in one word, whose last bit is the sign."""

LISTS = 64
"""Lists of waiting entries: list 0, where all entries start, and one for each bit."""

LINE_SUM, THRESHOLD = range(2)
"""Indices of `PeelingWorkspace.state`."""


class PeelingWorkspace(NamedTuple):
    """The memory of a decomposition between two permutations, and its room to work in."""

    remaining: NDArray[np.int64]
    """(n * n,), by place: what is left of each entry, in the unit of the matrix."""
    graph: NDArray[np.int64]
    """(n, words): for each row the columns of entries that may be used."""
    column_of: NDArray[np.int64]
    """(n,): for each row the column it is matched with, -1 where it waits."""
    row_of: NDArray[np.int64]
    """(n,): for each column the row it is matched with, -1 where it is idle."""
    idle: NDArray[np.int64]
    """(words,): the columns without a row."""
    fresh: NDArray[np.int64]
    """(words,): the columns that no search has come to."""
    saved: NDArray[np.int64]
    """(words,): `fresh` as it was before a search."""
    every: NDArray[np.int64]
    """(words,): all columns."""
    reached: NDArray[np.bool_]
    """(n,): whether a search that has failed has come to the row: it leads to no idle column."""
    parent: NDArray[np.int64]
    """(n,): for each column the row that a search came from."""
    queue: NDArray[np.int64]
    """(n,): the rows that searches have reached, in their order."""
    waiting: NDArray[np.int64]
    """(n,): the rows without a column."""
    word: NDArray[np.int64]
    """(n,): for each column the number of the word in which its bit is."""
    bit: NDArray[np.int64]
    """(n,): for each column the word with its bit alone."""
    first: NDArray[np.int64]
    """(LISTS,): the first place of each list of entries below the threshold, -1 if it is empty."""
    after: NDArray[np.int64]
    """(n * n,), by place: the next place of the same list, -1 after the last."""
    state: NDArray[np.int64]
    """(2,): the sum that each line of `remaining` has, and the threshold."""


def set_up(matrix: NDArray[np.int64]) -> PeelingWorkspace:
    """Make the arrays with which permutations are taken off a matrix, at their beginning.

    All rows and columns (lines) of the matrix have the same sum above 0. Only entries of at least
    a threshold may be used; their columns are kept as bits of 64-bit words, for each row. Smaller
    entries wait in lists until the threshold falls. At first the threshold is above all entries:
    no entry may be used, and all of them wait in the first list. Each array is described at
    `PeelingWorkspace`.
    """
    n = len(matrix)

    # Column c is bit c % 64 of word c // 64. `every` has the words in which all columns are set.
    columns = np.arange(n)
    bit = np.left_shift(np.int64(1), columns % WORD)
    every = np.add.reduceat(bit, np.arange(0, n, WORD))
    places = np.flatnonzero(matrix)

    # The first list is a chain through the places (row * n + column) of all entries above 0:
    # `first` has the first place of each list, `after` the next place of each place, -1 at the
    # end. The other lists are empty.
    first = np.full(LISTS, -1, dtype=np.int64)
    after = np.zeros(matrix.size, dtype=np.int64)
    first[0] = places[0]
    after[places] = np.append(places[1:], -1)

    # No row has a column yet, so that all columns are idle. `fresh`, `saved`, `reached`, `parent`,
    # `queue` and `waiting` belong to searches, each of which sets them anew. `state` has the sum
    # of a line, sum + 0, and the threshold, sum + 1, which is more than any entry.
    zeros = np.zeros(n, dtype=np.int64)
    nobody = zeros - 1
    return PeelingWorkspace(
        remaining=np.array(matrix, dtype=np.int64, order="C").ravel(),
        graph=np.zeros((n, len(every)), dtype=np.int64),
        column_of=nobody.copy(),
        row_of=nobody.copy(),
        idle=every.copy(),
        fresh=every.copy(),
        saved=every.copy(),
        every=every,
        reached=np.zeros(n, dtype=np.bool_),
        parent=zeros.copy(),
        queue=zeros.copy(),
        waiting=zeros.copy(),
        word=columns // WORD,
        bit=bit,
        first=first,
        after=after,
        state=matrix[0].sum() + np.arange(2),
    )


@inner_kernel
def _list_of(value, threshold):
    """Tell in which list an entry waits, by the highest bit in which it and the threshold differ.

    For bit k this is list k + 1, and list 0 if they do not differ. With the threshold 12 (0b1100),
    9 (0b1001) differs first in bit 2, so its list is 3.
    """
    differing = value ^ threshold
    # The highest bit with a 0 behind it: as a float it does not round up to the next power of two.
    alone = differing & ~(differing >> 1)
    return max(0, number_of_bit(alone) + 1)


@inner_kernel
def wait(space, place, value):
    """Put an entry below the threshold into its list, as the first one there."""
    number = _list_of(value, space.state[THRESHOLD])
    space.after[place] = space.first[number]
    space.first[number] = place


@inner_kernel
def lower(space, threshold):
    """Lower the threshold: the graph gets the entries of at least that.

    Changes ``space.graph``, the lists and ``space.state[THRESHOLD]``. Entries below the threshold
    wait in lists. An entry is the larger, the lower the highest bit in which it differs from the
    threshold, and this bit tells its list. Entries of the first lists are therefore larger than
    those of the next, and only the last list that is reached holds some on both sides of the new
    threshold: a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan 1990).
    """
    remaining = space.remaining
    first = space.first
    after = space.after
    n = len(space.word)

    # Lists up to that of the new threshold are emptied; entries of later ones are all smaller.
    last = _list_of(threshold, space.state[THRESHOLD])
    space.state[THRESHOLD] = threshold
    for number in range(last + 1):
        place = first[number]
        first[number] = -1
        while place >= 0:
            following = after[place]
            # An entry that is still too small joins its list by the new threshold; the next one of
            # the chain was read before, since `after` changes.
            if remaining[place] < threshold:
                wait(space, place, remaining[place])
            else:
                row = place // n
                column = place - row * n
                space.graph[row, space.word[column]] |= space.bit[column]
            place = following
