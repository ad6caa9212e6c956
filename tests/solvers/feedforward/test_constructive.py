"""The method of feed-forward fabrics: where it is the default, and how it treats faults."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import FABRICS, FeedForward
from optmatch.fabrics.reach import UNREACHED, count_cells, forward_routes, walk
from optmatch.kinds import default_method, find_method
from optmatch.model import NewBest
from optmatch.testing import brute_force, feed_forward_fabrics
from optmatch.verify.routing.bounds import route_lengths

CLASSES: list[Any] = [cls for cls in FABRICS.values() if issubclass(cls, FeedForward)]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.type)


@each_class
def test_it_is_the_default_of_its_fabrics(cls: Any) -> None:
    for fabric in (cls(3), om.Faulty(cls(3), stuck_bar=[0])):
        for problem in (om.Routing(fabric, np.array([1, 0, 2])), om.AllToAll(fabric)):
            assert default_method(problem).name == "constructive"
            assert find_method("constructive", problem).takes(problem)
    assert default_method(om.AllToAll(om.HexMesh(2, 2, ports=4))).name == "negotiated"
    assert default_method(om.Demand(cls(2), np.eye(2)[::-1])).name == "best"


def test_it_declines_other_fabrics_by_name() -> None:
    problem = om.AllToAll(om.HexMesh(2, 2, ports=4))
    with pytest.raises(om.InputError, match=r"not for all-to-all on hex mesh .*; these are: ilp"):
        om.solve(problem, "constructive")


@each_class
@pytest.mark.parametrize("n", [2, 5, 8])
def test_all_pairs_in_the_fewest_slots(cls: Any, n: int) -> None:
    problem = om.AllToAll(cls(n))
    solution = om.solve(problem, seed=0)
    assert solution.stats["slots"] == n - 1
    regular = cls in (om.Crossbar, om.Piloss, om.SwitchAndSelect) or (
        n != 5 and cls in (om.Benes, om.DilatedBenes)
    )
    assert not regular or solution.status is om.Status.OPTIMAL


def test_turned_loops_save_toggles() -> None:
    for n, share in ((12, 0.8), (16, 0.5)):
        problem = om.AllToAll(om.Benes(n))
        first = om.solve(problem, seed=0, limits=om.Limits(iterations=1))
        second = om.solve(problem, seed=0)
        assert second.objective <= first.objective
        assert second.stats["toggles"] <= first.stats["toggles"]
        drawn = om.solve(problem, "negotiated", seed=0)
        assert second.stats["toggles"] < share * drawn.stats["toggles"]


def test_a_large_network_holds_a_demand() -> None:
    rng = np.random.default_rng(0)
    demand: Any = rng.integers(0, 100, (64, 64)) * (rng.random((64, 64)) < 0.1) * 1e6
    found = [
        om.solve(om.Demand(fabric, demand, delay_s=1e-6), "solstice", seed=0)
        for fabric in (om.IdealSwitch(64), om.Benes(64))
    ]
    assert found[0].objective == found[1].objective
    assert found[1].schedule.cell_states is not None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_faults_are_passed_if_they_can_be(data: st.DataObject) -> None:
    cls: Any = data.draw(st.sampled_from([om.Benes, om.DilatedBenes, om.SpankeBenes, om.Crossbar]))
    inner = cls(data.draw(st.integers(2, 3)))
    cells = data.draw(st.permutations(range(inner.n_cells)))
    bar, cross = (data.draw(st.integers(0, 2)) for _ in range(2))
    fabric = om.Faulty(inner, stuck_bar=cells[:bar], stuck_cross=cells[bar : bar + cross])
    matching = np.array(data.draw(st.permutations(range(inner.n))))
    problem = om.Routing(fabric, matching)
    solution = om.solve(problem, seed=0)
    best = brute_force(problem)
    if best is None:
        assert solution.status is om.Status.INFEASIBLE
    else:
        assert solution.objective is not None


def test_free_choices_get_past_a_stuck_cell() -> None:
    plain = om.Benes(8)
    problem = om.Routing(om.Faulty(plain, stuck_cross=(0,)), np.arange(8, dtype=np.int32))
    heard: list[Any] = []
    solution = om.solve(problem, seed=0, on_event=heard.append)
    assert solution.status is om.Status.OPTIMAL
    assert solution.schedule is not None
    assert solution.schedule.cell_states is not None
    assert solution.schedule.cell_states[0, 0] == 1
    assert [event.objective for event in heard if isinstance(event, NewBest)] == [40.0]


@settings(max_examples=60, deadline=None)
@given(fabric=feed_forward_fabrics(most_ports=9))
def test_shortest_routes_by_columns(fabric: om.Fabric) -> None:
    """The fabric's and the verifier's count agree with a walk breadth first, faults included."""
    graph: Any = fabric.graph
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    walked = walk(graph, starts).cells[:, ends]
    columns = count_cells(graph.mate, ahead=True)
    assert columns is not None
    assert np.array_equal(forward_routes(graph, columns, starts, ends), walked)
    found = route_lengths(fabric)
    assert np.array_equal(np.where(np.isinf(found), UNREACHED, found), walked)


def test_light_that_may_turn_back_is_not_counted_by_columns() -> None:
    """Meshes join ends of a kind, rings come round, and beams may start on the right."""
    mesh = om.HexMesh(1, 2, ports=4)
    assert count_cells(mesh.graph.mate, ahead=True) is None
    back: Any = {"mate": [2, -1, 0, -1], "perimeter": [1, 3]}  # b1 leads to a1
    ring = om.fabrics.CellGraph(**back, ends=np.array([[[0.0, 0.0], [1.0, 0.0]]]))
    assert count_cells(ring.mate, ahead=True) is None
    network = om.Benes(4)
    turned = om.fabrics.shortest_routes(
        network.graph, network.destination_terminals, network.source_terminals
    )
    assert np.array_equal(turned, network.route_cells().T)


@pytest.mark.parametrize(
    "fabric", [om.Clements(8), om.Reck(6), om.SpankeBenes(8), om.Benes(8)], ids=lambda f: f.type
)
def test_a_full_permutation_lights_every_cell_twice(fabric: om.Fabric) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        problem = om.Routing(fabric, rng.permutation(fabric.n_ports).astype(np.int32))
        solution = om.solve(problem, seed=0)
        assert solution.method == "constructive"
        assert solution.status is om.Status.OPTIMAL
        assert solution.lower_bound == 2 * fabric.n_cells
        report = om.verify(problem, solution)
        assert report.figures["lower_bound_recomputed"] == 2 * fabric.n_cells


def test_an_idle_port_leaves_cells_dark() -> None:
    problem = om.Routing(om.Clements(4), np.array([0, 1, 2, -1], dtype=np.int32))
    assert problem.lower_bound() < 2 * om.Clements(4).n_cells
