"""The exact model without a plan to start from, and the repair: against all states tried."""

from dataclasses import replace

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics.units import measure_reach
from optmatch.model import Limits, ignore
from optmatch.problems import Reroute
from optmatch.solvers.reroutes.greedy import case_of
from optmatch.solvers.reroutes.ilp import RerouteSearch
from optmatch.solvers.reroutes.repair import Recovery, repair, split_rest
from optmatch.solvers.reroutes.routing_state import RoutingState
from optmatch.testing.reroutes import draw_state
from tests.helpers.exhaustive.reroutes import best_reroute

MESH = om.HexMesh(1, 2, ports=8)
"""Eleven cells: every state can be tried."""

MOVED = [2, 71, 83, 245, 296]
"""Draws in which circuits must move that were not hit."""


def fail(seed: int) -> Reroute:
    """Draw a state, and let a cell in use die, or get stuck in its other state, or a port fail."""
    rng = np.random.default_rng(seed)
    state = draw_state(MESH, rng)
    way = state.circuit_routes[int(rng.integers(len(state.circuits)))]
    cell = int(rng.choice(way)) // 4
    if seed % 3 == 0:
        return replace(state, dead_cells=(cell,))
    if seed % 3 == 1:
        crossed = bool(state.cell_states[cell])  # type: ignore[index]
        return replace(state, stuck_bar=(cell,) * crossed, stuck_cross=(cell,) * (not crossed))
    return replace(state, failed_ports=(int(state.circuits[0, 0]),))


@pytest.mark.parametrize("seed", [*MOVED, 1, 5, 8, 11, 14, 20, 25, 70])
def test_model_and_repair_find_the_best_of_all_states(seed: int) -> None:
    problem = fail(seed)
    best = best_reroute(problem)
    assert seed not in MOVED or best is not None
    search = RerouteSearch(problem, Limits().start(), ignore, np.random.default_rng(0))
    own, others = split_rest(search.routing, search.case)
    assert search.try_moving([*own, *others], few=True)
    assert (search.best and search.best.levels) == best
    if seed in MOVED:
        assert best is not None and best[1] + best[0] > problem.hit.sum()
        search.best = None
        assert search.try_moving(())
        assert search.best is None or search.best.levels[1] > best[1]
    routing = RoutingState(problem)
    before = routing.free.copy()
    plan = repair(routing, case_of(problem), measure_reach(problem.units, problem.loss_units))
    assert (plan.levels if isinstance(plan, Recovery) else None) == best
    assert np.array_equal(routing.free, before)


def test_a_quick_repair_is_not_called_optimal_without_a_proof() -> None:
    problem = fail(277)
    quick, exact = (om.solve(problem, method, seed=0) for method in ("greedy", "ilp"))
    assert exact.status is om.Status.OPTIMAL
    assert exact.objective == best_reroute(problem)
    assert quick.objective is not None and quick.objective > exact.objective
