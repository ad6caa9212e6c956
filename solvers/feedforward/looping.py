"""Benes networks, routed by looping: every circuit goes to one of two halves, and so on inside.

Two circuits that share a cell of the first column, or one of the last, go to different halves.
One pass round a loop settles it, and in which of its two directions is a free choice; here its
topmost cell of the first column is in bar (`loop_search` looks for the best choice). Only the loop
of an odd wire has no choice, since that wire leads to the lower half. The halves are networks
again [1]_.

For example, with circuits from inputs 0, 1, 2, 3 to outputs 0, 2, 1, 3, input 0 is settled first:
it goes to the upper half. Its output 0 shares a cell with output 1, hence the circuit from input 2
goes to the lower half. Input 2 shares a cell with input 3, which goes to the upper half; its
output 3 shares one with output 2, hence input 1 goes to the lower half. Input 1 is the partner of
input 0, and the loop is closed.

Inputs and outputs are counted from the first of their block, and partners k and ``k ^ 1`` become
line ``k >> 1`` of either half. State 0 of a cell is bar, 1 is cross. Hence the cell of
input i has the state ``(i & 1) ^ side`` if the line goes to half `side`: 0 upper, 1 lower.

References
----------
.. [1] Chang and Melhem (1997). Arbitrary size Benes networks. *Parallel Processing Letters* 7,
   279-284. https://doi.org/10.1142/S0129626497000292
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE
from optmatch.solvers.kernels.decorators import inlined_kernel, inner_kernel, kernel

SIZE, DEPTH, PLACE, UPPER, LOWER, IN, OUT = range(7)
"""Columns of `Blocks.blocks`."""


class Blocks(NamedTuple):
    """The blocks of a network, the whole first, then its halves, their halves, and so on."""

    blocks: NDArray[np.int64]
    """(blocks, 7), read-only: a row for each block. Columns:

    - SIZE: the number of its lines;
    - DEPTH: how often the network was halved to get to it, 0 for the whole;
    - PLACE: the index of its first line among those of all blocks of its depth;
    - UPPER: the row of its upper half, -1 if the block is not divided;
    - LOWER: the row of its lower half, likewise;
    - IN: the number of the first cell of its first column;
    - OUT: the same of its last column; that of IN if the block is not divided."""
    cells: int
    """The number of cells of the whole network."""
    width: int
    """Entries for the lines of all blocks of one depth; odd ones have a gap after them."""


@lru_cache(maxsize=64)
def network(n: int, *, dilated: bool = False, leaf: int = 2) -> Blocks:
    """Divide a network into blocks, its cells numbered as those of `Benes`, `DilatedBenes`.

    `n` is the number of its lines, each of them a pair of wires if it is `dilated`. Blocks of
    `leaf` lines are not divided, for those who look them up in tables; nor are blocks of one line
    or two. The result has the blocks by rising depth, a block before its halves, the upper half
    before the lower one: for 4 lines and a leaf of 2 the whole, then two blocks of two lines.
    """
    # The cells of a block are numbered in this order: its first column, all cells of its upper
    # half, all of its lower half, its last column. A row of `blocks` has the columns of `Blocks`;
    # the list grows while it is read. ``ends[depth]`` is how many entries the lines of the blocks
    # of a depth have taken so far.
    blocks = [[n, 0, 0, -1, -1, 0, 0]]
    ends = [0]
    for number, (size, depth, _, _, _, first, _) in enumerate(blocks):
        half = size // 2
        if size <= 2 or size == leaf:
            continue

        # The first cells of the upper half, of the lower half and of the last column.
        upper = first + (2 * half if dilated else half)
        lower = upper + _count_cells(half, dilated)
        out = lower + _count_cells(size - half, dilated)

        # Both halves go to the end of the list, the lower one with the odd line.
        if len(ends) == depth + 1:
            ends.append(0)
        halves = []
        for lines, start in ((half, upper), (size - half, lower)):
            halves.append(len(blocks))
            blocks.append([lines, depth + 1, ends[-1], -1, -1, start, start])
            ends[-1] += lines + lines % 2
        blocks[number][UPPER] = halves[0]
        blocks[number][LOWER] = halves[1]
        blocks[number][OUT] = out
    table = np.array(blocks, dtype=np.int64)
    table.flags.writeable = False
    return Blocks(table, _count_cells(n, dilated), max(*ends, n + n % 2))


@lru_cache(maxsize=512)
def _count_cells(n: int, dilated: bool) -> int:
    """Count the cells of a network of n lines.

    With c(n) cells: c(n) = 2 * floor(n / 2) + c(floor(n / 2)) + c(ceil(n / 2)), the outer columns
    and both halves; a dilated network has twice as many cells in its outer columns.
    """
    if n <= 2 and dilated:
        return 1 if n == 1 else 4
    if n <= 2:
        return n - 1
    half = n // 2
    in_outer_columns = 4 * half if dilated else 2 * half
    return in_outer_columns + _count_cells(half, dilated) + _count_cells(n - half, dilated)


class Tables(NamedTuple):
    """The states of small blocks, whose walks would be too short to be predicted.

    Rows of states have an entry for each cell of the block: 0 bar, 1 cross, -1 without light. A
    permutation of eight lines is found in two steps: in lexicographic order, its first four
    outputs say where the 24 permutations that begin so are, and its last four which of them it is.
    """

    fours: NDArray[np.int8]
    """(625, 6) ``fours[matching, cell]``, for matchings of four lines, idle ones too: the digits
    of a matching are its outputs plus 1, to base 5. Rows of no matching are of no use."""
    eights: NDArray[np.int8]
    """(40320, 20) ``eights[head + tail, cell]``, for permutations of eight lines, all in use."""
    heads: NDArray[np.int32]
    """(4096,): ``heads[outputs]``, by the outputs of lines 0 to 3, of which line k has digit k to
    base 8, the lowest one first: where permutations that begin so are."""
    tails: NDArray[np.int32]
    """(4096,): ``tails[outputs]``, by the outputs of lines 4 to 7 likewise: where among those the
    permutations are that end so."""


_NO_TABLES = Tables(
    fours=np.empty((0, 6), dtype=np.int8),
    eights=np.empty((0, 20), dtype=np.int8),
    heads=np.empty(0, dtype=np.int32),
    tails=np.empty(0, dtype=np.int32),
)


@lru_cache(maxsize=1)
def _route_all_fours() -> Tables:
    """Route all matchings of four lines, idle ones too; rows of states by digits to base 5.

    A digit is an output plus 1, 0 for an idle line. Numbers whose digits are no matching, as two
    lines have the same output, are routed as no light.

    Example: line 0 alone, to output 2, is row 2 + 1 = 3; line 1 alone, to output 0, is row 1 * 5 =
    5.
    """
    digits = np.arange(5**4)[:, None] // 5 ** np.arange(4) % 5 - 1
    for row in digits:
        lit = row[row >= 0]
        if len(set(lit.tolist())) < len(lit):
            row[:] = -1
    return _NO_TABLES._replace(
        fours=_route_on_blocks(network(4), _NO_TABLES, digits.astype(np.int32))
    )


@lru_cache(maxsize=1)
def _route_all_eights() -> Tables:
    """Route all permutations of eight lines, in lexicographic order, and those of four.

    A permutation is found by two numbers: the place of the 24 permutations with its first four
    outputs, and its own place among those, by its last four outputs; both are digits to base 8.
    """
    rows = np.array(list(permutations(range(8))), dtype=np.int32)
    heads, tails = (np.zeros(8**4, dtype=np.int32) for _ in range(2))
    order = np.arange(len(rows))
    digits = 8 ** np.arange(4)
    heads[rows[:, :4] @ digits] = order // 24 * 24
    tails[rows[:, 4:] @ digits] = order % 24
    fours = _route_all_fours()
    return Tables(
        fours=fours.fours,
        eights=_route_on_blocks(network(8, leaf=4), fours, rows),
        heads=heads,
        tails=tails,
    )


def route_loops(matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route matchings on a Benes network; the first cell of each loop is in bar.

    ``matchings[k, input]`` is an output, -1 where idle. Returns ``states[k, cell]``: 0 bar, 1
    cross, -1 where no light passes. O(n log n) for each matching of n lines, without recursion.
    Blocks of four lines, and of eight where all are in use, are looked up in tables.
    """
    n = matchings.shape[1]
    if n >= 8 and matchings.min(initial=0) >= 0:
        return _route_on_blocks(network(n, leaf=8), _route_all_eights(), matchings)
    return _route_on_blocks(network(n, leaf=4), _route_all_fours(), matchings)


