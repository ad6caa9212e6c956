"""Files of OpenOptics: circuits by time slice, and the matrix of peers by slice."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.topologies import Topologies, topologies
from optmatch.io.text import parse
from optmatch.model import IDLE, FormatError, Solution

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
    found = topologies(solution)
    rows = [_peers(found, topology) for topology in found.topology.tolist()]
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def read_circuits(path: str | os.PathLike[str]) -> list[Circuit]:
    """Read a list of circuits.

    Raises
    ------
    FormatError
        Naming the entry that is no circuit.
    """
    file = os.fspath(path)
    try:
        tree = parse(Path(path).read_bytes(), file)
    except OSError as exc:
        raise FormatError(f"cannot be read: {exc.strerror}", path=file) from exc
    if not isinstance(tree, list):
        raise FormatError("a list of circuits is expected", where="/", path=file)
    for place, row in enumerate(tree):
        whole = isinstance(row, list) and len(row) == 5 and all(type(v) is int for v in row)
        if not whole or min(row) < 0:
            raise FormatError(
                "a circuit is [time_slice, node1, node2, port1, port2], whole numbers >= 0",
                where=f"/{place}",
                path=file,
            )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in tree]


def peers_of(circuits: Sequence[Circuit], n_nodes: int, n_ports: int) -> NDArray[np.int64]:
    """Return ``peers[slice, node * n_ports + port]``, -1 where idle, of circuits both ways.

    Examples
    --------
    >>> peers_of([(0, 0, 2, 0, 1)], n_nodes=3, n_ports=2).tolist()
    [[2, -1, -1, -1, -1, 0]]
    """
    slices = 1 + max((row[0] for row in circuits), default=-1)
    peers = np.full((slices, n_nodes * n_ports), IDLE, dtype=np.int64)
    for slice_, one, two, out, back in circuits:
        peers[slice_, one * n_ports + out] = two
        peers[slice_, two * n_ports + back] = one
    return peers


def _peers(found: Topologies, topology: int) -> list[int]:
    row = [IDLE] * (found.n_nodes * found.n_ports)
    for source, destination, port, _ in found.circuits(topology).tolist():
        row[source * found.n_ports + port] = destination
    return row
