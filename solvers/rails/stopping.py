"""Times on switches of which no circuit carries data during any change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from optmatch.solvers.rails.paths import Timed


class _Rail:
    """One rail: the end of its change of circuits, and the communications under way."""

    def __init__(self) -> None:
        self.since_s = self.until_s = -1.0
        self.running: set[int] = set()


def stopping_paths(
    duration_s: Sequence[float],
    pairs: Iterable[tuple[int, int]],
    rail_of: Sequence[int],
    first_switch: int,
) -> Timed | None:
    """Start everything as early as it can, where switching stops all that rides a rail.

    As `longest_paths`, with ``rail_of[node]``, the rail that a node rides or changes, -1 if none.
    Nodes from `first_switch` on are changes of circuits: those that begin at the same time are
    one, others wait for each other.
    """
    n = len(duration_s)
    after: list[list[int]] = [[] for _ in range(n)]
    waits, start, end = [0] * n, [0.0] * n, [0.0] * n
    for one, two in pairs:
        after[one].append(two)
        waits[two] += 1
    rails = {rail: _Rail() for rail in set(rail_of)}
    # Order at one moment: ends, starts beside rails, changes of circuits, starts of sends.
    turn = [1 if rail < 0 else 2 + (k < first_switch) for k, rail in enumerate(rail_of)]
    queue = [(0.0, turn[k], k) for k in range(n) if not waits[k]]
    heapify(queue)
    place, done = [0] * n, 0
    while queue:
        now, what, node = heappop(queue)
        rail = rails[rail_of[node]]
        if what == 0:
            if end[node] > now:  # the rail changed circuits in the meantime
                heappush(queue, (end[node], 0, node))
                continue
            place[node], done = done, done + 1
            rail.running.discard(node)
            for later in after[node]:
                waits[later] -= 1
                if not waits[later]:
                    heappush(queue, (now, turn[later], later))
            continue
        if node >= first_switch:
            _stop(rail, now, duration_s[node], end)
            start[node], end[node] = rail.since_s, rail.until_s
        else:
            rides = rail_of[node] >= 0
            start[node] = max(now, rail.until_s) if rides else now
            end[node] = start[node] + duration_s[node]
            if rides:
                rail.running.add(node)
        heappush(queue, (end[node], 0, node))
    return Timed(np.array(start), np.array(end), np.array(place)) if done == n else None


def _stop(rail: _Rail, now: float, delay_s: float, end: list[float]) -> None:
    """Begin to change circuits: now, together with others, or after those under way."""
    if rail.since_s >= now:
        return
    begin = max(now, rail.until_s)
    rail.since_s, rail.until_s = begin, begin + delay_s
    for node in rail.running:
        end[node] += delay_s
