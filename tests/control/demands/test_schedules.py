"""The scheduler's view of demands: exact decompositions, and schedules within milliseconds."""

import itertools
import time
import tracemalloc
from typing import Any

import networkx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

import optmatch as om
from optmatch.control.demands import schedules
from optmatch.control.demands.schedules import Slots, decompose, schedule
from optmatch.problems.demands import traffic
from optmatch.solvers.demands import birkhoff, entry_covers, portfolio
from tests.helpers.modes import compiled_only
from tests.solvers.demands.test_birkhoff import permutation_sum

DELAY_S = 20e-6


def add_up(permutations: NDArray[np.int32], weights: NDArray[Any]) -> NDArray[Any]:
    """Add weighted permutations."""
    n = permutations.shape[1]
    total = np.zeros((n, n), dtype=weights.dtype)
    for permutation, weight in zip(permutations, weights.tolist(), strict=True):
        total[np.arange(n), permutation] += weight
    return total


@pytest.mark.parametrize("rule", ["bottleneck", "first"])
def test_a_matrix_is_the_sum_of_its_terms(rule: Any) -> None:
    rng = np.random.default_rng(0)
    matrix = np.zeros((9, 9), dtype=np.int64)
    for _ in range(30):
        matrix[np.arange(9), rng.permutation(9)] += rng.integers(1, 2**54)
    assert (add_up(*decompose(matrix, rule)) == matrix).all()
    uneven = rng.integers(0, 9, (6, 6))
    total = add_up(*decompose(uneven, rule, fill=True))
    assert (total >= uneven).all()
    assert total.sum() == 6 * max(uneven.sum(axis=0).max(), uneven.sum(axis=1).max())
    with pytest.raises(om.InputError, match="sums to"):
        decompose(uneven, rule)


@pytest.mark.parametrize("rule", ["first", "bottleneck"])
@pytest.mark.parametrize("ports", [2, 5, 24])
def test_floats_are_decomposed(ports: int, rule: Any) -> None:
    rng = np.random.default_rng(ports)
    matrix = np.zeros((ports, ports))
    for weight in rng.random(9):
        matrix[np.arange(ports), rng.permutation(ports)] += weight / 3
    permutations, weights = decompose(matrix, rule)
    assert np.abs(add_up(permutations, weights) - matrix).max() <= 1e-12 * matrix.sum(axis=0).max()
    assert rule == "first" or (weights > 1e-12).all()
    assert len(weights) <= np.count_nonzero(matrix)
    matrix[0, 0] += 1e-9
    with pytest.raises(om.InputError, match="whole"):
        decompose(matrix, rule)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.float32, np.float64])
def test_weights_have_the_type_of_the_matrix(kind: Any) -> None:
    """Floats that happen to be whole numbers are floats still, full and sparse, filled and not."""
    expected = np.float64 if issubclass(kind, np.floating) else np.int64
    many_ports = csr_array(3 * np.eye(100, dtype=kind))
    for matrix in (np.array([[5, 1], [1, 5]], kind), many_ports, np.zeros((2, 2), kind)):
        for options in ({}, {"fill": True}, {"tolerance": 0.1}):
            assert decompose(matrix, **options).weights.dtype == expected
    assert decompose(many_ports).weights.tolist() == [3]


def test_rows_of_different_lengths_are_not_decomposed() -> None:
    with pytest.raises(om.InputError, match=r"matrix\[1\] has 1 numbers, the first row 2"):
        ragged: Any = [[0.5, 0.5], [1.0]]
        decompose(ragged)


def test_sparse_matrices_are_decomposed() -> None:
    sparse = csr_array(np.array([[5, 1], [1, 5]]))
    assert decompose(sparse).weights.tolist() == [5, 1]


FEW_ENTRIES = permutation_sum(100, 3, 0, most=49)
"""Few enough to be listed."""


