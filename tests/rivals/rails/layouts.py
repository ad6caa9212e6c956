"""Rivals whose circuits never change: rings in all orders, chords, and rails that differ."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from math import factorial, gcd, inf
from typing import NamedTuple

import numpy as np

import optmatch as om
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND
from optmatch.verify.rails.replay import measure_work
from tests.helpers.list_scheduling import Way, time_step
from tests.helpers.static_rings import list_all_orders, list_orders, time_rings

MOST_RINGS = 24
"""Rings of four GPUs are tried in all orders, twice; of five in all, once."""
MOST_SETS = 40


def forwarded_ring_s(job: om.RailJob) -> float:
    """Keep one ring on each rail; in all orders where rails have up to five GPUs."""
    if job.fabric is not None or job.collectives:
        return inf
    best_s = min(time_rings(job, orders) for orders in list_orders(job, 0))
    n_gpus = max(map(len, ranks_of_rails(job.step()).values()), default=0)
    if n_gpus > 3 and factorial(n_gpus - 1) <= MOST_RINGS:
        best_s = min(best_s, *(time_rings(job, orders) for orders in list_all_orders(job)))
    return best_s


class Layout(NamedTuple):
    """Ports that hold different circuits: a stride for each chord, and rings of pipelines."""

    strides: tuple[int, ...]
    n_onward: int
    """Ports towards the next stage."""
    n_back: int
    rate_bytes_per_s: float
    """Of a port."""
    latency_s: float


def chords_s(job: om.RailJob) -> float:
    """Let each port of a GPU lead to another member of its group of experts, or a stage."""
    network = job.network
    return _best_layout(
        job, network.ports_per_gpu, network.port_bytes_per_s, network.latency_on_rails_s
    )


def rails_that_differ_s(job: om.RailJob) -> float:
    """Let rails hold different circuits, as data change rail inside a server, at its rate."""
    network = job.network
    n_rails = network.gpus_per_server
    if network.change_rail_s is None or n_rails == 1 or len(ranks_of_rails(job.step())) < n_rails:
        return inf
    per_byte_s = 1 / network.port_bytes_per_s
    per_byte_s += network.ports_per_gpu / network.scale_up_bytes_per_s
    latency_s = network.latency_on_rails_s + network.change_rail_s
    n_ports = n_rails * network.ports_per_gpu
    return _best_layout(job, n_ports, 1 / (per_byte_s * n_rails), latency_s)


def _best_layout(job: om.RailJob, n_ports: int, rate: float, latency_s: float) -> float:
    """Try so many chords, the rest for pipelines; return the least step time."""
    step = job.step()
    sizes = {len(g.ranks) for g in step.groups if g.dimension == "ep" and g.rail >= 0}
    if n_ports < 2 or len(sizes) != 1 or max(sizes) < 3 or job.fabric is not None:
        return inf
    if job.collectives:
        return inf
    (n,) = sizes
    has_messages = bool(((step.kind == SEND) & (step.rail >= 0)).any())
    best_s = inf
    for n_chords in range(1, min(n_ports, n) + 1):
        beside = n_ports - n_chords
        if has_messages and beside < 2:
            continue
        strides = choose_strides(n, min(n_chords, n - 1))
        if strides is not None:
            layout = Layout(strides, beside - beside // 2, beside // 2, rate, latency_s)
            best_s = min(best_s, _time_layout(job, layout))
    return best_s


@lru_cache
def choose_strides(n: int, count: int) -> tuple[int, ...] | None:
    """Choose strides whose busiest port carries least, of a few sets."""
    sets = [chosen for chosen in combinations(range(1, n), count) if gcd(n, *chosen) == 1][
        :MOST_SETS
    ]
    return min(sets, key=lambda strides: max(count_parts(n, strides)), default=None)


def count_parts(n: int, strides: tuple[int, ...]) -> list[float]:
    """Count the parts that each port carries: ways of fewest hops, ties by load of ports."""
    ways: dict[int, list[tuple[int, ...]]] = {0: [()]}
    front = [0]
    while front:
        reached: dict[int, list[tuple[int, ...]]] = {}
        for at in front:
            for port, stride in enumerate(strides):
                to = (at + stride) % n
                if to not in ways:
                    reached.setdefault(to, []).extend((*way, port) for way in ways[at][:20])
        ways |= reached
        front = list(reached)
    load = [0.0] * len(strides)
    for distance in sorted(range(1, n), key=lambda d: (len(ways[d]), -len(ways[d][0]))):
        way = min(ways[distance], key=lambda ports: max(load[p] + ports.count(p) for p in ports))
        for port in way:
            load[port] += 1
    return load


def _time_layout(job: om.RailJob, layout: Layout) -> float:
    step = job.step()
    operations = np.arange(step.n_operations)
    work = measure_work(job, operations)

    # Messages are counted with a latency of a second each: that of the job may be 0.
    counting = replace(job, network=replace(job.network, rail_latency_s=1.0))
    n_messages = measure_work(counting, operations).latency_s
    busiest: dict[int, float] = {}
    rings = {g.ranks: g for g in step.groups if g.dimension == "ep" and g.rail >= 0}

    def find_way(k: int) -> Way | None:
        ranks = step.groups[step.group[k]].ranks
        n = len(ranks)
        latency_s = float(n_messages[k]) * layout.latency_s
        sent = float(work.sent_bytes[k])
        if step.kind[k] >= SEND:
            ends = int(step.rank[k]), int(step.peer[k])
            source, target = ends if step.kind[k] == SEND else ends[::-1]
            return _pass_on(ranks, source, target, sent, latency_s, layout)
        if ranks not in rings or n == 1:
            return None
        if step.kind[k] == ALL_TO_ALL and n > 2:
            busiest.setdefault(n, max(count_parts(n, layout.strides)))
            part_s = (sent / layout.rate_bytes_per_s + len(layout.strides) * latency_s) / (n - 1)
            ports = [(rank, p) for rank in ranks for p in range(len(layout.strides))]
            return Way(busiest[n] * part_s, ports)
        lanes = [p for p, stride in enumerate(layout.strides) if gcd(stride, n) == 1]
        if not lanes:
            return None
        lasts_s = sent / (len(lanes) * layout.rate_bytes_per_s) + latency_s
        return Way(lasts_s, [(rank, p) for rank in ranks for p in lanes])

    return time_step(job, find_way)


def _pass_on(
    ranks: tuple[int, ...], source: int, target: int, sent: float, latency_s: float, layout: Layout
) -> Way:
    """Let a message pass the stages between, onward or back, whichever takes fewer hops."""
    n = len(ranks)
    hops_onward = (ranks.index(target) - ranks.index(source)) % n
    ways: Iterator[tuple[int, int, int]] = iter(
        ((1, hops_onward, layout.n_onward), (-1, n - hops_onward, layout.n_back))
    )
    sign, hops, width = min(ways, key=lambda way: way[1])
    ports = [
        (ranks[(ranks.index(source) + sign * hop) % n], sign, end)
        for hop in range(hops + 1)
        for end in (*["send"] * (hop < hops), *["receive"] * (hop > 0))
    ]
    return Way(sent / (width * layout.rate_bytes_per_s) + latency_s * hops, ports)
