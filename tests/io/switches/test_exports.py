"""Answers as files for switches, replayed by a reader of the tests' own and by jsonpatch."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonpatch
import numpy as np
import pytest

import optmatch as om
from optmatch.io.exports import exported
from optmatch.io.switches.circuits import (
    CrossConnect,
    PortTable,
    difference_between,
    read_port_tables,
    sort_circuits,
)
from optmatch.io.switches.plans import PlannedSwitch, list_planned_switches, rack_nodes
from optmatch.io.switches.polatis import read_lists, write_lists
from optmatch.io.switches.sonic import command_lines, read_config
from optmatch.model import FormatError, InputError
from tests.helpers.answers import PROBLEMS, answer_named
from tests.helpers.command import call, put

WITHOUT_CIRCUITS = ("port-sharing",)
"""Kinds that no format of switches takes."""

WITH_CIRCUITS = [name for name in PROBLEMS if name not in WITHOUT_CIRCUITS]


def files_of(solution: om.Solution, to: str, **options: Any) -> dict[str, str]:
    """Return the contents of an export by the endings of its files."""
    content = exported(solution, to, **options)
    return {"": content} if isinstance(content, str) else dict(content)  # type: ignore[arg-type]


def expected_circuits(matching: np.ndarray[Any, Any]) -> set[str]:
    """Name the circuits of a matching as the documents of SONiC do."""
    return {f"{s + 1}A-{d + 1}B" for s, d in enumerate(matching.tolist()) if d >= 0}


def replay_patch(tree: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply a patch step by step; no side is in two circuits at any moment."""
    operations = [step["op"] for step in patch]
    assert operations == sorted(operations, reverse=True)  # "remove" before "add"
    for step in patch:
        tree = jsonpatch.apply_patch(tree, [step])
        sides = [side for row in tree["OCS_CROSS_CONNECT"].values() for side in row.values()]
        assert len(set(sides)) == len(sides)
    return tree


def state_files(switch: PlannedSwitch, files: dict[str, str], state: int, end: str) -> str:
    """Return the content for a state of a switch, whatever parts its file's name has."""
    for place in (f".{switch.file_name}.slot-{state:03}", f".{switch.file_name}", ""):
        if place + end in files:
            return files[place + end]
    return files.get(f".slot-{state:03}{end}") or files[""]


def replay_exports(solution: om.Solution) -> int:
    """Replay configurations and patches of all states; return how many circuits there are."""
    configs = files_of(solution, "sonic-ocs")
    patches = files_of(solution, "sonic-ocs", from_slot="previous")
    n_circuits = 0
    for switch in list_planned_switches(solution):
        tree: dict[str, Any] = {"OCS_CROSS_CONNECT": {}, "OCS_PORT": {}}
        for state, matching in enumerate(switch.matchings):
            config = json.loads(state_files(switch, configs, state, ".json"))
            patch = json.loads(state_files(switch, patches, state, ".patch.json"))
            tree = replay_patch(tree, patch)
            wanted = expected_circuits(matching)
            assert config["OCS_CROSS_CONNECT"].keys() == wanted == tree["OCS_CROSS_CONNECT"].keys()
            for key, row in config["OCS_CROSS_CONNECT"].items():
                assert key == f"{row['a_side']}-{row['b_side']}"
            n_circuits += len(wanted)
    return n_circuits


@pytest.mark.parametrize("name", WITH_CIRCUITS)
def test_configs_and_patches_lead_to_the_same_circuits(name: str) -> None:
    assert replay_exports(answer_named(name))


def run_commands(text: str) -> list[set[str]]:
    """Carry out commands of SONiC's command line; return the circuits after each slot."""
    circuits: set[str] = set()
    states = []
    for line in text.splitlines():
        if line.startswith("#"):
            states.append(set(circuits))
            continue
        words = line.split()
        if words[:4] == ["config", "ocs", "port", "state"]:
            assert words[5:] == ["force_blocked"]
            assert not any(words[4] in circuit.split("-") for circuit in circuits)
            continue
        assert words[:3] == ["config", "ocs", "cross-connect"]
        for part in words[4].split(","):
            for circuit in spread(part):
                if words[3] == "delete":
                    circuits.remove(circuit)
                else:
                    assert words[3] == "add" and words[5] == "safe"
                    used = {side for other in circuits for side in other.split("-")}
                    assert not used & set(circuit.split("-"))
                    circuits.add(circuit)
    return [*states[1:], circuits]


