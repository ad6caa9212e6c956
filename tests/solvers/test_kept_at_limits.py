"""An answer that was told is not lost, wherever the time ends or a signal comes after it.

The clock of these runs stands still. At one of the looks that a method takes at it, counted from
the start, the time is suddenly over, or the run is interrupted. So a moment is the same in each
run, however busy the machine is.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import optmatch as om
from optmatch.kinds import default_method, find_method
from optmatch.model import Clock, Event, Limits, NewBest, Problem, Score, Solution, TimeUp
from tests.helpers.chips import draw_chip
from tests.helpers.command import INSTANCES
from tests.helpers.modes import compiled_only
from tests.solvers.routing.test_ilp import random_matching

pytestmark = [pytest.mark.slow, compiled_only]

MANY_LOOKS = 200
"""A method that looks more often has its time ended then."""


def on_a_chip(objective: Any, size: int, ports: int) -> om.Routing:
    """Draw a matching, and a chip of which each cell is known."""
    mesh = om.HexMesh(size, size, ports=ports)
    matching = random_matching(ports, np.random.default_rng(size))
    cells = draw_chip(mesh.n_cells, size)
    return om.Routing(mesh, matching, objective=objective, cells=cells)


OF_LIBRARY: dict[str, dict[str, Any]] = {
    "all-to-all/hex-7x7-32": {},
    "all-to-all/square-5x5-tx-rx-6": {},
    "routing/hex-9x9-32-random-1": {},
    "routing/hex-17x17-64-random-1": {},
    "routing/hex-17x17-64-random-1 longest": {"objective": "worst-cells"},
    "routing/benes-32-random-5": {},
    "demand/gravity-16": {},
    "demand/solstice-32-two-planes": {},
    "collectives/all-reduce-8": {},
    "rails/dense-32": {},
    "reroute/hex-9x9-32-two-ports": {},
    "slices/joined-racks": {},
    "sharing/devices-120-fair": {},
    "sharing/devices-120-whole": {},
    "all-to-all/hex-4x4-8 ilp": {},
    "routing/hex-9x9-32-random-1 ilp": {},
    "routing/hex-9x9-32-random-1 losses ilp": {"objective": "loss-db"},
    "demand/permutations-6 ilp": {},
    "reroute/hex-9x9-32-two-ports ilp": {},
    "slices/rack-hard ilp": {},
}
"""Instances, with fields that are changed; the last word may be a method."""

ON_CHIPS: dict[str, tuple[str, int, int]] = {
    "power ilp": ("power-mw", 4, 8),
    "worst loss": ("worst-loss-db", 6, 12),
    "few cells": ("total-cells", 8, 24),
}


def problem_of(name: str) -> Problem[Any]:
    """Make the problem of a name."""
    if name in ON_CHIPS:
        return on_a_chip(*ON_CHIPS[name])
    loaded: Any = om.load(INSTANCES / f"{name.split()[0]}.json")
    problem: Problem[Any] = replace(loaded, **OF_LIBRARY[name])
    return problem


class Run(NamedTuple):
    """How a run ended, and what it told until then."""

    solution: Solution | None
    told: list[Score]
    looks: int
    looks_at_first_best: int


def run_until(name: str, problem: Problem[Any], last_look: int, *, interrupted: bool) -> Run:
    """Run the method of a name until a look at the clock, and let it end then."""
    looks = 0
    told: list[Score] = []
    looks_at_best: list[int] = []

    def now() -> float:
        nonlocal looks
        looks += 1
        if looks < last_look:
            return 0.0
        if interrupted:
            clock.interrupted = True
            return 0.0
        return 1e12

    def listen(event: Event) -> None:
        if isinstance(event, NewBest):
            told.append(event.objective)
            looks_at_best.append(looks)
        if clock.interrupted:
            raise KeyboardInterrupt

    clock = Clock(limits=Limits(time_s=1e9), now=now, started=0.0)
    method = default_method(problem)
    if name.endswith(" ilp"):
        method = find_method("ilp", problem)
    rng = np.random.default_rng(0)
    solution: Solution | None = None
    with clock.running():
        try:
            solution = method.run(problem, Limits(time_s=1e9), rng, listen)
        except (TimeUp, KeyboardInterrupt):
            assert not told, "an answer that was told is lost"
    return Run(solution, told, looks, looks_at_best[0] if looks_at_best else 0)


@pytest.mark.parametrize("name", [*OF_LIBRARY, *ON_CHIPS])
def test_what_was_told_is_returned(name: str) -> None:
    """Right after the first best, in the middle, and at the last look."""
    problem = problem_of(name)
    whole = run_until(name, problem, MANY_LOOKS, interrupted=False)
    if not whole.told:
        pytest.skip("tells of nothing before its answer")
    first = whole.looks_at_first_best + 1
    moments = {first, (first + whole.looks) // 2, whole.looks}
    for last_look in sorted(moments):
        for interrupted in (False, True):
            ended = run_until(name, problem, last_look, interrupted=interrupted)
            if ended.told:
                assert ended.solution is not None
                assert ended.solution.objective is not None, (last_look, interrupted)
                assert is_as_good(ended.solution.objective, ended.told[-1])


def is_as_good(objective: Score, told: Score) -> bool:
    """Tell whether an objective is no worse than one that was told, up to rounding."""
    if isinstance(objective, tuple) or isinstance(told, tuple):
        return bool(objective <= told)
    return bool(objective <= told * (1 + 1e-9))
