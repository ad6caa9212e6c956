"""All classes of fabrics, by the names that files use."""

from optmatch.fabrics.benes import Benes, DilatedBenes
from optmatch.fabrics.crossbar import Crossbar, Piloss, SwitchAndSelect
from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.faults import Faulty
from optmatch.fabrics.ideal import IdealSwitch
from optmatch.fabrics.mesh import HexMesh, SmartLightMesh, SquareMesh, TriangularMesh
from optmatch.fabrics.netlist import Netlist
from optmatch.fabrics.planar import Clements, Reck, SpankeBenes
from optmatch.fabrics.rack import RackFabric

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
