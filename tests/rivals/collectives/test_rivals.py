"""Rivals reproduce their known figures, and small cells of the grid are raced."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest

import optmatch as om
from tests.helpers.modes import compiled_only, some
from tests.rivals.collectives import exchanges, forwarding, graphs, grid, rings
from tests.rivals.races import TOLERANCE, describe

ask = partial(om.Collective, alpha_s=2.7e-6)

FIGURES = [
    (rings.duplex_ring_s, ask("all-reduce", 64, 1e9, two_way=True, ports=2), 20.0e-3),
    (rings.duplex_ring_s, ask("all-reduce", 64, 1e9, two_way=True, ports=6), 6.9e-3),
    (rings.duplex_path_s, ask("all-reduce", 17, 1e5, two_way=True, ports=2), 75e-6),
    (rings.duplex_path_s, ask("broadcast", 16, 1e7, two_way=True, ports=2), 0.41e-3),
    (exchanges.circulant_s, ask("all-to-all", 64, 1e7, ports=2, delay_s=1e-2), 0.74e-3),
    (exchanges.circulant_s, ask("all-to-all", 64, 1e9, ports=2, delay_s=1e-2), 45.6e-3),
    (rings.torus_s, ask("all-reduce", 64, 1e5, ports=2), 51.8e-6),
    (rings.torus_s, ask("all-reduce", 256, 1e5, ports=2), 111e-6),
    (graphs.de_bruijn_s, ask("all-gather", 64, 1e5, ports=2), 18.2e-6),
    (graphs.tree_s, ask("broadcast", 64, 1e5, ports=2), 25.9e-6),
    (rings.windowed_ring_s, ask("all-reduce", 64, 1e5), 206.5e-6),
    (rings.windowed_ring_s, ask("all-reduce", 128, 1e6), 525e-6),
    (rings.windowed_ring_s, ask("all-reduce", 1024, 1e5), 2.912e-3),
    (exchanges.gossip_pairs_s, ask("all-gather", 12, 1e5, two_way=True, delay_s=1e-2), 30.0e-3),
    (exchanges.gossip_pairs_s, ask("all-gather", 17, 1e5, two_way=True, delay_s=1e-2), 50.0e-3),
    (exchanges.folded_doubling_s, ask("all-reduce", 17, 1e5, two_way=True, delay_s=1e-2), 50e-3),
    (
        forwarding.forwarding_s,
        ask("all-to-all", 24, 7, rate_bytes_per_s=1e9, delay_s=0.01, hop_s=0.0),
        2.7805e-6,
    ),
    (
        forwarding.held_rings_s,
        ask("reduce-scatter", 64, 141237.0, hop_s=2e-7, delay_s=6.815e-6),
        24.419e-6,
    ),
    (exchanges.hypercube_broadcast_s, ask("broadcast", 64, 1e7, delay_s=1e-6), 339e-6),
]
"""A rival, a problem, and the seconds that a plan of it took which the verifier had accepted."""


@pytest.mark.parametrize(("rival", "problem", "known_s"), FIGURES)
def test_a_rival_reproduces_its_known_figure(
    rival: Callable[[om.Collective], float], problem: om.Collective, known_s: float
) -> None:
    assert rival(problem) == pytest.approx(known_s, rel=0.02)


@pytest.mark.parametrize("n", [6, 7, 12, 17, 24])
@pytest.mark.parametrize("operation", ["all-gather", "reduce-scatter", "all-reduce"])
def test_pairs_of_any_number_of_ranks_are_no_faster_than_ours(operation: Any, n: int) -> None:
    problem = ask(operation, n, 1e6, two_way=True, delay_s=1e-2)
    ours = om.solve(problem, seed=0)
    assert om.verify(problem, ours).valid
    rivals_s = min(exchanges.gossip_pairs_s(problem), exchanges.folded_doubling_s(problem))
    assert ours.objective <= rivals_s * (1 + 1e-9)


def test_cells_draw_all_fields_that_the_grid_does_not_name() -> None:
    drawn = set()
    for problem in grid.draw_cells(np.random.default_rng(0), 300, most_ranks=16):
        assert describe(problem).startswith(f"operation {problem.operation}")
        plain = om.Collective(problem.operation, problem.n_ranks, problem.size_bytes)
        for field in fields(om.Collective):
            mine, default = getattr(problem, field.name), getattr(plain, field.name)
            if not np.array_equal(mine, default) and field.name not in grid.NOT_DRAWN:
                drawn.add(field.name)
    always = {"operation", "n_ranks", "size_bytes"}
    assert drawn | always | grid.NOT_DRAWN == {field.name for field in fields(om.Collective)}


@compiled_only
@pytest.mark.parametrize("problem", some(grid.draw_forwarding_cells(), 15), ids=describe)
def test_forwarding_everything_inside_a_round_is_no_faster_than_ours(
    problem: om.Collective,
) -> None:
    ours = om.solve(problem, seed=0)
    assert om.verify(problem, ours).valid
    assert ours.objective <= forwarding.forwarding_s(problem) * (1 + TOLERANCE)


def test_a_root_with_many_ports_sends_equally_much_over_each() -> None:
    """A ring over all ports loads each evenly; other graphs load some circuits by 15 % more."""
    problem = ask(
        "broadcast", 81, 1000, alpha_s=2.7e-6, delay_s=1e-4, ports=6, hop_s=0.0, align_bytes=16,
        rate_bytes_per_s=5e10,
    )  # fmt: skip
    ours = om.solve(problem, "forwarding", seed=0)
    assert om.verify(problem, ours).valid
    assert ours.objective <= forwarding.forwarding_s(problem) * (1 + 1e-9)
