"""All-reduces by sums along walks of de Bruijn graphs."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives.sums import find_walk_graph, list_walk_offers
from tests.helpers.collectives import compute

GRAPHS = [
    (n, degree)
    for degree in (2, 3, 4, 5)
    for n in range(3, 130)
    if find_walk_graph(n, degree) is not None
]


def small_sum(n: int, ports: int, size_bytes: float = 1e4, **fields: Any) -> om.Collective:
    """Return an all-reduce whose circuits are too slow to be changed."""
    return om.Collective(
        "all-reduce", n, size_bytes, alpha_s=1.7e-6, delay_s=1e-2, ports=ports, **fields
    )


@pytest.mark.parametrize(("n", "degree"), GRAPHS)
def test_walks_add_up_all_ranks_once(n: int, degree: int) -> None:
    graph = find_walk_graph(n, degree)
    assert graph is not None
    first_arcs = [0]
    if degree % graph.last_digit == 0:
        first_arcs = list(range(0, degree, graph.last_digit))
    for is_against, first_arc in product((False, True), first_arcs):
        walks = np.eye(n, dtype=np.int64)
        changed = graph._replace(is_against=is_against, first_arc=first_arc)
        for arcs in changed.list_steps():
            counts = np.zeros((n, n), dtype=np.int64)
            np.add.at(counts, (arcs.source, arcs.target), 1)
            walks = walks @ counts
        assert (walks == 1).all()


def test_numbers_of_ranks_without_such_walks() -> None:
    assert [n for n in range(3, 40) if find_walk_graph(n, 2)] == [4, 8, 16, 32]
    assert [n for n in range(4, 40) if find_walk_graph(n, 3)] == [6, 9, 18, 27]
    assert find_walk_graph(8, 1) is None


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(
    ("n", "degree"), [(4, 2), (8, 2), (32, 2), (9, 3), (18, 3), (27, 3), (12, 4), (48, 4)]
)
def test_plans_are_right(n: int, degree: int, two_way: bool) -> None:
    seen = set()
    for size_bytes, planes in ((1e3, 1), (3e6, 1), (3e6, 2)):
        ports = degree * (1 + two_way) // planes
        if ports * planes != degree * (1 + two_way):
            continue
        problem = small_sum(n, ports, size_bytes, two_way=two_way, planes=planes)
        for offer in list_walk_offers(problem, om.Limits().start()):
            laid = offer.build()
            report = om.verify(problem, laid.plan)
            assert report.valid, report.violations
            assert compute(problem, laid.plan)
            assert laid.plan.time_s >= offer.seconds * (1 - 1e-9)
            assert len(laid.plan.sends) == offer.n_sends
            seen.add(laid.plan.n_rounds)
    assert len(seen) > 1 or n == degree**2 or n <= 6


@pytest.mark.parametrize(
    ("n", "ports", "size_bytes", "most_s"),
    [
        (8, 4, 1e5, 6.5e-6),
        (64, 2, 1e4, 11.5e-6),
        (64, 2, 1e5, 19e-6),
        (64, 4, 1e4, 5.8e-6),
        (256, 4, 1e5, 13e-6),
    ],
)
def test_small_sums_take_few_rounds(n: int, ports: int, size_bytes: float, most_s: float) -> None:
    problem = small_sum(n, ports, size_bytes)
    solution = om.solve(problem, "topologies", seed=0)
    assert solution.objective is not None and solution.objective <= most_s


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(("n", "ports"), [(16, 3), (64, 7), (9, 4), (27, 7)])
def test_ports_beyond_the_degree_stay_dark(n: int, ports: int, two_way: bool) -> None:
    problem = small_sum(n, ports, two_way=two_way)
    offers = list(list_walk_offers(problem, om.Limits().start()))
    assert offers or two_way
    for offer in offers:
        laid = offer.build()
        assert om.verify(problem, laid.plan).valid
        assert compute(problem, laid.plan)


def test_a_short_limit_lists_fewer_sends() -> None:
    problem = small_sum(256, 2, 1e8)
    offers = list(list_walk_offers(problem, om.Limits().start()))
    clock = om.Limits(time_s=0.02).start(lambda: 0.0)  # it stands still
    few = list(list_walk_offers(problem, clock))
    assert 0 < len(few) < len(offers)
