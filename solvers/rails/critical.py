"""The critical path of a schedule, and the communications on it that wait for circuits.

The words are those of `optmatch.solvers.rails.decoder`: a node is a computation, or one
communication of several seats (GPUs of a rail). As in local search for the job shop (van
Laarhoven, Aarts and Lenstra 1992), a schedule with given rings is made shorter only by exchanges
on its critical path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.rails.seats import Seats

_TIE = 1e-12
"""Times that differ by less than this part of the step are the same: ends and starts are sums of
the same numbers, but for the delay of a change."""


class ScheduleTimes(NamedTuple):
    """When the nodes of a schedule start and end, in seconds; shape (nodes,) each."""

    start_s: NDArray[np.float64]
    """``start_s[node]``."""
    end_s: NDArray[np.float64]
    """``end_s[node]``."""


class Blocked(NamedTuple):
    """A communication on the critical path that waits for the circuits of another one."""

    node: int
    """The communication that waits."""
    blocker: int
    """The communication that it waits for."""
    ready_s: float
    """When the communication could have started but for its circuits, in seconds."""
    blocker_start_s: float
    """When the other one starts, in seconds."""


class CriticalPaths:
    """Finds critical paths of schedules of one step.

    Attributes
    ----------
    seats
        The folded step.
    """

    def __init__(self, seats: Seats) -> None:
        """List for each node the nodes that it waits for."""
        self.seats = seats
        n_nodes = len(seats.how)

        # Pairs by the node that waits: those of one node stand together.
        by_later = np.argsort(seats.pairs[:, 1], kind="stable")
        self._former = seats.pairs[by_later, 0].copy()
        later = seats.pairs[by_later, 1]
        self._first_former = np.searchsorted(later, np.arange(n_nodes + 1))

        # By seat the node whose members were marked last: scratch of the walks.
        self._mark = np.empty(len(seats.rail), np.int64)

    def list_blocked(self, times: ScheduleTimes, delay_s: float) -> list[Blocked]:
        """List pairs on the critical path of which one waits for the circuits of the other.

        The step may get shorter if the two change places. Which circuits a communication uses is
        not known here: its blocker is one that ends when it starts, or `delay_s` earlier,
        preferably one with a common seat. Pairs stand from the end of the step to its start.
        `delay_s` is in seconds, infinite if circuits never change.
        """
        # Communications by their ends, so that the one that ends at a moment is found by search.
        riding = self.seats.riding
        by_end = riding[np.argsort(times.end_s[riding], kind="stable")]

        # At most as many pairs as communications are written. An infinite delay becomes a finite
        # one, longer than any step: the kernel subtracts it from times.
        tie_s = _TIE * float(times.end_s.max(initial=0.0))
        pairs = np.empty((len(riding), 2), np.int64)
        ready_s = np.empty(len(riding))
        n_pairs = _walk_back(
            (times.start_s, times.end_s),
            (self._first_former, self._former),
            (self.seats.begin, self.seats.member, self._mark),
            (by_end, times.end_s[by_end]),
            (min(delay_s, 1e300), tie_s),
            (pairs, ready_s),
        )
        return [
            Blocked(node, blocker, ready, float(times.start_s[blocker]))
            for (node, blocker), ready in zip(
                pairs[:n_pairs].tolist(), ready_s[:n_pairs].tolist(), strict=True
            )
        ]


@kernel
def _walk_back(times, formers, members, communications, limits, blocked):
    """Walk back along the critical path, and write down the nodes that wait for circuits.

    From a node the walk goes to the latest node that it waits for, if that ends when the node
    starts; else to a communication whose circuits it may have taken over, preferably one with a
    common seat; others count, as data may pass through other seats. With a delay of 2 s, a node
    that is ready at 5 s and starts at 9 s may have waited for one that ends at 9 s or at 7 s: both
    nodes and 5 s are written. The cost is O(path * log(communications)), and the members of those
    that end at the same time.

    Parameters
    ----------
    formers : (first_former, former)
        Node k waits for the nodes ``former[first_former[k]:first_former[k + 1]]``.
    members : (begin, member, mark)
        Node k has the seats ``member[begin[k]:begin[k + 1]]``; ``mark[seat]`` is scratch.
    communications : (by_end, end_s)
        The nodes that ride a rail, sorted by their ends, and these ends in seconds.
    limits : (delay_s, tie_s)
        The delay of a change, and by how much equal times may differ, in seconds.
    blocked : (pairs, ready_s)
        Written: rows (node, blocker), and when the node is ready but for circuits, in seconds.
        Their number is returned.
    """
    start_s, end_s = times
    first_former, former = formers
    by_end, sorted_ends_s = communications
    delay_s, tie_s = limits
    begin, member, mark = members
    mark[:] = -1
    pairs, ready_s = blocked
    n_pairs = 0

    # The path ends with the node that ends last.
    node = end_s.argmax()
    while True:
        # The latest of the nodes that it waits for. If it ends when this one starts, the path goes
        # on there.
        latest = -1
        latest_s = 0.0
        for place in range(first_former[node], first_former[node + 1]):
            if end_s[former[place]] > latest_s:
                latest = former[place]
                latest_s = end_s[latest]
        if latest >= 0 and latest_s >= start_s[node] - tie_s:
            node = latest
            continue

        # Else a communication that ends when the circuits of this one are free: at its start, or
        # the delay of a change earlier. The last one is found by binary search among the ends;
        # those before it that end at the same time are looked at until one has a common seat. The
        # node itself does not count.
        for position in range(begin[node], begin[node + 1]):
            mark[member[position]] = node
        blocker = -1
        has_common_seat = False
        for gap_s in (0.0, delay_s):
            # `freed_s` is when its ports would have become free, with or without a change.
            freed_s = start_s[node] - gap_s
            place = np.searchsorted(sorted_ends_s, freed_s + tie_s, side="right") - 1
            while place >= 0 and abs(sorted_ends_s[place] - freed_s) <= tie_s:
                if has_common_seat:
                    break
                candidate = by_end[place]
                place -= 1
                if candidate == node:
                    continue
                has_common_seat = _has_marked_member(members, candidate, node)
                if blocker < 0 or has_common_seat:
                    blocker = candidate

        # The path ends where nothing explains the start of the node, or at the start of the step.
        if blocker < 0 or start_s[node] <= tie_s or n_pairs == len(pairs):
            return n_pairs
        pairs[n_pairs, 0] = node
        pairs[n_pairs, 1] = blocker
        ready_s[n_pairs] = latest_s
        n_pairs += 1
        node = blocker


@inner_kernel
def _has_marked_member(members, node, marked):
    """Tell whether a member of a communication has the mark `marked`."""
    begin, member, mark = members
    for position in range(begin[node], begin[node + 1]):
        if mark[member[position]] == marked:
            return True
    return False
