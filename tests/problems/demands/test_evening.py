"""Matrices whose lines agree to rounding: ticks in which they agree exactly."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.problems.demands.ticks import even_out, scale


def mixture(seed: int, n: int = 6, terms: int = 4, *, both_ways: bool = False) -> Any:
    """Add up random permutations by random weights; involutions without fixed ports, if asked."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(terms))
    matrix = np.zeros((n, n))
    for weight in weights:
        order = rng.permutation(n)
        partner = order
        if both_ways:
            partner = np.empty(n, dtype=int)
            partner[order[0::2]], partner[order[1::2]] = order[1::2], order[0::2]
        matrix[np.arange(n), partner] += weight
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.1] * 10] * 10,
        mixture(0),
        mixture(1) * 1e9,
        np.array([[7, 2, 1], [2, 1, 7], [1, 7, 2]]) / 3,
    ],
    ids=["tenths", "mixture", "large", "thirds"],
)
def test_a_doubly_stochastic_matrix_of_floats_is_accepted(matrix: Any) -> None:
    problem = om.Demand(om.IdealSwitch(len(matrix)), matrix, objective="matchings")
    sums = np.concatenate([problem.ticks.sum(axis=0), problem.ticks.sum(axis=1)])
    assert len(set(sums.tolist())) == 1
    assert (
        np.abs(problem.ticks * problem.tick_s / np.max(matrix) - matrix / np.max(matrix)).max()
        < 1e-11
    )
    solution = om.solve(problem, seed=0)
    report = om.verify(problem, solution)
    assert report.ok
    rounded = "demands were rounded to ticks of" in " ".join(report.notes)
    assert rounded == (not problem.exact)


@pytest.mark.parametrize("quantum_s", [1e-2, 1e-4, 1e-7])
@pytest.mark.parametrize("seed", range(5))
def test_a_stated_quantum_is_the_tick(seed: int, quantum_s: float) -> None:
    matrix = mixture(seed, n=8)
    problem = om.Demand(om.IdealSwitch(8), matrix, objective="matchings", quantum_s=quantum_s)
    assert problem.tick_s == quantum_s
    sums = np.concatenate([problem.ticks.sum(axis=0), problem.ticks.sum(axis=1)])
    assert len(set(sums.tolist())) == 1
    assert np.abs(problem.ticks - matrix / quantum_s).max() < 2


def test_the_tick_divides_the_delay() -> None:
    problem = om.Demand(om.IdealSwitch(6), mixture(2), objective="matchings", delay_s=1 / 7)
    assert problem.delay_ticks * problem.tick_s == pytest.approx(1 / 7, rel=1e-12)
    assert om.solve(problem, seed=0).schedule is not None


def test_bidirectional_ports_keep_both_directions_alike() -> None:
    matrix = mixture(3, both_ways=True)
    problem = om.Demand(om.HexMesh(3, 3, ports=6), matrix, objective="matchings")
    assert (problem.ticks == problem.ticks.T).all()
    assert len(set(problem.ticks.sum(axis=0).tolist())) == 1
    assert (problem.ticks[matrix == 0] == 0).all()


@pytest.mark.parametrize(
    ("matrix", "quantum_s"),
    [
        ([[1, 2], [2, 1.01]], None),
        ([[1, 2], [2, 1 + 1e-7]], None),
        ([[10**12, 0], [0, 10**12 + 1]], None),
        ([[3, 1], [1, 2]], 1.0),
        ([[0.35, 0.65], [0.65, 0.45]], 0.01),
    ],
)
def test_lines_that_really_differ_are_refused(matrix: Any, quantum_s: float | None) -> None:
    with pytest.raises(om.InputError, match="equal sums"):
        om.Demand(om.IdealSwitch(2), matrix, objective="matchings", quantum_s=quantum_s)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12), st.integers(0, 7))
def test_lines_agree_exactly(seed: int, n: int, terms: int, digits: int) -> None:
    matrix = mixture(seed, n, terms)
    quantum = 10.0**-digits if digits else None
    scaled = scale(matrix, 1.0, 0.0, 0.0, quantum)
    evened = even_out(scaled, matrix, quantum_s=quantum)
    if evened is scaled and digits:
        return  # so coarse that no entry is left to correct
    sums = np.concatenate([evened.demand.sum(axis=0), evened.demand.sum(axis=1)])
    assert len(set(sums.tolist())) == 1
    assert (evened.demand >= 0).all()
    assert (evened.demand[matrix == 0] == 0).all()
