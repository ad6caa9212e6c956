"""Random failures in joined racks: what `greedy` disturbs, against what `ilp` proves.

    python -m tests.helpers.joined [FAILURES] [SEED]

Prints each failure whose first level is above the proved one, or whose repair alone `ilp` finds,
and exits with 1 if there is any. An answer of `greedy` that disturbs nobody needs no comparison.
"""

import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import optmatch as om
from optmatch.solvers.reroutes.states import fill_rack

LIMIT_S = 20.0


@cache
def _one_rack() -> om.Reroute:
    return fill_rack(om.RackFabric(joined=True))


def fill_racks(racks: int, spares: int, rng: np.random.Generator) -> om.Reroute:
    """Fill so many joined racks each by itself; some jobs make room for more spares."""
    one = _one_rack()
    fabric = om.RackFabric(racks=racks, joined=True)
    at = np.arange(racks)[:, None, None]
    circuits = (one.circuits + at * one.fabric.n_ports).reshape(-1, 2)
    owners = (one.owners + at[:, :, 0] * (1 + one.owners.max())).ravel()
    ways = [
        tuple(fibre + rack * one.units.n_fibres for fibre in way)
        for rack in range(racks)
        for way in one.routes
    ]
    idle = {chip + 64 * rack for rack in range(racks) for chip in one.spares}
    jobs = rng.permutation(np.unique(owners)).tolist()
    gone = list[int]()
    while len(idle) < spares:
        gone.append(jobs.pop())
        idle |= set((circuits[owners == gone[-1]] // fabric.ports_per_chip).ravel().tolist())
    kept = np.flatnonzero(~np.isin(owners, gone))
    reserve = tuple(sorted(idle)[:: max(1, len(idle) // spares)])[:spares]
    return om.Reroute(fabric, circuits[kept], owners[kept], reserve, tuple(ways[k] for k in kept))


def draw_failure(state: om.Reroute, rng: np.random.Generator) -> om.Reroute:
    """Break chips, or fibres around a server with circuits, or both.

    Often many dark fibres of its rack have failed too, so that others must make room.
    """
    fabric: Any = state.fabric
    ends = fabric.edges[fabric.edge_of_fibre]
    busy = np.unique(state.circuits // fabric.ports_per_chip)
    chips: list[int] = rng.choice(busy, int(rng.integers(0, 3)), replace=False).tolist()
    at = fabric.server_of_chip[chips[0] if chips else rng.choice(busy)]
    share = rng.choice([0.05, 0.1, 0.2, 0.4, 0.7])
    around = np.flatnonzero((ends == at).any(axis=1))
    broken = np.zeros(fabric.n_fibres, dtype=np.bool_)
    broken[around] = (rng.random(len(around)) < share) & (not chips or rng.random() < 0.7)
    dark = fabric.rack_of_fibre == fabric.server_coordinates[at, 0]
    dark[state.passed.part] = False
    broken |= dark & (rng.random(len(dark)) < rng.choice([0.0, 0.5, 0.8]))
    fibres = np.flatnonzero(broken).tolist()
    return replace(state, failed_chips=tuple(chips), failed_fibres=tuple(fibres))


def compare(failures: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Draw failures; count how they end, and describe those where `greedy` is worse."""
    rng, counts, worse = np.random.default_rng(seed), Counter[str](), list[str]()
    while sum(counts.values()) < failures:
        spares = int(rng.integers(80, 257))
        racks = int(rng.integers(-(-spares // 32), 21))
        state = fill_racks(racks, spares, rng)
        for number in range(min(10, failures - sum(counts.values()))):
            problem = draw_failure(state, rng)
            quick: Any = om.solve(problem, method="greedy", seed=0, time_limit_s=LIMIT_S)
            if quick.answer is not None and quick.objective[0] == 0:
                counts["disturbs nobody"] += 1
                continue
            if quick.status is om.Status.INFEASIBLE:
                counts["proved impossible"] += 1
                continue
            exact: Any = om.solve(problem, method="ilp", seed=0, time_limit_s=LIMIT_S)
            if exact.answer is not None and (
                quick.answer is None or quick.objective[0] > exact.objective[0]
            ):
                counts["worse"] += 1
                levels = quick.objective, exact.objective
                worse.append(f"{racks} racks, {len(state.spares)} spares, {number}: {levels}")
            else:
                counts["as `ilp`, " + exact.status.value] += 1
    return counts, worse


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    found, above = compare(*(given + [500, 0][len(given) :]))
    print(dict(found), *above, sep="\n")
    sys.exit(bool(above))
