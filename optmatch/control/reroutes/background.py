"""The one worker thread that prepares answers while no caller waits for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock, Thread

from optmatch.control.reroutes.answering import Ahead, Snapshot, prepare
from optmatch.model import Limits

_ONE_AT_A_TIME = Lock()
_PATIENCE = Limits(time_s=0.005)
"""The time limit of an answer that is prepared in the background."""


class Background:
    """Prepares the newest snapshot that it was given, and gives up older ones.

    The thread ends when nothing is left to do. `asked` holds it up between two answers.
    """

    def __init__(self, ahead: Ahead) -> None:
        self._ahead: Ahead = ahead
        self._changed = Condition()
        self._next: Snapshot | None = None
        self._working = False
        self._asking = 0

    def put(self, now: Snapshot) -> None:
        """Prepare a snapshot instead of all before it."""
        with self._changed:
            self._next = now
            if self._working:
                return
            self._working = True
        Thread(target=self._work, daemon=True).start()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Leave the processor to the callers in this block."""
        with self._changed:
            self._asking += 1
        try:
            yield
        finally:
            with self._changed:
                self._asking -= 1
                self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until nothing is left to do; tell whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._working, timeout_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                now, self._next = self._next, None
                if now is None:
                    self._working = False
                    self._changed.notify_all()
                    return
            try:
                with _ONE_AT_A_TIME:  # of many controllers, too
                    prepare(now, self._ahead, limits=_PATIENCE, going_on=self._goes_on)
            except BaseException:
                with self._changed:
                    self._working = False
                    self._changed.notify_all()
                raise

    def _goes_on(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: not self._asking, 1.0)
            return self._next is None
