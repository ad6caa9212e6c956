"""What new users stumbled over: each is answered by what to type instead, or works."""

import csv
import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.commands.shared.outcome import print_rows
from optmatch.io.exports import exported
from optmatch.model import write_amount
from optmatch.plotting import left_bytes
from optmatch.solvers.reroutes.states import fill_rack
from tests.helpers.answers import answer_named
from tests.helpers.command import call, refused


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


UNIFORM = ("generate", "demand", "--model", "uniform", "--size", "4")
RAIL = (
    "--hidden",
    "4096",
    "--layers",
    "32",
    "--heads",
    "32",
    "--vocabulary",
    "32000",
    "--ffn",
    "16384",
)


def write_demand(**changes: Any) -> None:
    om.save(om.Demand.from_matrix([[0, 1], [2, 0]], delay_s=1.0, **changes), "demand.json")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            (*UNIFORM, "--delay", "25", "ms"),
            "ms: a number and its unit are one word: --delay '25 ms'",
        ),
        (
            ("generate", "collective", "all-reduce", "--ranks", "4", "--bytes", "1", "MB"),
            "MB: a number and its unit are one word: --bytes '1 MB'",
        ),
        ((*UNIFORM, "--delay", "1ms", "--bytes", "many"), "as 100MB, 4MiB"),
        (
            ("generate", "all-to-all", "--size", "4", "--delay", "25", "ms"),
            "ms: a number and its unit are one word: --delay '25 ms'",
        ),
    ],
)
def test_a_unit_apart_from_its_number_is_put_back(command: Any, told: str) -> None:
    result = call(*command, code=2)
    assert told in " ".join(result.stderr.split())


def test_bytes_have_units() -> None:
    call(*UNIFORM, "--bytes", "100MB", "--delay", "1 ms", "-o", "a.json")
    demand: Any = om.load("a.json")
    assert 5e7 < demand.demand_bytes.max() <= 1e8


def test_a_size_is_that_of_an_ideal_switch_whatever_else_is_said() -> None:
    call("generate", "all-to-all", "--size", "8", "--dead-ports", "1", "-o", "a.json")
    fabric: Any = om.load("a.json").fabric  # type: ignore[union-attr]
    assert (fabric.type, fabric.fabric) == ("faulty", om.IdealSwitch(8))


def test_a_mesh_without_a_size_is_told_one_that_is_enough() -> None:
    """The least of published chips for 32 ports, and one that a solve shows for 10."""
    for n_ports, size in ((32, "--rows 9 --cols 9"), (10, "--rows 4 --cols 4")):
        told = call("generate", "all-to-all", "--ports", str(n_ports), code=2).stderr
        assert f"{size}, enough for all pairs" in " ".join(told.split())
    solution = om.solve(om.AllToAll(om.HexMesh(4, 4, ports=10)), seed=0)
    assert solution.schedule is not None and solution.schedule.n_slots == 9


def test_no_rank_is_late_where_none_is() -> None:
    words = ("generate", "collective", "all-gather", "--ranks", "4", "--bytes", "1MB")
    for late, is_told in (((), False), (("--late", "3=1ms"), True)):
        call(*words, *late, "-o", "c.json", "--force")
        solved = call("solve", "c.json", "-o", "c.schedule.json", "--force").stdout
        verified = call("verify", "c.schedule.json").stdout
        assert ("rounds late" in solved, "rounds late" in verified) == (is_told, is_told)


def test_what_circuits_of_a_demand_miss_has_its_unit_and_slots() -> None:
    demand: Any = om.Demand.from_matrix(
        [[0, 3e9], [2e9, 0]], delay_s=0.0, quantum_s=1.0, rate_bytes_per_s=1e9
    )
    (wrong,) = om.verify(demand, demand.schedule([[1, 0], [1, -1]], [1, 1])).violations[:1]
    assert str(wrong) == (
        "from port 0 to port 1: all demand is served: got 2000000000 bytes by circuits in slots"
        " [0 1], expected 3000000000 bytes"
    )


def test_figures_of_a_schedule_that_rolls_are_short() -> None:
    rolling = om.RollingSchedule(om.IdealSwitch(4), delay_s=1e-5, rate_bytes_per_s=1e9)
    rolling.add(np.eye(4, k=1) * 1e6)
    figures = rolling.figures()
    assert repr(figures["call_s"]["add"]).startswith("Histogram(1 times, mean ")
    assert sum(figures["call_s"]["add"].counts) == 1


def test_names_of_several_files_have_their_ending_once() -> None:
    call(*UNIFORM, "--delay", "1 ms", "-o", "demand.json")
    call("solve", "demand.json", "-o", "demand.schedule.json")
    for begin in ("cfg.json", "cfg"):
        call("export", "demand.schedule.json", "--to", "sonic-ocs", "-o", begin, "--force")
        names = {path.name for path in Path().glob("cfg*")}
        assert names and all(re.fullmatch(r"cfg\.slot-\d+\.json", name) for name in names)


def test_a_picture_has_the_title_that_was_typed() -> None:
    write_demand()
    call("solve", "demand.json", "-o", "demand.schedule.json")
    for file in ("demand.json", "demand.schedule.json"):
        call("plot", file, "--title", "Rack 7", "-o", "a.svg", "--force")
        assert "Rack 7" in Path("a.svg").read_text(encoding="utf-8")


def test_a_proposal_says_in_a_line_what_changes() -> None:
    proposal = om.Rerouter(fill_rack(om.RackFabric())).fail(chip=21)
    assert re.fullmatch(
        r"<Proposal 21 to 60: \d+ circuits change, .* steps, decided in \S+ ms>", repr(proposal)
    )


def test_a_problem_without_an_answer_says_who_knows_why() -> None:
    words = ("generate", "all-to-all", "--rows", "4", "--cols", "4", "--ports", "8")
    written = call(*words, "--dead-cells", "0,1,2,3,4,5,6", "-o", "a.json").stderr
    assert "nothing answers it; to solve it says why" in " ".join(written.split())
    assert "no state of the cells connects" in call("solve", "a.json", code=3).stdout


def test_generate_says_what_it_wrote() -> None:
    result = call(*UNIFORM, "--delay", "1 ms", "--rate", "100Gbit/s", "-o", "a.json")
    said = result.stderr
    assert "a.json: written: demand on ideal switch" in said
    for word in ("4 ports", "12 entries, 5.805 kB", "rate 12.5 GB/s", "delay 1 ms", "below"):
        assert word in said


def test_info_of_a_problem_speaks_of_the_problem() -> None:
    write_demand()
    shown = call("info", "demand.json").stdout
    assert "2 entries, 3 B" in shown and "no answer is below" in shown
    told = json.loads(call("info", "demand.json", "--json").stdout)
    assert told["problem"].startswith("demand on ideal switch")


