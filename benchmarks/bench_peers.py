"""Side by side with the rivals that a user would otherwise take. `make bench` runs it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import peers
import pytest
from conftest import Measure
from decomposition import add_up, permutation_sum
from one_matching import random_matchings
from optics import draw

import optmatch as om
from optmatch.optics.scattering import scatter
from tests.helpers.crosscheck import SaxCircuit


class Side(NamedTuple):
    """One side of a comparison."""

    work: Callable[[], Any]
    rounds: int = 3
    unit: str = ""
    """Of the value that `work` returns, less is better; empty if it returns none."""


def decompositions() -> dict[str, dict[str, Side]]:
    """Return dense sums of n squared permutations."""

    def ours(matrix: np.ndarray, rule: str) -> int:
        terms = om.decompose(matrix, rule=rule)
        assert np.array_equal(add_up(terms), matrix)
        return len(terms.weights)

    found = {}
    for n, rule, who, theirs in (
        (64, "bottleneck", "SciPy", peers.decompose_by_scipy),
        (128, "bottleneck", "SciPy", peers.decompose_by_scipy),
        (32, "first", "networkx", peers.decompose_by_networkx),
        (32, "first", "birkhoff", peers.decompose_by_birkhoff),
        (32, "bottleneck", "birkhoff", peers.decompose_by_birkhoff),
    ):
        matrix = permutation_sum(n, n * n, 0)
        found[f"decompose by {rule}, N = {n}, {who}"] = {
            "optmatch": Side(lambda m=matrix, r=rule: ours(m, r), 20, "terms"),
            who: Side(lambda m=matrix, f=theirs: f(m), 1, "terms"),
        }
    return found


def routings() -> dict[str, dict[str, Side]]:
    """Return three random matchings of 32 ports on 9x9."""
    mesh = om.HexMesh(9, 9, ports=32)
    router = om.Router(mesh)
    problems = [om.Routing(mesh, matching) for matching in random_matchings(32, 3, 0)]
    matchings = np.array([problem.matching for problem in problems])

    def ours() -> None:
        assert router.route_batch(matchings).held.all()

    def methods() -> None:
        assert all(om.solve(problem, "negotiated", seed=0).schedule for problem in problems)

    def theirs() -> None:
        assert all(map(peers.route_by_labels, problems))

    return {
        "3 matchings on 9x9, Router": {"optmatch": Side(ours, 50), "OR-tools": Side(theirs, 1)},
        "3 matchings on 9x9, om.solve": {
            "optmatch": Side(methods, 10),
            "OR-tools": Side(theirs, 1),
        },
    }


def scattering() -> dict[str, dict[str, Side]]:
    """Return all 76 inputs of the 9x9 mesh, one state; sax on its later calls."""
    fabric = om.HexMesh(9, 9)
    graph, cells = fabric.graph, draw(fabric, 1)[0]
    guides = np.ones(graph.links.count, dtype=np.complex128)
    circuits: list[SaxCircuit] = []

    def theirs() -> None:
        if not circuits:
            circuits.append(SaxCircuit(graph, guided=False, refined=False))
        circuits[0].scatter(cells, guides)

    def ours() -> None:
        scatter(graph, cells, guides, graph.perimeter)

    return {"optics of 9x9": {"optmatch": Side(ours, 20), "sax": Side(theirs, 3)}}


def overlaps() -> dict[str, dict[str, Side]]:
    """Return the example of SWOT, one of pairs, and one that its released model gets wrong."""
    found = {}
    for name, configurations, megabytes, fields in (
        ("all-reduce of 8", [1, 2, 3, 3, 2, 1], [16.0, 8.0, 4.0, 4.0, 8.0, 16.0], {}),
        ("pairs of 5", [1, 2, 3, 4], [8.0] * 4, {"planes": 4, "rate_bytes_per_s": 25e9}),
        ("there and back", [1, 2, 1], [1.0] * 3, {"delay_s": 0.01}),
    ):
        given = {"planes": 2, "rate_bytes_per_s": 50e9, "delay_s": 2e-4, "alpha_s": 2e-5} | fields
        steps = np.column_stack([configurations, np.array(megabytes) * 1e6])
        problem = om.Collective("all-reduce", 8, 1.0, steps=steps, start="dark", **given)
        found[f"SWOT, {name}"] = {
            "optmatch": Side(lambda p=problem: om.solve(p, seed=0).objective, 3, "s"),
            "SWOT": Side(
                lambda a=(configurations, megabytes), g=given: peers.overlap_by_swot(*a, **g),
                1,
                "s",
            ),
        }
    return found


def late_ranks() -> dict[str, dict[str, Side]]:
    """Return rounds of an all-reduce around a late rank, where StragglAR is not optimal."""
    found = {}
    for n in (12, 14):
        problem = om.Collective(
            "all-reduce", n, 1e9, alpha_s=3e-6, two_way=True, late_s={n - 1: 1}
        )

        def ours(problem: om.Collective = problem) -> int:
            return om.solve(problem, "stragglar", seed=0).answer.n_rounds_late

        found[f"StragglAR, {n} ranks"] = {
            "optmatch": Side(ours, 5, "rounds"),
            "StragglAR": Side(lambda n=n: peers.rounds_by_stragglar(n), 5, "rounds"),
        }
    return found


CASES = {
    name: sides
    for make in (decompositions, routings, overlaps, late_ranks, scattering)
    for name, sides in make().items()
}


@pytest.mark.parametrize(
    ("case", "who"), [(case, who) for case, sides in CASES.items() for who in sides]
)
def test_peer(measure: Measure, case: str, who: str) -> None:
    """One side."""
    if who in {"sax", "birkhoff"} and find_spec(who) is None:
        pytest.skip(f"{who} is not installed: pip install 'optmatch[bench]'")
    work, rounds, unit = CASES[case][who]

    def tell(found: Any) -> dict[str, Any]:
        return {"value": float(found), "unit": unit} if unit else {}

    measure(case, work, tell, rounds=rounds, who=who)
