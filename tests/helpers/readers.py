"""Readers of what is written for other tools, by the shortest way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import BAR, CROSS, FREE, IDLE


def circuit_schedules(text: str, kind: str = "BW") -> dict[int, NDArray[np.float64]]:
    """Read blocks of astra-sim: ``matrix[source, destination]`` by number of the topology."""
    found = {}
    for block in text.split("END")[:-1]:
        head, *rows = block.strip().splitlines()
        word, number = head.split()
        assert word == kind
        found[int(number)] = np.array([row.split() for row in rows], dtype=np.float64)
    return found


def peers_of(
    circuits: Sequence[tuple[int, int, int, int, int]], n_nodes: int, n_ports: int
) -> NDArray[np.int64]:
    """Return ``peers[slice, node * n_ports + port]``, -1 where idle, of circuits both ways."""
    slices = 1 + max((row[0] for row in circuits), default=-1)
    peers = np.full((slices, n_nodes * n_ports), IDLE, dtype=np.int64)
    for slice_, one, two, out, back in circuits:
        peers[slice_, one * n_ports + out] = two
        peers[slice_, two * n_ports + back] = one
    return peers


def states_of(tree: Mapping[str, Any]) -> NDArray[np.int8]:
    """Return the states that a netlist has as settings of its cells."""
    numbers = {"bar": BAR, "cross": CROSS}
    settings = [instance.get("settings") or {} for instance in tree["instances"].values()]
    return np.array(
        [numbers.get(str(each.get("state")), FREE) for each in settings], dtype=np.int8
    )
