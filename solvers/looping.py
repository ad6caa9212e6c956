"""Benes networks, routed by looping: every circuit goes to one of two halves, and so on inside.

Two circuits that share a cell of the first column, or one of the last, go to different halves. So
circuits hang together in *loops*: partners at the inputs, partners at the outputs, in turn. One
walk round a loop settles it, and in which of its two directions is a free choice; only the loop of
an odd wire has none, since that wire leads to the lower half. The halves are networks again [1]_.

A loop is named after the cell of the first column where its walk begins, the topmost one with
light of this loop: the choice for that cell is its state. Of a partial matching loops are paths,
and each has its choice all the same.

References
----------
.. [1] Chang and Melhem (1997). Arbitrary size Benes networks. *Parallel Processing Letters* 7,
   279-284. https://doi.org/10.1142/S0129626497000292
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE
from optmatch.solvers.kernel import kernel

SIZE, DEPTH, PLACE, UPPER, LOWER, IN, OUT = range(7)
"""Columns of `Network.blocks`: lines; halvings before it; where its lines stand in a row of room;
the blocks of its halves, -1 for none; the first cell of its first and of its last column."""

_NO_FOURS = np.empty((0, 6), dtype=np.int8)


class Network(NamedTuple):
    """The blocks of a network, the whole first, then its halves, their halves, and so on."""

    blocks: NDArray[np.int64]
    cells: int
    width: int
    """The room that the lines of all blocks of one depth need; odd ones have a gap after them."""


@lru_cache(maxsize=64)
def network(n: int, *, dilated: bool = False, fours: bool = False) -> Network:
    """Divide a network into blocks, its cells numbered as those of `Benes`, `DilatedBenes`.

    Parameters
    ----------
    n
        The number of inputs.
    dilated
        Whether each line is a pair of wires.
    fours
        Whether to leave blocks of four lines whole, for those who look them up.

    Examples
    --------
    >>> network(4).blocks[:, [0, 1, 5, 6]].tolist()
    [[4, 0, 0, 4], [2, 1, 2, 2], [2, 1, 3, 3]]
    """
    blocks = [[n, 0, 0, -1, -1, 0, 0]]
    ends = [0]
    for number, (size, depth, _, _, _, first, _) in enumerate(blocks):
        half = size // 2
        if size <= 2 or (fours and size == 4):
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
    return Network(table, _count(n, dilated), max(*ends, n + n % 2))


@lru_cache(maxsize=512)
def _count(n: int, dilated: bool) -> int:
    """Count the cells of a network of n lines."""
    half = n // 2
    if n <= 2:
        return (1, 4)[n - 1] if dilated else n - 1
    return (4 if dilated else 2) * half + _count(half, dilated) + _count(n - half, dilated)


@lru_cache(maxsize=1)
def _fours() -> NDArray[np.int8]:
    """Route all matchings of four lines, by the number of the matching and of the choices."""
    digits = np.arange(5**4)[:, None] // 5 ** np.arange(4) % 5 - 1
    for row in digits:
        lit = row[row >= 0]
        if len(set(lit.tolist())) < len(lit):
            row[:] = -1
    rows = np.repeat(digits, 4, axis=0).astype(np.int32)
    bits = np.arange(len(rows))[:, None] >> np.arange(2) & 1
    choices = np.zeros((len(rows), 6), dtype=np.int8)
    choices[:, :2] = bits
    return _run(network(4), _NO_FOURS, rows, choices)


def route_loops(
    matchings: NDArray[np.int32], choices: NDArray[np.int8] | None = None
) -> NDArray[np.int8]:
    """Route matchings on a Benes network.

    Parameters
    ----------
    matchings
        ``matchings[k, source] = destination``, -1 where idle; int32, shape (k, n).
    choices
        ``choices[k, cell]``: the state of a cell of a first column, 0 or 1, if it names a loop;
        int8, shape (k, cells), or (1, cells) for all. None for bar.

    Returns
    -------
    NDArray
        ``cell_states[k, cell]``, int8, -1 where no light passes.

    Notes
    -----
    Time O(n log n) for each matching, without recursion. Blocks of four lines are looked up in a
    table: walks there are so short that the processor guesses their ends wrong.

    Examples
    --------
    >>> route_loops(np.array([[1, 2, 0], [-1, 0, -1]], dtype=np.int32)).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _run(network(matchings.shape[1], fours=True), _fours(), matchings, choices)


