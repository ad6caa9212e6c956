"""What an editor must know about the values of typical calls, for the type checkers to read.

Nobody runs this file: `tests/test_typing.py` has Pyright and mypy read it. `assert_type` states
the type that completes the attributes of a value. Pages and tutorials have all other calls.
"""

from typing import Any, assert_type

import optmatch as om


def solve(mesh: om.HexMesh, demand: om.Demand, job: om.RailJob) -> None:
    """Switches, solutions of several kinds, and reports."""
    assert_type(mesh.n_ports, int)
    for fabric in (om.Benes(8), om.Crossbar(4), om.IdealSwitch(16), om.RackFabric.tpu_v4()):
        assert_type(fabric.title, str)
    solution = om.solve(om.AllToAll(mesh), seed=0, time_limit_s=1.0)
    assert_type(solution, om.Solution[om.Schedule])
    assert_type(solution.method, str)
    assert_type(om.verify(solution.problem, solution), om.Report)
    assert_type(om.verify(solution), om.Report)
    assert_type(om.solve(demand, seed=0), om.Solution[om.PlaneSchedules])
    assert_type(om.solve(job, seed=0), om.Solution[om.RailPlan])


def control(router: om.Router, rerouter: om.Rerouter, rolling: om.RollingSchedule) -> None:
    """Make the calls of a service."""
    assert_type(router.route([1, 0]), om.Routed)
    assert_type(rerouter.fail(chip=21, deadline_s=0.1), om.Proposal)
    while (slot := rolling.next_slot()) is not None:
        assert_type(slot, om.Slot)
    loaded: Any = om.load("one.json")
    print(loaded.summary())
