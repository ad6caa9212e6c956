"""LUMION (arXiv 2505.23105): what a failed chip affects, how many spares suffice, recovery.

    python -m benchmarks.papers.lumion [--requests 200] [--runs 5]

Racks have 4 x 4 x 4 chips on servers of 2 x 2 x 1. They are filled with random slices by
`optical`, but for the last server. Then each chip in use fails once, and `greedy` splices a spare
in.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from benchmarks.papers.figures import Table, show
from benchmarks.papers.racks import Arrival, draw_arrivals, write_mean
from optmatch.fabrics.units import measure_reach
from optmatch.problems import Allocation, Reroute
from optmatch.solvers.reroutes.repair import Recovery, repair
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState
from optmatch.solvers.slices.pod import Pod

CHIP_FAILURES_PER_YEAR, SERVER_FAILURES_PER_YEAR, REPAIR_DAYS = 0.09, 0.03, 7.0
"""Assumed; the paper states no rates."""


class Effect(NamedTuple):
    """What one failed chip concerns: other chips, and all servers, whose circuits change."""

    spliced: int
    servers: int
    slice_moves: int
    rack_given_up: int
    circuits: int


def state_of(rack: om.RackFabric, slices: Sequence[Allocation]) -> Reroute:
    """Describe a rack as a running state: slice k owns its circuits, idle chips are spares."""
    circuits, owners, routes = [], [], list[tuple[int, ...]]()
    is_used = np.zeros(rack.n_chips, dtype=np.bool_)
    for owner, slice_ in enumerate(slices):
        circuits.append(slice_.circuits)
        owners += [owner] * len(slice_.circuits)
        circuit, fibre = slice_.fibres.T
        routes += [tuple(fibre[circuit == k].tolist()) for k in range(len(slice_.circuits))]
        is_used |= np.isin(rack.server_of_chip, slice_.servers)
    spares = tuple(np.flatnonzero(~is_used).tolist())
    pairs = np.concatenate([np.empty((0, 2), dtype=np.int32), *circuits])
    return Reroute(rack, pairs, np.array(owners, dtype=np.int32), spares, tuple(routes))


def fail_each_chip(rack: om.RackFabric, arrivals: Sequence[Arrival]) -> list[Effect]:
    """Fill a rack, then let each chip in use fail, one at a time."""
    n_servers = rack.n_servers
    pod = Pod(rack, reserved=(n_servers - 1,) if n_servers > 1 else ())
    slices = []
    for arrival in arrivals:
        slice_ = pod.allocate(arrival.shape, "optical")
        if slice_ is not None:
            slices.append(slice_)
    state = state_of(rack, slices)
    routing = RoutingState(state)
    reach = measure_reach(state.units, state.loss_units)
    sizes = [int(np.prod(slice_.shape)) for slice_ in slices]
    effects = []
    for slice_, n_chips in zip(slices, sizes, strict=True):
        others = n_chips, sum(sizes)
        chips = np.unique(slice_.circuits // rack.ports_per_chip).tolist()
        effects += [Effect(0, 0, *others, 0)] * (n_chips - len(chips))  # a slice of one chip
        for chip in chips:
            hit = tuple(np.flatnonzero((routing.ends == chip).any(axis=1)).tolist())
            plan = repair(routing, HitCircuits(hit, (chip,), state.spares, state.owners), reach)
            if not isinstance(plan, Recovery):  # no spare: the slice moves
                servers = len(slice_.servers)
                effects.append(Effect(n_chips, servers, *others, 0))
                continue
            touched = set(routing.ends[list(plan.changed)].ravel().tolist())
            servers = {*rack.server_of_chip[[*touched, *plan.handover]].tolist()}
            n_others = len(touched - {chip, *plan.handover})
            effects.append(Effect(n_others, len(servers), *others, len(plan.changed)))
    return effects


def affected_table(requests: int = 200, runs: int = 5) -> Table:
    """Tabulate the chips and servers that notice the failure of a chip, over runs."""
    rack = om.RackFabric()
    effects_of_run = []
    for child in np.random.SeedSequence(0).spawn(runs):
        arrivals = draw_arrivals(rack, requests, np.random.default_rng(child))
        effects_of_run.append(fail_each_chip(rack, arrivals))
    rows = []
    for title, published, name in (
        ("other chips, a spare takes over", "-", "spliced"),
        ("servers, a spare takes over", "-", "servers"),
        ("chips, the slice moves", "-", "slice_moves"),
        ("chips, the rack is given up", "a rack of 64", "rack_given_up"),
        ("circuits, a spare takes over", "-", "circuits"),
    ):
        values = [[getattr(effect, name) for effect in effects] for effects in effects_of_run]
        means = [float(np.mean(of_run)) for of_run in values]
        most = max(max(of_run) for of_run in values)
        rows.append((title, published, f"{write_mean(means, digits=2)}; at most {most}"))
    return Table(("affected by a failed chip", "published", "ours"), rows)


def down_units(rack: om.RackFabric, unit: str) -> NDArray[np.float64]:
    """Return Pr(F = k): k chips, or servers with a chip, of a rack are down at a time.

    A part that fails r times a year, with repairs of t years, is down with probability
    r t / (1 + r t). Chips fail by themselves, and servers with all their chips; all repairs go on
    at once.
    """
    years = REPAIR_DAYS / 365.25
    alone, whole = (
        rate * years / (1 + rate * years)
        for rate in (CHIP_FAILURES_PER_YEAR, SERVER_FAILURES_PER_YEAR)
    )
    of_server = np.ones(1)
    for _ in range(rack.chips_per_server):
        of_server = np.convolve(of_server, [1 - alone, alone])
    of_server = of_server * (1 - whole)
    of_server[-1] += whole
    if unit == "server":
        of_server = np.array([of_server[0], of_server[1:].sum()])
    probability = np.ones(1)
    for _ in range(rack.n_servers):
        probability = np.convolve(probability, of_server)
    return probability


def spares_table(most: int = 8) -> Table:
    """Tabulate how often K spares suffice: Pr(F <= K), Pr(F <= K | F >= 1), 1 - Pr(F >= K)."""
    rack = om.RackFabric()
    rows = []
    for unit, published in (("chip", {4: "over 0.95"}), ("server", {2: "over 0.95"})):
        probability = down_units(rack, unit)
        down = float(probability[1:].sum())
        for spares in range(most + 1):
            covered = float(probability[: spares + 1].sum())
            of_failures = float(probability[1 : spares + 1].sum()) / down
            fewer = float(probability[:spares].sum())
            figures = [f"{value:.4f}" for value in (covered, of_failures, fewer)]
            rows.append((f"{spares} x {unit}", published.get(spares, "-"), *figures))
    titles = ("spares", "published", "covered", "covered failures", "conservative")
    return Table(titles, rows)


def recovery_table() -> Table:
    """Tabulate the seconds from a failure to work; the time of the decision is measured."""
    controller = om.Rerouter(om.fill_rack(om.RackFabric()))
    controller.what_if(chip=20)  # compiles
    proposal = controller.fail(chip=21)
    stages = proposal.timeline(program_s=1e-3, cell_s=10e-6, lock_s=1e-3, restart_s=1.1)
    rows = [
        (
            "to choose the spare and its circuits",
            "-",
            f"{1e3 * proposal.decided_s:.1f} ms",
        ),
        ("failure to work", "about 1 s; Morphlux 1.2 s", f"{stages[-1].end_s:.1f} s"),
    ]
    return Table(("recovery, with a restart of 1.1 s", "published", "ours"), rows)


def tables(requests: int = 200, runs: int = 5) -> Iterator[Table]:
    """Yield the tables of the page."""
    yield affected_table(requests, runs)
    yield spares_table()
    yield recovery_table()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200, help="slices that ask in each run")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    show(tables(chosen.requests, chosen.runs))