def spread(part: str) -> list[str]:
    """Spell a range of circuits out."""
    if ".." not in part:
        return [part]
    match = re.fullmatch(r"(\d+)A\.\.(\d+)A-(\d+)B\.\.(\d+)B", part)
    assert match
    first_a, last_a, first_b, last_b = map(int, match.groups())
    assert last_a - first_a == last_b - first_b > 0
    return [f"{first_a + k}A-{first_b + k}B" for k in range(last_a - first_a + 1)]


@pytest.mark.parametrize("name", WITH_CIRCUITS)
def test_commands_lead_to_the_same_circuits(name: str) -> None:
    solution = answer_named(name)
    sonic = files_of(solution, "sonic-cli")
    polatis = files_of(solution, "polatis-scpi")
    for switch in list_planned_switches(solution):
        wanted = [expected_circuits(matching) for matching in switch.matchings]
        ending = f".{switch.file_name}.txt"
        assert run_commands(sonic.get(ending, sonic.get("", ""))) == wanted
        n_ports = switch.matchings.shape[1]
        assert run_scpi(polatis.get(ending, polatis.get("", "")), n_ports) == wanted


def run_scpi(text: str, n_ports: int) -> list[set[str]]:
    """Carry out SCPI commands of a Polatis switch; return the circuits after each slot."""
    out_of: dict[str, str] = {}
    states = []
    for line in text.splitlines():
        if line.startswith("#"):
            states.append(dict(out_of))
            continue
        match = re.fullmatch(r":oxc:swit:conn:(add|sub) \(@([\d,]+)\),\(@([\d,]+)\)", line)
        assert match
        for entry, exit_ in zip(match[2].split(","), match[3].split(","), strict=True):
            assert 1 <= int(entry) <= n_ports < int(exit_) <= 2 * n_ports
            if match[1] == "sub":
                assert out_of.pop(entry) == exit_
            else:
                assert entry not in out_of and exit_ not in out_of.values()
                out_of[entry] = exit_
    return [
        {f"{entry}A-{int(exit_) - n_ports}B" for entry, exit_ in state.items()}
        for state in [*states[1:], out_of]
    ]


def test_slots_are_chosen() -> None:
    solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    matchings = solution.schedule.matchings
    config = json.loads(files_of(solution, "sonic-ocs", slot=2)[""])
    assert config["OCS_CROSS_CONNECT"].keys() == expected_circuits(matchings[2])
    patch = json.loads(files_of(solution, "sonic-ocs", slot=2, from_slot=0)[""])
    tree: dict[str, Any] = {
        "OCS_CROSS_CONNECT": {name: {} for name in expected_circuits(matchings[0])}
    }
    after = jsonpatch.apply_patch(tree, patch)
    assert after["OCS_CROSS_CONNECT"].keys() == expected_circuits(matchings[2])
    with pytest.raises(om.InputError, match=r"slot 3: switch has slots 0 \.\. 2"):
        files_of(solution, "sonic-ocs", slot=3)
    with pytest.raises(om.InputError, match="from_slot 7"):
        files_of(solution, "sonic-ocs", slot=0, from_slot=7)
    with pytest.raises(om.InputError, match="slot: not for this format, only for sonic-ocs"):
        files_of(solution, "timeline", slot=0)


def test_commands_of_one_slot() -> None:
    solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    matchings = solution.schedule.matchings
    before, wanted = (expected_circuits(matchings[slot]) for slot in (0, 2))

    # Alone, a slot is set on a dark switch.
    text = files_of(solution, "sonic-cli", slot=2)[""]
    assert text.startswith("# switch, slot 2, at 2 s, from a dark switch\n")
    assert run_commands(text) == [wanted]
    assert run_scpi(files_of(solution, "polatis-scpi", slot=2)[""], 4) == [wanted]
    first = files_of(solution, "sonic-cli", slot=0, from_slot="previous")[""]
    assert run_commands(first) == [before]

    # From another slot the commands are those of the difference.
    text = files_of(solution, "sonic-cli", slot=2, from_slot=0)[""]
    change = difference_between(
        PortTable.numbered(4).circuits_of(matchings[0]),
        PortTable.numbered(4).circuits_of(matchings[2]),
    )
    assert text.splitlines() == [
        "# switch, slot 2, at 2 s, from slot 0",
        *command_lines(change),
    ]
    previous = files_of(solution, "polatis-scpi", slot=2, from_slot="previous")[""]
    whole = files_of(solution, "polatis-scpi")[""]
    assert previous.splitlines()[1:] == whole.splitlines()[-2:]

    assert files_of(solution, "polatis-scpi", from_slot="previous")[""] == whole
    with pytest.raises(om.InputError, match="from_slot 0: only with a slot"):
        files_of(solution, "sonic-cli", from_slot=0)
    with pytest.raises(om.InputError, match=r"slot 3: switch has slots 0 \.\. 2"):
        files_of(solution, "polatis-scpi", slot=3)


