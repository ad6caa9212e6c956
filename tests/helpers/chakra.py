"""Chakra traces to test with: files, JSON, and nodes that send or are collectives."""

import json
from pathlib import Path
from typing import Any

from optmatch.io.rails.chakra import (
    COLLECTIVE,
    COLLECTIVES,
    SEND,
    Node,
    trace_bytes,
)


def trace(folder: Path, *ranks: list[Node], name: str = "run") -> list[Path]:
    """Write a file for each rank."""
    paths = []
    for rank, nodes in enumerate(ranks):
        paths.append(folder / f"{name}.{rank}.et")
        paths[-1].write_bytes(trace_bytes(nodes))
    return paths


def send(number: int, **attributes: int | str) -> Node:
    """Make a node that sends."""
    return Node(number, SEND, attributes=attributes)


def collective(number: int, name: str, size: int | None, **attributes: int | str) -> Node:
    """Make a collective."""
    given = {} if size is None else {"comm_size": size}
    return Node(
        number,
        COLLECTIVE,
        attributes={"comm_type": COLLECTIVES.index(name), **given, **attributes},
    )


def workload_graph(given: list[Node]) -> str:
    """Write nodes as the feeder of Chakra reads them from JSON."""
    entries: list[dict[str, Any]] = [
        {
            "Id": node.id,
            "Name": node.name,
            "NodeType": node.kind,
            "data_deps": list(node.parents),
            "runtime": node.duration_us,
            **node.attributes,
        }
        for node in given
    ]
    return json.dumps({"workload_graph": entries})
