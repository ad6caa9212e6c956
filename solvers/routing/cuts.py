"""Cuts around neighbouring ports: a quick proof that too few links lead out of a corner.

Circuits between some ports and all others leave those ports by ways that share no link. By
Menger's theorem the most such ways are found one by one. They may turn round inside a link here,
which light cannot; so there may be more ways than routes, and too few are a proof all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import kernel
from optmatch.solvers.routing.pathfinder import Wiring

MOST_PORTS = 8
"""More neighbours than this have room enough, on all meshes we know."""


class Cut(NamedTuple):
    """Ports that cannot get enough circuits out."""

    ports: tuple[int, ...]
    ways: int
    """Ways out, to the other ports, that share no link."""
    needed: int
    """Circuits that must get out in some slot."""


class _Room(NamedTuple):
    """Room to work in; a link has a node where light comes in, and one where it goes out."""

    following: NDArray[np.int64]  # (links,): the next link of the way through, -1 for none
    previous: NDArray[np.int64]
    came_from: NDArray[np.int64]  # (2 * links,): in a search
    queue: NDArray[np.int64]


@kernel
def _augment(ends, exits, link, shut, is_start, is_end, room):
    """Find one way more from the starts to the ends; tell whether there was one."""
    following, previous, came_from, queue = room
    came_from[:] = -1
    head = tail = 0
    for start in range(len(following)):
        if is_start[start] and following[start] < 0:
            came_from[2 * start + 1] = 2 * start + 1
            queue[tail] = 2 * start + 1
            tail += 1
    found = -1
    while head < tail:
        node = queue[head]
        head += 1
        at = node >> 1
        if node & 1 == 0:
            if is_end[at] and previous[at] < 0:
                found = node
                break
            # through, or back along the way that comes here already
            onward = node + 1 if previous[at] < 0 else 2 * previous[at] + 1
            if came_from[onward] < 0:
                came_from[onward] = node
                queue[tail] = onward
                tail += 1
            continue
        if previous[at] >= 0 and came_from[node - 1] < 0:
            came_from[node - 1] = node
            queue[tail] = node - 1
            tail += 1
        for end in range(2):
            if ends[at, end] < 0:
                continue
            for state in range(2):
                leaving = exits[ends[at, end], state]
                to = link[leaving]
                if shut[leaving] or is_start[to] or to == following[at] or came_from[2 * to] >= 0:
                    continue
                came_from[2 * to] = node
                queue[tail] = 2 * to
                tail += 1
    if found < 0:
        return False
    node = found
    while came_from[node] != node:
        before = came_from[node]
        at, earlier = node >> 1, before >> 1
        if at != earlier and node & 1 == 0:
            following[earlier] = at
            previous[at] = earlier
        elif at != earlier:  # back: `earlier` no longer follows `at`
            if following[at] == earlier:
                following[at] = -1
            if previous[earlier] == at:
                previous[earlier] = -1
        node = before
    return True


@kernel
def _tight(ends, exits, link, shut, source, target, needed, is_start, is_end, room):
    """Find neighbours out of whom too few ways lead: their first, number, ways; else (-1, 0, 0).

    ``source[k]`` and ``target[k]`` are the links of the ports in their order around the fabric,
    ``needed[first, count]`` the circuits that must leave so many of them from there on.
    """
    n_ports = len(source)
    for count in range(1, needed.shape[1]):
        for first in range(n_ports):
            is_start[:] = False
            is_end[:] = False
            for k in range(n_ports):
                port = (first + k) % n_ports
                if k < count:
                    is_start[source[port]] = True
                else:
                    is_end[target[port]] = True
            room.following[:] = -1
            room.previous[:] = -1
            ways = 0
            while ways < needed[first, count] and _augment(
                ends, exits, link, shut, is_start, is_end, room
            ):
                ways += 1
            if ways < needed[first, count]:
                return first, count, ways
    return -1, 0, 0


class PortCuts:
    """Looks for cuts around neighbouring ports of one fabric, whole or broken.

    Parameters
    ----------
    wiring
        The fabric without faults.
    around
        The ports in their order around it.
    """

    def __init__(self, wiring: Wiring, around: NDArray[np.int64]) -> None:
        self.around = around
        self._source = wiring.link[wiring.source[around]]
        self._target = wiring.link[wiring.target[around]]
        links = len(wiring.ends)
        self._marks = np.zeros(links, dtype=np.bool_), np.zeros(links, dtype=np.bool_)
        self._room = _Room(
            *(np.zeros(size, dtype=np.int64) for size in (links, links, 2 * links, 2 * links))
        )

    def needed_by(self, matchings: NDArray[np.int32]) -> NDArray[np.int64]:
        """Count the circuits that leave neighbours in the worst of some matchings.

        Returns
        -------
        NDArray
            ``needed[first, count]``, for all first places and up to `MOST_PORTS` ports.
        """
        n_ports = len(self.around)
        place = np.append(np.argsort(self.around), -1)  # the last is that of an idle port
        partner = place[matchings[:, self.around]]  # by place, in every matching
        needed = np.zeros((n_ports, min(MOST_PORTS, n_ports - 1) + 1), dtype=np.int64)
        for first, count in np.ndindex(needed.shape):
            inside = (first + np.arange(count)) % n_ports
            leaving = (partner[:, inside] >= 0) & ~np.isin(partner[:, inside], inside)
            needed[first, count] = leaving.sum(axis=1).max(initial=0)
        return needed

    def needed_by_all(self, slots: int) -> NDArray[np.int64]:
        """Count the circuits that leave neighbours in some slot, if all pairs meet in so many."""
        n_ports = len(self.around)
        count = np.arange(min(MOST_PORTS, n_ports - 1) + 1)
        return np.tile(-(-count * (n_ports - count) // max(slots, 1)), (n_ports, 1))

    def find(
        self, wiring: Wiring, shut: NDArray[np.bool_], needed: NDArray[np.int64]
    ) -> Cut | None:
        """Find neighbouring ports whose circuits cannot all get out.

        Parameters
        ----------
        wiring
            With the ways of broken cells.
        shut
            Terminals by which no light leaves a cell.
        needed
            As of `needed_by` or `needed_by_all`.
        """
        first, count, ways = _tight(
            wiring.ends,
            wiring.exits,
            wiring.link,
            shut,
            self._source,
            self._target,
            needed,
            *self._marks,
            self._room,
        )
        if first < 0:
            return None
        ports = self.around[(first + np.arange(count)) % len(self.around)]
        return Cut(tuple(ports.tolist()), int(ways), int(needed[first, count]))
