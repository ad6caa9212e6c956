"""Rails that several jobs share, as files for switches: replayed beside the plans of the jobs."""

import random
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.exports import exported
from optmatch.io.switches import rail_sharing
from optmatch.io.switches.plans import list_planned_switches
from optmatch.model import InputError
from optmatch.problems import NamedJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.switches import DrySwitch, PlayOptions, play
from tests.helpers.rails import small_job
from tests.helpers.shared_rails import draw_sharing, switch_at, switch_at_start

DRAWN = {
    "ports": (1, 2, 8, 17, 19, 22, 28, 33),
    "servers": (4, 9, 14, 30, 34, 39),
    "time": (0, 7, 10, 12, 13, 18, 27, 32, 37),
}
"""Numbers of `solved`, by what is divided; most plans change circuits within a step."""


def solved(number: int) -> om.Solution:
    """Draw a sharing of two or three small jobs, and solve it."""
    problem = draw_sharing(random.Random(f"export {number}"))
    return om.solve(problem, "on-demand", seed=0, limits=om.Limits(iterations=60))


def read_commands(text: str) -> list[tuple[float, dict[int, int]]]:
    """Carry out the commands of one switch; return the circuits after each slot with its time.

    Circuits are by the numbers of ports, transmit port to receive port, from 0.
    """
    held: dict[int, int] = {}
    slots: list[tuple[float, dict[int, int]]] = []
    for line in text.splitlines():
        if match := re.fullmatch(r"# rail \d+, slot (\d+), at (\S+) s", line):
            assert int(match[1]) == len(slots)
            slots.append((float(match[2]), {}))
        else:
            match = re.fullmatch(r"config ocs cross-connect (add|delete) (\S+)( safe)?", line)
            assert match
            for circuit in match[2].split(","):
                for source, receiver in spread(circuit):
                    if match[1] == "delete":
                        assert held.pop(source) == receiver
                    else:
                        assert source not in held and receiver not in held.values()
                        held[source] = receiver
        slots[-1] = (slots[-1][0], dict(held))
    return slots


def spread(circuit: str) -> list[tuple[int, int]]:
    """Return the circuits of a name such as ``1A-2B``, or of a range ``1A..3A-2B..4B``."""
    match = re.fullmatch(r"(\d+)A(?:\.\.(\d+)A)?-(\d+)B(?:\.\.(\d+)B)?", circuit)
    assert match
    first_a, last_a, first_b, last_b = (int(word or 0) for word in match.groups())
    count = max(1, last_a - first_a + 1)
    assert not last_a or last_b - first_b == last_a - first_a
    return [(first_a - 1 + k, first_b - 1 + k) for k in range(count)]


def circuits_at(plan: RailPlan, rail: int, time_s: float, first_port: int) -> dict[int, int]:
    """Return the circuits that a job has at a time of its step, by the ports of the switch."""
    own = switch_at(plan, rail, time_s) if time_s > 0 else switch_at_start(plan, rail)
    return {first_port + port: first_port + to for port, to in own.items()}


def expected_at(problem: om.RailSharing, answer: Any, rail: int, time_s: float) -> dict[int, int]:
    """Return the circuits of a rail at a time of the export, by walking through the plans."""
    first_ports = answer.first_port[:, rail].tolist()
    if problem.by != "time":
        circuits: dict[int, int] = {}
        for share, first_port in zip(answer.beside, first_ports, strict=True):
            # A job whose step is over waits with the circuits that its next step begins with.
            own_s = 0.0 if time_s >= share.plan.step_s else time_s
            circuits |= circuits_at(share.plan, rail, own_s, first_port)
        return circuits

    rests_s = problem.measure_handovers(answer)
    begin_s = 0.0
    for job, share in enumerate(answer.beside):
        for _ in range(answer.steps[job]):
            if time_s < begin_s + share.plan.step_s:
                return circuits_at(share.plan, rail, time_s - begin_s, first_ports[job])
            begin_s += share.plan.step_s
        begin_s += rests_s[job]
        if time_s < begin_s:
            next_job = (job + 1) % len(answer.beside)
            return circuits_at(answer.beside[next_job].plan, rail, 0.0, first_ports[next_job])
    raise AssertionError(f"{time_s} s is after the round")


