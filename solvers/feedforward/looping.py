"""Benes networks, routed by looping: every circuit goes to one of two halves, and so on inside.

Two circuits that share a cell of the first column, or one of the last, go to different halves.
Thus circuits hang together in *loops*: partners at the inputs, partners at the outputs, in turn.
One pass round a loop settles it, and in which of its two directions is a free choice; here its
topmost cell of the first column is in bar (`choosing` looks for the best choice). Only the loop of
an odd wire has no choice, since that wire leads to the lower half. The halves are networks again
[1]_.

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
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

SIZE, DEPTH, PLACE, UPPER, LOWER, IN, OUT = range(7)
"""Columns of `Blocks.blocks`: lines; halvings before it; where its lines stand in the workspace;
the blocks of its halves, -1 for none; the first cell of its first and of its last column."""


class Blocks(NamedTuple):
    """The blocks of a network, the whole first, then its halves, their halves, and so on."""

    blocks: NDArray[np.int64]
    cells: int
    width: int  # entries for the lines of all blocks of one depth; odd ones have a gap after them


@lru_cache(maxsize=64)
def network(n: int, *, dilated: bool = False, leaf: int = 2) -> Blocks:
    """Divide a network into blocks, its cells numbered as those of `Benes`, `DilatedBenes`.

    In a dilated one each line is a pair of wires. Blocks of `leaf` lines are left whole, for those
    who look them up.
    """
    blocks = [[n, 0, 0, -1, -1, 0, 0]]
    ends = [0]
    for number, (size, depth, _, _, _, first, _) in enumerate(blocks):
        half = size // 2
        if size <= 2 or size == leaf:
            continue
        upper = first + (2 * half if dilated else half)
        lower = upper + _count(half, dilated)
        out = lower + _count(size - half, dilated)
        if len(ends) == depth + 1:
            ends.append(0)
        halves = []
        for lines, start in ((half, upper), (size - half, lower)):
            halves.append(len(blocks))
            blocks.append([lines, depth + 1, ends[-1], -1, -1, start, start])
            ends[-1] += lines + lines % 2
        blocks[number][UPPER], blocks[number][LOWER], blocks[number][OUT] = *halves, out
    table = np.array(blocks, dtype=np.int64)
    table.flags.writeable = False
    return Blocks(table, _count(n, dilated), max(*ends, n + n % 2))


@lru_cache(maxsize=512)
def _count(n: int, dilated: bool) -> int:
    """Count the cells of a network of n lines."""
    half = n // 2
    if n <= 2:
        return (1, 4)[n - 1] if dilated else n - 1
    return (4 if dilated else 2) * half + _count(half, dilated) + _count(n - half, dilated)


class Tables(NamedTuple):
    """The states of small blocks, whose walks would be too short to be predicted."""

    fours: NDArray[np.int8]
    """``fours[matching]``: of four lines, idle ones too; digits of a matching are its outputs plus
    1, to base 5."""
    eights: NDArray[np.int8]  # ``eights[head + tail]``: of eight lines, all in use
    heads: NDArray[np.int32]
    """``heads[outputs]``, four digits to base 8: where permutations that begin so are."""
    tails: NDArray[np.int32]  # ``tails[outputs]``: where among them those are that end so


_NO_TABLES = Tables(
    fours=np.empty((0, 6), dtype=np.int8),
    eights=np.empty((0, 20), dtype=np.int8),
    heads=np.empty(0, dtype=np.int32),
    tails=np.empty(0, dtype=np.int32),
)


@lru_cache(maxsize=1)
def _fours() -> Tables:
    """Route all matchings of four lines."""
    digits = np.arange(5**4)[:, None] // 5 ** np.arange(4) % 5 - 1
    for row in digits:
        lit = row[row >= 0]
        if len(set(lit.tolist())) < len(lit):
            row[:] = -1
    return _NO_TABLES._replace(fours=_run(network(4), _NO_TABLES, digits.astype(np.int32)))


@lru_cache(maxsize=1)
def _eights() -> Tables:
    """Route all permutations of eight lines, in lexicographic order."""
    rows = np.array(list(permutations(range(8))), dtype=np.int32)
    heads, tails = (np.zeros(8**4, dtype=np.int32) for _ in range(2))
    order = np.arange(len(rows))
    digits = 8 ** np.arange(4)
    heads[rows[:, :4] @ digits] = order // 24 * 24
    tails[rows[:, 4:] @ digits] = order % 24
    fours = _fours()
    return Tables(fours.fours, _run(network(8, leaf=4), fours, rows), heads, tails)


def route_loops(matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route matchings on a Benes network; the first cell of each loop is in bar.

    Time O(n log n) for each matching, without recursion. Blocks of four lines, and of eight where
    all are in use, are looked up in tables.
    """
    n = matchings.shape[1]
    if n >= 8 and matchings.min(initial=0) >= 0:
        return _run(network(n, leaf=8), _eights(), matchings)
    return _run(network(n, leaf=4), _fours(), matchings)


