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
    write_score,
)
from optmatch.model.limits import current_stopwatch
from optmatch.solvers.kernels.listeners import told_of_compiling

INTERVAL_S = 5.0
"""The time between two lines where stderr is no terminal."""


class Progress:
    """Listens to a method and keeps one line on a terminal up to date, or writes one now and then.

    If `verbose`, every better answer or bound has a line of its own. `terminal` tells whether
    stderr is one, where a line can be written over: there with a bar of the time until `limit_s`,
    and with the gap. `unit` names that of the objective, once the problem is read; `clock` gives
    seconds.
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
        self.unit = unit
        self.limit_s = limit_s
        self.name = name
        self.verbose = verbose
        self.terminal = terminal
        self.clock = clock
        self.started = clock()
        self.next_s = 0.1 if terminal else INTERVAL_S
        self.phase = "started"
        self.best: Score | None = None
        self.bound: Score | None = None
        self.width = 0
        self.compiled = 0
        self.first: Tick | None = None

    def __call__(self, event: Event) -> None:
        """Take notice of an event."""
        if isinstance(event, NewBest):
            self.best = event.objective
        elif isinstance(event, Bound):
            self.bound = event.lower_bound
        else:
            total = f" of {event.total}" if event.total else ""
            rate = self._rate(event) if self.terminal else ""
            self.phase = f"{event.phase} {event.done}{total}{rate}"
        elapsed = self.clock() - self.started
        if self.verbose and not isinstance(event, Tick):
            self._write(elapsed, stays=True)
        elif elapsed >= self.next_s:
            self.next_s = elapsed + (0.1 if self.terminal else INTERVAL_S)
            self._write(elapsed, stays=not self.terminal)

    def compiling(self, kernel: str) -> None:
        """Say that numba compiles a kernel: once for each installation, and it takes seconds."""
        self.compiled += 1
        if self.terminal:
            self._show(f"compiling, once: {self.compiled}, {kernel}", stays=False)
        elif self.compiled == 1:
            self._show("compiling, once: kernels, which does not count", stays=True)

    def importing(self) -> None:
        """Say that modules are loaded, which takes seconds from a disk that is cold."""
        self._show("loading modules, which does not count", stays=not self.terminal)

    def close(self) -> None:
        """Wipe the line off the terminal."""
        if self.width:
            click.echo("\r" + " " * self.width + "\r", nl=False, err=True)
            self.width = 0

    def _rate(self, tick: Tick) -> str:
        """Say how fast tasks are done, and how long the others will take."""
        elapsed = self.clock() - self.started
        if self.first is None or self.first.phase != tick.phase:
            self.first = tick  # rows that the store had before are not counted
        done = tick.done - self.first.done
        if tick.phase != "tasks" or not done or not elapsed:
            return ""
        left = (tick.total - tick.done) * elapsed / done
        return f", {done / elapsed:.3g}/s, {left:.0f} s to go"

    def _write(self, elapsed: float, *, stays: bool) -> None:
        parts = [f"{self.name}: {elapsed:.0f} s", self.phase]
        if self.terminal and self.limit_s:
            done = min(1.0, elapsed / self.limit_s)
            rest = f"{max(0.0, self.limit_s - elapsed):.0f} s to go"
            parts[0] = f"{self.name}: [{'#' * int(12 * done):<12}] {rest}"
        if self.best is not None:
            parts.append(f"best {write_score(self.best, self.unit())}")
        if self.bound is not None:
            parts.append(f"at least {write_score(self.bound, self.unit())}")
        if self.terminal and self.best is not None and self.bound is not None:
            gap = gap_between(self.best, self.bound)
            parts += [f"gap {100 * gap:.2g} %"] if gap < math.inf else []
        self._show(", ".join(parts), stays=stays)

    def _show(self, line: str, *, stays: bool) -> None:
        self.close()
        if not stays:
            line = line[: shutil.get_terminal_size().columns - 1]  # a second line would stay
        click.echo(line, nl=stays, err=True)
        self.width = 0 if stays else len(line)


_SAID_AFTER_S = 0.7
"""How long work that does not count may take until it is said why nothing moves."""


@contextmanager
def _waiting_is_said(progress: Progress) -> Iterator[None]:
    """Say once where modules are loaded for so long that a user wonders; it counts in no limit."""
    stopwatch = current_stopwatch()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            block = stopwatch.running_block()
            if block is None or block.reason != "importing":
                continue
            if time.perf_counter() - block.since_s > _SAID_AFTER_S:
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
    """Show progress on stderr unless `quiet`; Ctrl-C comes at the next event."""
    terminal = sys.stderr.isatty()
    progress = Progress(name, verbose=verbose, terminal=terminal, limit_s=limit_s, unit=unit)
    try:
        with ExitStack() as stack:
            if not quiet:
                stack.enter_context(told_of_compiling(progress.compiling))
                stack.enter_context(_waiting_is_said(progress))
            yield stack.enter_context(at_events(ignore if quiet else progress, keep=keep))
    finally:
        progress.close()
