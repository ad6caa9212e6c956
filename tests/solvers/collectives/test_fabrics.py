"""Collectives on switches that have to hold every matching: with states of all their cells."""

from typing import Any

import numpy as np
import pytest

import optmatch as om


@pytest.mark.parametrize(
    ("fabric", "ranks", "slots"),
    [
        (om.Benes(8), 8, 7),
        (om.HexMesh(3, 3, ports=4), 4, 3),
        pytest.param(om.HexMesh(9, 9, ports=32), 32, 31, marks=pytest.mark.slow),
    ],
)
def test_every_epoch_is_realised(fabric: Any, ranks: int, slots: int) -> None:
    """The light of all circuits is traced by the replay."""
    problem = om.Collective(
        "all-to-all", ranks, 1e6, delay_s=1e-5, fabric=fabric, two_way=fabric.bidirectional
    )
    solution = om.solve(problem, "pairwise", seed=0)
    schedule: Any = solution.schedule
    assert schedule.n_slots == slots


def test_a_switch_of_which_nothing_is_wanted_stays_dark() -> None:
    nothing = np.zeros((4, 4))
    for problem in (
        om.Collective("all-reduce", 1, 1e6, ports=3, fabric=om.Benes(4), start="dark"),
        om.Collective("all-to-all", 4, 0, demand_bytes=nothing, fabric=om.Benes(4)),
    ):
        solution = om.solve(problem, seed=0)
        assert solution.objective == 0.0 and solution.schedule is not None
        assert solution.schedule.n_slots == 0


MESH_PLANS = [
    ("broadcast", 4, 1, 1e6, {"hop_s": 1e-7, "delay_s": 1e-6}, 40.4e-6),
    ("all-gather", 6, 2, 1e6, {"rate_bytes_per_s": 1e9, "delay_s": 1e-2}, 424.8e-6),
]
"""Operation, ranks, ports, bytes and costs of collectives on a mesh, and seconds of a plan."""


@pytest.mark.parametrize(("operation", "ranks", "ports", "size", "costs", "known_s"), MESH_PLANS)
def test_a_mesh_carries_graphs_of_several_circuits_of_a_rank(
    operation: Any, ranks: int, ports: int, size: float, costs: dict[str, Any], known_s: float
) -> None:
    """Before, no mesh was asked for them: the gather took twice as long, over a one-way ring."""
    mesh = om.HexMesh(5, 5, ports=ranks * ports)
    problem = om.Collective(
        operation, ranks, size, alpha_s=2.7e-6, ports=ports, two_way=True, fabric=mesh, **costs
    )
    solution = om.solve(problem, seed=0)
    assert solution.objective <= known_s * (1 + 1e-3)
    assert om.verify(problem, solution).valid