def test_names_of_ports_come_from_a_table(tmp_path: Path) -> None:
    table = put(tmp_path, "names.csv", "port,A,B,label\n0,1-5A,1-5B,host a\n1,2-1A,2-2B,host b\n")
    solution = om.solve(om.Routing(om.IdealSwitch(2), [1, 0]), seed=0)
    config = json.loads(files_of(solution, "sonic-ocs", ports=table)[""])
    assert list(config["OCS_CROSS_CONNECT"]) == ["1-5A-2-2B", "2-1A-1-5B"]
    assert config["OCS_PORT"]["2-2B"] == {"label": "host b", "state": "normal"}
    path = put(tmp_path, "config_db.json", json.dumps({"DEVICE_METADATA": {}, **config}))
    assert read_config(path).circuits == read_port_tables(table)[""].circuits_of([1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a line with the names of the columns is expected"),
        ("port,A,B\n", "a line of names and a line for each port"),
        ("port,A\n0,1A\n", "line 1: column 'B' is missing"),
        ("port,A,B,C\n", "line 1: column 'C'"),
        ("port,A,A,B\n0,1A,1A,1B\n", "line 1: column 'A'"),
        ("port,A,B\n0,1A\n", "line 2: 2 entries, 3 names"),
        ("port,A,B\nx,1A,1B\n", "line 2: port = 'x'"),
        ("port,A,B\n0,1A,1B\n0,2A,2B\n", "line 3: port 0 is there twice"),
        ("port,A,B\n1,1A,1B\n", "port 0 is missing"),
        ("port,A,B\n0,1B,1A\n", "port 0, A = '1B'"),
        ("port,A,B\n0,1A,1B\n1,1A,2B\n", "side 1A belongs to port 0 and to port 1"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = put(tmp_path, "names.csv", text)
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        read_port_tables(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "a configuration of a switch"),
        ({"PORT": {}}, "a configuration of a switch"),
        ({"OCS_CROSS_CONNECT": []}, "/OCS_CROSS_CONNECT: []: an object is expected"),
        ({"OCS_CROSS_CONNECT": {"1A-1A": {}}}, "'1A-1A': an A side and a B side"),
        ({"OCS_CROSS_CONNECT": {"1A-2B": []}}, "/OCS_CROSS_CONNECT/1A-2B: an object"),
        ({"OCS_CROSS_CONNECT": {"1A-2B": {"a_side": "3A"}}}, "a_side = '3A': the key says 1A"),
        (
            {"OCS_CROSS_CONNECT": {"1A-2B": {}, "1A-3B": {}}},
            "side 1A is in two circuits, 1A-2B and 1A-3B",
        ),
        ({"OCS_PORT": {"x": {}}}, "/OCS_PORT/x: a side such as 1A"),
    ],
)
def test_wrong_configurations_are_refused(tmp_path: Path, tree: Any, message: str) -> None:
    path = put(tmp_path, "config_db.json", json.dumps(tree))
    with pytest.raises(FormatError, match=re.escape(message)):
        read_config(path)


def test_both_spellings_of_the_state_of_a_port_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config_db.json"
    rows = {"1A": {"state": "force_blocked"}, "1B": {"config_status": "normal"}, "2A": {}}
    path.write_text(json.dumps({"OCS_PORT": rows}))
    states = read_config(path).state_of_side
    assert states == {"1A": "force_blocked", "1B": "normal", "2A": "normal"}


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "(@1,2)",
        "(@1,2),(@5)",
        "(@1),(@1)",
        "(@9),(@5)",
        "(@1 2),(@5 6)",
        f"(@{'1' * 5000}),(@5)",
    ],
)
def test_wrong_answers_of_polatis_switches_are_refused(answer: str) -> None:
    with pytest.raises(om.InputError, match="answer"):
        read_lists(answer, 4)


