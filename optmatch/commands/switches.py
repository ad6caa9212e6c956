"""`optmatch play` and `watch`: a plan on real switches, and failed ports of them."""

from __future__ import annotations

import re
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.options import Duration, with_options
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    SOLVED,
    STDIN,
    name_of,
    print_object,
    print_rows,
    read_problem,
    read_solution,
    say,
)
from optmatch.commands.shared.progress import Progress
from optmatch.model import InputError, Tick, naming

if TYPE_CHECKING:
    from optmatch.switches import PlayedMoment, Switch, WatchEvent

SWITCH_OPTIONS = (
    click.option(
        "--switch",
        "switches",
        multiple=True,
        required=True,
        metavar="[NAME=]URL",
        help="redis://HOST:6379 (SONiC), scpi://HOST:5025 (Polatis) or dry:; where there are"
        " several switches once for each, as rail-0=redis://... or server-3=redis://...",
    ),
    click.option("--ports", type=click.Path(), help="CSV with the sides of each port: port,A,B."),
)
"""Which switches, and how their ports are named."""

TIME_LIMIT = click.option(
    "--time-limit", type=Duration(), default=10.0, help="How long circuits may take to be tuned."
)


@contextmanager
def opened_switches(addresses: tuple[str, ...]) -> Iterator[dict[str, Switch]]:
    """Open connections to all switches for a block, which gets them by name.

    Addresses are URLs such as ``redis://host:6379``, with names before them where there are
    several, as ``rail-0=redis://host:6379``; a single one may go without, and has the empty name.
    Where two names are equal, or one is missing, it is a usage error.
    """
    from optmatch.switches import DrySwitch, open_switch

    opened: dict[str, Switch] = {}
    try:
        for text in addresses:
            # An address may have an equals sign itself; a name stands before the scheme.
            name = ""
            url = text
            if "=" in text.partition(":")[0]:
                name, _, url = text.partition("=")
            if name in opened or (opened and "" in (*opened, name)):
                raise click.UsageError(f"--switch {name or url}: a name of its own for each")
            opened[name] = open_switch(url)
            # A rehearsal of several switches says of which one a line is.
            if name and isinstance(opened[name], DrySwitch):
                opened[name] = DrySwitch(write=partial(_write_line_of, name))
        yield opened
    finally:
        for switch in opened.values():
            switch.close()


def _write_line_of(name: str, line: str) -> None:
    """Print what a rehearsal does at one of several switches."""
    click.echo(f"{name}: {line}")


_STDIN_POLL_S = 0.2
_RANGE = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
_MOST_PORTS = 1 << 20


