"""Tabu search for a placement whose circuits all keep to a threshold: any pattern of circuits.

Min-conflicts with tabu tenures, as TabuCol does for colourings (Hertz and de Werra 1987; tenures
of Galinier and Hao 1999, doi 10.1023/A:1009823419804): only hosts of a circuit above the threshold
move, each to the port that leaves fewest such circuits, and none goes back for a while. A table
says how many circuits of each host would be above the threshold on each port.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.placements.circuits import NOBODY, Circuits
from optmatch.solvers.placements.draws import draw_below, new_draws

_TENURE_SHARE = 0.6
_TENURE_DRAW = 10
"""A move back is tabu for 0.6 times the hosts in conflict, and up to ten steps more.

On 128 and 320 ports with four partners a host, half of the share and 1.0 with twenty steps more
both end 0.01 dB higher after 300,000 steps.
"""


class ConflictState(NamedTuple):
    """Where the search stands; the kernel changes all of it but `is_open`."""

    port_of: NDArray[np.int64]
    """``port_of[host]``: the port of each host."""
    host_at: NDArray[np.int64]
    """``host_at[port]``: the host on a port; -1 for a port that no host has."""
    is_open: NDArray[np.bool_]
    """``is_open[port]``: whether the hosts that move may have the port."""
    n_conflicts: NDArray[np.int64]
    """``n_conflicts[host, port]``: circuits above the threshold if the host alone moved there."""
    tabu_until: NDArray[np.int64]
    """``tabu_until[host, port]``: the step from which on the host may have the port again."""
    draws: NDArray[np.int64]
    """The state of the random numbers, shape (2,)."""

    @classmethod
    def start(
        cls,
        circuits: Circuits,
        is_above: NDArray[np.int64],
        port_of: NDArray[np.int64],
        open_ports: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> ConflictState:
        """Begin a min-conflicts search with a placement, and count circuits above a threshold.

        A placement gives each host a port. A conflict is a circuit whose loss is above a
        threshold; the search moves hosts until there is none.

        Parameters
        ----------
        circuits
            The circuits of all hosts in compressed rows: those of host h are at the places
            ``first[h]`` to ``first[h + 1]``, each with its ``partner`` and whether h is its source
            (``is_source``).
        is_above
            ``is_above[source port, destination port]``: 1 for a circuit above the threshold, else
            0; shape (ports, ports).
        port_of
            ``port_of[host]``: the port of each host, shape (hosts,). It is copied.
        open_ports
            The ports that the hosts that move may have.
        rng
            Gives the kernel its random numbers.

        Returns
        -------
        ConflictState
            The placement both ways, which ports are open, and ``n_conflicts[host, port]``: how
            many circuits of a host would be above the threshold if it alone went to a port.
        """
        n_ports = len(is_above)
        host_at = np.full(n_ports, NOBODY, dtype=np.int64)
        host_at[port_of] = np.arange(len(port_of))
        is_open = np.zeros(n_ports, dtype=bool)
        is_open[open_ports] = True
        n_conflicts = np.zeros((len(port_of), n_ports), dtype=np.int64)
        for host in range(len(port_of)):
            places = slice(circuits.first[host], circuits.first[host + 1])
            partner_ports = port_of[circuits.partner[places]]
            sends = circuits.is_source[places]
            # For every port of the host at once: circuits out to the ports of its partners, then
            # circuits in from them.
            n_conflicts[host] += is_above[:, partner_ports[sends]].sum(axis=1)
            n_conflicts[host] += is_above[partner_ports[~sends]].sum(axis=0)
        tabu_until = np.zeros_like(n_conflicts)
        return cls(port_of.copy(), host_at, is_open, n_conflicts, tabu_until, new_draws(rng))


class HostMove(NamedTuple):
    """A host that goes to another port; the host that is there takes its port."""

    host: int
    """The host; -1 if all moves are tabu."""
    port: int
    """The port to which it goes; -1 if all moves are tabu."""
    increase: int
    """By how much the number of circuits above the threshold grows; negative if it falls."""
    n_hosts_in_conflict: int
    """How many of the hosts that may move have a circuit above the threshold before the move."""


@inner_kernel
def _increase_of(
    circuits: Circuits, is_above: NDArray[np.int64], state: ConflictState, host: int, port: int
) -> int:
    """Return by how much the circuits above the threshold grow if a host goes to a port.

    A host that is on the port already gets the port of the first one in exchange.

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows: those of host h are at the places
        ``first[h]`` to ``first[h + 1]``; ``n_between[h, k]`` is the number of circuits between two
        hosts.
    is_above
        ``is_above[source port, destination port]``: 1 for a circuit above the threshold, else 0.
    state
        The placement, and ``n_conflicts[host, port]``: the circuits of a host above the threshold
        if it alone went to a port.
    host, port
        The host that moves, and the port that it gets.

    Returns
    -------
    int
        The circuits above the threshold after the move, less those before; negative if it helps.
    """
    old_port = state.port_of[host]
    increase = state.n_conflicts[host, port] - state.n_conflicts[host, old_port]
    other = state.host_at[port]
    if other != NOBODY:
        increase += state.n_conflicts[other, old_port] - state.n_conflicts[other, port]
        # The table takes the partner of each as staying; circuits between the two turn around.
        turned = is_above[port, old_port] + is_above[old_port, port]
        increase += circuits.n_between[host, other] * turned
    return int(increase)


@inner_kernel
def _choose_move(
    circuits: Circuits, is_above: NDArray[np.int64], state: ConflictState, step: int, slack: int
) -> HostMove:
    """Draw one of the best moves of hosts in conflict.

    A host is in conflict if one of its circuits is above the threshold. It may move to any open
    port, and exchanges ports with a host that is there. A move is tabu if one of both hosts has
    left its new port a short time before; it then counts only if it leaves fewer circuits above
    the threshold than ever before (aspiration).

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows.
    is_above
        ``is_above[source port, destination port]``: 1 for a circuit above the threshold, else 0.
    state
        The placement (``port_of``, ``host_at``), the conflicts ``n_conflicts[host, port]``, and
        ``tabu_until[host, port]``, the step from which on a host may go to a port; its random
        numbers go on.
    step
        The number of the step, by which moves are tabu or not.
    slack
        How many fewer circuits than now were above the threshold in the best placement so far.

    Returns
    -------
    HostMove
        The host, its new port, by how much the circuits above the threshold grow, and the number
        of hosts in conflict; the host is -1 if no move is allowed.
    """
    best_host = -1
    best_port = -1
    least_increase = 1 << 30
    n_equal = 0
    n_hosts_in_conflict = 0
    for host in range(len(state.port_of)):
        old_port = state.port_of[host]
        if state.n_conflicts[host, old_port] == 0 or not state.is_open[old_port]:
            continue
        n_hosts_in_conflict += 1
        for port in range(len(is_above)):
            if port == old_port or not state.is_open[port]:
                continue
            increase = _increase_of(circuits, is_above, state, host, port)
            if increase > least_increase:
                continue
            other = state.host_at[port]
            is_tabu = state.tabu_until[host, port] > step
            if other != NOBODY and state.tabu_until[other, old_port] > step:
                is_tabu = True
            # Only an increase below -slack leads below the best placement so far.
            if is_tabu and increase >= -slack:
                continue

            # Each of the equally good moves is drawn with the same probability.
            if increase < least_increase:
                least_increase = increase
                n_equal = 0
            n_equal += 1
            if draw_below(state.draws, n_equal) == 0:
                best_host = host
                best_port = port
    return HostMove(best_host, best_port, least_increase, n_hosts_in_conflict)


@inner_kernel
def _put_host(
    circuits: Circuits, is_above: NDArray[np.int64], state: ConflictState, host: int, port: int
) -> None:
    """Put a host on a port, and count the conflicts of its partners anew.

    A conflict is a circuit above the threshold. Only rows of partners of the host change in
    ``state.n_conflicts``, at all ports that they could have: what the circuit with the host adds
    there is exchanged.

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows: those of host h are at the places
        ``first[h]`` to ``first[h + 1]``; ``n_between[h, k]`` is the number of circuits between two
        hosts.
    is_above
        ``is_above[source port, destination port]``: 1 for a circuit above the threshold, else 0.
    state
        The placement, and ``n_conflicts[host, port]``: the circuits of a host above the threshold
        if it alone went to a port.
    host, port
        The host that moves, and the port that it gets.
    """
    old_port = state.port_of[host]
    state.port_of[host] = port
    for place in range(circuits.first[host], circuits.first[host + 1]):
        partner = circuits.partner[place]
        for partner_port in range(len(is_above)):
            if circuits.is_source[place]:
                change = is_above[port, partner_port] - is_above[old_port, partner_port]
            else:
                change = is_above[partner_port, port] - is_above[partner_port, old_port]
            state.n_conflicts[partner, partner_port] += change


@kernel
def reduce_conflicts(
    circuits: Circuits,
    is_above: NDArray[np.int64],
    state: ConflictState,
    fewest: NDArray[np.int64],
    steps: tuple[int, int],
) -> int:
    """Move hosts until no circuit is above the threshold: min-conflicts with a tabu list.

    A step looks at all ports of all hosts in conflict, those with a circuit above the threshold,
    makes the best move, and counts the conflicts of the partners of the host anew. Calls for steps
    0 to 9 and 10 to 19 do what one call for 0 to 19 does.

    Parameters
    ----------
    circuits
        The circuits of all hosts in compressed rows.
    is_above
        ``is_above[source port, destination port]``: 1 for a circuit above the threshold, else 0;
        0 on the diagonal.
    state
        The placement so far, ``port_of[host]`` and ``host_at[port]``, and ``n_conflicts[host,
        port]``: the circuits of a host above the threshold if it alone went to a port.
    fewest
        ``fewest[0]``: the fewest circuits above the threshold so far, kept from call to call.
    steps
        The first step, and the one behind the last.

    Returns
    -------
    int
        The circuits above the threshold in the last placement; 0 if all keep to it.
    """
    total = 0
    for host in range(len(state.port_of)):
        total += state.n_conflicts[host, state.port_of[host]]
    total //= 2  # each circuit counts at both of its hosts

    for step in range(steps[0], steps[1]):
        fewest[0] = min(fewest[0], total)
        if total == 0:
            break
        move = _choose_move(circuits, is_above, state, step, total - fewest[0])
        if move.host < 0:
            continue
        old_port = state.port_of[move.host]
        other = state.host_at[move.port]
        _put_host(circuits, is_above, state, move.host, move.port)
        if other != NOBODY:
            _put_host(circuits, is_above, state, other, old_port)
        state.host_at[move.port] = move.host
        state.host_at[old_port] = other
        total += move.increase

        # Neither of the two goes back for a while.
        tenure = int(_TENURE_SHARE * move.n_hosts_in_conflict)
        state.tabu_until[move.host, old_port] = (
            step + 1 + tenure + draw_below(state.draws, _TENURE_DRAW)
        )
        if other != NOBODY:
            state.tabu_until[other, move.port] = (
                step + 1 + tenure + draw_below(state.draws, _TENURE_DRAW)
            )
    return int(total)