def test_an_empty_polatis_switch() -> None:
    assert read_lists("(@),(@)", 4) == ()
    assert read_lists("(@4),(@5)", 4) == (CrossConnect("4A", "1B"),)


def test_a_configuration_is_compared_with_a_plan(tmp_path: Path) -> None:
    solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    plan = tmp_path / "plan.json"
    om.save(solution, plan)
    config = put(tmp_path, "config_db.json", files_of(solution, "sonic-ocs", slot=1)[""])
    done = call("verify", plan, "--against", config)
    assert "holds slot 1 of switch" in done.output

    # A foreign circuit at other ports does not count; one on our port does.
    tree = json.loads(config.read_text())
    tree["OCS_CROSS_CONNECT"]["9A-9B"] = {}
    config.write_text(json.dumps(tree))
    call("verify", plan, "--against", config)
    removed = next(iter(tree["OCS_CROSS_CONNECT"]))
    del tree["OCS_CROSS_CONNECT"][removed]
    config.write_text(json.dumps(tree))
    done = call("verify", plan, "--against", config, code=5)
    assert "is nearest to slot 1" in done.output and f"missing: {removed}" in done.output


def test_a_configuration_is_compared_with_the_switch_that_it_is_of(tmp_path: Path) -> None:
    """Both planes hold the same circuits at other times: the file does not say which one it is."""
    demand = np.ones((4, 4)) - np.eye(4)
    problem = om.Demand.from_matrix(demand, delay_s=0.1, planes=2)
    solution = om.solve(problem, seed=0)
    om.save(solution, tmp_path / "plan.json")
    files = files_of(solution, "sonic-ocs")
    for plane in ("plane-0", "plane-1"):
        config = put(tmp_path, f"{plane}.json", files[f".{plane}.slot-000.json"])
        for name in (plane, plane.replace("-", " ")):
            done = call("verify", tmp_path / "plan.json", "--against", config, "--switch", name)
            assert f"holds slot 0 of {plane.replace('-', ' ')}" in done.output
        other = "plane-1" if plane == "plane-0" else "plane-0"
        words = ("verify", tmp_path / "plan.json", "--against", config, "--switch")
        assert f"of {other.replace('-', ' ')}" in call(*words, other, code=None).output
        assert "plane-0, plane-1" in call(*words, "plane-2", code=2).stderr


def test_a_collective_without_circuits_is_refused_by_name() -> None:
    """Its steps are given, so that no circuits of ours carry them."""
    problem = om.Collective("all-gather", 3, 3.0, steps=[[0, 1.0], [1, 1.0]], planes=1)
    solution = om.solve(problem, seed=0)
    with pytest.raises(InputError, match="neither a schedule nor a plan of rails"):
        exported(solution, "sonic-ocs")


@pytest.mark.parametrize(("limit", "n_lines"), [(10, 2), (11, 1)])
def test_commands_are_as_long_as_a_line_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, limit: int, n_lines: int
) -> None:
    """Two names of five letters and a comma have eleven."""
    monkeypatch.setattr("optmatch.io.switches.sonic._MOST_LETTERS_OF_A_COMMAND", limit)
    circuits = (CrossConnect("1A", "3B"), CrossConnect("5A", "9B"))
    assert len(command_lines(difference_between((), circuits))) == n_lines


def test_the_fibres_of_an_inter_rack_switch_are_its_ports_in_their_order() -> None:
    """No chip is at an inter-rack switch, so its first port has the first fibre that arrives."""
    pod = om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=11, joined=True, through=False)
    nodes = rack_nodes(pod)
    for number, labels in enumerate(nodes.label_nodes().values()):
        ends = {True: nodes.head_of_fibre, False: nodes.tail_of_fibre}
        for is_input, node_of_fibre in ends.items():
            fibres = np.flatnonzero(node_of_fibre == pod.n_servers + number).tolist()
            parts = [nodes.part_at(number, k, is_input=is_input) for k in range(len(labels))]
            assert parts == [("fibre", fibre) for fibre in fibres]


def test_failed_ports_of_chips_are_blocked_at_their_servers() -> None:
    rack = om.RackFabric()
    state = om.fill_rack(rack)
    per_server = rack.chips_per_server * rack.ports_per_chip
    failed = state.spares[0] * rack.ports_per_chip + 1
    problem = replace(state, failed_ports=(failed,))
    solution = om.solve(problem, seed=0)
    blocked = {
        name: [
            side for side, row in json.loads(text)["OCS_PORT"].items() if "force" in row["state"]
        ]
        for name, text in files_of(solution, "sonic-ocs").items()
    }
    server, place = divmod(failed, per_server)
    sides = [f"{place + 1}A", f"{place + 1}B"]
    for name, found in blocked.items():
        assert found == (sides if f".server-{server}." in name else []), name


