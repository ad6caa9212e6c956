"""All classes of fabrics, by the names that files use."""

from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.faults import Faulty
from optmatch.fabrics.feedforward.benes import Benes, DilatedBenes
from optmatch.fabrics.feedforward.crossbar import Crossbar, Piloss, SwitchAndSelect
from optmatch.fabrics.feedforward.planar import Clements, Reck, SpankeBenes
from optmatch.fabrics.ideal import IdealSwitch
from optmatch.fabrics.meshes.mesh import HexMesh, SmartLightMesh, SquareMesh, TriangularMesh
from optmatch.fabrics.netlists.netlist import Netlist
from optmatch.fabrics.racks.rack import RackFabric

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
