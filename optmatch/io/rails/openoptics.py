"""Files of OpenOptics: circuits by time slice, and the matrix of peers by slice.

A port of OpenOptics has one peer, to which it sends and from which it receives. Where all circuits
go both ways, its ports are ours. Where a port sends to one and receives from another, it becomes
two ports: 2 p sends, 2 p + 1 receives.
"""

from __future__ import annotations

import json
from collections import Counter

from optmatch.io.rails.topologies import Topologies, topologies
from optmatch.model import IDLE, InputError, Solution

Circuit = tuple[int, int, int, int]
"""Node 1, node 2, port 1, port 2."""


def circuit_list(solution: Solution) -> str:
    """Write ``[time slice, node 1, node 2, port 1, port 2]`` for each circuit, as JSON.

    A slice for each state of the switches in the order of time; a port is the plane or the port
    of the GPU, or one of the two that it becomes. If all circuits go both ways, a line is for
    both ways. If not, a line is for one way: node 1 sends to node 2.
    """
    _, slices, both_ways = _slices(solution)
    lines = []
    for slice_, rows in enumerate(slices):
        for a, b, p, q in rows:
            if not both_ways:
                lines.append([slice_, a, b, 2 * p, 2 * q + 1])
            elif (a, p) <= (b, q):
                lines.append([slice_, a, b, p, q])
    return "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n" if lines else "[]\n"


def peer_matrix(solution: Solution) -> str:
    """Write the text that ``from_schedule`` loads: a row for each slice, -1 where idle.

    Column ``node * ports + port`` has the node at the other end, in the columns of both. A single
    slice is there twice, since one row alone is not loaded.
    """
    found, slices, both_ways = _slices(solution)
    ways = 1 if both_ways else 2
    ports, lines = ways * found.n_ports, []
    for slice_, rows in enumerate(slices):
        row = [IDLE] * (found.n_nodes * ports)
        joined = Counter[tuple[int, int]]()
        for a, b, p, q in rows:
            back = _returns((a, b, p, q), rows)
            joined[min(a, b), max(a, b)] += 1 if not back or (a, p) <= (b, q) else 0
            row[a * ports + ways * p] = b
            if not back:
                row[b * ports + ways * q + 1] = a
        for (a, b), count in joined.items():
            if count > 1:
                raise InputError(
                    f"slice {slice_}: {count} circuits join {a} and {b}, and a matrix of peers"
                    " does not say which ports belong together: write openoptics"
                )
        lines.append("\t".join(map(str, row)) + "\n")
    return "".join(lines * 2 if len(lines) == 1 else lines)


def _slices(solution: Solution) -> tuple[Topologies, list[dict[Circuit, None]], bool]:
    """List the circuits of every slice in the order of time, and whether all go both ways."""
    found = topologies(solution)
    slices = [
        {(a, b, p, q): None for a, b, p, q in found.circuits(topology).tolist()}
        for topology in found.topology.tolist()
    ]
    return found, slices, all(_returns(row, rows) for rows in slices for row in rows)


def _returns(circuit: Circuit, there: dict[Circuit, None]) -> bool:
    """Tell whether the same two ports are also joined the other way."""
    a, b, p, q = circuit
    return (b, a, q, p) in there
