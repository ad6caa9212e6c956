"""Files for other tools: they can be read back, and say the same."""

import csv
import io
import itertools
import json
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import optmatch as om
from optmatch.io.exports import EXPORTERS, export, exported
from optmatch.io.rails.chakra import TraceOptions, read_groups, read_step
from optmatch.model import Status
from optmatch.problems import Group, PlaneSchedules, RailJob, Step
from optmatch.problems.rails.execution.plan import MANY_OPERATIONS
from optmatch.problems.rails.training.step import OPERATIONS
from optmatch.problems.topologies import topologies
from tests.helpers.command import call, refused
from tests.helpers.plans import demands, pipeline, rails
from tests.helpers.rails import PAIR, make_job, small_job
from tests.helpers.readers import check_trace, circuit_schedules, connected

PAPER = """BW 0
0 12.5 0 0
12.5 0 0 0
0 0 0 12.5
0 0 12.5 0
END

BW 1
0 0 12.5 0
0 0 0 12.5
12.5 0 0 0
0 12.5 0 0
END
"""
"""Two topologies of four GPUs, as the authors of the format show them."""


def text(solution: om.Solution, to: str) -> str:
    """Write a solution that becomes one file."""
    content = exported(solution, to)
    assert isinstance(content, str)
    return content


def parts(solution: om.Solution) -> tuple[om.Schedule, ...]:
    """Return the schedule of each plane."""
    if solution.schedule is not None:
        return (solution.schedule,)
    assert isinstance(solution.answer, PlaneSchedules)
    return solution.answer.schedules


def held(schedule: om.Schedule, time_s: float) -> list[int]:
    """Return the matching that a plane holds or changes to, counted by hand."""
    begin = 0.0
    for row, lasts in zip(schedule.matchings.tolist(), schedule.durations_s, strict=True):
        begin += schedule.delay_s + lasts
        if time_s < begin:
            return list(row)
    return list(schedule.matchings[-1])


def test_matrices_as_their_authors_show_them() -> None:
    assert text(rails(), "astra-bw") == PAPER
    found = topologies(rails())
    assert (found.starts_s.tolist(), found.topology.tolist()) == ([0.0, 2.0, 4.5], [0, 1, 0])


@given(demands())
def test_matrices_are_read_as_they_are_written(solution: om.Solution) -> None:
    """At every moment the topology has the circuits of all planes, each with its rate."""
    matrices = circuit_schedules(text(solution, "astra-bw"))
    latencies = circuit_schedules(text(solution, "astra-lt"), "LT")
    assert matrices.keys() == latencies.keys()
    assert all((matrix == 0).all() for matrix in latencies.values())
    found = topologies(solution)
    assert list(matrices) == list(range(len(found.states)))
    for start, topology in zip(found.starts_s, found.topology, strict=True):
        wanted = np.zeros((found.n_nodes, found.n_nodes))
        for schedule in parts(solution):
            for source, destination in enumerate(held(schedule, start)):
                if destination >= 0:
                    wanted[source, destination] += 2.5
        assert matrices[int(topology)].tolist() == wanted.tolist()
    matrix_rows = {matrix.tobytes() for matrix in matrices.values()}
    if len(parts(solution)) == 1:
        assert len(matrix_rows) == len(matrices)