def route_dilated(matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route matchings on a dilated Benes network; no two circuits share a cell.

    It has the blocks of a Benes network, so the same walks tell which half each circuit goes to.
    Each circuit is then followed through cells of its own.

    Parameters
    ----------
    matchings
        As for `route_loops`.

    Returns
    -------
    NDArray
        ``cell_states[k, cell]``, int8, -1 where no light passes.

    Examples
    --------
    >>> route_dilated(np.array([[1, 0]], dtype=np.int32)).tolist()
    [[1, 0, 1, 0]]
    """
    n = matchings.shape[1]
    narrow, wide = network(n), network(n, dilated=True)
    halves = _run(narrow, _NO_FOURS, matchings, None)
    states = np.full((len(matchings), wide.cells), FREE, dtype=np.int8)
    widen(narrow.blocks, wide.blocks, matchings, halves, states)
    return states


def _run(
    net: Network,
    fours: NDArray[np.int8],
    matchings: NDArray[np.int32],
    choices: NDArray[np.int8] | None,
) -> NDArray[np.int8]:
    if choices is None:
        choices = np.zeros((1, net.cells), dtype=np.int8)
    states = np.empty((len(matchings), net.cells), dtype=np.int8)
    room = np.empty((2, 2, net.width), dtype=np.int32)
    loop(net.blocks, fours, choices, matchings, states, room)
    return states


@kernel
def _walk(i, side, forth, back, onto, ways, state, block):
    """Settle lines from input i on, which goes to half `side`, until the loop ends.

    ``forth[place + input]`` is the output of a line that is not settled, ``back`` the input of an
    output; `onto` and `ways` receive the same of the halves, whose lines stand from `upper` and
    `upper + beyond` on. The columns of `pairs` cells begin at `first` and `last`.
    """
    place, upper, beyond, pairs, first, last = block
    while True:
        o = forth[place + i]
        if o < 0:
            return
        # this line, and below the one with which it shares a cell of the last column
        forth[place + i] = -1
        onto[upper + side * beyond + (i >> 1)] = o >> 1
        ways[upper + side * beyond + (o >> 1)] = i >> 1
        if i >> 1 < pairs:
            state[first + (i >> 1)] = (i & 1) ^ side
        if o >> 1 < pairs:
            state[last + (o >> 1)] = (o & 1) ^ side
        o ^= 1
        i = back[place + o]
        if i < 0:
            return
        forth[place + i] = -1
        onto[upper + (1 - side) * beyond + (i >> 1)] = o >> 1
        ways[upper + (1 - side) * beyond + (o >> 1)] = i >> 1
        if i >> 1 < pairs:
            state[first + (i >> 1)] = (i & 1) ^ 1 ^ side
        i ^= 1


@kernel
def loop(blocks, fours, choices, matchings, states, room):
    """Route matchings; arguments as of `route_loops`, with room for two depths of lines."""
    for row in range(len(matchings)):
        state, chosen = states[row], choices[row if len(choices) > 1 else 0]
        state[:] = -1
        room[0] = -1
        for i in range(matchings.shape[1]):
            o = matchings[row, i]
            if o >= 0:
                room[0, 0, i] = o
                room[0, 1, o] = i
        depth = -1
        forth, back, onto, ways = room[0, 0], room[0, 1], room[1, 0], room[1, 1]
        for number in range(len(blocks)):
            size, place = blocks[number, SIZE], blocks[number, PLACE]
            first, last = blocks[number, IN], blocks[number, OUT]
            if blocks[number, DEPTH] > depth:
                depth = blocks[number, DEPTH]
                now = depth & 1
                forth, back = room[now, 0], room[now, 1]
                onto, ways = room[1 - now, 0], room[1 - now, 1]
                for k in range(room.shape[2]):
                    onto[k] = ways[k] = -1
            if size == 1:
                continue
            if size == 2:
                if forth[place] >= 0:
                    state[first] = forth[place]
                elif forth[place + 1] >= 0:
                    state[first] = 1 - forth[place + 1]
                continue
            if blocks[number, UPPER] < 0:  # four lines
                entry = forth[place] + 5 * forth[place + 1] + 25 * forth[place + 2]
                entry += 125 * forth[place + 3] + 156
                entry = 4 * entry + chosen[first] + 2 * chosen[first + 1]
                for k in range(6):
                    state[first + k] = fours[entry, k]
                continue
            upper = blocks[blocks[number, UPPER], PLACE]
            beyond = blocks[blocks[number, LOWER], PLACE] - upper
            block = place, upper, beyond, size >> 1, first, last
            if size & 1:
                _walk(size - 1, 1, forth, back, onto, ways, state, block)
                i = back[place + size - 1]
                if i >= 0:
                    _walk(i, 1, forth, back, onto, ways, state, block)
                    _walk(i ^ 1, 0, forth, back, onto, ways, state, block)
            for k in range(size >> 1):
                side = chosen[first + k]
                _walk(2 * k, side, forth, back, onto, ways, state, block)
                _walk(2 * k + 1, 1 - side, forth, back, onto, ways, state, block)


@kernel
def widen(narrow, wide, matchings, halves, states):
    """Follow circuits through a dilated network, to the halves that a Benes network took them to.

    `narrow` and `wide` are the blocks of both, `halves` the states of the first; `states` of the
    second are written where light passes.
    """
    for row in range(len(matchings)):
        for source in range(matchings.shape[1]):
            i, o = source, matchings[row, source]
            if o < 0:
                continue
            entered, left = 0, 0  # of the two wires of a line, the one with light
            number = 0
            while narrow[number, UPPER] >= 0:
                pairs, side = narrow[number, SIZE] >> 1, 1
                if i >> 1 < pairs:
                    side = halves[row, narrow[number, IN] + (i >> 1)] ^ (i & 1)
                    states[row, wide[number, IN] + i] = entered ^ side
                    entered = i & 1
                if o >> 1 < pairs:
                    states[row, wide[number, OUT] + o] = side ^ left
                    left = o & 1
                i, o = i >> 1, o >> 1
                number = narrow[number, LOWER if side else UPPER]
            first = wide[number, IN]
            if narrow[number, SIZE] == 1:
                states[row, first] = entered ^ left
            else:
                states[row, first + i] = entered ^ o
                states[row, first + 2 + o] = i ^ left
