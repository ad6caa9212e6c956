"""What the servers and the inter-rack switches of racks hold, for circuits that run over fibres.

A server is a switch between the ports of its chips and its fibres. Its inputs are the transmitters
of its chips, then the fibres that arrive; its outputs are the receivers of its chips, then the
fibres that leave, both ascending. An inter-rack switch has fibres alone. Where light does not pass
servers (`RackFabric.through` is False), each chip has fibres of its own and only the inter-rack
switches hold anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.fabrics.racks.rack import AXES
from optmatch.model import InputError

FibreRoute = Sequence[int]
"""The fibres that a circuit passes, in the order of its light."""


class _RackNode(NamedTuple):
    """A server or an inter-rack switch, seen as a switch of its own."""

    name: str
    n_ports: int
    """The larger of its numbers of inputs and outputs."""
    labels: tuple[str, ...]
    """``labels[k]``: what is at input k and at output k."""


class RackPart(NamedTuple):
    """A part of racks that can fail."""

    kind: str
    """``port`` or ``fibre``."""
    number: int


class RackNodes:
    """The switches of some racks, and how circuits pass them.

    Parameters
    ----------
    rack
        Racks with ideal interposers.
    """

    def __init__(self, rack: RackFabric) -> None:
        """Give numbers to the inputs and outputs of all switches of racks.

        Servers come first, then inter-rack switches. A server has the ports of its chips first,
        then its fibres; an inter-rack switch has fibres alone. Fibres of one switch have the order
        of their numbers, separately for those that leave it (outputs) and those that arrive
        (inputs).
        """
        self.rack = rack
        tails, heads = rack.edges[rack.edge_of_fibre].T
        self.tail_of_fibre: NDArray[np.int64] = tails.astype(np.int64)
        self.head_of_fibre: NDArray[np.int64] = heads.astype(np.int64)
        n_nodes = rack.n_servers + rack.n_rack_switches
        self.n_chip_ports = rack.chips_per_server * rack.ports_per_chip
        self.place_of_leaving = _places(self.tail_of_fibre, n_nodes)
        self.place_of_arriving = _places(self.head_of_fibre, n_nodes)

    def list_nodes(self) -> list[_RackNode]:
        """Return all switches: the servers, if light passes them, then the inter-rack switches.

        The ports of a server are those of its chips, then its places for fibres; those of an
        inter-rack switch are the low and the high end of each rack in turn.
        """
        rack = self.rack
        # As many fibres arrive at a switch as leave it, so that those that leave count its ports.
        leaving = np.bincount(self.tail_of_fibre, minlength=rack.n_servers)
        nodes = []
        if rack.through:
            for server in range(rack.n_servers):
                fibres = int(leaving[server])
                first_chip = server * rack.chips_per_server
                labels = [
                    *(
                        f"chip {chip} port {port}"
                        for chip in range(first_chip, first_chip + rack.chips_per_server)
                        for port in range(rack.ports_per_chip)
                    ),
                    *(f"fibre place {place}" for place in range(fibres)),
                ]
                nodes.append(_RackNode(f"server {server}", len(labels), tuple(labels)))
        for switch, (axis, first, second) in enumerate(rack.rack_switches.tolist()):
            fibres = int(leaving[rack.n_servers + switch])
            nodes.append(
                _RackNode(
                    f"inter-rack switch {switch} ({AXES[axis]} {first} {second})",
                    fibres,
                    tuple(f"rack {k // 2} {('low', 'high')[k % 2]}" for k in range(fibres)),
                )
            )
        return nodes

    def connections_of(
        self, source_port: int, destination_port: int, route: FibreRoute
    ) -> Iterable[tuple[int, int, int]]:
        """Yield the connection in each switch that a circuit passes, from source to destination.

        A connection is the place of the switch in `list_nodes`, and which of its inputs it joins
        to which output; in servers the ports of chips come first, then fibres. Fibres that do not
        join the two ports, one after the other, are an `InputError`.
        """
        rack = self.rack
        n_inner = rack.chips_per_server * rack.ports_per_chip
        self._check_route(source_port, destination_port, route)
        if rack.through:
            source_server = source_port // n_inner
            if not route:
                yield source_server, source_port % n_inner, destination_port % n_inner
                return
            yield source_server, source_port % n_inner, self._output(route[0])

        # Between two fibres lies a switch: a server that light passes, or an inter-rack switch.
        for arriving, leaving in pairwise(route):
            node = int(self.head_of_fibre[arriving])
            yield self._number(node), self._input(arriving), self._output(leaving)

        if rack.through:
            yield destination_port // n_inner, self._input(route[-1]), destination_port % n_inner

    def _check_route(self, source_port: int, destination_port: int, route: FibreRoute) -> None:
        """Refuse fibres that do not lead from one port to the other.

        Each fibre has to begin where the one before ends. Where light passes servers, the first
        one begins at the server of the source and the last one ends at that of the destination.
        """
        name = f"the circuit from port {source_port} to port {destination_port}"
        for arriving, leaving in pairwise(route):
            if self.head_of_fibre[arriving] != self.tail_of_fibre[leaving]:
                raise InputError(
                    f"{name}: fibre {leaving} does not begin where fibre {arriving} ends",
                    where="fibres",
                )

        # Where light passes servers, a circuit begins and ends at those of its chips.
        if self.rack.through:
            n_ports_of_server = self.rack.chips_per_server * self.rack.ports_per_chip
            server = source_port // n_ports_of_server
            last_server = destination_port // n_ports_of_server
            if route and self.tail_of_fibre[route[0]] != server:
                raise InputError(
                    f"{name}: fibre {route[0]} does not begin at server {server}", where="fibres"
                )
            if route:
                server = int(self.head_of_fibre[route[-1]])
            if server != last_server:
                raise InputError(
                    f"{name}: its fibres do not end at server {last_server}", where="fibres"
                )

    def part_at(self, node: int, place: int, *, is_input: bool) -> RackPart:
        """Return the port of a chip, or the fibre, that is at an input or an output of a switch.

        `node` is its place in `list_nodes`, and `place` counts chips first, then fibres: those
        that arrive at inputs, or leave at outputs.
        """
        rack = self.rack
        is_server = rack.through and node < rack.n_servers
        if is_server and place < self.n_chip_ports:
            return RackPart("port", node * self.n_chip_ports + place)
        # Nodes of the racks begin with the servers even where light does not pass them.
        graph_node = node if rack.through else node + rack.n_servers
        node_of_fibre = self.head_of_fibre if is_input else self.tail_of_fibre
        fibres = np.flatnonzero(node_of_fibre == graph_node)
        return RackPart("fibre", int(fibres[place - self._first_place(graph_node)]))

    def _number(self, node: int) -> int:
        """Return the place of a node in `list_nodes`."""
        return node if self.rack.through else node - self.rack.n_servers

    def _first_place(self, node: int) -> int:
        """Return where the fibres of a node begin among its inputs and outputs."""
        return self.n_chip_ports if node < self.rack.n_servers else 0

    def _input(self, fibre: int) -> int:
        """Return the input at which a fibre arrives."""
        first = self._first_place(int(self.head_of_fibre[fibre]))
        return first + int(self.place_of_arriving[fibre])

    def _output(self, fibre: int) -> int:
        """Return the output at which a fibre leaves."""
        first = self._first_place(int(self.tail_of_fibre[fibre]))
        return first + int(self.place_of_leaving[fibre])


def _places(node_of_fibre: NDArray[np.int64], n_nodes: int) -> NDArray[np.int64]:
    """Return the place of each fibre among those of the same node, ascending by fibre.

    Nodes 5, 3, 5 of fibres 0, 1, 2 give the places 0, 0, 1.
    """
    order = np.argsort(node_of_fibre, kind="stable")
    first = np.searchsorted(node_of_fibre[order], np.arange(n_nodes))
    places = np.empty(len(node_of_fibre), dtype=np.int64)
    # Sorted by node, the place of a fibre is its distance from the first one of its node.
    places[order] = np.arange(len(order)) - first[node_of_fibre[order]]
    return places


@lru_cache(maxsize=4)
def rack_nodes(rack: RackFabric) -> RackNodes:
    """Return the switches of racks; the last few are remembered."""
    return RackNodes(rack)
