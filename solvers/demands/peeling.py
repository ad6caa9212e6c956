"""Kernels that peel permutations off a matrix of whole numbers whose lines all have one sum.

The rest of an entry is in `PeelingWorkspace.left`. The entries that may be used form a graph,
a set of bits for each row, so that a search passes over dozens of columns in one step. Matchings
are kept from one permutation to the next: only rows whose entry is used up look for another
column.
"""

from __future__ import annotations

import numpy as np

from optmatch.solvers.demands.workspace import LINE_SUM, LISTS, THRESHOLD, WORD, lower, wait
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_TURN = 0x022FDD63CC95386D  # six bits of it are a number that no other six of them are
_PLACE = np.zeros(WORD, dtype=np.int64)
for _k in range(WORD):
    _PLACE[(_TURN << _k >> 58) & 63] = _k


@inner_kernel
def _place(bit):
    """Tell which bit is set, by a product (Leiserson, Prokop and Randall 1998)."""
    return _PLACE[(np.multiply(bit, _TURN) >> 58) & 63]


@inner_kernel
def _lowest(bits):
    """Return the lowest bit; NumPy's negative of the sign alone is no error in plain Python."""
    return bits & np.negative(bits)


@inner_kernel
def _augment(space, row, column):
    """Exchange columns along the path that ends in `row` and the idle `column`.

    The path goes back by ``space.parent`` to the waiting row that the search began at; then this
    row has a column, and all rows on the path still have one.
    """
    space.idle[space.word[column]] ^= space.bit[column]
    while True:
        before = space.column_of[row]
        space.column_of[row] = column
        space.row_of[column] = row
        if before < 0:
            return
        column = before
        row = space.parent[column]


@inner_kernel
def _search(space, head):
    """Search on from the last row of a queue, in ``queue[head]``; augment at an idle column.

    Returns the new end of the queue, or -1 after an augmentation.
    """
    graph, idle, fresh, queue = space.graph, space.idle, space.fresh, space.queue
    parent, row_of = space.parent, space.row_of
    words = len(idle)
    end = head + 1
    while head < end:
        row = queue[head]
        head += 1
        for w in range(words):
            found = graph[row, w] & idle[w]
            if found:
                _augment(space, row, WORD * w + _place(_lowest(found)))
                return -1
        for w in range(words):
            found = graph[row, w] & fresh[w]
            fresh[w] ^= found
            while found:
                lowest = _lowest(found)
                found ^= lowest
                column = WORD * w + _place(lowest)
                parent[column] = row
                queue[end] = row_of[column]
                end += 1
    return end


@inner_kernel
def _match(space, size):
    """Match as many of the first `size` waiting rows as the graph allows.

    Returns how many rows wait still. The rows that are reached from waiting rows are then marked,
    and the columns that are not reached are fresh.
    """
    if size == 0:
        return 0
    fresh, saved, queue, waiting = space.fresh, space.saved, space.queue, space.waiting
    words = len(fresh)
    for w in range(words):
        fresh[w] = space.every[w]
    space.reached[:] = False
    kept = end = 0
    for k in range(size):
        row = waiting[k]
        if space.column_of[row] >= 0:
            continue
        for w in range(words):
            saved[w] = fresh[w]
        queue[end] = row
        stop = _search(space, end)
        if stop < 0:  # seen columns may serve the next search; dead ends stay closed
            for w in range(words):
                fresh[w] = saved[w]
            continue
        for place in range(end, stop):
            space.reached[queue[place]] = True
        end = stop
        waiting[kept] = row
        kept += 1
    return kept


@inner_kernel
def _seize(space, size):
    """Give each of the first `size` waiting rows an idle column, if any, of the smallest entry.

    Returns how many wait still.
    """
    graph, left, idle, waiting = space.graph, space.left, space.idle, space.waiting
    n = len(space.word)
    least_of_all = space.state[THRESHOLD]
    most = space.state[LINE_SUM] + 1
    kept = 0
    for k in range(size):
        row = waiting[k]
        best, least = -1, most
        for w in range(len(idle)):
            found = graph[row, w] & idle[w]
            while found and least > least_of_all:
                lowest = _lowest(found)
                found ^= lowest
                column = WORD * w + _place(lowest)
                value = left[row * n + column]
                if value < least:
                    best = column
                    least = value
        if best < 0:
            waiting[kept] = row
            kept += 1
        else:
            idle[space.word[best]] ^= space.bit[best]
            space.column_of[row] = best
            space.row_of[best] = row
    return kept


@inner_kernel
def _release(space, row):
    """Let a row wait and its column idle."""
    column = space.column_of[row]
    space.idle[space.word[column]] |= space.bit[column]
    space.row_of[column] = -1
    space.column_of[row] = -1


@inner_kernel
def _descend(space):
    """Lower the threshold to the largest entry from a row that is reached to a fresh column.

    Returns False if there is no such entry.
    """
    left, reached, fresh = space.left, space.reached, space.fresh
    word, bit = space.word, space.bit
    n = len(word)
    for number in range(LISTS):
        place, most = space.first[number], 0
        while place >= 0:
            if left[place] > most:
                row = place // n
                column = place - row * n
                if reached[row] and fresh[word[column]] & bit[column]:
                    most = left[place]
            place = space.after[place]
        if most:
            lower(space, most)
            return True
    return False


