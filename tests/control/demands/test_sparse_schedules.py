"""Schedules of demands with many ports and few partners, which are never made full."""

import tracemalloc

import networkx
import numpy as np
import pytest
from scipy.sparse import coo_array

import optmatch as om
from optmatch.control.demands import entries_in_ticks
from optmatch.control.demands.schedules import Slots, schedule
from optmatch.solvers.demands import portfolio


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
    monkeypatch.setattr(entries_in_ticks, "_FILLED_PORTS", 10)
    listed = schedule(demand, 1e-3, time_limit_s=0.0)
    assert listed.matchings.tolist() == full.matchings.tolist()
    assert listed.durations_s.tolist() == full.durations_s.tolist()
    assert listed.lower_bound_s == full.lower_bound_s


def test_more_time_helps_many_ports() -> None:
    demand = draw_sparse(5_000, 6, seed=2)
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
