"""Groups of entries with weights and deadlines: never better than brute force, bounds below it."""

from functools import cache
from itertools import permutations
from typing import Any, cast

import numpy as np
import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.io.files import problem_digest
from optmatch.model import InputError
from optmatch.problems.demands import problem as demands
from optmatch.problems.demands.problem import order_groups
from optmatch.solvers.demands.groups import GroupSlots, OrderedEntries, serve_in_order


def ask(matrix: Any, fabric: om.Fabric | None = None, **fields: Any) -> om.Demand:
    """Make a demand with groups."""
    given: dict[str, Any] = {"objective": "weighted-completion-s", "delay_s": 1.0} | fields
    return om.Demand.from_matrix(matrix, fabric, **given)


def coflows(n: int, count: int, seed: int, most: int = 9, **fields: Any) -> om.Demand:
    """Draw a demand with groups of random entries and whole weights."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(1, most + 1, (n, n)) * (rng.random((n, n)) < 0.6)
    groups = rng.integers(0, count, (n, n))
    groups[0, 0] = count - 1
    fields = {"weights": tuple(rng.integers(0, 6, count).tolist())} | fields
    return ask(matrix, groups=groups, **fields)


def least(problem: om.Demand) -> float:
    """Try all sequences of slots that end with a circuit or are shorter: for a few ticks."""
    n, groups = problem.fabric.n_ports, problem.groups
    assert groups is not None
    weights, due = problem.weights, problem.deadlines_s or (0.0,) * len(problem.weights)

    @cache
    def onwards(left: tuple[int, ...], clock: int, ends: tuple[int, ...]) -> float:
        if not any(left):
            return sum(w * max(0.0, e - d) for w, e, d in zip(weights, ends, due, strict=True))
        best = np.inf
        for matching in permutations(range(n)):
            pairs = [n * i + j for i, j in enumerate(matching) if left[n * i + j]]
            for held in range(1, max((left[k] for k in pairs), default=0) + 1):
                after, arrived = list(left), list(ends)
                for k in pairs:
                    if left[k] <= held:
                        group = int(groups.flat[k])
                        arrived[group] = max(arrived[group], clock + problem.delay_ticks + left[k])
                    after[k] = max(0, left[k] - held)
                later = clock + problem.delay_ticks + held
                best = min(best, onwards(tuple(after), later, tuple(arrived)))
        return float(best)

    return onwards(tuple(problem.ticks.ravel().tolist()), 0, (0,) * len(weights))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("due", [(), (3.0, 6.0)])
def test_brute_force_lies_between_the_bound_and_the_answer(
    seed: int, due: tuple[float, ...]
) -> None:
    problem = coflows(2, 2, seed, 3, deadlines_s=due, quantum_s=1.0)
    solution, best = om.solve(problem, seed=0), least(problem)
    assert problem.lower_bound() <= best * (1 + 1e-9)
    assert solution.objective == pytest.approx(best)
    assert om.verify(problem, solution).ok


def greedy(problem: om.Demand, order: tuple[int, ...], rule: Any) -> float:
    """Serve entries greedily by groups in an order; `rule` makes the length of a slot of ticks."""
    left, groups = problem.ticks.copy(), np.asarray(problem.groups)
    entries = list(zip(*(axis.tolist() for axis in np.nonzero(left)), strict=True))
    entries.sort(key=lambda entry: (order.index(groups[entry]), -left[entry]))
    ends, clock = np.zeros(len(order)), 0
    while left.any():
        slot = list[tuple[int, int]]()
        for source, destination in entries:
            is_free = all(source != a and destination != b for a, b in slot)
            if left[source, destination] and is_free:
                slot.append((source, destination))
        held = rule(left[entry] for entry in slot)
        clock += problem.delay_ticks
        for entry in slot:
            if left[entry] <= held:
                ends[groups[entry]] = max(ends[groups[entry]], clock + left[entry])
            left[entry] = max(0, left[entry] - held)
        clock += held
    return float(np.array(problem.weights) @ ends) * problem.tick_s


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize(
    ("n", "delay_s", "seed"), [(3, 0.5, 103), (4, 0.25, 101), (6, 2.0, 103), (6, 8.0, 101)]
)
def test_no_greedy_schedule_over_all_orders_is_better(
    n: int, delay_s: float, seed: int, count: int
) -> None:
    """Moves did not leave orders whose slots end with their first entry, 7 % too late at worst."""
    problem = coflows(n, count, seed, delay_s=delay_s)
    orders = list(permutations(range(count)))
    least = min(greedy(problem, order, rule) for order in orders for rule in (min, max, next))
    solution = om.solve(problem, seed=0)
    assert solution.objective <= least * (1 + 1e-9)
    assert om.verify(problem, solution).ok


@pytest.mark.kernels
@pytest.mark.parametrize("seed", range(8))
def test_without_delays_the_first_order_is_within_four_times_the_bound(seed: int) -> None:
    problem = coflows(8, 5, seed, delay_s=0.0)
    solution = om.solve(problem, seed=0, limits=om.Limits(iterations=1))
    assert solution.objective <= 4 * problem.lower_bound()


@pytest.mark.parametrize("seed", range(8))
def test_bounds_and_orders_of_the_relaxation(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    served, delayed = rng.integers(0, 9, (2, 5, 6))
    weights, due = rng.integers(0, [[6], [30 * (seed % 2) + 1]], (2, 5)).astype(np.float64)

    def cost(groups: Any) -> float:
        sets = (list(groups[: k + 1]) for k in range(5))
        ends = [served[s].sum(axis=0).max() + delayed[s].sum(axis=0).max() for s in sets]
        return float(weights[list(groups)] @ np.maximum(ends - due[list(groups)], 0))

    least = min(map(cost, permutations(range(5))))
    order, found = order_groups(served, delayed, weights, due)
    assert cost(order) == pytest.approx(least) == found
    for exact in range(5):
        monkeypatch.setattr(demands, "EXACT_GROUPS", exact)
        order, found = order_groups(served, delayed, weights, due)
        assert sorted(order) == list(range(5))
        assert found <= least + 1e-9
        assert due.any() or cost(order) <= 2 * found + 1e-9


def test_groups_are_kept_in_files_and_change_no_other_digest() -> None:
    problem = coflows(3, 2, 0, deadlines_s=(1, 2))
    assert loads(dumps(problem)) == problem
    plain = om.Demand(om.IdealSwitch(3), problem.demand_bytes, delay_s=1.0)
    assert "groups" not in dumps(plain)
    assert problem_digest(plain) != problem_digest(problem)


def test_idle_groups_and_cells_are_served() -> None:
    problem = ask(np.ones((4, 4)), om.Benes(4), groups=np.arange(16).reshape(4, 4) % 3)
    solution = om.solve(problem, seed=0, limits=om.Limits(iterations=3))
    assert solution.schedule is not None and solution.schedule.cell_states is not None
    empty = ask(np.zeros((2, 2)), groups=[[-1, 3], [0, 1]])
    assert om.solve(empty, seed=0).objective == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"groups": None}, "groups: a group for each entry"),
        ({"groups": [[0]]}, "groups: a group for each entry"),
        ({"groups": [[0, -1], [0, 0]]}, r"groups\[0, 1\] = -1"),
        ({"groups": [[0, 9], [0, 0]]}, "groups: number 9 of 4 entries"),
        ({"weights": (1.0,)}, "weights has 1 entries, there are 2 groups"),
        ({"deadlines_s": (1.0, 2.0, 3.0)}, "deadlines_s has 3 entries"),
        ({"planes": 2}, "on one plane"),
        ({"switching": "per-circuit"}, "all-stop"),
        ({"packet_bytes_per_s": 0.5}, "without packet network"),
        ({"objective": "completion-s"}, "are for objective weighted-completion-s"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ask([[1, 2], [3, 4]], **{"groups": [[0, 1], [1, 0]]} | fields)


def test_methods_for_the_whole_demand_do_not_take_groups() -> None:
    problem = coflows(2, 2, 0)
    with pytest.raises(InputError, match="these are: best"):
        om.solve(problem, "eclipse")
    mesh = om.HexMesh(2, 2, tx=2, rx=2)
    with pytest.raises(InputError, match="does not hold every matching"):
        om.solve(ask([[0, 1], [1, 0]], mesh, groups=[[0, 1], [1, 0]]))


def test_there_is_a_plan_of_many_groups_however_short_the_time_is() -> None:
    """The rule of the first order takes longer than the limit; it once left no answer."""
    n, count = 24, 500
    rng = np.random.default_rng(0)
    groups = rng.permutation(n * n).reshape(n, n) % count
    problem = ask(rng.integers(1, 9, (n, n)), groups=groups.astype(np.int32))
    solution = om.solve(problem, seed=0, time_limit_s=0.03)
    assert solution.schedule is not None and solution.limit is om.Limit.TIME
    assert solution.lower_bound == pytest.approx(problem.lower_bound())
    assert om.verify(problem, solution).ok


def test_slots_are_rated_for_the_time_that_they_really_last() -> None:
    """With 5 ticks at least, 6 ticks that end both entries beat 5 that end one of 1 tick."""
    entries = OrderedEntries(
        source=np.array([0, 1]),
        destination=np.array([1, 0]),
        group=np.array([0, 1]),
        unserved=np.array([1, 6]),
    )
    slots = GroupSlots(
        ends=np.zeros(2, dtype=np.int64),
        matchings=np.empty((2, 2), dtype=np.int32),
        ticks=np.empty(2, dtype=np.int64),
        is_taken=np.empty(2, dtype=np.bool_),
        chosen=np.empty(2, dtype=np.int64),
    )
    n_slots = cast("Any", serve_in_order)(entries, 2, 5, 1.0, slots)
    assert n_slots == 1
    assert slots.ticks[0] == 6 and slots.ends.tolist() == [3, 8]


def test_tables_have_the_groups_of_flows() -> None:
    """The column of the answer was there, and empty; that of the problem was missing."""
    problem = coflows(3, 2, 0)
    groups = np.asarray(problem.groups)
    flows = problem.to_dataframe()
    assert flows["group"].tolist() == groups[flows["source"], flows["destination"]].tolist()
    table = om.solve(problem, seed=0).to_dataframe()
    circuits = table[table["what"] == "circuit"]
    assert circuits["group"].tolist() == [
        groups[place] for place in zip(circuits["rank"], circuits["peer"], strict=True)
    ]
    plain = om.solve(ask([[0, 1], [1, 0]], objective="completion-s"), seed=0).to_dataframe()
    assert set(plain["group"]) == {""}
