"""All-reduces around one ring of two-way circuits, whose sums go both ways."""

import pytest

import optmatch as om
from optmatch.solvers.collectives.sums import list_ring_offers
from tests.helpers.collectives import compute


@pytest.mark.parametrize("n", [4, 6, 8, 10, 12, 18, 24, 30])
@pytest.mark.parametrize(("ports", "planes"), [(2, 1), (1, 2), (4, 1)])
def test_plans_are_right(n: int, ports: int, planes: int) -> None:
    problem = om.Collective(
        "all-reduce", n, 1e5, alpha_s=1.7e-6, delay_s=1e-2, ports=ports, planes=planes,
        two_way=True,
    )  # fmt: skip
    n_plans = 0
    for offer in list_ring_offers(problem):
        laid = offer.build()
        report = om.verify(problem, laid.plan)
        assert report.valid, report.violations
        assert compute(problem, laid.plan)
        assert laid.plan.time_s == pytest.approx(offer.seconds, rel=1e-9)
        assert len(laid.plan.sends) == offer.n_sends
        assert laid.plan.time_s >= problem.lower_bound() * (1 - 1e-9)
        n_plans += 1
    assert n_plans == sum(n // 2 % chunks == 0 for chunks in range(1, n // 2 + 1))


@pytest.mark.parametrize(("two_way", "ports", "n"), [(False, 2, 8), (True, 1, 8), (True, 2, 9)])
def test_other_circuits_make_no_such_ring(two_way: bool, ports: int, n: int) -> None:
    problem = om.Collective("all-reduce", n, 1e5, ports=ports, two_way=two_way)
    assert not list(list_ring_offers(problem))


def test_a_ring_of_two_ports_is_used_both_ways() -> None:
    """Before, the faster one of whole buffers and of scattered sums took 110.8 us."""
    problem = om.Collective(
        "all-reduce", 64, 1e5, alpha_s=1.7e-6, delay_s=1e-2, ports=2, two_way=True
    )
    solution = om.solve(problem, seed=0)
    assert solution.objective is not None and solution.objective < 70.3e-6
