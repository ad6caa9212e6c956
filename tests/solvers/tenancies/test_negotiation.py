"""Jobs side by side: the slots of the worst job are enough, and light of jobs keeps apart."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Limits, TimeUp
from optmatch.problems import Tenancy, Tenant
from optmatch.solvers.tenancies.rows import plan_job
from optmatch.testing import SolverContract
from tests.helpers.contracts import contracts, methods_of

MESH = om.HexMesh(9, 9, ports=32)


def demand(n: int, most: int, seed: int = 0, least: int = 0) -> Tenant:
    """Draw a job with a random demand of whole slots."""
    drawn = np.random.default_rng(seed).integers(least, most, (n, n), endpoint=True)
    np.fill_diagonal(drawn, 0)
    return Tenant("demand", n, "demand", demand_bytes=drawn.astype(np.float64))


MIX = (
    Tenant("pairs", 8),
    demand(8, 2),
    Tenant("sum", 8, "all-reduce", size_bytes=8.0),
    Tenant("gather", 4, "all-gather", size_bytes=4.0),
)


class TenancyContract(SolverContract):
    """Tests that all methods for tenancies share."""

    examples = 3
    iterates = False
    problems = (
        Tenancy(om.HexMesh(3, 3, ports=6), (Tenant("a", 3), Tenant("b", 2)), delay_s=0.5),
        Tenancy(om.Benes(8), (Tenant("a", 3), demand(4, 2)), slot_s=0.5),
        Tenancy(om.IdealSwitch(6), (Tenant("a", 1), Tenant("b", 4, "broadcast", size_bytes=2.0))),
    )
    tiny_problems = ()


globals().update(contracts(TenancyContract, methods_of("tenancy")))


def test_four_jobs_of_eight_ports_need_seven_slots() -> None:
    """The published size: 32 ports on 9 x 9 hexagons; each pair of each job once, none between."""
    problem = Tenancy(MESH, tuple(Tenant(name, 8) for name in "abcd"))
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL and solution.objective == 7.0
    answer: Any = solution.answer
    assert solution.schedule is not None
    met = [
        (port, partner)
        for row in solution.schedule.matchings.tolist()
        for port, partner in enumerate(row)
        if port < partner
    ]
    wanted = [tuple(sorted(pair)) for own in answer.ports for pair in combinations(own, 2)]
    assert sorted(met) == sorted(wanted)
    figures = om.verify(problem, solution).figures
    # alone, each circuit would take its shortest route: jobs cost each other next to nothing
    assert figures["total_cells"] <= 1.02 * figures["shortest_cells"]


@pytest.mark.parametrize(
    "tenants",
    [tuple(Tenant(f"{k}", n) for k, n in enumerate((16, 8, 4, 4))), MIX],
    ids=["sizes", "mix"],
)
def test_other_jobs_reach_the_bound_too(tenants: tuple[Tenant, ...]) -> None:
    problem = Tenancy(MESH, tenants, delay_s=0.1)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.schedule is not None and solution.schedule.n_slots == problem.min_slots


@pytest.mark.parametrize(
    "fabric", [om.HexMesh(5, 5, tx=8, rx=8), om.Benes(8), om.IdealSwitch(8)], ids=lambda f: f.type
)
def test_ports_with_inputs_and_outputs(fabric: om.Fabric) -> None:
    problem = Tenancy(fabric, (Tenant("a", 4), demand(3, 3)))
    assert om.solve(problem, seed=0).status is om.Status.OPTIMAL


@pytest.mark.parametrize("fabric", [om.IdealSwitch(5), MESH], ids=["one way", "two way"])
@pytest.mark.parametrize("seed", range(2))
def test_a_demand_is_split_into_as_many_rows_as_there_are(fabric: om.Fabric, seed: int) -> None:
    tenant = demand(5, 3, seed, least=1)
    problem = Tenancy(fabric, (tenant,))
    wanted = problem.slots_wanted(tenant)
    busiest = int(max(wanted.sum(axis=0).max(), wanted.sum(axis=1).max()))
    for slots in range(1, busiest + 3):
        work = plan_job(problem, tenant, slots, np.random.default_rng(seed))
        if work is None:
            assert slots < busiest or fabric.bidirectional
            continue
        assert busiest <= slots >= len(work.rows)
        met = np.zeros((10, 10), dtype=int)
        for row in work.rows:
            (ports,) = np.nonzero(row >= 0)
            assert (row[row[ports]] == ports).all()
            met[ports, row[ports]] += 1
        assert (met[:5, :5] if fabric.bidirectional else met[:5, 5:]).tolist() == wanted.tolist()


def test_nobody_moves_for_nothing() -> None:
    held = ((0, 9, 17), (4, 12, 30))
    stay = tuple(Tenant(f"old {k}", 3, held=ports) for k, ports in enumerate(held))
    problem = Tenancy(MESH, (*stay, Tenant("new", 8)), delay_s=0.1)
    solution = om.solve(problem, seed=0)
    answer: Any = solution.answer
    assert answer.ports[:2] == held
    assert solution.status is om.Status.OPTIMAL


def test_a_job_moves_where_that_is_cheaper() -> None:
    mesh = om.HexMesh(1, 1, ports=[0, 3, 6, 9])
    tenants = (Tenant("a", 2, held=(0, 3)), Tenant("b", 2, held=(1, 2)))
    cheap = om.solve(Tenancy(mesh, tenants, delay_s=0.01), seed=0)
    assert cheap.objective == pytest.approx(1.01 + 2 * 0.01)
    dear = om.solve(Tenancy(mesh, tenants, delay_s=10.0), seed=0)
    assert dear.objective == 2 * (1.0 + 10.0)
    answer: Any = dear.answer
    assert answer.ports == ((0, 3), (1, 2))


def test_dead_ports_are_given_to_nobody() -> None:
    broken = om.Faulty(om.HexMesh(5, 5, ports=12), stuck_bar=[40], dead_ports=[3, 7])
    problem = Tenancy(broken, (Tenant("a", 4), Tenant("b", 4), Tenant("c", 2)))
    solution = om.solve(problem, seed=0)
    answer: Any = solution.answer
    given = {port for ports in answer.ports for port in ports}
    assert given == set(range(12)) - {3, 7}
    assert solution.schedule is not None and solution.schedule.n_slots <= 4


def test_a_collective_without_a_plan_for_lack_of_time_is_no_defect() -> None:
    tenant = MIX[2]
    problem = Tenancy(om.IdealSwitch(8), (tenant,))
    with Limits(time_s=0.0).start().running(), pytest.raises(TimeUp):
        plan_job(problem, tenant, 9, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("n_ports", "most_slots", "fewest_slots"),
    [(3, 23, 23), (4, 16, 15), (5, 21, 19), (7, 22, 18), (8, 17, 15)],
)
def test_broadcasts_are_cut_for_slots(n_ports: int, most_slots: int, fewest_slots: int) -> None:
    """Of 15 slots between bidirectional ports: pieces as fine as rounds allow took up to 45."""
    tenant = Tenant("job", n_ports, "broadcast", size_bytes=15.0)
    problem = Tenancy(om.HexMesh(4, 4, ports=8), (tenant,))
    solution = om.solve(problem, seed=0)
    assert solution.schedule is not None
    assert solution.schedule.n_slots <= most_slots
    assert problem.min_slots == fewest_slots
    assert om.verify(problem, solution).valid


def test_an_idle_port_bounds_a_broadcast_of_three() -> None:
    """Two pieces by hand: root to a, root to b, and an exchange of a and b take three slots."""
    problem = Tenancy(om.HexMesh(2, 2, ports=4), (Tenant("job", 3, "broadcast", size_bytes=2.0),))
    assert problem.min_slots == 3