@click.command()
@click.argument("file", metavar="PLAN", type=click.Path())
@with_options(SWITCH_OPTIONS)
@click.option("--only", metavar="LIST", help="Ports that may be touched, as 0-15,20,rack-9.")
@click.option("--take-over", is_flag=True, help="Remove circuits of others on ports of the plan.")
@click.option("--step", is_flag=True, help="Wait for Enter before each slot, not for its time.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, help="Play the plan so often.")
@click.option("--loop", is_flag=True, help="Play the plan until it is stopped.")
@click.option(
    "--own-delay",
    type=Duration(),
    default=0.0,
    help="What a change of the switch takes, as 50ms: shorter slots are refused.",
)
@click.option("--stretch", is_flag=True, help="Hold slots shorter than --own-delay for as long.")
@TIME_LIMIT
@click.option("--journal", type=click.Path(), help="Note what is done in this file.")
@click.option("--resume", is_flag=True, help="Go on where the run of the journal stood.")
@click.option("--restore", is_flag=True, help="Put back at the end what was there before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def play(
    ctx: click.Context,
    /,
    *,
    file: str,
    switches: tuple[str, ...],
    ports: str | None,
    only: str | None,
    take_over: bool,
    step: bool,
    rounds: int,
    loop: bool,
    own_delay: float,
    stretch: bool,
    time_limit: float,
    journal: str | None,
    resume: bool,
    restore: bool,
    as_json: bool,
) -> None:
    """Play a plan on switches: each slot is tuned before its time counts. `-` is stdin.

    Nothing is sent that `verify` refuses. Ports of others are never touched, and a circuit that is
    not the plan's on one of its ports is an error. Ctrl-C ends it after a whole slot.
    """
    # `file` is the plan, `switches` are URLs of the switches, and `ports` is a file with the two
    # sides of each port (None: as numbered). `only` lists the ports that may be touched, by number
    # or name (None: those of the plan). `own_delay` is how long a change of the switch takes, and
    # `time_limit` how long circuits may take to be tuned, both in seconds. `journal` is a file
    # that notes what is done. The others are flags, which the options of these names explain.
    from optmatch.switches import PlayOptions, play as play_plan

    # Options that do not go together are refused first.
    if resume and journal is None:
        raise click.UsageError("--resume: only with --journal")
    if journal == STDIN:
        raise click.UsageError("--journal -: the name of a file is expected")
    if step and file == STDIN:
        raise click.UsageError("--step: not with a plan from stdin, as it waits for Enter there")

    # How the plan is played: slots at their times or, with --step, each after Enter; None for an
    # endless number of rounds.
    solution = read_solution(file)
    fabric = solution.problem.fabric
    names = () if fabric is None else fabric.labels
    stop = threading.Event()
    n_rounds = None if loop else rounds
    options = PlayOptions(
        pace="told" if step else "times",
        next_slot=(lambda: _wait_for_enter(stop)) if step else None,
        rounds=n_rounds,
        own_delay_s=own_delay,
        stretch=stretch,
        take_over=take_over,
        only_ports=None if only is None else _read_ports(only, names),
        time_limit_s=time_limit,
        journal=journal,
        resume=resume,
        restore=restore,
    )
    progress = Progress(Path(name_of(file)).name, terminal=sys.stderr.isatty())

    def show_progress(moment: PlayedMoment, n_moments: int) -> None:
        """Show how many slots of all rounds were played, each a moment of the plan."""
        n_played = moment.round * n_moments + moment.moment + 1
        progress(Tick("slots", n_played, n_moments * (n_rounds or 0)))

    # Whatever happens, the line of progress is wiped and connections are closed.
    with opened_switches(switches) as opened, closing(progress), naming(name_of(file)):
        report = play_plan(
            solution,
            opened.get("", opened),
            options,
            ports=ports,
            on_moment=show_progress if sys.stderr.isatty() else None,
            stop=stop,
        )

    # The figures of the run; the exit code tells whether it was the whole plan.
    figures = report.figures()
    if as_json:
        print_object("play", {"file": file, "whole": report.is_whole, **figures})
    else:
        click.echo(f"{name_of(file)}: {'played' if report.is_whole else 'stopped'}")
        print_rows(figures)
    ctx.exit(SOLVED if report.is_whole else INTERRUPTED)


def _read_ports(text: str, names: Sequence[str]) -> frozenset[int]:
    """Read a list of ports such as ``0-15,20,rack-9``: numbers, ranges with both ends, names.

    `names` are those of the ports, by number; a port may have a name that looks like a range.
    Other parts are refused as a wrong option.
    """
    ports: set[int] = set()
    for part in text.split(","):
        if part in names:
            ports.add(names.index(part))
            continue
        if _RANGE.fullmatch(part) is None:
            raise click.UsageError(f"--only {part[:40]!r}: ports as 0-15,20, or their names")
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            raise click.UsageError(f"--only {part}: the last port of a range is below its first")
        if int(last or first) >= _MOST_PORTS:
            raise InputError(f"--only {part}: ports are below {_MOST_PORTS}")
        ports.update(range(int(first), int(last or first) + 1))
    return frozenset(ports)


def _wait_for_enter(stop: threading.Event) -> None:
    """Wait for a line on stdin before the next slot is played; its end sets `stop`."""
    say("Enter: the next slot")
    while not stop.is_set():
        readable, _, _ = select.select([sys.stdin], [], [], _STDIN_POLL_S)
        if readable:
            if not sys.stdin.readline():
                stop.set()
            return


@click.command()
@click.argument("file", metavar="STATE", type=click.Path())
@with_options(SWITCH_OPTIONS)
@click.option(
    "--begin",
    type=click.Path(),
    help="A problem file of kind reroute, to begin with where STATE is not there yet.",
)
@click.option("--apply", is_flag=True, help="Apply answers; otherwise they are only told.")
@TIME_LIMIT
@click.option("--for", "watch_s", type=Duration(), help="Stop after this time.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each event.")
def watch(
    *,
    file: str,
    switches: tuple[str, ...],
    ports: str | None,
    begin: str | None,
    apply: bool,
    time_limit: float,
    watch_s: float | None,
    as_json: bool,
) -> None:
    """Watch switches: a port that fails is a failure, and is answered.

    STATE is a controller in files, as `om.Rerouter.open` keeps it: each change is on record there
    before it is sent. At the start, circuits on the switches that differ from the record are told,
    or with --apply mended.
    """
    # `file` is the controller, `begin` the problem with which a new one begins (None: it is there
    # already), `switches` are URLs of the switches, and `ports` is a file with the two sides of
    # each port (None: as numbered). `time_limit` says how long circuits may take to be tuned, and
    # `watch_s` how long to watch, both in seconds (None: for ever).
    import optmatch as om
    from optmatch.switches import Watcher

    # A controller that is not there, or whose file is empty, begins with a problem. What no
    # controller can begin with is refused before the file is made.
    if file in ("", STDIN):
        raise click.UsageError(f"STATE = {file!r}: the name of files is expected, as pool")
    state: Any = None
    if not om.Rerouter.is_begun(file):
        if begin is None:
            raise InputError(
                "is not there, or empty: --begin PROBLEM says what runs", path=name_of(file)
            )
        state = read_problem(begin)
        with naming(name_of(begin)):
            om.Rerouter(state)
    stop = threading.Event()

    def tell(event: WatchEvent) -> None:
        """Print what has happened on a switch, as a JSON object or a line."""
        if as_json:
            print_object("watch", {"at": round(time.time(), 3), **event._asdict()})
        else:
            took = f" ({1e3 * event.time_s:.0f} ms)" if event.time_s else ""
            click.echo(f"{event.what}: {event.message}{took}")

    with opened_switches(switches) as opened, ExitStack() as stack:
        # Files are begun only once it is known that the switches are those of the state.
        if state is not None:
            Watcher.check_switches(state, opened.get("", opened), ports=ports)
        controller = stack.enter_context(om.Rerouter.open(file, state))
        with naming(name_of(file)):
            watcher = Watcher(
                controller,
                opened.get("", opened),
                apply=apply,
                ports=ports,
                time_limit_s=time_limit,
                on_event=tell,
            )

        # It watches until it is stopped, or until the time is over.
        if watch_s is not None:
            timer = threading.Timer(watch_s, stop.set)
            timer.daemon = True
            timer.start()
            stack.callback(timer.cancel)
        watcher.run_until(stop)
