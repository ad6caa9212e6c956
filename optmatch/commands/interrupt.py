"""Ctrl-C while a method runs: at its next event, where its best answer is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from optmatch.model import Event, OnEvent

PATIENCE_S = 3.0
"""How long the first Ctrl-C waits for an event; a second one does not wait."""


@contextmanager
def at_events(on_event: OnEvent) -> Iterator[OnEvent]:
    """Hold Ctrl-C back until the method reports something.

    An exception between two assignments would leave the method with half an answer. It reports
    when it has a whole one. What is yielded is what it is to report to: it calls `on_event` too,
    and raises KeyboardInterrupt after a Ctrl-C.
    """
    timer = threading.Timer(PATIENCE_S, signal.raise_signal, [signal.SIGINT])
    timer.daemon = True
    asked = False

    def hold(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        timer.start()

    def listen(event: Event) -> None:
        on_event(event)
        if asked:
            timer.cancel()
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
