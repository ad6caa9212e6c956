"""Files of OpenOptics: circuits by time slice, and the matrix of peers by slice."""

from __future__ import annotations

import json

from optmatch.io.rails.topologies import topologies
from optmatch.model import IDLE, Solution

Circuit = tuple[int, int, int, int, int]


def circuit_list(solution: Solution) -> str:
    """Write ``[time slice, node 1, node 2, port 1, port 2]`` for each circuit, as JSON.

    A slice for each state of the switches in the order of time; a port is the plane or the port
    of the GPU. Node 1 sends to node 2; two circuits between the same two ports, one each way, are
    one line, as there all circuits go both ways.
    """
    found, lines = topologies(solution), []
    for slice_, topology in enumerate(found.topology.tolist()):
        rows = [tuple(row) for row in found.circuits(topology).tolist()]
        there = set(rows)
        for a, b, p, q in rows:
            if (b, a, q, p) not in there or (a, p) <= (b, q):
                lines.append([slice_, a, b, p, q])
    return "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n" if lines else "[]\n"


def peer_matrix(solution: Solution) -> str:
    """Write the text that ``from_schedule`` loads: a row for each slice, -1 where idle.

    Column ``node * ports + port`` has the node that this port sends to. OpenOptics takes over the
    circuits that go both ways, as its links do.
    """
    found, rows = topologies(solution), []
    for topology in found.topology.tolist():
        row = [IDLE] * (found.n_nodes * found.n_ports)
        for source, destination, port, _ in found.circuits(topology).tolist():
            row[source * found.n_ports + port] = destination
        rows.append("\t".join(map(str, row)) + "\n")
    return "".join(rows)
