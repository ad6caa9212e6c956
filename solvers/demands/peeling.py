"""Kernels that peel permutations off a matrix of whole numbers whose lines all have one sum.

The rest of an entry is in `PeelingWorkspace.left`. The entries that may be used form a graph,
a set of bits for each row, so that a search passes over dozens of columns in one step. Matchings
are kept from one permutation to the next: only rows whose entry is used up look for another
column.

The words *place*, *idle*, *waiting*, *threshold* and *list* are those of `workspace`. A row is
*reached* if an alternating path leads to it from a waiting row; a column is *fresh* if no search
has come to it. The *bottleneck* of a matching is its smallest entry.
"""

from __future__ import annotations

import numpy as np

from optmatch.solvers.demands.workspace import LINE_SUM, LISTS, THRESHOLD, WORD, lower, wait
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_TURN = 0x022FDD63CC95386D  # a de Bruijn sequence: each six bits in a row occur once
_PLACE = np.zeros(WORD, dtype=np.int64)
for _k in range(WORD):
    _PLACE[(_TURN << _k >> 58) & 63] = _k


@inner_kernel
def _place(bit):
    """Tell which bit of a word is set, by a product (Leiserson, Prokop and Randall 1998)."""
    return _PLACE[(np.multiply(bit, _TURN) >> 58) & 63]


@inner_kernel
def _lowest(bits):
    """Return the lowest bit; NumPy's negative of the sign alone is no error in plain Python."""
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
def _search(space, head):
    """Search breadth-first for an augmenting path from the row ``queue[head]``.

    Removes the columns that it reaches from ``space.fresh``, and writes ``space.parent[column]``,
    the row by which a column was reached. Returns -1 if the row has a column now, else the end of
    the queue. A row waits if it is matched with no column, and a column is idle if no row has it.
    The graph has, for each row, the set of columns whose entries may be used, as bits of words. An
    alternating path goes from the waiting row to a column in its set, to the row that has this
    column, and on; it ends at an idle column.

    At the first idle column the matching is augmented: the waiting row gets a column, and all
    rows on the path exchange theirs. Columns are bits: column c is bit c % 64 of word c // 64.
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
                _augment(space, row, WORD * w + _place(_lowest(idle_columns)))
                return -1

        # Otherwise it goes on at the rows that have the columns of this row.
        for w in range(n_words):
            columns = graph[row, w] & unseen[w]
            unseen[w] ^= columns
            while columns:
                lowest = _lowest(columns)
                columns ^= lowest
                column = WORD * w + _place(lowest)
                space.parent[column] = row
                queue[end] = space.row_of[column]
                end += 1
    return end


@inner_kernel
def _match(space, size):
    """Give a column to as many waiting rows as possible, while other rows keep some column.

    Changes the matching, ``space.column_of`` and ``space.row_of``; the rows that wait are
    ``space.waiting[:size]``, and afterwards those that wait still, whose number is returned. A row
    waits if it has no column, and a column is idle if no row has it. The graph says which columns
    each row may have. For each waiting row an alternating path to an idle column is searched: the
    row takes a column of another row, that row takes a column of a third one, and so on (Hungarian
    method). Where a search fails, all that it reached is a dead end for those that follow, and
    they do not look there again.
    """
    if size == 0:
        return 0
    unseen = space.fresh
    unseen_before = space.saved
    queue = space.queue
    waiting = space.waiting
    n_words = len(unseen)
    for w in range(n_words):
        unseen[w] = space.every[w]
    space.reached[:] = False

    # Searches share one queue: rows of failed ones stay in it, as they are reached for good.
    n_waiting = 0
    end = 0
    for k in range(size):
        row = waiting[k]
        if space.column_of[row] >= 0:
            continue
        for w in range(n_words):
            unseen_before[w] = unseen[w]
        queue[end] = row
        new_end = _search(space, end)

        # After an augmentation the columns that were seen may serve the next search. Dead ends
        # stay closed: what they reach has no idle column, and no later path changes that.
        if new_end < 0:
            for w in range(n_words):
                unseen[w] = unseen_before[w]
            continue
        for place in range(end, new_end):
            space.reached[queue[place]] = True
        end = new_end
        waiting[n_waiting] = row
        n_waiting += 1
    return n_waiting


@inner_kernel
def _seize(space, size):
    """Give each row without a column a free one in which its entry is smallest, row by row.

    Changes the matching and ``space.idle``; the rows that wait still are the first ones in
    ``space.waiting``, and their number is returned. A row waits if it has no column, and a column
    is idle if no row has it. Only entries of at least the threshold may be used; these are the
    graph. No row that has a column is changed.
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
                column = WORD * w + _place(lowest)
                value = space.left[row * n + column]
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
def _release(space, row):
    """Take a row and its column apart: the row waits for another one, and the column is idle."""
    column = space.column_of[row]
    space.idle[space.word[column]] |= space.bit[column]
    space.row_of[column] = -1
    space.column_of[row] = -1


