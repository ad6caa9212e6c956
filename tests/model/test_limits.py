"""Limits: from where time counts, which work does not, and that all of a solve heeds them."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import optmatch as om
from optmatch.kinds import default_method
from optmatch.model import (
    Problem,
    TimeUp,
    check_time,
    ignore,
    running_clock,
    uncounted,
    uncounted_s,
)
from optmatch.model.limits import (
    Stopwatch,
    UncountedBlock,
    counted_time,
    for_other_threads,
    own_stopwatch,
)
from tests.helpers.command import INSTANCES


class Looks:
    """A clock of tests: a second passes with every look at it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        """Look at it."""
        self.count += 1
        return float(self.count)


def mesh(rows: int) -> Problem:
    """Return an all-to-all on a mesh with faults of its own, so that no table is known yet."""
    return om.AllToAll(om.Faulty(om.HexMesh(rows, 4, ports=8), stuck_bar=[rows]))


def slices(rows: int) -> Problem:
    """Return a slice in racks of a size of their own."""
    return om.SliceAllocation(om.RackFabric(chips=(4, 4, 2 * rows)), (2, 2, 2))


@pytest.mark.parametrize("make", [mesh, slices])
def test_tables_and_bounds_count(make: Callable[[int], Problem]) -> None:
    looks, problem = Looks(), make(3)
    with om.Limits(time_s=4.0).start(looks).running():
        found = om.solve(problem, seed=0)
    assert (found.status, found.limit) == (om.Status.UNKNOWN, om.Limit.TIME)
    assert looks.count < 30


def test_what_is_known_when_time_is_up_is_kept() -> None:
    """After enough looks there is a schedule, though not the best one."""
    problem = om.AllToAll(om.HexMesh(9, 9, ports=32))
    with om.Limits(time_s=200.0).start(Looks()).running():
        found = om.solve(problem, seed=0)
    assert (found.status, found.limit) == (om.Status.FEASIBLE, om.Limit.TIME)


def test_a_count_inside_a_solve_ends_with_it() -> None:
    """A search that is given no limit of its own, or a longer one, has what the solve has left."""
    now = [0.0]
    outer = om.Limits(time_s=5.0).start(lambda: now[0])
    with outer.running():
        assert running_clock() is outer
        inner, short = om.Limits(time_s=9.0).start(), om.Limits(time_s=1.0).start()
        now[0] = 2.0
        assert (inner.remaining_s, short.remaining_s) == (3.0, 0.0)
        assert om.Limits().start().exceeded(7) is None
        check_time()
        now[0] = 5.0
        assert inner.exceeded(0) is om.Limit.TIME
        with pytest.raises(TimeUp):
            check_time()
    assert running_clock() is None
    assert om.Limits().start().remaining_s == math.inf


def test_an_interrupt_is_the_end_of_all_counts_inside() -> None:
    """No time is left, and the reason is the interrupt."""
    outer, problem = om.Limits().start(), mesh(2)
    with outer.running():
        inner = om.Limits(time_s=9.0).start()
        outer.interrupted = True
        assert inner.remaining_s == 0.0
        assert inner.exceeded(0) is om.Limit.INTERRUPTED
        found = om.solve(problem, seed=0)
    assert (found.status, found.limit) == (om.Status.UNKNOWN, om.Limit.INTERRUPTED)


def test_other_threads_count_for_themselves() -> None:
    told: list[Any] = []
    with om.Limits(time_s=0.0).start().running(), uncounted():
        thread = threading.Thread(target=lambda: told.append((running_clock(), counted_time())))
        thread.start()
        thread.join()
    assert told[0][0] is None and told[0][1] > 0


def test_a_clock_is_the_same_in_every_thread() -> None:
    """What its own thread had spent on imports counted in all others: a limit was over at once."""
    with uncounted("sleeping"):
        time.sleep(0.2)
    clock, told = om.Limits(time_s=60.0).start(), list[float]()
    thread = threading.Thread(target=lambda: told.append(clock.elapsed_s))
    thread.start()
    thread.join()
    assert told[0] < 0.1