@pytest.mark.parametrize("n", [100, 200])
@pytest.mark.parametrize("rule", ["bottleneck", "first"])
def test_sparse_matrices_of_few_entries_are_never_full(
    rule: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their terms are exact; by the bottleneck each weight is the largest that there is."""
    matrix = permutation_sum(n, 3, 0, most=49)
    full = decompose(matrix, rule)
    monkeypatch.setattr(csr_array, "toarray", None)
    terms = decompose(csr_array(matrix), rule)
    assert (add_up(*terms) == matrix).all()
    assert (np.sort(terms.permutations, axis=1) == np.arange(n)).all()
    if rule == "bottleneck":
        assert terms.weights[0] == full.weights[0]
        assert (np.diff(terms.weights) <= 0).all()


def test_sparse_floats_are_decomposed_and_filled() -> None:
    matrix = FEW_ENTRIES / 7
    terms = decompose(csr_array(matrix))
    assert np.abs(terms.rest_of(matrix)).max() <= 1e-12 * matrix[0].sum()
    uneven = matrix * np.random.default_rng(0).random((100, 100))
    largest = max(uneven.sum(axis=0).max(), uneven.sum(axis=1).max())
    filled = decompose(csr_array(uneven), fill=True)
    assert (filled.rest_of(uneven) <= 0).all()
    assert filled.weights.sum() == pytest.approx(largest, rel=1e-12)
    with pytest.raises(om.InputError, match=r"sums to .*, row 0 to .*: sums of floats"):
        decompose(csr_array(uneven))
    part = decompose(csr_array(matrix), tolerance=0.1)
    assert np.abs(part.rest_of(matrix)).sum(axis=1).max() <= 0.1 * matrix[0].sum()


def test_what_is_wrong_with_a_sparse_matrix_is_told() -> None:
    uneven = FEW_ENTRIES.copy()
    uneven[3, 4] += 1
    for matrix, message in (
        (uneven, r"sums to .*, row 0 to .*: must be equal; fill=True raises"),
        (-FEW_ENTRIES, r"matrix\[0, \d+\] = -\d+: must be >= 0"),
        (FEW_ENTRIES[:50], "must be square"),
    ):
        with pytest.raises(om.InputError, match=message):
            decompose(csr_array(matrix))
    with pytest.raises(om.InputError, match=r"sums to .* of the largest line"):
        decompose(csr_array(uneven), tolerance=1e-9)
    nothing = decompose(csr_array((100, 100), dtype=np.int64))
    assert nothing.permutations.shape == (0, 100)


def test_ctrl_c_ends_a_sparse_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(birkhoff, "peel_listed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decompose(csr_array(FEW_ENTRIES))


def solstice(seed: int) -> Any:
    """Draw 4 large and 12 small flows for each of 64 ports, with noise."""
    return traffic.solstice(64, np.random.default_rng(seed), noise=0.003)


def is_right(demand: NDArray[np.float64], slots: Slots) -> bool:
    """Ask the verifier whether it is a schedule of the same demand, as long as it says."""
    problem = om.Demand(om.IdealSwitch(len(demand)), demand, delay_s=DELAY_S)
    held = om.Schedule(matchings=slots.matchings, durations_s=slots.durations_s, delay_s=DELAY_S)
    assert slots.lower_bound_s == problem.lower_bound()
    assert slots.completion_s == pytest.approx(held.makespan_s)
    return om.verify(problem, held).ok


@pytest.mark.parametrize(
    ("limit_s", "ratio"), [(0.0, 1.1), pytest.param(None, 1.065, marks=compiled_only)]
)
def test_schedules_of_solstice_are_near_the_bound(
    limit_s: float | None, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still: the entries that kernels look at are limited, not seconds."""
    for module in (
        "control.demands.schedules",
        "solvers.demands.portfolio",
        "solvers.demands.entry_covers",
    ):
        monkeypatch.setattr(f"optmatch.{module}.counted_time", lambda: 0.0)
    ratios = []
    for seed in range(3):
        demand = solstice(seed)
        slots = schedule(demand, DELAY_S, time_limit_s=limit_s)
        assert is_right(demand, slots)
        ratios.append(slots.completion_s / slots.lower_bound_s)
    assert np.median(ratios) <= ratio


@compiled_only
def test_a_schedule_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former plan is one more candidate; what is tried beside it ends, on any machine."""
    monkeypatch.setattr("optmatch.solvers.demands.portfolio._GRACE_S", 10.0)
    ratios = []
    for seed in range(4):
        rng, demand = np.random.default_rng(seed), solstice(seed)
        before = schedule(demand, DELAY_S, time_limit_s=None)
        rows, columns = np.nonzero(demand)
        some = rng.choice(len(rows), len(rows) // 20, replace=False)
        demand[rows[some], columns[some]] *= rng.uniform(0.5, 1.5, len(some))
        demand = np.rint(demand * 1e9).astype(np.int64) / 1e9
        slots = schedule(demand, DELAY_S, time_limit_s=0.0, previous=before)
        assert is_right(demand, slots)
        assert slots.completion_s <= schedule(demand, DELAY_S, time_limit_s=0.0).completion_s
        ratios.append(slots.completion_s / slots.lower_bound_s)

    # A single demand depends on which of many equal matchings a rule takes.
    assert np.mean(ratios) <= 1.075


def test_small_and_empty_demands() -> None:
    assert schedule(np.zeros((3, 3)), 1.0).completion_s == 0.0
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 8):
        demand: Any = rng.integers(0, 3, (n, n)) / 1e3
        first, again = (schedule(demand, DELAY_S, time_limit_s=None) for _ in range(2))
        assert is_right(demand, first)
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)


def test_labels_of_a_frame_or_a_graph_stay() -> None:
    """And change nothing else; a plain matrix has none, and nor has a frame that counts from 0."""
    demand: Any = np.array([[0, 2, 1], [3, 0, 0], [0, 1, 0]]) / 1e3
    plain = schedule(demand, DELAY_S, time_limit_s=None)
    assert plain.names is None
    pandas = pytest.importorskip("pandas")
    networkx = pytest.importorskip("networkx")
    labels = ["x", "y", "z"]
    graph = networkx.DiGraph()
    graph.add_nodes_from(labels)
    for i, j in np.argwhere(demand):
        graph.add_edge(labels[i], labels[j], weight=float(demand[i, j]))
    for given in (pandas.DataFrame(demand, labels, labels), graph):
        slots = schedule(given, DELAY_S, time_limit_s=None)
        assert slots.names == ("x", "y", "z")
        for one, other in zip(slots[:4], plain[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        again = schedule(given, DELAY_S, time_limit_s=0.0, previous=slots)
        assert again.names == slots.names
    assert schedule(pandas.DataFrame(demand), DELAY_S, time_limit_s=None).names is None
    with pytest.raises(om.InputError, match="same labels in another order"):
        schedule(pandas.DataFrame(demand, labels, labels[::-1]), DELAY_S)


def test_more_time_and_a_former_answer_are_never_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is counted in looks at the clock, so that other processes make no difference."""
    looks = itertools.count()
    for module in (portfolio, entry_covers, schedules):
        monkeypatch.setattr(module, "counted_time", lambda: next(looks) * 1e-4)
    rng = np.random.default_rng(35)
    for n, density in itertools.product((3, 5, 8), (0.3, 1.0)):
        demand = rng.integers(1, 30, (n, n)) * (rng.random((n, n)) < density)
        for delay_s in (0.0, 5.0, 500.0):
            times = [schedule(demand, delay_s, time_limit_s=k * 1e-4) for k in (0, 5, 20, 60)]
            ends = [slots.completion_s for slots in times]
            assert ends == sorted(ends, reverse=True)
            changed = demand.copy()
            changed[rng.integers(n), rng.integers(n)] += 7
            for k in (0, 5, 20):
                anew, after = (
                    schedule(changed, delay_s, time_limit_s=k * 1e-4, previous=before)
                    for before in (None, times[1])
                )
                assert after.completion_s <= anew.completion_s


@pytest.mark.usefixtures("limits_in_cpu_time")
def test_the_limit_of_time_is_kept() -> None:
    demand = solstice(2)
    schedule(demand, DELAY_S)
    started = time.process_time()
    schedule(demand, DELAY_S, time_limit_s=0.1)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([[1, 2]], 1.0), "must be square"),
        (([[-1.0]], 1.0), "-1"),
        (([[1.0]], -1.0), "delay_s = -1"),
        (([], 1.0), "not empty"),
        (([[1, 2], [3]], 1.0), r"^matrix\[1\] has 1 numbers, the first row 2"),
        (([[1.0, 2**53 + 1], [0, 0]], 1.0), "9007199254740993: above"),  # a float in the row
        (([[0, 2**64 + 1], [0, 0]], 1.0), "18446744073709551617: above"),
    ],
)
def test_wrong_demands_are_refused(given: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        schedule(*given)


def test_a_wrong_previous_schedule_is_refused() -> None:
    durations = np.ones(1)
    for rows, message in (([[0, 1]], "no matchings of 3"), ([[0, 0, 1]], "share destination")):
        before = Slots(np.array(rows, dtype=np.int32), durations, 0.0, 0.0)
        with pytest.raises(om.InputError, match=message):
            schedule(np.ones((3, 3)), 1.0, previous=before)
    nothing: Any = 3
    with pytest.raises(om.InputError, match="previous = 3: a Slots is expected"):
        schedule(np.ones((3, 3)), 1.0, previous=nothing)


def test_sums_of_floats_that_differ_are_called_so() -> None:
    uneven = [[0.5, 0.5], [0.5, 0.5 + 1e-10]]
    with pytest.raises(om.InputError, match=r"row 1 sums to 1\.0000000001.*, row 0 to 1: sums of"):
        decompose(uneven)
    terms = decompose(uneven, tolerance=1e-9)
    assert np.abs(terms.rest_of(uneven)).max() <= 1e-9
    with pytest.raises(om.InputError, match=r"sums to .* of the largest"):
        decompose([[5, 1], [1, 6]], tolerance=1e-3)
    with pytest.raises(om.InputError, match="tolerance = -1"):
        decompose([[1]], tolerance=-1.0)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_floats_of_few_bits_are_taken_at_their_values(kind: Any) -> None:
    rng = np.random.default_rng(0)
    matrix = np.zeros((8, 8))
    for weight in (0.25, 0.125, 0.5, 0.0625):
        matrix[np.arange(8), rng.permutation(8)] += weight
    few, many = decompose(matrix.astype(kind)), decompose(matrix)
    assert few.permutations.tolist() == many.permutations.tolist()
    assert few.weights.tolist() == many.weights.tolist()
    assert few.weights.dtype == np.float64


def test_floats_are_filled() -> None:
    """The sum is at least the matrix, to the last bit, and no line is more than the largest."""
    rng = np.random.default_rng(0)
    for n in (1, 5, 12):
        matrix = rng.random((n, n)) * (rng.random((n, n)) < 0.7)
        matrix[0, 0] = 1 / 3
        terms = decompose(matrix, fill=True)
        assert (terms.rest_of(matrix) <= 0).all()
        largest = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
        assert terms.weights.sum() == pytest.approx(largest, rel=1e-12)


def test_a_tolerance_takes_fewer_terms() -> None:
    matrix = np.diag([1000] * 6) + np.random.default_rng(0).permutation(np.eye(6, dtype=int))
    all_of_it, most_of_it = decompose(matrix), decompose(matrix, tolerance=0.01)
    assert len(most_of_it.weights) < len(all_of_it.weights)
    assert np.abs(most_of_it.rest_of(matrix)).sum(axis=1).max() <= 0.01 * 1001


# Schedules of demands with many ports and few partners, which are never made full.


def draw_sparse(n_ports: int, partners: int, seed: int) -> coo_array:
    """Draw so many flows of each port to different ports, in seconds."""
    rng = np.random.default_rng(seed)
    sources = np.tile(np.arange(n_ports), partners)
    destinations = np.concatenate([rng.permutation(n_ports) for _ in range(partners)])
    sizes_s = rng.integers(1, 1000, n_ports * partners) / 1e3
    return coo_array((sizes_s, (sources, destinations)), shape=(n_ports, n_ports))


def check_served(demand: coo_array, slots: Slots, delay_s: float) -> None:
    """Replay a schedule: matchings, and that each entry is served, entry by entry."""
    total = demand.tocsr()
    total.sum_duplicates()
    served = np.zeros(total.nnz)
    rows = np.repeat(np.arange(total.shape[0]), np.diff(total.indptr))
    for matching, duration_s in zip(slots.matchings, slots.durations_s, strict=True):
        used = matching[matching >= 0]
        assert len(np.unique(used)) == len(used)
        served += np.where(matching[rows] == total.indices, duration_s, 0.0)
    assert (served >= total.data * (1 - 1e-12)).all()
    end_s = slots.durations_s.sum() + delay_s * len(slots.durations_s)
    assert slots.completion_s == pytest.approx(end_s)
    assert slots.lower_bound_s <= slots.completion_s * (1 + 1e-12)


def test_twenty_thousand_ports_take_little_memory() -> None:
    """A full matrix of them would have 3.2 GB."""
    demand = draw_sparse(20_000, 4, seed=0)
    schedule(demand, 1e-3, time_limit_s=0.0)  # kernels are compiled
    tracemalloc.start()
    slots = schedule(demand, 1e-3, time_limit_s=0.0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100e6
    check_served(demand, slots, 1e-3)


def test_listed_and_full_demands_have_the_same_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first plan; and rules for listed entries serve everything."""
    monkeypatch.setattr(portfolio, "_GRACE_S", 0.0)
    demand = draw_sparse(30, 3, seed=1)
    full = schedule(demand.toarray(), 1e-3, time_limit_s=0.0)
    monkeypatch.setattr(schedules, "_FILLED_PORTS", 10)
    listed = schedule(demand, 1e-3, time_limit_s=0.0)
    assert listed.matchings.tolist() == full.matchings.tolist()
    assert listed.durations_s.tolist() == full.durations_s.tolist()
    assert listed.lower_bound_s == full.lower_bound_s


def test_more_time_helps_many_ports() -> None:
    demand = draw_sparse(600, 6, seed=2)
    first = schedule(demand, 0.1, time_limit_s=0.0)
    best = schedule(demand, 0.1, time_limit_s=None)
    check_served(demand, best, 0.1)
    assert best.completion_s < first.completion_s


def test_labels_of_large_graphs_stay() -> None:
    graph = networkx.DiGraph()
    graph.add_nodes_from(f"port {k}" for k in range(5_000))
    graph.add_edge("port 7", "port 4999", weight=2.5)
    slots = schedule(graph, 0.5, time_limit_s=0.0)
    assert slots.names is not None
    assert slots.names[4999] == "port 4999"
    assert slots.matchings[0, 7] == 4999
    assert slots.completion_s == 3.0


def test_wrong_sparse_demands_are_refused() -> None:
    negative = coo_array(([1.0, -2.0], ([0, 4_999], [1, 17])), shape=(5_000, 5_000))
    with pytest.raises(om.InputError, match=r"demand_bytes\[4999, 17\] = -2: must be >= 0"):
        schedule(negative, 1e-3)
    n_ports = 30_000
    hub = coo_array(
        (np.ones(n_ports), (np.zeros(n_ports, int), np.arange(n_ports))), shape=(n_ports, n_ports)
    )
    with pytest.raises(om.InputError, match="900000000 entries: at most 100000000"):
        schedule(hub, 1e-3)
