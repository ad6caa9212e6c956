"""How a command ends: exit codes, messages on stderr, one tagged object per input on stdout."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

import click

from optmatch.commands.shared.examples import example_of
from optmatch.commands.shared.interrupt import heeding
from optmatch.io.text import as_cell, plain
from optmatch.model import (
    InputError,
    LimitReached,
    OptMatchError,
    Problem,
    Solution,
    VerificationError,
)
from optmatch.startup import end


class Group(click.Group):
    """A group whose help shows the first paragraph of each command; theirs have examples."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, whose help ends with its example."""
        found = super().get_command(ctx, cmd_name)
        _with_example(found, ctx, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all commands, each with its first sentence as a whole."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(limit=1000)) for name, command in found if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _with_example(command: click.Command | None, ctx: click.Context, name: str) -> None:
    """Let the help of a command end with its example."""
    path = [] if ctx.parent is None else [ctx.info_name or ""]
    line = example_of(" ".join([*path, name]))
    if command is None or line is None or getattr(command, "shows_example", False):
        return
    write = command.format_help

    def format_help(ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write(ctx, formatter)
        formatter.write(f"\n{line}\n")  # on one line, to be copied

    vars(command).update(format_help=format_help, shows_example=True)


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
        self._names = list(names)
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of help."""
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in self._names:
            return None
        with heeding() as signals, signals.held(_end):
            found = self._load(cmd_name)
        if ctx.auto_envvar_prefix:
            _name_variables(found, f"{ctx.auto_envvar_prefix}_{cmd_name}")
        _with_example(found, ctx, cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; suggest one for a misspelt name."""
        close = get_close_matches(args[0], self._names, n=1)
        if args[0] not in self._names and close:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)


def _end(number: int) -> bool:
    """End in the middle of imports, out of which an exception comes as another."""
    say("interrupted")
    end(number, None)
    return True


def _name_variables(command: click.Command, prefix: str) -> None:
    """Name the variable of each option as the option is typed, not as our code calls it."""
    for option in command.params:
        if isinstance(option, click.Option):
            typed = max(option.opts, key=len).lstrip("-")
            option.envvar = f"{prefix}_{typed}".replace("-", "_").upper()
            option.allow_from_autoenv = False


SOLVED, OTHER, USAGE, INFEASIBLE, NOTHING_FOUND, CHECK_FAILED, UNPROVED = range(7)
INTERRUPTED = 130
TERMINATED = 143

EXIT_CODES = {
    SOLVED: "solved: optimal, or feasible within the limits",
    OTHER: "any other error",
    USAGE: "usage or bad input",
    INFEASIBLE: "proved infeasible",
    NOTHING_FOUND: "no solution within the limits",
    CHECK_FAILED: "a check failed",
    UNPROVED: "verify: nothing wrong was found, but a claim is unproved",
    INTERRUPTED: "interrupted",
    TERMINATED: "terminated, as by SIGTERM",
}

STDIN = "-"
_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


class Main(LaterGroup):
    """A group that turns every way to fail into one line on stderr and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line and exit."""
        run: Callable[..., Any] = super().main
        if not extra.pop("standalone_mode", True):
            return run(*args, **extra, standalone_mode=False)
        came: list[int] = []
        try:
            with heeding() as signals:
                came = signals.came
                code = self._run(run, *args, **extra)
                signals.over = True
                if came and code != INTERRUPTED:
                    say("interrupted")  # after all work, or where nothing can stop
        except KeyboardInterrupt:
            say("interrupted")
            code = INTERRUPTED
        if came:
            code = TERMINATED if came[0] == signal.SIGTERM else INTERRUPTED
        sys.exit(code)

    def _run(self, run: Callable[..., Any], *args: Any, **extra: Any) -> int:
        """Run the command line and return its exit code."""
        try:
            code = run(*args, **extra, standalone_mode=False)
        except click.Abort as exc:
            # Click turns Ctrl-C into Abort, and the end of a file that is read as well.
            code = INTERRUPTED
            cause = exc.__cause__
            if isinstance(cause, EOFError):
                say(f"a file ended too early: {cause or 'nothing more is known'}")
                code = OTHER
            else:
                say("interrupted")
        except click.exceptions.NoArgsIsHelpError as exc:
            click.echo(exc.ctx.get_help())
            code = SOLVED
        except click.ClickException as exc:
            exc.show()
            code = USAGE
        except (OptMatchError, OSError, MemoryError) as exc:
            say(describe(exc))
            code = code_of(exc)
        return code or SOLVED

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes."""
        with formatter.section("Exit codes (with many files the highest, but 5 before 6)"):
            formatter.write_dl([(str(code), text) for code, text in EXIT_CODES.items()])


def code_of(error: Exception) -> int:
    """Return the exit code of an error."""
    if isinstance(error, InputError):
        return USAGE
    if isinstance(error, LimitReached):
        return NOTHING_FOUND
    return CHECK_FAILED if isinstance(error, VerificationError) else OTHER


def describe(error: Exception) -> str:
    """Return an error as a message without its name."""
    if isinstance(error, MemoryError):
        return f"out of memory {error}".rstrip()
    if isinstance(error, OSError) and not isinstance(error, OptMatchError) and error.errno:
        name = error.filename or ("<stdout>" if error.errno in _FULL else None)
        return ": ".join(filter(None, (name, error.strerror)))
    return str(error)


def say(message: str) -> None:
    """Write one line on stderr; control characters are written out."""
    line = " ".join(message.split())
    click.echo(f"optmatch: {re.sub('[^ -~]+', _written_out, line)}", err=True)


def _written_out(odd: re.Match[str]) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in odd[0])


def print_object(tag: str, content: Mapping[str, Any]) -> None:
    """Write one tagged JSON object on a line of stdout."""
    click.echo(json.dumps(plain({"format": f"optmatch/{tag}/1", **content}), allow_nan=False))


def paint(text: str, good: bool) -> str:
    """Colour a verdict: green, or red where it is bad."""
    return click.style(text, fg="green" if good else "red")


def print_rows(rows: Mapping[str, Any], *, indent: int = 2) -> None:
    """Print names and values below each other."""
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        text = f"{value:.6g}" if isinstance(value, float) else value
        click.echo(f"{'':{indent}}{name.replace('_', ' '):<{width}}  {text}")


def print_table(rows: Sequence[Sequence[str]], *, indent: int = 0) -> None:
    """Print rows of words in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        click.echo("  ".join([" " * indent + first.ljust(widths[0]), *cells]).rstrip())


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(as_cell, row) for row in rows)
    return text.getvalue()


