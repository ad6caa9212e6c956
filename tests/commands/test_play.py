"""`optmatch play` on a rehearsal, and on a stand-in of a SONiC switch."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import optmatch as om
from optmatch.control.reroutes.records import RecordFile
from optmatch.switches import SonicSwitch
from tests.helpers.command import call, process, refused, start
from tests.helpers.sonic_agent import needs_redis, sonic_switch
from tests.switches.test_watch import ring_state


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    solution = om.solve(om.AllToAll(om.IdealSwitch(4), slot_s=0.02), seed=0)
    path = tmp_path / "plan.json"
    om.save(solution, path)
    return path


def test_a_rehearsal_prints_what_would_be_sent(plan: Path) -> None:
    done = call("play", plan, "--switch", "dry:")
    assert "add 1A-4B" in done.output and "played" in done.output


def test_a_rehearsal_of_several_switches_says_which(tmp_path: Path) -> None:
    demand = om.Demand.from_matrix([[0, 0.4], [0.2, 0]], delay_s=0.01, planes=2)
    om.save(om.solve(demand, seed=0, time_limit_s=0.5), tmp_path / "planes.json")
    switches = ["--switch", "plane-0=dry:", "--switch", "plane-1=dry:"]
    done = call("play", tmp_path / "planes.json", *switches)
    for name in ("plane-0", "plane-1"):
        assert f"{name}: add 1A-2B" in done.output


def test_each_slot_when_told(plan: Path) -> None:
    done = process("play", plan, "--switch", "dry:", "--step", "--json", given="\n\n")
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["whole"] is True and told["moments"] == 3
    done = process("play", plan, "--switch", "dry:", "--step", given="\n")
    assert done.returncode == 130 and "stopped" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--switch", "nowhere"], "an address such as redis://"),
        (["--switch", "dry:", "--resume"], "--resume: only with --journal"),
        (["--switch", "dry:", "--only", "1-x"], "ports as 0-15,20"),
        (["--switch", "dry:", "--only", "3-1"], "the last port of a range is below its first"),
        (["--switch", "dry:", "--only", "0-2"], "the plan needs port 3"),
        (["--switch", "a=dry:", "--switch", "a=dry:"], "a name of its own"),
        (["--switch", "other=dry:"], "no switch is given for 'switch'"),
        (["--switch", "redis://127.0.0.1:1"], "cannot be reached"),
        (["--switch", "dry:", "--own-delay", "1"], "lasts 0.02 s, less than the 1 s"),
    ],
)
def test_wrong_calls(
    plan: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optmatch.switches.drivers import sonic

    monkeypatch.setattr(sonic, "PATIENCE_S", 0.2)
    done = call("play", plan, *options, code=None)
    assert done.exit_code in (1, 2) and message in done.output


@pytest.mark.slow
@needs_redis
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_play_is_resumed(plan: Path, tmp_path: Path, number: signal.Signals) -> None:
    """After a signal the switch holds a whole slot; after a kill, once it was resumed."""
    journal = tmp_path / "play.jsonl"
    command = ["play", str(plan), "--journal", str(journal), "--loop"]
    with sonic_switch(tmp_path, 4, delay_s=0.005) as (server, agent):
        child = start(*command, "--switch", server.url)
        give_up_s = time.monotonic() + 60
        while not journal.exists() or journal.read_text().count('"tuned"') < 4:
            assert time.monotonic() < give_up_s and child.poll() is None
            time.sleep(0.01)
        child.send_signal(number)
        _, errors = child.communicate(timeout=30)
        codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
        assert child.returncode == codes[number], errors
        sonic = SonicSwitch(server.url)
        if number != signal.SIGKILL:
            assert len(sonic.read().circuits) == 4
        else:
            agent.state.delete("OPTMATCH_PLAYER|claim")  # it would end by itself in 30 s
        resumed = [*command[:-1], "--resume", "--restore", "--switch", server.url]
        call(*resumed)
        assert sonic.read().circuits == () and agent.violations == []


# `optmatch watch` on a rehearsal.


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "running.json"
    om.save(ring_state(6, 4), path)
    return path


def test_differences_are_told_or_mended(problem: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = ["watch", state, "--switch", "dry:", "--for", "100ms"]
    refused("--begin PROBLEM says what runs", *command)
    done = call(*command, "--begin", problem)
    assert "differs: dry: 0 circuits are there" in done.output
    done = call(*command, "--apply", "--json")
    told = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert [event["what"] for event in told] == ["mended"]
    assert done.output.count("add ") == 4


def test_a_problem_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    om.save(om.AllToAll(om.IdealSwitch(4)), path)
    refused(
        "a Reroute is expected", "watch", tmp_path / "state", "--switch", "dry:", "--begin", path
    )


def test_what_no_watch_can_begin_with_leaves_no_state(tmp_path: Path) -> None:
    """The message names the file, and the next start is not blocked."""
    state, failed, running = tmp_path / "state", tmp_path / "f.json", tmp_path / "running.json"
    om.save(replace(ring_state(6, 4), failed_ports=(0,)), failed)
    om.save(ring_state(6, 4), running)
    command = ("watch", state, "--switch", "dry:", "--for", "50ms", "--begin")
    refused(f"{failed}: circuit 0 has no light in this state: ", *command, failed)
    assert not state.exists()
    assert "differs" in call(*command, running).output


def test_an_empty_state_counts_as_not_there(problem: Path, tmp_path: Path) -> None:
    """One without a byte, and one whose process ended before it had written a record."""
    command = ("watch", "--switch", "dry:", "--for", "50ms")
    for name in ("bytes", "records"):
        state = tmp_path / name
        state.touch()
        if name == "records":
            RecordFile(state).close()
            assert state.stat().st_size > 0
        refused("is not there, or empty: --begin PROBLEM", *command, state)
        assert "differs" in call(*command, state, "--begin", problem).output

        # Afterwards the state is there, and nobody reads the problem again.
        assert "differs" in call(*command, state, "--begin", tmp_path / "gone.json").output


def test_delays_of_a_rehearsal_are_told_as_such(tmp_path: Path) -> None:
    journal = tmp_path / "jr"
    demand = om.Demand.from_matrix([[0, 0.1], [0.2, 0]], delay_s=0.001)
    om.save(om.solve(demand, seed=0), tmp_path / "p")
    call("play", tmp_path / "p", "--switch", "dry:", "--journal", journal)
    model = ("--model", "uniform", "--size", "4", "--delay", f"measured:p99:{journal}")
    generate = ("generate", "demand", *model, "-o", tmp_path / "d.json", "--force")
    told = f"{journal}: the journal of a rehearsal (dry:)"
    assert told in call(*generate).output
    journal.write_text(journal.read_text().replace('["dry"]', '["10.0.0.7:6379"]'))
    assert "(dry:)" not in call(*generate).output