def times_of(problem: om.RailSharing, answer: Any) -> list[float]:
    """Return all times at which a job begins a step, changes circuits, or ends a step."""
    starts_s = [0.0]
    if problem.by == "time":
        rests_s = problem.measure_handovers(answer)
        begins = []
        for job, share in enumerate(answer.beside):
            for _ in range(answer.steps[job]):
                begins.append((starts_s[-1], share.plan))
                starts_s.append(starts_s[-1] + share.plan.step_s)
            starts_s.append(starts_s[-1] + rests_s[job])
    else:
        begins = [(0.0, share.plan) for share in answer.beside]
        starts_s.extend(share.plan.step_s for share in answer.beside)
    changes_s = [
        begin_s + start_s
        for begin_s, plan in begins
        for timeline in plan.rails
        for start_s in timeline.starts_s.tolist()
    ]
    return sorted({*starts_s, *changes_s})


@pytest.mark.parametrize(
    ("by", "number"), [(by, number) for by, numbers in DRAWN.items() for number in numbers]
)
def test_all_jobs_have_their_circuits_at_all_times(by: str, number: int) -> None:
    solution = solved(number)
    problem: Any = solution.problem
    answer: Any = solution.answer
    assert problem.by == by
    content = exported(solution, "sonic-cli")
    files = {".rail-0.txt": content} if isinstance(content, str) else dict(content)
    assert list(files) == [f".rail-{rail}.txt" for rail in range(problem.n_rails)]

    # Between two times of all jobs nothing changes; times in files have nine digits.
    times_s = times_of(problem, answer)
    for rail, text in enumerate(files.values()):
        slots = read_commands(str(text))
        for begin_s, end_s in pairwise(times_s):
            if end_s - begin_s > 1e-6 * end_s:
                middle_s = (begin_s + end_s) / 2
                held = [circuits for start_s, circuits in slots if start_s <= middle_s][-1]
                assert held == expected_at(problem, answer, rail, middle_s), (rail, middle_s)
        assert slots[0][1] == slots[-1][1]  # the next round begins with them


@pytest.mark.parametrize("number", [1, 9, 0, 13])
def test_states_follow_each_other_to_the_end_of_the_plan(number: int) -> None:
    """Circuits that are removed take no time, but on switches that stop as a whole (number 13)."""
    solution = solved(number)
    problem: Any = solution.problem
    network = problem.jobs[0].job.network
    steps_s = problem.measure_steps(solution.answer)
    plan_s = max(steps_s)
    if problem.by == "time":
        plan_s = steps_s[0] * solution.answer.steps[0]
    for switch in list_planned_switches(solution):
        assert switch.starts_s[0] == switch.ready_s[0] == 0
        assert (np.diff(switch.starts_s) >= 0).all()
        assert switch.ends_s[:-1].tolist() == switch.starts_s[1:].tolist()
        assert switch.ends_s[-1] == pytest.approx(plan_s)
        for state in range(1, switch.n_states):
            before, after = switch.matchings[state - 1 : state + 1]
            assert (before != after).any()
            is_added = ((after >= 0) & (after != before)).any()
            takes_time = is_added or network.switching == "all-stop"
            expected_s = network.delay_s if takes_time else 0.0
            assert switch.ready_s[state] - switch.starts_s[state] == pytest.approx(expected_s)


def two_jobs(by: Any, **changes: Any) -> om.Solution:
    """Return shares of two jobs; the first has four GPUs on each of two rails, the second two."""
    large = small_job(4, 2, 1, gpus_per_server=2, ports_per_gpu=2, delay_s=0.005)
    small = small_job(2, 2, 1, gpus_per_server=2, ports_per_gpu=2, delay_s=0.005)
    jobs = (NamedJob("large job", large), NamedJob("small", small))
    problem = om.RailSharing(jobs=jobs, radix=16, by=by, **changes)
    return om.solve(problem, "provisioned", seed=0)


