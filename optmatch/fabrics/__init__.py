"""Switches as graphs of cells: how cells join, where ports sit, which pairs can meet."""

from optmatch.fabrics.cellgraph import EXITS, TERMINAL_NAMES, CellGraph, Links, state_between
from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.ideal import IdealSwitch
from optmatch.fabrics.mesh import HexMesh, Mesh, SmartLightMesh, SquareMesh, TriangularMesh
from optmatch.fabrics.reach import UNREACHED, Walks, forced_links, shortest_routes, walk

FABRICS: dict[str, type[Fabric]] = {
    fabric.type: fabric
    for fabric in (HexMesh, SmartLightMesh, SquareMesh, TriangularMesh, IdealSwitch)
}
"""Fabric classes by the ``"type"`` that files use."""

__all__ = [
    "EXITS",
    "FABRICS",
    "TERMINAL_NAMES",
    "UNREACHED",
    "CellGraph",
    "Fabric",
    "HexMesh",
    "IdealSwitch",
    "Links",
    "Mesh",
    "SmartLightMesh",
    "SquareMesh",
    "TriangularMesh",
    "Walks",
    "forced_links",
    "shortest_routes",
    "state_between",
    "walk",
]