def test_a_thread_that_compiles_holds_the_clock_of_its_solve() -> None:
    """And that of no other."""

    def compile_slowly() -> None:
        with uncounted("compiling"):
            time.sleep(0.3)

    def solve_apart() -> float:
        with own_stopwatch():
            clock = om.Limits().start()
            time.sleep(0.3)
            return clock.elapsed_s

    with own_stopwatch(), ThreadPoolExecutor(2) as pool:
        clock = om.Limits(time_s=60.0).start()
        with clock.running():
            working = pool.submit(for_other_threads(compile_slowly))
            apart = pool.submit(solve_apart)
            working.result()
        assert clock.elapsed_s < 0.2
        assert uncounted_s()["compiling"] >= 0.3
        assert apart.result() >= 0.3


def test_blocks_of_two_threads_that_overlap_are_counted_once() -> None:
    stopwatch = Stopwatch()
    first, second = UncountedBlock("compiling", 0.0), UncountedBlock("importing", 0.0)
    began_s = time.perf_counter()
    stopwatch.hold(first)
    stopwatch.hold(second)
    assert stopwatch.running_block() is second
    time.sleep(0.05)
    stopwatch.release(first)
    assert stopwatch.running_block() is second
    stopwatch.release(second)
    stopwatch.release(second)  # as after an interrupt
    assert stopwatch.running_block() is None
    assert sum(stopwatch.uncounted_by_reason().values()) <= time.perf_counter() - began_s


def test_what_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("optmatch.model.limits.time.perf_counter", lambda: now[0])
    clock = om.Limits(time_s=10.0).start()
    now[0] += 1.0
    before = uncounted_s()
    with uncounted("drawing"):
        now[0] += 20.0
        with uncounted("printing"):
            now[0] += 30.0
        now[0] += 5.0
    now[0] += 2.0
    assert clock.elapsed_s == pytest.approx(3.0)
    spent = {name: found - before.get(name, 0.0) for name, found in uncounted_s().items()}
    assert spent["drawing"] == pytest.approx(25.0) and spent["printing"] == pytest.approx(30.0)


def test_what_claims_nothing_is_not_recounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optmatch.entrances.verify", lambda *_: pytest.fail("it was checked"))
    found = om.solve(mesh(3), seed=0, time_limit_s=0.0)
    assert (found.status, found.limit, found.proof) == (om.Status.UNKNOWN, om.Limit.TIME, None)


@pytest.mark.parametrize("error", [TimeUp("now"), KeyboardInterrupt()])
def test_a_method_that_has_nothing_to_keep_may_stop_anywhere(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = default_method(mesh(2))

    def stop(*_: Any) -> om.Solution:
        raise error

    monkeypatch.setattr(type(method), "run", stop)
    found = om.solve(mesh(2), seed=0, on_event=ignore)
    expected = om.Limit.TIME if isinstance(error, TimeUp) else om.Limit.INTERRUPTED
    assert (found.status, found.limit, found.method) == (om.Status.UNKNOWN, expected, method.name)


@pytest.mark.usefixtures("defects_are_passed_over")
def test_a_rail_job_without_time_for_its_bound_passes_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has too many GPUs for a first plan whatever the time."""
    monkeypatch.setattr("optmatch.solvers.rails.methods._MOST_GPUS_BEYOND_LIMIT", 0)
    problem = om.load(INSTANCES / "rails" / "h200-dp2-windows.json")
    assert isinstance(problem, om.RailJob)
    with om.Limits(time_s=8.0).start(Looks()).running():
        found = om.solve(problem, seed=0)
    assert (found.status, found.limit) == (om.Status.UNKNOWN, om.Limit.TIME)
    assert found.lower_bound == -math.inf
    for wrong in (replace(found, lower_bound=0.0), replace(found, limit=om.Limit.EXHAUSTED)):
        assert not om.verify(problem, wrong).valid
        monkeypatch.setattr(type(default_method(problem)), "run", lambda *_, w=wrong: w)
        with pytest.raises(om.VerificationError):
            om.solve(problem, seed=0)
