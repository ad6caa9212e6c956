"""Steered bandwidth: rings of slices, shares with their proof, whole ports."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.problems import slice_rings
from optmatch.solvers.slices.steering import steer
from optmatch.verify.slices.replay import check_steering

few = settings(max_examples=40, deadline=None, database=None)


@st.composite
def sharings(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a few rings over a few chips, with demands."""
    chips = draw(st.integers(2, 6))
    ring = st.lists(st.integers(0, chips - 1), min_size=2, max_size=chips, unique=True)
    rings = draw(st.lists(ring, min_size=1, max_size=4))
    demand = st.integers(1, 5)
    demands = draw(st.lists(demand, min_size=len(rings), max_size=len(rings)))
    limit = draw(st.sampled_from((None, 1.5, 2.0)))
    ports = draw(st.sampled_from((6, 4, 8)))
    return {"rings": rings, "demands": demands, "ports": ports, "link_units": limit}


@given(sharings())
@few
def test_the_level_is_proved_in_fractions(sharing: dict[str, Any]) -> None:
    steering = steer(**sharing)
    report = check_steering(steering)
    assert report.ok, report.violations
    half, rings, demands = sharing["ports"] / 2, sharing["rings"], sharing["demands"]
    busiest = max(
        sum(d for ring, d in zip(rings, demands, strict=True) if chip in ring) for chip in range(6)
    )
    level = half / busiest
    if sharing["link_units"] is not None:
        level = min(level, sharing["link_units"] / max(demands))
    assert steering.level == pytest.approx(level)


@given(sharings())
@few
def test_whole_ports_are_dealt_as_well_as_can_be(sharing: dict[str, Any]) -> None:
    steering = steer(**sharing)
    rings, demands = sharing["rings"], sharing["demands"]
    most = sharing["ports"] // 2
    limit = most if sharing["link_units"] is None else min(most, int(sharing["link_units"]))
    best = 0.0
    for units in product(range(limit + 1), repeat=len(rings)):
        used = np.zeros(6)
        for ring, unit in zip(rings, units, strict=True):
            used[ring] += unit
        if used.max() <= most:
            best = max(best, min(u / d for u, d in zip(units, demands, strict=True)))
    found = min(u / d for u, d in zip(steering.units.tolist(), demands, strict=True))
    assert found == pytest.approx(best)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rings": [(0,)]}, "two or more different chips"),
        ({"rings": [(0, 1, 0)]}, "two or more different chips"),
        ({"demands": [1, 2]}, "demands has 2 entries, there are 1 rings"),
        ({"demands": [0]}, r"demands\[0\] = 0: from 1e-100 to 1e\+100"),
        ({"demands": [5e-324]}, r"demands\[0\] = .*: from 1e-100 to 1e\+100"),
        ({"ports": 1}, "ports = 1: must be >= 2"),
        ({"link_units": 0}, "link_units = 0: must be > 0"),
    ],
)
def test_bad_rings_are_named(change: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"rings": [(0, 1)]}
    with pytest.raises(om.InputError, match=text):
        steer(**(arguments | change))


@given(st.tuples(*[st.integers(1, 6)] * 3))
@few
def test_rings_pass_links_of_the_torus(shape: tuple[int, int, int]) -> None:
    """Each step goes to a neighbour, no link is used twice, and every chip is in a ring."""
    places = list(product(*map(range, reversed(shape))))
    links = set()
    for ring in slice_rings(shape):
        for here, there in zip(ring, (*ring[1:], ring[0]), strict=True):
            steps = [
                min((a - b) % side, (b - a) % side)
                for a, b, side in zip(places[here], places[there], reversed(shape), strict=True)
            ]
            assert sorted(steps) == [0, 0, 1]
            if len(ring) > 2:
                assert frozenset((here, there)) not in links
            links.add(frozenset((here, there)))
    chips = {chip for ring in slice_rings(shape) for chip in ring}
    assert chips == (set(range(len(places))) if len(places) > 1 else set())
