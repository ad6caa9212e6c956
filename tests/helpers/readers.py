"""Readers of files for other tools, by the shortest way."""

import json
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import BAR, CROSS, FREE


def circuit_schedules(text: str, kind: str = "BW") -> dict[int, NDArray[np.float64]]:
    """Read blocks of astra-sim: ``matrix[source, destination]`` by number of the topology."""
    found = {}
    for block in text.split("END")[:-1]:
        head, *rows = block.strip().splitlines()
        word, number = head.split()
        assert word == kind
        found[int(number)] = np.array([row.split() for row in rows], dtype=np.float64)
    return found


def connected(
    lines: list[list[int]], n_nodes: int, *, one_way: bool
) -> list[set[tuple[int, int, int, int]]]:
    """Join ports by the rules of OpenOptics' `connect`: a port has one peer in a slice.

    Returns for each slice the ways of light as node, node, port, port.
    """
    slices: list[set[tuple[int, int, int, int]]] = []
    taken = set[tuple[int, int, int]]()
    for slice_, a, b, p, q in lines:
        assert 0 <= a < n_nodes and 0 <= b < n_nodes and slice_ >= 0
        ends = {(slice_, a, p), (slice_, b, q)}
        assert not ends & taken, f"port occupied: {slice_} {a} {p} {b} {q}"
        taken |= ends
        slices += [set() for _ in range(slice_ + 1 - len(slices))]
        slices[slice_] |= {(a, b, p, q)} if one_way else {(a, b, p, q), (b, a, q, p)}
    return slices


def check_trace(content: str) -> list[dict[str, Any]]:
    """Check the rules that a viewer of trace events relies on; return the events that last.

    Those of one thread follow each other, whether a viewer rounds to nanoseconds or cuts off.
    """
    tree = json.loads(content)
    assert set(tree) == {"displayTimeUnit", "traceEvents"}
    named, lanes, flows = set(), defaultdict(list), defaultdict(list)
    for event in tree["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        if event["ph"] == "M":
            named.add((event["pid"], event["tid"]))
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            start, lasts = (int(1e3 * event[name]) for name in ("ts", "dur"))
            assert (start, lasts) == tuple(round(1e3 * event[name]) for name in ("ts", "dur"))
            lanes[event["pid"], event["tid"]].append((start, start + lasts))
        else:
            assert event["ph"] in ("s", "f")
            flows[event["id"]].append((event["ph"], event["ts"]))
    for lane, spans in lanes.items():
        assert lane in named
        for one, two in pairwise(sorted(spans)):
            assert one[1] <= two[0]
    for ends in flows.values():
        assert [phase for phase, _ in ends] == ["s", "f"]
        assert ends[0][1] <= ends[1][1]
    return [event for event in tree["traceEvents"] if event["ph"] == "X"]


def states_of(tree: Mapping[str, Any]) -> NDArray[np.int8]:
    """Return the states that a netlist has as settings of its cells."""
    numbers = {"bar": BAR, "cross": CROSS}
    settings = [instance.get("settings") or {} for instance in tree["instances"].values()]
    return np.array(
        [numbers.get(str(each.get("state")), FREE) for each in settings], dtype=np.int8
    )