def test_ports_are_labelled_by_job_and_rank() -> None:
    first, second = list_planned_switches(two_jobs("ports"))
    large = [f"large job {rank}.{port}" for rank in range(4) for port in (0, 1)]
    small = [f"small {rank}.{port}" for rank in (0, 1) for port in (0, 1)]
    assert list(first.labels) == large + small
    assert second.labels[0] == "large job 4.0" and second.name == "rail 1"

    # In turns the GPUs are those of all jobs.
    first, _ = list_planned_switches(two_jobs("time", round_s=0.1))
    assert list(first.labels) == [f"{rank}.{port}" for rank in range(4) for port in (0, 1)]


def test_a_port_between_two_jobs_stays_dark_and_has_no_label() -> None:
    solution = two_jobs("servers")
    answer = solution.answer
    first_port = answer.first_port.copy()
    first_port[1] += 3
    moved = replace(solution, answer=replace(answer, first_port=first_port))
    switch = list_planned_switches(moved)[0]
    before = list_planned_switches(solution)[0]
    gap = slice(len(switch.labels) - 7, len(switch.labels) - 4)
    assert switch.labels[gap] == ("", "", "")
    assert (switch.matchings[:, gap] == -1).all()
    moved_circuits = switch.matchings[:, gap.stop :]
    assert (moved_circuits == before.matchings[:, gap.start :] + 3).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((1, 0, 7), "rail 0, port 7: of job large job and of job small at once"),
        ((0, 1, 7), "rail 1, port 8: of job large job and of job small at once"),
        ((1, 1, 13), "job small has 4 ports on rail 1 from port 13 on: ports of the switch are 0"),
        ((0, 0, -1), "job large job has 8 ports on rail 0 from port -1 on"),
    ],
)
def test_ports_of_two_jobs_and_beyond_the_switch_are_refused(
    change: tuple[int, int, int], message: str
) -> None:
    solution = two_jobs("ports")
    answer = solution.answer
    job, rail, port = change
    first_port = answer.first_port.copy()
    first_port[job, rail] = port
    wrong = replace(solution, answer=replace(answer, first_port=first_port))
    with pytest.raises(InputError, match=re.escape(message)):
        list_planned_switches(wrong)


def test_rounds_of_too_many_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of a billion steps would fill the memory, unless its steps change no circuit."""
    solution = solved(12)
    many = replace(solution, answer=replace(solution.answer, steps=(10**9, 10**9)))
    assert [switch.matchings.shape for switch in list_planned_switches(many)] == [(3, 4)]

    solution = solved(13)
    many = replace(solution, answer=replace(solution.answer, steps=(5, 10**9)))
    with pytest.raises(InputError, match=r"a shorter round \(round_s\) has fewer steps"):
        list_planned_switches(many)
    solution = solved(1)
    monkeypatch.setattr(rail_sharing, "MOST_ENTRIES", 10)
    with pytest.raises(InputError, match=r"at most 10 are written$"):
        list_planned_switches(solution)


@pytest.mark.parametrize("number", [2, 39, 12, 27])
def test_shared_rails_are_played(number: int) -> None:
    solution = solved(number)
    switches = {
        switch.name: DrySwitch(write=lambda line: None)
        for switch in list_planned_switches(solution)
    }
    options = PlayOptions(pace="told", next_slot=lambda: None, rounds=2)
    assert play(solution, switches, options).is_whole
    for switch in list_planned_switches(solution):
        lit = {source for source, to in enumerate(switch.matchings[0].tolist()) if to >= 0}
        held = {int(c.a_side[:-1]) - 1 for c in switches[switch.name].read_circuits()}
        assert held == lit


@pytest.mark.parametrize("to", ["timeline", "openoptics", "astra-bw"])
def test_formats_of_one_job_name_those_of_several(to: str) -> None:
    with pytest.raises(InputError, match="written as sonic-ocs, sonic-cli or polatis-scpi"):
        exported(two_jobs("ports"), to)
