"""How a command ends: exit codes, messages on stderr, one tagged object per input on stdout."""

from __future__ import annotations

import errno
import json
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource

from optmatch.commands.shared.examples import EXAMPLES
from optmatch.commands.shared.interrupt import heeding
from optmatch.io.text import plain
from optmatch.model import (
    InputError,
    LimitReached,
    OptMatchError,
    Problem,
    Solution,
    VerificationError,
)
from optmatch.model.display import align_columns
from optmatch.model.files import check_target, replace_file, suffix_of
from optmatch.model.problem import split_unit, write_amount
from optmatch.startup import end


class Group(click.Group):
    """A group whose help shows the first paragraph of each command; theirs have examples."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, whose help ends with its example."""
        command = super().get_command(ctx, cmd_name)

        # Commands of a group within the main one, as `generate demand`, have names of two words.
        name = cmd_name if ctx.parent is None else f"{ctx.info_name} {cmd_name}"
        if command is not None and name in EXAMPLES:
            command.epilog = f"\b\nExample: optmatch {name} {EXAMPLES[name]}"
        return command

    def list_groups(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        """Return the names of commands under the titles below which help lists them."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all commands, each with its first sentence as a whole, all in the same columns."""
        longest = max(map(len, self.list_commands(ctx)))
        for title, names in self.list_groups(ctx).items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    rows.append((name.ljust(longest), command.get_short_help_str(limit=1000)))
            with formatter.section(title):
                formatter.write_dl(rows)


class LaterGroup(Group):
    """A group that imports a command when it is run, since importing all of them takes long.

    Parameters
    ----------
    groups
        The titles below which help lists the commands. Each has its commands by name, in the order
        of help, with the module of `optmatch.commands` and the function, as ``"export:plot"``.
    """

    def __init__(
        self, *args: Any, groups: Mapping[str, Mapping[str, str]], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._groups = groups
        self._places = {name: place for group in groups.values() for name, place in group.items()}

    def list_groups(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        """Return the names of commands under the titles of their groups."""
        return self._groups

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of help."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in self._places:
            return None

        def end_process(number: int) -> bool:
            """End the process at once because of the signal of this number."""
            say("interrupted")
            end(number, None)
            return True

        # An exception in the middle of an import comes out of it as another one, so SIGINT and
        # SIGTERM end the process there and then, by `end_process`.
        with heeding() as signals, signals.held(end_process):
            module_name, _, function_name = self._places[cmd_name].partition(":")
            module = import_module(f"optmatch.commands.{module_name}")
        command: click.Command = getattr(module, function_name)

        # The variable of an option is named as the option is typed, not as our code calls it.
        for option in command.params:
            if isinstance(option, click.Option) and ctx.auto_envvar_prefix:
                typed = max(option.opts, key=len).lstrip("-")
                variable = f"{ctx.auto_envvar_prefix}_{cmd_name}_{typed}"
                option.envvar = variable.replace("-", "_").upper()
                option.allow_from_autoenv = False
        self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; suggest one for a misspelt name."""
        close = get_close_matches(args[0], self._places, n=1)
        if args[0] not in self._places and close:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)


SOLVED, OTHER, USAGE, INFEASIBLE, NOTHING_FOUND, CHECK_FAILED, UNPROVED = range(7)
INTERRUPTED = 130
TERMINATED = 143

SEVERITY = (
    *(SOLVED, OTHER, USAGE, INFEASIBLE, NOTHING_FOUND, UNPROVED, CHECK_FAILED),
    *(INTERRUPTED, TERMINATED),
)
"""Exit codes from the best to the worst: a failed check is worse than a claim that is unproved."""

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

# Errors of a disk that takes no more bytes.
_DISK_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


class Main(LaterGroup):
    """A group that turns every way to fail into one line on stderr and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line, and exit with the code that says how it ended.

        A signal (Ctrl-C or SIGTERM) decides it, whatever else has happened. Without
        `standalone_mode` it returns and raises errors as click does.
        """
        run: Callable[..., Any] = super().main
        if not extra.pop("standalone_mode", True):
            return run(*args, **extra, standalone_mode=False)

        received_signals: list[int] = []
        try:
            with heeding() as signals:
                received_signals = signals.received
                code = self._exit_code_of_run(run, *args, **extra)
                signals.over = True

                # A signal after all work, or where nothing can stop, has raised no error.
                if received_signals and code != INTERRUPTED:
                    say("interrupted")
        except KeyboardInterrupt:
            say("interrupted")
            code = INTERRUPTED

        if received_signals:
            is_terminated = received_signals[0] == signal.SIGTERM
            code = TERMINATED if is_terminated else INTERRUPTED
        sys.exit(code)

    def _exit_code_of_run(self, run: Callable[..., Any], *args: Any, **extra: Any) -> int:
        """Run the command line, and turn every error into a line on stderr and an exit code.

        `run` is the method `main` of click, with its arguments.
        """
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
            _hint_at_words(exc).show()
            code = USAGE
        except (OptMatchError, OSError, MemoryError) as exc:
            say(describe(exc))
            code = _code_of(exc)
        return code or SOLVED

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes."""
        with formatter.section("Exit codes (with many files the highest, but 5 before 6)"):
            formatter.write_dl([(str(code), text) for code, text in EXIT_CODES.items()])


def _hint_at_words(error: click.ClickException) -> click.ClickException:
    """Return what to type instead of an error on a word too many, or on an option of other tools.

    The word may be a unit. The option may be what help calls a value: ``--format`` of ``--to
    FORMAT``, or ``--schedule`` of the argument SCHEDULE.
    """
    ctx = getattr(error, "ctx", None)
    if ctx is not None and isinstance(error, click.NoSuchOption):
        word = error.option_name.lstrip("-").upper()
        for param in ctx.command.params:
            if word in re.findall(r"\w+", param.metavar or str(param.name).upper()):
                flag = f"{param.opts[0]} " if isinstance(param, click.Option) else ""
                meant = f"Did you mean '{flag}{param.make_metavar(ctx)}'?"
                return click.UsageError(f"{error.message} {meant}", ctx)
    extra = re.fullmatch(r"Got unexpected extra argument \((\S+)\)", error.message)
    hint = hint_of_unit(extra[1], ctx) if extra and ctx else ""
    return click.UsageError(hint, ctx) if hint else error


def hint_of_unit(word: str, ctx: click.Context) -> str:
    """Return what to type where a unit stands apart from its number: ``--delay 25 ms``.

    Its word belongs to no option, and the values of `ctx` that were typed tell whose unit it is.
    Empty if it is no unit.
    """
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        is_typed = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if not is_typed or not isinstance(value, int | float):
            continue
        try:
            param.type.convert(f"1 {word}", param, ctx)
        except click.BadParameter:
            continue
        return f"{word}: a number and its unit are one word: {param.opts[0]} '{value:g} {word}'"
    return ""


def _code_of(error: Exception) -> int:
    """Return the exit code of an error.

    There is one each for wrong input, for a limit before anything was found, and for a failed
    check; that of other errors for all else.
    """
    if isinstance(error, InputError):
        return USAGE
    if isinstance(error, LimitReached):
        return NOTHING_FOUND
    if isinstance(error, VerificationError):
        return CHECK_FAILED
    return OTHER


def describe(error: Exception) -> str:
    """Return an error as a message for users, without the name of its class.

    One of the operating system is the file, if it has one, and the reason.
    """
    if isinstance(error, MemoryError):
        return f"out of memory {error}".rstrip()
    if isinstance(error, OSError) and not isinstance(error, OptMatchError) and error.errno:
        # A full disk behind stdout has no name of a file.
        name = error.filename
        if not name and error.errno in _DISK_FULL:
            name = "<stdout>"
        return ": ".join(filter(None, (name, error.strerror)))
    return str(error)


def say(message: str) -> None:
    """Write one line on stderr; control characters are written out."""
    line = " ".join(message.split())

    # Characters that a terminal would obey become their escapes.
    letters = [letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line]
    click.echo(f"optmatch: {''.join(letters)}", err=True)


IS_QUIET = "optmatch.quiet"
"""Where the context of a command keeps that its option `--quiet` was given."""


def say_written(output: str, content: str = "") -> None:
    """Say on stderr that a file was written, and what it is; nothing with `generate --quiet`."""
    if not click.get_current_context().meta.get(IS_QUIET):
        say(f"{output}: written{content}")


def write_text(text: str, output: str, *, force: bool, endings: Sequence[str] = ()) -> None:
    """Write a text to a file, and say so on stderr; or to stdout if the file is ``-``."""
    if output == STDIN:
        click.echo(text, nl=False)
        return
    replace_file(check_target(output, force=force, endings=endings), text.encode())
    say_written(output)


def print_object(tag: str, content: Mapping[str, Any]) -> None:
    """Write one tagged JSON object on a line of stdout."""
    click.echo(json.dumps(plain({"format": f"optmatch/{tag}/1", **content}), allow_nan=False))


def paint(text: str, good: bool) -> str:
    """Colour a verdict: green, or red where it is bad."""
    return click.style(text, fg="green" if good else "red")


def print_rows(rows: Mapping[str, Any], *, indent: int = 2) -> None:
    """Print names and values below each other; the ending of a name says the unit of a float."""
    lines = []
    for name, value in rows.items():
        words, unit = split_unit(name.replace("_centidb", "_db"))
        if name.endswith("_centidb"):
            lines.append((words, f"{value / 100:g} dB"))
        elif isinstance(value, float) and unit:
            lines.append((words, write_amount(value, unit, digits=6)))
        else:
            text = f"{value:.6g}" if isinstance(value, float) else value
            lines.append((name.replace("_", " "), text))
    width = max((len(words) for words, _ in lines), default=0)
    for words, text in lines:
        click.echo(f"{'':{indent}}{words:<{width}}  {text}")


# The colours of words that say how something went; a terminal without colours shows the words.
_COLOUR_OF_WORD = {
    "optimal": "green",
    "feasible": "cyan",
    "infeasible": "yellow",
    "unknown": "yellow",
    "refused": "yellow",
    "failed": "red",
    "damaged": "red",
}


def print_table(rows: Sequence[Sequence[str]], *, indent: int = 0) -> None:
    """Print rows of words in columns: the first to the left, the others to the right.

    In a terminal with colours the first row, which has the titles, is bold, and words that say how
    a task went have a colour each.
    """
    for number, (name, *figures) in enumerate(align_columns(rows)):
        cells = [" " * indent + name, *figures]
        if number == 0 and len(rows) > 1:
            click.echo(click.style("  ".join(cells).rstrip(), bold=True))
            continue
        click.echo("  ".join(map(_paint_word, cells)).rstrip())


def _paint_word(cell: str) -> str:
    """Colour a cell of a table that says how something went."""
    colour = _COLOUR_OF_WORD.get(cell.strip())
    return cell if colour is None else click.style(cell, fg=colour)


def for_each(files: Sequence[str], run: Callable[[str], int], *, as_json: bool) -> int:
    """Run a command on file after file, and return the worst exit code.

    `run` takes the name of a file and returns its code. An error in one file is printed, on stdout
    too if `as_json`, and does not stop the others; Ctrl-C does.
    """
    worst_code = SOLVED
    for file in files:
        try:
            code = run(file)
        except (OptMatchError, OSError, MemoryError) as exc:
            # Nothing more can be written to stdout, which has no name of a file: it is on a full
            # disk, or closed, where click ends in silence.
            no_more = (errno.EPIPE, *_DISK_FULL)
            if isinstance(exc, OSError) and not exc.filename and exc.errno in no_more:
                raise

            # An error of input that names no file is given the name of this one.
            name = name_of(file)
            if isinstance(exc, InputError) and not exc.path:
                exc.path = name
            code = _code_of(exc)
            message = describe(exc)
            say(message if message.startswith(name) else f"{name}: {message}")
            if as_json:
                print_object("error", {"file": file, "error": message, "exit_code": code})
        worst_code = max(worst_code, code, key=SEVERITY.index)

        with heeding() as signals:
            if code == INTERRUPTED or signals.received:
                break
    return worst_code


def name_of(file: str) -> str:
    """Return the name of an input in messages."""
    return "<stdin>" if file == STDIN else file


def read(file: str) -> Problem | Solution:
    """Read a file of optmatch, ``-`` for stdin: a problem or a solution.

    Anything else, such as a table of numbers, is an `InputError`.
    """
    from optmatch.io import load, loads

    # A pipe may make this wait for ever, so a signal ends it at once.
    with heeding() as signals, signals.held(lambda _number: False):
        if file != STDIN:
            # The ending tells a table; the message has the command that makes a problem of it.
            if suffix_of(file) in _TABLE_SUFFIXES:
                raise InputError(
                    "a table, and no problem file: `optmatch generate demand --matrix"
                    f" {file} --delay TIME -o problem.json` makes one of it; of a list of flows"
                    f" with their times, `optmatch simulate {file}` replays it",
                    path=file,
                )
            return load(file)
        if sys.stdin is None:  # as after `<&-` in a shell
            raise InputError("stdin is closed; a file was expected there", path=name_of(file))
        text = sys.stdin.buffer.read()
    if not text.lstrip().startswith(b"{"):
        raise InputError(
            "no file of optmatch; `solve FILE -o -` writes a schedule to its stdout",
            path=name_of(file),
        )
    return loads(text, path=name_of(file))


_TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".mtx", ".npy", ".npz")


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


def as_solution(content: Problem | Solution, file: str) -> Solution:
    """Return the content of a file if it is a solution, else raise `InputError`."""
    if not isinstance(content, Solution):
        raise InputError("a problem file; a schedule file is expected here", path=name_of(file))
    return content
