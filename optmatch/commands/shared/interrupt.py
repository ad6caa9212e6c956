"""Ctrl-C and SIGTERM while a command runs: results so far are kept, and nothing is half done."""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from optmatch.model import Event, NewBest, OnEvent, running_clock
from optmatch.model.limits import current_stopwatch
from optmatch.startup import end

PATIENCE_S = 0.5
"""How long the first Ctrl-C waits for an event; a second one does not wait."""

_PATIENCE_WITH_ANSWER_S = 3.0
"""How long it waits once a solve has told of an answer.

The clock of the solve stands from the signal on, and methods look at it every few milliseconds, so
most end at once. Those that are just putting their answer together must not be cut in the middle:
on a busy machine that took up to a second, and at `PATIENCE_S` answers were lost.
"""

# Handlers of signals that may be replaced; any other one belongs to the program around us.
_REPLACEABLE_HANDLERS = signal.default_int_handler, signal.SIG_DFL, end


class Signals:
    """A handler of SIGINT and SIGTERM that records them, and raises `KeyboardInterrupt`.

    A block of code can hold a signal back, so that nothing is raised.

    Attributes
    ----------
    received
        The numbers of all signals so far.
    hold
        Returns whether a signal is held back; None if none is.
    over
        Whether signals are recorded alone, since there is nothing left to stop.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.hold: Callable[[int], bool] | None = None
        self.over = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Record a signal, and raise `KeyboardInterrupt` unless it is held back."""
        self.received.append(number)
        if self.over:
            return
        if self.hold is None or not self.hold(number):
            raise KeyboardInterrupt

    @contextmanager
    def held(self, hold: Callable[[int], bool]) -> Iterator[None]:
        """Let a function decide in this block whether a signal, by its number, is held back.

        It then raises no `KeyboardInterrupt`.
        """
        hold_before = self.hold
        self.hold = hold
        try:
            yield
        finally:
            self.hold = hold_before


@contextmanager
def heeding() -> Iterator[Signals]:
    """Record SIGINT and SIGTERM in this block, and raise `KeyboardInterrupt`.

    A block inside another one shares its handler; a signal that is ignored, or for which somebody
    else has a handler, keeps it. In a thread other than the main one no signal comes.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if isinstance(handler, Signals):
            yield handler
            return

    # Python lets the main thread alone set handlers.
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    _ignore_signals_at_exit()
    handler_before = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        for number, handler in handler_before.items():
            if handler in _REPLACEABLE_HANDLERS:
                signal.signal(number, signals)
        yield signals
    finally:
        signals.over = True
        for number, handler in handler_before.items():
            if handler in _REPLACEABLE_HANDLERS:
                signal.signal(number, handler)


@cache
def _ignore_signals_at_exit() -> None:
    """Let no signal disturb the end of the process, where nothing is left to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        atexit.register(signal.signal, number, signal.SIG_IGN)


class _HeldInterrupt:
    """The first signal of a block, from its arrival to the KeyboardInterrupt that it becomes.

    With `keep`, what comes after a solve, its check and its file, ends before the interrupt. A
    timer sends the signal again, to a thread that does not react: `_is_reminder` tells that one
    from a signal of the user. `_has_answer` says whether the method has told an answer.
    """

    def __init__(self, on_event: OnEvent, keep: bool) -> None:
        """Prepare for the first signal of a block."""
        self.on_event = on_event
        self.keep = keep
        self.arrived = False
        self.heeded = False
        """Whether somebody acts on the signal: a clock that stands, or whoever was interrupted."""
        self._has_answer = False
        self._is_reminder = False
        self._timer: threading.Timer | None = None

    def hold(self, number: int) -> bool:
        """Decide whether a signal waits for the next event of the method.

        `number` is that of the signal; the result is True if it waits, False if it becomes a
        `KeyboardInterrupt` now. The first one stops the clock of the running solve, and waits; a
        timer sends it again, as a reminder, to a thread that does not react. A second signal of
        the user does not wait.
        """
        clock = running_clock()
        if self.arrived:
            # Out of the middle of an import an exception comes as another, or not at all.
            block = current_stopwatch().running_block()
            if block is not None and block.reason == "importing":
                self._is_reminder = False
                self._remind_after(PATIENCE_S, number)
                return True

            # A second signal of the user does not wait. The reminder of the first one does where
            # no solve runs any more: what is found is being checked or written then.
            waits = self._is_reminder and self.keep and clock is None
            self._is_reminder = False
            self.heeded = self.heeded or not waits
            return waits

        # A method with an answer gets more patience, since that is checked and saved before the
        # end.
        self.arrived = True
        patience_s = PATIENCE_S
        if clock is not None:
            clock.interrupted = True
            self.heeded = True
            if self.keep and self._has_answer:
                patience_s = _PATIENCE_WITH_ANSWER_S
        self._remind_after(patience_s, number)
        return True

    def _remind_after(self, patience_s: float, number: int) -> None:
        """Send the signal to this thread again after some seconds; no earlier reminder comes."""
        self.forget_reminder()
        thread = threading.get_ident()
        self._timer = threading.Timer(patience_s, self._remind, [number, thread])
        self._timer.daemon = True
        self._timer.start()

    def listen(self, event: Event) -> None:
        """Pass an event on; after a signal, end the method by `KeyboardInterrupt`.

        It has whole answers when it reports, and keeps the best.
        """
        self.on_event(event)
        if isinstance(event, NewBest):
            self._has_answer = True
        if self.arrived:
            self.heeded = True
            self.forget_reminder()  # who handles the interrupt ends its work undisturbed
            raise KeyboardInterrupt

    def forget_reminder(self) -> None:
        """Send no reminder any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _remind(self, number: int, thread: int) -> None:
        """Send the signal again to the thread that has not reacted."""
        self._is_reminder = True
        if hasattr(signal, "pthread_kill"):  # this also wakes a thread that waits for others
            signal.pthread_kill(thread, number)
        else:
            signal.raise_signal(number)


@contextmanager
def at_events(on_event: OnEvent, *, keep: bool = False) -> Iterator[OnEvent]:
    """Hold signals back until the method reports something.

    The listener that the block gets then raises `KeyboardInterrupt`: an exception between two
    assignments would leave the method with half an answer. The clock of a solve is stopped at
    once. With `keep`, an answer that is being checked or saved is not lost.
    """
    interrupt = _HeldInterrupt(on_event, keep)
    with heeding() as signals:
        try:
            with signals.held(interrupt.hold):
                if signals.received and not interrupt.arrived:
                    raise KeyboardInterrupt
                yield interrupt.listen
        finally:
            interrupt.forget_reminder()
    if interrupt.arrived and not interrupt.heeded:
        raise KeyboardInterrupt


@contextmanager
def unbroken() -> Iterator[None]:
    """Hold the first signal in this block back: it ends only what `at_events` surrounds.

    The results until then are written to their end. A second signal does not wait.
    """
    n_signals = 0

    def hold(_number: int) -> bool:
        """Hold the first signal back, and no later one."""
        nonlocal n_signals
        n_signals += 1
        return n_signals == 1

    with heeding() as signals, signals.held(hold):
        yield
