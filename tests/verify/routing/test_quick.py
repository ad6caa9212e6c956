"""The quick tracer, as plain Python, says what the plain rules of light say."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.verify.routing import quick
from tests.helpers import oracles
from tests.verify.rules.routing import BACKWARDS, HEAD_ON, STUCK

find_dark: Any = getattr(quick.find_dark, "py_func", quick.find_dark)
FABRICS = [
    om.HexMesh(1, 2),
    om.HexMesh(2, 2, tx=[0, 6, 4, 1], rx=[10, 15, 12, 8]),
    om.Faulty(om.HexMesh(1, 2), stuck_bar=[3], stuck_cross=[5], dead_cells=[8]),
    om.Benes(4),
]


def first_dark(fabric: Any, matchings: Any, states: Any) -> int:
    """Return the first row that is not right."""
    wires, marks = quick.wires_of(fabric), quick.new_marks(fabric)
    rows = np.array(matchings, dtype=np.int32), np.array(states, dtype=np.int8)
    return int(find_dark(wires, marks, *rows))


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_it_agrees_with_the_plain_rules(fabric: Any) -> None:
    rng, graph = np.random.default_rng(8), fabric.graph
    port_at = {int(end): port for port, end in enumerate(fabric.destination_terminals)}
    rights, rows = 0, []
    for _ in range(150):
        states = oracles.random_states(rng, 1, graph)[0]
        told = np.where((graph.stuck == 0) | (graph.stuck == 1), graph.stuck, states)
        ends = [oracles.follow(graph, told.tolist(), t)[1] for t in fabric.source_terminals]
        matching = np.array([port_at.get(end, -1) for end in ends])  # type: ignore[arg-type]
        matching[matching == np.arange(len(matching))] = -1
        if rng.random() < 0.5:  # idle ports make cells dark
            for port in rng.choice(len(matching), 2):
                matching[matching == port] = matching[port] = -1
        if fabric.bidirectional:
            matching[[p >= 0 and matching[p] != k for k, p in enumerate(matching)]] = -1
        told[rng.choice(len(told), rng.integers(3))] = rng.integers(-1, 2)
        problem = om.Routing(fabric, matching.astype(np.int32))
        schedule: Any = om.Schedule(
            matchings=matching[None], durations_s=np.ones(1), cell_states=told[None]
        )
        right = om.verify(problem, schedule).valid
        assert (first_dark(fabric, [matching], [told]) == -1) == right
        rights += right
        rows.append((right, matching, told))
    assert 20 < rights < 150
    for batch in (rows, [row for row in rows if row[0]]):
        wrong = [k for k, row in enumerate(batch) if not row[0]]
        found = first_dark(fabric, [row[1] for row in batch], [row[2] for row in batch])
        assert found == (wrong[0] if wrong else -1)


def test_what_no_constructor_lets_through() -> None:
    ring = om.HexMesh(1, 1, ports=[0, 1])
    for state in (-2, 2):
        assert first_dark(ring, [[-1, -1]], [[state] + [-1] * 5]) == 0
    assert first_dark(ring, [[-1, -1]], [[0, 1] * 3]) == -1
    assert first_dark(HEAD_ON.fabric, [[1, 0]], [[0]]) == 0
    assert first_dark(HEAD_ON.fabric, [[1, -1]], [[0]]) == -1
    assert first_dark(BACKWARDS.fabric, [[0], [0]], [[0, 0], [0, 1]]) == 1
    for state, row in ((0, -1), (-1, -1), (1, 0)):
        assert first_dark(STUCK.fabric, [[-1, -1]], [[-1, -1, state, -1, -1, -1]]) == row
    assert len(quick.new_marks(om.IdealSwitch(2))) == 0