@pytest.mark.parametrize("name", ["new.png", "new.SVG", "new.html"])
def test_solve_writes_no_picture(name: str) -> None:
    write_demand()
    result = call("solve", "demand.json", "-o", name, code=2)
    assert not Path(name).exists()
    assert "`optmatch plot` draws" in result.stderr


def test_a_misspelt_method_is_likened_to_methods_of_its_kind() -> None:
    problem = om.Demand.from_matrix([[0, 1], [2, 0]], delay_s=1.0)
    with pytest.raises(om.InputError, match=r"no method for demand.*perhaps 'greedy-cover'"):
        om.solve(problem, "greddy-cover")
    with pytest.raises(om.InputError) as caught:
        om.solve(problem, "greddy")
    assert "'greedy'" not in str(caught.value)


def test_a_table_of_traffic_is_read_by_another_name() -> None:
    Path("traffic.csv").write_text("0,1\n2,0\n")
    with pytest.raises(om.FormatError, match=r"not JSON; .*read_matrix.*--matrix") as caught:
        om.load("traffic.csv")
    for reader in re.findall(r"read_\w+", str(caught.value)):
        assert callable(getattr(om.io, reader))
    assert "read_flows flows with their times" in str(caught.value)
    assert "`optmatch simulate`" in str(caught.value)


@pytest.mark.parametrize("command", [("solve",), ("vary", "--field", "delay_s", "--values", "1")])
def test_a_list_of_flows_is_replayed_by_another_command(command: tuple[str, ...]) -> None:
    """The command for matrices would refuse it; that a file is a list is not looked up."""
    Path("flows.csv").write_text("source,destination,bytes,start_s\n0,1,5,0.1\n")
    refused(
        "of a list of flows with their times, `optmatch simulate flows.csv`", *command, "flows.csv"
    )


def test_a_gap_of_rounding_is_none() -> None:
    from optmatch.model.problem import gap_between

    assert gap_between(1.0, 1.0 - 4.13e-16) == 0.0
    assert gap_between(1.0, 1.0 - 1e-9) > 0.0


@pytest.mark.parametrize(
    ("options", "degrees"),
    [
        (("--tp", "8", "--pp", "4", "--batch", "64", "--sequence", "1024", *RAIL), (2, 8, 4)),
        (("--preset", "llama3-405b", "--tp", "8", "--pp", "2", "--cp", "1"), (4, 8, 2)),
    ],
)
def test_replicas_follow_from_the_other_degrees(options: Any, degrees: Any) -> None:
    network = () if "--preset" in options else ("--gpus-per-server", "8")
    call("generate", "rail-job", "--gpus", "64", *options, *network, "-o", "job.json")
    job: Any = om.load("job.json")
    split = job.parallelism
    assert (split.dp, split.tp, split.pp) == degrees
    assert job.workload.micro_batch == 1
    refused("but --gpus = 60", "generate", "rail-job", "--gpus", "60", *options, *network)


def test_a_job_whose_stages_wait_says_so() -> None:
    options = ("--gpus", "32", "--tp", "8", "--pp", "4", "--batch", "2", "--sequence", "1024")
    job = (*options, *RAIL, "--gpus-per-server", "8", "-o", "job.json", "--force")
    said = call("generate", "rail-job", *job, "--micro-batch", "2").stderr
    assert "stages of the pipeline wait for 75% of the step: 4 stages have 1 micro-batch" in said
    assert "wait" not in call("generate", "rail-job", *job, "--batch", "64").stderr


def test_a_matrix_without_a_fabric_says_what_to_call() -> None:
    with pytest.raises(om.InputError, match=r"list is no fabric: Demand.from_matrix\(matrix"):
        om.Demand([[0, 1], [2, 0]])  # type: ignore[arg-type]


def test_a_missing_rate_is_a_warning_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    matrix = [[0.0, 1e9], [2.0, 0.0]]
    om.Demand.from_matrix(matrix, delay_s=1.0, rate_bytes_per_s=12.5e9)
    om.Demand.from_matrix([[0, 1], [2, 0]], delay_s=1.0)
    assert not caplog.records
    om.Demand.from_matrix(matrix, delay_s=1.0)
    assert "set the rate of a circuit" in caplog.text


RACKS = ",rack-9,rack-10,rack-11\nrack-9,0,1e9,2e9\nrack-10,3e9,0,0\nrack-11,0,4e9,0\n"
FAILED = ("generate", "demand", "--matrix", "traffic.csv", "--delay", "1 ms", "--rate", "10GB/s")


def test_a_free_port_takes_over_the_name_and_the_demand_of_a_dead_one(caplog: Any) -> None:
    Path("traffic.csv").write_text(RACKS)
    call(*FAILED, "--size", "4", "-o", "before.json")
    after = call(*FAILED, "--size", "4", "--dead-ports", "rack-10", "-o", "after.json")
    assert "rack-10: port 3 takes over" in after.stderr
    problem: Any = om.load("after.json")
    assert problem.fabric.port_names == ("rack-9", "3", "rack-11", "rack-10")
    assert problem.fabric.dead_ports == (1,)
    assert problem.demand_bytes[3].tolist() == [3e9, 0, 0, 0]
    assert problem.demand_bytes[:, 3].tolist() == [1e9, 0, 4e9, 0]

    # The plan before the failure is where the next one begins, and ports are told by their names.
    call("solve", "before.json", "-o", "before.schedule.json")
    start = ("--start", "before.schedule.json")
    call("solve", "after.json", *start, "-o", "after.schedule.json")
    Path("ports.csv").write_text("port,A,B\nrack-9,1A,1B\n3,2A,2B\nrack-11,3A,3B\nrack-10,4A,4B\n")
    to = ("export", "after.schedule.json", "--to", "sonic-cli")
    named = call(*to, "--ports", "ports.csv")
    assert named.stdout == call(*to).stdout and "2A-" not in named.stdout and "4A" in named.stdout
    assert "ports.csv: the sides 2A and 2B of 3 are taken for those of a port" in caplog.text

    # A table of before the failure is told apart by the sides that it has for the dead port; one
    # by numbers has the places of ports, also where a port has digits for a name.
    Path("old.csv").write_text("port,A,B\nrack-9,1A,1B\nrack-10,2A,2B\nrack-11,3A,3B\n3,4A,4B\n")
    call(*to, "--ports", "old.csv")
    assert "old.csv: the sides 4A and 4B of 3 are taken for those of a port" in caplog.text
    assert "from before the failure, they are those of the free port, which works" in caplog.text
    Path("places.csv").write_text("port,A,B\n0,1A,1B\n1,2A,2B\n2,3A,3B\n3,4A,4B\n")
    assert call(*to, "--ports", "places.csv").stdout == named.stdout

    # What is left of a demand says nothing of the switch: a dead port has to be named again.
    rest = ("simulate", "after.schedule.json", "--at", "100ms", "-o", "rest.csv")
    assert "add --dead-ports 3" in call(*rest).stderr


