"""The replay in time: three programs agree on the carried demand, and the command shows it."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Limit, Status
from optmatch.problems import completion_s
from optmatch.problems.demands.completion import held_ticks
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.published import CASES, published_job
from optmatch.problems.topologies import list_carried
from optmatch.simulation.rails.replay import simulate_rails
from tests.helpers.command import call, put
from tests.helpers.rails import CURVES

PROBLEM = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0, rate_bytes_per_s=2.0)
"""One and a half seconds one way, one the other way."""
SCHEDULE = PROBLEM.schedule([[1, 0]], [3])
TWO_WAYS = om.Demand.from_matrix(
    [[0, 4, 0, 0]] + [[0] * 4] * 3, om.Benes(4), delay_s=1.0, switching="per-circuit"
)
ABOVE, BELOW = [0, -1, 0, -1, 1, -1], [1, -1, -1, 0, 0, -1]
"""Light from port 0 to port 1 of a Benes network goes either way."""


def random_case(seed: int) -> tuple[om.Demand, om.PlaneSchedules]:
    """Draw a small demand with all options, and schedules that may or may not carry it."""
    rng = np.random.default_rng(seed)
    n, planes = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    problem = om.Demand.from_matrix(
        rng.integers(0, 6, (n, n)),
        delay_s=float(rng.integers(0, 3)),
        planes=planes,
        switching="per-circuit" if rng.random() < 0.5 else "all-stop",
        packet_bytes_per_s=float(rng.integers(0, 2)) * 0.37,
        rate_bytes_per_s=float(rng.integers(1, 3)),
    )
    schedules = []
    for _ in range(planes):
        slots = int(rng.integers(0, 5))
        rows = [np.where(rng.random(n) < 0.8, rng.permutation(n), -1) for _ in range(slots)]
        if slots > 1 and rng.random() < 0.5:
            rows[1] = rows[0]
        schedules.append(problem.schedule(rows, rng.integers(1, 9, slots)))
    return problem, om.PlaneSchedules(schedules=tuple(schedules))


@pytest.mark.parametrize(("new_states", "served_s"), [(ABOVE, 4.0), (BELOW, 3.0)])
def test_a_circuit_whose_route_changes_is_dark(new_states: list[int], served_s: float) -> None:
    """Two slots with one circuit last 2 and 1 s, with a delay of 1 s between them."""
    states = np.array([ABOVE, new_states], dtype=np.int8)
    schedule = TWO_WAYS.schedule([[1, -1, -1, -1]] * 2, [2, 1], states)
    assert om.simulate(TWO_WAYS, schedule).circuit_bytes == served_s
    assert held_ticks(TWO_WAYS, schedule)[0, 1] * TWO_WAYS.tick_s == served_s
    said = om.Solution(
        problem=TWO_WAYS, status=Status.FEASIBLE, limit=Limit.EXHAUSTED, method="by hand",
        schedule=schedule, objective=5.0, lower_bound=0.0,
    )  # fmt: skip
    assert list_carried(said)[1].sum() == served_s


def test_a_solution_alone_is_simulated_with_its_problem() -> None:
    solution = om.solve(PROBLEM, seed=0)
    alone = om.simulate(solution)
    assert alone.queue_bytes.tolist() == om.simulate(PROBLEM, solution).queue_bytes.tolist()
    job: Any = published_job("h200-dp2")
    with pytest.raises(om.InputError, match="simulate_rails"):
        om.simulate(job)


def test_three_programs_agree() -> None:
    complete = 0
    for seed in range(200):
        problem, answer = random_case(seed)
        outcome, report = om.simulate(problem, answer), om.verify(problem, answer)
        done = completion_s(problem, answer.schedules)
        assert outcome.complete == report.ok == np.isfinite(done)
        asked = problem.demand_bytes
        carried = outcome.circuit_bytes + outcome.packet_bytes
        assert carried + outcome.left_bytes.sum() == pytest.approx(asked.sum())
        assert outcome.queue_bytes[0].sum() == pytest.approx(asked.sum())
        assert outcome.queue_bytes[-1].sum() == pytest.approx(outcome.left_bytes.sum())
        assert (np.diff(outcome.queue_bytes.sum(axis=1)) <= 1e-9).all()
        if outcome.complete:
            complete += 1
            assert outcome.completion_s == pytest.approx(done)
            assert report.figures["objective"] == pytest.approx(done)
            assert (outcome.flow_completion_s[asked > 0] > 0).all()
            assert outcome.flow_completion_s.max() <= outcome.completion_s + 1e-9
            assert done >= problem.lower_bound() - 1e-9
    assert 40 < complete < 160


def test_one_slot_by_hand() -> None:
    """When flows end, how busy ports are, and what waits at each event."""
    outcome = om.simulate(PROBLEM, SCHEDULE)
    assert outcome.flow_completion_s.tolist() == [[0.0, 2.5], [2.0, 0.0]]
    assert outcome.makespan_s == outcome.completion_s == 2.5
    assert outcome.busy.tolist() == [0.6, 0.4]
    assert outcome.reconfiguring == 0.4
    assert outcome.times_s.tolist() == [0.0, 1.0, 2.5]
    assert outcome.queue_bytes.tolist() == [[3.0, 2.0], [3.0, 2.0], [0.0, 0.0]]


def test_what_is_left() -> None:
    """A flow that never ends is -1, and its bytes are named."""
    outcome = om.simulate(PROBLEM, PROBLEM.schedule([[1, 0]], [2]))
    assert not outcome.complete
    assert outcome.flow_completion_s[0, 1] == -1
    assert outcome.left_bytes.tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_packets_go_from_the_beginning() -> None:
    problem = replace(PROBLEM, packet_bytes_per_s=0.25)
    outcome = om.simulate(problem, PROBLEM.schedule([[1, 0]], [2]))
    assert outcome.complete
    assert outcome.packet_bytes == 1.0
    assert outcome.completion_s == outcome.flow_completion_s[0, 1] == 4.0
    assert outcome.times_s[-1] == 4.0
    assert outcome.queue_bytes[2, 0] == pytest.approx(0.5)  # half of the packets at 2 s


def test_per_circuit_goes_on() -> None:
    schedule = PROBLEM.schedule([[1, -1], [1, 0]], [1, 2])
    stopping = om.simulate(PROBLEM, schedule)
    going = om.simulate(replace(PROBLEM, switching="per-circuit"), schedule)
    assert stopping.flow_completion_s[0, 1] == 3.5
    assert going.flow_completion_s[0, 1] == 2.5
    assert om.simulate(replace(PROBLEM, delay_s=0.0), schedule).completion_s == 1.5


def test_two_planes_add_up() -> None:
    """The same circuit on both planes is twice as fast."""
    problem = om.Demand.from_matrix([[6]], delay_s=0.0, planes=2, quantum_s=1.0)
    parts = (problem.schedule([[0]], [4]), problem.schedule([[0]], [4]))
    outcome = om.simulate(problem, om.PlaneSchedules(schedules=parts))
    assert outcome.flow_completion_s[0, 0] == 3.0
    assert outcome.busy[0] == 0.75


def test_subjects() -> None:
    status = om.Status.OPTIMAL
    solution = om.Solution(
        problem=PROBLEM,
        schedule=SCHEDULE,
        status=status,
        objective=2.5,
        lower_bound=2.5,
        method="by hand",
    )
    assert om.simulate(PROBLEM, solution) == om.simulate(PROBLEM, SCHEDULE)
    nothing = om.Solution(
        problem=PROBLEM, status=om.Status.UNKNOWN, limit=om.Limit.TIME, method="by hand"
    )
    with pytest.raises(om.InputError, match="there is no schedule"):
        om.simulate(PROBLEM, nothing)
    with pytest.raises(om.InputError, match="2 ports, the demand has 3"):
        om.simulate(om.Demand.from_matrix(np.ones((3, 3)), delay_s=0.0), SCHEDULE)
    other: Any = om.AllToAll(om.IdealSwitch(2))
    with pytest.raises(om.InputError, match="a Demand is expected"):
        om.simulate(other, SCHEDULE)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Save a schedule that carries everything."""
    solution = om.Solution(
        problem=PROBLEM,
        schedule=SCHEDULE,
        status=om.Status.OPTIMAL,
        objective=2.5,
        lower_bound=2.5,
        method="by hand",
    )
    om.save(solution, tmp_path / "two.schedule.json")
    return str(tmp_path / "two.schedule.json")


