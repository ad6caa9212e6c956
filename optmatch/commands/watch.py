"""`optmatch watch`: failed ports of real switches become failures of a controller."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.options import Duration, with_options
from optmatch.commands.shared.outcome import STDIN, name_of, print_object, read_problem
from optmatch.commands.shared.switches import (
    SWITCH_OPTIONS,
    TIME_LIMIT,
    opened_switches,
)
from optmatch.model import InputError, naming

if TYPE_CHECKING:
    from optmatch.switches import WatchEvent


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

    # A controller that is not there begins with a problem.
    if file in ("", STDIN):
        raise click.UsageError(f"STATE = {file!r}: the name of files is expected, as pool")
    state: Any = None
    if not Path(file).exists():
        if begin is None:
            raise InputError("is not there: --begin PROBLEM says what runs", path=name_of(file))
        state = read_problem(begin)
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
