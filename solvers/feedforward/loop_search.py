"""The directions of the loops of a Benes network, chosen for the least cost by branch and bound.

A Benes network is a *block*: two *halves*, upper and lower, which are blocks again, between an
outer column of cells at the inputs and one at the outputs. A *line* of a block is a circuit at one
of its inputs. Two lines that share a cell of an outer column go to different halves, so that lines
hang together in *loops*. A loop has two directions: it is as `_find_loops` found it, or *turned*,
with the halves of all its lines exchanged. `looping` numbers the blocks and their cells.

For example, a block of four lines with the circuits 0 to 0, 1 to 2, 2 to 1 and 3 to 3 has one
loop. Lines 0 and 1 share a cell at the inputs, lines 1 and 3 one at the outputs, 3 and 2 at the
inputs, 2 and 0 at the outputs. Lines 0 and 3 go to the upper half, 1 and 2 to the lower one; or,
if the loop is turned, the other way round.

A *setting* of a block is a direction for each of its loops: with k loops there are 2^k. Once the
setting is fixed, the two halves are problems of their own. The search tries the settings one after
the other, and for each of them searches the upper half, then the lower half. It is recursive by
nature, but written with a stack: at each depth one block is *open*, its progress is in
``frames[depth]``, and ``lines[:, depth]`` holds the circuits at its inputs and outputs. A half is
left at once if it cannot become cheap enough for the whole to be better than the best so far. On
average over all permutations the search visits some 40, 400, 6,000 and 100,000 blocks for 8, 16,
32 and 64 lines.

The cost of a cell for a circuit depends on the cell, its state, and whether another circuit passes
it too. Costs are whole numbers; the sum over all circuits is minimised, or the largest of them.

In all kernels `space` has the arrays to work in, `number` is a block (its row in ``task.blocks``),
and `depth` how often the network was halved to get to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE
from optmatch.solvers.feedforward.looping import (
    DEPTH,
    IN,
    LOWER,
    OUT,
    PLACE,
    SIZE,
    UPPER,
    network,
)
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

EXACT = 64
"""In blocks of more lines each loop takes the direction that its own cells prefer."""
MOST_VISITS = 400_000
"""After this number of visits to blocks a search ends with the best it has."""
FORBIDDEN = 1 << 40
"""The cost of a state that a cell cannot take."""

_IS_OPEN = -1
"""The result of `_open_block` for a block whose halves have to be searched, in place of a cost."""
_NEVER = 1 << 60  # a bound that any states are below, forbidden ones too

(
    BLOCK,
    BOUND,
    BEST_COST,
    OUTER_COST,
    LEAST_IN_HALVES,
    LEAST_COST,
    N_SETTINGS,
    SETTING,
    NEXT_HALF,
    COST_SO_FAR,
) = range(10)
"""Columns of `LoopSpace.frames`."""
UPPER_HALF, LOWER_HALF, NO_HALF = range(3)
"""Values of NEXT_HALF."""
FORTH, BACK, ENTERED, LEFT, OUTSIDE, LOOP, SIDE, TURNED, KEPT = range(9)
"""First indices of `LoopSpace.lines`."""


class LoopTask(NamedTuple):
    """The network, and the aim of a search. No kernel changes it.

    Costs are whole numbers in a unit that the caller chooses.
    """

    blocks: NDArray[np.int64]
    """(blocks, 7): as of `Blocks`. Columns are SIZE, the lines; DEPTH, how often the network was
    halved; PLACE, the index of the first line; UPPER and LOWER, the rows of both halves; IN and
    OUT, the first cells of both outer columns. Block 0 is the whole network; halves come after the
    block that they are halves of."""
    wide: bool
    """Whether the network is dilated: each line is a pair of wires, no two circuits share a
    cell."""
    worst: bool
    """Whether the largest cost of a circuit is minimised, not the sum of all."""
    visits: int
    """About how many blocks to open, and settings to try, for each matching; of a network of
    more than `EXACT` lines, for each half of such a large block."""
    cell_cost: NDArray[np.int64]
    """(cells, 2, 2): ``cell_cost[cell, state, shared]`` is what a cell in bar (0) or in cross
    (1) costs each circuit that passes it, alone (0) or with another one (1)."""
    least: NDArray[np.int64]
    """(blocks,): no circuit costs less than this in a block, whatever its route
    (`bound_blocks`)."""


class LoopChoice(NamedTuple):
    """The states of the cells for some matchings, and proofs about them."""

    states: NDArray[np.int8]
    """(k, cells): 0 bar, 1 cross, -1 where no light passes."""
    cost: NDArray[np.int64]
    """``cost[k]``: the cost of matching k."""
    exact: NDArray[np.bool_]
    """``exact[k]``: whether no routes of matching k cost less; on a dilated network, none of those
    on which no two circuits share a cell."""


class LoopSpace(NamedTuple):
    """The arrays in which a search works, of few types, so that each kernel is compiled once."""

    lines: NDArray[np.int64]
    """(9, depths, lines): the circuits and loops of the blocks at each depth. A block has the
    entries from its PLACE on, one for each line; i and o are an input and an output counted from
    the first of the block. The first index is one of nine:

    - FORTH, at PLACE + i: the output of the circuit that enters at input i, -1 if it is idle;
    - BACK, at PLACE + o: the input of the circuit that leaves at output o, -1 if it is idle;
    - ENTERED, at PLACE + i: in a dilated network, which wire of input i has light, 0 or 1;
    - LEFT, at PLACE + o: the same of output o;
    - OUTSIDE, at PLACE + i: what the circuit costs outside of the block, if the worst one counts;
    - LOOP, at PLACE + i: the number of the loop that the line belongs to;
    - SIDE, at PLACE + i: the half it goes to if the loop is not turned, 0 upper or 1 lower;
    - TURNED, at the number of a loop: 1 if it is turned in the present setting, else 0;
    - KEPT, at the number of a loop: the same in the best setting so far.

    It is one array, since nine of them take a third longer."""
    costs: NDArray[np.int64]
    """(depths, loops, 2): ``costs[depth, loop, turned]``, summed over the cells that the loop
    passes in the outer columns of the open block, as it was found (0) or turned (1)."""
    states: NDArray[np.int8]
    """(depths, cells): row `depth` has the states of the cells inside the open block in its
    best setting so far; the last row has those of all cells as they are tried now. 0 is bar,
    1 cross, -1 (`FREE`) a cell without light."""
    frames: NDArray[np.int64]
    """(depths, 10): the progress of the search in the open block of each depth. Columns:

    - BLOCK: the row of the block in ``task.blocks``;
    - BOUND: the cost that it has to be below, to be of use to the block around it;
    - BEST_COST: the cost of the best setting so far; BOUND before there is one;
    - OUTER_COST: the cost of the two outer columns in the present setting, where costs are summed;
    - LEAST_IN_HALVES: a lower bound of what the lines cost in the halves, in any setting;
    - LEAST_COST: a lower bound of the whole: OUTER_COST in the first setting, where it is least,
      plus LEAST_IN_HALVES;
    - N_SETTINGS: the number of settings, 2**k for k loops that can be turned;
    - SETTING: the number of the present setting, from 0 on; -1 before the first one;
    - NEXT_HALF: which half is searched next: `UPPER_HALF`, `LOWER_HALF`, or `NO_HALF` where both
      are done or the setting is given up;
    - COST_SO_FAR: the cost of the present setting so far: OUTER_COST and the halves that are done,
      or where the worst circuit counts the largest cost in the halves that are done."""
    n_visits: NDArray[np.int64]
    """(1,): how many blocks were opened, and settings tried, so far."""
    is_cut_short: NDArray[np.bool_]
    """(1,): whether a setting was left out, so that the result need not be the best."""


def choose_loops(
    matchings: NDArray[np.int32],
    cell_cost: NDArray[np.int64],
    *,
    dilated: bool = False,
    worst: bool = False,
    visits: int = MOST_VISITS,
) -> LoopChoice:
    """Route matchings on a Benes network at the least cost.

    The result is exact up to `EXACT` lines, unless there are so many loops that `visits` do not
    suffice. ``cell_cost[cell, state, shared]`` is what a cell in this state costs each circuit
    that passes it, alone (0) or with another one (1). With `worst` the largest cost of a circuit
    counts, not the sum. ``matchings[k, input]`` is an output, -1 if idle; `dilated` tells whether
    each line of the network is a pair of wires.
    """
    # ``lines`` has one entry more than the lines of all blocks of a depth, as `_split_block`
    # clears one behind each half; ``states`` has one row more than the depths, for the present
    # states.
    n_rows, n_lines = matchings.shape
    net = network(n_lines, dilated=dilated)
    depths = int(net.blocks[-1, DEPTH]) + 2
    lines = net.width + 2
    space = LoopSpace(
        lines=np.zeros((9, depths, lines), dtype=np.int64),
        costs=np.empty((depths, lines, 2), dtype=np.int64),
        states=np.empty((depths, net.cells), dtype=np.int8),
        frames=np.empty((depths, 10), dtype=np.int64),
        n_visits=np.empty(1, dtype=np.int64),
        is_cut_short=np.empty(1, dtype=np.bool_),
    )

    # A lower bound of what a circuit costs in each block, from the cheapest use of each cell.
    least = np.zeros(len(net.blocks), dtype=np.int64)
    cheapest = cell_cost.min(axis=(1, 2), initial=_NEVER)
    bound_blocks(net.blocks, dilated, cheapest, least)
    choice = LoopChoice(
        np.empty((n_rows, net.cells), dtype=np.int8),
        np.empty(n_rows, dtype=np.int64),
        np.empty(n_rows, dtype=np.bool_),
    )

    # Larger networks are halved without a search until blocks have `EXACT` lines or fewer. Each of
    # these is searched by itself, with an equal share of the visits.
    visits_of_block = max(1, visits // math.ceil(n_lines / EXACT))
    costs = np.ascontiguousarray(cell_cost)
    task = LoopTask(
        blocks=net.blocks,
        wide=dilated,
        worst=worst,
        visits=visits_of_block,
        cell_cost=costs,
        least=least,
    )
    search(matchings, 0, _NEVER, task, space, choice)
    return choice


@inner_kernel
def _find_least(values, first, end):
    """Return the least of ``values[first:end]``, which is not empty."""
    least = values[first]
    for k in range(first + 1, end):
        least = min(least, values[k])
    return least


@kernel
def bound_blocks(blocks, wide, cheapest, least):
    """Find for each block a lower bound of what a circuit costs in it, whatever its route.

    ``blocks[number, SIZE ... OUT]`` and `wide` are those of `LoopTask`. A half comes after its
    whole, hence rows are read from the last. In a dilated network (`wide`) each line has a cell of
    its own in each outer column; else two lines share one. ``cheapest[cell]`` is the least cost of
    a cell in any state; ``least[block]`` receives the bounds.
    """
    for number in range(len(blocks) - 1, -1, -1):
        size = blocks[number, SIZE]
        first = blocks[number, IN]
        last = blocks[number, OUT]

        # A circuit passes one cell of each outer column, and one of the two halves. The smallest
        # blocks are not divided: a line alone has no cell, and two lines share one. In a dilated
        # network a line alone has a single cell; two lines have four, of which a circuit passes
        # one of the first two, at the inputs, and one of the last two, at the outputs.
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
                least[number] += _find_least(cheapest, first, first + cells)
                least[number] += _find_least(cheapest, last, last + cells)


@kernel
def search(matchings, root, bound, task: LoopTask, space: LoopSpace, choice: LoopChoice):
    """Find the best states of block `root` for each matching, if they cost less than `bound`.

    ``matchings[row, input]`` is an output, -1 if idle. Writes ``choice.cost[row]``,
    ``choice.exact[row]`` and ``choice.states[row, cell]``. A depth-first branch and bound over the
    directions of loops. Where nothing cheaper was found the cost is `bound`, and the states in
    `choice` are of no use; ``choice.exact`` tells that no setting was left out.
    """
    for row in range(len(matchings)):
        space.lines[FORTH, 0] = -1
        space.lines[BACK, 0] = -1
        for i in range(matchings.shape[1]):
            o = matchings[row, i]
            if o >= 0:
                space.lines[FORTH, 0, i] = o
                space.lines[BACK, 0, o] = i

        space.n_visits[0] = 0
        space.is_cut_short[0] = False
        choice.cost[row] = _search_one(root, bound, task, space)
        choice.exact[row] = not space.is_cut_short[0]
        copy_into(choice.states[row], space.states[-1])


@inner_kernel
def _search_one(root, bound, task: LoopTask, space: LoopSpace):
    """Find the cheapest states of a Benes network for one matching, by branch and bound.

    The matching is in the row of the whole network: ``space.lines[FORTH, 0, input]`` is the output
    of an input and ``space.lines[BACK, 0, output]`` the input of an output, -1 where idle. `root`
    is the row of ``task.blocks`` that is searched, 0 for the whole network. For each setting of a
    block its halves are problems of their own, and are searched in turn. The last row of
    ``space.states`` receives the best states; the result is their cost, `bound` if none costs
    less.
    """
    # This is a recursion written as a loop: `_open_block` is the call, `_close_block` the return,
    # and `depth` the row of ``space.frames`` of the innermost open block, -1 once none is open.
    cost = _open_block(root, bound, task, space)
    depth = 0 if cost == _IS_OPEN else -1
    while depth >= 0:
        # The block is done once both halves are, and there is no other setting to be tried; its
        # cost then counts for the setting of the block around it.
        frame = space.frames[depth]
        if frame[NEXT_HALF] == NO_HALF and not _take_next_setting(depth, task, space):
            cost = _close_block(depth, task, space)
            depth -= 1
            if depth >= 0:
                _add_half(depth, cost, task, space)
            continue
        half = task.blocks[frame[BLOCK], UPPER]
        if frame[NEXT_HALF] == LOWER_HALF:
            half = task.blocks[frame[BLOCK], LOWER]
        if task.blocks[frame[BLOCK], SIZE] > EXACT:
            space.n_visits[0] = 0  # each half may search for itself

        # A half has to cost less than the best setting of its whole. Where costs add up, what
        # this setting has cost so far is taken off.
        spent = 0 if task.worst else frame[COST_SO_FAR]
        cost = _open_block(half, frame[BEST_COST] - spent, task, space)
        if cost == _IS_OPEN:
            depth += 1
        else:
            _add_half(depth, cost, task, space)
    return cost


@inner_kernel
def _open_block(number, bound, task: LoopTask, space: LoopSpace):
    """Begin the search of a block for less than `bound`; return a cost if it ends at once.

    Writes the frame of the depth of the block, ``space.frames[depth]``, and which of its loops are
    turned, ``space.lines[TURNED, depth, loop]``; ``space.n_visits`` counts visits. The loops are
    found here, and the cheapest direction of each by itself is the first setting. The cost is that
    of a block of one line or two, or `bound` if no setting is cheaper; `_IS_OPEN` if the block is
    open now, and its halves have to be searched.
    """
    blocks = task.blocks
    size = blocks[number, SIZE]
    depth = blocks[number, DEPTH]
    space.n_visits[0] += 1
    if size <= 2:
        return _set_leaf(number, task, space)

    # Each line with light costs at least `least` in this block, besides what it costs outside.
    lit = 0
    for line in range(blocks[number, PLACE], blocks[number, PLACE] + size):
        if space.lines[FORTH, depth, line] >= 0:
            lit += 1
            if task.worst and space.lines[OUTSIDE, depth, line] + task.least[number] >= bound:
                return bound
    if not task.worst and lit * task.least[number] >= bound:
        return bound

    # Each loop begins in the direction that is cheaper in its own cells, those of the outer
    # columns. With an odd number of lines, loop 0 is that of the last line and cannot be turned.
    loops = _find_loops(number, task, space)
    fixed = size & 1
    loop_cost = 0
    for loop in range(loops):
        space.lines[TURNED, depth, loop] = 0
        if loop >= fixed and space.costs[depth, loop, 1] < space.costs[depth, loop, 0]:
            space.lines[TURNED, depth, loop] = 1
        loop_cost += space.costs[depth, loop, space.lines[TURNED, depth, loop]]

    # No setting has been tried yet. The number of settings fits into 63 bits only up to 62 loops,
    # far more than can be tried.
    frame = space.frames[depth]
    frame[BLOCK] = number
    frame[BOUND] = bound
    frame[BEST_COST] = bound
    frame[OUTER_COST] = loop_cost
    frame[LEAST_IN_HALVES] = lit * min(
        task.least[blocks[number, UPPER]], task.least[blocks[number, LOWER]]
    )
    frame[LEAST_COST] = loop_cost + frame[LEAST_IN_HALVES]
    frame[N_SETTINGS] = 1 << min(max(loops - fixed, 0), 62)
    frame[SETTING] = -1
    frame[NEXT_HALF] = NO_HALF
    return _IS_OPEN


@inner_kernel
def _take_next_setting(depth, task: LoopTask, space: LoopSpace):
    """Go on to the next setting of the open block of a depth that may be the best.

    Its loops are turned (``space.lines[TURNED]``), and its circuits handed on to both halves.
    Returns False if no further setting may be the best; ``space.is_cut_short`` becomes true where
    settings were left out, because the block is large or has been visited too often. Settings are
    left out without loss where a lower bound of their cost, ``frame[LEAST_COST]`` for all and
    ``frame[OUTER_COST] + frame[LEAST_IN_HALVES]`` for one, is no better than the best cost.

    Settings follow in the order of a Gray code: each differs from the one before in one loop, and
    the cost of the outer columns is updated by this loop alone. Number 0 has each loop in the
    direction that is cheaper in the outer columns (`_open_block`); number t then turns the loop
    whose number is that of the lowest 1 in the binary digits of t. For t = 1, 2, 3, 4 that is a,
    b, a, c, and the loops that are turned are a; a and b; b; b and c.
    """
    frame = space.frames[depth]
    size = task.blocks[frame[BLOCK], SIZE]
    while frame[SETTING] + 1 < frame[N_SETTINGS] and (
        task.worst or frame[LEAST_COST] < frame[BEST_COST]
    ):
        frame[SETTING] += 1
        if frame[SETTING] > 0:
            space.n_visits[0] += 1

            # Large blocks keep their first setting: to try others takes too long.
            if size > EXACT or space.n_visits[0] > task.visits:
                space.is_cut_short[0] = True
                return False

            # Where the number of lines is odd, loop 0 is that of the last line and cannot be
            # turned: the others have the binary digits.
            loop = size & 1
            digits = frame[SETTING]
            while digits & 1 == 0:
                digits >>= 1
                loop += 1
            frame[OUTER_COST] -= space.costs[depth, loop, space.lines[TURNED, depth, loop]]
            space.lines[TURNED, depth, loop] ^= 1
            frame[OUTER_COST] += space.costs[depth, loop, space.lines[TURNED, depth, loop]]

        # Both halves are searched unless they cannot become cheap enough. Where the worst circuit
        # counts that is not asked here: `_open_block` compares each circuit of a half to the best
        # cost.
        if task.worst or frame[OUTER_COST] + frame[LEAST_IN_HALVES] < frame[BEST_COST]:
            _split_block(frame[BLOCK], task, space)
            frame[NEXT_HALF] = UPPER_HALF
            frame[COST_SO_FAR] = 0 if task.worst else frame[OUTER_COST]
            return True
    return False


@inner_kernel
def _add_half(depth, cost, task: LoopTask, space: LoopSpace):
    """Add the cost of a half to the setting of the open block of a depth, which it belongs to.

    Where the worst circuit counts, the larger cost is taken instead of the sum. Once both halves
    are done the states are kept if they are the best so far. Where the search of the half found
    nothing below its bound, `cost` is this bound, which is too large for that.
    """
    frame = space.frames[depth]
    blocks = task.blocks
    frame[COST_SO_FAR] = max(frame[COST_SO_FAR], cost) if task.worst else frame[COST_SO_FAR] + cost
    frame[NEXT_HALF] += 1  # from the upper half to the lower one, and from that to none
    if frame[COST_SO_FAR] >= frame[BEST_COST]:
        frame[NEXT_HALF] = NO_HALF  # the lower half need not be searched any more
    elif frame[NEXT_HALF] == NO_HALF:
        # The cells inside the block, those of both halves, have the numbers from the first cell of
        # the upper half up to the first cell of the last column.
        frame[BEST_COST] = frame[COST_SO_FAR]
        copy_into(space.lines[KEPT, depth], space.lines[TURNED, depth])
        number = frame[BLOCK]
        for cell in range(blocks[blocks[number, UPPER], IN], blocks[number, OUT]):
            space.states[depth, cell] = space.states[-1, cell]


@inner_kernel
def _close_block(depth, task: LoopTask, space: LoopSpace):
    """End the search of the open block of a depth, and return the cost of its best setting.

    The present states, the last row of ``space.states``, become those of that setting: the states
    of the cells inside were kept, and by loop whether it is turned; the cells of the outer columns
    follow from the loops. If nothing costs less than the bound of the block, the result is that
    bound, and the states are of no use.
    """
    frame = space.frames[depth]
    blocks = task.blocks
    number = frame[BLOCK]
    if frame[BEST_COST] < frame[BOUND]:
        # The cells inside, as `_add_half` has kept them.
        copy_into(space.lines[TURNED, depth], space.lines[KEPT, depth])
        for cell in range(blocks[blocks[number, UPPER], IN], blocks[number, OUT]):
            space.states[-1, cell] = space.states[depth, cell]

        # The outer columns have a cell for each two lines, or two cells in a dilated network. They
        # are without light, unless a line passes them.
        size = blocks[number, SIZE]
        place = blocks[number, PLACE]
        for cell in range((size >> 1) * (1 + task.wide)):
            space.states[-1, blocks[number, IN] + cell] = FREE
            space.states[-1, blocks[number, OUT] + cell] = FREE

        # `_pass_columns` sets the cells that the line at input i passes on its way to half `side`.
        for i in range(size):
            if space.lines[FORTH, depth, place + i] >= 0:
                loop = space.lines[LOOP, depth, place + i]
                side = space.lines[SIDE, depth, place + i] ^ space.lines[TURNED, depth, loop]
                _pass_columns(number, i, side, task, space)
    return frame[BEST_COST]


@inner_kernel
def _set_leaf(number, task: LoopTask, space: LoopSpace):
    """Set the cells of a block of one line or two, where nothing is to be chosen; return the cost.

    A line of a dilated network has two wires, of which one has light. One line passes a single
    cell there, and two lines have four: one at each input, and one at each output. Without
    dilation, two lines share one cell and a single one has none. The largest cost includes what
    circuits pay outside.
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

        # A cell is in bar (0) if light leaves on the same of two places as it entered, else in
        # cross (1): hence the exclusive or of the two.
        if task.wide:
            wire_in = space.lines[ENTERED, depth, place + i]
            wire_out = space.lines[LEFT, depth, place + o]
            if size == 1:
                states[first] = wire_in ^ wire_out
                cost = task.cell_cost[first, states[first], 0]
            else:
                cell = first + i
                last = first + 2 + o
                states[cell] = wire_in ^ o
                states[last] = i ^ wire_out
                cost = (
                    task.cell_cost[cell, states[cell], 0] + task.cell_cost[last, states[last], 0]
                )
        elif size == 2:
            states[first] = i ^ o
            shared = 1 if space.lines[FORTH, depth, place + 1 - i] >= 0 else 0
            cost = task.cell_cost[first, states[first], shared]

        # The largest cost of a circuit counts, or the sum of all.
        if task.worst:
            total = max(total, space.lines[OUTSIDE, depth, place + i] + cost)
        else:
            total += cost
    return total