@inner_kernel
def _descend(space):
    """Let in the largest smaller entry with which a search that has failed can go on.

    Lowers ``space.state[THRESHOLD]``, and the graph gets the entries from there on; False if no
    such entry is left. Only entries of at least a threshold may be used; smaller ones wait in
    lists, and those of earlier lists are larger. A search for a matching has failed: it has come
    to some rows (reached), but not to some columns (fresh). Only an entry of a reached row in a
    fresh column would lead it on. The threshold falls to the largest such entry.
    """
    left = space.left
    unseen = space.fresh
    n = len(space.word)

    # Each list is a chain of places (row * n + column), which ends with -1. The first list with
    # such an entry has the largest one, as all entries of later lists are smaller.
    for number in range(LISTS):
        place = space.first[number]
        largest = 0
        while place >= 0:
            if left[place] > largest:
                row = place // n
                column = place - row * n
                if space.reached[row] and unseen[space.word[column]] & space.bit[column]:
                    largest = left[place]
            place = space.after[place]

        # The first list with such an entry has the largest of all.
        if largest:
            lower(space, largest)
            return True
    return False


@inner_kernel
def _touch_all(space):
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
    left = space.left
    n = len(space.word)
    threshold = space.state[THRESHOLD]

    # Rows without a usable entry need their largest one. On the way each row strikes its columns
    # out of the set of bare ones.
    for w in range(len(bare_columns)):
        bare_columns[w] = space.every[w]
    for row in range(n):
        columns = 0
        for w in range(len(bare_columns)):
            columns |= graph[row, w]
            bare_columns[w] &= ~graph[row, w]
        if columns == 0:
            largest = 0

            # Entries of a row are next to each other: places n * row to n * row + n - 1.
            for place in range(row * n, row * n + n):
                largest = max(largest, left[place])
            threshold = min(threshold, largest)

    # Columns that are still bare need their largest entry, too. Each turn takes one bit, a column,
    # out of a word.
    for w in range(len(bare_columns)):
        while bare_columns[w]:
            lowest = _lowest(bare_columns[w])
            bare_columns[w] ^= lowest
            largest = 0

            # Entries of a column are n places apart.
            for place in range(WORD * w + _place(lowest), n * n, n):
                largest = max(largest, left[place])
            threshold = min(threshold, largest)
    if threshold and threshold < space.state[THRESHOLD]:
        lower(space, threshold)
    return threshold > 0


@inner_kernel
def _find_bottleneck(space, size):
    """Give each row a column such that the smallest entry used is as large as possible.

    A bottleneck matching: the threshold falls, entry by entry, until all rows find a column, and
    is then the smallest entry used. ``space.waiting[:size]`` are the rows without a column. False
    if there is no perfect matching of entries above 0.
    """
    if not _touch_all(space):
        return False

    # Both steps say how many rows wait still; these are the first ones in `waiting`.
    size = _seize(space, size)
    while True:
        size = _match(space, size)
        if size == 0:
            return True
        if not _descend(space):
            return False


