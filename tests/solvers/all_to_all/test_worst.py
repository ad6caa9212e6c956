"""All-to-alls on measured chips: as few slots as without a chip, and the time divided."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import CellDevice, Limit, Limits, NewBest, OnEvent, Solution, Tick, ignore
from optmatch.solvers.all_to_all import factorise
from optmatch.solvers.all_to_all.packing import PACKING
from optmatch.solvers.all_to_all.worst import PlanningEnd, plan_and_reroute


def chip_problem(objective: Any = "worst-snr-db") -> om.AllToAll:
    """Return eight ports on a mesh whose cells differ."""
    mesh = om.HexMesh(4, 4, ports=8)
    cells = CellDevice.of("smartlight", mesh.n_cells).draw({"bar_extinction_db": 3.0}, seed=1)
    return om.AllToAll(mesh, objective=objective, cells=cells)


def listener(elapsed_s: float, time_s: float | None = 10.0) -> PlanningEnd:
    """Return a listener of a search of ten seconds that has gone on for a while."""
    clock: Any = SimpleNamespace(limits=Limits(time_s=time_s), elapsed_s=elapsed_s)
    return PlanningEnd(clock)


@pytest.mark.parametrize("event", [NewBest(7.0), Tick(PACKING, 0)])
def test_planning_ends_at_half_of_the_time_with_a_plan(event: Any) -> None:
    late = listener(5.0)
    late(Tick("route", 3, 31))
    late(Tick("pack", 3, 31))
    assert not late.has_ended
    with pytest.raises(KeyboardInterrupt):
        late(event)
    assert late.has_ended
    late(event)  # what is left of the planning goes on: a second interrupt would lose the plan
    for goes_on in (listener(4.9), listener(1e9, time_s=None)):
        goes_on(event)
        assert not goes_on.has_ended


def test_the_plan_has_the_whole_time_and_the_former_answer() -> None:
    """Half of it was once all that a plan of the fewest slots could take."""
    problem = chip_problem()
    former = om.solve(problem, seed=1)
    calls = []

    def plan(
        problem: om.AllToAll,
        limits: Limits,
        rng: np.random.Generator,
        on_event: OnEvent,
        start: Solution | None = None,
    ) -> Solution:
        calls.append((limits.time_s, start))
        return factorise.solve(problem, limits, rng, on_event, start=start)

    limits = Limits(time_s=0.3)
    found = plan_and_reroute(plan, problem, limits, np.random.default_rng(0), ignore, start=former)
    assert calls == [(0.3, former)]
    assert om.verify(problem, found).valid


@pytest.mark.parametrize("objective", ["worst-snr-db", "power-mw"])
def test_an_interrupted_plan_is_routed_for_the_objective(objective: Any) -> None:
    """The planner ends at its first plan; that nobody pressed Ctrl-C shows in the limit."""
    problem = chip_problem(objective)
    whole = om.solve(problem, seed=0)

    def plan(
        problem: om.AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> Solution:
        def end_at_once(event: Any) -> None:
            if isinstance(event, NewBest):
                assert isinstance(on_event, PlanningEnd)
                on_event.has_ended = True
                raise KeyboardInterrupt
            on_event(event)

        return factorise.solve(problem, limits, rng, end_at_once)

    found = plan_and_reroute(plan, problem, Limits(), np.random.default_rng(0), ignore)
    assert om.verify(problem, found).valid
    assert found.limit is Limit.TIME
    assert found.schedule is not None and whole.schedule is not None
    assert found.schedule.n_slots == whole.schedule.n_slots == problem.min_slots


def test_a_plan_that_is_proved_when_its_time_ends_has_no_limit() -> None:
    """A solution that is optimal cannot have one: this once ended with an InputError."""
    fabric = om.Benes(8)
    cells = CellDevice.of("ideal", fabric.n_cells)
    problem = om.AllToAll(fabric, objective="worst-loss-db", cells=cells)

    def plan(
        problem: om.AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> Solution:
        assert isinstance(on_event, PlanningEnd)
        on_event.has_ended = True
        return om.solve(problem, seed=0)

    found = plan_and_reroute(plan, problem, Limits(), np.random.default_rng(0), ignore)
    assert found.status is om.Status.OPTIMAL and found.limit is None


@pytest.mark.parametrize("fabric", [om.HexMesh(4, 4, ports=8), om.Benes(8)])
def test_the_time_that_is_left_is_for_other_slots(fabric: om.Fabric) -> None:
    """The first slots were the answer: 33.4 to 36.0 dB by the seed, after 0.05 s of any limit."""
    cells = CellDevice.of("smartlight", fabric.n_cells).draw({"bar_extinction_db": 3.0}, seed=1)
    problem = om.AllToAll(fabric, objective="worst-snr-db", cells=cells)
    first = om.solve(problem, seed=1)
    solution = om.solve(problem, seed=1, time_limit_s=1.5)
    assert om.verify(problem, solution).valid
    assert first.objective is not None and solution.objective is not None
    assert solution.objective < first.objective
    assert solution.limit is Limit.TIME and 1.0 < solution.time_s < 1.7
    assert first.stats["plans"] == 1 < solution.stats["plans"]
    near = om.solve(problem, seed=1, limits=Limits(time_s=9.0, gap=1.0))
    assert near.limit is Limit.GAP and near.stats["plans"] == 1
