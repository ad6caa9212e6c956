"""The one worker thread that prepares answers while no caller waits for one."""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock, Thread
from typing import ClassVar
from weakref import WeakSet

from optmatch.control.reroutes.answering import Ahead, Snapshot, prepare_answers
from optmatch.model import Limits

_ONE_AT_A_TIME = Lock()
"""Held by the one controller of the process that prepares answers: more would only take turns."""

_LIMITS = Limits(time_s=0.005)
"""The limits of one answer. A call of `fail` waits at most as long for the one in work."""

_LONGEST_PAUSE_S = 1.0
"""Work goes on after so many seconds even if a caller still waits."""

_LONGEST_WAIT_AT_EXIT_S = 60.0
"""The end of the process waits so long for answers in work: the first one compiles kernels, which
takes 20 s on a slow machine."""


class Background:
    """Prepares the answers of the newest snapshot that it was given, and gives up older ones.

    The thread ends when nothing is left to do. `pause` holds it up between two answers. The end of
    the process waits for the answer in work: Python kills a thread that still runs then, and one
    that compiles at that moment would abort the whole process.
    """

    _all: ClassVar[WeakSet[Background]] = WeakSet()

    def __init__(self, ahead: Ahead) -> None:
        """Make a worker without work; its thread starts with the first snapshot.

        Parameters
        ----------
        ahead
            Which answers are prepared: to failures of units, to ``"all"`` single ones, or none.
        """
        self._ahead: Ahead = ahead
        self._changed = Condition()
        """Guards all fields below, and tells waiting threads of their changes."""
        self._next: Snapshot | None = None
        self._is_working = False
        self._n_callers = 0
        self._thread: Thread | None = None
        Background._all.add(self)

    def put(self, snapshot: Snapshot) -> None:
        """Prepare the answers of a snapshot instead of all before it.

        Parameters
        ----------
        snapshot
            The present state; its ``answers`` are filled by the worker thread, which is started if
            it does not run.
        """
        with self._changed:
            self._next = snapshot
            if self._is_working:
                return
            self._is_working = True
            self._thread = Thread(target=self._work, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Give up all work, after the answer that is being prepared."""
        with self._changed:
            self._ahead = False
            self._next = None

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, or the time is over."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the processor to the caller in this block."""
        with self._changed:
            self._n_callers += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_callers -= 1
                self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until nothing is left to do.

        Parameters
        ----------
        timeout_s
            The most seconds to wait; None for as long as it takes.

        Returns
        -------
        bool
            Whether nothing is left to do.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_working, timeout_s)

    def _work(self) -> None:
        """Prepare the answers of the newest snapshot, until there is no newer one.

        This is all that the thread does. Controllers of one process take turns. After an error the
        thread ends, and whoever waits for it is woken.
        """
        while True:
            with self._changed:
                snapshot = self._next
                self._next = None
                if snapshot is None:
                    self._end_work()
                    return
            try:
                with _ONE_AT_A_TIME:
                    prepare_answers(
                        snapshot, self._ahead, limits=_LIMITS, is_wanted=self._is_wanted
                    )
            except BaseException:
                with self._changed:
                    self._end_work()
                raise

    def _end_work(self) -> None:
        """Note that the worker thread ends, and wake who waits; the caller holds the lock."""
        self._is_working = False
        self._changed.notify_all()

    def _is_wanted(self) -> bool:
        """Wait for callers, then tell whether there is no newer snapshot."""
        with self._changed:
            self._changed.wait_for(lambda: not self._n_callers, _LONGEST_PAUSE_S)
            return self._next is None and bool(self._ahead)


@atexit.register
def _end_all_work() -> None:
    """Give up the work of all controllers, and wait for the answers in work."""
    remaining = list(Background._all)
    for background in remaining:
        background.stop()
    end_s = time.monotonic() + _LONGEST_WAIT_AT_EXIT_S
    for background in remaining:
        background.join(max(0.0, end_s - time.monotonic()))