@inner_kernel
def _settle(space):
    """Complete the matching of rows and columns, its smallest entry as large as can be.

    Returns this entry, which is the new threshold; 0 if there is no perfect matching. Only entries
    of at least a threshold may be used, which is the smallest entry of the matching before. If all
    rows find a column at this threshold, that is the matching. Otherwise the threshold falls to
    the largest one with a perfect matching. Rows whose entries are above it are then matched anew
    with smaller entries, as large ones are of more use later on.
    """
    state = space.state
    waiting = space.waiting
    n = len(space.word)
    n_waiting = 0
    for row in range(n):
        if space.column_of[row] < 0:
            waiting[n_waiting] = row
            n_waiting += 1
    threshold_before = state[THRESHOLD]
    if n_waiting and not _find_bottleneck(space, n_waiting):
        state[THRESHOLD] = 0

    # At the same threshold rows keep their columns; 0 means that there is no matching.
    weight = state[THRESHOLD]
    if weight in (0, threshold_before):
        return weight

    # Among the matchings with this minimum, one of small entries leaves the fewest behind. The
    # first one has large entries, so all its circuits above the minimum are chosen anew.
    n_waiting = 0
    for row in range(n):
        if space.left[row * n + space.column_of[row]] > weight:
            _release(space, row)
            waiting[n_waiting] = row
            n_waiting += 1

    # Each row takes its smallest free entry; rows that find none (`_seize` says how many) search
    # for paths. All get a column, as there is a matching.
    _match(space, _seize(space, n_waiting))
    return weight


@kernel
def peel_bottleneck(space, stop, permutations, weights):
    """Write a matrix as a sum of weighted permutations, those of the largest weights first.

    All rows and columns of the matrix have the same sum. In each step a permutation is chosen
    whose smallest entry is as large as can be (a bottleneck matching). It is taken off the matrix
    with this entry as its weight, until the sums of rows and columns are down to `stop`. For
    example, ((5, 2), (2, 5)) gives the identity with weight 5 and then the exchange with weight 2.

    Rows keep their columns from one permutation to the next, as long as their entries are at least
    the *threshold*, the weight of the permutation before. Sets of columns are bits of 64-bit
    words: column c is bit c % 64 of word c // 64.

    Writes ``permutations[term, row]``, a column, and ``weights[term]``, and returns the number of
    terms; -1 if there is no permutation of entries above 0. The matrix in `space` is left as it is
    after the last term.
    """
    left = space.left
    state = space.state
    n = len(space.word)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term

        # The next permutation; its weight is its smallest entry, which is the new threshold.
        weight = _settle(space)
        if weight == 0:
            return -1
        state[LINE_SUM] -= weight
        weights[term] = weight
        for row in range(n):
            column = space.column_of[row]
            permutations[term, row] = column
            place = row * n + column
            value = left[place] - weight
            left[place] = value

            # An entry that is now below the threshold leaves the graph, and its row and column are
            # free again. If anything is left of it, it joins the lists of entries that wait for a
            # lower threshold.
            if value < weight:
                space.graph[row, space.word[column]] ^= space.bit[column]
                _release(space, row)
                if value:
                    wait(space, place, value)
    return len(weights)


