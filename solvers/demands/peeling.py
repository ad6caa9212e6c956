"""Kernels that peel permutations off a matrix of whole numbers whose lines all have one sum.

The entries that may be used form a graph, a set of bits for each row, so that a search passes over
dozens of columns in one step. Matchings are kept from one permutation to the next: only rows whose
entry is used up look for another column.

Kernels work in a `PeelingWorkspace`, `space`. Its matching is ``space.column_of[row]`` and
``space.row_of[column]``, -1 for none; ``space.remaining[place]`` is what is left of an entry, at
the place row * n + column. Sets of columns are words of 64 bits: ``space.idle``, ``space.fresh``,
``space.every`` with all columns, and ``space.graph[row]`` with those whose entries may be used.
Column c is bit c % 64 of word c // 64, which are ``space.bit[c]`` and ``space.word[c]``. A row
*waits* without a column, and an *idle* column has no row. Only entries of at least the *threshold*
may be used; smaller ones wait in *lists*, the larger ones in earlier lists. A row is *reached* if
an alternating path leads to it from a waiting row; a column is *fresh* if no search has come to
it. The *bottleneck* of a matching is its smallest entry.

`peel_permutations` takes one permutation after the other off the matrix in `space`, until line
sums are down to `stop` or the arrays are full. It writes ``permutations[term, row]``, a column,
and ``weights[term]``, and returns the number of terms, or -1 if there is no further permutation of
entries above 0. The next call goes on with what is left.
"""

from __future__ import annotations

import numpy as np

from optmatch.solvers.demands.workspace import LINE_SUM, LISTS, THRESHOLD, WORD, lower, wait
from optmatch.solvers.kernels.arrays import copy_into, largest_of, number_of_bit
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

FIRST, BOTTLENECK, HALVING = range(3)
"""Rules of `peel_permutations`."""


@inner_kernel
def _lowest(bits):
    """Return the lowest bit that is 1, as a word of its own: 0b0100 of 0b1100.

    NumPy's negative of the sign bit alone is no error in plain Python.
    """
    return bits & np.negative(bits)


@inner_kernel
def _augment(space, row, column):
    """Exchange columns along an augmenting path, which matches one row more.

    The path ends in `row` and the idle `column`. It goes back by ``space.parent`` to the waiting
    row that the search began at. Afterwards this row has a column, and all rows on the path still
    have one: each takes the column by which the next row was reached.
    """
    space.idle[space.word[column]] ^= space.bit[column]
    while True:
        before = space.column_of[row]
        space.column_of[row] = column
        space.row_of[column] = row

        # Only the row that the search began at had no column.
        if before < 0:
            return
        column = before
        row = space.parent[column]


@inner_kernel
def _search_path(space, head):
    """Search breadth-first for an augmenting path from the row ``queue[head]``.

    Removes the columns that it reaches from ``space.fresh``, and writes ``space.parent[column]``,
    the row by which a column was reached. Returns -1 if the row has a column now, else the end of
    the queue, behind the rows that were reached. An alternating path goes from the waiting row to
    a column of its set in the graph, to the row that has this column, and on; it ends at an idle
    column. At the first idle column the matching is augmented: the waiting row gets a column, and
    all rows on the path exchange theirs.
    """
    graph = space.graph
    idle = space.idle
    unseen = space.fresh
    queue = space.queue
    n_words = len(idle)
    end = head + 1
    while head < end:
        row = queue[head]
        head += 1

        # An idle column ends the search.
        for w in range(n_words):
            idle_columns = graph[row, w] & idle[w]
            if idle_columns:
                _augment(space, row, WORD * w + number_of_bit(_lowest(idle_columns)))
                return -1

        # Otherwise it goes on at the rows that have the columns of this row.
        for w in range(n_words):
            columns = graph[row, w] & unseen[w]
            unseen[w] ^= columns
            while columns:
                lowest = _lowest(columns)
                columns ^= lowest
                column = WORD * w + number_of_bit(lowest)
                space.parent[column] = row
                queue[end] = space.row_of[column]
                end += 1
    return end


@inner_kernel
def _match_by_paths(space, size):
    """Give a column to as many waiting rows as possible, while other rows keep some column.

    Changes the matching, ``space.column_of`` and ``space.row_of``; the rows that wait are
    ``space.waiting[:size]``, and afterwards those that wait still, whose number is returned. For
    each waiting row an alternating path to an idle column is searched: the row takes a column of
    another row, that row takes a column of a third one, and so on (Hungarian method). Where a
    search fails, all that it reached is a dead end for those that follow, and they do not look
    there again. `_let_in_next` reads what failed searches leave: ``space.reached[row]``, and in
    ``space.fresh`` the columns that none came to.
    """
    if size == 0:
        return 0
    unseen = space.fresh
    unseen_before = space.saved
    queue = space.queue
    waiting = space.waiting
    copy_into(unseen, space.every)
    space.reached[:] = False

    # Searches share one queue: rows of failed ones stay in it, as they are reached for good. The
    # columns that no search has reached are the bits of `unseen`, which a search clears.
    n_waiting = 0
    end = 0
    for k in range(size):
        row = waiting[k]
        if space.column_of[row] >= 0:
            continue
        copy_into(unseen_before, unseen)
        queue[end] = row
        new_end = _search_path(space, end)

        # The row has a column now (-1): the columns that were seen may serve the next search. Else
        # `new_end` is the end of the queue. Its dead ends stay closed: what they reach has no idle
        # column, and no later path changes that.
        if new_end < 0:
            copy_into(unseen, unseen_before)
            continue
        for place in range(end, new_end):
            space.reached[queue[place]] = True
        end = new_end
        waiting[n_waiting] = row
        n_waiting += 1
    return n_waiting


