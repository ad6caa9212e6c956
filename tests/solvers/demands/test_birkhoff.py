"""Decompositions into permutations: exact, by the rule asked for, and stopped where asked."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

import optmatch as om
from optmatch.model import InputError, Limit, counted_time
from optmatch.problems import Demand
from optmatch.solvers.demands import birkhoff, peeling
from optmatch.solvers.demands.birkhoff import Rule, Terms, decompose
from optmatch.solvers.demands.workspace import WORD
from tests.helpers.modes import PLAIN

pytestmark = pytest.mark.kernels

KERNELS: Any = peeling  # which have no types
RULES: tuple[Rule, ...] = get_args(Rule)
Matrix = NDArray[np.int64]


def permutation_sum(n: int, count: int, seed: int, most: int = 1000) -> Matrix:
    """Add up random permutations with random weights."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((n, n), dtype=np.int64)
    for _ in range(count):
        matrix[np.arange(n), rng.permutation(n)] += rng.integers(1, most + 1)
    return matrix


@st.composite
def balanced(draw: st.DrawFn, most_ports: int = 6) -> Matrix:
    """Draw a matrix with equal line sums; of small numbers, so that entries tie, or of large."""
    n = draw(st.integers(1, most_ports))
    count = draw(st.integers(0, 2 * n))
    return permutation_sum(
        n, count, draw(st.integers(0, 2**32)), draw(st.sampled_from((1, 3, 50, 2**57)))
    )


def largest_minimum_of(matrix: Matrix) -> int:
    """Halve the sorted entries, each a threshold for a largest matching of SciPy; 0 if none is."""
    sizes = np.unique(np.append(matrix, 0))
    low, high = 0, len(sizes)
    while low + 1 < high:
        middle = (low + high) // 2
        usable = csr_array(matrix >= sizes[middle])
        if (maximum_bipartite_matching(usable, "column") >= 0).all():
            low = middle
        else:
            high = middle
    return int(sizes[low])


def check(matrix: Matrix, terms: Terms) -> None:
    """Accept permutations with weights > 0 that lose nothing and make a zero each."""
    n = len(matrix)
    assert (np.sort(terms.permutations, axis=1) == np.arange(n)).all()
    assert (terms.weights > 0).all()
    assert np.array_equal(terms.total(), matrix)
    rest = matrix.copy()
    for permutation, weight in zip(terms.permutations, terms.weights, strict=True):
        entries = rest[np.arange(n), permutation]
        assert entries.min() == weight
        rest[np.arange(n), permutation] -= weight
    assert np.array_equal(rest, terms.residual)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(matrix=balanced())
def test_a_decomposition_adds_up(rule: Rule, matrix: Matrix) -> None:
    terms = decompose(matrix, rule)
    check(matrix, terms)
    assert not terms.residual.any()
    assert len(terms.weights) <= np.count_nonzero(matrix)


@settings(max_examples=60, deadline=None)
@given(matrix=balanced(5))
def test_bottleneck_takes_the_largest_minimum(matrix: Matrix) -> None:
    terms = decompose(matrix)
    rest = matrix.copy()
    for permutation, weight in zip(terms.permutations, terms.weights, strict=True):
        assert weight == largest_minimum_of(rest)
        rest[np.arange(len(rest)), permutation] -= weight


@pytest.mark.parametrize("n", [WORD - 1, WORD, WORD + 1, 2 * WORD + 1])
@pytest.mark.parametrize("rule", RULES)
def test_sizes_at_the_edge_of_a_word(rule: Rule, n: int) -> None:
    matrix = permutation_sum(n, 4 if PLAIN else 3 * n, n)
    terms = decompose(matrix, rule)
    check(matrix, terms)
    assert not terms.residual.any()


def test_bottleneck_has_few_terms() -> None:
    for n, most in ((8, 40), (16, 83), (32, 158)):
        counts = [len(decompose(permutation_sum(n, n * n, seed)).weights) for seed in range(5)]
        assert np.median(counts) <= most


@pytest.mark.parametrize("rule", RULES)
def test_next_to_nothing(rule: Rule) -> None:
    for n in (0, 1, 3):
        terms = decompose(np.zeros((n, n)), rule)
        assert (terms.permutations.shape, terms.residual.shape) == ((0, n), (n, n))
    assert decompose([[7]], rule).weights.tolist() == [7]


