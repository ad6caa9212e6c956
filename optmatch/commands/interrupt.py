"""Ctrl-C and SIGTERM while a method runs: where its best answer is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from optmatch.model import Event, OnEvent, running_clock

PATIENCE_S = 0.5
"""How long the first Ctrl-C waits for an event; a second one does not wait."""


@contextmanager
def at_events(on_event: OnEvent, *, keep: bool = False) -> Iterator[OnEvent]:
    """Hold Ctrl-C back until the method reports something.

    An exception between two assignments would leave the method with half an answer. It reports
    when it has a whole one. What is yielded is what it is to report to: it calls `on_event` too,
    and raises KeyboardInterrupt after a Ctrl-C. The clock of a solve that runs is stopped at once.

    With `keep`, an answer that is being checked or saved is not lost: that ends first.
    """
    asked = reminded = heeded = False

    def remind() -> None:
        nonlocal reminded
        reminded = True
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(PATIENCE_S, remind)
    timer.daemon = True

    def hold(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked, reminded, heeded
        clock = running_clock()
        if asked:
            if reminded and keep and clock is None:
                reminded = False
                return
            raise KeyboardInterrupt
        asked = True
        if clock is not None:
            clock.interrupted = heeded = True
        timer.start()

    def listen(event: Event) -> None:
        nonlocal heeded
        on_event(event)
        if asked:
            timer.cancel()
            heeded = True
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield on_event  # somebody else listens, or nobody is to
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield listen
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked and not heeded:
        raise KeyboardInterrupt


@contextmanager
def terminable() -> Iterator[list[int]]:
    """Treat SIGTERM as Ctrl-C in this block; yield a list of the signals of that kind."""
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        listener = signal.getsignal(signal.SIGINT)
        if not callable(listener):  # Ctrl-C is ignored, as in the background of a shell
            raise KeyboardInterrupt
        listener(signal.SIGINT, frame)

    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield came
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