@inner_kernel
def _take_idle(space, size):
    """Give each row without a column a free one in which its entry is smallest, row by row.

    Changes the matching and ``space.idle``. The rows without a column are
    ``space.waiting[:size]``; those that wait still are the first ones there afterwards, and their
    number is returned. No row that has a column is changed.
    """
    idle = space.idle
    waiting = space.waiting
    n = len(space.word)
    threshold = space.state[THRESHOLD]
    larger_than_all = space.state[LINE_SUM] + 1
    n_waiting = 0
    for k in range(size):
        row = waiting[k]

        # The idle column in which the row has its smallest entry of the graph.
        best_column = -1
        smallest = larger_than_all
        for w in range(len(idle)):
            columns = space.graph[row, w] & idle[w]
            # No entry of the graph is below the threshold: at that the search is over.
            while columns and smallest > threshold:
                lowest = _lowest(columns)
                columns ^= lowest
                column = WORD * w + number_of_bit(lowest)
                value = space.remaining[row * n + column]
                if value < smallest:
                    best_column = column
                    smallest = value

        # Without a column the row waits on; else it is matched.
        if best_column < 0:
            waiting[n_waiting] = row
            n_waiting += 1
        else:
            idle[space.word[best_column]] ^= space.bit[best_column]
            space.column_of[row] = best_column
            space.row_of[best_column] = row
    return n_waiting


@inner_kernel
def _unmatch(space, row):
    """Take a row and its column apart: the row waits for another one, and the column is idle."""
    column = space.column_of[row]
    space.idle[space.word[column]] |= space.bit[column]
    space.row_of[column] = -1
    space.column_of[row] = -1


@inner_kernel
def _let_in_next(space):
    """Let in the largest smaller entry with which a search that has failed can go on.

    Lowers ``space.state[THRESHOLD]``, and the graph gets the entries from there on; False if no
    such entry is left. Only entries of at least a threshold may be used; smaller ones wait in
    lists, and those of earlier lists are larger. A search for a matching has failed: it has come
    to some rows (reached), but not to some columns (fresh). Only an entry of a reached row in a
    fresh column would lead it on. The threshold falls to the largest such entry.
    """
    remaining = space.remaining
    unseen = space.fresh
    n = len(space.word)

    # Each list is a chain of places (row * n + column), which ends with -1. The first list with
    # such an entry has the largest one, as all entries of later lists are smaller.
    for number in range(LISTS):
        place = space.first[number]
        largest = 0
        while place >= 0:
            if remaining[place] > largest:
                row = place // n
                column = place - row * n
                if space.reached[row] and unseen[space.word[column]] & space.bit[column]:
                    largest = remaining[place]
            place = space.after[place]

        # With this entry the search can go on.
        if largest:
            lower(space, largest)
            return True
    return False


@inner_kernel
def _let_in_per_line(space):
    """Let in smaller entries of a matrix until each row and column has one that may be used.

    Lowers ``space.state[THRESHOLD]``; False if some row or column is all 0. Entries of at least a
    threshold may be used; the threshold falls here as far as needed. It is a quick first step of a
    search for a perfect matching: none exists while a row or a column has no usable entry, and it
    takes no search of paths to see that.

    For example, a column whose largest entry is 3 has no usable one at the threshold 8, and the
    threshold falls to 3.
    """
    graph = space.graph
    bare_columns = space.fresh
    remaining = space.remaining
    n = len(space.word)
    threshold = space.state[THRESHOLD]

    # Rows without a usable entry need their largest one. On the way each row strikes its columns
    # out of the set of bare ones.
    copy_into(bare_columns, space.every)
    for row in range(n):
        columns = 0
        for w in range(len(bare_columns)):
            columns |= graph[row, w]
            bare_columns[w] &= ~graph[row, w]
        if columns == 0:
            # Entries of a row are next to each other: places n * row to n * row + n - 1.
            threshold = min(threshold, largest_of(remaining[row * n :], n))

    # Columns that are still bare need their largest entry, too. Each turn takes one bit, a column,
    # out of a word.
    for w in range(len(bare_columns)):
        while bare_columns[w]:
            lowest = _lowest(bare_columns[w])
            bare_columns[w] ^= lowest

            # Entries of a column are n places apart.
            column = WORD * w + number_of_bit(lowest)
            threshold = min(threshold, largest_of(remaining[column::n], n))
    if threshold and threshold < space.state[THRESHOLD]:
        lower(space, threshold)
    return threshold > 0