def test_flows_that_never_end_have_no_part_in_the_mean(tmp_path: Path) -> None:
    problem = om.Demand.from_matrix([[0, 2], [4, 0]], delay_s=1.0, rate_bytes_per_s=1)
    schedule = problem.schedule([[1, -1]], [2])
    solution = om.Solution(
        problem=problem,
        schedule=schedule,
        status=om.Status.FEASIBLE,
        limit=om.Limit.TIME,
        objective=3.0,
        lower_bound=3.0,
        method="by hand",
    )
    om.save(solution, tmp_path / "part.schedule.json")
    done = call("simulate", tmp_path / "part.schedule.json", "--json", code=5)
    tree = json.loads(done.stdout)
    assert tree["mean_flow_completion_s"] == 3.0


def test_the_command(file: str) -> None:
    result = call("simulate", file, "--flows")
    assert "complete" in result.stdout
    assert "0 -> 1: 3 B, 2.5 s" in result.stdout
    tree = json.loads(call("simulate", file, "--json").stdout)
    assert tree["format"] == "optmatch/simulation/1"
    assert tree["completion_s"] == 2.5
    assert tree["mean_queue_bytes"] == pytest.approx((5 * 1.0 + 2.5 * 1.5) / 2.5)
    assert tree["queue_bytes"][-1] == [0.0, 0.0]


