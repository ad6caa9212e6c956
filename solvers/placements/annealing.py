"""Simulated annealing of placements: hosts move to other ports, and exchange theirs.

Any pattern of circuits, and any cost of two ports. The cost of a placement is the sum over all
circuits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.placements.circuits import NOBODY, Circuits
from optmatch.solvers.placements.draws import draw_below, draw_share, new_draws


class AnnealingState(NamedTuple):
    """Where an annealing stands; a kernel changes all of it but `hosts` and `ports`."""

    hosts: NDArray[np.int64]
    """The numbers of the hosts that may move."""
    ports: NDArray[np.int64]
    """The ports that they may have: all but those of other hosts."""
    port_of: NDArray[np.int64]
    """``port_of[host]``: the port of each host in the present placement."""
    host_at: NDArray[np.int64]
    """``host_at[port]``: the host on a port; -1 for a port that no host has."""
    best_port_of: NDArray[np.int64]
    """``best_port_of[host]``: the port of each host in the best placement so far."""
    costs: NDArray[np.float64]
    """The cost of the placement, and that of the best one; shape (2,)."""
    draws: NDArray[np.int64]
    """The state of the random numbers, shape (2,)."""

    @classmethod
    def start(
        cls,
        port_of: NDArray[np.int64],
        movable: tuple[NDArray[np.int64], NDArray[np.int64]],
        n_ports: int,
        total_cost: float,
        rng: np.random.Generator,
    ) -> AnnealingState:
        """Begin simulated annealing with a placement, which is also the best one so far.

        A placement gives each host a port of the switch.

        Parameters
        ----------
        port_of
            ``port_of[host]``: the port of each host; int64, shape (hosts,). It is copied.
        movable
            The numbers of the hosts that may move, and the ports that they may have.
        n_ports
            The number of ports of the switch.
        total_cost
            The sum of the costs of all circuits in this placement.
        rng
            Gives the kernel its random numbers.

        Returns
        -------
        AnnealingState
            The present and the best placement, who is on each port (-1 for nobody), both costs,
            and the state of the random numbers.
        """
        host_at = np.full(n_ports, NOBODY, dtype=np.int64)
        host_at[port_of] = np.arange(len(port_of))
        hosts, ports = movable
        costs = np.array([total_cost, total_cost])
        return cls(hosts, ports, port_of.copy(), host_at, port_of.copy(), costs, new_draws(rng))


class Cooling(NamedTuple):
    """A geometric schedule of temperatures, in the unit of the costs."""

    first_temperature: float
    """The temperature of step 0."""
    last_temperature: float
    """The temperature that is reached after the last step."""
    n_steps: int
    """How many steps there are between them."""


@inner_kernel
def _cost_of_host(
    circuits: Circuits, port_of: NDArray[np.int64], cost: NDArray[np.float64], host: int
) -> float:
    """Add up what the circuits of a host cost, those that it sends on and those it receives on.

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows: those of host h are at the places
        ``first[h]`` to ``first[h + 1]``, each with its ``partner`` and whether h is its source
        (``is_source``).
    port_of
        ``port_of[host]``: the port of each host, shape (hosts,).
    cost
        ``cost[source port, destination port]`` of a circuit, shape (ports, ports).
    host
        The number of the host.
    """
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
    """Add up what the circuits between two hosts cost, in both directions.

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows: those of host h are at the places
        ``first[h]`` to ``first[h + 1]``, each with its ``partner`` and whether h is its source
        (``is_source``).
    port_of
        ``port_of[host]``: the port of each host, shape (hosts,).
    cost
        ``cost[source port, destination port]`` of a circuit, shape (ports, ports).
    host, other
        The numbers of the two hosts.
    """
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

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows: those of host h are at the places
        ``first[h]`` to ``first[h + 1]``, each with its ``partner`` and whether h is its source
        (``is_source``).
    port_of
        ``port_of[host]``: the port of each host, shape (hosts,).
    cost
        ``cost[source port, destination port]`` of a circuit, shape (ports, ports).
    host
        The number of the first host.
    other
        The number of the second host, -1 if there is none.
    """
    total = _cost_of_host(circuits, port_of, cost, host)
    if other >= 0:
        total += _cost_of_host(circuits, port_of, cost, other)
        # Both sums have the circuits between the two, so that one time is taken off.
        total -= _cost_between(circuits, port_of, cost, host, other)
    return total


@kernel
def anneal(
    circuits: Circuits,
    cost: NDArray[np.float64],
    state: AnnealingState,
    cooling: Cooling,
    steps: tuple[int, int],
) -> float:
    """Anneal a placement (Kirkpatrick, Gelatt and Vecchi 1983), and return the best cost.

    A step moves a host to a port; the host that is there, if there is one, takes its port. A step
    that makes the cost no larger is always taken, another one with the probability
    exp(-increase / temperature). The temperature falls geometrically. Calls for steps 0 to 9 and
    10 to 19 do what one call for 0 to 19 does.

    Parameters
    ----------
    circuits
        The circuits that are needed.
    cost
        ``cost[source port, destination port]`` of a circuit, finite.
    state
        The placement so far, and the best one.
    cooling
        The schedule of temperatures.
    steps
        The first step, and the one behind the last.

    Returns
    -------
    float
        The cost of the best placement of all steps so far, whose ports are
        ``state.best_port_of``.
    """
    port_of = state.port_of
    host_at = state.host_at
    factor = (cooling.last_temperature / cooling.first_temperature) ** (1.0 / cooling.n_steps)
    for step in range(steps[0], steps[1]):
        temperature = cooling.first_temperature * factor**step
        host = state.hosts[draw_below(state.draws, len(state.hosts))]
        new_port = state.ports[draw_below(state.draws, len(state.ports))]
        old_port = port_of[host]
        if new_port == old_port:
            continue
        other = host_at[new_port]

        # Only circuits of the hosts that move change their costs.
        before = _cost_of_two(circuits, port_of, cost, host, other)
        port_of[host] = new_port
        if other != NOBODY:
            port_of[other] = old_port
        increase = _cost_of_two(circuits, port_of, cost, host, other) - before

        if increase <= 0.0 or draw_share(state.draws) < np.exp(-increase / temperature):
            host_at[new_port] = host
            host_at[old_port] = other
            state.costs[0] += increase
            if state.costs[0] < state.costs[1] - 1e-9:
                state.costs[1] = state.costs[0]
                for moved in range(len(port_of)):
                    state.best_port_of[moved] = port_of[moved]
        else:
            port_of[host] = old_port
            if other != NOBODY:
                port_of[other] = new_port
    return float(state.costs[1])