def route_dilated(matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route matchings on a dilated Benes network; no two circuits share a cell.

    ``matchings[k, input]`` is an output, -1 where idle; returns ``states[k, cell]`` as
    `route_loops` does. The network has the blocks of a Benes network, hence the same walks tell
    which half each circuit goes to. Each circuit is then followed through cells of its own.
    """
    n = matchings.shape[1]
    narrow = network(n)
    wide = network(n, dilated=True)
    halves = _route_on_blocks(narrow, _NO_TABLES, matchings)
    states = np.full((len(matchings), wide.cells), FREE, dtype=np.int8)
    follow_dilated(narrow.blocks, wide.blocks, matchings, halves, states)
    return states


def _route_on_blocks(
    net: Blocks, tables: Tables, matchings: NDArray[np.int32]
) -> NDArray[np.int8]:
    """Route matchings, int32 of shape (k, lines), on the blocks of a Benes network.

    `tables` has the states of blocks of four and eight lines that `net` leaves whole. Returns the
    states as of `route_loops`.
    """
    states = np.empty((len(matchings), net.cells), dtype=np.int8)
    lines = np.empty(4 * net.width, dtype=np.int32)
    unsigned_lines = lines.view(np.uint32)
    loop_blocks(net.blocks, tables, matchings, states, lines, unsigned_lines)
    return states


# Kernels keep all lines in one array and all states in another, since each view of an array that
# a loop makes costs as much as several lines. The array of lines has shape (4 * width,): two
# depths, which change their roles from depth to depth, each with `width` entries for inputs and as
# many for outputs. ``lines[forth + i]`` is the output of the line at input i of a block, -1 for
# none and for one that is settled; ``lines[back + o]`` is the input of output o.
class BlockPlace(NamedTuple):
    """Where a block stands in the arrays of lines and of states; all fields are numbers."""

    forth: int
    """Where its inputs begin in `lines`."""
    back: int
    """Where its outputs begin in `lines`."""
    pairs: int
    """Half the number of its lines, rounded down: the cells of each outer column."""
    first: int
    """The first cell of its first column in `states`."""
    last: int
    """The first cell of its last column in `states`."""
    upper: int
    """Where the inputs of its upper half begin in `lines`."""
    lower: int
    """Where the inputs of its lower half begin in `lines`."""
    width: int
    """How many entries after the inputs of a half its outputs begin."""


@inner_kernel
def _settle_loop(i, side, lines, states, block: BlockPlace):
    """Settle lines from input i on, which goes to half `side`, until the loop ends.

    `side` is 0 for the upper half, 1 for the lower one. To settle a line is to set its cells in
    the outer columns, ``states[cell]``, and to write its input and its output into its half. Both
    are entries of `lines`: the output of input i of the block is ``lines[block.forth + i]``, and
    becomes -1 once it is settled. A loop ends where it comes to a line that is settled, or idle.

    In the example of the module, from input 0 and the upper half, lines 0, 2, 3 and 1 are settled
    in this order.
    """
    # The cell of inputs 2 k and 2 k + 1 leads to line k of each half. In bar (0) the even input
    # goes to the upper half (side 0) and the odd one to the lower half (1); cross is the reverse.
    pairs = block.pairs
    half = block.lower if side else block.upper
    other_half = block.upper if side else block.lower
    while True:
        o = lines[block.forth + i]
        if o < 0:
            return

        # Settle this line. An odd last line has no cell in the outer columns.
        lines[block.forth + i] = -1
        lines[half + (i >> 1)] = o >> 1
        lines[half + block.width + (o >> 1)] = i >> 1
        if i >> 1 < pairs:
            states[block.first + (i >> 1)] = (i & 1) ^ side
        if o >> 1 < pairs:
            states[block.last + (o >> 1)] = (o & 1) ^ side

        # Settle the line that shares a cell of the last column with it: it goes to the other half.
        # An odd last output has no such line: the entry behind it belongs to no line, and is -1.
        o ^= 1
        i = lines[block.back + o]
        if i < 0:
            return
        lines[block.forth + i] = -1
        lines[other_half + (i >> 1)] = o >> 1
        lines[other_half + block.width + (o >> 1)] = i >> 1
        if i >> 1 < pairs:
            states[block.first + (i >> 1)] = (i & 1) ^ 1 ^ side

        # The line that shares a cell of the first column with this one goes to half `side` again.
        i ^= 1


@inner_kernel
def _settle_block(lines, states, block: BlockPlace):
    """Settle a block with an even number of lines that are all in use: every loop comes round.

    Writes ``states[cell]`` of the outer columns, which are -1 before, and the lines of both halves
    into `lines`. The entries of `lines` are whole numbers without sign: as indices these need no
    check whether they count from the end, which is a third of the work here.

    For example, four lines go from inputs 0, 1, 2, 3 to outputs 0, 2, 1, 3::

               first column                       last column
        0 ----+-----------+---- upper, line 0 ----+-----------+---- 0
              | 0:  bar   |                       | 0:  bar   |
        1 ----+-----------+---- lower, line 0 ----+-----------+---- 1
        2 ----+-----------+---- upper, line 1 ----+-----------+---- 2
              | 1: cross  |                       | 1: cross  |
        3 ----+-----------+---- lower, line 1 ----+-----------+---- 3

    There is one loop, settled in two steps of an upper and a lower line each: inputs 0 and 2, then
    inputs 3 and 1. Within `lines`, with a width of 4, the entries are::

        place   0  1  2  3     4  5  6  7     8  9   10 11    12 13   14 15
        entry   0  2  1  3     0  2  1  3     0  1    1  0     0  1    1  0
                forth          back           upper  lower    upper  lower
                outputs of     inputs of      outputs of      inputs of
                the block's    the block's    the halves'     the halves'
                inputs         outputs        inputs          outputs

    A depth of halving has two parts of `lines`, and the next depth the other two.
    """
    # Each loop begins at its topmost input, which is even, and goes to the upper half. Each step
    # settles one line of either half: the upper one from i to o, and the lower one, which shares
    # the cell of output o.
    #
    # Only the upper line sets states. A cell of an outer column sends its two lines to different
    # halves, so that its state follows from either of them. The last cell of the lower line is the
    # one of output o. Its first cell is shared with the upper line of the next step, which sets
    # it; at the end of the loop that is the line with which the loop began.
    forth = np.uint64(block.forth)
    back = np.uint64(block.back)
    first = np.uint64(block.first)
    last = np.uint64(block.last)
    upper = np.uint64(block.upper)
    lower = np.uint64(block.lower)
    width = np.uint64(block.width)
    one = np.uint64(1)

    # A loop that is settled already has a state in its first cell.
    for k in range(block.pairs):
        i = np.uint64(2 * k)
        while states[first + (i >> one)] < 0:
            o = np.uint64(lines[forth + i])
            input_of_half = i >> one
            output_of_half = o >> one
            states[first + input_of_half] = i & one
            states[last + output_of_half] = o & one
            lines[upper + input_of_half] = output_of_half
            lines[upper + width + output_of_half] = input_of_half

            # The line that shares the cell of output o goes to the lower half.
            i = np.uint64(lines[back + (o ^ one)])
            input_of_half = i >> one
            lines[lower + input_of_half] = output_of_half
            lines[lower + width + output_of_half] = input_of_half
            i ^= one


@inner_kernel
def _find_eight(line, heads, tails, lines):
    """Return the place of a permutation of eight lines in the table of their states.

    Its outputs are ``lines[line]`` to ``lines[line + 7]``. ``heads[outputs]`` tells where the
    permutations with the outputs of lines 0 to 3 begin, by these as digits to base 8, the lowest
    first; ``tails[outputs]`` which of them has the outputs of lines 4 to 7, by these likewise. The
    identity, outputs 0 to 7, has the head 0 + 1 * 8 + 2 * 64 + 3 * 512, and the place 0.
    """
    # An output takes three bits, the lines 0 to 3 and 4 to 7 twelve bits each.
    head = np.uint64(0)
    tail = np.uint64(0)
    for k in range(4):
        head |= np.uint64(lines[line + np.uint64(k)]) << np.uint64(3 * k)
        tail |= np.uint64(lines[line + np.uint64(k + 4)]) << np.uint64(3 * k)
    return np.uint64(heads[head] + tails[tail])


@inner_kernel
def _set_pair(lines, place, states, cell):
    """Set the cell of a block of two lines, unless both are idle.

    Writes ``states[cell]``, 0 bar or 1 cross; ``lines[place + i]`` is the output of input i, 0 or
    1, and -1 if it is idle.
    """
    # In bar light leaves by the place, upper or lower, by which it entered: the state is the
    # output of input 0, or the other one than that of input 1.
    if lines[place] >= 0:
        states[cell] = lines[place]
    elif lines[place + 1] >= 0:
        states[cell] = 1 - lines[place + 1]


@inlined_kernel
def _settle_with_idle_lines(size, lines, states, block: BlockPlace):
    """Set the outer columns of a block of three or more lines, and fill in its halves.

    `size` is the number of its lines, which may be idle. ``lines[block.forth + i]`` is the output
    of input i, -1 if it is idle; the lines of both halves and ``states[cell]`` are written.
    """
    # With an odd number of lines, the last input leads to the lower half (1) without a cell, as
    # does the last output. The loops of both have no choice, and are settled first. The circuit of
    # the last output, from some input i, may not be on the loop of the last input: it goes to the
    # lower half, and the one from ``i ^ 1``, which shares a cell with it, to the upper half (0).
    # This loop is followed from both.
    if size & 1:
        _settle_loop(size - 1, 1, lines, states, block)
        i = lines[block.back + size - 1]
        if i >= 0:
            _settle_loop(i, 1, lines, states, block)
            _settle_loop(i ^ 1, 0, lines, states, block)

    # A loop may end at idle lines: it is followed from its topmost cell both ways.
    for k in range(block.pairs):
        _settle_loop(2 * k, 0, lines, states, block)
        _settle_loop(2 * k + 1, 1, lines, states, block)


@kernel
def loop_blocks(blocks, tables: Tables, matchings, all_states, lines, unsigned_lines):
    """Route matchings by looping, block by block from the whole network to its smallest parts.

    ``matchings[row, input]`` is an output, -1 if idle; ``all_states[row, cell]`` is written.
    ``blocks[number, SIZE ... OUT]`` are those of `Blocks`, and `tables` has the states of blocks
    that are not divided. `lines` and `unsigned_lines` are scratch: the same memory, as int32 and
    as uint32 of shape (4 * width,). One half of it has the lines of the blocks of the present
    depth, the other half receives those of the next depth.
    """
    n = matchings.shape[1]
    cells = all_states.shape[1]
    width = len(lines) // 4
    states = all_states.reshape(-1)
    fours, eights, heads, tails = tables
    states[:] = -1
    for row in range(len(matchings)):
        # The lines of the whole network: the output of each input, and the input of each output.
        lines[: 2 * width] = -1
        lit = 0
        for i in range(n):
            o = matchings[row, i]
            if o >= 0:
                lit += 1
                lines[i] = o
                lines[width + o] = i

        # Blocks follow by depth, each before its halves.
        depth = -1
        present_depth = 0  # where the lines of the present depth begin in `lines`
        next_depth = 2 * width  # the same of the next depth
        for number in range(len(blocks)):
            size = blocks[number, SIZE]
            first = row * cells + blocks[number, IN]

            # The first block of a depth: the lines that were written become those to be read. The
            # entries of the next depth are cleared where some may not be written: those of idle
            # lines, and of wires that are left over where a number of lines is odd. Only with
            # light everywhere and a power of two are there none of either.
            if blocks[number, DEPTH] > depth:
                depth = blocks[number, DEPTH]
                present_depth = 2 * width * (depth & 1)
                next_depth = 2 * width - present_depth
                if lit < n or n & (n - 1) > 0:
                    lines[next_depth : next_depth + 2 * width] = -1
            place = present_depth + blocks[number, PLACE]

            # Small blocks are looked up: the outputs of their lines are the digits of a number.
            # A digit to base 5 is an output plus 1, as idle lines have -1; all four ones that are
            # added come to 1 + 5 + 25 + 125 = 156.
            if blocks[number, UPPER] < 0:
                if size == 8:
                    entry = _find_eight(np.uint64(place), heads, tails, unsigned_lines)
                    cell = np.uint64(first)
                    for k in range(20):
                        states[cell + np.uint64(k)] = eights[entry, np.uint64(k)]
                elif size == 4:
                    entry = 156 + lines[place] + 5 * lines[place + 1]
                    entry += 25 * lines[place + 2] + 125 * lines[place + 3]
                    for k in range(6):
                        states[first + k] = fours[entry, k]
                elif size == 2:
                    _set_pair(lines, place, states, first)
                continue

            # Larger blocks are settled, which leaves a smaller matching for each half.
            block = BlockPlace(
                forth=place,
                back=place + width,
                pairs=size >> 1,
                first=first,
                last=row * cells + blocks[number, OUT],
                upper=next_depth + blocks[blocks[number, UPPER], PLACE],
                lower=next_depth + blocks[blocks[number, LOWER], PLACE],
                width=width,
            )
            if lit == n and size & 1 == 0:
                _settle_block(unsigned_lines, states, block)
                continue
            _settle_with_idle_lines(size, lines, states, block)


@kernel
def follow_dilated(narrow, wide, matchings, halves, states):
    """Follow circuits through a dilated network, to the halves that a Benes network took them to.

    `narrow` are the `Blocks.blocks` of the Benes network (columns SIZE ... OUT) and ``halves[row,
    cell]`` its states, `wide` those of the dilated one. The blocks of both networks have the same
    numbers; ``matchings[row, source]`` is an output, -1 if idle. ``states[row, cell]`` receives
    the states where light passes; the others stay as they are.
    """
    for row in range(len(matchings)):
        for source in range(matchings.shape[1]):
            i = source
            o = matchings[row, source]
            if o < 0:
                continue
            wire_in = 0  # of the two wires of a line, the one with light, at the input
            wire_out = 0  # the same at the output
            number = 0

            # In each block, i and o are the input and the output of the circuit, and become those
            # of a half. The state of the cell at input i of the Benes network says which half.
            while narrow[number, UPPER] >= 0:
                pairs = narrow[number, SIZE] >> 1
                side = 1
                if i >> 1 < pairs:
                    side = halves[row, narrow[number, IN] + (i >> 1)] ^ (i & 1)
                    states[row, wide[number, IN] + i] = wire_in ^ side
                    wire_in = i & 1
                if o >> 1 < pairs:
                    states[row, wide[number, OUT] + o] = side ^ wire_out
                    wire_out = o & 1
                i = i >> 1
                o = o >> 1
                number = narrow[number, LOWER if side else UPPER]

            # The smallest blocks: one line passes one cell; of two lines, each input has one of
            # the cells first and first + 1, each output one of the two after them.
            first = wide[number, IN]
            if narrow[number, SIZE] == 1:
                states[row, first] = wire_in ^ wire_out
            else:
                states[row, first + i] = wire_in ^ o
                states[row, first + 2 + o] = i ^ wire_out