def test_the_command_asks_what_if(file: str) -> None:
    assert "completion            2 s" in call("simulate", file, "--delay", "0.5").stdout
    tree = json.loads(
        call("simulate", file, "--json", "--packet-rate", "9", "--switching", "all-stop").stdout
    )
    assert tree["packet_bytes"] == 0


def test_the_command_on_what_is_not_carried(file: str, tmp_path: Path) -> None:
    tree = json.loads(Path(file).read_text())
    tree["schedule"]["durations_s"] = [1.0]
    tree["status"], tree["limit"] = "feasible", "time"
    short = put(tmp_path, "short.schedule.json", json.dumps(tree))
    result = call("simulate", str(short), "--flows", code=5)
    assert "INCOMPLETE" in result.stdout
    assert "0 -> 1: 3 B, 1 B left over" in result.stdout
    other = Path(__file__).resolve().parents[1] / "data" / "good" / "ideal.schedule.json"
    call("simulate", str(other), code=2)


def test_solve_on_planes(tmp_path: Path) -> None:
    """The command line solves, prints, saves and verifies answers that are several schedules."""
    problem = om.Demand.from_matrix([[0, 3, 1], [2, 0, 2], [0, 1, 0]], delay_s=0.5, planes=2)
    om.save(problem, tmp_path / "two.json")
    answer = str(tmp_path / "two.schedule.json")
    told = call("solve", tmp_path / "two.json", "--method", "spectra", "-o", answer)
    assert "on 2 planes" in told.stdout
    assert f"{problem.lower_bound():g} s" in told.stdout
    call("verify", answer)
    call("simulate", answer)
    said = call("solve", tmp_path / "two.json", "--method", "spectra", "--json")
    tree = json.loads(said.stdout)
    solution: Any = om.load(answer)
    assert tree["slots"] == sum(part.n_slots for part in solution.answer.schedules)


# Published step times, predicted from the job: one factor is fitted to one step of each GPU.


CALIBRATED = {"h200": "h200-dp2", "gb200": "gb200-dp4"}


@cache
def efficiency_of(case: str) -> float:
    """Fit the efficiency to the step with all links."""
    base = CALIBRATED[case.partition("-")[0]]
    job = published_job(base, electrical=True)
    return calibrate(job, CURVES[base]["all-links", 0.0]).workload.efficiency


@pytest.mark.parametrize("case", CASES)
def test_all_links(case: str) -> None:
    """The step of an electrical network, in which nothing waits for gradients: within 0.6 %."""
    job = published_job(case, efficiency=efficiency_of(case), electrical=True)
    assert job.lower_bound() == pytest.approx(CURVES[case]["all-links", 0.0], rel=6e-3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", ["on-demand", "provisioned"])
def test_step_times(case: str, policy: Any) -> None:
    job = published_job(case, efficiency=efficiency_of(case))
    for delay_s in (0.0, 0.1, 1.0):
        found = simulate_rails(job, policy, delay_s=delay_s)
        assert found.step_s == pytest.approx(CURVES[case][policy, delay_s], rel=1e-2)


@pytest.mark.parametrize("case", ["h200-dp2", "h200-dp4", "h200-dp8"])
def test_switches(case: str) -> None:
    """A rail changes 10 times a step, as published, and on demand all 10 are waited for."""
    job = published_job(case, efficiency=efficiency_of(case))
    found = simulate_rails(job, "on-demand", delay_s=1.0)
    rail = np.array([phase.rail == 0 for phase in job.phases()])
    assert len(np.unique(found.begun_s[rail & found.switched])) == 10
    long_s = [simulate_rails(job, "on-demand", delay_s=d).step_s for d in (1.0, 2.0)]
    published_s = [CURVES[case]["on-demand", d] for d in (1.0, 2.0)]
    assert long_s[1] - long_s[0] == pytest.approx(10.0)
    assert published_s[1] - published_s[0] == pytest.approx(10.0)


def test_cases_that_are_not_known() -> None:
    with pytest.raises(om.InputError, match="'h100': one of h200-dp2, h200-dp4"):
        published_job("h100")


def test_a_small_demand_without_a_circuit_is_left_beside_a_large_one() -> None:
    problem = om.Demand.from_matrix(np.array([[0, 1e10, 10], [0, 0, 0], [0, 0, 0]]), delay_s=0.0)
    outcome = om.simulate(problem, problem.schedule([[1, -1, -1]], [1e9]))
    assert not outcome.complete
    assert outcome.left_bytes.sum() == 10