@inner_kernel
def _touch_all(space):
    """Lower the threshold until all rows and columns have an entry; False if one has none.

    Without that no matching is perfect, and it is found without a search. ``space.fresh`` is
    scratch: the columns without an entry in the graph.
    """
    graph, fresh, left = space.graph, space.fresh, space.left
    n = len(space.word)
    threshold = space.state[THRESHOLD]
    for w in range(len(fresh)):
        fresh[w] = space.every[w]
    for row in range(n):
        usable = 0
        for w in range(len(fresh)):
            usable |= graph[row, w]
            fresh[w] &= ~graph[row, w]
        if usable == 0:
            most = 0
            for place in range(row * n, row * n + n):
                most = max(most, left[place])
            threshold = min(threshold, most)
    for w in range(len(fresh)):
        while fresh[w]:
            lowest = _lowest(fresh[w])
            fresh[w] ^= lowest
            most = 0
            for place in range(WORD * w + _place(lowest), n * n, n):
                most = max(most, left[place])
            threshold = min(threshold, most)
    if threshold and threshold < space.state[THRESHOLD]:
        lower(space, threshold)
    return threshold > 0


@inner_kernel
def _find_bottleneck(space, size):
    """Match all `size` waiting rows at the largest threshold that allows it; False if none does.

    After a search, entries matter only if one leads from a row that waiting rows reach to a column
    that they do not. Without the last that did, no matching is perfect: their value is the largest
    minimum. There is no use in a search before each row and column has an entry.
    """
    if not _touch_all(space):
        return False
    size = _seize(space, size)
    while True:
        size = _match(space, size)
        if size == 0:
            return True
        if not _descend(space):
            return False


@inner_kernel
def _settle(space):
    """Find a bottleneck matching: all rows, with the smallest entry as large as can be.

    Rows that have a column keep it where the threshold stays. Where it falls, rows with entries
    above it are matched anew, with small entries if there are any.

    Returns the smallest entry, which then is the threshold; 0 if there is no perfect matching.
    """
    left, state, waiting = space.left, space.state, space.waiting
    n = len(space.word)
    size = 0
    for row in range(n):
        if space.column_of[row] < 0:
            waiting[size] = row
            size += 1
    before = state[THRESHOLD]
    if size and not _find_bottleneck(space, size):
        state[THRESHOLD] = 0
    weight = state[THRESHOLD]
    if weight in (0, before):
        return weight
    # Of the matchings with this minimum, one of small entries leaves the fewest behind. The first
    # one has large entries, so all its circuits above the minimum are chosen anew.
    size = 0
    for row in range(n):
        if left[row * n + space.column_of[row]] > weight:
            _release(space, row)
            waiting[size] = row
            size += 1
    _match(space, _seize(space, size))
    return weight


@kernel
def peel_bottleneck(space, stop, permutations, weights):
    """Peel permutations whose smallest entry is as large as can be, until lines sum to `stop`.

    A decomposition after Birkhoff and von Neumann with bottleneck matchings: each permutation is
    taken off as often as its smallest entry, the weight of this term.

    Parameters
    ----------
    space : PeelingWorkspace
        In and out: ``left``, what is left of the matrix; ``graph``, for each row the set of
        columns whose entry is at least the threshold, as bits; ``idle``, the set of columns
        without a row; the matching, ``column_of`` and ``row_of``; ``state``, the present sum of a
        line and the threshold. A next call goes on where this one ended.
    stop : int
        It ends when the sum of each line, in the matrix's unit (ticks), is no greater.
    permutations : int array, shape (terms, n)
        Out: the column of each row.
    weights : int array, shape (terms,)
        Out: the weight of each permutation, in the matrix's unit. Their number limits the terms.

    Returns
    -------
    int
        How many terms were written; -1 if no permutation is left, so line sums were not equal.
    """
    left, state, graph, idle = space.left, space.state, space.graph, space.idle
    column_of, row_of, word, bit = space.column_of, space.row_of, space.word, space.bit
    n = len(word)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term
        weight = _settle(space)
        if weight == 0:
            return -1
        state[LINE_SUM] -= weight
        weights[term] = weight
        for row in range(n):
            column = column_of[row]
            permutations[term, row] = column
            place = row * n + column
            value = left[place] - weight
            left[place] = value
            # The weight is the threshold: an entry that is now below it leaves the graph, and its
            # row and column are free again. If anything is left of it, it joins the lists of
            # entries that wait for a lower threshold.
            if value < weight:
                graph[row, word[column]] ^= bit[column]
                idle[word[column]] |= bit[column]
                row_of[column] = -1
                column_of[row] = -1
                if value:
                    wait(space, place, value)
    return len(weights)


@kernel
def peel_first(space, stop, permutations, weights):
    """Peel the permutation at hand, as often as its smallest entry allows.

    Rows whose entry was used up look for another column by augmenting paths; all others keep
    theirs. The threshold is 1, so that the graph has all entries.

    Parameters
    ----------
    space : PeelingWorkspace
        In and out; ``waiting`` is scratch: the place of each row's entry.
    stop : int
        It ends when the sum of each line, in the matrix's unit (ticks), is no greater.
    permutations : int array, shape (terms, n)
        Out: the column of each row.
    weights : int array, shape (terms,)
        Out: the weight of each permutation.

    Returns
    -------
    int
        How many terms were written; -1 if no permutation is left, so line sums were not equal.
    """
    left, state, held = space.left, space.state, space.waiting
    n = len(space.word)
    lower(space, 1)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term
        for row in range(n):
            if space.column_of[row] < 0:
                space.queue[0] = row
                for w in range(len(space.fresh)):
                    space.fresh[w] = space.every[w]
                if _search(space, 0) >= 0:
                    return -1
        weight = state[LINE_SUM]
        for row in range(n):
            place = row * n + space.column_of[row]
            held[row] = place
            weight = min(weight, left[place])
        state[LINE_SUM] -= weight
        weights[term] = weight
        for row in range(n):
            place = held[row]
            column = place - row * n
            permutations[term, row] = column
            left[place] -= weight
            if left[place] == 0:
                space.graph[row, space.word[column]] ^= space.bit[column]
                _release(space, row)
    return len(weights)