def test_without_a_free_port_the_failure_is_told_by_name() -> None:
    Path("traffic.csv").write_text(RACKS)
    result = call(*FAILED, "--dead-ports", "rack-10", "-o", "after.json", code=2)
    assert not Path("after.json").exists()
    assert "port 1 (rack-10) has a demand, and no port is free to take it over" in result.stderr


def test_a_port_that_fails_takes_its_groups_along() -> None:
    before = om.Demand.from_matrix(
        [[0, 1, 0], [2, 0, 0], [0, 0, 0]],
        delay_s=1.0,
        groups=[[-1, 0, -1], [1, -1, -1], [-1, -1, -1]],
        objective="weighted-completion-s",
    )
    after = before.with_dead_ports([1])
    assert after.demand_bytes.tolist() == [[0, 0, 1], [0, 0, 0], [2, 0, 0]]
    assert after.groups is not None and after.groups[0, 2] == 0 and after.groups[2, 0] == 1
    again = after.with_dead_ports([])
    assert again == after and again.fabric.dead_ports == (1,)


def test_the_most_ordinary_collective_goes_to_runtimes() -> None:
    ordinary: dict[str, Any] = {"alpha_s": 2e-6, "delay_s": 1e-3, "rate_bytes_per_s": 50e9}
    for n_ranks, size_bytes in ((8, 1e5), (8, 1e8), (12, 1e5)):
        problem = om.Collective("all-reduce", n_ranks, size_bytes, **ordinary)
        solution = om.solve(problem, seed=0)
        assert exported(solution, "msccl") and exported(solution, "mscclpp")


def test_blocks_in_different_parts_say_that_msccl_takes_other_plans() -> None:
    demand = [[0, 9e7, 1e6, 2e6], [3e6, 0, 7e7, 1e6], [1e6, 2e6, 0, 5e6], [4e7, 1e6, 8e6, 0]]
    problem = om.Collective("all-to-all", 4, 0, demand_bytes=demand, alpha_s=1e-6, delay_s=1e-5)
    solution = om.solve(problem, "split", seed=0)
    with pytest.raises(om.InputError, match=r"different parts .* other methods can"):
        exported(solution, "msccl")


def test_plans_of_schedulers_are_shown_in_short() -> None:
    matrix = np.random.default_rng(0).random((64, 64))
    for plan in (om.schedule(matrix, delay_s=0.5), om.decompose(matrix, fill=True)):
        assert len(repr(plan)) < 300 and "<int32" in repr(plan)


def test_methods_that_suit_no_problem_are_said_once_and_have_no_rows() -> None:
    """Of 30 problems there were 30 rows that said "refused"."""
    problems = [om.Demand.from_matrix([[0, n], [1, 0]], delay_s=1.0) for n in range(1, 9)]
    study = om.compare_methods(problems, ["eclipse", "greedy"])
    assert [row.status for row in study].count("refused") == 8
    assert {row[2] for row in study.written_rows()[1:]} == {"eclipse"}
    (line,) = study.explanations()
    assert "greedy: " in line and "does not accept demand problems" in line
    assert line.endswith("(and 7 more)")
    refused_alone = om.compare_methods(problems, ["greedy"])
    assert len(refused_alone.written_rows()) == 9


def test_all_public_records_of_arrays_are_shown_in_short() -> None:
    """`print` of what a router or a schedule returns once filled a page with numbers."""
    names = ("control", "fabrics", "model", "optics", "plotting", "problems")
    rooms = [import_module(f"optmatch.{name}") for name in names]
    values = [getattr(room, name) for room in rooms for name in room.__all__]
    records = [value for value in values if hasattr(value, "_fields")]
    of_arrays = [cls for cls in records if re.search("NDArray|Points", str(cls.__annotations__))]
    assert len(of_arrays) > 20
    for cls in of_arrays:
        record = cls._make(np.zeros((99, 9)) for _ in cls._fields)
        assert repr(record).count("<float64 99 x 9>") == len(cls._fields), cls


def test_a_mapping_of_ports_is_told_what_to_write() -> None:
    with pytest.raises(om.InputError, match=r"a list with an entry for each index .* mapping"):
        om.Routing(om.IdealSwitch(4), {"0": "3"})  # type: ignore[arg-type]


