"""Problems refuse questions without sense, and bound their answers from below."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.model import Problem
from optmatch.problems import PROBLEMS, RoutingProof
from tests.helpers import oracles

ROW: Any = [1, 0, 3, 2]


def test_problems_are_found_by_their_kind() -> None:
    assert PROBLEMS["all-to-all"] is om.AllToAll
    assert PROBLEMS["routing"] is om.Routing
    assert all(kind == problem.kind for kind, problem in PROBLEMS.items())
    assert isinstance(om.AllToAll(om.IdealSwitch(2)), Problem)


@pytest.mark.parametrize("n", range(1, 10))
def test_the_pairs_of_an_all_to_all(n: int) -> None:
    both = om.AllToAll(om.HexMesh(4, 4, ports=n))
    ordered = om.AllToAll(om.IdealSwitch(n))
    assert both.pairs.tolist() == [[i, j] for i in range(n) for j in range(i + 1, n)]
    assert ordered.pairs.tolist() == [[i, j] for i in range(n) for j in range(n) if i != j]
    assert both.min_slots == (0 if n == 1 else n - 1 + n % 2)
    assert ordered.min_slots == n - 1
    if n > 1:
        assert len(oracles.circle(n)) == both.min_slots


def test_the_bound_of_an_all_to_all_is_the_sum_of_shortest_routes() -> None:
    problem = om.AllToAll(om.HexMesh(2, 2, ports=[0, 6, 12]))
    terminals = problem.fabric.graph.perimeter[[0, 6, 12]].tolist()  # type: ignore[union-attr]
    total = 0
    for k, start in enumerate(terminals):
        for end in terminals[k + 1 :]:
            found = oracles.routes(problem.fabric.graph, start, end, 12)  # type: ignore[arg-type]
            total += min(map(len, found))
    assert problem.lower_bound() == total
    assert om.AllToAll(om.HexMesh(2, 2)).lower_bound() == math.inf
    assert om.AllToAll(om.IdealSwitch(5)).lower_bound() == 0


def test_the_circuits_of_a_routing() -> None:
    row: Any = [3, -1, 4, 0, 2]
    assert om.Routing(om.HexMesh(3, 3, ports=5), row).circuits.tolist() == [[0, 3], [2, 4]]
    turned: Any = [2, -1, 1]
    assert om.Routing(om.IdealSwitch(3), turned).circuits.tolist() == [[0, 2], [2, 1]]
    idle: Any = [-1, -1]
    assert om.Routing(om.IdealSwitch(2), idle).circuits.shape == (0, 2)


@given(seed=st.integers(0, 2**32))
def test_no_states_beat_the_bound_of_a_routing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = om.HexMesh(1, 1)
    states = oracles.random_states(rng, 1, mesh.graph)[0].tolist()
    ends = [oracles.follow(mesh.graph, states, t)[1] for t in mesh.source_terminals.tolist()]
    row: Any = np.array([mesh.source_terminals.tolist().index(end) for end in ends])
    gone = rng.random(12) < 0.4
    row[gone | gone[row]] = -1
    total = om.Routing(mesh, row)
    terminals = mesh.source_terminals[total.circuits].tolist()
    best_total, best_worst = oracles.best_states(mesh.graph, terminals)
    losses = float(rng.random()), float(rng.random())
    best_loss, _ = oracles.best_states(mesh.graph, terminals, losses)
    worst = om.Routing(mesh, row, objective="worst-cells")
    loss = om.Routing(
        mesh, row, objective="loss-db", bar_loss_db=losses[0], cross_loss_db=losses[1]
    )
    assert total.lower_bound() <= best_total < math.inf
    assert worst.lower_bound() <= best_worst
    assert loss.lower_bound() <= best_loss + 1e-9
    if len(terminals) == 1:
        assert total.lower_bound() == best_total == best_worst == worst.lower_bound()


def test_a_dead_circuit_is_named() -> None:
    mesh = om.HexMesh(3, 3)
    i, j = mesh.dead_pairs()[1]
    row: Any = np.full(28, -1)
    row[[i, j]] = j, i
    for objective in ("total-cells", "worst-cells", "loss-db"):
        problem = om.Routing(mesh, row, objective=objective)
        assert problem.dead_circuits() == [(i, j)]
        assert problem.lower_bound() == math.inf


@pytest.mark.parametrize(
    ("row", "fields", "message"),
    [
        ([1, 0], {}, "matching has 2 entries, there are 4 ports"),
        ([1, 0, 4, 2], {}, r"matching\[2\] = 4: ports are 0 \.\. 3, -1 is idle"),
        ([1, 0, -2, 2], {}, r"matching\[2\] = -2"),
        ([0, -1, -1, -1], {}, r"matching\[0\] = 0: a bidirectional port cannot meet itself"),
        ([1, 2, 0, -1], {}, r"matching\[0\] = 1, but matching\[1\] = 2"),
        ([1, -1, -1, -1], {}, r"matching\[0\] = 1, but matching\[1\] = -1"),
        ([1, 1, -1, -1], {}, "sources 0 and 1 share destination 1"),
        ([[1, 0, 3, 2]], {}, "matching has 2 dimensions, not 1"),
        ([0.5, 0, 3, 2], {}, r"matching\[0\] = 0.5"),
        (ROW, {"objective": "beauty"}, "objective = 'beauty': one of total-cells"),
        (ROW, {"bar_loss_db": -1.0}, "bar_loss_db = -1"),
        (ROW, {"bar_loss_db": 1e8}, "bar_loss_db = 1e.08"),
        (ROW, {"cross_loss_db": math.nan}, "cross_loss_db = nan"),
    ],
)
def test_a_wrong_routing_is_named(row: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.Routing(om.HexMesh(3, 3, ports=4), row, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slot_s": 0}, "slot_s = 0: must be > 0"),
        ({"slot_s": math.inf}, "slot_s = inf: not finite"),
        ({"slot_s": "1"}, "slot_s = '1': not a number"),
        ({"delay_s": -1}, "delay_s = -1"),
    ],
)
def test_a_wrong_all_to_all_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.AllToAll(om.IdealSwitch(2), **fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"circuit": [], "terminal": []}, "one entry for each node"),
        ({"infeasible": [0, 0]}, "one entry for each node"),
        ({"prices": [[-1, 0]] * 3}, "must be >= 0"),
        ({"children": [[1, 1], [-1, -1], [-1, -1]]}, "do not form a tree"),
        ({"children": [[0, 2], [-1, -1], [-1, -1]]}, "do not form a tree"),
        ({"children": [[1, 2], [2, 1], [-1, -1]]}, "do not form a tree"),
        ({"children": [[1], [-1], [-1]]}, "children has 1 columns, not 2"),
        ({"circuit": [-1, -1, -1]}, "do not form a tree"),
    ],
)
def test_a_proof_is_a_tree(changes: dict[str, Any], message: str) -> None:
    """Each node but the root is the case of one node before it."""
    right: dict[str, Any] = {
        "circuit": [0, -1, -1],
        "terminal": [5, -1, -1],
        "one_way": [0, 0, 0],
        "children": [[1, 2], [-1, -1], [-1, -1]],
        "prices": np.zeros((3, 2)),
        "infeasible": [0, 0, 0],
    }
    assert pickle.loads(pickle.dumps(RoutingProof(**right))) == RoutingProof(**right)
    with pytest.raises(om.InputError, match=message):
        RoutingProof(**right | changes)


def test_problems_are_values() -> None:
    mesh = om.HexMesh(3, 3, ports=4)
    problem = om.Routing(mesh, ROW)
    assert pickle.loads(pickle.dumps(problem)) == problem == om.Routing(mesh, np.array(ROW))
    assert hash(problem) == hash(om.Routing(mesh, np.array(ROW)))
    assert problem != om.Routing(mesh, ROW, objective="worst-cells")
    assert om.AllToAll(mesh) == om.AllToAll(om.HexMesh(3, 3, ports=4), slot_s=1)
    assert om.AllToAll(mesh) != om.AllToAll(mesh, delay_s=0.1)
    with pytest.raises(ValueError, match="read-only"):
        problem.matching[0] = 2
