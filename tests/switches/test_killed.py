"""Players and watchers that are killed go on where they were: some kills of many.

``python -m tests.helpers.killed_players 200`` is the long run.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import optmatch as om
from optmatch.switches import DrySwitch, PlayOptions, play

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="needs redis-server: apt install redis-server"
)
def test_nothing_is_lost_by_kills() -> None:
    command = [sys.executable, "-m", "tests.helpers.killed_players", "12", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


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