def test_hundredths_of_a_db_are_shown_as_db(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows({"worst_loss_centidb": 1440})
    assert capsys.readouterr().out.split() == ["worst", "loss", "14.4", "dB"]


def test_a_method_that_suits_no_problem_has_no_line_in_a_profile() -> None:
    problems = [om.Demand.from_matrix([[0, k], [2, 0]], delay_s=0.5) for k in range(1, 31)]
    table = om.compare_methods(problems, ["eclipse", "spectra", "greedy"])
    lines = table.plot().axes[0].get_lines()
    assert {line.get_label() for line in lines} == {"eclipse", "spectra"}


@pytest.mark.parametrize("kind", ["all-to-all", "collective", "demand", "rail-job", "reroute"])
def test_options_of_the_fabric_come_after_those_of_the_question(kind: str) -> None:
    shown = call("generate", kind, "--help").stdout
    heads = re.findall(r"^([A-Z][\w: ]*):$", shown, re.MULTILINE)
    assert heads[0] == "Options" and heads[-1] == "Output"
    assert "--rows" in shown.partition("\nFabric:\n")[2]
    assert heads.index("Fabric") in (len(heads) - 2, len(heads) - 3)


@pytest.mark.parametrize("fabric", [None, om.HexMesh(3, 3, ports=4)])
@pytest.mark.parametrize("planes", [1, 2])
def test_the_table_of_a_demand_says_what_each_circuit_carries(fabric: Any, planes: int) -> None:
    matrix = [[0, 3, 0, 1], [2, 0, 0, 0], [0, 0, 0, 4], [1, 0, 2, 0]]
    demand = om.Demand.from_matrix(
        matrix, fabric, delay_s=0.5, rate_bytes_per_s=2.0, planes=planes
    )
    table = om.solve(demand, seed=0).to_dataframe()
    circuits = table[table["what"] == "circuit"]
    carried = np.zeros((4, 4))
    np.add.at(
        carried,
        (circuits["rank"].astype(int), circuits["peer"].astype(int)),
        circuits["size_bytes"].astype(float),
    )
    np.testing.assert_allclose(carried, matrix)
    room = 2.0 * (circuits["end_s"] - circuits["start_s"])
    assert (circuits["size_bytes"].astype(float) <= room + 1e-9).all()


def test_a_circuit_that_stays_carries_while_others_change() -> None:
    demand = om.Demand.from_matrix(
        [[0, 5, 0, 0], [0] * 4, [2, 0, 0, 2], [0] * 4], delay_s=1.0, switching="per-circuit"
    )
    schedule = demand.schedule([[1, -1, 3, -1], [1, -1, 0, -1]], [2, 2])
    solution = om.Solution(
        problem=demand,
        schedule=schedule,
        status=om.Status.OPTIMAL,
        objective=schedule.makespan_s,
        lower_bound=schedule.makespan_s,
        proof="counting",
        method="by hand",
    )
    assert om.verify(solution).valid
    circuits = solution.to_dataframe().query("what == 'circuit'")
    assert circuits[["start_s", "size_bytes"]].astype(float).to_numpy().tolist() == [
        [1.0, 2.0],
        [1.0, 2.0],
        [3.0, 3.0],
        [4.0, 2.0],
    ]


def test_figures_on_the_screen_have_units() -> None:
    write_demand()
    call("solve", "demand.json", "-o", "s.json")
    for command in ("simulate", "verify"):
        shown = call(command, "s.json").stdout
        assert re.search(r"makespan +3 s\n", shown), shown
    assert re.search(r"objective +3 s\n", call("verify", "s.json").stdout)
    assert re.search(r"3 s +3 s ", call("compare", "demand.json", "--methods", "best").stdout)


def test_ports_that_may_be_touched_have_names() -> None:
    switch = om.IdealSwitch(3, names=("rack-9", "rack-10", "rack-11"))
    matrix = [[0.0, 0.05, 0.0], [0.05, 0.0, 0.0], [0.0, 0.0, 0.0]]
    demand = om.Demand.from_matrix(matrix, fabric=switch, delay_s=0.01)
    om.save(om.solve(demand, "solstice", seed=0), "s.json")
    words = ("play", "s.json", "--switch", "dry:", "--only")
    call(*words, "rack-9,rack-10")
    refused("the plan needs port", *words, "rack-9")
    refused("ports as 0-15,20, or their names", *words, "rack-9,rack-12")


def test_info_of_a_training_job_names_its_degrees() -> None:
    words = ("--gpus", "128", "--delay", "1ms", "-o", "job.json")
    call("generate", "rail-job", "--preset", "mixtral-8x22b", *words)
    job: Any = om.load("job.json")
    told = json.loads(call("info", "job.json", "--json").stdout)
    degrees = {
        k: n for k in ("dp", "tp", "pp", "ep", "cp") if (n := getattr(job.parallelism, k)) > 1
    }
    assert told["degrees"] == degrees and told["gpus"] == 128
    shown = ", ".join(f"{name} {size}" for name, size in told["degrees"].items())
    assert shown in call("info", "job.json").stdout


def test_info_of_a_reroute_lists_changed_circuits_by_their_chips() -> None:
    rack: Any = fill_rack(om.RackFabric())
    om.save(om.solve(replace(rack, failed_chips=(21,)), seed=0), "a.json")
    answer: Any = om.load("a.json").answer  # type: ignore[union-attr]
    rows = json.loads(call("info", "a.json", "--json").stdout)["changed_circuits"]
    assert [row["circuit"] for row in rows] == answer.changed.tolist()
    chips = answer.circuits // rack.fabric.ports_per_chip
    assert [row["after"] for row in rows] == [f"chip {a} to chip {b}" for a, b in chips.tolist()]
    assert all("chip 21" in row["before"] for row in rows)
    assert "changed circuit" in call("info", "a.json").stdout


def test_a_reroute_calls_ports_by_the_names_that_they_were_given() -> None:
    switch = om.IdealSwitch(3, names=("web", "db", "spare"))
    state = om.Reroute(switch, [["web", "db"]], spares=("spare",), failed_ports=("db",))
    solution = om.solve(state, seed=0)
    assert solution.answer.describe(switch)[-1] == "set up circuit 0: port web to port spare"
    om.save(solution, "named.json")
    (row,) = json.loads(call("info", "named.json", "--json").stdout)["changed_circuits"]
    assert row["before"] == "port web to port db" and row["after"] == "port web to port spare"


def test_flows_of_a_simulation_have_units() -> None:
    Path("u.csv").write_text("0,40\n0,0\n")
    words = ("--matrix-unit", "MB", "--rate", "100Mbit/s", "--delay", "20ms")
    call("generate", "demand", "--matrix", "u.csv", *words, "-o", "u.json")
    call("solve", "u.json", "--seed", "0", "-o", "u.schedule.json", "-q")
    assert "  0 -> 1: 40 MB, 3.22 s" in call("simulate", "u.schedule.json", "--flows").stdout
    Path("flows.csv").write_text("time,src,dst,bytes\n0.5,a,b,1000000\n")
    shown = call("simulate", "flows.csv", "--delay", "1ms", "--rate", "1MB/s", "--flows").stdout
    assert "  a -> b: 1 MB, from 500 ms to 1.501 s" in shown


def test_layers_that_do_not_split_come_with_an_example() -> None:
    """As 126 layers on 4 stages."""
    sizes = "--gpus 4 --gpus-per-server 1 --pp 4 --layers 126 --sequence 128 --delay 1ms -o j.json"
    said = call("generate", "rail-job", *RAIL, *sizes.split(), code=2)
    assert "--stage-layers), as 32,32,31,31" in " ".join(said.stderr.split())


def test_at_is_refused_with_a_packet_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_demand(packet_bytes_per_s=0.5)
    call("solve", "demand.json", "--seed", "0", "-o", "s.json", "-q")
    refused("without a packet network", "simulate", "s.json", "--at", "1s")


def test_what_is_left_at_a_time_becomes_a_demand_again() -> None:
    """Without the bytes of a port for which there is no other: `--drop-ports`."""
    Path("t.csv").write_text(",a,b,c\na,0,3,4\nb,1,0,2\nc,0,0,0\n")
    demand = ("generate", "demand", "--delay", "1ms", "--rate", "100Mbit/s")
    unit = ("--matrix-unit", "MB")
    call(*demand, *unit, "--matrix", "t.csv", "-o", "d.json")
    call("solve", "d.json", "--seed", "0", "-o", "s.json", "-q")
    shown = call("simulate", "s.json", "--at", "300ms", "-o", "rest.csv")
    solution: Any = om.load("s.json")
    (left,) = left_bytes(solution, [0.3])
    told = json.loads(call("simulate", "s.json", "--at", "300ms", "--json").stdout)
    assert told["left_bytes"] == left.tolist() and 0 < left.sum() < 10e6
    source, destination = np.argwhere(left > 0)[0].tolist()
    rest, whole = left[source, destination], solution.problem.demand_bytes[source, destination]
    amounts = f"{write_amount(rest, 'B')} of {write_amount(whole, 'B')}"
    assert f"{'abc'[source]} -> {'abc'[destination]}: {amounts}" in shown.stdout

    again = call(*demand, "--matrix", "rest.csv", "--drop-ports", "b", "-o", "e.json")
    assert "of dropped ports are not carried" in again.stderr
    problem: Any = om.load("e.json")
    kept = left.copy()
    kept[1] = kept[:, 1] = 0
    assert problem.demand_bytes == pytest.approx(kept, rel=1e-11)
    cells = [cell for line in Path("rest.csv").read_text().split() for cell in line.split(",")]
    assert all(len(cell) <= 13 for cell in cells), "no digits of rounding"
    assert problem.fabric.dead_ports == (1,) and problem.fabric.labels == ("a", "b", "c")
    refused("has to end in .csv", "simulate", "s.json", "--at", "1s", "-o", "x.png")
    none = om.Solution(
        problem=solution.problem, status=om.Status.UNKNOWN, limit=om.Limit.TIME, method="late"
    )
    om.save(none, "none.json")
    refused("status unknown: there is no schedule", "simulate", "none.json", "--at", "1s")


@pytest.mark.parametrize(
    "name", ["collective-planes", "port-sharing", "reroute", "reroute-mesh", "slice-allocation"]
)
def test_a_table_of_an_answer_without_a_timeline_is_that_of_python(name: str) -> None:
    """The same columns, with their units, and the same rows."""
    solution = answer_named(name)
    om.save(solution, "a.json")
    table = solution.to_dataframe()
    lines = list(csv.reader(call("export", "a.json", "--to", "csv").stdout.splitlines()))
    assert lines[0] == list(table.columns)
    assert [line[0] for line in lines[1:]] == [str(cell) for cell in table.iloc[:, 0]]
    call("export", "a.json", "--to", "csv", "-o", "a.csv")
    assert list(csv.reader(Path("a.csv").read_text().splitlines())) == lines
    call("export", "a.json", "--to", "csv", "-o", "a.csv", code=2)


@pytest.mark.parametrize(
    "table",
    [
        ",store-1,store-2,store-3\ngpu-1,1e9,2e9,0\ngpu-2,0,3e9,4e9\n",
        ",a,b,c,d\nc,0,1,2,3\na,1,0,2,3\n",
        "a,0,1,2\nb,1,0,2\n",
        ",a,b,c\n0,0,1,2\n1,1,0,2\n",
    ],
)
def test_names_of_a_table_that_is_not_square_are_never_dropped(table: str) -> None:
    """Its data would go to ports by their place, as from gpu-1 to itself."""
    Path("traffic.csv").write_text(table)
    options = ("--matrix", "traffic.csv", "--delay", "1ms", "--size", "5", "-o", "d.json")
    refused("each port needs a row and a column of its name", "generate", "demand", *options)
    assert not Path("d.json").exists()


def test_names_order_the_ports_of_a_labelled_matrix() -> None:
    """Rows and columns go by label; a label that is no name is refused."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0, 1], [2, 0]], ["a", "b"], ["a", "b"])
    demand = om.Demand.from_matrix(frame, names=["b", "a"], delay_s=1)
    assert demand.fabric.port_names == ("b", "a")
    assert demand.demand_bytes.tolist() == [[0, 2], [1, 0]]
    with pytest.raises(om.InputError, match="no port of the fabric is called 'a'"):
        om.Demand.from_matrix(frame, names=["x", "b"], delay_s=1)


def test_edges_whose_demand_has_another_name_are_refused() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_edge("a", "b", bytes=3e9)
    with pytest.raises(om.InputError, match="'a' - 'b': it has bytes, and its demand is expected"):
        om.Demand.from_matrix(graph, delay_s=1)
    assert om.io.from_graph(graph, "bytes")[0].tolist() == [[0, 3e9], [0, 0]]


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (["a", "a"], [[0, 1], [2, 0]], "'a' is the label of several columns"),
        (["source", "destination", "bytes"], [[0, 1, 5]], "read_traffic reads one"),
        (["src", "dst", "bytes"], [[0, 1, 5], [1, 2, 5], [2, 0, 5]], "read_traffic reads one"),
    ],
)
def test_frames_that_are_no_matrix(columns: list[str], rows: Any, message: str) -> None:
    """Three edges between numbers would be a matrix of three ports."""
    pandas = pytest.importorskip("pandas")
    with pytest.raises(om.InputError, match=message):
        om.Demand.from_matrix(pandas.DataFrame(rows, columns=columns), delay_s=1)


@pytest.mark.parametrize(
    "options",
    [("--delay", "1s"), ("--switching", "per-circuit"), ("--packet-rate", "1"), ("--flows",)],
)
def test_at_takes_the_schedule_as_it_is(options: tuple[str, ...]) -> None:
    write_demand()
    call("solve", "demand.json", "-o", "demand.schedule.json")
    command = ("simulate", "demand.schedule.json", "--at", "1s", *options)
    refused("--at takes the schedule as it is: not with --flows, nor", *command)


def test_options_that_a_rail_job_would_ignore_are_refused() -> None:
    sizes = "--gpus 4 --gpus-per-server 2 --batch 4 --sequence 128 --delay 1ms -o job.json"
    call("generate", "rail-job", *RAIL, *sizes.split())
    refused("--flows is for demands", "simulate", "job.json", "--flows")
    refused("--seed and -o are for --jitter", "simulate", "job.json", "--runs", "5")
    refused("--seed and -o are for --jitter", "simulate", "job.json", "--seed", "5")


def with_a_failure(**changes: Any) -> om.Demand:
    """Return a demand of five named ports, of which d has taken the place of b, which failed."""
    switch = om.IdealSwitch(5, names=tuple("abcde"))
    demand = om.Demand.from_matrix([[0, 3, 1], [2, 0, 1], [1, 1, 0]], switch, delay_s=1, **changes)
    return demand.with_dead_ports(["b"])


SIDES = "port,A,B\na,1A,1B\nb,4A,4B\nc,3A,3B\ne,5A,5B\n"


def test_a_port_that_failed_is_blocked_in_a_configuration() -> None:
    """And no spare where the configuration is read again."""
    om.save(om.solve(with_a_failure(), seed=0, time_limit_s=0.2), "s.json")
    call("export", "s.json", "--to", "sonic-ocs", "--slot", "0", "-o", "config.json")
    states = {
        side: row["state"]
        for side, row in json.loads(Path("config.json").read_text())["OCS_PORT"].items()
    }
    assert [side for side, state in states.items() if state != "normal"] == ["2A", "2B"]
    call("generate", "reroute", "--state", "config.json", "-o", "reroute.json")
    running: Any = om.load("reroute.json")
    assert running.failed_ports == (1,) and 1 not in running.spares

    # The failed ports of a rerouting are blocked as well.
    call("solve", "reroute.json", "-o", "after.json")
    call("export", "after.json", "--to", "sonic-ocs", "--slot", "0", "-o", "again.json")
    assert json.loads(Path("again.json").read_text())["OCS_PORT"]["2A"]["state"] == "force_blocked"

    # A patch and commands block it before they add circuits: they once left it as it was.
    call("export", "s.json", "--to", "sonic-ocs", "--slot", "1", "--from-slot", "0", "-o", "p")
    patch = json.loads(Path("p").read_text())
    blocks = [entry for entry in patch if entry["path"].startswith("/OCS_PORT/")]
    assert [(entry["op"], entry["path"]) for entry in blocks] == [
        ("add", "/OCS_PORT/2A"), ("add", "/OCS_PORT/2B")
    ]  # fmt: skip
    assert all(entry["value"]["state"] == "force_blocked" for entry in blocks)
    removals = [entry["op"] == "remove" for entry in patch]
    assert removals == sorted(removals, reverse=True)
    assert patch.index(blocks[-1]) < len(patch) - 1
    commands = call("export", "s.json", "--to", "sonic-cli").output.splitlines()
    blocking = "config ocs port state 2{} force_blocked"
    assert [line for line in commands if "state" in line] == [
        blocking.format("A"),
        blocking.format("B"),
    ]
    assert commands[0].startswith("#") and "cross-connect add" in commands[3]


def test_a_dead_port_needs_no_sides(caplog: pytest.LogCaptureFixture) -> None:
    """Where it has some, the message speaks of them, and calls no healthy port dead."""
    solution = om.solve(with_a_failure(), seed=0, time_limit_s=0.2)
    Path("sides.csv").write_text(SIDES)
    config = json.loads(exported(solution, "sonic-ocs", ports="sides.csv", slot=0))  # type: ignore[arg-type]
    assert "2A" not in config["OCS_PORT"] and config["OCS_PORT"]["4A"]["state"] == "normal"
    assert not caplog.records

    Path("sides.csv").write_text(SIDES + "d,2A,2B\n")
    exported(solution, "sonic-ocs", ports="sides.csv", slot=0)
    assert "the sides 2A and 2B of d are taken for those of a port that has failed" in caplog.text
    Path("sides.csv").write_text(SIDES.replace("c,3A,3B\n", ""))
    with pytest.raises(om.FormatError, match="port c is missing"):
        exported(solution, "sonic-ocs", ports="sides.csv", slot=0)
    Path("sides.csv").write_text(SIDES.replace("c,3A,3B", "c,3A,"))
    with pytest.raises(om.FormatError, match="port c: A and B are expected"):
        exported(solution, "sonic-ocs", ports="sides.csv", slot=0)


def test_ports_have_one_name_on_all_planes() -> None:
    """A table of names serves all planes; a wrong name is told with those that there are."""
    solution = om.solve(with_a_failure(planes=2), seed=0, time_limit_s=0.2)
    Path("sides.csv").write_text(SIDES)
    assert any(
        "plane-1" in ending for ending in exported(solution, "sonic-ocs", ports="sides.csv")
    )
    Path("sides.csv").write_text(SIDES.replace("e,", "x,"))
    with pytest.raises(om.FormatError, match="'x': a name among a, d, c, b, e, or a number"):
        exported(solution, "sonic-ocs", ports="sides.csv")


def test_a_table_of_names_is_read_with_a_configuration() -> None:
    """The same one that `export` takes."""
    om.save(om.solve(with_a_failure(), seed=0, time_limit_s=0.2), "s.json")
    Path("sides.csv").write_text(SIDES)
    call(
        "export",
        "s.json",
        "--to",
        "sonic-ocs",
        "--slot",
        "0",
        "--ports",
        "sides.csv",
        "-o",
        "c.json",
    )
    state = ("generate", "reroute", "--state", "c.json", "--port-sides", "sides.csv")
    call(*state, "--failed-ports", "c", "-o", "r.json")
    running: Any = om.load("r.json")
    assert running.fabric.port_names == ("a", "b", "c", "e")
    assert running.failed_ports == (2,)


def test_a_label_is_a_name_where_ports_are_numbers() -> None:
    """Labels are found beside numbers, spares stay, and the same table serves the answer."""
    Path("c.json").write_text(
        json.dumps({"OCS_CROSS_CONNECT": {"1-1A-1-2B": {}, "1-2A-1-1B": {}}})
    )
    table = (
        "port,A,B,label\n1,1-1A,1-1B,rack 1\n0,1-2A,1-2B,rack 0\n2,1-3A,1-3B,spare\n3,1-4A,1-4B,\n"
    )
    Path("sides.csv").write_text(table)
    state = ("generate", "reroute", "--state", "c.json", "--ports", "sides.csv", "--force")
    for failed in ("rack 1", "1"):
        call(*state, "--failed-ports", failed, "-o", "r.json")
        running: Any = om.load("r.json")
        assert running.fabric.port_names == ("rack 0", "rack 1", "spare", "3")
        assert (running.failed_ports, running.spares) == ((1,), (2, 3))
    call("solve", "r.json", "--seed", "0", "-o", "s.json")
    solution: Any = om.load("s.json")
    files: Any = exported(solution, "sonic-ocs", ports="sides.csv")
    assert "1-2A-1-3B" in str(list(files.values())[-1])

    # Labels that two ports share, or that could be numbers of ports, name nothing.
    for label in ("rack 0", "0"):
        Path("sides.csv").write_text(table.replace("rack 1", label))
        call(*state, "-o", "r.json")
        running = om.load("r.json")
        assert running.fabric.names is None


def test_a_named_port_is_no_spare_unless_it_is_told() -> None:
    """Its fibre leads to a rack, also where the rack has no circuit in this slot."""
    Path("c.json").write_text(
        json.dumps({"OCS_CROSS_CONNECT": {"1-1A-1-2B": {}, "1-2A-1-1B": {}}})
    )
    rows = "".join(f"{name},1-{k}A,1-{k}B\n" for k, name in enumerate(["a", "b", "c", "3"], 1))
    Path("sides.csv").write_text(f"port,A,B\n{rows}")
    refused("table of ports (--ports FILE)", "generate", "reroute", "--state", "c.json")
    table = ("generate", "reroute", "--state", "c.json", "--ports", "sides.csv")
    for told, spares in (((), (3,)), (("--spares", "c,3"), (2, 3)), (("--spares", "c"), (2,))):
        done = call(*table, *told, "-o", "r.json", "--force")
        assert "named ports without a circuit are no spares, unless --spares" in done.stderr
        running: Any = om.load("r.json")
        assert running.spares == spares
    refused("port 0 (a) is in use by circuit", *table, "--spares", "a")
    refused("--ports FILE: only with a config_db.json", "generate", "reroute", *table[4:])

    # The losses of these ports are read by the same table.
    losses = {
        f"1-{a}A-1-{b}B|193.1|25": {"loss_dB": str(a)} for a in range(1, 5) for b in range(1, 5)
    }
    Path("l.json").write_text(json.dumps({"OCS_FACTORY_INSERTION_LOSS": losses}))
    call(*table, "--loss", "l.json", "-o", "r.json", "--force")
    running = om.load("r.json")
    assert running.fabric.loss_db[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    call("generate", "reroute", "--rack", "--spares", "61,60", "-o", "r.json", "--force")
    running = om.load("r.json")
    assert running.spares == (60, 61)


def test_a_port_over_which_its_demands_can_go_takes_over() -> None:
    """Port c, the first free one, would lose too much from port a."""
    loss_db = np.ones((4, 4))
    loss_db[0, 2] = 9.0
    switch = om.IdealSwitch(4, names=tuple("abcd"), loss_db=loss_db, budget_db=3.0)
    demand = om.Demand.from_matrix([[0, 4], [0, 0]], switch, delay_s=1)
    after = demand.with_dead_ports(["b"])
    assert after.fabric.port_names == ("a", "d", "c", "b")
    assert om.solve(after, seed=0).status is om.Status.OPTIMAL


def test_a_start_on_another_number_of_ports_is_refused() -> None:
    write_demand()
    om.save(om.solve(with_a_failure(), seed=0, time_limit_s=0.2), "s.json")
    refused("a solution on 5 ports, not 2", "solve", "demand.json", "--start", "s.json")


CHIP = """
instances: {cell: {component: mzi2x2_2x2_phase_shifter}}
ports: {in0: "cell,o2", in1: "cell,o1", out0: "cell,o3", out1: "cell,o4"}
"""


def test_what_a_port_reaches_takes_faults_into_account() -> None:
    """As `solve` does: nothing passes a dead cell, not even from in0 to out0."""
    Path("chip.yml").write_text(CHIP)
    netlist: Any = om.read_netlist("chip.yml")
    om.save(om.Routing(om.Faulty(netlist, dead_cells=["cell"]), [0, 1]), "dead.json")
    assert call("info", "dead.json").stdout.count("reaches no port") == 2
    om.save(om.Routing(om.Faulty(netlist, dead_ports=[1]), [0, -1]), "port.json")
    shown = call("info", "port.json").stdout
    assert "reaches out0\n" in shown and "reaches no port" in shown


def test_a_dead_port_is_named_by_either_of_its_ends() -> None:
    Path("chip.yml").write_text(CHIP)
    netlist: Any = om.read_netlist("chip.yml")
    for name in ("in1", "out1", "1"):
        assert om.Faulty(netlist, dead_ports=[name]).dead_ports == (1,)


MESH = ("generate", "routing", "--rows", "4", "--cols", "4", "--ports", "8")
MATCHING = ("--matching", "1,0,5,7,6,2,4,3", "--objective", "worst-loss-db", "-o", "a.json")


def test_losses_of_all_cells_alike_count_on_a_chip() -> None:
    call(*MESH, *MATCHING, "--bar-loss-db", "5")
    problem: Any = om.load("a.json")
    mesh = om.HexMesh(4, 4, ports=8)
    fields: Any = {"objective": "worst-loss-db", "bar_loss_db": 5.0}
    told = om.Routing(mesh, [1, 0, 5, 7, 6, 2, 4, 3], **fields)
    assert problem.lower_bound() == told.lower_bound()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--objective", "total-cells"), "does not matter for --objective total-cells"),
        (("--device", "mems-crossbar"), "not with --device or --device-cells"),
    ],
)
def test_losses_that_would_be_ignored_are_refused(options: Any, told: str) -> None:
    result = call(*MESH, *MATCHING, "--cross-loss-db", "1", *options, code=2)
    assert f"--cross-loss-db: {told}" in " ".join(result.stderr.split())


def test_optics_are_those_of_the_device_that_the_problem_states() -> None:
    call(*MESH, *MATCHING, "--device", "mems-crossbar")
    call("solve", "a.json", "--seed", "0", "-o", "a.schedule.json")
    solution: Any = om.load("a.schedule.json")
    worst_db = om.measure_optics(solution).figures["worst_insertion_loss_db"]
    assert worst_db == pytest.approx(solution.objective)
    stated = om.settle_free_cells(solution.problem, solution, solution.problem.cells)
    assert np.array_equal(om.settle_free_cells(solution.problem, solution), stated)
    assert worst_db != om.measure_optics(solution, "smartlight").figures["worst_insertion_loss_db"]
    assert "optics of mems-crossbar" in call("verify", "a.schedule.json", "--optics").stdout


@pytest.mark.parametrize(
    ("method", "fields", "told"),
    [
        (
            "ring",
            {"two_way": True, "late_s": {5: 2e-3}},
            "; not for collective on ideal switch, because of its two_way; these are: best, ",
        ),
        (
            "stragglar",
            {"two_way": True, "late_s": {5: 0.0}},
            "an all-reduce around a late rank: the others reduce while they wait; not for",
        ),
    ],
)
def test_a_method_that_does_not_fit_says_why(
    method: str, fields: dict[str, Any], told: str
) -> None:
    """A newcomer who compares both needs to know which field keeps one of them away."""
    problem = om.Collective("all-reduce", 16, 256e6, alpha_s=3e-6, **fields)
    with pytest.raises(om.InputError, match=re.escape(told)):
        om.solve(problem, method)
    (row,) = om.compare_methods([problem], [method])
    assert told in str(row.reason)


def test_a_delay_of_cells_is_told_in_words() -> None:
    size = ("--rows", "4", "--cols", "4", "--ports", "8")
    result = call("generate", "all-to-all", *size, "--delay", "cells", "-o", "a.json")
    assert "delay of its cells" in result.stderr
    assert om.load("a.json").delay_s == "cells"  # type: ignore[union-attr]


def test_traffic_in_seconds_becomes_bytes_at_the_rate_of_a_circuit() -> None:
    """Of 3 ms a port, 4 ports at 12.5 GB/s have 150 MB; without a rate a second is a byte."""
    drawn = ("generate", "demand", "--model", "solstice", "--size", "4", "--delay", "1ms")
    call(*drawn, "--rate", "100Gbit/s", "-o", "rated.json")
    call(*drawn, "-o", "plain.json")
    rated: Any = om.load("rated.json")
    plain: Any = om.load("plain.json")
    assert rated.demand_bytes.sum() == pytest.approx(150e6)
    assert np.allclose(rated.demand_bytes, 12.5e9 * plain.demand_bytes)


def test_rates_are_written_as_they_are_typed() -> None:
    assert write_amount(12.5e9, "B/s") == "12.5 GB/s"
    call(*UNIFORM, "--bytes", "1MB", "--delay", "5ms", "--rate", "100Gbit/s", "-o", "d.json")
    words = ("--field", "packet_bytes_per_s", "--values", "10Gbit/s,25Gbit/s", "--time-limit", "1")
    shown = call("vary", "d.json", *words, "-o", "p.svg").stdout
    assert "1.25 GB/s" in shown and "1,250,000,000" not in shown
    ticks = re.findall(r">([0-9.,]+ [A-Z]?B/s)<", Path("p.svg").read_text("utf-8"))
    assert ticks and all(text.endswith(" GB/s") for text in ticks)


def test_groups_without_deadlines_are_not_late() -> None:
    call(*UNIFORM, "--bytes", "1MB", "--delay", "5ms", "--rate", "1GB/s", "--coflows", "2",
         "--objective", "weighted-completion-s", "-o", "groups.json")  # fmt: skip
    problem: Any = om.load("groups.json")
    assert not any(problem.deadlines_s)
    report = om.verify(om.solve(problem, seed=0, time_limit_s=1))
    assert report.ok or report.valid
    assert "groups_late" not in report.figures


def test_a_dead_port_without_a_free_one_names_both_ways_out() -> None:
    said = call(*UNIFORM, "--bytes", "1MB", "--delay", "1ms", "--dead-ports", "1", code=2).stderr
    words = " ".join(said.split())
    assert "--size" in words and "--drop-ports" in words


def test_bytes_of_ports_to_themselves_are_told() -> None:
    Path("own.csv").write_text("1,2\n3,0\n")
    said = call("generate", "demand", "--matrix", "own.csv", "--delay", "1ms", "-o", "o.json")
    assert "1 B of them from ports to themselves" in " ".join(said.stderr.split())


def test_generate_may_keep_quiet() -> None:
    """Nothing is said of what was written; a missing rate is still a warning."""
    assert "written" in call(*UNIFORM, "--delay", "1ms", "--rate", "1", "-o", "a.json").stderr
    assert call(*UNIFORM, "--delay", "1ms", "--rate", "1", "-o", "b.json", "-q").stderr == ""
    large = ("--bytes", "1GB", "-o", "c.json", "--quiet")
    assert "rate" in call(*UNIFORM, "--delay", "1ms", *large).stderr
    chip = ("generate", "device", "--rows", "2", "--cols", "2", "-o", "chip.csv")
    assert call(*chip, "-q").stderr == "" and Path("chip.csv").exists()


def test_crosstalk_is_told_in_db_too() -> None:
    """Ratios of crosstalk to signal have the signal to crosstalk in dB beside them, everywhere."""
    mesh = om.HexMesh(4, 4, ports=8)
    routing = om.Routing(mesh, [4, 3, 6, 1, 0, 7, 2, 5], objective="worst-snr-db")
    solution = om.solve(routing, seed=0)
    assert solution.objective is not None and solution.objective > 0
    decibels = f"of the signal ({-10 * np.log10(solution.objective):.2f} dB)"
    om.save(routing, "routing.json")
    om.save(solution, "s.json")
    assert decibels in solution.summary()
    for command in (("solve", "routing.json", "--seed", "0"), ("verify", "s.json")):
        assert decibels in call(*command).stdout
    assert re.search(r"worst snr +\d[\d.]+ dB\n", call("verify", "s.json").stdout)


def test_what_is_wrong_is_told_by_the_names_of_ports() -> None:
    switch = om.IdealSwitch(3, names=("rack-9", "1", "rack-11"))
    demand = om.Demand(switch, [[0, 5, 0], [0, 0, 0], [2, 0, 0]])
    om.save(om.solve(demand, seed=0), "s.json")
    tree = json.loads(Path("s.json").read_text())
    tree["schedule"]["durations_s"] = [1.0 for _ in tree["schedule"]["durations_s"]]
    Path("s.json").write_text(json.dumps(tree))
    shown = call("verify", "s.json", code=5).stdout
    assert "from port 0 (rack-9) to port 1: all demand is served" in shown
    assert "from port 2 (rack-11) to port 0 (rack-9): all demand is served" in shown


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("export", "s.json", "--format", "csv"), "Did you mean '--to FORMAT'?"),
        (("methods", "--kind", "demand"), "Did you mean '[NAME|KIND]'?"),
        (("verify", "--schedule", "s.json"), "Did you mean 'SCHEDULE...'?"),
        (("solve", "--time-limt", "3", "s.json"), "Did you mean '--time-limit'?"),
    ],
)
def test_an_option_of_another_name_is_told_by_what_help_calls_it(command: Any, told: str) -> None:
    assert told in " ".join(call(*command, code=2).stderr.split())


def test_a_format_is_likened_to_those_that_begin_so() -> None:
    write_demand()
    call("solve", "demand.json", "-o", "s.json")
    refused("'sonic': perhaps 'sonic-ocs' or 'sonic-cli'", "export", "s.json", "--to", "sonic")
    refused("'perfeto': perhaps 'perfetto'", "export", "s.json", "--to", "perfeto")


def test_figures_of_light_have_units() -> None:
    om.save(om.solve(om.Routing(om.Benes(4), [1, 0, 3, 2]), seed=0), "s.json")
    shown = call("verify", "s.json", "--optics").stdout
    assert re.search(r"largest heater +[\d.]+ mW\n", shown)
    assert re.search(r"longest delay +[\d.]+ ps\n|longest delay +[\d.]+ ns\n", shown)
    assert not re.search(r"^ +[a-z ]+ (db|mw|mj|s|m|rad)  ", shown, re.MULTILINE)


def test_a_changed_problem_is_to_be_solved_anew() -> None:
    write_demand()
    call("solve", "demand.json", "-o", "s.json")
    tree = json.loads(Path("s.json").read_text())
    tree["problem"]["delay_s"] = 2.0
    Path("s.json").write_text(json.dumps(tree))
    refused("/problem is another one than that of the answer; solve it anew", "verify", "s.json")


def test_rates_may_be_in_powers_of_1024() -> None:
    call(*UNIFORM, "--delay", "1 ms", "--rate", "450GiB/s", "-o", "a.json")
    demand: Any = om.load("a.json")
    assert demand.rate_bytes_per_s == 450 * 2**30


def test_problems_without_a_switch_say_how_large_they_are() -> None:
    job = ("--preset", "mixtral-8x22b", "--gpus", "128", "--delay", "2ms", "-o", "job.json")
    told = call("generate", "rail-job", *job).stderr
    assert "rail-job of 128 GPUs, delay 2 ms, no answer is below" in told
    told = call(
        "generate", "port-sharing", "--resources", "9", "--jobs", "2", "-o", "p.json"
    ).stderr
    assert "port-sharing of 9 resources, 2 jobs, no answer is below" in told


def test_info_names_the_ports_that_were_given_names() -> None:
    Path("traffic.csv").write_text(",rack-9,rack-10\nrack-9,0,5\nrack-10,3,0\n")
    words = ("generate", "demand", "--matrix", "traffic.csv", "--size", "12", "--delay", "1ms")
    call(*words, "--rate", "1GB/s", "-o", "demand.json")
    shown = call("info", "demand.json").stdout
    assert re.search(r"ports +12, rack-9, rack-10, 2, 3, 4, 5, 6, 7 and more\n", shown)
    call("generate", "all-to-all", "--size", "3", "-o", "plain.json")
    assert re.search(r"ports +3\n", call("info", "plain.json").stdout)
