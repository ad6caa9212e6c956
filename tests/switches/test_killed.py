"""Players and watchers that are killed go on where they were: some kills of many.

``python -m tests.helpers.killed_players 200`` is the long run.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.model.files import lock_at_once
from optmatch.switches import DrySwitch, PlayOptions, play, player as journals
from tests.helpers.command import python
from tests.helpers.modes import examples
from tests.helpers.sonic_agent import needs_redis
from tests.switches.test_play import schedule_of, shifts


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@needs_redis
def test_nothing_is_lost_by_kills() -> None:
    kills = str(examples(3, plain=3))
    python("-m", "tests.helpers.killed_players", kills, "1")


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked")
def test_two_players_cannot_write_one_journal(tmp_path: Path) -> None:
    plan = om.solve(om.Routing(om.IdealSwitch(2), [1, 0]), seed=0)
    journal = tmp_path / "play.jsonl"
    refused: list[str] = []

    def play_again() -> None:
        again = PlayOptions(journal=journal, resume=True)
        try:
            play(plan, DrySwitch(write=lambda line: None), again)
        except om.InputError as error:
            refused.append(error.message)

    options = PlayOptions(pace="told", next_slot=play_again, rounds=2, journal=journal)
    play(plan, DrySwitch(write=lambda line: None), options)
    assert refused == ["another player is writing this journal"]


def test_a_run_that_ends_before_the_journal_is_locked_is_resumed_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former run notes its last moment just before it gives up the lock."""
    path = tmp_path / "play.jsonl"
    journals.PlayJournal(path, {"plan": "a"}, resume=False).close()
    lock = lock_at_once

    def end_former_run(file: Any) -> bool:
        entry = {"event": "tuned", "round": 2, "moment": 1, "n_changed": 0, "delay_s": 0.0}
        with path.open("a", encoding="utf-8") as former:
            former.write(json.dumps(entry) + "\n")
        return lock(file)

    monkeypatch.setattr(journals, "lock_at_once", end_former_run)
    resumed = journals.PlayJournal(path, {"plan": "a"}, resume=True)
    assert (resumed.round, resumed.moment) == (2, 1)
    resumed.write(event="ended")
    resumed.close()
    events = [entry.get("event") for entry in journals.read_entries(path)]
    assert events == [None, "tuned", "ended"]


@pytest.mark.parametrize("n_missing", [1, 5])
def test_a_journal_whose_last_line_was_cut_off_can_be_resumed_again(
    tmp_path: Path, n_missing: int
) -> None:
    path = tmp_path / "play.jsonl"
    first = journals.PlayJournal(path, {"plan": "a"}, resume=False)
    first.write(event="claim", owner="one")
    first.write(event="applying", round=0, moment=3)
    first.close()
    path.write_bytes(path.read_bytes()[:-n_missing])
    for _number in range(2):
        resumed = journals.PlayJournal(path, {"plan": "a"}, resume=True)
        assert resumed.owner == "one" and (resumed.round, resumed.moment) == (0, 0)
        resumed.write(event="ended")
        resumed.close()
    events = [entry.get("event") for entry in journals.read_entries(path)]
    assert events == [None, "claim", "ended", "ended"]


def test_a_new_journal_is_never_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another player has begun the file just after it was looked for."""
    path = tmp_path / "play.jsonl"
    journals.PlayJournal(path, {"plan": "a"}, resume=False).close()
    with monkeypatch.context() as patch, pytest.raises(om.InputError, match="is there already"):
        patch.setattr(Path, "exists", lambda path: False)
        journals.PlayJournal(path, {"plan": "b"}, resume=False)


def test_a_journal_that_is_not_there_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "play.jsonl"
    with pytest.raises(om.FormatError, match="cannot be read: No such file"):
        journals.PlayJournal(path, {"plan": "a"}, resume=True)
    assert not path.exists()


def test_long_plans_keep_to_their_demand() -> None:
    # Each pair of ports meets in fifty slots, whose floating-point sum is no multiple of 10 ms.
    assert om.verify(schedule_of(shifts(4, 200))).ok
