"""Plans played on a stand-in of a SONiC switch, over a real database."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.switches import (
    CrossConnect,
    Difference,
    DrySwitch,
    PlayOptions,
    SonicSwitch,
    SwitchError,
    measured_delays,
    open_switch,
    play,
)
from optmatch.switches.protocol import Tuning, own_circuits
from tests.helpers.command import put
from tests.helpers.sonic_agent import RedisServer, SonicAgent, needs_redis, sonic_switch

pytestmark = [pytest.mark.slow, needs_redis]


def schedule_of(matchings: Any, **changes: Any) -> om.Solution:
    """Return an all-to-all answer of an ideal switch with these slots, held for 10 ms each."""
    n_ports = len(matchings[0])
    durations_s = np.full(len(matchings), 0.01)
    schedule = om.Schedule(matchings=matchings, durations_s=durations_s, delay_s=0.01, **changes)
    n_slots = np.zeros((n_ports, n_ports))
    for matching in matchings:
        for source, destination in enumerate(matching):
            if destination >= 0:
                n_slots[source, destination] += 1

    # A sum of several times 0.01 differs from the decimal number, which the verifier takes.
    problem = om.Demand(om.IdealSwitch(n_ports), n_slots / 100, delay_s=0.01)
    return om.Solution(
        problem=problem,
        schedule=schedule,
        status=om.Status.FEASIBLE,
        limit=om.Limit.EXHAUSTED,
        objective=float(schedule.makespan_s),
        lower_bound=problem.lower_bound(),
        method="best",
    )


def shifts(n_ports: int, count: int) -> list[list[int]]:
    """Return matchings that are cyclic shifts."""
    return [[(p + 1 + k) % n_ports for p in range(n_ports)] for k in range(count)]


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[tuple[RedisServer, SonicAgent]]:
    with sonic_switch(tmp_path, 8) as started:
        yield started


@pytest.fixture
def server(switch: tuple[RedisServer, SonicAgent]) -> RedisServer:
    return switch[0]


@pytest.fixture
def agent(switch: tuple[RedisServer, SonicAgent]) -> SonicAgent:
    return switch[1]


@pytest.fixture
def sonic(server: RedisServer) -> SonicSwitch:
    return SonicSwitch(server.url)


def slot_names(matching: list[int]) -> set[str]:
    """Return the names of the circuits of a slot."""
    return {f"{a + 1}A-{b + 1}B" for a, b in enumerate(matching) if b >= 0}


def names_of(sonic: SonicSwitch) -> set[str]:
    return {circuit.name for circuit in sonic.read().circuits}


def test_each_slot_is_tuned_before_its_time_counts(
    agent: SonicAgent, sonic: SonicSwitch, tmp_path: Path
) -> None:
    solution = schedule_of(shifts(8, 5))
    journal = tmp_path / "play.jsonl"
    report = play(solution, sonic, PlayOptions(journal=journal))
    assert report.is_whole and len(report.moments) == 5
    assert agent.violations == []

    # Each circuit was tuned for at least as long as its slot lasts.
    tuned_s = {}
    for at_s, what, name in agent.history:
        if what == "tuned":
            tuned_s[name] = at_s
        else:
            assert at_s - tuned_s[name] >= 0.01
    assert len(tuned_s) == 40
    assert names_of(sonic) == {f"{p + 1}A-{(p + 5) % 8 + 1}B" for p in range(8)}
    delays = measured_delays(journal)
    assert delays.n_changes == 5 and 0.01 <= delays.p50_s <= delays.p99_s < 1
    assert {"lateness_p99_s", "own_p99_s", "delay_p50_s"} <= report.figures().keys()


def test_both_orders_of_an_agent_and_both_spellings(tmp_path: Path) -> None:
    solution = schedule_of(shifts(4, 3))
    variants: list[dict[str, Any]] = [
        {"removals_first": True},
        {"table_suffix": "_TABLE"},
        {"delay_s": 0.0},
    ]
    for number, options in enumerate(variants):
        folder = tmp_path / str(number)
        folder.mkdir()
        with sonic_switch(folder, 4, **options) as (server, agent):
            one = bool(options.get("removals_first"))
            assert play(solution, SonicSwitch(server.url, one_transaction=one)).is_whole
            assert agent.violations == []


def test_circuits_of_others_stay(agent: SonicAgent, sonic: SonicSwitch) -> None:
    foreign = CrossConnect("7A", "8B")
    sonic.apply(Difference((), (foreign,)))
    solution = schedule_of(shifts(4, 3))
    only = PlayOptions(only_ports=frozenset(range(4)))
    assert play(solution, sonic, only).is_whole
    assert foreign in sonic.read().circuits and agent.violations == []
    with pytest.raises(om.InputError, match="needs port 2, which may not be touched"):
        play(solution, sonic, PlayOptions(only_ports=frozenset({0, 1})))


def test_a_foreign_circuit_on_our_port_is_named(sonic: SonicSwitch) -> None:
    foreign = CrossConnect("1A", "8B")
    sonic.apply(Difference((), (foreign,)))
    solution = schedule_of(shifts(4, 2))
    with pytest.raises(SwitchError, match="circuit 1A-8B is on a port of the plan"):
        play(solution, sonic)
    assert names_of(sonic) == {"1A-8B"}
    options = PlayOptions(take_over=True, restore=True)
    assert play(solution, sonic, options).is_whole
    assert names_of(sonic) == {"1A-8B"}


def test_a_foreign_change_in_the_middle_is_named(server: RedisServer, sonic: SonicSwitch) -> None:
    other = SonicSwitch(server.url)

    def remove_a_circuit() -> None:
        other.apply(Difference((CrossConnect("1A", "2B"),), ()))

    options = PlayOptions(pace="told", next_slot=remove_a_circuit)
    with pytest.raises(SwitchError, match="somebody else has removed circuit 1A-2B"):
        play(schedule_of(shifts(4, 2)), sonic, options)


def test_a_failed_port_is_named(agent: SonicAgent, sonic: SonicSwitch) -> None:
    agent.failed_sides.add("3B")
    with pytest.raises(SwitchError, match="circuit 2A-3B is failed"):
        play(schedule_of(shifts(4, 2)), sonic)


def test_a_circuit_that_is_never_tuned_is_named(tmp_path: Path) -> None:
    never = pytest.raises(SwitchError, match=r"circuit 1A-2B is tuning after 0\.\d")
    with sonic_switch(tmp_path, 4, delay_s=60.0) as (server, _), never:
        options = PlayOptions(time_limit_s=0.2)
        play(schedule_of(shifts(4, 2)), SonicSwitch(server.url), options)


def test_a_lost_database_comes_back(
    server: RedisServer, agent: SonicAgent, sonic: SonicSwitch
) -> None:
    played = []

    def lose_the_database() -> None:
        played.append(1)
        if len(played) == 2:
            server.stop()
            threading.Timer(0.3, server.start).start()

    options = PlayOptions(pace="told", next_slot=lose_the_database)
    assert play(schedule_of(shifts(4, 4)), sonic, options).is_whole
    assert agent.violations == []
    agent.stop()  # without a database it would try again for three seconds
    server.stop()
    with pytest.raises(SwitchError, match="cannot be reached"):
        SonicSwitch(server.url, patience_s=0.3).read()


def test_two_players_on_one_switch(server: RedisServer) -> None:
    first, second = SonicSwitch(server.url), SonicSwitch(server.url)
    first.claim("one")
    with pytest.raises(SwitchError, match="one plays on this switch"):
        play(schedule_of(shifts(4, 2)), second)
    first.release("one")
    assert play(schedule_of(shifts(4, 2)), second).is_whole


def test_the_password_is_not_told(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--requirepass", "right")
    try:
        for url in (
            f"redis://:wrong@127.0.0.1:{server.port}",
            f"redis://127.0.0.1:{server.port}",
        ):
            with pytest.raises(SwitchError) as caught:
                SonicSwitch(url).read()
            assert "wrong" not in str(caught.value).replace("WRONGPASS", "")
            assert str(server.port) in str(caught.value)
    finally:
        server.stop()


def test_a_user_who_may_not_write(server: RedisServer, agent: SonicAgent) -> None:
    agent.config.execute_command("ACL", "SETUSER", "reader", "on", ">p", "~*", "+@read", "+ping")
    sonic = SonicSwitch(f"redis://reader:p@127.0.0.1:{server.port}")
    with pytest.raises(SwitchError, match="this user may not do that"):
        play(schedule_of(shifts(4, 2)), sonic)
    assert names_of(SonicSwitch(server.url)) == set()


def test_a_user_who_may_not_run_scripts(server: RedisServer, agent: SonicAgent) -> None:
    user = ("ACL", "SETUSER", "plain", "on", ">p", "~*", "&*", "+@all", "-@scripting")
    agent.config.execute_command(*user)
    sonic = SonicSwitch(f"redis://plain:p@127.0.0.1:{server.port}")
    plan = schedule_of(shifts(4, 3))
    assert play(plan, sonic).is_whole
    assert names_of(sonic) == names_of(SonicSwitch(server.url)) != set()
    assert set(sonic.read_statuses().values()) >= {"tuned"}


def test_a_change_that_is_refused_in_part_is_refused_as_a_whole(
    server: RedisServer, agent: SonicAgent
) -> None:
    """A user who may remove circuits and set none removes none."""
    admin = SonicSwitch(server.url)
    old, new = (CrossConnect("1A", "2B"),), (CrossConnect("3A", "4B"),)
    admin.apply(Difference((), old))
    user = ("ACL", "SETUSER", "remover", "on", ">p", "~*", "+@all", "-hset")
    agent.config.execute_command(*user)
    sonic = SonicSwitch(f"redis://remover:p@127.0.0.1:{server.port}")
    with pytest.raises(SwitchError, match="this user may not do that"):
        sonic.apply(Difference(old, new))
    assert names_of(admin) == {"1A-2B"}
    assert sonic.read().circuits == old, "the connection is out of step"


def test_a_command_that_fails_inside_a_transaction_is_told(
    agent: SonicAgent, sonic: SonicSwitch
) -> None:
    """The database takes the command, and finds only then that the key holds no row."""
    agent.config.set("OCS_CROSS_CONNECT|3A-4B", "a text")
    with pytest.raises(SwitchError, match="refused: WRONGTYPE"):
        sonic.apply(Difference((), (CrossConnect("3A", "4B"), CrossConnect("1A", "2B"))))
    agent.config.delete("OCS_CROSS_CONNECT|3A-4B")
    assert names_of(sonic) == {"1A-2B"}, "the connection is out of step"


def test_a_switch_that_cannot_be_reached_is_never_fine(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.stop()
    sonic = SonicSwitch(server.url, patience_s=0.0)
    for _number in range(2):
        with pytest.raises(SwitchError, match="cannot be reached"):
            sonic.read_statuses()


def test_a_side_that_the_configuration_blocks_is_blocked_at_each_reading(
    agent: SonicAgent, sonic: SonicSwitch
) -> None:
    """The state still says that the side is tuned."""
    agent.config.hset("OCS_PORT|2B", "state", "force_blocked")
    agent.state.hset("OCS_PORT|2B", "status", "tuned")
    for _number in range(2):
        assert sonic.read_statuses()["2B"] == "blocked"


def test_one_side_in_both_spellings_of_the_table_joins_nothing(
    agent: SonicAgent, sonic: SonicSwitch
) -> None:
    """Both rows are of the side 3A; nothing is told of 4B until the last rows."""
    circuit = CrossConnect("3A", "4B")
    told = {"status": "tuned", "target_simplex_port_id": "4B"}
    for table in ("OCS_PORT", "OCS_PORT_TABLE"):
        agent.state.hset(f"{table}|3A", mapping=told)
    assert sonic.wait([circuit], 0.0).status_of_untuned == {circuit: "absent"}
    for table in ("OCS_PORT", "OCS_PORT_TABLE"):
        agent.state.hset(f"{table}|4B", mapping={**told, "target_simplex_port_id": "3A"})
    assert not sonic.wait([circuit], 0.0).status_of_untuned


def test_labels_in_another_encoding_are_in_nobodys_way(
    agent: SonicAgent, sonic: SonicSwitch
) -> None:
    agent.config.hset("OCS_PORT|1A", "label", b"Pr\xfcfstand")
    assert play(schedule_of(shifts(4, 2)), sonic).is_whole


def test_a_database_of_something_else(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        with pytest.raises(SwitchError, match="not the database of a SONiC optical switch"):
            SonicSwitch(server.url).read()
    finally:
        server.stop()


def test_a_run_is_resumed(agent: SonicAgent, sonic: SonicSwitch, tmp_path: Path) -> None:
    solution = schedule_of(shifts(8, 6))
    journal = tmp_path / "play.jsonl"
    stop = threading.Event()
    report = play(
        solution,
        sonic,
        PlayOptions(journal=journal),
        on_moment=lambda moment, _total: stop.set() if moment.moment == 2 else None,
        stop=stop,
    )
    assert not report.is_whole and len(report.moments) == 3
    with pytest.raises(om.InputError, match="is there already: --resume goes on"):
        play(solution, sonic, PlayOptions(journal=journal))
    with pytest.raises(om.InputError, match="of another plan"):
        play(schedule_of(shifts(8, 5)), sonic, PlayOptions(journal=journal, resume=True))
    report = play(solution, sonic, PlayOptions(journal=journal, resume=True, restore=True))
    assert report.is_whole and [moment.moment for moment in report.moments] == [2, 3, 4, 5]
    assert names_of(sonic) == set() and agent.violations == []
    # A last line that was cut off by a crash is passed over.
    journal.write_text(journal.read_text() + '{"event": "tun')
    assert measured_delays(journal).n_changes == 6


def test_short_slots_are_refused_or_stretched(agent: SonicAgent, sonic: SonicSwitch) -> None:
    solution = schedule_of(shifts(4, 2))
    with pytest.raises(om.InputError, match=r"slot 0 lasts 0\.01 s, less than the 0\.05 s"):
        play(solution, sonic, PlayOptions(own_delay_s=0.05))
    started_s = time.monotonic()
    play(solution, sonic, PlayOptions(own_delay_s=0.05, stretch=True))
    assert time.monotonic() - started_s >= 0.1
    assert agent.violations == []


def test_what_was_there_is_put_back_after_a_failed_circuit_too(
    agent: SonicAgent, sonic: SonicSwitch
) -> None:
    first, second = (slot_names(shifts(8, 2)[k]) for k in (0, 1))
    sonic.apply(Difference((), tuple(CrossConnect(*name.split("-")) for name in first)))
    agent.fail(f"{min(second).partition('-')[0]}")
    with pytest.raises(SwitchError, match="is failed after"):
        play(schedule_of(shifts(8, 3)[1:]), sonic, PlayOptions(restore=True, take_over=True))
    assert names_of(sonic) == first


def test_putting_back_removes_no_circuit_of_others(
    server: RedisServer, sonic: SonicSwitch
) -> None:
    """Somebody sets another circuit while the last slot is held."""
    added = CrossConnect("7A", "7B")

    def disturb(moment: Any, n_moments: int) -> None:
        if moment.moment == n_moments - 1:
            old = sonic.read().circuits
            removed = tuple(circuit for circuit in old if set(circuit) & set(added))
            SonicSwitch(server.url).apply(Difference(removed, (added,)))

    with pytest.raises(SwitchError, match="somebody else has removed circuit"):
        play(schedule_of(shifts(8, 2)), sonic, PlayOptions(restore=True), on_moment=disturb)
    assert "7A-7B" in names_of(sonic)


def test_nothing_is_sent_that_verify_refuses() -> None:
    sent: list[str] = []
    solution = schedule_of(shifts(4, 2))
    wrong = om.Solution(
        problem=om.AllToAll(om.IdealSwitch(4)),
        schedule=solution.schedule,
        status=om.Status.FEASIBLE,
        limit=om.Limit.EXHAUSTED,
        objective=2.0,
        lower_bound=0.0,
        method="best",
    )
    with pytest.raises(om.VerificationError, match="nothing is sent"):
        play(wrong, DrySwitch(write=sent.append))
    assert sent == []


def plan_of_two_planes() -> om.Solution:
    """Return an answer to a small demand that two switches carry."""
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 5, (4, 4)) * 1e-3
    np.fill_diagonal(matrix, 0.0)
    problem = om.Demand(om.IdealSwitch(4), matrix, delay_s=1e-3, planes=2)
    return om.solve(problem, "spectra", seed=0)


class FaultySwitch(DrySwitch):
    """A rehearsal that can refuse, or lose its light, and notes who gives up a claim.

    Parameters
    ----------
    fails_at_change
        The number of the change, from 0, that is refused; None for none.
    """

    def __init__(self, fails_at_change: int | None = None) -> None:
        super().__init__(write=lambda line: None)
        self.fails_at_change = fails_at_change
        self.n_changes = 0
        self.is_dark = False
        self.n_released = 0

    def apply(self, difference: Difference) -> None:
        """Change circuits, or refuse to."""
        self.n_changes += 1
        if self.n_changes - 1 == self.fails_at_change:
            raise SwitchError("dry: the change is refused")
        super().apply(difference)

    def wait(self, circuits: Any, time_limit_s: float) -> Tuning:
        """Return at once; no circuit is tuned while it is dark."""
        if self.is_dark:
            return Tuning(0.0, dict.fromkeys(circuits, "failed"))
        return super().wait(circuits, time_limit_s)

    def release(self, owner: str) -> None:
        """Note that it is asked, and fail."""
        self.n_released += 1
        raise SwitchError("dry: cannot be reached")


def test_a_claim_that_cannot_be_given_up_hides_no_error_and_keeps_no_other_switch() -> None:
    switches = {"plane 0": FaultySwitch(0), "plane 1": FaultySwitch()}
    with pytest.raises(SwitchError, match="the change is refused"):
        play(plan_of_two_planes(), switches)
    assert [switch.n_released for switch in switches.values()] == [1, 1]


@pytest.mark.parametrize("failing", ["plane 0", "plane 1"])
@pytest.mark.parametrize("is_dark", [False, True])
def test_a_switch_that_cannot_be_put_back_keeps_no_other_from_it(
    failing: str, is_dark: bool
) -> None:
    """After the last slot one switch refuses the change back, or has lost its light."""
    before = (CrossConnect("1A", "1B"),)
    switches = {"plane 0": FaultySwitch(), "plane 1": FaultySwitch()}
    for switch in switches.values():
        switch.apply(Difference((), before))

    def disturb(moment: Any, n_moments: int) -> None:
        if moment.moment == n_moments - 1:
            switches[failing].is_dark = is_dark
            if not is_dark:
                switches[failing].fails_at_change = switches[failing].n_changes

    message = "is failed" if is_dark else "the change is refused"
    with pytest.raises(SwitchError, match=message):
        options = PlayOptions(restore=True, take_over=True)
        play(plan_of_two_planes(), switches, options, on_moment=disturb)
    for name, switch in switches.items():
        is_refused = name == failing and not is_dark
        assert (switch.read_circuits() == before) != is_refused


def test_switches_of_a_moment_change_side_by_side() -> None:
    """Each switch carries out its change only once the other one has been told of its own."""
    meeting = threading.Barrier(2, timeout=10)

    class MeetingSwitch(DrySwitch):
        """A rehearsal that waits for another one before it changes for the first time."""

        has_met = False

        def apply(self, difference: Difference) -> None:
            """Wait for the other switch, then change circuits."""
            if not self.has_met:
                self.has_met = True
                meeting.wait()
            super().apply(difference)

    switches = {name: MeetingSwitch(write=lambda line: None) for name in ("plane 0", "plane 1")}
    assert play(plan_of_two_planes(), switches).is_whole


def test_rails_and_planes_have_a_switch_each(tmp_path: Path) -> None:
    solution = plan_of_two_planes()
    sent: dict[str, list[str]] = {"plane 0": [], "plane 1": []}
    switches = {name: DrySwitch(write=lines.append) for name, lines in sent.items()}
    assert play(solution, switches).is_whole
    assert all(lines for lines in sent.values())
    with pytest.raises(om.InputError, match=r"the plan has 2 switches \(plane 0, plane 1"):
        play(solution, DrySwitch())
    with pytest.raises(om.InputError, match="no switch is given for 'plane 1'"):
        play(solution, {"plane-0": DrySwitch()})


def test_circuits_with_an_end_at_a_side_of_ours_are_ours() -> None:
    names = [("1A", "9B"), ("9A", "1B"), ("1B", "1A"), ("9A", "11B"), ("11A", "9B")]
    circuits = [CrossConnect(*sides) for sides in names]
    assert own_circuits(DrySwitch(circuits), {"1A", "1B"}) == set(circuits[:3])
    assert own_circuits(DrySwitch(circuits), set()) == set()


@pytest.mark.parametrize("url", ["", "ftp://x", "scpi://", "redis://h:999999", "http://a:b@c"])
def test_unknown_addresses(url: str) -> None:
    with pytest.raises(om.InputError, match="switch") as caught:
        open_switch(url)
    assert "a:b@" not in str(caught.value)


def test_the_journal_is_of_lines(sonic: SonicSwitch, tmp_path: Path) -> None:
    journal = tmp_path / "play.jsonl"
    play(schedule_of(shifts(4, 2)), sonic, PlayOptions(journal=journal))
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [entry.get("event") for entry in entries] == [
        *(None, "claim", "before", "applying", "tuned", "applying", "tuned", "ended"),
    ]
    assert entries[0]["format"] == "optmatch/play/1"


@pytest.mark.parametrize(
    "entry",
    [
        {"event": "tuned", "round": 0, "moment": 0, "n_changed": 1},
        {"event": "tuned", "round": 0, "moment": 0, "n_changed": 1, "delay_s": "long"},
        {"event": "tuned", "round": 0, "moment": 0, "delay_s": 0.1},
        {"event": "tuned", "round": 0, "moment": 0, "n_changed": None, "delay_s": 0.1},
        {"event": "applying", "moment": 0},
        {"event": "applying", "round": "a", "moment": 0},
        {"event": "claim"},
        {"event": "before", "switch": "a", "circuits": 3},
    ],
    ids=json.dumps,
)
def test_a_journal_whose_line_lacks_a_field_is_refused_by_its_line(
    entry: dict[str, Any], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    header = {"format": "optmatch/play/1"}
    journal.write_text(json.dumps(header) + "\n" + json.dumps(entry) + "\n")
    with pytest.raises(om.FormatError) as caught:
        measured_delays(journal)
    assert caught.value.path == str(journal) and caught.value.where == "line 2"


def test_an_empty_line_of_a_journal_is_passed_over(tmp_path: Path) -> None:
    moment = {"event": "tuned", "round": 0, "moment": 0, "n_changed": 1, "delay_s": 0.1}
    text = '{"format": "optmatch/play/1"}\n\n' + json.dumps(moment) + "\n"
    assert measured_delays(put(tmp_path, "journal.jsonl", text)).n_changes == 1


def test_a_journal_with_an_unknown_event_has_no_delays(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"format": "optmatch/play/1"}\n{"event": [1]}\n')
    with pytest.raises(om.InputError, match="no change of circuits was measured"):
        measured_delays(journal)


def test_the_next_slot_is_noted_before_the_one_before_it_is_over(
    sonic: SonicSwitch, tmp_path: Path
) -> None:
    """Comparing and noting do not make a slot late, and a stop leaves the slot that is held."""
    journal = tmp_path / "play.jsonl"
    stop = threading.Event()
    plan = schedule_of(shifts(8, 4))

    def end_it(moment: Any, _n_moments: int) -> None:
        if moment.moment == 1:
            threading.Timer(0.15, stop.set).start()

    options = PlayOptions(journal=journal, own_delay_s=0.2, stretch=True)
    report = play(plan, sonic, options, on_moment=end_it, stop=stop)
    assert not report.is_whole and len(report.moments) == 2
    assert names_of(sonic) == slot_names(shifts(8, 4)[1])
    events = [entry["event"] for entry in map(json.loads, journal.read_text().splitlines()[3:])]
    assert events[:4] == ["applying", "tuned", "applying", "tuned"]

    # A run that goes on begins with the slot that was noted last, or with the one that was held.
    report = play(plan, sonic, PlayOptions(journal=journal, resume=True))
    assert report.is_whole and 2 <= len(report.moments) <= 3
    assert names_of(sonic) == slot_names(shifts(8, 4)[3])
