"""A number of ports that cannot be spread is refused at once; ports that are listed are not."""

from __future__ import annotations

import dataclasses

import pytest

import optmatch as om


def test_a_number_that_cannot_be_spread_is_refused_when_the_mesh_is_made() -> None:
    with pytest.raises(om.InputError, match="ports = 5: the 20 perimeter terminals are of two"):
        om.SquareMesh(2, 3, ports=5)
    with pytest.raises(om.InputError, match="at most 2 ports can all meet"):
        om.SquareMesh(3, 3, ports=3)
    with pytest.raises(om.InputError, match="ports = 16: no even spread over the 16 perimeter"):
        om.HexMesh(2, 1, ports=16)


@pytest.mark.parametrize(
    ("mesh", "count"),
    [
        (om.SquareMesh(3, 3), 4),
        (om.SquareMesh(5, 4), 3),
        (om.SquareMesh(5, 4), 5),
        (om.TriangularMesh(2, 2), 3),
    ],
)
def test_fewer_ports_are_accepted_where_more_are(mesh: om.SquareMesh, count: int) -> None:
    """They are some of the ports of the larger number, and all of them can be used."""
    smaller = dataclasses.replace(mesh, tx=count, rx=count)
    assert smaller.n_ports == count
    solution = om.solve(om.AllToAll(smaller), seed=0, limits=om.Limits(iterations=20))
    assert solution.objective is not None


def test_listed_ports_do_route() -> None:
    """A list may have pairs that cannot meet; others do."""
    mesh = om.SquareMesh(2, 3, ports=(0, 5, 11, 16))
    for matching in ([1, 0, 3, 2], [3, 2, 1, 0]):
        assert om.solve(om.Routing(mesh, matching), seed=0).status is om.Status.OPTIMAL
