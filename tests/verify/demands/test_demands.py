"""The verifier of demands: every rule broken once, and proofs that prove and that do not."""

from dataclasses import replace
from itertools import accumulate, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.optimize import linear_sum_assignment, linprog

import optmatch as om
from optmatch.fabrics import UNREACHED
from optmatch.problems import ConfigurationProof, CountProof
from optmatch.problems.demands.problem import bound_lines
from optmatch.testing import brute_force
from optmatch.verify.demands import bounds
from optmatch.verify.demands.bounds import bound_demand, check_proof, count_groups, weigh_heaviest
from optmatch.verify.report import ProofError


def test_lines_count_entries_or_their_time() -> None:
    fewest = om.Demand.from_matrix([[2, 3], [3, 2]], objective="matchings")
    assert bound_demand(fewest) == 2.0
    for planes in (1, 2):
        nothing = om.Demand.from_matrix(np.zeros((2, 2)), delay_s=1.0, planes=planes)
        assert bound_demand(nothing) == 0.0


@pytest.mark.parametrize(("planes", "place"), [(1, "delay_s"), (2, "plane 0: delay_s")])
def test_only_several_planes_have_numbers(planes: int, place: str) -> None:
    problem = om.Demand.from_matrix([[0, 1], [0, 0]], delay_s=1.0, planes=planes)
    slots = replace(problem.schedule([[1, -1]], [1]), delay_s=2.0)
    answer = om.PlaneSchedules(schedules=(slots, slots)) if planes > 1 else slots
    assert om.verify(problem, answer).violations[0].where == place


@pytest.mark.parametrize(
    "asked", [{}, {"objective": "weighted-completion-s", "groups": [[-1, 0], [1, -1]]}]
)
def test_what_is_not_served_is_one_violation(asked: dict[str, Any]) -> None:
    """The objective is infinite then, of which the objective and the bound once complained too."""
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0, **asked)
    solution = om.solve(problem, seed=0)
    report = om.verify(problem, replace(solution, schedule=problem.schedule([[1, -1]], [3])))
    (violation,) = report.violations
    assert violation.rule == "all demand is served" and not report.valid
    (skipped,) = report.skipped
    assert skipped == "objective: this answer has none to compare it with"


@pytest.mark.parametrize("seed", range(6))
def test_both_line_bounds_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for planes in (1, 2, 3):
        for packets in (0.0, 0.3):
            problem = om.Demand.from_matrix(
                rng.integers(0, 5, (5, 5)),
                delay_s=float(rng.integers(0, 3)),
                min_slot_s=float(rng.integers(0, 4)),
                planes=planes,
                packet_bytes_per_s=packets,
            )
            assert problem.lower_bound() == pytest.approx(bound_demand(problem))


def prices(problem: om.Demand, units: int = 10**6) -> ConfigurationProof:
    """Solve the dual of the configuration LP over all permutations, and round down."""
    ticks, delay = problem.ticks, problem.delay_ticks
    n = len(ticks)
    rows, limits = [], []
    for order in permutations(range(n)):
        matching = np.eye(n, dtype=np.int64)[list(order)]
        for duration in sorted({1, *ticks[ticks > 0].tolist()}):
            rows.append((matching * np.minimum(ticks, duration)).ravel())
            limits.append(duration + delay)
    found = linprog(-ticks.ravel().astype(float), A_ub=np.array(rows), b_ub=np.array(limits))
    duals = np.where(ticks > 0, found.x.reshape(n, n), 0) * units * (1 - 1e-6)
    return ConfigurationProof(duals=np.floor(duals).astype(np.int64), units=units)


@pytest.mark.parametrize(("budget_db", "bound_s"), [(3.0, 2.0), (0.5, float("inf"))])
def test_only_circuits_that_are_needed_bound_by_their_budget(
    budget_db: float, bound_s: float
) -> None:
    """Circuits of 9 dB are over both budgets, and nothing is sent by them."""
    losses_db = [[1, 1, 9], [9, 1, 1], [1, 9, 1]]
    switch = om.IdealSwitch(3, loss_db=losses_db, budget_db=budget_db)
    matrix = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert bound_demand(om.Demand.from_matrix(matrix, switch, delay_s=1.0)) == bound_s