def for_each(files: Sequence[str], run: Callable[[str], int], *, as_json: bool) -> int:
    """Run a command on file after file; an error in one does not stop the others, Ctrl-C does.

    Returns the highest exit code; a check that failed comes before a claim that is unproved.
    """
    worst = SOLVED
    for file in files:
        try:
            code = run(file)
        except (OptMatchError, OSError, MemoryError) as exc:
            if (
                isinstance(exc, OSError)
                and exc.errno in (errno.EPIPE, *_FULL)
                and not exc.filename
            ):
                raise  # no more can be told: if nobody reads on, click ends in silence
            if isinstance(exc, InputError) and not exc.path:
                exc.path = name_of(file)
            code = code_of(exc)
            message = describe(exc)
            say(message if message.startswith(name_of(file)) else f"{name_of(file)}: {message}")
            if as_json:
                print_object("error", {"file": file, "error": message, "exit_code": code})
        worst = CHECK_FAILED if {worst, code} == {CHECK_FAILED, UNPROVED} else max(worst, code)
        with heeding() as signals:
            if code == INTERRUPTED or signals.came:
                break
    return worst


def name_of(file: str) -> str:
    """Return the name of an input in messages."""
    return "<stdin>" if file == STDIN else file


def read(file: str) -> Problem | Solution:
    """Read a file, or stdin for ``-``."""
    from optmatch.io import load, loads

    with heeding() as signals, signals.held(lambda _number: False):  # a pipe may wait for ever
        if file != STDIN:
            _refuse_table(file)
            return load(file)
        if sys.stdin is None:  # as after `<&-` in a shell
            raise InputError("stdin is closed; a file was expected there", path=name_of(file))
        text = sys.stdin.buffer.read()
    if not text.lstrip().startswith(b"{"):
        hint = "no file of optmatch; `solve FILE -o -` writes a schedule to its stdout"
        raise InputError(hint, path=name_of(file))
    return loads(text, path=name_of(file))


_TABLES = (".csv", ".tsv", ".txt", ".mtx", ".npy", ".npz")


def _refuse_table(file: str) -> None:
    """Say what to do with a table of numbers where a problem file is expected."""
    path = PurePath(file)
    if path.suffix.lower() not in _TABLES and [s.lower() for s in path.suffixes[-2:]] != [
        ".csv",
        ".gz",
    ]:
        return
    raise InputError(
        "a table, and no problem file: `optmatch generate demand --matrix"
        f" {file} --delay TIME -o problem.json` makes one of it",
        path=file,
    )


def say_remarks(problem: Problem, file: str) -> None:
    """Write on stderr what is allowed in a problem, but hardly what its author meant."""
    remarks: tuple[str, ...] = getattr(problem, "remarks", tuple)()
    for remark in remarks:
        say(remark if file == STDIN else f"{file}: {remark}")


def read_problem(file: str) -> Problem:
    """Read a problem file; anything else raises `InputError`."""
    problem = read(file)
    if isinstance(problem, Solution):
        raise InputError("a schedule file; a problem file is expected here", path=name_of(file))
    return problem


def read_solution(file: str) -> Solution:
    """Read a schedule file; anything else raises `InputError`."""
    return as_solution(read(file), file)


def as_solution(found: Problem | Solution, file: str) -> Solution:
    """Refuse an object that is no solution."""
    if not isinstance(found, Solution):
        raise InputError("a problem file; a schedule file is expected here", path=name_of(file))
    return found