@inner_kernel
def _find_loops(number, task: LoopTask, space: LoopSpace):
    """Find the loops of a block, and what they cost; the lines of odd wires are loop 0.

    A loop is the lines of which each shares a cell of an outer column with the next one: at the
    inputs, at the outputs, at the inputs, and so on. They go to the two halves of the block
    alternately, hence one of them decides for all. The loop is closed, or it ends on both sides at
    idle neighbours. Writes the rows LOOP and SIDE of ``space.lines`` and ``space.costs[depth,
    loop, turned]``; returns the number of loops.
    """
    size = task.blocks[number, SIZE]
    depth = task.blocks[number, DEPTH]
    place = task.blocks[number, PLACE]
    space.lines[LOOP, depth, place : place + size] = -1

    # The last of an odd number of lines is wired to the lower half, at its input and its output.
    # Lines that hang together with either of them have no choice: loop 0.
    loops = 0
    lower = size & 1
    if lower:
        _mark_loop(size - lower, lower, loops, depth, place, space)
        i = space.lines[BACK, depth, place + size - 1]
        if i >= 0:
            _mark_loop(i, lower, loops, depth, place, space)
            _mark_loop(i ^ 1, 1 - lower, loops, depth, place, space)
        loops += 1

    # Other loops begin at their topmost line, whose cell of the first column is in bar. As a loop
    # may end at idle lines, it is followed both ways: from line i, and from its neighbour i ^ 1.
    for i in range(size):
        if space.lines[FORTH, depth, place + i] >= 0 and space.lines[LOOP, depth, place + i] < 0:
            _mark_loop(i, i & 1, loops, depth, place, space)
            _mark_loop(i ^ 1, 1 - (i & 1), loops, depth, place, space)
            loops += 1

    # The cells of the outer columns depend on the direction of their own loop only.
    costs = space.costs[depth]
    costs[:loops] = 0
    for line in range(place, place + size):
        if space.lines[FORTH, depth, line] >= 0:
            loop = space.lines[LOOP, depth, line]
            side = space.lines[SIDE, depth, line]
            costs[loop, 0] += _pass_columns(number, line - place, side, task, space)
            costs[loop, 1] += _pass_columns(number, line - place, 1 - side, task, space)
    return loops


