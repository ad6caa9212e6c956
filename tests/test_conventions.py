"""The order of indices and the meaning of states, by examples that are not symmetric."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import EXITS, TERMINAL_NAMES, CellGraph
from optmatch.fabrics.light import trace, trace_circuits
from optmatch.model import BAR, CROSS, FREE, IDLE
from tests.helpers import oracles

SPLIT = om.HexMesh(3, 3, tx=3, rx=3)
"""Ports that send at one terminal and receive at another: no circuit is its own reverse."""
TURN: Any = [[1, 2, 0]]


def one_cell() -> CellGraph:
    """Return a single cell with four free terminals."""
    free: Any = [0, 1, 2, 3]
    return CellGraph(mate=np.full(4, -1), ends=np.array([[[0, 0], [1, 0]]]), perimeter=free)


@pytest.mark.parametrize(
    ("state", "ways"),
    [
        (BAR, {"a1": "b1", "a2": "b2", "b1": "a1", "b2": "a2"}),
        (CROSS, {"a1": "b2", "a2": "b1", "b1": "a2", "b2": "a1"}),
    ],
)
def test_the_truth_table_of_a_cell(state: int, ways: dict[str, str]) -> None:
    """Bar goes straight, cross changes sides, and both lead to the other end."""
    light = trace(one_cell(), [[state]], [[0, 1, 2, 3]])
    found = {TERMINAL_NAMES[k]: TERMINAL_NAMES[out] for k, out in enumerate(light.arrived[0])}
    assert found == ways
    assert {TERMINAL_NAMES[k]: TERMINAL_NAMES[EXITS[k, state]] for k in range(4)} == ways


def test_the_numbers_of_states() -> None:
    assert (BAR, CROSS, FREE, IDLE) == (0, 1, -1, -1)
    light = trace(one_cell(), [[FREE]], [[2]])
    assert (light.arrived.tolist(), light.stopped.tolist()) == ([[-1]], [[2]])


def test_a_terminal_is_four_times_its_cell_and_its_place() -> None:
    graph = om.HexMesh(2, 3).graph
    assert graph.terminal_name(4 * 7 + 2) == "cell 7 b1"
    assert all(exit_ // 4 == t // 4 for t, row in enumerate(graph.exits) for exit_ in row)


def test_matchings_are_by_slot_and_source() -> None:
    """``matchings[slot, source] = destination``: 0 sends to 1, 1 to 2, 2 to 0."""
    rows: Any = [*TURN, [-1, 0, -1]]
    schedule = om.Schedule(matchings=rows, durations_s=np.array([1.0, 2.0]))
    assert (schedule.n_slots, schedule.n_ports) == (2, 3)
    routes = trace_circuits(om.IdealSwitch(3), schedule)
    assert [(r.source, r.destination) for r in routes[0]] == [(0, 1), (1, 2), (2, 0)]
    assert [(r.source, r.destination) for r in routes[1]] == [(1, 0)]
    turned: Any = [1, 2, 0]
    problem = om.Routing(om.IdealSwitch(3), turned)
    assert problem.circuits.tolist() == [[0, 1], [1, 2], [2, 0]]
    assert om.verify(problem, om.Schedule(matchings=rows[:1], durations_s=np.ones(1))).ok
    back: Any = [[2, 0, 1]]
    assert not om.verify(problem, om.Schedule(matchings=back, durations_s=np.ones(1))).ok


def test_light_goes_from_the_sender_of_the_source_to_the_receiver_of_the_destination() -> None:
    """The states of a permutation do not serve its inverse, nor senders and receivers swapped."""
    ends = [
        (int(SPLIT.source_terminals[i]), int(SPLIT.destination_terminals[j]))
        for i, j in enumerate(TURN[0])
    ]
    schedule: Any = om.solve(om.Routing(SPLIT, TURN[0]), seed=0).schedule
    states = schedule.cell_states
    for route, (start, end) in zip(trace_circuits(SPLIT, schedule)[0], ends, strict=True):
        assert (route.terminals[0], route.terminals[-1]) == (start, end)
    inverse: Any = [[2, 0, 1]]
    wrong = om.Schedule(matchings=inverse, durations_s=np.ones(1), cell_states=states)
    assert not om.verify(om.Routing(SPLIT, inverse[0]), wrong).ok
    sends, receives = SPLIT.perimeter_ports
    swapped = om.HexMesh(3, 3, tx=receives, rx=sends)
    assert not om.verify(om.Routing(swapped, TURN[0]), schedule).ok
    assert om.verify(om.Routing(swapped, inverse[0]), wrong).ok  # all light the other way


def test_route_cells_are_by_source_and_destination() -> None:
    table = SPLIT.route_cells()
    graph = SPLIT.graph
    start, end = int(SPLIT.source_terminals[0]), int(SPLIT.destination_terminals[1])
    assert table[0, 1] == min(map(len, oracles.routes(graph, start, end, 12)))
    assert not np.array_equal(table, table.T)


def test_states_are_by_slot_and_cell() -> None:
    """Two slots, six cells: the crossed cell of the second slot is where it is stated."""
    graph = om.HexMesh(1, 1).graph
    states = np.zeros((2, 6), dtype=np.int8)
    states[1, 4] = 1
    light = trace(graph, states, np.tile(graph.perimeter, (2, 1)))
    crossed = light.entered % 2 != light.left % 2
    assert set(light.slot[crossed].tolist()) == {1}
    assert set((light.entered[crossed] // 4).tolist()) == {4}
