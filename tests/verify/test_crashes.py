"""Whatever is changed in an answer, the verifier ends with a report."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.model import IDLE
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from tests.helpers.modes import examples
from tests.helpers.mutations import mutate
from tests.helpers.rails import small_job
from tests.verify.rules.rails import EXCHANGE, MESSAGE, SHIFTS, every, line, timed

TRAFFIC = np.array([[0, 3, 1, 0], [2, 0, 0, 4], [1, 1, 0, 1], [0, 2, 2, 0]])
MATCHING: Any = [1, 0, 3, 2]
TURNED: Any = [3, 4, 5, 0, 1, 2, IDLE, IDLE]
CASES: dict[str, tuple[Any, str | None]] = {
    "all-to-all": (om.AllToAll(om.HexMesh(3, 3, ports=4)), None),
    "collective": (om.Collective("all-reduce", n_ranks=8, size_bytes=1e6, delay_s=1e-5), None),
    "demand": (om.Demand.from_matrix(TRAFFIC, delay_s=1.0), "ilp"),
    "demand of pairs": (
        om.Demand.from_matrix(TRAFFIC + TRAFFIC.T, om.HexMesh(3, 3, ports=4), delay_s=1.0),
        None,
    ),
    "demand on planes": (om.Demand.from_matrix(TRAFFIC, delay_s=1.0, planes=2), None),
    "forwarding": (small_job(2, 1, 3, delay_s=0.1), "prefetch"),
    "infeasible routing": (om.Routing(om.HexMesh(1, 2, ports=[0, 1, 3, 10]), MATCHING), "ilp"),
    "rail job": (small_job(2, 1, 2, delay_s=1e-3, fabric=om.Benes(4)), "provisioned"),
    "reroute in a rack": (replace(fill_rack(om.RackFabric()), failed_chips=(3,)), None),
    "reroute in a switch": (
        replace(hold_matching(om.HexMesh(4, 4, ports=8), TURNED), failed_ports=(1,)),
        None,
    ),
    "routing": (om.Routing(om.HexMesh(1, 2, ports=[0, 6, 1, 8]), MATCHING), "ilp"),
    "slice": (om.SliceAllocation(om.RackFabric(), (2, 2, 2)), "ilp"),
}


@cache
def solved(name: str) -> om.Solution:
    """Solve one of the cases."""
    problem, method = CASES[name]
    return om.solve(problem, method, seed=0)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(30, plain=30), deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_any_change_has_a_report(name: str, rng: random.Random) -> None:
    solution = solved(name)
    report = om.verify(solution.problem, mutate(solution, rng))

    # What cannot be replayed is named, since its class refuses it.
    places = {part.where for part in report.violations if "to its end" in part.rule}
    assert "subject" not in places


def test_times_that_overflow_are_refused() -> None:
    for problem, answer in (
        (MESSAGE, timed(*[[-1e308, 1e308]] * 3)),
        (EXCHANGE, every(1e308, 1e308, line(SHIFTS, [-1e308, 0, 1e308]))),
    ):
        assert not om.verify(problem, answer).valid


@pytest.mark.parametrize(("column", "value"), [(2, 0), (1, -1), (1, 10**6)])
def test_a_relay_with_wrong_ports_or_rank_is_refused(column: int, value: int) -> None:
    solution = solved("forwarding")
    relays = np.array(solution.answer.relays)
    relays[0, column] = value
    changed = replace(solution, answer=replace(solution.answer, relays=relays))
    report = om.verify(solution.problem, changed)
    assert {violation.rule for violation in report.violations} == {
        "who forwards has that rank and those ports"
    }
    assert len(report.skipped) == 2