@given(demands())
def test_openoptics_connects_what_is_written(solution: om.Solution) -> None:
    found = topologies(solution)
    wanted = [
        {tuple(row) for row in found.circuits(topology).tolist()}
        for topology in found.topology.tolist()
    ]
    lines = json.loads(text(solution, "openoptics"))
    mutual = all({(b, a, q, p) for a, b, p, q in rows} == rows for rows in wanted)
    ways = connected(lines, found.n_nodes, one_way=not mutual)
    if not mutual:  # sent by an even port, received by an odd one
        ways = [{(a, b, p // 2, (q - 1) // 2) for a, b, p, q in rows} for rows in ways]
    ways += [set() for _ in range(len(wanted) - len(ways))]
    assert ways == wanted


@given(demands())
def test_trace_events_of_schedules(solution: om.Solution) -> None:
    lasting = check_trace(text(solution, "perfetto"))
    assert len(lasting) == len(text(solution, "timeline").splitlines()) - 1


def test_trace_events_of_rails() -> None:
    lasting = check_trace(text(rails(), "perfetto"))
    spans = [(e["name"], e["ts"], e["dur"]) for e in lasting if e["cat"] == "operation"]
    once = [("compute", 0.0, 1e6), ("all-reduce", 1e6, 1e6), ("all-reduce", 2.5e6, 2e6)]
    assert spans == once * 4
    switches = [(e["name"], e["ts"], e["dur"]) for e in lasting if e["cat"] != "operation"]
    assert switches == [("to state 1", 2e6, 5e5), ("to state 2", 4.5e6, 5e5)]
    assert lasting[1]["args"] == {"group": "dp.0", "switch": "rail 0", "bytes": 12.5e9}


def test_trace_events_that_overlap_are_on_threads_of_their_own() -> None:
    """Ports of one switch are changed at different times, and times are no whole nanoseconds."""
    job = small_job(2, 1, 3, batch=8, micro_batch=1, delay_s=1e-2 / 3)
    lasting = check_trace(text(om.solve(job, "prefetch", seed=0), "perfetto"))
    changed = [e for e in lasting if e["cat"] != "operation"]
    of_one_switch = [e for e in changed if e["pid"] == changed[0]["pid"]]
    changes = sorted((e["ts"], e["ts"] + e["dur"]) for e in of_one_switch)
    assert any(one[1] > two[0] for one, two in itertools.pairwise(changes))


def test_viewers_that_cut_off_see_no_overlap() -> None:
    """1001 ns are 1.001 us, and a thousand times that is less than 1001 in doubles."""
    n = 50
    columns: dict[str, Any] = {
        "rank": [0] * (n + 1) + [1],
        "kind": [0] * n + [6, 7],
        "group": [-1] * n + [0, 0],
        "size_bytes": [0] * n + [8, 8],
        "duration_s": [1e-9, *[1e-6] * (n - 1), 0, 0],
        "peer": [-1] * n + [1, 0],
        "match": [-1] * n + [0, 0],
        "dep_start": [0, *range(n + 1), n],
        "dep": list(range(n)),
    }
    job = make_job(gpus_per_server=1, recorded=Step(groups=(PAIR,), **columns))
    lasting = check_trace(text(om.solve(job, "on-demand", seed=0), "perfetto"))
    starts_ns = [round(1e3 * event["ts"]) for event in lasting[1:n]]
    assert starts_ns == [1 + 1000 * k for k in range(n - 1)]


def test_the_other_files_of_rails() -> None:
    assert json.loads(text(rails(), "astra-groups")) == {
        "1": [0, 1],
        "2": [2, 3],
        "3": [0, 2],
        "4": [1, 3],
    }
    assert "npus_count: [4]\nbandwidth: [12.5]" in text(rails(), "astra-network")
    assert "reconfig_time: [500000000]" in text(rails(), "astra-network")


def test_links_inside_servers_are_in_every_topology() -> None:
    solution = rails()
    job: Any = solution.problem
    given = job.workload.recorded
    groups = (*given.groups, Group("tp.0", "tp", (0, 3), -1))
    columns = {name: getattr(given, name) for name in ("rank", "kind", "group", "peer")}
    step = Step(
        groups=groups, **columns, size_bytes=given.size_bytes, match=given.match,
        duration_s=given.duration_s, dep_start=given.dep_start, dep=given.dep,
    )  # fmt: skip
    wider = make_job(gpus_per_server=1, recorded=step, port_bytes_per_s=12.5e9, delay_s=0.5)
    solution = om.Solution(
        problem=wider, schedule=None, answer=solution.answer, status=Status.FEASIBLE,
        limit=om.Limit.EXHAUSTED, objective=4.5, lower_bound=0.0, method="by hand",
    )  # fmt: skip
    for matrix in circuit_schedules(text(solution, "astra-bw")).values():
        assert (matrix[0, 3], matrix[3, 0]) == (450.0, 450.0)
    for matrix in circuit_schedules(text(solution, "astra-lt"), "LT").values():
        assert set(matrix.ravel().tolist()) == {0.0, 500.0}


def test_the_step_as_traces(tmp_path: Path) -> None:
    solution = rails()
    names = export(solution, "chakra", tmp_path / "run")
    assert [Path(name).name for name in names] == [f"run.{rank}.et" for rank in range(4)]
    export(solution, "astra-groups", tmp_path / "groups.json")
    assert len(read_groups(tmp_path / "groups.json", n_ranks=4)) == 4
    told = TraceOptions(dimensions={"3": "cp", "4": "cp"})
    step, job = read_step(tmp_path / "run", tmp_path / "groups.json", told), solution.problem
    assert isinstance(job, RailJob)
    for name in ("rank", "kind", "size_bytes", "duration_s", "dep"):
        assert getattr(step, name).tolist() == getattr(job.step(), name).tolist()
    assert OPERATIONS[step.kind[1]] == "all-reduce"


def test_traces_tell_the_dimensions_of_groups(tmp_path: Path) -> None:
    # Groups of dp are split into parts inside a server and parts on a rail.
    job = small_job(dp=4, gpus_per_server=4, order="tp-dp-cp-pp")
    groups = job.groups()
    assert {(group.dimension, group.rail < 0) for group in groups} >= {("dp", True), ("dp", False)}
    solution = om.solve(job, "provisioned", seed=0)
    export(solution, "chakra", tmp_path / "run")
    export(solution, "astra-groups", tmp_path / "groups.json")
    step = read_step(tmp_path / "run", tmp_path / "groups.json", TraceOptions(gpus_per_server=4))
    used = {(group.dimension, group.ranks, group.rail) for group in groups if len(group.ranks) > 1}
    assert {(group.dimension, group.ranks, group.rail) for group in step.groups} == used

    # The options count more; with other servers the groups have no rail.
    own: dict[str, Any] = {group.name: "cp" for group in step.groups if group.dimension == "tp"}
    told = TraceOptions(gpus_per_server=4, dimensions=own)
    step = read_step(tmp_path / "run", tmp_path / "groups.json", told)
    assert {group.dimension for group in step.groups} == {"cp", "dp", "pp"}
    with pytest.raises(om.FormatError, match=r"--gpus-per-server.* are 1 apart .--stride"):
        read_step(tmp_path / "run", tmp_path / "groups.json", TraceOptions(gpus_per_server=3))


def test_every_format_writes_something(tmp_path: Path) -> None:
    schedule = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    for name, exporter in EXPORTERS.items():
        if exporter.kinds and "rail-job" not in exporter.kinds:
            with pytest.raises(om.InputError, match=f"format is for {', '.join(exporter.kinds)}"):
                export(rails(), name, tmp_path / f"rails-{name}")
            continue
        if exporter.cells:
            with pytest.raises(om.InputError, match="there are no cell states to write"):
                export(schedule, name, tmp_path / f"schedule-{name}")
            continue
        assert export(rails(), name, tmp_path / f"rails-{name}")
        if exporter.kinds:
            with pytest.raises(om.InputError, match="kind all-to-all: this format is for rail"):
                export(schedule, name, tmp_path / f"schedule-{name}")
        else:
            path = tmp_path / f"schedule-{name}"
            if exporter.rated:  # nobody has said what a circuit carries
                with pytest.raises(om.InputError, match="kind all-to-all has no bytes"):
                    export(schedule, name, path)
            assert export(schedule, name, path, rate_bytes_per_s=50e9)
    assert json.loads((tmp_path / "schedule-openoptics").read_text())
    blocks = circuit_schedules((tmp_path / "schedule-astra-bw").read_text())
    assert len(blocks) == 3 and max(block.max() for block in blocks.values()) == 50.0


def test_ports_of_a_rank_are_numbered_from_0() -> None:
    problem = om.Collective("all-to-all", 4, 8.0, rate_bytes_per_s=2.5, delay_s=1.0, ports=2)
    (switch,) = topologies(om.solve(problem, "pairwise", seed=0)).switches
    ports = sorted(zip(switch.node.tolist(), switch.port.tolist(), strict=True))
    assert ports == list(itertools.product(range(4), range(2)))


def test_a_plane_may_be_idle() -> None:
    problem = om.Demand(om.IdealSwitch(2), np.zeros((2, 2)), delay_s=0.1, planes=2)
    solution = om.solve(problem, seed=0)
    assert [schedule.n_slots for schedule in parts(solution)] == [0, 0]
    assert json.loads(text(solution, "openoptics")) == []
    assert all(exported(solution, to) for to in ("timeline", "perfetto", "astra-bw"))


def test_a_collective_without_times_is_written_as_a_table() -> None:
    problem = om.Collective("all-gather", 4, 4e6, delay_s=1e-6, planes=2)
    solution = om.solve(problem, "bruck", seed=0)
    for to in ("timeline", "perfetto", "astra-bw", "openoptics"):
        with pytest.raises(om.InputError, match="planes that change circuits together"):
            exported(solution, to)
    rows = list(csv.DictReader(io.StringIO(text(solution, "csv"))))
    assert len(rows) == len(solution.answer.sends) and rows[0]["kind"] == "copy"


def test_a_solution_without_an_answer() -> None:
    nothing = om.Solution(
        problem=om.AllToAll(om.IdealSwitch(2)), schedule=None, status=Status.UNKNOWN,
        limit=om.Limit.TIME, objective=None, lower_bound=0.0, method="by hand",
    )  # fmt: skip
    with pytest.raises(om.InputError, match="status unknown: neither a schedule nor a plan"):
        exported(nothing, "timeline")
    with pytest.raises(om.InputError, match="format 'pdf': known are csv, perfetto"):
        exported(nothing, "pdf")


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    """To a file and to stdout; a file that is there stays as it is."""
    schedule = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    om.save(schedule, tmp_path / "ideal.schedule.json")
    (tmp_path / "there.txt").write_text("old")
    command = ("export", "ideal.schedule.json", "--to", "astra-bw", "--rate", "1e9")
    with chdir(tmp_path):
        assert call(*command, "-o", "bw.txt").stderr == "optmatch: bw.txt: written\n"
        assert Path("bw.txt").read_text() == call(*command).stdout
        assert refused("is there already", *command, "-o", "there.txt").stdout == ""
        assert Path("there.txt").read_text() == "old"


def test_arrows_join_messages() -> None:
    content = text(pipeline(), "perfetto")
    assert len(check_trace(content)) == 8
    events = json.loads(content)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    arrows = [(e["ph"], names[e["pid"]], e["ts"]) for e in events if e.get("cat") == "message"]
    forth = [
        ("s", "rank 0", 0.0),
        ("f", "rank 1", 1e6),
        ("s", "rank 0", 1e6),
        ("f", "rank 1", 2e6),
    ]
    back = [("s", "rank 1", 0.0), ("f", "rank 0", 1e6), ("s", "rank 1", 1e6), ("f", "rank 0", 2e6)]
    assert arrows == forth + back


def test_the_command_writes_traces_of_rails(tmp_path: Path) -> None:
    """Several files need a name to begin with; groups with numbers for names keep them."""
    om.save(rails(), tmp_path / "plan.json")
    command = ["export", str(tmp_path / "plan.json"), "--to"]
    assert refused("chakra: several files", *command, "chakra").stdout == ""
    call(*command, "chakra", "-o", tmp_path / "run")
    assert len(list(tmp_path.glob("run.*.et"))) == 4
    shown = call(*command, "astra-groups")
    assert json.loads(shown.stdout)["1"] == [0, 1]


def test_plans_that_do_not_fit_their_job() -> None:
    solution = rails()
    plan: Any = solution.answer
    (timeline,) = plan.rails
    for changed, message in (
        (replace(timeline, rails=(7,)), "timelines of rails 7, the job has 0"),
        (
            replace(timeline, matchings=timeline.matchings[:, :2] * 0 - 1),
            "rows of 2 entries, rail 0 has 4 ports",
        ),
    ):
        wrong = replace(solution, answer=replace(plan, rails=(changed,)))
        with pytest.raises(om.InputError, match=message):
            exported(wrong, "astra-bw")


def on_switch(fabric: om.Fabric) -> om.Solution:
    """Plan a job of two rails of four GPUs, each on such a switch."""
    job = small_job(dp=2, tp=2, pp=2)
    network = replace(job.network, fabric=fabric)
    return om.solve(replace(job, network=network), "prefetch", seed=0)


@pytest.mark.parametrize("names", [None, tuple("abcdefgh")])
def test_a_rail_around_a_dead_port_is_handed_on(
    names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    whole = on_switch(om.IdealSwitch(8))
    broken = on_switch(om.Faulty(om.IdealSwitch(8, names=names), dead_ports=[1]))
    assert om.verify(broken).ok
    for to in ("openoptics", "astra-bw", "astra-lt", "astra-network"):
        assert text(broken, to) == text(whole, to)

    # Port 1 is blocked, and the three ports behind the first one have moved up by one.
    side_of = {"1A": "1A", "2A": "3A", "3A": "4A", "4A": "5A"}
    side_of |= {"1B": "1B", "2B": "3B", "3B": "4B", "4B": "5B"}
    configs = exported(broken, "sonic-ocs")
    assert isinstance(configs, dict)
    for ending, content in exported(whole, "sonic-ocs").items():  # type: ignore[union-attr]
        config = json.loads(configs[ending])
        circuits = json.loads(content)["OCS_CROSS_CONNECT"].values()
        assert {tuple(row.values()) for row in config["OCS_CROSS_CONNECT"].values()} == {
            (side_of[row["a_side"]], side_of[row["b_side"]]) for row in circuits
        }
        states = {side: row["state"] for side, row in config["OCS_PORT"].items()}
        assert [side for side in states if states[side] != "normal"] == ["2A", "2B"]
        if names:
            assert [row["label"] for row in config["OCS_PORT"].values()] == list("aabbccddee")

    # A table of the ports needs no line of the dead one.
    lines = [f"{names[k] if names else k},{k + 11}A,{k + 11}B" for k in (0, 2, 3, 4, 5, 6, 7)]
    (tmp_path / "ports.csv").write_text("\n".join(["port,A,B", *lines]))
    commands = exported(broken, "sonic-cli", ports=tmp_path / "ports.csv")
    assert all("11A-" in content or "-11B" in content for content in commands.values())  # type: ignore[union-attr]


def test_circuits_at_ports_of_no_gpu_are_refused() -> None:
    solution = on_switch(om.IdealSwitch(8))
    plan: Any = solution.answer
    rail = plan.rails[0]
    rail = replace(rail, matchings=np.roll(rail.matchings, 4, axis=1))
    wrong = replace(solution, answer=replace(plan, rails=(rail, *plan.rails[1:])))
    with pytest.raises(om.InputError, match="rail 0: it has circuits at ports of no GPU"):
        exported(wrong, "openoptics")


# Files of rail plans with many operations: those of ranks that do the same are stored once.


def large_solution() -> om.Solution:
    """Return a plan of 256 GPUs, of which 64 do the same each."""
    job = small_job(dp=64, tp=2, pp=2, batch=64 * 24, micro_batch=1)
    return om.solve(job, "on-demand", seed=0)


def test_a_plan_larger_than_a_file_may_be_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spelled out, the plan takes 20 bytes an operation; a file has fewer than it is allowed."""
    solution = large_solution()
    plan = solution.answer
    assert isinstance(plan, om.RailPlan)
    assert len(plan.start_s) >= MANY_OPERATIONS
    monkeypatch.setenv("OPTMATCH_MAX_BYTES", str(10 * len(plan.start_s)))
    om.save(solution, tmp_path / "a.json")
    loaded = om.load(tmp_path / "a.json")
    assert isinstance(loaded, om.Solution)
    for name in ("start_s", "end_s", "ports", "relays"):
        assert np.array_equal(getattr(loaded.answer, name), getattr(plan, name))
    assert not len(loaded.answer.like)
    assert om.verify(loaded.problem, loaded).ok


def test_stored_ranks_are_those_that_differ() -> None:
    solution = large_solution()
    assert isinstance(solution.problem, om.RailJob)
    assert isinstance(solution.answer, om.RailPlan)
    step = solution.problem.step()
    stored = solution.answer.stored_once(step)
    assert len(set(stored.like.tolist())) < step.n_ranks / 16
    assert len(stored.start_s) < len(solution.answer.start_s) / 16

    # One operation of the last rank that ends later makes this rank one of its own.
    end_s = solution.answer.end_s.copy()
    end_s[-1] += 1.0
    changed = replace(solution.answer, end_s=end_s)
    again = changed.stored_once(step)
    assert again.like[-1] == step.n_ranks - 1
    assert np.array_equal(again.spelled_out(step).end_s, end_s)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"like": [0]}, "like has 1 entries"),
        ({"like": [0, 1, 0, 3]}, r"like\[2\] = 0: a stored rank with as many operations"),
        ({"like": [0, 1, 3, 3], "start_s": [0.0], "end_s": [0.0], "ports": [0]}, "start_s has 1"),
        ({"like": [1, 0, 2, 3]}, r"like\[0\] = 1: a stored rank"),
        ({"like": [0, 1, 2, 4]}, "like"),
    ],
)
def test_wrong_ranks_are_refused(changes: dict[str, Any], message: str) -> None:
    """Stages of a pipeline have other operations; a rank that is not stored is like no other."""
    job = small_job(dp=2, tp=1, pp=2, batch=8, schedule="gpipe")
    solution = om.solve(job, "on-demand", seed=0)
    assert isinstance(solution.answer, om.RailPlan)
    with pytest.raises(om.InputError, match=message):
        replace(solution.answer, **changes).spelled_out(job.step())


def test_a_plan_with_stored_ranks_is_no_answer() -> None:
    solution = large_solution()
    assert isinstance(solution.problem, om.RailJob)
    assert isinstance(solution.answer, om.RailPlan)
    stored = solution.answer.stored_once(solution.problem.step())
    report = om.verify(solution.problem, stored)
    assert not report.valid
    assert "start_s" in report.violations[0].where
