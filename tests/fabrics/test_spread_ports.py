"""A number of ports that cannot be spread is refused at once; ports that are listed are not."""

from __future__ import annotations

import pytest

import optmatch as om


def test_a_number_that_cannot_be_spread_is_refused_when_the_mesh_is_made() -> None:
    with pytest.raises(om.InputError, match="ports = 5: no even spread over the 20 perimeter"):
        om.SquareMesh(2, 3, ports=5)
    with pytest.raises(om.InputError, match="tx = 4: no even spread over the 24 perimeter"):
        om.SquareMesh(3, 3, tx=4, rx=4)


def test_listed_ports_do_route() -> None:
    """As the message says."""
    mesh = om.SquareMesh(2, 3, ports=(0, 5, 11, 16))
    for matching in ([1, 0, 3, 2], [3, 2, 1, 0]):
        assert om.solve(om.Routing(mesh, matching), seed=0).status is om.Status.OPTIMAL
