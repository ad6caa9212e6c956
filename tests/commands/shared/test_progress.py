"""Progress on terminals and in files, and interrupts at events."""

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from optmatch.commands.shared.interrupt import at_events, heeding, unbroken
from optmatch.commands.shared.progress import Progress
from optmatch.model import Bound, Event, Limit, Limits, NewBest, Tick, ignore, uncounted


@pytest.fixture(autouse=True)
def _listening() -> Iterator[None]:
    """Let Ctrl-C through: where a shell started the tests in the background, it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_next_event() -> None:
    """A method is never stopped between two assignments; a second Ctrl-C does not wait."""
    heard: list[Event] = []
    done = []
    with pytest.raises(KeyboardInterrupt), at_events(heard.append) as listen:
        listen(Tick("search", 1))
        signal.raise_signal(signal.SIGINT)
        done.append("the step that was under way")
        listen(Tick("search", 2))
        done.append("the next step")
    assert done == ["the step that was under way"]
    assert heard == [Tick("search", 1), Tick("search", 2)]
    with pytest.raises(KeyboardInterrupt), at_events(heard.append):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that reports nothing is stopped all the same, also where it waits for others."""
    monkeypatch.setattr("optmatch.commands.shared.interrupt.PATIENCE_S", 0.05)
    done = threading.Event()
    late = threading.Timer(10, done.set)
    late.start()
    with pytest.raises(KeyboardInterrupt), at_events(ignore):
        signal.raise_signal(signal.SIGINT)
        done.wait()
    late.cancel()
    assert not done.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_catches_the_interrupt_ends_undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study makes its tables then, which may take longer than an event is waited for."""
    monkeypatch.setattr("optmatch.commands.shared.interrupt.PATIENCE_S", 0.05)
    done = []
    with at_events(ignore) as listen:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            listen(Tick("run", 1))
        time.sleep(0.2)
        done.append("tables")
    with at_events(ignore):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(200):
                time.sleep(0.05)
        done.append("tables of a run that reports nothing")
    assert len(done) == 2


def test_the_running_solve_stops_and_its_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the search ends in peace; a signal that comes then is not forgotten."""
    monkeypatch.setattr("optmatch.commands.shared.interrupt.PATIENCE_S", 0.01)
    saved = []
    with at_events(ignore, keep=True):
        clock = Limits().start()
        with clock.running():
            signal.raise_signal(signal.SIGINT)
            assert clock.exceeded(0) is Limit.INTERRUPTED
        time.sleep(0.05)
        saved.append("the first answer")
    with pytest.raises(KeyboardInterrupt), at_events(ignore, keep=True):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.05)
        saved.append("the second answer")
    assert saved == ["the first answer", "the second answer"]


def test_an_answer_that_was_told_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that puts together what it has told of may take longer than one without answer."""
    monkeypatch.setattr("optmatch.commands.shared.interrupt.PATIENCE_S", 0.01)
    done = []
    with at_events(ignore, keep=True) as listen, Limits().start().running():
        listen(NewBest(77.0))
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.1)
        done.append("answer with its states")
    assert done == ["answer with its states"]
    with at_events(ignore, keep=True) as listen, Limits().start().running():
        listen(Tick("search", 1))
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(5.0)


def test_no_import_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted import of OR-tools ended in an ImportError; the interrupt comes after it."""
    monkeypatch.setattr("optmatch.commands.shared.interrupt.PATIENCE_S", 0.02)
    done = []
    clock = Limits().start()
    with at_events(ignore, keep=True), clock.running(), pytest.raises(KeyboardInterrupt):
        with uncounted("importing"):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)
            done.append("modules")
        time.sleep(5.0)
    assert done == ["modules"]


def test_sigterm_is_treated_as_ctrl_c() -> None:
    with heeding() as signals, pytest.raises(KeyboardInterrupt), at_events(ignore) as listen:
        signal.raise_signal(signal.SIGTERM)
        assert signals.received == [signal.SIGTERM]
        listen(Tick("search", 1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with heeding(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_is_written_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    with heeding() as signals, unbroken():
        signal.raise_signal(signal.SIGINT)
        done.append("written")
        with pytest.raises(KeyboardInterrupt), at_events(ignore):
            done.append("searched on")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert done == ["written"] and signals.received == [signal.SIGINT] * 2


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_progress_on_a_file_is_a_line_every_five_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    progress = Progress("mesh", clock=clock)
    progress(NewBest(120.0))
    progress(Bound(100.0))
    for tenth in range(0, 121):
        clock.now = tenth / 10
        progress(Tick("slots", tenth, 120))
    progress.close()
    assert capsys.readouterr().err.splitlines() == [
        "mesh: 5 s, slots 50 of 120, best 120, at least 100",
        "mesh: 10 s, slots 100 of 120, best 120, at least 100",
    ]


def test_a_bound_that_no_answer_reaches_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress("mesh", clock=clock, unit=lambda: "cells")
    progress(Bound(float("inf")))
    clock.now = 5.0
    progress(Tick("negotiate", 8, 40))
    assert capsys.readouterr().err == "mesh: 5 s, negotiate 8 of 40\n"


def test_progress_on_a_terminal_is_one_line_that_goes_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    progress = Progress("mesh", terminal=True, clock=clock)
    for hundredth in range(0, 26):
        clock.now = hundredth / 100
        progress(Tick("search", hundredth))
    progress.close()
    text = capsys.readouterr().err
    shown = [part for part in text.split("\r") if part.strip()]
    assert shown == ["mesh: 0 s, search 10", "mesh: 0 s, search 20"]
    assert text.endswith("\r") and "\n" not in text and "\x1b" not in text


def test_verbose_progress_has_a_line_for_every_improvement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress("mesh", verbose=True, clock=Clock())
    progress(NewBest(5.0))
    progress(Tick("search", 1))
    assert capsys.readouterr().err == "mesh: 0 s, started, best 5\n"


def test_progress_on_a_terminal_has_a_bar_the_gap_and_the_time_to_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    progress = Progress("mesh", terminal=True, limit_s=60.0, unit=lambda: "s", clock=clock)
    progress(NewBest(0.004))
    progress(Bound(0.003))
    clock.now = 15.0
    progress(Tick("search", 7))
    progress.close()
    (shown,) = [part for part in capsys.readouterr().err.split("\r") if part.strip()]
    assert shown.startswith("mesh: [###         ] 45 s to go, search 7, best 4 ms, at least 3 ms")


def test_sigterm_keeps_the_best_where_ctrl_c_is_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    done = []
    with pytest.raises(KeyboardInterrupt), heeding(), at_events(ignore) as listen:
        signal.raise_signal(signal.SIGTERM)
        done.append("the step that was under way")
        listen(Tick("search", 1))
    assert done and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
