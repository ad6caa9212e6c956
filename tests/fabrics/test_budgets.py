"""Ideal switches with losses: which circuits are over their link budget, and what follows."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import UNREACHED, SelectedPorts
from optmatch.verify.light import find_over_budget

LOSS_DB = [[1.0, 3.5, 2.0], [2.0, 1.0, 2.5], [2.0, 2.0, 1.0]]


@pytest.mark.parametrize(
    ("budget_db", "dead"),
    [
        (None, []),
        (3.5, []),
        (3.0, [(0, 1)]),
        ([9.0, 2.0, 9.0], [(0, 1), (1, 2)]),
        ([1.5, 9.0, 9.0], [(0, 1), (0, 2), (1, 0), (2, 0)]),
    ],
)
def test_a_circuit_keeps_to_the_smaller_budget_of_its_ends(
    budget_db: Any, dead: list[tuple[int, int]]
) -> None:
    switch = om.IdealSwitch(3, loss_db=LOSS_DB, budget_db=budget_db)
    assert switch.dead_pairs() == dead
    assert (switch.route_cells()[0, 1] == UNREACHED) == ((0, 1) in dead)


@pytest.mark.parametrize("seed", range(20))
def test_the_verifier_counts_the_same_pairs_by_its_own_code(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    budget_db: Any = rng.uniform(1.0, 3.0) if seed % 2 else rng.uniform(1.0, 3.0, n)
    switch = om.IdealSwitch(n, loss_db=rng.normal(2.0, 0.3, (n, n)), budget_db=budget_db)
    some = SelectedPorts(switch, tuple(rng.permutation(n)[: n // 2 + 1].tolist()))
    for fabric in (switch, om.Faulty(switch, dead_ports=[0]), some):
        expected = fabric.over_budget
        assert expected is not None
        assert np.array_equal(find_over_budget(fabric), expected)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"loss_db": [[1.0, 2.0]]}, "loss_db has shape 1 x 2"),
        ({"loss_db": [[1.0, -2.0], [1.0, 1.0]]}, r"loss_db\[0, 1\]"),
        ({"loss_db": [[1.0, 1e30], [1.0, 1.0]]}, r"loss_db\[0, 1\] = 1e\+30: from 0 to 1e\+09"),
        ({"budget_db": 3.0}, "budget_db: only with loss_db"),
        ({"loss_db": np.ones((2, 2)), "budget_db": [1.0, 2.0, 3.0]}, "budget_db has 3 entries"),
        ({"loss_db": np.ones((2, 2)), "budget_db": -1.0}, "budget_db"),
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(om.InputError, match=named):
        om.IdealSwitch(2, **fields)


def test_questions_that_need_a_dead_pair_are_infeasible_and_name_it() -> None:
    switch = om.IdealSwitch(3, loss_db=LOSS_DB, budget_db=3.0)
    problems: tuple[Any, ...] = (
        om.AllToAll(switch),
        om.Routing(switch, [1, 0, -1]),
        om.Demand(switch, [[0, 2, 0], [0, 0, 1], [0, 0, 0]], delay_s=1.0),
        om.Reroute(switch, [[0, 2]], spares=(1,), failed_ports=(2,)),
    )
    for problem in problems:
        solution = om.solve(problem, seed=0)
        assert solution.status is om.Status.INFEASIBLE
        assert om.verify(solution).ok
        if not isinstance(problem, om.Reroute):
            assert "port 0 to port 1: loss 3.5 dB, budget 3 dB" in solution.stats["reason"]
    assert om.solve(om.Routing(switch, [2, 0, 1]), seed=0).status is om.Status.OPTIMAL


def test_packets_carry_what_no_circuit_may() -> None:
    switch = om.IdealSwitch(2, loss_db=[[1.0, 3.5], [1.0, 1.0]], budget_db=3.0)
    for planes in (1, 2):
        demand = om.Demand(
            switch, [[0, 4], [4, 0]], delay_s=1.0, packet_bytes_per_s=1.0, planes=planes
        )
        solution = om.solve(demand, seed=0, time_limit_s=1.0)
        report = om.verify(solution)
        assert report.figures["packet_s"] >= 4.0


def test_the_spare_that_loses_least_takes_over() -> None:
    """Against all choices of spares, drawn at random; none of them is left out of a proof."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        loss_db = rng.normal(1.5, 0.5, (7, 7)).clip(0.1)
        switch = om.IdealSwitch(7, loss_db=loss_db, budget_db=float(rng.uniform(1.2, 2.2)))
        over_budget = find_over_budget(switch)
        pairs = [(a, b) for a, b in ((0, 1), (1, 2), (2, 0)) if not over_budget[a, b]]
        if not pairs:
            continue
        problem = om.Reroute(switch, pairs, spares=(3, 4, 5, 6), failed_ports=(0,))
        solution = om.solve(problem, seed=0)
        assert om.verify(solution).ok

        # Port 0 goes to each spare in turn; the least worst loss of its circuits counts.
        hit = [pair for pair in pairs if 0 in pair]
        worst_of_spare = []
        for spare in (3, 4, 5, 6):
            moved = [(spare if a == 0 else a, spare if b == 0 else b) for a, b in hit]
            if not any(over_budget[pair] for pair in moved):
                losses = [round(100 * loss_db[pair]) for pair in moved]
                worst_of_spare.append(max(losses, default=0))
        if not hit or not worst_of_spare:
            expected = om.Status.OPTIMAL if not hit else om.Status.INFEASIBLE
            assert solution.status is expected
        else:
            assert solution.objective[3] == min(worst_of_spare)


def test_faults_and_chosen_ports_leave_names_and_losses_in_messages() -> None:
    losses_db = [[1.0, 3.5, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    switch = om.IdealSwitch(3, ("Oslo", "Rome", "Bern"), loss_db=losses_db, budget_db=3.0)
    said = "port 0 (Oslo) to port 1 (Rome): loss 3.5 dB, budget 3 dB"
    assert switch.explain_dead_pair(0, 1) == said
    faulty = om.Faulty(switch, dead_ports=[2])
    assert faulty.explain_dead_pair(0, 1) == said
    assert faulty.describe_port(2) == "port 2 (Bern)"
    some = SelectedPorts(switch, (2, 0, 1))
    assert some.dead_pairs() == [(1, 2)]
    said_of_some = "port 1 (Oslo) to port 2 (Rome): loss 3.5 dB, budget 3 dB"
    assert some.explain_dead_pair(1, 2) == said_of_some
