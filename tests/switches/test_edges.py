"""What users meet at the edges: plans without slots, odd addresses, files that cannot be used."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.exports import exported
from optmatch.switches import (
    DrySwitch,
    PlayOptions,
    SwitchError,
    Watcher,
    measured_delays,
    open_switch,
    play,
)
from optmatch.switches.drivers.polatis import PolatisSwitch
from tests.helpers.command import call, put, refused
from tests.helpers.rails import small_job


def plan_without_slots() -> om.Solution:
    """Return the plan of a demand of nothing."""
    return om.solve(om.Demand(om.IdealSwitch(4), np.zeros((4, 4)), delay_s=0.01), seed=0)


def plan_without_rails() -> om.Solution:
    """Return the plan of a job whose GPUs all sit in one server."""
    return om.solve(small_job(1, 2, 1), seed=0)


@pytest.mark.parametrize("make_plan", [plan_without_slots, plan_without_rails])
def test_a_plan_without_slots_is_refused_as_such(make_plan: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    om.save(make_plan(), plan)
    config = put(tmp_path, "config_db.json", '{"OCS_CROSS_CONNECT": {}}')
    calls = {
        "there is nothing to write": ("export", plan, "--to", "sonic-ocs", "-o", tmp_path / "out"),
        "there is nothing to play": ("play", plan, "--switch", "dry:"),
        "there is nothing to compare": ("verify", plan, "--against", config),
    }
    for message, words in calls.items():
        done = call(*words, code=2)
        assert message in done.stderr, done.output
        assert str(plan) in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config_db.json", "plan.json"]


def test_commands_of_a_plan_without_slots_are_an_empty_file() -> None:
    assert exported(plan_without_slots(), "sonic-cli") == ""
    assert exported(plan_without_slots(), "polatis-scpi") == ""


def test_a_switch_with_nothing_to_do_may_be_named() -> None:
    """The second plane of a plan may have no slot; whoever names all planes need not know that."""
    demand = np.zeros((4, 4))
    demand[0, 1] = 1e5
    problem = om.Demand(
        om.IdealSwitch(4), demand, rate_bytes_per_s=1e9, delay_s=1e-4, planes=2, quantum_s=1e-4
    )
    solution = om.solve(problem, seed=0)
    lengths = [len(schedule.matchings) for schedule in solution.answer.schedules]
    assert sorted(lengths) == [0, 1]
    lines: list[str] = []
    switches = {f"plane-{plane}": DrySwitch(write=lines.append) for plane in range(2)}
    assert play(solution, switches).is_whole
    assert lines == ["add 1A-2B"]
    with pytest.raises(om.InputError, match="the plan has no switch 'plane-2'"):
        play(solution, {**switches, "plane-2": DrySwitch()})


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://:top/secret@h:1", "in a password / is written as %2F"),
        ("rediss://:top?secret@h:1", "in a password / is written as %2F"),
        ("scpi://top#secret@h:1", "in a password / is written as %2F"),
        ("redis://:top[secret@h:1", "in a password [ is written as %5B"),
        ("redis://:top/secret", "no host or no port can be read"),
        ("unix://:top/secret@/run/redis.sock", "three slashes"),
        ("ftp://:top-secret@h/x", "an address such as redis://"),
        ("ftp://:0/top-secret@h", "an address such as redis://"),
        ("redis:", "an address such as redis://"),
        ("redis://", "an address such as redis://"),
        ("unix://", "an address such as redis://"),
        ("redis://h:1/0", "the address names a database"),
        ("redis://h:1?db=4", "the address names a database"),
        ("unix:///run/redis.sock?db=4", "the address names a database"),
    ],
)
def test_addresses_that_are_misread_are_refused_without_the_password(
    url: str, message: str
) -> None:
    with pytest.raises(om.InputError, match=re.escape(message)) as caught:
        open_switch(url)
    assert "secret" not in str(caught.value) and "top" not in str(caught.value)
    assert caught.value.where == "switch"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://:top%2Fsecret%23@h:1", "h:1"),
        ("redis://user:p@ss=w@[::1]:6379/", "[::1]:6379"),
        ("unix://:secret@/run/a@b.sock", "/run/a@b.sock"),
        ("rediss://h", "h"),
    ],
)
def test_names_of_databases_have_no_password(url: str, name: str) -> None:
    pytest.importorskip("redis", reason="needs redis: pip install 'optmatch[switches]'")
    assert open_switch(url).name == name


def test_the_database_gets_the_password_as_it_is() -> None:
    pytest.importorskip("redis", reason="needs redis: pip install 'optmatch[switches]'")
    switch: Any = open_switch("redis://:a%2Fb%23c%25d@[::1]:1")
    settings = switch._config.connection_pool.connection_kwargs
    assert settings["password"] == "a/b#c%d" and settings["host"] == "::1"
    assert settings["db"] == 4 and switch._state.connection_pool.connection_kwargs["db"] == 6


def test_an_ipv6_address_stands_in_brackets_in_messages() -> None:
    with pytest.raises(SwitchError, match=re.escape("[::1]:1: cannot be reached")):
        PolatisSwitch("::1", 1, time_limit_s=0.5)


def plan_of_two_ports() -> om.Solution:
    """Return a plan of one slot with two circuits."""
    return om.solve(om.AllToAll(om.IdealSwitch(2), slot_s=0.05), seed=0)


class UnreachableSwitch(DrySwitch):
    """A switch that never answers; each question would take as long as a driver is patient."""

    def __init__(self) -> None:
        super().__init__(write=lambda line: None)
        self.n_questions = 0

    def claim(self, owner: str) -> None:
        """Give up in the end."""
        self.n_questions += 1
        raise SwitchError("dry: cannot be reached")

    def release(self, owner: str) -> None:
        """Give up in the end."""
        self.claim(owner)


def test_a_switch_that_is_not_there_is_asked_once() -> None:
    """A claim that was never had is not given up: that would double the wait for the error."""
    switch = UnreachableSwitch()
    with pytest.raises(SwitchError, match="cannot be reached"):
        play(plan_of_two_ports(), switch)
    assert switch.n_questions == 1

    switch = UnreachableSwitch()
    state = om.Reroute(om.IdealSwitch(4), [[0, 1]], spares=(2, 3))
    watcher = Watcher(om.Rerouter(state), switch, apply=True)
    with pytest.raises(SwitchError, match="cannot be reached"):
        watcher.run_until(threading.Event())
    assert switch.n_questions == 1


@pytest.mark.parametrize("name", ["missing/folder/journal.jsonl", ""])
def test_a_journal_that_cannot_be_written_is_bad_input(name: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    om.save(plan_of_two_ports(), plan)
    journal = str(tmp_path / name) if name else ""
    done = call("play", plan, "--switch", "dry:", "--journal", journal, code=2)
    assert "add" not in done.stdout
    assert ("cannot be written" if name else "the name of a file is expected") in done.stderr


def test_a_journal_of_lists_in_lists_is_refused(tmp_path: Path) -> None:
    journal = put(
        tmp_path, "journal.jsonl", '{"format": "optmatch/play/1"}\n' + "[" * 200_000 + "\n"
    )
    with pytest.raises(om.FormatError, match="not JSON") as caught:
        measured_delays(journal)
    assert caught.value.where == "line 2"


def test_a_journal_with_a_circuit_that_is_none_is_named(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    solution = plan_of_two_ports()
    play(solution, DrySwitch(write=lambda line: None), PlayOptions(journal=journal))
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for entry in lines:
        if entry.get("event") == "before":
            entry["circuits"] = ["1A-1A"]
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    with pytest.raises(om.InputError, match="'1A-1A'") as caught:
        play(solution, DrySwitch(), PlayOptions(journal=journal, resume=True))
    assert caught.value.path == str(journal)


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--to", "sonic-ocs", "--slot", "0", "--from-slot", "9" * 5000),
        ("play", "--switch", "dry:", "--only", "9" * 5000),
        ("play", "--switch", "dry:", "--only", "0-" + "9" * 5000),
    ],
)
def test_numbers_of_thousands_of_digits_are_wrong_calls(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    om.save(plan_of_two_ports(), plan)
    command, *options = words
    done = call(command, plan, *options, code=2)
    assert len(done.stderr) < 400, done.output


def test_a_plan_from_stdin_is_not_played_step_by_step(tmp_path: Path) -> None:
    """Enter would have to come from the same place, which is at its end by then."""
    plan = tmp_path / "plan.json"
    om.save(plan_of_two_ports(), plan)
    refused(
        "--step: not with a plan from stdin",
        "play",
        "-",
        "--switch",
        "dry:",
        "--step",
        input=plan.read_text(),
    )


@pytest.mark.parametrize("name", ["-", ""])
def test_the_files_of_a_watch_and_a_journal_have_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file called - is left behind by those who think of stdout."""
    monkeypatch.chdir(tmp_path)
    om.save(om.Reroute(om.IdealSwitch(4), [[0, 1]], spares=(2, 3)), "state.json")
    om.save(plan_of_two_ports(), "plan.json")
    refused(
        "the name of files is expected",
        "watch",
        name,
        "--begin",
        "state.json",
        "--switch",
        "dry:",
        "--for",
        "0.1",
    )
    refused(
        "the name of a file is expected",
        "play",
        "plan.json",
        "--switch",
        "dry:",
        "--journal",
        name,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "state.json"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--switch", "x=dry:"), "the plan has no switch 'x'"),
        (
            ("--switch", "dry:", "--ports", "ports.csv"),
            "4 ports are needed, and the last 2 of them have no line",
        ),
    ],
)
def test_a_watch_that_cannot_begin_leaves_no_files(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    om.save(om.Reroute(om.IdealSwitch(4), [[0, 1]], spares=(2, 3)), "state.json")
    Path("ports.csv").write_text("port,A,B\n0,5A,5B\n1,9A,9B\n")
    refused(message, "watch", "pool", "--begin", "state.json", "--for", "0.1", *options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ports.csv", "state.json"]


def test_a_configuration_is_compared_by_the_names_of_a_table(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    om.save(plan_of_two_ports(), plan)
    table = put(tmp_path, "ports.csv", "port,A,B\n0,5A,5B\n1,9A,9B\n")
    config = put(
        tmp_path,
        "config_db.json",
        json.dumps({"OCS_CROSS_CONNECT": {"5A-9B": {}, "9A-5B": {}, "1A-1B": {}}}),
    )
    done = call("verify", plan, "--against", config, "--ports", table)
    assert "holds slot 0 of switch" in done.output
    done = call("verify", plan, "--against", config, code=5)
    assert "missing: 1A-2B" in done.output
    done = call("verify", "-", "--against", config, "--ports", table, input=plan.read_text())
    assert "holds slot 0 of switch" in done.output
    refused("--ports, --switch: only with --against", "verify", plan, "--ports", table)
