"""Which ports a job gets: neighbours on the boundary, so that the light of jobs keeps apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import check_time
from optmatch.problems import Tenancy, Tenant

MOST = 3
"""Choices that are tried for the same jobs that stay."""

Ports = tuple[tuple[int, ...], ...]
"""``ports[job]``, in the order of the job."""


def list_choices(problem: Tenancy, rng: np.random.Generator) -> Iterator[Ports]:
    """List good choices of ports: first nobody moves, then one job, then all.

    The other jobs lie one after the other along the free ports, in the order of the terminals on
    the boundary. Of all places to start, and some orders of jobs, those come first in which the
    shortest routes within jobs are shortest.
    """
    tenants = problem.tenants
    holders = [k for k, tenant in enumerate(tenants) if tenant.held is not None]
    moves = [[], *([k] for k in holders), holders] if holders else [[]]
    for movers in moves[: None if len(holders) != 1 else 2]:
        kept = {k: tenants[k].held or () for k in holders if k not in movers}
        yield from _near(problem, kept, rng)


def _near(
    problem: Tenancy, kept: dict[int, tuple[int, ...]], rng: np.random.Generator
) -> list[Ports]:
    """List the best choices in which some jobs keep their ports."""
    tenants, cells = problem.tenants, problem.fabric.route_cells().astype(np.float64)
    cells[cells == UNREACHED] = np.inf
    taken = {port for ports in kept.values() for port in ports}
    free = np.array([p for p in _around(problem.fabric) if p not in taken], dtype=np.int64)
    others = [k for k in range(len(tenants)) if k not in kept]
    largest = sorted(others, key=lambda k: -tenants[k].n_ports)
    orders = [others, largest, *(rng.permutation(others).tolist() for _ in range(4))]
    found: dict[Ports, float] = {}
    for order in orders if others else [[]]:
        ends = np.cumsum([0, *(tenants[k].n_ports for k in order)])
        for start in range(len(free) if others and problem.fabric.graph is not None else 1):
            check_time()
            chosen = dict(kept)
            for k, first, last in zip(order, ends, ends[1:], strict=False):
                near = np.roll(free, -start)[first:last]
                chosen[k] = _stay(tenants[k], near.tolist())
            ports = tuple(chosen[k] for k in range(len(tenants)))
            found[ports] = sum(float(cells[np.ix_(each, each)].sum()) for each in ports)
    return sorted(found, key=lambda ports: found[ports])[:MOST]


def _stay(tenant: Tenant, near: list[int]) -> tuple[int, ...]:
    """Leave ranks where they are, as far as their ports are among those given."""
    held = tenant.held or (-1,) * len(near)
    rest = iter([port for port in near if port not in held])
    return tuple(port if port in near else next(rest) for port in held)


def _around(fabric: Fabric) -> NDArray[np.int64]:
    """List the live ports in the order of their terminals on the boundary."""
    live = fabric.live_ports
    if fabric.graph is None:
        return live
    place = {terminal: k for k, terminal in enumerate(fabric.graph.perimeter.tolist())}
    terminals = fabric.source_terminals[live].tolist()
    return live[np.argsort([place.get(each, 0) for each in terminals], kind="stable")]
