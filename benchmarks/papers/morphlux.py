"""Morphlux (arXiv 2508.03674): bandwidth of slices, fragmentation of racks, recovery.

    python -m benchmarks.papers.morphlux [--loads 0.9] [--requests 600] [--runs 1] [--fibres 8]

Slices ask for a place in 64 racks as a Poisson process, five shapes equally often, and stay for
exponential times; the first quarter of the requests is not counted. `first-fit` takes a block of
free servers, `optical` any servers of a rack, and `joined` any of all racks, which switches join.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

import optmatch as om
from benchmarks.papers.figures import Table, show
from benchmarks.papers.racks import (
    SHAPES,
    Arrival,
    cut_all,
    draw_arrivals,
    write_mean,
    write_shape,
)
from optmatch.problems import Allocation, SliceShape, slice_rings
from optmatch.problems.slices.shape import Shape
from optmatch.solvers import steer
from optmatch.solvers.slices.pod import NODES, Pod, aligned_blocks, tell_apart
from optmatch.verify import check_steering

RULES = ("first-fit", "optical", "joined")
PORTS = 6
"""The ports of a chip."""
WARM_UP = 0.25
SAMPLES = 32
"""The servers outside of every block that are tried in a fragmented pod of joined racks."""


class Means(NamedTuple):
    """Shares over the requests of a run, and over its time."""

    unusable: float  # of the free servers, where the slice that asks cannot lie
    fragmented: float  # the same in racks with enough free servers
    rejected: float  # of the requests
    rejected_whole: float  # of the requests for whole racks
    utilisation: float  # of the servers
    ring_ports: float  # of the ports of the chips that were placed
    spanning: float  # slices on several racks, of those placed
    racks: float  # of such a slice
    hops: float  # fibres of a circuit between servers


def can_scatter(pod: Pod, rack: int, plans: list[SliceShape]) -> bool:
    """Tell whether scattered servers of a rack can hold a slice."""
    return any(pod.scatter((rack,), plan, NODES) is not None for plan in tell_apart(plans))


class Racks:
    """Racks that are filled by a rule, and what is known of their free servers."""

    def __init__(self, fabric: om.RackFabric, rule: str) -> None:
        self.fabric = replace(fabric, joined=True) if rule == "joined" else fabric
        self.rule = "first-fit" if rule == "first-fit" else "optical"
        self.pod = Pod(self.fabric)
        self._known: dict[tuple[int, Shape], tuple[int, bool]] = {}

    def allocate(self, shape: Shape) -> Allocation | None:
        """Place a slice, if there is a place."""
        return self.pod.allocate(shape, self.rule)

    def _scatters(self, rack: int, plans: list[SliceShape]) -> bool:
        """Tell whether scattered servers of a rack can hold a slice, as long as it is the same."""
        key, state = (rack, plans[0].shape), int(self.pod.changes[rack])
        known_state, fits = self._known.get(key, (-1, False))
        if known_state != state:
            fits = can_scatter(self.pod, rack, plans)
            self._known[key] = state, fits
        return fits

    def count_usable(
        self, plans: list[SliceShape], rng: np.random.Generator, samples: int = 1
    ) -> tuple[float, int]:
        """Count the free servers where a slice can lie, and those of racks with enough of them.

        With first fit these are the servers of free blocks. Within racks, all free servers of a
        rack are usable if any of them can hold the slice. In joined racks, `samples` servers that
        are in no block stand for all of them, as each takes a search.
        """
        pod = self.pod
        is_free = pod.free.reshape(self.fabric.racks, -1)
        is_usable = np.zeros_like(is_free)
        for plan in plans:
            if pod.carries(plan):
                blocks = aligned_blocks(self.fabric.server_grid, plan.grid)
                rack, block = np.nonzero(is_free[:, blocks].all(axis=2))
                is_usable[rack[:, None], blocks[block]] = True
        if self.fabric.joined:
            if pod.free.sum() < plans[0].n_slots:
                return 0.0, 0
            others = np.flatnonzero(is_free & ~is_usable)
            drawn = rng.permutation(others)[:samples].tolist()
            n_held = sum(pod.holds(server, plans) for server in drawn)
            n_usable = float(is_usable.sum()) + len(others) * n_held / max(1, len(drawn))
            return n_usable, int(is_free.sum())
        with_enough = pod.fullest_first(plans)
        for rack in with_enough if self.rule == "optical" else ():
            is_decided = (is_usable[rack] == is_free[rack]).all()
            if not is_decided and self._scatters(rack, plans):
                is_usable[rack] = is_free[rack]
        return float(is_usable.sum()), int(is_free[with_enough].sum())


def replay(fabric: om.RackFabric, arrivals: Sequence[Arrival], rule: str) -> Means:
    """Let slices come to racks and go, and measure what each request finds."""
    racks = Racks(fabric, rule)
    rng = np.random.default_rng(0)  # draws the servers that stand for others
    leaving: list[tuple[float, int, Allocation]] = []
    first = int(WARM_UP * len(arrivals))
    start = arrivals[first].time
    server_time = 0.0
    shares: list[tuple[float, float]] = []
    placed: list[tuple[Allocation, float]] = []
    rejected: list[Shape] = []
    for number, (now, shape, duration) in enumerate(arrivals):
        while leaving and leaving[0][0] <= now:
            racks.pod.remove(heapq.heappop(leaving)[2])
        plans = cut_all(fabric, shape)
        n_free = int(racks.pod.free.sum())
        if n_free:
            usable, considered = racks.count_usable(plans, rng)
            if number >= first:
                shares.append((1 - usable / n_free, (considered - usable) / n_free))
        slice_ = racks.allocate(shape)
        if slice_ is not None:
            heapq.heappush(leaving, (now + duration, number, slice_))
            # Servers are in use from when they are counted to the last request.
            end = min(now + duration, arrivals[-1].time)
            server_time += len(slice_.servers) * max(0.0, end - max(now, start))
        if number >= first:
            if slice_ is None:
                rejected.append(shape)
            else:
                fixed, steered = count_ring_ports(shape)
                ports = fixed if rule == "first-fit" else steered
                placed.append((slice_, ports / PORTS))
    unusable, fragmented = np.mean(shares, axis=0).tolist()
    chips = [int(np.prod(slice_.shape)) for slice_, _ in placed]
    spans = [len(np.unique(slice_.servers // racks.pod.servers)) for slice_, _ in placed]
    spanning = [span for span in spans if span > 1]
    fibres = np.concatenate([np.bincount(slice_.fibres[:, 0]) for slice_, _ in placed])
    n_whole = sum(arrival.shape == SHAPES[-1] for arrival in arrivals[first:])
    return Means(
        unusable=unusable,
        fragmented=fragmented,
        rejected=len(rejected) / (len(arrivals) - first),
        rejected_whole=rejected.count(SHAPES[-1]) / n_whole,
        utilisation=server_time / (fabric.n_servers * (arrivals[-1].time - start)),
        ring_ports=float(np.average([ports for _, ports in placed], weights=chips)),
        spanning=len(spanning) / len(spans),
        racks=float(np.mean(spanning)) if spanning else 0.0,
        hops=float(fibres.sum() / np.count_nonzero(fibres)),
    )


def count_placed(
    fabric: om.RackFabric, shape: Shape, rule: str, rng: np.random.Generator
) -> tuple[int, int, float]:
    """Fill racks, of which half of the servers are free, with slices of one shape.

    Returns how many are placed, for how many the free servers would suffice, and the share of the
    free servers that no place included before the first one.
    """
    racks = Racks(fabric, rule)
    free = racks.pod.free
    n_free = fabric.n_servers // 2
    free[:] = False
    free[rng.permutation(fabric.n_servers)[:n_free]] = True
    plans = cut_all(racks.fabric, shape)
    groups = free.reshape(1 if racks.fabric.joined else fabric.racks, -1).sum(axis=1)
    usable, _ = racks.count_usable(plans, rng, SAMPLES)
    placed = next(k for k in itertools.count() if racks.allocate(shape) is None)
    return placed, int((groups // plans[0].n_slots).sum()), 1 - usable / n_free


@cache
def count_ring_ports(shape: Shape) -> tuple[int, int]:
    """Count the ports of a chip that rings of its slice use, in a fixed torus and steered."""
    rings = slice_rings(shape)
    steering = steer(rings, ports=PORTS)
    assert check_steering(steering).ok
    through = [k for k, ring in enumerate(rings) if 0 in ring]
    return 2 * len(through), 2 * int(steering.units[through].sum())


def bandwidth_table() -> Table:
    """Tabulate the ports of a chip that carry the rings of its slice."""
    rows = []
    for shape in SHAPES:
        fixed, steered = count_ring_ports(shape)
        rows.append(
            (
                write_shape(shape),
                str(len(slice_rings(shape))),
                f"{fixed} of {PORTS}",
                f"{steered} of {PORTS}",
                "up to +66 %" if shape == SHAPES[0] else "-",
                f"{100 * (steered - fixed) / PORTS:+.0f} %",
                f"{steered / fixed:.1f}",
            )
        )
    titles = ("slice", "rings", "ports used, fixed torus", "steered")
    return Table((*titles, "more of all ports, published", "ours", "ratio"), rows)


def load_table(fabric: om.RackFabric, load: float, requests: int, runs: int) -> Table:
    """Tabulate what the same requests find under each rule, as means over runs."""
    means: dict[str, list[Means]] = {rule: [] for rule in RULES}
    for child in np.random.SeedSequence(0).spawn(runs):
        rng = np.random.default_rng(child.spawn(2)[0])
        arrivals = draw_arrivals(fabric, requests, rng, load)
        for rule in RULES:
            means[rule].append(replay(fabric, arrivals, rule))

    rows: list[tuple[str, ...]] = []
    for name, title, unit, digits in (
        ("unusable", "free servers that are unusable, %", 100.0, 1),
        ("fragmented", "the same in racks with enough free servers, %", 100.0, 2),
        ("rejected", "requests rejected, %", 100.0, 1),
        ("rejected_whole", "requests for whole racks rejected, %", 100.0, 0),
        ("utilisation", "servers in use, %", 100.0, 1),
        ("ring_ports", "ports of chips that rings use, %", 100.0, 0),
        ("spanning", "slices on several racks, %", 100.0, 1),
        ("racks", "racks of such a slice", 1.0, 1),
        ("hops", "fibres of a circuit between servers", 1.0, 2),
    ):
        values = [[getattr(mean, name) for mean in means[rule]] for rule in RULES]
        rows.append((title, "-", *(write_mean(of_rule, unit, digits) for of_rule in values)))
    less = []
    for rule in RULES:
        pairs = zip(means[rule], means["first-fit"], strict=True)
        parts = [1 - mine.unusable / (base.unusable or 1.0) for mine, base in pairs]
        less.append(write_mean(parts, 100.0))
    rows.append(("fewer unusable servers than first fit, %", "up to 70", *less))
    return Table((f"load {load:g}", "published", *RULES), rows)


def placed_table(fabric: om.RackFabric, runs: int) -> Table:
    """Tabulate how many slices find a place where half of the servers are free at random."""
    rows = []
    for shape in SHAPES:
        for rule in RULES:
            found = []
            for child in np.random.SeedSequence(0).spawn(runs):
                rng = np.random.default_rng(child.spawn(2)[1])
                found.append(count_placed(fabric, shape, rule, rng))
            placed, possible, unusable = zip(*found, strict=True)
            texts = write_mean(placed), f"{np.mean(possible):.1f}", write_mean(unusable, 100.0)
            rows.append((write_shape(shape), rule, *texts))
    return Table(("slice", "rule", "placed", "enough free servers for", "unusable, %"), rows)


def tables(
    loads: Sequence[float] = (0.9,), requests: int = 600, runs: int = 1, fibres: int = 8
) -> Iterator[Table]:
    """Yield the tables of the page; it has more runs than fit into two minutes."""
    fabric = om.RackFabric(racks=64, fibres=fibres)
    yield bandwidth_table()
    yield placed_table(fabric, runs)
    for load in loads:
        yield load_table(fabric, load, requests, runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", default="0.9")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--fibres", type=int, default=8, help="fibres to each neighbouring server")
    chosen = parser.parse_args()
    loads = [float(load) for load in chosen.loads.split(",")]
    show(tables(loads, chosen.requests, chosen.runs, chosen.fibres))
