"""Slices that come to racks and leave them, by one rule of placement."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import OnEvent, Tick, ignore
from optmatch.problems import Allocation, SliceShape
from optmatch.problems.slices.shape import Shape, cut_shape, orient
from optmatch.solvers.slices.pod import NODES, Pod, aligned_blocks, tell_apart
from optmatch.studies.slices.arrivals import Arrival, tenant

JOINED = "optical-joined"
RULES = ("first-fit", "optical", JOINED)
_EVERY = 50  # requests between two reports


class Outcome(NamedTuple):
    """The outcome of the requests."""

    rule: str
    requests: dict[Shape, int]
    rejected: dict[Shape, int]
    only_scattered: dict[Shape, int]
    """Rejected, though in these very racks the optical allocator finds a place."""
    fragmentation: float
    """Mean over requests of the part of the free servers where the slice cannot lie, though their
    rack, or all joined racks, have enough free servers for it."""
    unusable: float
    """As `fragmentation`, but racks with too few free servers for the slice count, too."""
    utilisation: float
    """Mean over time of the part of the servers that are in slices."""
    bandwidth: float
    """Mean over the chips placed of the ports that their rings use, as a part of all ports."""
    hops: float
    """Mean hops of a circuit between servers; over an inter-rack switch it has two."""
    spanning: float
    """Slices on several racks, as a part of those placed."""
    racks: float
    """The mean number of racks of such slices; 0 if there are none."""
    complete: bool
    """False if it was interrupted: the figures are of what came before."""

    @property
    def rejected_part(self) -> float:
        """Rejected requests as a part of all."""
        return sum(self.rejected.values()) / max(1, sum(self.requests.values()))


def replay(
    fabric: RackFabric,
    arrivals: Sequence[Arrival],
    rule: str,
    *,
    probe: bool = False,
    warm_up: float = 0.0,
    on_event: OnEvent = ignore,
) -> Outcome:
    """Let slices come and go; one that finds no place is rejected.

    A free server counts as usable for a request if some free aligned block holds it or, with the
    optical allocator, if the slice can be placed in its rack at all. In joined racks, of those
    that no block holds one is drawn at random, and stands for all: it is usable if a slice that
    takes it is found. So the mean is unbiased.

    Parameters
    ----------
    rule
        ``"first-fit"`` or ``"optical"``; see
        `optmatch.solvers.slices.pod.Pod.allocate`. Blocks have the bandwidth of fixed torus
        links, the optical allocator steers. ``"optical-joined"``: optical, and the racks joined.
    probe
        Whether to ask, of each request that is rejected, if scattered servers would do.
    warm_up
        The first requests, as a part of all, that fill the racks and are not counted.
    """
    run = _Replay(join_racks(fabric, rule), rule, probe)
    complete = True
    try:
        for number, arrival in enumerate(arrivals):
            if number % _EVERY == 0:
                on_event(Tick(rule, number, len(arrivals)))
            if number == int(warm_up * len(arrivals)):
                run.count_from(arrival.time)
            run.request(arrival)
    except KeyboardInterrupt:
        complete = False
    return run.outcome(complete)


def join_racks(fabric: RackFabric, rule: str) -> RackFabric:
    """Return the racks that a rule is about."""
    return replace(fabric, joined=True) if rule == JOINED else fabric


def count_usable(
    pod: Pod,
    plans: list[SliceShape],
    places: Callable[[int, list[SliceShape]], bool] | None = None,
    *,
    rng: np.random.Generator | None = None,
    samples: int = 1,
) -> tuple[float, int]:
    """Count the free servers where a slice can lie, and those of racks with enough of them.

    `plans` are the slice in each way to turn it. `places` tells whether scattered servers of a
    rack can hold it; None where only blocks count. Of joined racks, `rng` draws so many `samples`
    of the servers that no block holds; as large a part of them all counts as usable.
    """
    free = pod.free.reshape(pod.fabric.racks, -1)
    usable = np.zeros_like(free)
    for plan in filter(pod.carries, plans):
        blocks = aligned_blocks(pod.fabric.server_grid, plan.grid)
        racks, found = np.nonzero(free[:, blocks].all(axis=2))
        usable[racks[:, None], blocks[found]] = True
    if pod.fabric.joined and places is not None and rng is not None:
        if pod.free.sum() < plans[0].n_slots:
            return 0.0, 0
        rest = np.flatnonzero(free & ~usable)
        drawn = rng.permutation(rest)[:samples].tolist()
        held = sum(pod.holds(server, plans) for server in drawn)
        return float(usable.sum()) + len(rest) * held / max(1, len(drawn)), int(free.sum())
    enough = pod.fullest_first(plans)
    for rack in enough if places is not None else ():
        if not (usable[rack] == free[rack]).all() and places is not None and places(rack, plans):
            usable[rack] = free[rack]
    return int(usable.sum()), int(free[enough].sum())


def scatters(pod: Pod, rack: int, plans: list[SliceShape]) -> bool:
    """Tell whether scattered servers of a rack can hold a slice."""
    return any(pod.scatter((rack,), plan, NODES) is not None for plan in tell_apart(plans))


class _Replay:
    """The racks at one time, and the sums so far."""

    def __init__(self, fabric: RackFabric, rule: str, probe: bool) -> None:
        self.fabric = fabric
        self.rule = rule
        self.probe = probe
        self.optical = rule in ("optical", JOINED)
        self.pod = Pod(fabric)
        self.rng = np.random.default_rng(0)  # indices of servers that stand for others
        self.leaving: list[tuple[float, int, Allocation]] = []
        self._clear(0.0)
        self.numbers = itertools.count()  # slices that leave at once leave in order
        self.known: dict[tuple[int, Shape], tuple[int, bool]] = {}

    def _clear(self, time: float) -> None:
        self.now = self.start = time
        self.busy_time = self.fragments = self.unusable = self.hops = self.used = 0.0
        self.asked = 0
        self.circuits = 0
        self.chips = 0
        self.racks = Counter[int]()
        self.requests = Counter[Shape]()
        self.rejected = Counter[Shape]()
        self.scattered = Counter[Shape]()

    def count_from(self, time: float) -> None:
        """Forget the sums, not the slices."""
        self.wait_until(time)
        self._clear(time)

    def wait_until(self, time: float) -> None:
        """Let slices leave that are due."""
        while self.leaving and self.leaving[0][0] <= time:
            end, _, slice_ = heapq.heappop(self.leaving)
            self._pass_time(end)
            self.pod.remove(slice_)
        self._pass_time(time)

    def _pass_time(self, time: float) -> None:
        busy = self.fabric.n_servers - int(self.pod.free.sum())
        self.busy_time += busy * (time - self.now)
        self.now = time

    def request(self, arrival: Arrival) -> None:
        """Place a slice, or count it as rejected."""
        self.wait_until(arrival.time)
        shape = arrival.shape
        self.requests[shape] += 1
        plans = [cut_shape(turned, self.fabric.server) for turned in orient(self.fabric, shape)]
        free = int(self.pod.free.sum())
        if free and plans:
            places = self._places if self.optical else None
            usable, tried = count_usable(self.pod, plans, places, rng=self.rng)
            self.fragments += (tried - usable) / free
            self.unusable += 1 - usable / free
            self.asked += 1
        slice_ = self.pod.allocate(shape, "optical" if self.optical else self.rule)
        if slice_ is None:
            self.rejected[shape] += 1
            if self.probe and any(
                self._places(rack, plans) for rack in self.pod.fullest_first(plans)
            ):
                self.scattered[shape] += 1
            return
        heapq.heappush(self.leaving, (arrival.time + arrival.duration, next(self.numbers), slice_))
        figures = tenant(slice_.shape)
        chips = int(np.prod(shape))
        self.used += chips * (figures.steered if self.optical else figures.fixed)
        self.chips += chips if figures.steered else 0  # a single chip has no ring
        self.hops += len(slice_.fibres)
        self.circuits += len(np.unique(slice_.fibres[:, 0]))
        self.racks[len(np.unique(slice_.servers // self.pod.servers))] += 1

    def _places(self, rack: int, plans: list[SliceShape]) -> bool:
        """Tell whether scattered servers of a rack can hold the slice; remembered."""
        key = (rack, plans[0].shape)
        version = int(self.pod.changes[rack])
        if self.known.get(key, (-1, False))[0] != version:
            self.known[key] = version, scatters(self.pod, rack, plans)
        return self.known[key][1]

    def outcome(self, complete: bool) -> Outcome:
        """Turn sums into means."""
        lasted = self.now - self.start
        several = sum(self.racks.values()) - self.racks[1]
        spanned = sum(racks * count for racks, count in self.racks.items()) - self.racks[1]
        return Outcome(
            rule=self.rule,
            requests=dict(self.requests),
            rejected=dict(self.rejected),
            only_scattered=dict(self.scattered),
            fragmentation=self.fragments / max(1, self.asked),
            unusable=self.unusable / max(1, self.asked),
            utilisation=self.busy_time / (lasted * self.fabric.n_servers) if lasted else 0.0,
            bandwidth=self.used / max(1, self.chips),
            hops=self.hops / max(1, self.circuits),
            spanning=several / max(1, sum(self.racks.values())),
            racks=spanned / max(1, several),
            complete=complete,
        )
