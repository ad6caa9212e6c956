"""Ctrl-C and SIGTERM while a command runs: results so far are kept, and nothing is half done."""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from optmatch.model import Event, OnEvent, running_clock
from optmatch.startup import end

PATIENCE_S = 0.5
"""How long the first Ctrl-C waits for an event; a second one does not wait."""

_OTHERS = signal.default_int_handler, signal.SIG_DFL, end


class Signals:
    """Handles both signals: notes them, and raises where no block holds them back."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.hold: Callable[[int], bool] | None = None
        self.over = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Take notice of a signal."""
        self.came.append(number)
        if not self.over and (self.hold is None or not self.hold(number)):
            raise KeyboardInterrupt

    @contextmanager
    def held(self, hold: Callable[[int], bool]) -> Iterator[None]:
        """Ask `hold` in this block whether a signal waits."""
        before = self.hold
        self.hold = hold
        try:
            yield
        finally:
            self.hold = before


@contextmanager
def heeding() -> Iterator[Signals]:
    """Listen to both signals in this block, unless somebody else does, or they are ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if isinstance(running := signal.getsignal(number), Signals):
            yield running
            return
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # which never come
        return
    _ignore_at_exit()
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, other in before.items():
            if other in _OTHERS:
                signal.signal(number, signals)
        yield signals
    finally:
        signals.over = True
        for number, other in before.items():
            if other in _OTHERS:
                signal.signal(number, other)


@cache
def _ignore_at_exit() -> None:
    """Let no signal disturb the end of the process, where nothing is left to stop."""

    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    atexit.register(ignore)


@contextmanager
def at_events(on_event: OnEvent, *, keep: bool = False) -> Iterator[OnEvent]:
    """Hold signals back until the method reports something.

    An exception between two assignments would leave the method with half an answer. It reports
    when it has a whole one. The yielded `on_event` calls the given one, and raises
    KeyboardInterrupt after a signal. The clock of a solve that runs is stopped at once.

    With `keep`, an answer that is being checked or saved is not lost: that ends first. A signal
    that has come before is raised at once.
    """
    asked = reminded = heeded = False
    timer: threading.Timer | None = None

    def remind(number: int, thread: int) -> None:
        nonlocal reminded
        reminded = True
        if hasattr(signal, "pthread_kill"):  # this also wakes a thread that waits for others
            signal.pthread_kill(thread, number)
        else:
            signal.raise_signal(number)

    def hold(number: int) -> bool:
        nonlocal asked, reminded, heeded, timer
        clock = running_clock()
        if asked:
            waits = reminded and keep and clock is None
            reminded = False
            heeded = heeded or not waits
            return waits
        asked = True
        if clock is not None:
            clock.interrupted = heeded = True
        timer = threading.Timer(PATIENCE_S, remind, [number, threading.get_ident()])
        timer.daemon = True
        timer.start()
        return True

    def listen(event: Event) -> None:
        nonlocal heeded
        on_event(event)
        if asked:
            heeded = True
            if timer is not None:
                timer.cancel()  # the handler of the interrupt ends its work undisturbed
            raise KeyboardInterrupt

    with heeding() as signals:
        try:
            with signals.held(hold):
                if signals.came and not asked:
                    raise KeyboardInterrupt
                yield listen
        finally:
            if timer is not None:
                timer.cancel()
    if asked and not heeded:
        raise KeyboardInterrupt


@contextmanager
def unbroken() -> Iterator[None]:
    """Hold the first signal in this block back: it ends only what `at_events` surrounds.

    So what was found until then is written to its end. A second signal does not wait.
    """
    came = 0

    def hold(_number: int) -> bool:
        nonlocal came
        came += 1
        return came == 1

    with heeding() as signals, signals.held(hold):
        yield
