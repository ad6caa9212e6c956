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

# Requests between two reports of progress.
_REQUESTS_PER_TICK = 50


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
    """Let slices come to racks and go by one rule of placement; count which find no place.

    A slice is a box of chips, on whole servers, that a job gets for some time. A slice that finds
    no place is rejected. How fragmented the racks are is measured at each request, by the free
    servers that are *usable* for it:

    - with fixed links, those in a block, a box of free servers that begins at multiples of its
      sides;
    - with optical switches, also those of a rack in which any free servers can hold the slice;
    - in joined racks, one of the servers that are in no such block is drawn at random. All of them
      count as usable if a place for the slice that includes it is found. The mean over requests is
      unbiased.

    Parameters
    ----------
    fabric
        The racks.
    arrivals
        Requests for slices in the order of their times: shape and duration.
    rule
        ``"first-fit"``: the first aligned block of free servers, which has the bandwidth of fixed
        torus links. ``"optical"``: any servers of a rack, whose links are steered by optical
        switches. ``"optical-joined"``: optical, and the racks joined.
    probe
        Whether to ask, of each request that is rejected, if scattered servers would do.
    warm_up
        The first requests, as a part of all, that fill the racks and are not counted.
    on_event
        Hears a `Tick` now and then; an interrupt ends the replay with what there is.

    Returns
    -------
    Outcome
        Requests and rejections by shape, and means of utilisation, fragmentation and bandwidth.
    """
    run = _Replay(join_racks(fabric, rule), rule, probe)
    complete = True
    try:
        for number, arrival in enumerate(arrivals):
            if number % _REQUESTS_PER_TICK == 0:
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

    A slice is a box of chips on whole servers. It can lie in a *block*, a box of free servers that
    begins at multiples of its sides; or, with optical switches, on *scattered* servers, any free
    ones that circuits can join to such a box.

    Parameters
    ----------
    pod
        The racks, some of whose servers are free.
    plans
        The slice in each way to turn it.
    places
        Takes the number of a rack and `plans`, and tells whether scattered servers of the rack can
        hold the slice; None where only blocks count.
    rng, samples
        For joined racks, whose servers are tried one by one, as each takes a search: `samples` of
        the servers that are in no block are drawn, and their usable share is taken for the share
        of all.

    Returns
    -------
    n_usable : float
        Free servers where the slice can lie.
    n_considered : int
        Free servers of racks, or of all joined racks, that have enough of them for the slice.
    """
    # Aligned blocks of free servers, in racks of their own. is_free[rack, server]
    is_free = pod.free.reshape(pod.fabric.racks, -1)
    is_usable = np.zeros_like(is_free)
    for plan in plans:
        if pod.carries(plan):
            blocks = aligned_blocks(pod.fabric.server_grid, plan.grid)
            # A block is a box of servers of the slice's size; blocks[block] are its servers.
            rack, block = np.nonzero(is_free[:, blocks].all(axis=2))
            is_usable[rack[:, None], blocks[block]] = True

    # Joined racks: a sample of the other servers is tried, which takes a search for each.
    if pod.fabric.joined and places is not None and rng is not None:
        if pod.free.sum() < plans[0].n_slots:
            return 0.0, 0
        other_servers = np.flatnonzero(is_free & ~is_usable)
        sample = rng.permutation(other_servers)[:samples].tolist()
        n_held = sum(pod.holds(server, plans) for server in sample)
        n_others_usable = len(other_servers) * n_held / max(1, len(sample))
        return float(is_usable.sum()) + n_others_usable, int(is_free.sum())

    # Racks by themselves: if scattered servers can hold the slice, each free one is usable.
    racks_with_enough = pod.fullest_first(plans)
    if places is not None:
        for rack_number in racks_with_enough:
            is_decided = (is_usable[rack_number] == is_free[rack_number]).all()
            if not is_decided and places(rack_number, plans):
                is_usable[rack_number] = is_free[rack_number]
    return int(is_usable.sum()), int(is_free[racks_with_enough].sum())


def scatters(pod: Pod, rack: int, plans: list[SliceShape]) -> bool:
    """Tell whether scattered servers of a rack can hold a slice."""
    return any(pod.scatter((rack,), plan, NODES) is not None for plan in tell_apart(plans))


class _Sums:
    """The sums over the requests that are counted, from which an `Outcome` has its means."""

    def __init__(self, start: float) -> None:
        """Begin all sums at 0.

        Parameters
        ----------
        start
            The time from which on servers in use are counted.
        """
        self.start = start
        self.server_time = 0.0  # servers in slices times the time they are
        self.fragmentation = 0.0  # a share of the free servers for each request
        self.unusable = 0.0
        self.n_shares = 0  # requests that found free servers at all
        self.ring_ports = 0.0  # share of ports that rings use, summed over chips
        self.n_chips = 0
        self.n_fibres = 0
        self.n_circuits = 0
        self.slices_by_racks = Counter[int]()  # slices by the number of their racks
        self.requests = Counter[Shape]()
        self.rejected = Counter[Shape]()
        self.scattered = Counter[Shape]()


class _Replay:
    """Racks to which slices come and from which they leave, and the sums so far."""

    def __init__(self, fabric: RackFabric, rule: str, probe: bool) -> None:
        """Begin with empty racks.

        Parameters
        ----------
        fabric
            The racks.
        rule
            How slices are placed: ``"first-fit"``, ``"optical"`` or ``"optical-joined"``.
        probe
            Whether it is asked of each rejected slice if scattered servers could have held it.
        """
        self.fabric = fabric
        self.rule = rule
        self.probe = probe
        self.is_optical = rule in ("optical", JOINED)
        self.pod = Pod(fabric)
        self.now = 0.0
        self.sums = _Sums(0.0)

        # Draws the servers that stand for others.
        self._rng = np.random.default_rng(0)

        # A heap of times, numbers and slices. The number lets slices that leave at the same time
        # leave in the order in which they came.
        self._leaving: list[tuple[float, int, Allocation]] = []
        self._numbers = itertools.count()

        # Whether scattered servers of a rack can hold a shape, with the state of the rack for
        # which this was found.
        self._can_scatter: dict[tuple[int, Shape], tuple[int, bool]] = {}

    def count_from(self, time: float) -> None:
        """Begin to count at a time: forget the sums so far, and keep the slices that are there."""
        self.wait_until(time)
        self.sums = _Sums(time)

    def wait_until(self, time: float) -> None:
        """Let time pass, and let slices leave that are due.

        Parameters
        ----------
        time
            The time that it is then.
        """
        while self._leaving and self._leaving[0][0] <= time:
            end, _, slice_ = heapq.heappop(self._leaving)
            self._pass_time(end)
            self.pod.remove(slice_)
        self._pass_time(time)

    def _pass_time(self, time: float) -> None:
        """Move the clock to a time before which no slice leaves, and add up servers in use."""
        n_busy = self.fabric.n_servers - int(self.pod.free.sum())
        self.sums.server_time += n_busy * (time - self.now)
        self.now = time

    def request(self, arrival: Arrival) -> None:
        """Let a slice ask for a place: it is placed until it leaves, or counted as rejected.

        Parameters
        ----------
        arrival
            The time of the request, the shape in chips, and how long the slice stays. Slices that
            are due leave first.
        """
        self.wait_until(arrival.time)
        shape = arrival.shape
        self.sums.requests[shape] += 1
        plans = [cut_shape(turned, self.fabric.server) for turned in orient(self.fabric, shape)]
        self._count_fragmentation(plans)

        slice_ = self.pod.allocate(shape, "optical" if self.is_optical else self.rule)
        if slice_ is None:
            self.sums.rejected[shape] += 1
            if self.probe and self._fits_scattered(plans):
                self.sums.scattered[shape] += 1
            return
        departure = (arrival.time + arrival.duration, next(self._numbers), slice_)
        heapq.heappush(self._leaving, departure)
        self._count_slice(slice_, n_chips=int(np.prod(shape)))

    def _count_fragmentation(self, plans: list[SliceShape]) -> None:
        """Add the shares of the free servers where a slice cannot lie, as a request finds them.

        Parameters
        ----------
        plans
            The slice that is asked for, as it may be turned. Nothing is added if there is none, or
            no server is free.
        """
        n_free = int(self.pod.free.sum())
        if not n_free or not plans:
            return
        places = self._places_scattered if self.is_optical else None
        n_usable, n_considered = count_usable(self.pod, plans, places, rng=self._rng)
        self.sums.fragmentation += (n_considered - n_usable) / n_free
        self.sums.unusable += 1 - n_usable / n_free
        self.sums.n_shares += 1

    def _count_slice(self, slice_: Allocation, n_chips: int) -> None:
        """Add the bandwidth, hops and racks of a slice that was placed.

        Parameters
        ----------
        slice_
            Its servers and fibres; column 0 of ``fibres`` is the circuit that a fibre belongs to.
        n_chips
            The number of its chips.
        """
        bandwidth = tenant(slice_.shape)
        ring_ports = bandwidth.steered if self.is_optical else bandwidth.fixed
        self.sums.ring_ports += n_chips * ring_ports
        if bandwidth.steered:  # a single chip has no ring
            self.sums.n_chips += n_chips
        self.sums.n_fibres += len(slice_.fibres)
        self.sums.n_circuits += len(np.unique(slice_.fibres[:, 0]))
        n_racks = len(np.unique(slice_.servers // self.pod.servers))
        self.sums.slices_by_racks[n_racks] += 1

    def _fits_scattered(self, plans: list[SliceShape]) -> bool:
        """Tell whether scattered servers of any rack can hold a slice."""
        racks = self.pod.fullest_first(plans)
        return any(self._places_scattered(rack, plans) for rack in racks)

    def _places_scattered(self, rack: int, plans: list[SliceShape]) -> bool:
        """Tell whether scattered servers of a rack can hold a slice.

        The result is remembered until the rack changes.

        Parameters
        ----------
        rack
            The number of the rack.
        plans
            The slice in each way to turn it.

        Returns
        -------
        bool
            Whether any free servers can, joined by circuits to a box.
        """
        key = (rack, plans[0].shape)
        state = int(self.pod.changes[rack])
        known_state, can_scatter = self._can_scatter.get(key, (-1, False))
        if known_state != state:
            can_scatter = scatters(self.pod, rack, plans)
            self._can_scatter[key] = (state, can_scatter)
        return can_scatter

    def outcome(self, complete: bool) -> Outcome:
        """Turn the sums since `count_from` into means over requests, slices and time.

        Parameters
        ----------
        complete
            Whether all requests were replayed.

        Returns
        -------
        Outcome
            Counts by shape, and means, which are 0 where there is nothing to divide by: the share
            of free servers that is lost to fragmentation, the share of servers in use over time,
            bandwidth as a part of the ports, fibres for each circuit, the share of slices on
            several racks, and the racks of these.
        """
        sums = self.sums
        duration = self.now - sums.start
        utilisation = 0.0
        if duration:
            utilisation = sums.server_time / (duration * self.fabric.n_servers)

        # Slices by the number of their racks: those on more than one span racks.
        n_slices = sum(sums.slices_by_racks.values())
        n_spanning = n_slices - sums.slices_by_racks[1]
        racks_of_spanning = 0
        for n_racks, n_slices_on_them in sums.slices_by_racks.items():
            if n_racks != 1:
                racks_of_spanning += n_racks * n_slices_on_them
        return Outcome(
            rule=self.rule,
            requests=dict(sums.requests),
            rejected=dict(sums.rejected),
            only_scattered=dict(sums.scattered),
            fragmentation=sums.fragmentation / max(1, sums.n_shares),
            unusable=sums.unusable / max(1, sums.n_shares),
            utilisation=utilisation,
            bandwidth=sums.ring_ports / max(1, sums.n_chips),
            hops=sums.n_fibres / max(1, sums.n_circuits),
            spanning=n_spanning / max(1, n_slices),
            racks=racks_of_spanning / max(1, n_spanning),
            complete=complete,
        )