@inner_kernel
def _mark_loop(i, side, loop, depth, place, space: LoopSpace):
    """Mark the lines of a loop from input i on, until it comes round or ends at an idle line.

    Writes LOOP and SIDE of ``space.lines``: the number `loop`, and `side`, the half of line i (0
    upper, 1 lower), and the other half in turn. `place` is that of the block.

    In the example of the module, from input 0 and the upper half, lines 0, 2, 3 and 1 are marked
    in this order, as upper, lower, upper and lower.
    """
    # Each turn of the loop marks two lines: the one at input i, and the one that shares a cell of
    # the last column with it, which goes to the other half. The neighbour of the latter in the
    # first column goes to half `side` again. Neighbours have numbers that differ in the last bit.
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
def _pass_columns(number, i, side, task: LoopTask, space: LoopSpace):
    """Set the cells that the line at input i passes in the outer columns; return their cost.

    Writes ``space.states[-1, cell]``, the row of the present setting. The line goes to half
    `side`, 0 upper or 1 lower. A cell is in bar (0) if light stays at the upper or lower place
    where it entered, else in cross (1): input 3, the lower place of cell 1, is led to the upper
    half by cross.
    """
    # An odd last line has no cell in the outer columns. The others share cell ``i >> 1`` with
    # their neighbour ``i ^ 1``; in a dilated network, each input has cell ``i`` for its two wires.
    blocks = task.blocks
    size = task.blocks[number, SIZE]
    depth = task.blocks[number, DEPTH]
    place = blocks[number, PLACE]
    first = blocks[number, IN]
    last = blocks[number, OUT]
    o = space.lines[FORTH, depth, place + i]
    cost = 0

    # The cell of the first column, which brings the line to its half.
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

    # The cell of the last column, which brings it from there to its output.
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
def _split_block(number, task: LoopTask, space: LoopSpace):
    """Hand the circuits of a block on to its halves, each to the half that its loop tells.

    Two inputs that share a cell of the first column become the same input of either half, and
    outputs likewise: a circuit from input 2 to output 5 of a block that goes to the upper half
    leads there from input 1 to output 2. ``space.lines`` is read at the depth of the block, and
    written one depth further. Where the worst circuit counts, the cells that a circuit passes in
    the outer columns are set, too: what it pays for them is paid outside of its half.
    """
    blocks = task.blocks
    size = blocks[number, SIZE]
    depth = blocks[number, DEPTH]
    place = blocks[number, PLACE]

    # Neither half has circuits yet. One entry more is cleared: the neighbour of an odd last line.
    for half in (blocks[number, UPPER], blocks[number, LOWER]):
        start = blocks[half, PLACE]
        end = start + blocks[half, SIZE] + 1
        space.lines[FORTH, depth + 1, start:end] = -1
        space.lines[BACK, depth + 1, start:end] = -1

    # Each circuit of the block, from input i to output o. Neighbours 2k and 2k + 1 become line k
    # of a half, hence numbers are shifted by one bit. The half is that of its loop (SIDE), or the
    # other one if the loop is turned (TURNED).
    odd_line = size - 1 if size & 1 else -1
    for i in range(size):
        o = space.lines[FORTH, depth, place + i]
        if o < 0:
            continue
        loop = space.lines[LOOP, depth, place + i]
        side = space.lines[SIDE, depth, place + i] ^ space.lines[TURNED, depth, loop]
        start = blocks[blocks[number, LOWER if side else UPPER], PLACE]
        input_place = start + (i >> 1)
        output_place = start + (o >> 1)
        space.lines[FORTH, depth + 1, input_place] = o >> 1
        space.lines[BACK, depth + 1, output_place] = i >> 1

        # In a dilated network, the wire of the half that has light: wire 0 of a line of a half
        # comes from the even one of the two neighbours, wire 1 from the odd one. An odd last line
        # has no neighbour, so that its wires go on as they are.
        if task.wide:
            space.lines[ENTERED, depth + 1, input_place] = (
                space.lines[ENTERED, depth, place + i] if i == odd_line else i & 1
            )
            space.lines[LEFT, depth + 1, output_place] = (
                space.lines[LEFT, depth, place + o] if o == odd_line else o & 1
            )
        if task.worst:
            cost_before = space.lines[OUTSIDE, depth, place + i]
            cost = _pass_columns(number, i, side, task, space)
            space.lines[OUTSIDE, depth + 1, input_place] = cost_before + cost