@kernel
def peel_first(space, stop, permutations, weights):
    """Write a matrix as a sum of weighted permutations, each the first one that comes to hand.

    All rows and columns of the matrix have the same sum. In each step a permutation of entries
    above 0 is taken off the matrix, with its smallest entry as the weight. Rows whose entry is
    then 0 look for another column by augmenting paths; all others keep theirs. For example,
    ((2, 5), (5, 2)) gives the identity with weight 2 and then the exchange with weight 5.

    Sets of columns are bits of 64-bit words: column c is bit c % 64 of word c // 64.

    As in `peel_bottleneck`, it writes ``permutations[term, row]`` and ``weights[term]``, returns
    the number of terms or -1, and takes the terms off the matrix in `space`.
    """
    left = space.left
    state = space.state
    place_of_row = space.waiting
    n = len(space.word)

    # With a threshold of 1 all entries above 0 are in the graph.
    lower(space, 1)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term

        # Each row without a column gets one by an augmenting path, which keeps all others matched.
        # The search starts at the row, the only one in the queue, with all columns unseen. It
        # returns -1 if it has found a path, and otherwise how many rows it has reached in vain:
        # then there is no perfect matching.
        for row in range(n):
            if space.column_of[row] < 0:
                space.queue[0] = row
                for w in range(len(space.fresh)):
                    space.fresh[w] = space.every[w]
                if _search(space, 0) >= 0:
                    return -1

        # The weight of the term is the smallest entry of the permutation.
        weight = state[LINE_SUM]
        for row in range(n):
            place = row * n + space.column_of[row]
            place_of_row[row] = place
            weight = min(weight, left[place])
        state[LINE_SUM] -= weight
        weights[term] = weight

        # Take the term off. Rows whose entry is used up are free again, and so are their columns.
        for row in range(n):
            place = place_of_row[row]
            column = place - row * n
            permutations[term, row] = column
            left[place] -= weight
            if left[place] == 0:
                space.graph[row, space.word[column]] ^= space.bit[column]
                _release(space, row)
    return len(weights)


@inner_kernel
def _power_of_two_below(number):
    """Return the largest power of two that is less than a number; the number is above 1."""
    power = 1
    while 2 * power < number:
        power *= 2
    return power


@kernel
def peel_halving(space, stop, permutations, weights):
    """Write a matrix as a sum of weighted permutations of large entries, then of smaller ones.

    All rows and columns of the matrix have the same sum. In each step any permutation whose
    entries are at least a threshold is taken off the matrix, with its smallest entry as the
    weight. If there is none, the threshold falls to a smaller power of two (the steps of Solstice,
    BigSlice). With a threshold of 1 there always is one. Rows keep their columns from one
    permutation to the next, as long as their entries are at least the threshold.

    Sets of columns are bits of 64-bit words: column c is bit c % 64 of word c // 64.

    As in `peel_bottleneck`, it writes ``permutations[term, row]`` and ``weights[term]``, returns
    the number of terms or -1, and takes the terms off the matrix in `space`.
    """
    left = space.left
    state = space.state
    waiting = space.waiting
    n = len(space.word)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term

        # Rows whose entry fell below the threshold look for another column: first for the smallest
        # free entry, then by alternating paths. Both steps say how many rows wait still, which are
        # the first ones in `waiting`.
        n_waiting = 0
        for row in range(n):
            if space.column_of[row] < 0:
                waiting[n_waiting] = row
                n_waiting += 1
        n_waiting = _match(space, _seize(space, n_waiting))

        # While some wait, smaller entries are let in.
        while n_waiting > 0:
            if state[THRESHOLD] <= 1:
                return -1
            lower(space, _power_of_two_below(state[THRESHOLD]))
            n_waiting = _match(space, n_waiting)

        # The weight of the term is the smallest entry of the permutation.
        weight = state[LINE_SUM]
        for row in range(n):
            weight = min(weight, left[row * n + space.column_of[row]])
        state[LINE_SUM] -= weight
        weights[term] = weight

        # Take the term off. An entry that is now below the threshold leaves the graph, and what is
        # left of it waits for a lower threshold.
        for row in range(n):
            column = space.column_of[row]
            permutations[term, row] = column
            place = row * n + column
            left[place] -= weight
            if left[place] < state[THRESHOLD]:
                space.graph[row, space.word[column]] ^= space.bit[column]
                _release(space, row)
                if left[place] > 0:
                    wait(space, place, left[place])
    return len(weights)
