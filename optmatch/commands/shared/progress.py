"""Progress on stderr while a command works."""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

from optmatch.commands.shared.interrupt import at_events
from optmatch.model import (
    Bound,
    Event,
    NewBest,
    OnEvent,
    Score,
    Tick,
    gap_between,
    ignore,
    is_known,
    write_score,
)
from optmatch.model.limits import current_stopwatch
from optmatch.solvers.kernels.listeners import told_of_compiling

INTERVAL_S = 5.0
"""The time between two lines where stderr is no terminal."""

_TERMINAL_INTERVAL_S = 0.1
"""The time between two changes of the line on a terminal."""

_BAR_WIDTH = 12


class Progress:
    """Listens to a method and keeps one line on a terminal up to date, or writes one now and then.

    The name is that of the file. If `verbose`, every better answer or bound has a line of
    its own. On a `terminal` a line is written over, with a bar of the time until `limit_s`, and
    with the gap. `unit` returns the unit of the objective, once the problem is read; `clock`
    returns seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        verbose: bool = False,
        terminal: bool = False,
        limit_s: float | None = None,
        unit: Callable[[], str] = str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare a line of progress; nothing is written before the first event that is due.

        The next line is due `next_s` seconds after `started`, a time of `clock`. `best` and
        `bound` are the best objective and the best bound that events have told.
        """
        self._width = 0  # of the line that the next one is written over
        self.unit = unit
        self.limit_s = limit_s
        self.name = name
        self.verbose = verbose
        self.terminal = terminal
        self.clock = clock
        self.started = clock()
        self.interval_s = _TERMINAL_INTERVAL_S if terminal else INTERVAL_S
        self.next_s = self.interval_s
        self.phase = "started"
        self.best: Score | None = None
        self.bound: Score | None = None
        self.n_compiled = 0
        self.first_tick: Tick | None = None

    def __call__(self, event: Event) -> None:
        """Take note of an event, and write the line if it is due.

        Answers and bounds have a line of their own if verbose; otherwise a line is written when
        the interval since the last one is over.
        """
        if isinstance(event, NewBest):
            self.best = event.objective
        elif isinstance(event, Bound):
            self.bound = event.lower_bound
        else:
            total = f" of {event.total}" if event.total else ""
            rate = self._describe_rate(event) if self.terminal else ""
            self.phase = f"{event.phase} {event.done}{total}{rate}"

        elapsed_s = self.clock() - self.started
        if self.verbose and not isinstance(event, Tick):
            self._write(elapsed_s, stays=True)
        elif elapsed_s >= self.next_s:
            self.next_s = elapsed_s + self.interval_s
            self._write(elapsed_s, stays=not self.terminal)

    def compiling(self, kernel: str) -> None:
        """Say that numba compiles a kernel: once for each installation, and it takes seconds."""
        self.n_compiled += 1
        if self.terminal:
            self._show(f"compiling, once: {self.n_compiled}, {kernel}", stays=False)
        elif self.n_compiled == 1:
            self._show("compiling, once: kernels, which does not count", stays=True)

    def importing(self) -> None:
        """Say that modules are loaded, which takes seconds from a disk that is cold."""
        self._show("loading modules, which does not count", stays=not self.terminal)

    def _describe_rate(self, tick: Tick) -> str:
        """Say how fast tasks of a sweep or slots of a plan are done, as ", 2.5/s, 40 s to go".

        It is empty for other phases, as long as none is done, and if nobody knows how many come.
        """
        elapsed_s = self.clock() - self.started

        # The first tick counts the rows that the store had before, which took no time here.
        if self.first_tick is None or self.first_tick.phase != tick.phase:
            self.first_tick = tick
        n_done_here = tick.done - self.first_tick.done
        is_steady = tick.phase in ("tasks", "slots") and tick.total > 0
        if not is_steady or not n_done_here or not elapsed_s:
            return ""
        remaining_s = (tick.total - tick.done) * elapsed_s / n_done_here
        return f", {n_done_here / elapsed_s:.3g}/s, {remaining_s:.0f} s to go"

    def _write(self, elapsed_s: float, *, stays: bool) -> None:
        """Write the line of progress: time, phase, best objective, bound and gap.

        With a time limit, a terminal shows a bar and what is left. The next line is written over
        it unless it `stays`.
        """
        parts = [f"{self.name}: {elapsed_s:.0f} s", self.phase]
        if self.terminal and self.limit_s:
            share = min(1.0, elapsed_s / self.limit_s)
            bar = "#" * int(_BAR_WIDTH * share)
            remaining_s = max(0.0, self.limit_s - elapsed_s)
            parts[0] = f"{self.name}: [{bar:<{_BAR_WIDTH}}] {remaining_s:.0f} s to go"

        if self.best is not None:
            parts.append(f"best {write_score(self.best, self.unit())}")
        if is_known(self.bound):
            parts.append(f"at least {write_score(self.bound, self.unit())}")
        if self.terminal and self.best is not None and self.bound is not None:
            gap = gap_between(self.best, self.bound)
            if gap < math.inf:
                parts.append(f"gap {100 * gap:.3g} %")
        self._show(", ".join(parts), stays=stays)

    def _show(self, line: str, *, stays: bool) -> None:
        """Write a line in place of the last one, cut to the terminal if it does not stay."""
        self.close()
        if not stays:
            # A longer line would wrap, and its second part could not be wiped.
            line = line[: shutil.get_terminal_size().columns - 1]
        click.echo(line, nl=stays, err=True)
        self._width = 0 if stays else len(line)

    def close(self) -> None:
        """Wipe the line off the terminal."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
            self._width = 0


# How long modules may load until stderr says why nothing moves.
_IMPORT_PATIENCE_S = 0.7


@contextmanager
def _saying_slow_imports(progress: Progress) -> Iterator[None]:
    """Say once where modules load for so long that a user wonders why nothing moves.

    A thread looks every tenth of a second at what the stopwatch of the calling thread does not
    count.
    """
    stopwatch = current_stopwatch()
    ended = threading.Event()

    def watch() -> None:
        """Write the message once an import has lasted too long; return at the end of the block."""
        while not ended.wait(0.1):
            block = stopwatch.running_block()
            if block is None or block.reason != "importing":
                continue
            if time.perf_counter() - block.since_s > _IMPORT_PATIENCE_S:
                progress.importing()
                return

    threading.Thread(target=watch, name="optmatch-waiting", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def listening(
    name: str,
    *,
    quiet: bool = False,
    verbose: bool = False,
    keep: bool = False,
    limit_s: float | None = None,
    unit: Callable[[], str] = str,
) -> Iterator[OnEvent]:
    """Show progress on stderr while the block runs, unless `quiet`.

    The block gets a listener for events. After Ctrl-C it raises `KeyboardInterrupt` at the next
    event; with `keep` an answer is checked and saved first. The other arguments are those of
    `Progress`.
    """
    terminal = sys.stderr.isatty()
    progress = Progress(name, verbose=verbose, terminal=terminal, limit_s=limit_s, unit=unit)
    try:
        with ExitStack() as stack:
            if not quiet:
                stack.enter_context(told_of_compiling(progress.compiling))
                stack.enter_context(_saying_slow_imports(progress))
            yield stack.enter_context(at_events(ignore if quiet else progress, keep=keep))
    finally:
        progress.close()
