"""`optmatch generate`: write a problem file."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from optmatch.commands.shared.groups import Group
from optmatch.kinds import Kind, all_kinds


class Generators(Group):
    """The commands that write problems: of each kind those in its folder.

    The module ``optmatch/commands/<folder>/generate.py`` lists them as ``COMMANDS``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, kind by kind."""
        return list(dict.fromkeys(name for kind in all_kinds() for name in _commands(kind)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        found = (_commands(kind).get(cmd_name) for kind in all_kinds())
        return next((command for command in found if command is not None), None)


def _commands(kind: Kind) -> dict[str, click.Command]:
    module: Any = import_module(f"optmatch.commands.{kind.folder}.generate")
    return {command.name: command for command in module.COMMANDS}


@click.group(cls=Generators)
def generate() -> None:
    """Write a problem file."""
