"""An oracle of rail plans: data are followed over the circuits, port by port, in plain loops.

Written apart from the verifier. It takes plans with circuits that stay while an operation lasts:
messages and collectives, direct or forwarded, and all-to-alls over chords; with `pooled` plans,
in which data change rail inside a server, it walks over the ports of all rails of a server.
"""

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import Any

import optmatch as om
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.layout import place_ranks
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    RECV,
    SEND,
)

Port = tuple[int, int, int]
"""Rail, number of the GPU on it, and its port."""


class Oracle:
    """What a plan claims, followed step by step; `faults` lists what is wrong."""

    def __init__(self, job: om.RailJob, plan: om.RailPlan) -> None:
        self.job, self.plan, self.step = job, plan, job.step()
        self.k = job.network.ports_per_gpu
        self.rails = {rail: ranks.tolist() for rail, ranks in ranks_of_rails(self.step).items()}
        self.number = {rank: g for ranks in self.rails.values() for g, rank in enumerate(ranks)}
        self.rail_of = {rank: rail for rail, ranks in self.rails.items() for rank in ranks}
        self.timeline = {rail: t for t in plan.rails for rail in t.rails}
        self.n_shares = len(self.rails) if plan.pooled else 1
        self.relays: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for operation, rank, bits in plan.relays.tolist():
            self.relays[operation].append((rank, bits))
        self.busy: dict[Port, list[tuple[float, float, int, int]]] = defaultdict(list)
        self.faults: list[str] = []
        self.n_chord = self.n_skipped = 0

    def ports_of(self, rank: int, bits: int) -> list[Port]:
        """List the ports that bits stand for: of the own rail, or of all rails of a server."""
        own = self.rail_of[rank]
        names = sorted(self.rails)
        found = []
        for bit in range(bits.bit_length()):
            if bits >> bit & 1:
                rail = names[bit // self.k] if self.plan.pooled else own
                found.append((rail, self.number[rank], bit % self.k))
        return found

    def follow(self, port: Port, rank: int, start_s: float, end_s: float, k: int) -> int:
        """Return the rank to which a port leads from start to end; note the use of the port."""
        rail, gpu, number = port
        timeline = self.timeline[rail]
        starts = timeline.starts_s.tolist()
        first = bisect_right(starts, start_s + 1e-9 * self.plan.step_s) - 1
        last = max(first, bisect_right(starts, end_s - 1e-9 * self.plan.step_s) - 1)
        column = timeline.matchings[:, gpu * self.k + number].tolist()
        to = column[first]
        if any(column[state] != to for state in range(first, last + 1)) or to < 0:
            self.faults.append(f"operation {k}: {port} has no circuit that stays")
            return -1
        since = first
        while since > 0 and column[since - 1] == to:
            since -= 1
        stops = self.job.network.switching == "all-stop"
        up_s = starts[since] + (0.0 if stops else self.job.network.delay_s)
        if since > 0 and up_s > start_s + 1e-9 * self.plan.step_s:
            self.faults.append(f"operation {k}: {port} is not up yet")
        self.busy[port].append((start_s, end_s, k, rank))
        return int(self.rails[self.rail_of[rank]][to // self.k])

    def check(self) -> list[str]:
        """Follow all operations, and return the faults."""
        step, plan = self.step, self.plan
        of_match: dict[int, list[int]] = defaultdict(list)
        for k in range(step.n_operations):
            if step.rail[k] >= 0 and step.kind[k] != RECV:
                of_match[int(step.match[k])].append(k)
        for operations in of_match.values():
            self._check_communication(operations)
        for port, uses in self.busy.items():
            self._check_port(port, uses)
        servers = place_ranks(self.job.parallelism) // self.job.network.gpus_per_server
        for operations in of_match.values():
            for k in operations:
                for rank, _ in self.relays[k]:
                    if self.rail_of[rank] != self.rail_of[int(step.rank[k])]:
                        self.faults.append(f"operation {k}: forwarded by a rank of another rail")
        if plan.pooled:
            numbers = {tuple(servers[ranks].tolist()) for ranks in self.rails.values()}
            if len(numbers) > 1:
                self.faults.append("GPUs of equal numbers are in different servers")
        return self.faults

    def _check_port(self, port: Port, uses: list[tuple[float, float, int, int]]) -> None:
        """Check that a port serves one operation at a time, pooled one of all GPUs of a server."""
        together: dict[tuple[float, float], set[int]] = defaultdict(set)
        counts: dict[tuple[float, float], int] = defaultdict(int)
        for start_s, end_s, _, rank in uses:
            together[start_s, end_s].add(self.rail_of[rank])
            counts[start_s, end_s] += 1
        for span, rails in together.items():
            if len(rails) != self.n_shares or counts[span] != self.n_shares:
                self.faults.append(f"{port}: {counts[span]} uses of {len(rails)} rails at {span}")
        spans = sorted(together)
        for one, two in pairwise(spans):
            if two[0] < one[1] - 1e-9 * self.plan.step_s:
                self.faults.append(f"{port}: {one} and {two} overlap")

    def _check_communication(self, operations: list[int]) -> None:
        """Follow one communication to where its data belong, and count how long it lasts."""
        step, plan, network = self.step, self.plan, self.job.network
        k = operations[0]
        kind, members = int(step.kind[k]), step.groups[step.group[k]].ranks
        n, size = len(members), float(step.size_bytes[k])
        start_s, end_s = float(plan.start_s[k]), float(plan.end_s[k])
        rate = network.port_bytes_per_s / self.n_shares
        latency_s = network.latency_on_rails_s
        if plan.pooled:
            # Each byte passes the links of the server once more, k ports through those of one GPU.
            server_rate = network.scale_up_bytes_per_s / (self.k * self.n_shares)
            rate = 1 / (1 / rate + 1 / server_rate)
            assert network.change_rail_s is not None
            latency_s += network.change_rail_s
        n_faults = len(self.faults)
        leads: dict[int, list[list[int]]] = {}
        hops, narrowest = 0, 10**9
        for one in operations:
            route = [(int(step.rank[one]), int(plan.ports[one])), *self.relays[one]]
            if (plan.start_s[one], plan.end_s[one]) != (start_s, end_s):
                self.faults.append(f"operation {one}: not together with {k}")
            at = []
            for place, (rank, bits) in enumerate(route):
                ports = self.ports_of(rank, bits)
                at = [self.follow(port, rank, start_s, end_s, one) for port in ports]
                narrowest = min(narrowest, len(ports))
                if place + 1 < len(route) and set(at) != {route[place + 1][0]}:
                    self.faults.append(f"operation {one}: handed on elsewhere")
            hops = max(hops, len(route))
            leads[int(step.rank[one])] = [at]
        if kind == SEND:
            needed_s = size / (narrowest * rate) + hops * latency_s
            if {to for (at,) in leads.values() for to in at} != {int(step.peer[k])}:
                self.faults.append(f"operation {k}: arrives elsewhere")
        elif kind == ALL_TO_ALL and n > 2 and not any(self.relays[one] for one in operations):
            chord_s = self._time_chords(members, leads, size / n / rate, latency_s)
            if chord_s is None:  # in rounds or stages, whose circuits change
                del self.faults[n_faults:]
                self.n_skipped += 1
                return
            needed_s = chord_s
        else:
            self._check_rings(k, members, leads, forwarded=hops > 1)
            sent, messages = {
                ALL_REDUCE: (2 * (n - 1) * size / n, 2 * (n - 1)),
                ALL_GATHER: ((n - 1) * size, n - 1),
                BROADCAST: (size, 1),
                ALL_TO_ALL: ((n - 1) * size / 2 if n > 2 else size / 2, n - 1),
            }.get(kind, ((n - 1) * size / n, n - 1))
            needed_s = sent / (narrowest * rate) + messages * latency_s * hops
        needed_s += self._dark_s(self.rail_of[members[0]], start_s, end_s)
        if abs(end_s - start_s - needed_s) > 1e-9 * plan.step_s + 1e-9 * needed_s:
            self.faults.append(f"operation {k}: lasts {end_s - start_s}, needs {needed_s}")

    def _dark_s(self, rail: int, start_s: float, end_s: float) -> float:
        """Return how long some used rail stands still between two times, where rails stop."""
        if self.job.network.switching != "all-stop":
            return 0.0
        used_rails = list(self.rails) if self.plan.pooled else [rail]
        stops = [stop for used in used_rails for stop in self.timeline[used].starts_s[1:].tolist()]
        dark_s, lit_from_s = 0.0, start_s
        for stop_s in sorted(set(stops)):
            stop_end_s = min(end_s, stop_s + self.job.network.delay_s)
            dark_s += max(stop_end_s - max(lit_from_s, stop_s), 0.0)
            lit_from_s = max(lit_from_s, stop_end_s)
        return dark_s

    def _check_rings(
        self, k: int, members: tuple[int, ...], leads: dict[int, Any], *, forwarded: bool
    ) -> None:
        """Check that the circuits of each lane make one ring through all members."""
        lanes = len(leads[members[0]][0])
        for lane in range(1 if forwarded else lanes):
            rank, seen = members[0], list[int]()
            while rank in leads and rank not in seen:
                seen.append(rank)
                rank = leads[rank][0][lane]
            if sorted(seen) != sorted(members) or rank != members[0]:
                self.faults.append(f"operation {k}: no ring on lane {lane}")

    def _time_chords(
        self, members: tuple[int, ...], leads: dict[int, Any], part_s: float, latency_s: float
    ) -> float | None:
        """Send all parts along their routes; return the time, None if it is done otherwise."""
        n = len(members)
        place = {rank: p for p, rank in enumerate(members)}
        found = {
            rank: tuple((place.get(to, -1) - place[rank]) % n for to in at)
            for rank, (at,) in leads.items()
        }
        for routes in self.plan.chords:
            if routes.n_members == n and set(found.values()) == {routes.strides}:
                break
        else:
            return None
        self.n_chord += 1
        load: dict[tuple[int, int], float] = defaultdict(float)
        arrived: dict[tuple[int, int], float] = defaultdict(float)
        rows = zip(routes.distance.tolist(), routes.hops.tolist(), routes.share, strict=True)
        for _, hops, share in rows:
            for source in range(n):
                at = source
                for lane, count in enumerate(hops):
                    for _ in range(count):
                        load[at, lane] += share
                        at = place[leads[members[at]][0][lane]]
                arrived[source, at] += share
        for source in range(n):
            for to in range(n):
                if source != to and abs(arrived[source, to] - 1) > 1e-9:
                    self.faults.append(f"part of {source} for {to}: {arrived[source, to]} arrives")
        return max(load.values()) * (part_s + latency_s * len(routes.strides))
