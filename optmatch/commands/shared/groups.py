"""Groups of commands that are imported when they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import click


class Group(click.Group):
    """A group whose help tells what each command does as a whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all commands, each with its first sentence as a whole."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(limit=1000)) for name, command in found if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LaterGroup(Group):
    """A group that imports those of its commands that are asked for.

    `load` imports the one of a name.
    """

    def __init__(
        self,
        *args: Any,
        names: Sequence[str],
        load: Callable[[str], click.Command],
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._names, self._load = list(names), load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of help."""
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in self._names:
            return None
        found = self._load(cmd_name)
        if ctx.auto_envvar_prefix:
            _name_variables(found, f"{ctx.auto_envvar_prefix}_{cmd_name}")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; suggest one for a misspelt name."""
        close = get_close_matches(args[0], self._names, n=1)
        if args[0] not in self._names and close:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)


def _name_variables(command: click.Command, prefix: str) -> None:
    """Name the variable of each option as the option is typed, not as our code calls it."""
    for option in command.params:
        if isinstance(option, click.Option):
            typed = max(option.opts, key=len).lstrip("-")
            option.envvar = f"{prefix}_{typed}".replace("-", "_").upper()
            option.allow_from_autoenv = False