def route_dilated(matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route matchings on a dilated Benes network; no two circuits share a cell.

    The network has the blocks of a Benes network, so the same walks tell which half each circuit
    goes to. Each circuit is then followed through cells of its own.
    """
    n = matchings.shape[1]
    narrow = network(n)
    wide = network(n, dilated=True)
    halves = _run(narrow, _NO_TABLES, matchings)
    states = np.full((len(matchings), wide.cells), FREE, dtype=np.int8)
    widen(narrow.blocks, wide.blocks, matchings, halves, states)
    return states


def _run(net: Blocks, tables: Tables, matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    states = np.empty((len(matchings), net.cells), dtype=np.int8)
    space = np.empty(4 * net.width, dtype=np.int32)
    plain = space.view(np.uint32)
    loop(net.blocks, tables, matchings, states, space, plain)
    return states


# Kernels keep all lines in one array and all states in another, since each view of an array that
# a loop makes costs as much as several lines. ``space[forth + i]`` is the output of the line at
# input i, -1 for none and for one that is settled; ``space[back + o]`` the input of output o. The
# lines of the halves stand `upper` and `upper + beyond` behind `onto`, with those of their outputs
# `width` further on. The cells of the outer columns begin at `first` and `last`.


@inner_kernel
def _walk(i, side, space, states, block):
    """Settle lines from input i on, which goes to half `side`, until the loop ends."""
    forth, back, onto, pairs, first, last, upper, beyond, width = block
    while True:
        o = space[forth + i]
        if o < 0:
            return
        # this line, and below the one with which it shares a cell of the last column
        space[forth + i] = -1
        half = onto + upper + side * beyond
        space[half + (i >> 1)] = o >> 1
        space[half + width + (o >> 1)] = i >> 1
        if i >> 1 < pairs:
            states[first + (i >> 1)] = (i & 1) ^ side
        if o >> 1 < pairs:
            states[last + (o >> 1)] = (o & 1) ^ side
        o ^= 1
        i = space[back + o]
        if i < 0:
            return
        space[forth + i] = -1
        half = onto + upper + (1 - side) * beyond
        space[half + (i >> 1)] = o >> 1
        space[half + width + (o >> 1)] = i >> 1
        if i >> 1 < pairs:
            states[first + (i >> 1)] = (i & 1) ^ 1 ^ side
        i ^= 1


@inner_kernel
def _halve(lines, states, block):
    """Settle an even number of lines that are all in use: every loop comes round.

    `lines` is the space as whole numbers without sign: as indices these need no check whether they
    count from the end, which is a third of the work here.
    """
    forth = np.uint64(block[0])
    back = np.uint64(block[1])
    first = np.uint64(block[4])
    last = np.uint64(block[5])
    upper = np.uint64(block[2] + block[6])
    width = np.uint64(block[8])
    one = np.uint64(1)
    lower = np.uint64(block[2] + block[6] + block[7])
    for k in range(block[3]):
        i = np.uint64(2 * k)
        while states[first + (i >> one)] < 0:
            o = np.uint64(lines[forth + i])
            at = i >> one
            to = o >> one
            states[first + at] = i & one
            states[last + to] = o & one
            lines[upper + at] = to
            lines[upper + width + to] = at
            i = np.uint64(lines[back + (o ^ one)])
            at = i >> one
            lines[lower + at] = to
            lines[lower + width + to] = at
            i ^= one


@inner_kernel
def _find_eight(line, heads, tails, lines):
    """Return the place of a permutation of eight lines in its table, without signs as above."""
    head = tail = np.uint64(0)
    for k in range(4):
        head |= np.uint64(lines[line + np.uint64(k)]) << np.uint64(3 * k)
        tail |= np.uint64(lines[line + np.uint64(k + 4)]) << np.uint64(3 * k)
    return np.uint64(heads[head] + tails[tail])


@inner_kernel
def _write_lines(matching, space, width):
    """Write the lines of the whole network; return how many are in use."""
    lit = 0
    for i in range(len(matching)):
        o = matching[i]
        if o >= 0:
            lit += 1
            space[i] = o
            space[width + o] = i
    return lit


@kernel
def loop(blocks, tables, matchings, all_states, space, plain):
    """Route matchings; arguments as of `route_loops`; the workspace holds two depths.

    `plain` is the space once more, as whole numbers without sign.
    """
    n = matchings.shape[1]
    cells = all_states.shape[1]
    width = len(space) // 4
    states = all_states.reshape(-1)
    fours, eights, heads, tails = tables
    for row in range(len(matchings)):
        for k in range(cells):
            states[row * cells + k] = -1
        for k in range(2 * width):
            space[k] = -1
        lit = _write_lines(matchings[row], space, width)
        depth = -1
        forth = 0
        onto = 2 * width
        for number in range(len(blocks)):
            size = blocks[number, SIZE]
            lines = blocks[number, PLACE]
            first = row * cells + blocks[number, IN]
            last = row * cells + blocks[number, OUT]
            if blocks[number, DEPTH] > depth:
                depth = blocks[number, DEPTH]
                forth = 2 * width * (depth & 1)
                onto = 2 * width - forth
                if lit < n or n & (n - 1) > 0:  # else there is light everywhere
                    for k in range(2 * width):
                        space[onto + k] = -1
            lines += forth
            if blocks[number, UPPER] < 0:
                if size == 8:
                    entry = _find_eight(np.uint64(lines), heads, tails, plain)
                    at = np.uint64(first)
                    for k in range(20):
                        states[at + np.uint64(k)] = eights[entry, np.uint64(k)]
                elif size == 4:
                    entry = 156 + space[lines] + 5 * space[lines + 1]
                    entry += 25 * space[lines + 2] + 125 * space[lines + 3]
                    for k in range(6):
                        states[first + k] = fours[entry, k]
                elif size == 2:
                    if space[lines] >= 0:
                        states[first] = space[lines]
                    elif space[lines + 1] >= 0:
                        states[first] = 1 - space[lines + 1]
                continue
            upper = blocks[blocks[number, UPPER], PLACE]
            beyond = blocks[blocks[number, LOWER], PLACE] - upper
            pairs = size >> 1
            back = lines + width
            block = lines, back, onto, pairs, first, last, upper, beyond, width
            if lit == n and size & 1 == 0:
                _halve(plain, states, block)
                continue
            if size & 1:
                _walk(size - 1, 1, space, states, block)
                i = space[back + size - 1]
                if i >= 0:
                    _walk(i, 1, space, states, block)
                    _walk(i ^ 1, 0, space, states, block)
            for k in range(pairs):
                _walk(2 * k, 0, space, states, block)
                _walk(2 * k + 1, 1, space, states, block)


@kernel
def widen(narrow, wide, matchings, halves, states):
    """Follow circuits through a dilated network, to the halves that a Benes network took them to.

    `narrow` and `wide` are the blocks of both, `halves` the states of the first; `states` of the
    second are written where light passes.
    """
    for row in range(len(matchings)):
        for source in range(matchings.shape[1]):
            i = source
            o = matchings[row, source]
            if o < 0:
                continue
            entered, left = 0, 0  # of the two wires of a line, the one with light
            number = 0
            while narrow[number, UPPER] >= 0:
                pairs = narrow[number, SIZE] >> 1
                side = 1
                if i >> 1 < pairs:
                    side = halves[row, narrow[number, IN] + (i >> 1)] ^ (i & 1)
                    states[row, wide[number, IN] + i] = entered ^ side
                    entered = i & 1
                if o >> 1 < pairs:
                    states[row, wide[number, OUT] + o] = side ^ left
                    left = o & 1
                i = i >> 1
                o = o >> 1
                number = narrow[number, LOWER if side else UPPER]
            first = wide[number, IN]
            if narrow[number, SIZE] == 1:
                states[row, first] = entered ^ left
            else:
                states[row, first + i] = entered ^ o
                states[row, first + 2 + o] = i ^ left
