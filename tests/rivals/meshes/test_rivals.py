"""Rivals reproduce known figures, and small cells of the grid are raced."""

import numpy as np
import pytest

import optmatch as om
from tests.helpers.modes import SOAK, nightly_only
from tests.rivals.meshes.bounds import bound_slots_by_flows
from tests.rivals.meshes.grid import draw_cells, draw_matching, pairs_of, race
from tests.rivals.meshes.routes import fewest_cells, first_fit, negotiate, set_cells, total_cells
from tests.rivals.races import TOLERANCE


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_plain_routes_have_light_and_no_fewer_cells_than_the_exact_model(seed: int) -> None:
    mesh = om.HexMesh(3, 3, ports=8)
    matching = draw_matching(mesh, np.random.default_rng(seed))
    pairs = pairs_of(mesh, matching)
    routes = negotiate(mesh, pairs)
    assert routes is not None
    schedule = om.Schedule(
        matchings=matching[None], durations_s=[1.0], cell_states=set_cells(mesh, routes)[None]
    )
    problem = om.Routing(mesh, matching)
    assert om.verify(problem, schedule).ok
    exact = om.solve(problem, "ilp", seed=0)
    fewest = fewest_cells(mesh, pairs)
    assert fewest is not None
    assert exact.objective == fewest <= total_cells(routes)


def test_first_fit_needs_as_many_slots_as_ports_meet_others() -> None:
    """On a mesh with room for all, 8 ports that take turns need 7 slots at least."""
    mesh = om.HexMesh(4, 4, ports=8)
    pairs = [(i, j) for i, j in om.AllToAll(mesh).pairs.tolist()]
    slots = first_fit(mesh, pairs)
    assert sorted(pair for slot in slots for pair in slot) == pairs
    assert 7 <= len(slots) <= 10


def test_flows_bound_the_slots_of_a_row() -> None:
    """Each of the six pairs of this row passes one and the same link."""
    mesh = om.HexMesh(1, 2, ports=[0, 1, 3, 10])
    pairs = [(i, j) for i, j in om.AllToAll(mesh).pairs.tolist()]
    assert bound_slots_by_flows(mesh, pairs) == pytest.approx(6.0)


@nightly_only
@pytest.mark.slow
def test_no_rival_is_better_on_small_meshes() -> None:
    rng = np.random.default_rng(20)
    drawn = draw_cells(rng, 16 if SOAK else 8, most_rows=4)
    cells = [cell for cell in drawn if cell.question != "free cells"]
    for cell in cells:
        result = race(cell)
        assert result.loss <= TOLERANCE, result


def test_flows_through_a_stuck_cell_leave_each_terminal_by_its_own_exit() -> None:
    """Ports in the corner of a broken mesh: a programme over sides of cells has no solution."""
    whole = om.HexMesh(2, 2, ports=6)
    for cell in range(whole.n_cells):
        mesh = om.Faulty(whole, stuck_bar=[cell])
        if mesh.dead_pairs():
            continue
        pairs = [(i, j) for i, j in om.AllToAll(mesh).pairs.tolist()]
        assert bound_slots_by_flows(mesh, pairs) >= bound_slots_by_flows(whole, pairs) - 1e-6
