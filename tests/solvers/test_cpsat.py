"""CP-SAT with clock, events and Ctrl-C of this package, and circuits as flows."""

import threading

import numpy as np
import pytest
from ortools.sat.python import cp_model

import optmatch as om
from optmatch.model import Bound, Event, Limit, Limits, NewBest, SolverError, Tick, ignore
from optmatch.solvers.cpsat import LightFlow, minimise, share_links
from optmatch.testing import brute_force
from tests.helpers.command import python


def hard() -> cp_model.CpModel:
    """Split forty large numbers into two parts that are nearly equal."""
    model = cp_model.CpModel()
    numbers = np.random.default_rng(0).integers(10**8, 10**9, 40).tolist()
    twice = sum(2 * number * model.new_bool_var("") for number in numbers)
    apart = model.new_int_var(0, sum(numbers), "")
    model.add(apart >= twice - sum(numbers))
    model.add(apart >= sum(numbers) - twice)
    model.minimize(apart)
    return model


@pytest.mark.parametrize("workers", [1, 4])
def test_an_optimum_is_found_told_and_bounded(workers: int) -> None:
    model, events = cp_model.CpModel(), list[Event]()
    x, y = model.new_int_var(0, 9, ""), model.new_int_var(0, 9, "")
    model.add(3 * x + 2 * y >= 10)
    model.minimize(x + y)
    outcome = minimise(model, Limits().start(), events.append, seed=0, workers=workers)
    assert (outcome.found, outcome.optimal, outcome.infeasible) == (True, True, False)
    assert (outcome.lower_bound, outcome.limit) == (4.0, None)
    assert outcome.value(x) + outcome.value(y) == 4
    assert events[0] == Tick("cp-sat", 0) and events[-1] == Bound(4.0)
    told = [event.objective for event in events if isinstance(event, NewBest)]
    assert told and told[-1] == 4.0 and told == sorted(told, reverse=True)


def test_what_cannot_be_is_refuted() -> None:
    model, events = cp_model.CpModel(), list[Event]()
    x = model.new_bool_var("")
    model.add(x >= 1)
    model.add(x <= 0)
    outcome = minimise(model, Limits().start(), events.append, seed=0)
    assert (outcome.found, outcome.optimal, outcome.infeasible) == (False, False, True)
    assert outcome.lower_bound == np.inf and events == [Tick("cp-sat", 0)]
    assert outcome.limit is None


def test_limits_leave_it_open() -> None:
    few = minimise(hard(), Limits(iterations=30).start(), ignore, seed=0, workers=1, linear=False)
    assert few.limit is Limit.ITERATIONS and few.found and not few.optimal
    several = minimise(hard(), Limits(iterations=4).start(), ignore, seed=0)
    assert several.limit is Limit.ITERATIONS and not several.optimal
    little = minimise(hard(), Limits().start(), ignore, seed=0, workers=1, work=1e-4, linear=False)
    assert little.limit is Limit.TIME and not little.optimal
    late = minimise(hard(), Limits(time_s=0.02).start(), ignore, seed=0, workers=1)
    assert late.limit is Limit.TIME and not late.optimal

    def stop(event: Event) -> None:
        if isinstance(event, NewBest):
            raise KeyboardInterrupt

    stopped = minimise(hard(), Limits().start(), stop, seed=0, workers=1, linear=False)
    assert stopped.limit is Limit.INTERRUPTED and stopped.found


def test_an_interrupt_while_it_is_waited_for_loses_nothing() -> None:
    """Up to Python 3.12 a thread counts as dead after an interrupted `join`: all was lost."""
    code = """
import os, signal, threading
from optmatch.model import Limits, NewBest, ignore
from optmatch.solvers.cpsat import minimise
from tests.helpers.command import python
from tests.solvers.test_cpsat import hard
signal.signal(signal.SIGINT, signal.default_int_handler)
def listen(event):
    if isinstance(event, NewBest) and not begun:
        begun.append(event)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
begun = []
outcome = minimise(hard(), Limits(time_s=30).start(), listen, seed=0, linear=False)
print(outcome.found, outcome.limit.name)
"""
    assert python("-c", code).stdout == "True INTERRUPTED\n"


@pytest.mark.parametrize("kind", [Tick, NewBest, Bound])
def test_an_interrupt_out_of_any_event_ends_the_search(kind: type) -> None:
    """None is raised: a search that goes on behind a caller that is gone aborts the process."""

    def stop(event: Event) -> None:
        if isinstance(event, kind):
            raise KeyboardInterrupt

    model = cp_model.CpModel()
    x = model.new_int_var(3, 9, "")
    model.minimize(x)
    outcome = minimise(model, Limits().start(), stop, seed=0, workers=1)
    assert outcome.limit is Limit.INTERRUPTED
    names = {thread.name for thread in threading.enumerate()}
    assert "optmatch-cp-sat" not in names


def test_a_clock_that_is_stopped_ends_the_search() -> None:
    clock = Limits(time_s=60).start()
    threading.Timer(0.2, setattr, (clock, "interrupted", True)).start()
    outcome = minimise(hard(), clock, ignore, seed=0, linear=False)
    assert outcome.limit is Limit.INTERRUPTED and clock.elapsed_s < 20


def test_a_failure_in_the_thread_is_told() -> None:
    with pytest.raises(SolverError, match="CP-SAT failed"):
        minimise(None, Limits().start(), ignore, seed=0)  # type: ignore[arg-type]


def test_a_model_that_is_none_is_a_defect() -> None:
    model = cp_model.CpModel()
    model.proto.variables.add().domain.extend([3, 1])
    with pytest.raises(SolverError, match="refused"):
        minimise(model, Limits().start(), ignore, seed=0)


@pytest.mark.parametrize("seed", range(6))
def test_flows_are_circuits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.permutation(11).tolist()
    mesh = om.HexMesh(1, 2, ports=6)
    fabric = om.Faulty(mesh, stuck_bar=cells[:1], stuck_cross=cells[1 : 1 + seed % 3])
    ports = rng.permutation(6).tolist()
    matching = np.full(6, -1, dtype=np.int32)
    pairs = [tuple(sorted(pair)) for pair in (ports[:2], ports[2:4])][: 1 + seed % 2]
    model, graph = cp_model.CpModel(), fabric.graph
    assert graph is not None
    joined, flows = np.flatnonzero(graph.mate >= 0).tolist(), []
    for i, j in pairs:
        matching[[i, j]] = j, i
        source = int(fabric.source_terminals[i])
        ends = {int(fabric.destination_terminals[j]): 1}
        flows.append((LightFlow(model, graph, source, 1, ends, joined), 1))
    share_links(model, graph, flows)
    model.minimize(sum(sum(flow.exit_literals.values()) for flow, _ in flows))
    outcome = minimise(model, Limits().start(), ignore, seed=0)
    best = brute_force(om.Routing(fabric, matching))
    assert outcome.infeasible == (best is None)
    if best is not None:
        ways = [flow.terminals(outcome) for flow, _ in flows]
        assert sum(map(len, ways)) == outcome.lower_bound == best
        links = [graph.links.of_terminal[way].tolist() for way in ways]
        assert len({link for way in links for link in way}) == sum(map(len, links))
        for (_, j), way in zip(pairs, ways, strict=True):
            assert way[-1] == fabric.destination_terminals[j]
