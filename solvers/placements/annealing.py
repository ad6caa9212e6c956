"""Simulated annealing of placements: hosts move to other ports, and exchange theirs.

Any pattern of circuits, and any cost of two ports. The cost of a placement is the sum over all
circuits; for the worst loss it counts what is above a threshold, which a caller lowers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.placements.draws import draw_below, draw_share, seed_draws

NOBODY = -1
"""In `PortUse.host_at`: no host is on the port."""


class Circuits(NamedTuple):
    """The circuits of all hosts, in compressed rows: those of a host stand side by side."""

    first: NDArray[np.int64]
    """``first[host]``, shape (hosts + 1,): where its circuits begin."""
    partner: NDArray[np.int64]
    """``partner[place]``: the host at the other end."""
    is_source: NDArray[np.bool_]
    """``is_source[place]``: whether the host sends on this circuit."""

    @classmethod
    def of(cls, pairs: NDArray[np.int32], n_hosts: int) -> Circuits:
        """List circuits, ``pairs[circuit] = source, destination``, at both of their hosts."""
        host = np.concatenate([pairs[:, 0], pairs[:, 1]])
        partner = np.concatenate([pairs[:, 1], pairs[:, 0]])
        is_source = np.arange(len(host)) < len(pairs)
        order = np.argsort(host, kind="stable")
        first = np.searchsorted(host[order], np.arange(n_hosts + 1))
        return cls(
            first.astype(np.int64), partner[order].astype(np.int64), is_source[order].copy()
        )


class PortUse(NamedTuple):
    """Which host is where; a placement, in both directions."""

    port_of: NDArray[np.int64]
    """``port_of[host]``."""
    host_at: NDArray[np.int64]
    """``host_at[port]``; -1 for a free one."""


class Cooling(NamedTuple):
    """How long to anneal, and how warm."""

    n_steps: int
    first_temperature: float
    last_temperature: float
    enough: float
    """A cost at which the search ends."""
    seed: int


@inner_kernel
def _cost_of_host(
    circuits: Circuits, port_of: NDArray[np.int64], cost: NDArray[np.float64], host: int
) -> float:
    """Add up what the circuits of a host cost."""
    port = port_of[host]
    total = 0.0
    for place in range(circuits.first[host], circuits.first[host + 1]):
        other_port = port_of[circuits.partner[place]]
        if circuits.is_source[place]:
            total += cost[port, other_port]
        else:
            total += cost[other_port, port]
    return total


@inner_kernel
def _cost_between(
    circuits: Circuits,
    port_of: NDArray[np.int64],
    cost: NDArray[np.float64],
    host: int,
    other: int,
) -> float:
    """Add up what the circuits between two hosts cost."""
    total = 0.0
    for place in range(circuits.first[host], circuits.first[host + 1]):
        if circuits.partner[place] != other:
            continue
        if circuits.is_source[place]:
            total += cost[port_of[host], port_of[other]]
        else:
            total += cost[port_of[other], port_of[host]]
    return total


@inner_kernel
def _cost_of_two(
    circuits: Circuits,
    port_of: NDArray[np.int64],
    cost: NDArray[np.float64],
    host: int,
    other: int,
) -> float:
    """Add up what the circuits of one or two hosts cost; those between both count once.

    ``other`` is -1 where there is no second host.
    """
    total = _cost_of_host(circuits, port_of, cost, host)
    if other >= 0:
        total += _cost_of_host(circuits, port_of, cost, other)
        total -= _cost_between(circuits, port_of, cost, host, other)
    return total


@kernel
def anneal(
    circuits: Circuits,
    use: PortUse,
    movable: tuple[NDArray[np.int64], NDArray[np.int64]],
    cost: NDArray[np.float64],
    cooling: Cooling,
    best_port_of: NDArray[np.int64],
) -> float:
    """Anneal a placement (Kirkpatrick, Gelatt and Vecchi 1983), and return the best cost.

    A step moves a host to a port; the host that is there, if there is one, takes its port. A step
    that makes the cost no larger is always taken, another one with the probability
    exp(-increase / temperature). The temperature falls geometrically.

    Parameters
    ----------
    circuits
        The circuits that are needed.
    use
        The placement at the start; changed.
    movable
        The hosts that may move, and the ports that they may have: all but those of other hosts.
    cost
        ``cost[source port, destination port]`` of a circuit, finite.
    cooling
        The schedule of temperatures.
    best_port_of
        ``best_port_of[host]``: the best placement is written here.

    Returns
    -------
    float
        Its cost.
    """
    hosts, ports = movable
    port_of = use.port_of
    host_at = use.host_at
    seed_draws(cooling.seed)

    # Every circuit stands at both of its hosts, so the sum over hosts is twice the cost.
    total = 0.0
    for host in range(len(port_of)):
        total += _cost_of_host(circuits, port_of, cost, host) / 2
    best = total
    for host in range(len(port_of)):
        best_port_of[host] = port_of[host]

    temperature = cooling.first_temperature
    factor = (cooling.last_temperature / cooling.first_temperature) ** (1.0 / cooling.n_steps)
    for _step in range(cooling.n_steps):
        if best <= cooling.enough:
            break
        temperature *= factor
        host = hosts[draw_below(len(hosts))]
        new_port = ports[draw_below(len(ports))]
        old_port = port_of[host]
        if new_port == old_port:
            continue
        other = host_at[new_port]

        before = _cost_of_two(circuits, port_of, cost, host, other)
        port_of[host] = new_port
        if other >= 0:
            port_of[other] = old_port
        increase = _cost_of_two(circuits, port_of, cost, host, other) - before

        if increase <= 0.0 or draw_share() < np.exp(-increase / temperature):
            host_at[new_port] = host
            host_at[old_port] = other
            total += increase
            if total < best - 1e-9:
                best = total
                for moved in range(len(port_of)):
                    best_port_of[moved] = port_of[moved]
        else:
            port_of[host] = old_port
            if other >= 0:
                port_of[other] = new_port
    return best