def test_a_failed_port_is_blocked_once_it_has_no_circuit() -> None:
    """The configuration of the state before once blocked the port and had its circuit, too."""
    switch = om.IdealSwitch(4)
    problem = om.Reroute(switch, [[0, 1]], spares=(2, 3), failed_ports=(1,))
    texts = files_of(om.solve(problem, seed=0), "sonic-ocs")
    configs = [json.loads(text) for _, text in sorted(texts.items())]
    has_circuit = [any("2B" in name for name in tree["OCS_CROSS_CONNECT"]) for tree in configs]
    is_blocked = [tree["OCS_PORT"]["2B"]["state"] == "force_blocked" for tree in configs]
    assert has_circuit[0] and is_blocked == [not held for held in has_circuit]


def test_commands_name_circuits_of_modules() -> None:
    circuits = (CrossConnect("1-1A", "1-5B"), CrossConnect("2-2A", "1-6B"))
    (line,) = command_lines(difference_between((), circuits))
    assert line == "config ocs cross-connect add 1-1A-1-5B,2-2A-1-6B safe"


def test_a_single_switch_is_not_named_in_its_files() -> None:
    solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    assert sorted(files_of(solution, "sonic-ocs")) == [f".slot-00{k}.json" for k in range(3)]


def test_each_connection_of_a_circuit_leads_from_a_part_of_it_to_the_next() -> None:
    """In a rack a circuit goes from a chip's port over its fibres to a chip's port."""
    state = om.fill_rack(om.RackFabric())
    nodes = rack_nodes(state.fabric)
    for (source, destination), route in zip(state.circuits.tolist(), state.routes, strict=True):
        parts = [("port", source), *(("fibre", fibre) for fibre in route), ("port", destination)]
        ways = [
            (nodes.part_at(node, entry, is_input=True), nodes.part_at(node, exit_, is_input=False))
            for node, entry, exit_ in nodes.connections_of(source, destination, route)
        ]
        assert ways == list(pairwise(parts))


@pytest.mark.parametrize("side", ["0A", "5A", "1-1A", "A"])
def test_sides_that_a_polatis_switch_does_not_have(side: str) -> None:
    """It has sides 1 to 4, and no modules."""
    assert write_lists([CrossConnect("4A", "1B")], 4) == "(@4),(@5)"
    with pytest.raises(InputError, match=re.escape("this switch has sides 1 .. 4")):
        write_lists([CrossConnect(side, "2B")], 4)


@pytest.mark.parametrize("wrong", [("1A", "2B"), CrossConnect("1A", 2), CrossConnect(None, "2B")])  # type: ignore[arg-type]
def test_what_is_no_circuit_is_refused_by_its_place(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"before\[1\] = .*: a CrossConnect is expected"):
        difference_between([CrossConnect("1A", "1B"), wrong], [])


def test_numbers_of_ports_have_six_digits_at_most(tmp_path: Path) -> None:
    path = put(tmp_path, "names.csv", "port,A,B\n000000,1A,1B\n000001,2A,2B\n")
    assert read_port_tables(path)[""].n_ports == 2
    path.write_text("port,A,B\n0000000,1A,1B\n")
    with pytest.raises(FormatError, match="port = '0000000'"):
        read_port_tables(path)


@pytest.mark.parametrize("matching", [[1, 0, 3], [-1, -1, 3], [1, 0, -1, -1]])
def test_a_matching_of_more_ports_than_the_table_has_is_refused(matching: list[int]) -> None:
    with pytest.raises(InputError, match=r"matching: ports are 0 \.\. 2"):
        PortTable.numbered(3).circuits_of(matching)


def test_sides_of_another_form_come_behind_all_others_by_their_names() -> None:
    """A driver of somebody else may name its ports in another way."""
    circuits = [CrossConnect(side, "1B") for side in ("y", "x", "999999-1A", "10A", "2A")]
    sides = [circuit.a_side for circuit in sort_circuits(circuits)]
    assert sides == ["2A", "10A", "999999-1A", "x", "y"]
