"""The search behind `choosing`, compiled: down into the halves of a block and back up.

At each depth one block is open, with the directions of its loops as they are tried now. A half is
left at once if it cannot become cheap enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE
from optmatch.solvers.feedforward.looping import DEPTH, IN, LOWER, OUT, PLACE, SIZE, UPPER
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

EXACT = 64
"""In blocks of more lines each loop takes the direction that its own cells prefer."""

NUMBER, BOUND, BEST, OWN, REST, FLOOR, TURNS, TURN, HALF, FOUND = range(10)
"""Columns of frames: the block; the cost to be below; the best cost; that of the outer columns as
loops are turned now, the least of what is inside, the least of both; settings of the loops; the
present one; the half that is next; the cost of this setting so far."""


FORTH, BACK, ENTERED, LEFT, OUTSIDE, LOOP, SIDE, TURNED, KEPT = range(9)
"""Of `LoopSpace.lines`: the output of an input, -1 for none; the input of an output; which of its
two wires has light, at an input and at an output; by the line at an input the cost outside of its
block, its loop, and the half that it goes to if that is not turned; whether a loop is turned, now
and in the best setting."""


class LoopTask(NamedTuple):
    """The network, and the aim of a search."""

    blocks: NDArray[np.int64]  # (blocks, 7): columns as of `looping`, halves after their whole
    wide: bool  # whether the network is dilated: no two circuits share a cell
    worst: bool  # whether the largest cost of a circuit is minimised, not the sum
    visits: int  # about how many blocks to visit for each matching
    cell_cost: NDArray[np.int64]  # (cells, states, 2): for a circuit alone, or with another one
    least: NDArray[np.int64]  # (blocks,): the least cost of any route through a block


class LoopSpace(NamedTuple):
    """The arrays in which a search works, of few types, so that each kernel is compiled once."""

    lines: NDArray[np.int64]  # (9, depths, lines): see above; nine arrays take a third longer
    costs: NDArray[np.int64]  # (depths, loops, 2): of the cells of a loop, either way
    states: NDArray[np.int8]  # (depths, cells): in the best setting; last row: in this one
    frames: NDArray[np.int64]  # (depths, 10): the search of the block open at this depth
    tally: NDArray[np.int64]  # (2,): visits; whether anything was left out


def new_workspace(depths: int, lines: int, cells: int) -> LoopSpace:
    """Allocate the workspace for so many depths, lines and cells."""
    by_line = np.zeros((9, depths, lines), dtype=np.int64)
    costs = np.empty((depths, lines, 2), dtype=np.int64)
    states = np.empty((depths, cells), dtype=np.int8)
    frames = np.empty((depths, 10), dtype=np.int64)
    tally = np.empty(2, dtype=np.int64)
    return LoopSpace(by_line, costs, states, frames, tally)


@inner_kernel
def _least(values, first, end):
    least = values[first]
    for k in range(first + 1, end):
        least = min(least, values[k])
    return least


@kernel
def bound_blocks(blocks, wide, cheapest, least):
    """Find the least that any route through each block costs.

    Parameters
    ----------
    blocks : int64 array, shape (blocks, 7)
        Columns as of `looping`; a half comes after its whole, so that halves are done first.
    wide : bool
        Whether the network is dilated.
    cheapest : int64 array, shape (cells,)
        The least cost of each cell in any state.
    least : int64 array, shape (blocks,)
        Receives the bounds.
    """
    for number in range(len(blocks) - 1, -1, -1):
        size = blocks[number, SIZE]
        first = blocks[number, IN]
        last = blocks[number, OUT]
        if size == 1:
            least[number] = cheapest[first] if wide else 0
        elif size == 2:
            least[number] = cheapest[first]
            if wide:
                least[number] = min(cheapest[first], cheapest[first + 1])
                least[number] += min(cheapest[first + 2], cheapest[first + 3])
        else:
            upper = blocks[number, UPPER]
            lower = blocks[number, LOWER]
            least[number] = min(least[upper], least[lower])
            if size & 1 == 0:  # an odd line passes no cell here
                cells = size if wide else size >> 1
                least[number] += _least(cheapest, first, first + cells)
                least[number] += _least(cheapest, last, last + cells)


@kernel
def search(matchings, root, bound, task, space, states, cost, exact):
    """Find the best states of block `root` for each matching, if they cost less than `bound`.

    A depth-first branch and bound over the directions of loops.

    Parameters
    ----------
    matchings : int32 array, shape (k, n)
        ``matchings[row, source] = destination``, -1 where idle.
    root : int
        The number of the block; 0 is the whole network.
    bound : int
        Costs of this or more are of no use.
    task : LoopTask
    space : LoopSpace
        Scratch.
    states : int8 array, shape (k, cells)
        Receives 0 bar, 1 cross, -1 where no light passes.
    cost : int64 array, shape (k,)
        Receives the cost of each matching.
    exact : bool array, shape (k,)
        Receives whether no choice was left out, so that no other costs less.
    """
    for row in range(len(matchings)):
        for line in range(space.lines.shape[2]):
            space.lines[FORTH, 0, line] = space.lines[BACK, 0, line] = -1
        for i in range(matchings.shape[1]):
            o = matchings[row, i]
            if o >= 0:
                space.lines[FORTH, 0, i] = o
                space.lines[BACK, 0, o] = i
        space.tally[0] = space.tally[1] = 0
        cost[row] = _search_one(root, bound, task, space)
        exact[row] = space.tally[1] == 0
        for cell in range(states.shape[1]):
            states[row, cell] = space.states[-1, cell]


@inner_kernel
def _search_one(root, bound, task, space):
    """Go down into halves and back up, with one open block at each depth; return the cost.

    A half has to cost less than the best setting of its whole. Where costs add up, what this
    setting has cost so far is taken off.
    """
    cost = _open(root, bound, task, space)
    depth = 0 if cost < 0 else -1
    while depth >= 0:
        half = _choose_half(depth, task, space)
        if half < 0:
            cost = _close(depth, task, space)
            depth -= 1
            if depth >= 0:
                _add_half(depth, cost, task, space)
            continue
        spent = 0 if task.worst else space.frames[depth, FOUND]
        cost = _open(half, space.frames[depth, BEST] - spent, task, space)
        if cost < 0:
            depth += 1
        else:
            _add_half(depth, cost, task, space)
    return cost


@inner_kernel
def _open(number, bound, task, space):
    """Begin the search of a block for less than `bound`; return a cost if it ends at once.

    Parameters
    ----------
    number : int
        The block. The lines at its inputs and outputs are in ``space.lines`` at its depth.
    bound : int
        Costs of this or more are of no use.
    task : LoopTask
    space : LoopSpace
        ``space.frames`` at this depth receives the state of the search.

    Returns
    -------
    int
        The cost of a block of one line or two; `bound` if no setting is cheaper; -1 if the block
        is open now, and its halves have to be searched.
    """
    blocks = task.blocks
    size = blocks[number, SIZE]
    depth = blocks[number, DEPTH]
    space.tally[0] += 1
    if size <= 2:
        return _set_leaf(number, task, space)

    # Each line with light costs at least `least` in this block.
    lit = 0
    for line in range(blocks[number, PLACE], blocks[number, PLACE] + size):
        if space.lines[FORTH, depth, line] >= 0:
            lit += 1
            if task.worst and space.lines[OUTSIDE, depth, line] + task.least[number] >= bound:
                return bound
    if not task.worst and lit * task.least[number] >= bound:
        return bound

    # Each loop begins in the direction that its own cells prefer; that of odd wires has no choice.
    loops = _find_loops(number, task, space)
    fixed = size & 1
    own = 0
    for loop in range(loops):
        space.lines[TURNED, depth, loop] = 0
        if loop >= fixed and space.costs[depth, loop, 1] < space.costs[depth, loop, 0]:
            space.lines[TURNED, depth, loop] = 1
        own += space.costs[depth, loop, space.lines[TURNED, depth, loop]]
    frame = space.frames[depth]
    frame[NUMBER] = number
    frame[BOUND] = bound
    frame[BEST] = bound
    frame[OWN] = own
    frame[REST] = lit * min(task.least[blocks[number, UPPER]], task.least[blocks[number, LOWER]])
    frame[FLOOR] = own + frame[REST]
    frame[TURNS] = 1 << min(max(loops - fixed, 0), 62)
    frame[TURN] = -1
    frame[HALF] = 2
    return -1


@inner_kernel
def _choose_half(depth, task, space):
    """Return the half to look at next, perhaps in another setting of the loops; -1 for none.

    After both halves, or as soon as a setting is too dear, the next setting is taken. The search
    of the block ends after all settings, or once no other can be cheaper. Blocks of more than
    `EXACT` lines keep their first setting.

    Parameters
    ----------
    depth : int
        That of the open block.
    task : LoopTask
    space : LoopSpace
        ``space.frames[depth]`` is changed. ``space.tally`` counts the visits, and notes whether a
        setting was left out.
    """
    frame = space.frames[depth]
    blocks = task.blocks
    worst = task.worst
    number = frame[NUMBER]
    size = blocks[number, SIZE]
    while frame[HALF] == 2:
        frame[TURN] += 1
        if frame[TURN] == frame[TURNS] or (not worst and frame[BEST] <= frame[FLOOR]):
            return -1
        if frame[TURN] > 0:
            space.tally[0] += 1
            if size > EXACT or space.tally[0] > task.visits:
                space.tally[1] = 1
                return -1
            loop = size & 1  # one loop is turned at a time: a Gray code
            while not frame[TURN] >> (loop - (size & 1)) & 1:
                loop += 1
            frame[OWN] -= space.costs[depth, loop, space.lines[TURNED, depth, loop]]
            space.lines[TURNED, depth, loop] ^= 1
            frame[OWN] += space.costs[depth, loop, space.lines[TURNED, depth, loop]]
        if worst or frame[OWN] + frame[REST] < frame[BEST]:
            _split(number, task, space)
            frame[HALF], frame[FOUND] = 0, 0 if worst else frame[OWN]
    if size > EXACT:
        space.tally[0] = 0  # each half may search for itself
    return blocks[number, LOWER if frame[HALF] else UPPER]


@inner_kernel
def _add_half(depth, cost, task, space):
    """Add the cost of a half; keep the states if both halves together are the best so far."""
    frame = space.frames[depth]
    blocks = task.blocks
    frame[FOUND] = max(frame[FOUND], cost) if task.worst else frame[FOUND] + cost
    frame[HALF] += 1
    if frame[FOUND] >= frame[BEST]:
        frame[HALF] = 2
    elif frame[HALF] == 2:
        frame[BEST] = frame[FOUND]
        for loop in range(space.lines.shape[2]):
            space.lines[KEPT, depth, loop] = space.lines[TURNED, depth, loop]
        number = frame[NUMBER]
        for cell in range(blocks[blocks[number, UPPER], IN], blocks[number, OUT]):
            space.states[depth, cell] = space.states[-1, cell]


@inner_kernel
def _close(depth, task, space):
    """Set the cells of a block to the best that was found, if that is below the bound."""
    frame = space.frames[depth]
    blocks = task.blocks
    number = frame[NUMBER]
    if frame[BEST] < frame[BOUND]:
        for loop in range(space.lines.shape[2]):
            space.lines[TURNED, depth, loop] = space.lines[KEPT, depth, loop]
        for cell in range(blocks[blocks[number, UPPER], IN], blocks[number, OUT]):
            space.states[-1, cell] = space.states[depth, cell]
        _set_columns(number, task, space)
    return frame[BEST]


@inner_kernel
def _set_leaf(number, task, space):
    """Set the cells of a block of one line or two, where nothing is to be chosen.

    A line of a dilated network has two wires, of which one has light. One line passes a single
    cell there, two lines have a cell at each input and at each output; without dilation, two lines
    share one cell and a single one has none.

    Returns
    -------
    int
        The sum of the costs of the circuits in this block; or the largest of their costs, those
        outside of the block included.
    """
    blocks = task.blocks
    states = space.states[-1]
    size = blocks[number, SIZE]
    first = blocks[number, IN]
    depth = blocks[number, DEPTH]
    place = blocks[number, PLACE]
    for cell in range(size * size if task.wide else size - 1):
        states[first + cell] = FREE
    total = 0
    for i in range(size):
        o = space.lines[FORTH, depth, place + i]
        if o < 0:
            continue
        cost = 0
        if task.wide:
            entered = space.lines[ENTERED, depth, place + i]
            left = space.lines[LEFT, depth, place + o]
            if size == 1:
                states[first] = entered ^ left
                cost = task.cell_cost[first, states[first], 0]
            else:
                cell = first + i
                last = first + 2 + o
                states[cell] = entered ^ o
                states[last] = i ^ left
                cost = (
                    task.cell_cost[cell, states[cell], 0] + task.cell_cost[last, states[last], 0]
                )
        elif size == 2:
            states[first] = i ^ o
            shared = 1 if space.lines[FORTH, depth, place + 1 - i] >= 0 else 0
            cost = task.cell_cost[first, states[first], shared]
        if task.worst:
            total = max(total, space.lines[OUTSIDE, depth, place + i] + cost)
        else:
            total += cost
    return total


@inner_kernel
def _find_loops(number, task, space):
    """Find the loops of a block, and what they cost; the lines of odd wires are loop 0.

    A loop is the lines that share a cell of an outer column with the next one in turn. They go to
    the two halves alternately, hence one of them decides for all.

    Parameters
    ----------
    number : int
        The block.
    task : LoopTask
    space : LoopSpace
        Receives the loop and the half of each line, and ``space.costs[depth, loop, turned]``: the
        cost of the outer cells of a loop as it is found, and with its halves swapped.

    Returns
    -------
    int
        The number of loops.
    """
    size = task.blocks[number, SIZE]
    depth = task.blocks[number, DEPTH]
    place = task.blocks[number, PLACE]
    for line in range(place, place + size):
        space.lines[LOOP, depth, line] = -1
    loops = 0
    lower = size & 1
    if lower:
        _mark(size - lower, lower, loops, depth, place, space)
        i = space.lines[BACK, depth, place + size - 1]
        if i >= 0:
            _mark(i, lower, loops, depth, place, space)
            _mark(i ^ 1, 1 - lower, loops, depth, place, space)
        loops += 1
    for i in range(size):
        if space.lines[FORTH, depth, place + i] >= 0 and space.lines[LOOP, depth, place + i] < 0:
            _mark(i, i & 1, loops, depth, place, space)
            _mark(i ^ 1, 1 - (i & 1), loops, depth, place, space)
            loops += 1

    # The cells of the outer columns depend on the direction of their own loop only.
    costs = space.costs[depth]
    for loop in range(loops):
        costs[loop, 0] = costs[loop, 1] = 0
    for line in range(place, place + size):
        if space.lines[FORTH, depth, line] >= 0:
            loop = space.lines[LOOP, depth, line]
            side = space.lines[SIDE, depth, line]
            costs[loop, 0] += _pass_columns(number, line - place, side, task, space)
            costs[loop, 1] += _pass_columns(number, line - place, 1 - side, task, space)
    return loops


@inner_kernel
def _mark(i, side, loop, depth, place, space):
    """Mark the lines of a loop from input i on, which goes to half `side`."""
    while space.lines[FORTH, depth, place + i] >= 0 and space.lines[LOOP, depth, place + i] < 0:
        space.lines[LOOP, depth, place + i] = loop
        space.lines[SIDE, depth, place + i] = side
        i = space.lines[BACK, depth, place + (space.lines[FORTH, depth, place + i] ^ 1)]
        if i < 0:
            return
        space.lines[LOOP, depth, place + i] = loop
        space.lines[SIDE, depth, place + i] = 1 - side
        i ^= 1


@inner_kernel
def _pass_columns(number, i, side, task, space):
    """Set the cells that the line at input i passes in the outer columns; return their cost.

    Parameters
    ----------
    number : int
        The block.
    i : int
        The input, counted from the first one of the block.
    side : int
        The half that the line goes to: 0 upper, 1 lower.
    task : LoopTask
    space : LoopSpace
        The last row of ``space.states`` receives the states.
    """
    # An odd last line has no cell in the outer columns.
    blocks = task.blocks
    size = task.blocks[number, SIZE]
    depth = task.blocks[number, DEPTH]
    place = blocks[number, PLACE]
    first = blocks[number, IN]
    last = blocks[number, OUT]
    o = space.lines[FORTH, depth, place + i]
    cost = 0
    if i >> 1 < size >> 1:
        cell = first + (i >> 1)
        state = (i & 1) ^ side
        shared = 1 if space.lines[FORTH, depth, place + (i ^ 1)] >= 0 else 0
        if task.wide:
            cell = first + i
            state = space.lines[ENTERED, depth, place + i] ^ side
            shared = 0
        cost += task.cell_cost[cell, state, shared]
        space.states[-1, cell] = state
    if o >> 1 < size >> 1:
        cell = last + (o >> 1)
        state = (o & 1) ^ side
        shared = 1 if space.lines[BACK, depth, place + (o ^ 1)] >= 0 else 0
        if task.wide:
            cell = last + o
            state = space.lines[LEFT, depth, place + o] ^ side
            shared = 0
        cost += task.cell_cost[cell, state, shared]
        space.states[-1, cell] = state
    return cost


@inner_kernel
def _split(number, task, space):
    """Hand the lines of a block on to its halves, as its loops are turned.

    The rows of ``space.lines`` one depth further receive the lines of both halves: two inputs that
    share a cell of the first column become the same input of either half, and outputs likewise.
    """
    blocks = task.blocks
    size = blocks[number, SIZE]
    depth = blocks[number, DEPTH]
    place = blocks[number, PLACE]
    for half in (blocks[number, UPPER], blocks[number, LOWER]):
        start = blocks[half, PLACE]
        lines = blocks[half, SIZE]
        for line in range(start, start + lines + 1):
            space.lines[FORTH, depth + 1, line] = space.lines[BACK, depth + 1, line] = -1
    for i in range(size):
        o = space.lines[FORTH, depth, place + i]
        if o < 0:
            continue
        side = (
            space.lines[SIDE, depth, place + i]
            ^ space.lines[TURNED, depth, space.lines[LOOP, depth, place + i]]
        )
        start = blocks[blocks[number, LOWER if side else UPPER], PLACE]
        at = start + (i >> 1)
        to = start + (o >> 1)
        space.lines[FORTH, depth + 1, at] = o >> 1
        space.lines[BACK, depth + 1, to] = i >> 1
        if task.wide:
            odd = size - 1 if size & 1 else -1  # its two wires go on as they are
            space.lines[ENTERED, depth + 1, at] = (
                space.lines[ENTERED, depth, place + i] if i == odd else i & 1
            )
            space.lines[LEFT, depth + 1, to] = (
                space.lines[LEFT, depth, place + o] if o == odd else o & 1
            )
        if task.worst:
            cost = _pass_columns(number, i, side, task, space)
            space.lines[OUTSIDE, depth + 1, at] = space.lines[OUTSIDE, depth, place + i] + cost


@inner_kernel
def _set_columns(number, task, space):
    """Set the cells of the outer columns of a block, as its loops are turned."""
    blocks = task.blocks
    size = task.blocks[number, SIZE]
    depth = task.blocks[number, DEPTH]
    place = blocks[number, PLACE]
    first = blocks[number, IN]
    last = blocks[number, OUT]
    for cell in range(size - (size & 1) if task.wide else size >> 1):
        space.states[-1, first + cell] = space.states[-1, last + cell] = FREE
    for i in range(size):
        if space.lines[FORTH, depth, place + i] >= 0:
            side = (
                space.lines[SIDE, depth, place + i]
                ^ space.lines[TURNED, depth, space.lines[LOOP, depth, place + i]]
            )
            _pass_columns(number, i, side, task, space)
