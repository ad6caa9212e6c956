"""The best plans of tiny rail jobs by trying every order of every port."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, permutations, product
from typing import NamedTuple

import numpy as np

from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.verify.rails.replay import measure_work
from tests.helpers.list_scheduling import list_events

Hops = tuple[tuple[int, int], ...]
"""Circuits that data go over at once, as pairs of ranks."""
Ways = Callable[[Sequence[int]], Sequence[Hops]]
"""Which hops the parts of a communication may take."""


@lru_cache(maxsize=64)
def best_rail(problem: RailJob) -> float | None:
    """Find the least step time, for one port per GPU and switching per circuit.

    A message may go through any ranks of its rail, as long as it passes each once; a collective
    goes straight, as it has to where there are no other ranks.
    """
    return least_step_s(problem, lambda operations: every_way(problem, operations))


def least_step_s(problem: RailJob, ways: Ways) -> float:
    """Find the least step time if data go on one of the ways given.

    One port per GPU, and switching per circuit.

    Every order in which the communications of the whole job can follow one another, every way of
    each, and for every port whom it faces when the step begins: whom it faces first in that order,
    or last. No rank is folded, and only the definition of a step is shared with methods.
    """
    return min(_step_s(problem, choice) for choice in _choices(problem, ways))


def straight_hops(job: RailJob, operations: Sequence[int]) -> Hops:
    """List the hops of a communication whose data go straight."""
    step, found = job.step(), []
    for k in operations:
        rank, members = int(step.rank[k]), step.groups[step.group[k]].ranks
        if step.kind[k] == SEND:
            found.append((rank, int(step.peer[k])))
        elif step.kind[k] != RECV:
            found.append((rank, members[(members.index(rank) + 1) % len(members)]))
    return tuple(found)


def every_way(job: RailJob, operations: Sequence[int]) -> list[Hops]:
    """List all ways of a message through ranks of its rail; of a collective that straight on."""
    straight = straight_hops(job, operations)
    if len(straight) > 1:
        return [straight]
    ((sender, receiver),) = straight
    step = job.step()
    rail = step.groups[step.group[operations[0]]].rail
    ranks = {rank for group in step.groups if group.rail == rail for rank in group.ranks}
    others = sorted(ranks - {sender, receiver})
    return [
        tuple(pairwise((sender, *between, receiver)))
        for length in range(len(others) + 1)
        for between in permutations(others, length)
    ]


class _Event(NamedTuple):
    """Something that happens at once: a computation, or all parts of a communication."""

    parts: list[int]
    lasts_s: float
    late_s: float
    """What each hop adds beyond the first."""
    riding: bool


def _events(job: RailJob) -> tuple[list[_Event], list[set[int]]]:
    """Return the events of a step, and which come before each."""
    step, rail = job.step(), job.step().rail
    work = measure_work(job, np.arange(step.n_operations))
    parts, after, _ = list_events(step)
    before: list[set[int]] = [set() for _ in parts]
    for one, later in enumerate(after):
        for two in later:
            before[two].add(one)
    found = [
        _Event(row, float(work.full_s[row[0]]), float(work.latency_s[row[0]]), rail[row[0]] >= 0)
        for row in parts
    ]
    return found, before


Port = tuple[int, int]
"""A rank and a side: 0 to send, 1 to receive."""


class _Choice(NamedTuple):
    """The choices that decide over all times."""

    before: list[set[int]]
    order: list[int]
    faces: dict[int, dict[Port, int]]
    """Whom the ports that an event uses have to face."""
    lasts_s: list[float]
    first: dict[Port, int]
    """Whom each port faces when the step begins."""


def _faces(hops: Hops) -> dict[Port, int]:
    """Return the partners of ports for these hops."""
    return {port: whom for a, b in hops for port, whom in (((a, 0), b), ((b, 1), a))}


def _choices(job: RailJob, ways: Ways) -> Iterator[_Choice]:
    """Yield an order of events, their hops, and the first partner of each port."""
    events, before = _events(job)
    riding = [k for k, event in enumerate(events) if event.riding]
    orders = list(_orders(before, [event.riding for event in events]))
    for taken in product(*(ways(events[k].parts) for k in riding)):
        faces = {event: _faces(hops) for event, hops in zip(riding, taken, strict=True)}
        lasts = [event.lasts_s for event in events]
        for event, hops in zip(riding, taken, strict=True):
            straight = len(straight_hops(job, events[event].parts))  # all parts have as many
            lasts[event] += (len(hops) // straight - 1) * events[event].late_s
        seen = set[tuple[tuple[Port, tuple[int, ...]], ...]]()
        for order in orders:
            users: dict[Port, list[int]] = {}
            for event in order:
                for port in faces.get(event, {}):
                    users.setdefault(port, []).append(event)
            key = tuple(sorted((port, tuple(row)) for port, row in users.items()))
            if key in seen:
                continue
            seen.add(key)
            options = [
                sorted({faces[row[0]][port], faces[row[-1]][port]}) for port, row in users.items()
            ]
            for first in product(*options):
                at_first = dict(zip(users, first, strict=True))
                yield _Choice(before, order, faces, lasts, at_first)


def _orders(before: list[set[int]], riding: list[bool]) -> Iterator[list[int]]:
    """Yield orders of all events; events on no rail come as soon as they can."""

    def extend(order: list[int], left: set[int]) -> Iterator[list[int]]:
        ready = sorted(event for event in left if not before[event] & left)
        quiet = [event for event in ready if not riding[event]]
        if not left:
            yield order
        for event in quiet[:1] or ready:
            yield from extend([*order, event], left - {event})

    yield from extend([], set(range(len(before))))


def _step_s(job: RailJob, choice: _Choice) -> float:
    """Time one choice."""
    end = [0.0] * len(choice.order)
    free = dict.fromkeys(choice.first, 0.0)
    face = dict(choice.first)
    for event in choice.order:
        start = max((end[one] for one in choice.before[event]), default=0.0)
        facing = choice.faces.get(event, {})
        for port, whom in facing.items():
            start = max(start, free[port] + (job.network.delay_s if face[port] != whom else 0.0))
        end[event] = start + choice.lasts_s[event]
        for port, whom in facing.items():
            free[port], face[port] = end[event], whom
    back = [free[port] + job.network.delay_s for port in free if face[port] != choice.first[port]]
    return max([0.0, *end, *back])
