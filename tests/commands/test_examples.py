"""The help of each command ends with an example, and each of them runs."""

import shlex
from pathlib import Path

import click
import pytest

import optmatch as om
from optmatch.cli import main
from optmatch.commands.shared.examples import EXAMPLES
from tests.helpers.command import call

SPEC = """seeds = 1
[limits]
iterations = 20
[[generate]]
command = "all-to-all --rows 3 --cols 3 --ports 4"
name = "small"
"""
PHASES = """rank,group,operation,count,size_bytes,compute_s,peer
0,dp.0,all-reduce,3,1e9,0.5,
1,dp.0,all-reduce,3,1e9,0.25,
"""


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Return all commands that are no group, by their words."""
    if not isinstance(command, click.Group):
        return {" ".join(words): command}
    found: dict[str, click.Command] = {}
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        found |= leaves(child, (*words, name))
    return found


def test_every_help_ends_with_its_example() -> None:
    assert leaves(main).keys() == EXAMPLES.keys()
    for words, more in EXAMPLES.items():
        *_, last = call(*words.split(), "--help").stdout.splitlines()
        assert last.strip() == f"Example: optmatch {words} {more}"


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another in a folder that has a list of phases, a spec, and a running state."""
    monkeypatch.chdir(tmp_path)
    circuits = [[0, 1], [1, 0]]
    om.save(om.Reroute(om.IdealSwitch(3), circuits, spares=(2,)), "running.json")
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "phases.csv").write_text(PHASES)
    (tmp_path / "groups.json").write_text('{"dp.0": [0, 1]}')
    for words, more in EXAMPLES.items():
        quick = more.replace("--time-limit 1", "--time-limit 0.2")
        call(*words.split(), *shlex.split(quick))
