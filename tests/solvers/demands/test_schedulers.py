"""Schedulers of demands: what each promises beyond the contract."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import UNREACHED
from optmatch.fabrics.fabric import find_staying
from optmatch.model import Limit, Limits, counted_time
from optmatch.problems import CountProof
from optmatch.problems.demands import traffic
from optmatch.solvers.demands.decomposer import Decomposer
from optmatch.solvers.demands.first_fit import cover_heaviest_first
from optmatch.solvers.demands.line_pairs import count_terms, guess_weights
from optmatch.solvers.demands.plans import Plan, finish_plan, only_demanded, serve, tidy
from optmatch.solvers.demands.realisable import Realiser
from optmatch.solvers.demands.scheduling import divide_among_planes, former_plan
from optmatch.testing.demands import best_demand
from optmatch.testing.routing import largest_matchings
from optmatch.verify.demands.bounds import check_proof
from tests.helpers.modes import PLAIN, compiled_only, examples

pytestmark = pytest.mark.kernels

Matrix = NDArray[np.int64]


@st.composite
def matrices(draw: st.DrawFn, most: int = 9) -> Matrix:
    """Draw whole demands, some of them zero."""
    n = draw(st.integers(1, most))
    seed, density = draw(st.integers(0, 10_000)), draw(st.sampled_from((0.2, 0.5, 1.0)))
    rng = np.random.default_rng(seed)
    drawn: Matrix = rng.integers(1, 60, (n, n)) * (rng.random((n, n)) < density)
    drawn[0, 0] += 1
    return drawn


def ideal(matrix: Any, **options: Any) -> om.Demand:
    """Ask an ideal switch."""
    return om.Demand.from_matrix(matrix, **{"delay_s": 0.0, **options})


def noisy(n: int, seed: int = 0) -> NDArray[np.float64]:
    """Draw traffic after Solstice with some noise."""
    rng = np.random.default_rng(seed)
    return traffic.solstice(n, rng, large=2, small=6, noise=0.003)


# -- pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 210])
def test_best_says_that_time_was_over(n: int) -> None:
    solution = om.solve(ideal(noisy(n), delay_s=1e-5), "best", seed=0, time_limit_s=0.05)
    assert solution.limit is om.Limit.TIME


def test_tidy_merges_equal_matchings() -> None:
    plan = Plan(np.array([[1, 0], [0, 1], [1, 0]], dtype=np.int32), np.array([2, 9, 3]))
    merged = tidy(plan)
    assert merged.ticks.tolist() == [9, 5]
    assert serve(merged).tolist() == serve(plan).tolist()


def test_circuits_that_nobody_asked_for_go() -> None:
    plan = Plan(np.array([[0, 1], [1, 0]], dtype=np.int32), np.array([2, 2]))
    kept = only_demanded(plan, np.array([[2, 0], [0, 0]]), 3)
    assert kept.matchings.tolist() == [[0, -1]]
    assert kept.ticks.tolist() == [3]


@given(matrices(), st.integers(2, 5), st.integers(0, 30))
@settings(deadline=None, max_examples=30)
def test_planes_share_the_work(matrix: Matrix, planes: int, delay: int) -> None:
    """Nothing is lost, and no plane ends later than if slots were dealt out in turn."""
    problem = ideal(matrix, delay_s=float(delay), quantum_s=1.0, planes=planes)
    plan = cover_heaviest_first(matrix)
    shares = divide_among_planes(plan, problem)
    assert sum(serve(share) for share in shares).tolist() == serve(plan).tolist()  # type: ignore[union-attr]
    ends = [share.cost(delay) for share in shares]
    dealt = [int((plan.ticks[k::planes] + delay).sum()) for k in range(planes)]
    assert max(ends) <= max(dealt)


# -- methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["best", "portfolio"])
def test_covers_on_traffic_are_near_the_bound(method: str) -> None:
    problem = ideal(noisy(8 if PLAIN else 16), delay_s=20e-6)
    assert om.solve(problem, method, seed=0).objective <= 1.1 * problem.lower_bound()


def test_without_delay_the_line_bound_is_met() -> None:
    """The exact decomposition is in the portfolio."""
    solution = om.solve(ideal(noisy(8), delay_s=0.0), "best", seed=0)
    assert solution.status is om.Status.OPTIMAL


@pytest.mark.parametrize("fabric", [om.Benes(8), om.HexMesh(3, 3, ports=8)], ids=lambda f: f.type)
def test_circuits_go_on_where_routes_stay(fabric: om.Fabric) -> None:
    """Where a circuit needs the delays too, the same cells lead its light on."""
    matrix = np.random.default_rng(3).integers(1, 60, (8, 8))
    np.fill_diagonal(matrix, 0)
    matrix = np.maximum(matrix, matrix.T)
    problem = om.Demand.from_matrix(matrix, fabric, delay_s=1.0, switching="per-circuit")
    solution = om.solve(problem, "best", seed=0, limits=Limits(iterations=4))
    schedule = solution.schedule
    assert schedule is not None
    assert schedule.cell_states is not None

    # Circuits of two slots in a row hardly ever have to change their routes.
    rows = schedule.matchings
    n_shared = int(((rows[1:] == rows[:-1]) & (rows[1:] != -1)).sum())
    n_stay = int(find_staying(fabric, rows, schedule.cell_states).sum())
    assert n_shared >= 20
    assert 0.8 * n_shared <= n_stay <= n_shared


def test_a_crossbar_loses_nothing_to_its_routes() -> None:
    matrix = [[5, 1, 1], [0, 6, 1], [1, 0, 7]]
    given: Any = {"delay_s": 2.0, "switching": "per-circuit"}
    expected = om.solve(ideal(matrix, **given), "best", seed=0).objective
    crossbar = om.Demand.from_matrix(matrix, om.Crossbar(3), **given)
    assert om.solve(crossbar, "best", seed=0).objective == expected


@compiled_only
def test_a_packet_network_takes_the_mice() -> None:
    """Small flows do not get circuits of their own."""
    matrix = np.full((8, 8), 1.0) + 100 * np.eye(8)
    alone = om.solve(ideal(matrix, delay_s=10.0), "best", seed=0)
    helped = om.solve(ideal(matrix, delay_s=10.0, packet_bytes_per_s=0.1), "best", seed=0)
    assert helped.schedule.n_slots == 1
    assert helped.objective == 108  # 98 s of 101 by circuit, the other 3 s and 7 mice by packets
    assert alone.objective == 188


@compiled_only
def test_planes_end_together() -> None:
    """On four planes, nearly four times as fast."""
    problem = ideal(noisy(16), delay_s=1e-6, planes=4)
    solution = om.solve(problem, "best", seed=0)
    assert solution.objective <= 1.2 * problem.lower_bound()


# -- meshes --------------------------------------------------------------------------------------


def test_uniform_demand_on_a_mesh_takes_the_fewest_slots() -> None:
    """All-to-all matchings are a plan for it."""
    mesh = om.HexMesh(4, 4, ports=8)
    solution = om.solve(om.Demand(mesh, 1.0 - np.eye(8), delay_s=1.0), "best", seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.schedule.n_slots == 7


# -- exact ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "seed"), [(4, 2), (9, 0), (11, 1), (13, 2)])
def test_sums_of_n_permutations_are_proved_by_two_lines(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = traffic.permutations(n, rng, count=n)
    solution = om.solve(ideal(matrix, objective="matchings"), "ilp", seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert isinstance(solution.certificate, CountProof)
    assert solution.objective is not None and solution.objective <= n
    assert "bound_by" not in solution.stats


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 1000), st.sampled_from([4, 30]))
def test_two_lines_never_ask_for_more_than_were_added(
    n: int, count: int, seed: int, largest: int
) -> None:
    matrix = traffic.permutations(n, np.random.default_rng(seed), count=count, bytes=largest)
    problem = ideal(matrix, objective="matchings")
    proof, needed = count_terms(problem.ticks)
    shown = problem.lower_bound() if proof is None else check_proof(problem, proof)
    assert problem.lower_bound() <= needed == shown <= count


def test_lines_are_counted_within_the_time() -> None:
    """All pairs of lines of this sum take seconds; what the deadline leaves out proves less."""
    matrix = traffic.permutations(12, np.random.default_rng(0), count=24)
    ticks = ideal(matrix, objective="matchings").ticks
    _, needed = count_terms(ticks, counted_time())
    assert needed == np.count_nonzero(ticks, axis=1).max()
    began_s = counted_time()
    _, counted = count_terms(ticks, began_s + 0.1)
    assert counted >= needed
    assert counted_time() - began_s < 1.0


def test_a_count_of_rounded_floats_says_so() -> None:
    """They have no common unit: what is proved is about the ticks to which they are rounded."""
    rng = np.random.default_rng(0)
    floats = sum(weight * np.eye(5)[rng.permutation(5)] for weight in rng.random(4))
    problem = ideal(floats, objective="matchings")
    solution = om.solve(problem, seed=0)
    assert solution.stats["rounded_to_s"] == problem.tick_s
    whole = om.solve(ideal([[3, 1], [1, 3]], objective="matchings"), seed=0)
    assert "rounded_to_s" not in whole.stats


@given(st.integers(2, 6), st.integers(1, 8), st.integers(0, 1000))
def test_guesses_of_weights_end_with_what_is_forced(n: int, count: int, seed: int) -> None:
    matrix = traffic.permutations(n, np.random.default_rng(seed), count=count)
    guesses = list(guess_weights(matrix.astype(np.int64), count))
    assert [is_forced for _, is_forced in guesses] == [False] * (len(guesses) - 1) + [True]
    entries = set(matrix[matrix > 0].tolist())
    assert all(set(weights) <= entries and len(weights) <= count for weights, _ in guesses)


def test_a_pair_whose_port_is_taken_is_left_out() -> None:
    """By 0 -> 1, of the largest claim, the next two are: one from its source, one to its end."""
    realiser = Realiser(om.Demand(om.IdealSwitch(3), np.ones((3, 3)) - np.eye(3)))
    assert realiser.place([(0, 1), (0, 2), (2, 1), (1, 0)]).tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("eclipse", "needs a decomposition"),
        ("birkhoff-first", "need not be realisable on"),
    ],
)
def test_fewest_matchings_are_not_for_every_switch_and_method(method: str, message: str) -> None:
    """Covers decompose nothing, and a mesh does not have every permutation."""
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    on_mesh = om.Demand(om.HexMesh(2, 2, ports=2), swap, objective="matchings")
    with pytest.raises(om.InputError, match=message):
        om.solve(on_mesh, method)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.permutations(range(3)), st.integers(1, 4)), max_size=4),
    st.sampled_from([1, 2, 3, 2**50]),
    st.sampled_from(["best", "ilp", "birkhoff-first"]),
)
def test_fewest_matchings_keep_the_shortest_slot(terms: Any, shortest: int, method: str) -> None:
    """Against all decompositions into slots that are long enough; some matrices have none."""
    matrix = np.zeros((3, 3), dtype=np.int64)
    for row, weight in terms:
        matrix[np.arange(3), row] += weight
    problem = ideal(matrix, objective="matchings", quantum_s=1.0, min_slot_s=float(shortest))

    def fewest(left: Matrix) -> float:
        """Take any term off that makes a first entry smaller."""
        if not left.any():
            return 0
        first = int(np.flatnonzero(left[0])[0])
        return min(
            (
                1 + fewest(left - weight * np.eye(3, dtype=np.int64)[list(row)])
                for row in itertools.permutations(range(3))
                if row[0] == first
                for weight in range(shortest, int(left[np.arange(3), row].min()) + 1)
            ),
            default=np.inf,
        )

    solution, wanted = om.solve(problem, method, seed=0), fewest(matrix)
    assert om.verify(problem, solution).valid
    found = np.inf if solution.objective is None else solution.objective
    assert wanted <= found and solution.lower_bound <= wanted
    if method == "ilp":
        assert found == wanted
        assert solution.status is om.Status("optimal" if wanted < np.inf else "infeasible")


def parts(matchings: list[list[int]], mutual: bool) -> list[list[int]]:
    """List all matchings within these."""
    found = set()
    for row in matchings:
        pairs = [(i, j) for i, j in enumerate(row) if j >= 0 and (not mutual or i < j)]
        for kept in itertools.product([False, True], repeat=len(pairs)):
            part = [-1] * len(row)
            for (i, j), keep in zip(pairs, kept, strict=True):
                if keep:
                    part[i] = j
                    if mutual:
                        part[j] = i
            found.add(tuple(part))
    return [list(part) for part in found if max(part) >= 0]


@pytest.mark.parametrize("method", ["best", "ilp"])
@pytest.mark.parametrize("seed", range(examples(3, plain=1)))
@pytest.mark.parametrize(
    "mesh", [om.HexMesh(1, 2, ports=[0, 1, 3, 10]), om.HexMesh(1, 1, tx=[0, 3], rx=[5, 8])]
)
def test_fewest_matchings_that_a_mesh_holds(mesh: om.HexMesh, seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    n, mutual = mesh.n_ports, mesh.bidirectional
    whole = [[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]] if mutual else [[0, 1], [1, 0]]
    demand = np.zeros((n, n))
    for row in whole:
        if UNREACHED not in mesh.route_cells()[np.arange(n), row]:
            demand[np.arange(n), row] += rng.integers(0, 4)
    problem = om.Demand(mesh, demand, objective="matchings", quantum_s=1.0)
    few = om.Limits(iterations=10 if PLAIN else None)
    solution = om.solve(problem, method, seed=seed, limits=few)
    held = parts(largest_matchings(mesh) or [], mutual)
    fewest = best_demand(problem, held) if demand.any() else 0
    assert solution.objective == fewest >= solution.lower_bound
    assert om.verify(problem, solution).ok


@pytest.mark.parametrize("method", ["best", "ilp", "birkhoff-bottleneck"])
def test_fewest_matchings_of_a_benes_network_are_those_of_an_ideal_switch(method: str) -> None:
    matrix = traffic.permutations(4, np.random.default_rng(4), count=3, bytes=9)
    limits = om.Limits(iterations=20)
    ideal_one = om.solve(ideal(matrix, objective="matchings"), method, seed=0, limits=limits)
    routed = om.Demand(om.Benes(4), matrix, objective="matchings")
    solution = om.solve(routed, method, seed=0, limits=limits)
    assert solution.objective == ideal_one.objective
    assert solution.schedule.cell_states is not None


def test_fewest_matchings_on_a_larger_mesh() -> None:
    """Uniform demands by an all-to-all; of five ports one idles at any time."""
    everyone = om.Demand(om.HexMesh(4, 4, ports=8), 1.0 - np.eye(8), objective="matchings")
    assert om.solve(everyone, seed=0).status is om.Status.OPTIMAL
    odd = om.Demand(om.HexMesh(3, 3, ports=5), 1.0 - np.eye(5), objective="matchings")
    solution = om.solve(odd, "ilp", seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.objective == 5


@compiled_only
def test_three_ports_are_scheduled_best() -> None:
    """Proved by all three of them, where each port alone would be done earlier."""
    problem = om.Demand(om.HexMesh(2, 2, ports=4), np.pad(1.0 - np.eye(3), (0, 1)), delay_s=1.0)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.objective == 6.0


@given(st.integers(2, 7), st.integers(0, 1000))
@settings(deadline=None, max_examples=15)
def test_redrawn_decompositions_stay_exact(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = traffic.permutations(n, rng, bytes=30).astype(np.int64)
    search = Decomposer(matrix, rng)
    plan = search.draw()
    for _ in range(5):
        again = search.redraw(plan)
        assert serve(again).tolist() == matrix.tolist()
        assert len(again.ticks) <= len(plan.ticks)
        plan = again


def test_a_former_plan_keeps_its_ticks() -> None:
    """Seconds of a long schedule are rounded by more than a millionth of a tick."""
    rng = np.random.default_rng(0)
    delay_s = 7e-7
    matrix = rng.integers(1, 10**13, (4, 4)) * delay_s
    problem = ideal(matrix, delay_s=delay_s)
    ticks = rng.integers(1, int(problem.ticks.max()), 60)
    matchings = np.array([rng.permutation(4) for _ in ticks], dtype=np.int32)
    schedule = problem.schedule(matchings, ticks)
    former = om.Solution(
        problem=problem,
        status=om.Status.FEASIBLE,
        limit=Limit.TIME,
        objective=schedule.makespan_s,
        schedule=schedule,
        method="best",
    )
    plan = former_plan(problem, former)
    assert plan is not None
    assert plan.ticks.tolist() == ticks.tolist()


def test_idle_ports_are_joined_where_that_makes_slots_equal() -> None:
    """Two slots that serve two entries each are one permutation, held for the longer of both."""
    demand = np.diag([5, 5, 3, 3])
    matchings = np.array([[0, 1, -1, -1], [-1, -1, 2, 3]], dtype=np.int32)
    finished = finish_plan(Plan(matchings, np.array([5, 3])), demand)
    assert finished.matchings.tolist() == [[0, 1, 2, 3]]
    assert finished.ticks.tolist() == [5]
