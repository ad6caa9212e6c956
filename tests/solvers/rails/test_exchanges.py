"""All-to-alls in stages: parts arrive, ways are shortest, and the replay refuses what is wrong."""

from itertools import product

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.training.step import ALL_TO_ALL, Group, Step
from optmatch.solvers.rails.exchanges import list_menu
from optmatch.verify.rails.replay import count_hops
from tests.verify.rules.rails import one

RATE, LATENCY_S = 50e9, 5e-7


def all_to_alls(n: int, many: int, delay_s: float, ports: int = 1) -> om.RailJob:
    """Return a job of some all-to-alls one after the other, on one rail of a GPU a server."""
    rank = np.repeat(np.arange(n), many)
    step = Step(
        groups=(Group("ep.0", "ep", tuple(range(n)), rail=0),),
        rank=rank.astype(np.int32),
        kind=np.full(n * many, ALL_TO_ALL, np.int8),
        group=np.zeros(n * many, np.int32),
        size_bytes=np.full(n * many, 1.409e9),
        duration_s=np.zeros(n * many),
        peer=np.full(n * many, -1, np.int32),
        match=np.tile(np.arange(many), n).astype(np.int32),
        dep_start=np.zeros(n * many + 1, np.int64),
        dep=np.empty(0, np.int64),
    )
    network = om.RailNetwork(
        gpus_per_server=1, ports_per_gpu=ports, port_bytes_per_s=RATE / ports, delay_s=delay_s,
        latency_s=LATENCY_S,
    )  # fmt: skip
    return om.RailJob(network=network, workload=om.Workload(recorded=step))


@pytest.mark.parametrize("n", [3, 4, 5, 7, 8])
def test_every_part_goes_a_shortest_way(n: int) -> None:
    menu = list_menu([n])
    rows = range(int(menu.begin[n]), int(menu.begin[n + 1]))
    assert rows
    for row in rows:
        strides = [s for s in menu.stride[row].tolist() if s]
        found = menu.hops[row][: len(strides)].tolist()
        assert found == count_hops(n, np.array(strides))
        if len(strides) <= 3:
            ways = list(product(range(n), repeat=len(strides)))
            shortest = [
                min(sum(w) for w in ways if np.dot(w, strides) % n == distance)
                for distance in range(n)
            ]
            assert sum(found) == sum(shortest)
        else:
            assert sum(found) >= n - 1


@pytest.mark.parametrize(("n", "delay_s", "ports"), [(8, 0.01, 1), (6, 0.005, 1), (5, 0.02, 2)])
def test_all_to_alls_in_a_row_take_the_best_stages(n: int, delay_s: float, ports: int) -> None:
    many = 4
    job = all_to_alls(n, many, delay_s, ports)
    found = om.solve(job, "prefetch", seed=0)
    menu = list_menu([n])
    part_s = 1.409e9 / n / RATE + LATENCY_S
    rows = range(int(menu.begin[n]), int(menu.begin[n + 1]))
    least_s = min(
        menu.hops[k].sum() * part_s + ((menu.stride[k] > 0).sum() - 1) * delay_s for k in rows
    )
    around_s = (n - 1) * n / 2 * part_s
    assert found.objective <= many * min(least_s, around_s) + delay_s * (1 + 1e-9)
    straight_s = (n - 1) * part_s + (n - 2) * delay_s
    assert found.objective < many * straight_s


def test_a_pair_of_all_to_alls_takes_no_longer_than_twice_one_apart() -> None:
    delay_s = 0.01
    apart = om.solve(
        om.Collective(
            "all-to-all", n_ranks=8, size_bytes=1.409e9, alpha_s=0, hop_s=LATENCY_S,
            rate_bytes_per_s=RATE, delay_s=delay_s,
        ),
        seed=0,
    )  # fmt: skip
    found = om.solve(all_to_alls(8, 2, delay_s), "prefetch", seed=0)
    assert found.objective <= 2 * apart.objective * (1 + 1e-3)


@pytest.mark.parametrize("method", ["prefetch", "provisioned", "on-demand", "static"])
@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_members_exchange_at_once(n: int, method: str) -> None:
    """A member alone has nothing to send."""
    job = all_to_alls(n, 2, 0.01)
    solution = om.solve(job, method, seed=0, limits=om.Limits(iterations=10))
    each_s = (n - 1) * (1.409e9 / 2 / RATE + LATENCY_S)
    assert solution.objective == pytest.approx(2 * each_s)


@pytest.mark.parametrize("method", ["prefetch", "provisioned", "on-demand", "static"])
@pytest.mark.parametrize(
    ("n", "ports", "size"), [(3, 2, 0.0), (4, 3, 0.0), (6, 5, 0.0), (4, 6, 8.0)]
)
def test_all_to_alls_that_take_as_long_around_a_ring(
    n: int, ports: int, size: float, method: str
) -> None:
    """No bytes take no time on any way, and n / 2 times the bytes over all ports may be a part."""
    job = one(ALL_TO_ALL, n, size, {"ports_per_gpu": ports, "latency_s": LATENCY_S})
    solution = om.solve(job, method, seed=0, limits=om.Limits(iterations=30))
    assert solution.objective is not None
