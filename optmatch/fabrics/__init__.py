"""Switches as graphs of cells: how cells join, where ports sit, which pairs can meet."""

from optmatch.fabrics.benes import Benes, DilatedBenes
from optmatch.fabrics.cellgraph import DEAD, EXITS, TERMINAL_NAMES, CellGraph, Links, state_between
from optmatch.fabrics.crossbar import Crossbar, Piloss, SwitchAndSelect
from optmatch.fabrics.fabric import Fabric, RouteLengths
from optmatch.fabrics.faults import Fault, FaultKind, Faulty, break_cells
from optmatch.fabrics.feedforward import FeedForward
from optmatch.fabrics.ideal import IdealSwitch
from optmatch.fabrics.mesh import HexMesh, Mesh, SmartLightMesh, SquareMesh, TriangularMesh
from optmatch.fabrics.netlist import Netlist
from optmatch.fabrics.netlist_flaws import NetlistError
from optmatch.fabrics.netlist_tree import netlist_from_tree
from optmatch.fabrics.planar import Clements, Reck, SpankeBenes
from optmatch.fabrics.rack import RackFabric
from optmatch.fabrics.reach import UNREACHED, Walks, forced_links, shortest_routes, walk

SWITCHES: dict[str, type[Fabric]] = {
    fabric.type: fabric
    for fabric in (
        HexMesh,
        SmartLightMesh,
        SquareMesh,
        TriangularMesh,
        IdealSwitch,
        Benes,
        DilatedBenes,
        SpankeBenes,
        Crossbar,
        SwitchAndSelect,
        Piloss,
        Clements,
        Reck,
        Faulty,
        Netlist,
    )
}
"""Classes of switches by the ``"type"`` that files use."""

FABRICS: dict[str, type[Fabric]] = {**SWITCHES, RackFabric.type: RackFabric}
"""Classes of fabrics by the ``"type"`` that files use."""

__all__ = [
    "DEAD",
    "EXITS",
    "FABRICS",
    "SWITCHES",
    "TERMINAL_NAMES",
    "UNREACHED",
    "Benes",
    "CellGraph",
    "Clements",
    "Crossbar",
    "DilatedBenes",
    "Fabric",
    "Fault",
    "FaultKind",
    "Faulty",
    "FeedForward",
    "HexMesh",
    "IdealSwitch",
    "Links",
    "Mesh",
    "Netlist",
    "NetlistError",
    "Piloss",
    "RackFabric",
    "Reck",
    "RouteLengths",
    "SmartLightMesh",
    "SpankeBenes",
    "SquareMesh",
    "SwitchAndSelect",
    "TriangularMesh",
    "Walks",
    "break_cells",
    "forced_links",
    "netlist_from_tree",
    "shortest_routes",
    "state_between",
    "walk",
]
