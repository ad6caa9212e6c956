"""Demands on ideal switches of bidirectional ports: a circuit joins two ports both ways."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from tests.helpers.command import call, refused
from tests.helpers.held import least_completion_s

Pairing = frozenset[tuple[int, int]]


def switch(n_ports: int) -> om.IdealSwitch:
    return om.IdealSwitch(n_ports, bidirectional=True)


def draw(n_ports: int, seed: int, **options: Any) -> om.Demand:
    """Draw whole demands, some of them zero, and a delay."""
    rng = np.random.default_rng(seed)
    demand = rng.integers(1, 20, (n_ports, n_ports)) * (rng.random((n_ports, n_ports)) < 0.7)
    np.fill_diagonal(demand, 0)
    delay_s = float(rng.choice([0, 1, 10, 60]))
    return om.Demand(
        switch(n_ports), demand.astype(float), delay_s=delay_s, quantum_s=1.0, **options
    )


def list_pairings(ports: tuple[int, ...]) -> Iterator[Pairing]:
    """List the largest sets of pairs of different ports."""
    if len(ports) < 2:
        yield frozenset()
        return
    first = ports[0]
    for partner in ports[1:]:
        others = tuple(port for port in ports if port not in (first, partner))
        for pairing in list_pairings(others):
            yield pairing | {(first, partner)}
    if len(ports) % 2:
        yield from list_pairings(ports[1:])


@pytest.mark.parametrize("seed", range(24))
def test_small_ones_are_optimal(seed: int) -> None:
    problem = draw(2 + seed % 5, seed)
    solution = om.solve(problem, seed=0)
    pairings = set(list_pairings(tuple(range(problem.fabric.n_ports))))
    assert solution.objective == least_completion_s(problem, pairings)
    assert om.verify(problem, solution).ok


def heaviest_pairs_first(problem: om.Demand) -> float:
    """Join the longest pairs whose ports are free, and hold each slot until all are complete."""
    need = np.maximum(problem.demand_bytes, problem.demand_bytes.T)
    total_s = 0.0
    while need.any():
        free = np.ones(len(need), dtype=bool)
        longest_s = 0.0
        for place in np.argsort(-need, axis=None, kind="stable"):
            first, second = divmod(int(place), len(need))
            if need[first, second] and free[first] and free[second]:
                free[[first, second]] = False
                longest_s = max(longest_s, float(need[first, second]))
                need[first, second] = need[second, first] = 0.0
        total_s += longest_s + problem.delay_s
    return total_s


@pytest.mark.parametrize("n_ports", [7, 16, 33])
def test_it_is_no_worse_than_a_simple_rule(n_ports: int) -> None:
    for seed in range(3):
        problem = draw(n_ports, seed)
        solution = om.solve(problem, seed=0, limits=om.Limits(iterations=30))
        assert solution.objective <= heaviest_pairs_first(problem)


def test_a_sum_of_pairings_is_decomposed() -> None:
    demand = np.zeros((6, 6))
    for partner, weight in (([1, 0, 3, 2, 5, 4], 2.0), ([3, 2, 1, 0, 5, 4], 3.0)):
        demand[np.arange(6), partner] += weight
    problem = om.Demand(switch(6), demand, objective="matchings")
    solution = om.solve(problem, seed=0)
    assert solution.objective == 2


def test_a_budget_holds_both_ways() -> None:
    loss_db = np.ones((4, 4))
    loss_db[2, 1] = 9.0
    lossy = om.IdealSwitch(4, loss_db=loss_db, budget_db=3.0, bidirectional=True)
    assert lossy.dead_pairs() == [(1, 2)]
    demand = np.zeros((4, 4))
    demand[1, 2] = 1.0
    assert om.solve(om.Demand(lossy, demand, delay_s=1.0)).status is om.Status.INFEASIBLE


def test_files_and_commands(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    ideal = ["--fabric", "ideal-switch", "--size", "6", "--bidirectional-ports"]
    rest = ["--model", "uniform", "--delay", "1", "-o"]
    call("generate", "demand", *ideal, *rest, path)
    problem = om.load(path)
    assert isinstance(problem, om.Demand)
    assert problem.fabric == switch(6)
    assert '"bidirectional": true' in path.read_text()
    om.save(om.Demand(om.IdealSwitch(2), np.zeros((2, 2))), tmp_path / "plain.json")
    assert "bidirectional" not in (tmp_path / "plain.json").read_text()
    benes = ["--fabric", "benes", *ideal[2:]]
    refused("--bidirectional-ports: no option of benes", "generate", "demand", *benes, *rest, path)


def test_three_ports_on_two_planes_are_joined_in_pairs() -> None:
    """The exact model of several planes knows no pairs, and would join 0 to 1 and 1 to 2."""
    demand = np.array([[0, 9, 5], [2, 0, 8], [7, 4, 0]])
    problem = om.Demand.from_matrix(demand, fabric=switch(3), delay_s=1.0, planes=2)
    assert om.solve(problem, seed=0, time_limit_s=1.0).objective is not None