@pytest.mark.parametrize("rule", RULES)
def test_stops(rule: Rule) -> None:
    matrix = permutation_sum(12, 60, 1)
    whole = decompose(matrix, rule)
    few = decompose(matrix, rule, max_terms=5)
    check(matrix, few)
    assert np.array_equal(few.permutations, whole.permutations[:5])
    assert len(decompose(matrix, rule, max_terms=0).weights) == 0
    line = matrix[0].sum()
    part = decompose(matrix, rule, stop_ticks=line // 2)
    check(matrix, part)
    assert line - part.weights.sum() <= line // 2 < line - part.weights[:-1].sum()
    assert len(decompose(matrix, rule, stop_ticks=int(line)).weights) == 0


def test_a_deadline_in_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(birkhoff, "_SLICE", 1)
    matrix = permutation_sum(10, 50, 2)
    terms = decompose(matrix, "first", deadline=counted_time() - 1)
    check(matrix, terms)
    assert len(terms.weights) == 8


@pytest.mark.parametrize("before", [0, 1, 2])
def test_ctrl_c_loses_no_term(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """A slice that is subtracted but not handed over counts as not done."""
    peel = KERNELS.peel_permutations
    calls = []

    def interrupted(*arguments: Any) -> int:
        found: int = peel(*arguments)
        calls.append(found)
        if len(calls) > before:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(birkhoff, "_SLICE", 1)
    monkeypatch.setattr(peeling, "peel_permutations", interrupted)
    matrix = permutation_sum(10, 50, 2)
    terms = decompose(matrix)
    check(matrix, terms)
    assert len(terms.weights) == 8 * before


@pytest.mark.parametrize(
    ("ticks", "message"),
    [
        ([[1, 0], [1, 2]], r"matrix: row 1 sums to 3, row 0 to 1"),
        ([[2, 0], [1, 1]], r"matrix: column 0 sums to 3, row 0 to 2"),
        ([[1, -1], [0, 0]], r"matrix\[0, 1\] = -1: must be >= 0"),
        ([[1, 0.5], [0.5, 1]], r"matrix\[0, 1\] = 0.5: not a whole number"),
        ([[1, np.nan], [0, 1]], r"matrix\[0, 1\] = nan: not a whole number"),
        ([[1, np.inf], [0, 1]], r"matrix\[0, 1\] = inf: not a whole number"),
        (np.array([[0.5, 0.5]]), r"matrix has shape \(1, 2\): must be square"),
        (np.array([[-0.5]]), r"matrix\[0, 0\] = -0.5: must be >= 0"),
        ([[1, 2]], r"matrix has shape \(1, 2\): must be square"),
        ([[2**62, 2**62], [2**62, 2**62]], r"row 0 sums to about 9.22e\+18, beyond 2\*\*62"),
        (np.full((1, 1), 2**63, dtype=np.uint64), "not a whole number of 64 bits"),
        (np.array([[2**53 + 1]], dtype=object), "no float is equal"),
        ([[1j]], "not an array of numbers"),
    ],
)
def test_what_is_refused(ticks: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decompose(ticks)


def test_unknown_rule() -> None:
    rule: Any = "best"
    with pytest.raises(InputError, match="one of first, bottleneck"):
        decompose([[1]], rule)


@pytest.mark.parametrize("rule", RULES)
def test_large_numbers(rule: Rule) -> None:
    """Sums up to 2**62 are exact by every rule, beyond what floats tell apart."""
    a, b = 2**60 + 1, 2**60 - 7
    matrix = np.array([[a, b, 3], [b, 3, a], [3, a, b]])
    terms = decompose(matrix, rule)
    check(matrix, terms)
    assert not terms.residual.any()


def test_the_input_stays_as_it_is() -> None:
    matrix = permutation_sum(6, 9, 4)
    copy = matrix.copy()
    matrix.flags.writeable = False
    for rule in RULES:
        decompose(matrix, rule)
    assert np.array_equal(matrix, copy)


@pytest.mark.parametrize(("n", "weights"), [(70, 5), (130, 2), (130, 1000), (40, 3)])
def test_bottleneck_of_many_ports(n: int, weights: int) -> None:
    now = permutation_sum(n, 12, n + weights, weights)
    terms = decompose(now)
    check(now, terms)
    for permutation, weight in zip(terms.permutations, terms.weights, strict=True):
        assert weight == largest_minimum_of(now)
        now[np.arange(n), permutation] -= weight


@pytest.mark.parametrize("rule", RULES)
def test_methods_count_matchings(rule: Rule) -> None:
    matrix = permutation_sum(8, 8, 3)
    problem = Demand.from_matrix(matrix, objective="matchings")
    once = om.solve(problem, method=f"birkhoff-{rule}", seed=0, limits=om.Limits(iterations=1))
    often = om.solve(problem, method=f"birkhoff-{rule}", seed=0, limits=om.Limits(iterations=40))
    assert om.verify(problem, once).ok
    assert om.verify(problem, often).ok
    assert often.objective <= once.objective
    assert once.objective == len(decompose(matrix, rule).weights)
    nothing = om.solve(problem, method=f"birkhoff-{rule}", seed=0, limits=om.Limits(iterations=0))
    assert (nothing.schedule, nothing.limit) == (None, Limit.ITERATIONS)


def test_what_stuffing_adds_is_not_held() -> None:
    demand = np.zeros((3, 3))
    demand[0, 1] = 7.0
    solution = om.solve(Demand(om.IdealSwitch(3), demand, delay_s=1.0), method="birkhoff-first")
    assert solution.objective == 8.0
    assert solution.status is om.Status.OPTIMAL


def test_a_matrix_that_is_unbalanced_is_an_error_of_the_demand() -> None:
    with pytest.raises(InputError, match="sums to 3 s of circuit time, row 0 to 1 s"):
        Demand.from_matrix([[1, 0], [1, 2]], objective="matchings")


@pytest.mark.parametrize("method", ["greedy-cover", "solstice", "eclipse", "best"])
def test_a_start_whose_slots_leave_ports_idle_is_no_mistake(method: str) -> None:
    """The sums of a matrix are equal; those of what such slots leave of it are not."""
    matrix = np.array([[1, 1, 3], [1, 3, 1], [3, 1, 1]])
    before = matrix.copy()
    before[0, 0] = 0
    start = om.solve(om.Demand(om.IdealSwitch(3), before, delay_s=1.0), method, seed=0)
    problem = om.Demand(om.IdealSwitch(3), matrix, objective="matchings")
    for of_problem in ("best", "ilp"):
        solution = om.solve(problem, of_problem, seed=0, start=start)
        assert om.verify(solution).ok
        assert solution.objective == 3