@pytest.mark.parametrize("seed", range(8))
def test_prices_bound_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = om.Demand.from_matrix(rng.integers(0, 4, (3, 3)), delay_s=2.0)
    proof = prices(problem)
    best = brute_force(problem)
    assert best is not None
    assert problem.lower_bound() - problem.tick_s <= check_proof(problem, proof) <= best
    too_high = replace(proof, duals=np.ceil(proof.duals * 1.001).astype(np.int64))
    with pytest.raises(ProofError, match="earns more than it takes"):
        check_proof(problem, too_high)


@pytest.mark.parametrize(("dual", "units"), [(3, 2), (1, 50)])
def test_prices_times_ticks_stay_below_a_limit(
    dual: int, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds for all prices together, as often as there are pairs, and for what they pay for."""
    matrix = np.zeros((3, 3))
    matrix[0, 1] = 5.0
    problem = om.Demand.from_matrix(matrix, delay_s=40.0, min_slot_s=7.0)
    proof = ConfigurationProof(duals=dual * (matrix > 0), units=units)
    largest = max(9 * dual, units) * (5 + 40 + 7)
    monkeypatch.setattr(bounds, "LARGEST", largest + 1)
    assert check_proof(problem, proof) == -(-5 * dual // units)
    monkeypatch.setattr(bounds, "LARGEST", largest)
    with pytest.raises(ProofError, match="overflow"):
        check_proof(problem, proof)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 20])
def test_heaviest_matchings(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        weights = rng.integers(0, 20, (n, n)) * (rng.random((n, n)) < 0.6)
        matched = linear_sum_assignment(weights, maximize=True)
        assert weigh_heaviest(weights) == weights[matched].sum()


@pytest.mark.parametrize("seed", range(10))
def test_counts_bound_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ticks = np.zeros((3, 3), dtype=np.int64)
    for weight in rng.integers(1, 5, size=4).tolist():
        ticks[np.arange(3), rng.permutation(3)] += weight
    problem = om.Demand.from_matrix(ticks, objective="matchings")
    fewest = brute_force(problem)
    assert fewest is not None
    lines: list[tuple[Any, int]] = [(a, k) for a in ("source", "destination") for k in range(3)]
    proved = 0.0
    for axis, port in lines:
        for against_axis, against_port in lines:
            proof = CountProof(
                axis=axis, port=port, against_axis=against_axis, against_port=against_port
            )
            try:
                proved = max(proved, check_proof(problem, proof))
            except ProofError:
                continue
    assert max(problem.lower_bound(), proved) <= fewest


TRIANGLE = om.Demand.from_matrix([[0, 3, 2], [3, 0, 4]], om.HexMesh(2, 2, ports=4), delay_s=0.0)
"""Three of four bidirectional ports want to meet for 3, 2 and 4 s."""


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, 9),
        ({"delay_s": 2.0}, 15),
        ({"delay_s": 2.0, "switching": "per-circuit"}, 15),
        ({"delay_s": 1.0, "planes": 2}, 6),
        ({"min_slot_s": 3.0}, 10),
        ({"packet_bytes_per_s": 0.1}, None),
    ],
)
def test_of_three_ports_one_idles(options: dict[str, Any], bound: float | None) -> None:
    problem = replace(TRIANGLE, **options)
    lines = bound_lines(problem).max()
    assert problem.lower_bound() == pytest.approx(bound_demand(problem))
    assert problem.lower_bound() == (lines if bound is None else bound) >= lines


def test_five_ports_have_two_circuits() -> None:
    mesh = om.HexMesh(3, 3, ports=5)
    demand = 1.0 - np.eye(5)
    assert om.Demand(mesh, demand, delay_s=1.0).lower_bound() == 10
    demand[0, 1] = demand[1, 0] = 0
    for switching, bound in (("all-stop", 10), ("per-circuit", 9)):
        problem = om.Demand(mesh, demand, delay_s=1.0, switching=switching)  # type: ignore[arg-type]
        assert problem.lower_bound() == bound_demand(problem) == bound


@pytest.mark.parametrize("seed", range(12))
def test_ports_together_bound_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = om.HexMesh(1, 2, ports=[0, 1, 3])
    ticks = np.triu(rng.integers(0, 4, (3, 3)), 1).astype(float)
    ticks[mesh.route_cells() == UNREACHED] = 0
    problem = om.Demand(
        mesh,
        ticks,
        delay_s=float(rng.integers(0, 3)),
        min_slot_s=float(rng.integers(0, 3)),
        quantum_s=1.0,
    )
    best = brute_force(problem)
    assert best is not None
    assert problem.lower_bound() == bound_demand(problem) <= best


@given(st.lists(st.integers(-9, 9).filter(bool), max_size=6))
def test_groups_of_sum_zero(drawn: list[int]) -> None:
    """As many as there are zeros among the sums from the left, in the best of all orders."""
    numbers = [k for k in [*drawn, -sum(drawn)] if k and -k not in (*drawn, -sum(drawn))]
    assume(sum(numbers) == 0)
    orders = permutations(numbers)
    assert count_groups(numbers) == max([*accumulate(order)].count(0) for order in orders)


@pytest.mark.parametrize(
    ("numbers", "groups"),
    [
        ([1] * 12 + [-2] * 6, 6),  # too many sets with sum zero
        ([1] * 10 + [-5] * 2, 2),
        ([1, 1, 1, -3] * 5, 5),  # the most numbers of which all sets are looked at
        ([1, 1, -2] * 7, 7),
        ([2] * 11 + [-3] * 11, 7),  # at most
        ([2**k for k in range(19)] + [1 - 2**19], 1),
        ([2**k for k in range(20)] + [1 - 2**20], 1),
    ],
)
def test_many_numbers_in_groups(numbers: list[int], groups: int) -> None:
    assert count_groups(numbers) == groups


@pytest.mark.parametrize("most", [0, bounds.MOST_NUMBERS])
def test_only_entries_are_counted(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 2, 1, 1 and of 1, 3, 0: their groups are 1 = 1 and 2 + 1 = 3."""
    monkeypatch.setattr(bounds, "MOST_NUMBERS", most)
    problem = om.Demand.from_matrix([[1, 3, 0], [2, 1, 1], [1, 0, 3]], objective="matchings")
    proof = CountProof(axis="source", port=1, against_axis="source", against_port=0)
    assert check_proof(problem, proof) == 3 + 2 - 2
    exchanged = CountProof(axis="source", port=0, against_axis="source", against_port=1)
    assert check_proof(problem, exchanged) == 2 + 3 - 2


def test_equal_entries_are_in_one_group_alone() -> None:
    """1 = 1 and 3 + 5 = 2 + 4 + 2: with the 1 once more, 3 = 2 + 1 and 5 = 4 + 1 would be two."""
    demand = [[1, 3, 5, 0], [1, 2, 4, 2], [7, 2, 0, 0], [0, 2, 0, 7]]
    problem = om.Demand.from_matrix(demand, objective="matchings")
    proof = CountProof(axis="source", port=0, against_axis="source", against_port=1)
    assert check_proof(problem, proof) == 3 + 4 - 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: CountProof(axis="row", port=0, against_axis="source", against_port=0),  # type: ignore[arg-type]
        lambda: CountProof(axis="source", port=-1, against_axis="source", against_port=0),
        lambda: ConfigurationProof(duals=[[-1]], units=1),  # type: ignore[arg-type]
        lambda: ConfigurationProof(duals=[[1]], units=0),  # type: ignore[arg-type]
    ],
)
def test_proofs_are_checked_when_made(make: Any) -> None:
    with pytest.raises(om.InputError):
        make()


def test_rounding_is_noted() -> None:
    problem = om.Demand.from_matrix([[1 / 3]], delay_s=0.0, quantum_s=0.1)
    report = om.verify(problem, problem.schedule([[0]], [4]))
    assert report.ok
    assert report.notes == ("demands were rounded to ticks of 0.1 s",)
