"""Plain placements: one host after the other, and exchanges of the worst circuit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import optmatch as om


def place_greedily(problem: om.HostPlacement, rng: np.random.Generator) -> NDArray[np.int64]:
    """Give each host, in a random order, the free port that adds least to the objective."""
    loss_db = problem.usable_loss_db
    port_of = np.array(problem.held or (-1,) * problem.n_hosts, dtype=np.int64)
    is_total = problem.objective == "total-loss-db"
    free_ports = set(problem.fabric.live_ports.tolist()) - set(port_of.tolist())
    for host in rng.permutation(np.flatnonzero(port_of < 0)).tolist():
        best_port = -1
        best_cost = np.inf
        for port in sorted(free_ports):
            losses = [0.0]
            for source, destination in problem.pairs.tolist():
                if source == host and port_of[destination] >= 0:
                    losses.append(loss_db[port, port_of[destination]])
                if destination == host and port_of[source] >= 0:
                    losses.append(loss_db[port_of[source], port])
            cost = sum(losses) if is_total else max(losses)
            if best_port < 0 or cost < best_cost:
                best_port = port
                best_cost = cost
        port_of[host] = best_port
        free_ports.discard(best_port)
    return port_of


def exchange_worst(problem: om.HostPlacement, port_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move a host of the worst circuit to any port, as long as that lowers the objective.

    A host that has the port takes the old one. Hosts that had a port from the beginning stay.
    """
    loss_db = problem.usable_loss_db
    held = np.array(problem.held or (-1,) * problem.n_hosts)
    open_ports = np.setdiff1d(problem.fabric.live_ports, held).tolist()
    port_of = port_of.copy()
    sources, destinations = problem.pairs.T
    if not len(sources):
        return port_of
    objective = problem.objective_of(port_of)
    while True:
        worst = int(np.argmax(loss_db[port_of[sources], port_of[destinations]]))
        best = port_of
        for host in (int(sources[worst]), int(destinations[worst])):
            if held[host] >= 0:
                continue
            for port in open_ports:
                moved = port_of.copy()
                moved[port_of == port] = port_of[host]
                moved[host] = port
                if problem.objective_of(moved) < objective:
                    best = moved
                    objective = problem.objective_of(moved)
        if best is port_of:
            return port_of
        port_of = best
