"""Cuts around neighbouring ports: as many ways out as another library finds."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np

import optmatch as om
from optmatch.solvers.routing.cuts import PortCuts
from optmatch.solvers.routing.router import Router


def test_cuts_are_maximum_flows() -> None:
    """The ways out of neighbouring ports are as many as networkx finds, link by link."""
    mesh = om.HexMesh(3, 3, ports=8)
    router, n = Router(mesh), mesh.n_ports
    cuts = PortCuts(router.wiring, np.arange(n))
    wiring, shut = router.wiring, np.zeros(len(router.wiring.mate), dtype=np.bool_)
    graph = nx.DiGraph()
    links = range(len(wiring.ends))
    graph.add_edges_from((("in", k), ("out", k), {"capacity": 1}) for k in links)
    for terminal, row in enumerate(wiring.exits.tolist()):
        for left in row:
            to = ("in", int(wiring.link[left]))
            graph.add_edge(("out", int(wiring.link[terminal])), to, capacity=1)
    for first, count in itertools.product(range(n), (1, 2, 4)):
        inside = [(first + k) % n for k in range(count)]
        flow = graph.copy()
        for port in range(n):
            link = int(wiring.link[wiring.source[port]])
            if port in inside:
                flow.add_edge("start", ("in", link), capacity=1)
            else:
                flow.add_edge(("out", link), "end", capacity=1)
        ways = int(nx.maximum_flow_value(flow, "start", "end"))
        needed = np.zeros((n, count + 1), dtype=np.int64)
        needed[first, count] = ways
        assert cuts.find(wiring, shut, needed) is None
        needed[first, count] = ways + 1
        found = cuts.find(wiring, shut, needed)
        assert found is not None and (found.ports, found.ways) == (tuple(inside), ways)


def test_circuits_that_must_leave() -> None:
    """Counted by hand on four ports: one leaves one port, two leave two that do not meet."""
    cuts = PortCuts(Router(om.HexMesh(1, 2, ports=4)).wiring, np.arange(4))
    assert cuts.needed_by_all(3)[0].tolist() == [0, 1, 2, 1]
    assert cuts.needed_by(np.array([[1, 0, 3, 2]], dtype=np.int32)).tolist() == [
        [0, 1, 0, 1],
        [0, 1, 2, 1],
        [0, 1, 0, 1],
        [0, 1, 2, 1],
    ]
