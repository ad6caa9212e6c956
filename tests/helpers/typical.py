"""Sixty typical calls of a user, one after the other, for the type checkers to read.

Nobody runs this file: `tests/test_typing.py` has Pyright and mypy read it. `assert_type` states
what an editor must know about a value in order to complete its attributes.
"""

from pathlib import Path
from typing import Any, assert_type

import networkx as nx
import numpy as np

import optmatch as om
from optmatch.control import Tally
from optmatch.plotting import plot_slot, save_picture
from optmatch.problems import Jobs, Resources
from optmatch.solvers import Pod, hold_matching, route_batch, steer
from optmatch.sweeps import Library, Store, read_spec


def fabrics() -> None:
    """Switches of several kinds, and what each of them says about itself."""
    mesh = om.HexMesh(4, 4, ports=8)
    assert_type(mesh.n_ports, int)
    assert_type(mesh.n_cells, int)
    om.SquareMesh(3, 3, ports=[0, 2, 4, 6])
    om.TriangularMesh(3, 3)
    om.HexMesh.smartlight()
    om.Faulty(mesh, dead_cells=(3,))
    for fabric in (om.Benes(8), om.Crossbar(4), om.IdealSwitch(16), om.RackFabric.tpu_v4()):
        assert_type(fabric.title, str)


def matchings_and_slots() -> None:
    """Routing and all-to-all: states of cells, slot by slot."""
    mesh = om.HexMesh(4, 4, ports=8)
    solution = om.solve(om.AllToAll(mesh), seed=0, time_limit_s=1.0)
    assert_type(solution, om.Solution[om.Schedule])
    print(solution.status is om.Status.OPTIMAL, solution.limit is om.Limit.TIME)
    print(solution.schedule.matchings.shape, solution.schedule.durations_s.sum())
    report = om.verify(solution.problem, solution)
    assert_type(report, om.Report)
    assert_type(om.verify(solution), om.Report)
    print(report.ok, [violation.rule for violation in report.violations])
    one = om.solve(om.Routing(mesh, [4, 3, 6, 1, 0, 7, 2, 5]), "ilp", limits=om.Limits(gap=0.1))
    assert_type(one.method, str)
    om.save(one, "one.json", force=True)
    om.verify(one.problem, one.schedule)
    plot_slot(solution, 0)
    save_picture(solution, "slots.html")
    om.explore(solution)
    om.measure_optics(solution.problem, solution, om.Device())


def demands() -> None:
    """Serve a demand matrix, by a problem and by the call of a scheduler."""
    problem = om.Demand.from_matrix([[0, 9, 2], [4, 0, 6], [5, 1, 0]], delay_s=0.5)
    solution = om.solve(problem, seed=0, start=om.solve(problem, "solstice", seed=0))
    assert_type(solution, om.Solution[om.PlaneSchedules])
    print(om.simulate(problem, solution).flow_completion_s)
    om.Demand.from_matrix(nx.DiGraph([(0, 1)]), delay_s=0.5)
    slots = om.schedule(np.ones((4, 4)), 1e-5, rate_bytes_per_s=1e9)
    print(slots.matchings, slots.durations_s, slots.completion_s / slots.lower_bound_s)
    terms = om.decompose([[0, 9, 2], [4, 0, 7], [7, 2, 2]])
    print(terms.permutations.tolist(), terms.weights.tolist())


def clusters() -> None:
    """Rails, collectives, slices, shared ports."""
    model = om.TransformerModel(
        layers=16, hidden=2048, heads=16, sequence=2048, vocabulary=32000, ffn=8192
    )
    job = om.RailJob(
        parallelism=om.Parallelism(dp=2, tp=4, pp=2),
        network=om.RailNetwork(gpus_per_server=4, delay_s=0.01),
        workload=om.Workload(model=model, batch=16, micro_batch=4),
    )
    assert_type(om.solve(job, seed=0), om.Solution[om.RailPlan])
    print(om.simulate_rails(job, "on-demand").step_s)
    collective = om.Collective("all-reduce", n_ranks=8, size_bytes=1e6, delay_s=1e-5)
    plan = om.solve(collective, seed=0).answer
    print(plan.n_rounds)
    slices = om.SliceAllocation(om.RackFabric(), (2, 4, 4), reserved=(0, 3))
    print(om.solve(slices, seed=0).answer.servers)
    Pod(om.RackFabric()).allocate((2, 2, 4), "optical")
    steer(((0, 1),), demands=[1])
    ports = om.PortSharing(Resources([[100.0, 400]], names=("rate",)), Jobs(demand=[2]))
    print(om.solve(ports, seed=0).answer.job_of)


def controllers(folder: Path) -> None:
    """Make the calls of a service."""
    router = om.Router(om.HexMesh(4, 4, ports=8), check=True, time_limit_s=1.0)
    routed = router.route([4, 3, 6, 1, 0, 7, 2, 5])
    assert_type(routed, om.Routed)
    print(router.reroute(routed.states, [4, 3, 7, 1, 0, 6, 5, 2]).states.tolist())
    print(router.route_batch(np.array([[1, 0], [0, 1]])).held.all())
    print(route_batch(om.Benes(8), [[7, 6, 5, 4, 3, 2, 1, 0]]).shape)
    calls: list[om.Call] = []
    rerouter = om.Rerouter(om.fill_rack(om.RackFabric()), on_event=calls.append)
    try:
        proposal = rerouter.fail(chip=21, deadline_s=0.1)
    except (om.InfeasibleError, om.LimitReached) as exc:
        print(exc)
    else:
        assert_type(proposal, om.Proposal)
        rerouter.apply(proposal)
    om.Rerouter.open(folder / "rack.json")
    print(rerouter.figures()["calls"])
    with Tally().call("route"):
        hold_matching(om.HexMesh(3, 3, ports=6), [1, 0, 3, 2, -1, -1])
    rolling = om.RollingSchedule(om.IdealSwitch(4), delay_s=0.1)
    rolling.add(np.eye(4)[::-1])
    while (slot := rolling.next_slot()) is not None:
        assert_type(slot, om.Slot)
        rolling.advance(slot.end_s)


def many(path: Path) -> None:
    """Sweeps, comparisons, files."""
    mesh = om.AllToAll(om.HexMesh(3, 3, ports=4))
    for row in om.sweep([om.Task(mesh, "ilp", seed=1)], n_workers=1, store=path):
        print(row.name, row.status, row.objective)
    with Store(path, read_only=True) as store:
        print([row.key for row in store.rows()])
    print(read_spec("spec.toml", lambda command: Library().problem(command)))
    for line in om.compare_methods([mesh], ["negotiated", "ilp"], seed=0):
        print(line)
    study = om.study_yield(mesh, faults=2, samples=20, seed=0)
    print(study.interval, study.ranking()[:5])
    loaded: Any = om.load("one.json")
    print(loaded.summary())
    try:
        om.load("broken.json")
    except om.FormatError as exc:
        print(exc.path, exc.where)
    except om.OptMatchError as exc:
        print(exc)