@inner_kernel
def _list_waiting(space):
    """List the rows without a column in ``space.waiting``, and return how many there are."""
    n_waiting = 0
    for row in range(len(space.word)):
        if space.column_of[row] < 0:
            space.waiting[n_waiting] = row
            n_waiting += 1
    return n_waiting


@inner_kernel
def _match_bottleneck(space):
    """Complete the matching such that its smallest entry is as large as can be.

    Changes the matching and the threshold, which is that entry afterwards; False if no perfect
    matching is left. If all rows find a column at the present threshold, that is the matching.
    Otherwise the threshold falls, entry by entry, until they do; rows whose entries are above it
    are then matched anew with smaller entries, as large ones are of more use later on.
    """
    waiting = space.waiting
    n = len(space.word)
    threshold_before = space.state[THRESHOLD]

    # Entries are let in until each line has one, and then until all rows find a column.
    n_waiting = _list_waiting(space)
    if not _let_in_per_line(space):
        return False
    n_waiting = _match_by_paths(space, _take_idle(space, n_waiting))
    while n_waiting > 0:
        if not _let_in_next(space):
            return False
        n_waiting = _match_by_paths(space, n_waiting)
    threshold = space.state[THRESHOLD]
    if threshold == threshold_before:
        return True

    # Among the matchings with this minimum, one of small entries leaves the fewest behind. The
    # first one has large entries, so all rows with entries above the minimum choose anew: each
    # takes its smallest free entry, and those that find none search for paths.
    for row in range(n):
        if space.remaining[row * n + space.column_of[row]] > threshold:
            _unmatch(space, row)
            waiting[n_waiting] = row
            n_waiting += 1
    _match_by_paths(space, _take_idle(space, n_waiting))
    return True


@inner_kernel
def _subtract_term(space, permutation):
    """Take the present matching off the matrix as often as its smallest entry, the weight.

    Writes ``permutation[row]``, a column, and changes ``space.remaining`` and the sum of lines;
    returns the weight. An entry that is then below the threshold leaves the graph: its row and its
    column are free again, and what is left of it joins the lists of entries that wait for a lower
    threshold.
    """
    remaining = space.remaining
    state = space.state
    n = len(space.word)
    weight = state[LINE_SUM]
    for row in range(n):
        weight = min(weight, remaining[row * n + space.column_of[row]])
    state[LINE_SUM] -= weight

    # Rows keep their columns as long as their entries are at least the threshold.
    for row in range(n):
        column = space.column_of[row]
        permutation[row] = column
        place = row * n + column
        value = remaining[place] - weight
        remaining[place] = value
        if value < state[THRESHOLD]:
            space.graph[row, space.word[column]] ^= space.bit[column]
            _unmatch(space, row)
            if value > 0:
                wait(space, place, value)
    return weight


@inner_kernel
def _match_halving(space):
    """Complete the matching, while the threshold falls to the next power of two where it has to.

    Changes the matching and the threshold; False if no perfect matching is left, which is so only
    below a threshold of 1.
    """
    # Rows whose entry fell below the threshold look for another column: first for the smallest
    # free entry, then by alternating paths. While some wait, smaller entries are let in.
    n_waiting = _match_by_paths(space, _take_idle(space, _list_waiting(space)))
    while n_waiting > 0 and space.state[THRESHOLD] > 1:
        power = 1
        while 2 * power < space.state[THRESHOLD]:
            power *= 2
        lower(space, power)
        n_waiting = _match_by_paths(space, n_waiting)
    return n_waiting == 0


@kernel
def peel_permutations(space, rule, stop, permutations, weights):
    """Write a matrix as a sum of weighted permutations, one after the other, by a rule.

    All rows and columns of the matrix have the same sum. Each permutation is taken off the matrix
    as often as its smallest entry, its weight. For example, ((5, 2), (2, 5)) gives the identity
    with weight 5 and then the exchange with weight 2. Writes ``permutations[term, row]``, a
    column, and ``weights[term]``, until both are full or line sums are down to `stop`, and returns
    how many terms there are; -1 if no permutation has entries above 0 alone. The rules say which
    one comes next:

    - FIRST: any one of entries above 0. Rows whose entry is used up look for another column by
      augmenting paths, and all others keep theirs.
    - BOTTLENECK: one whose smallest entry is as large as can be.
    - HALVING: any one of entries of at least a threshold. If there is none, the threshold falls to
      the next smaller power of two (the steps of Solstice, BigSlice).
    """
    if rule == FIRST:
        lower(space, 1)  # all entries above 0 are in the graph
    for term in range(len(weights)):
        if space.state[LINE_SUM] <= stop:
            return term

        # Rows whose entry has left the graph get another column, as the rule says.
        if rule == FIRST:
            is_matched = _match_by_paths(space, _list_waiting(space)) == 0
        elif rule == BOTTLENECK:
            is_matched = _match_bottleneck(space)
        else:
            is_matched = _match_halving(space)
        if not is_matched:
            return -1
        weights[term] = _subtract_term(space, permutations[term])
    return len(weights)
