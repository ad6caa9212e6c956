"""All classes of fabrics, by the names that files use."""

from optmatch.fabrics.fabric import Fabric, IdealSwitch
from optmatch.fabrics.faults import Faulty
from optmatch.fabrics.feedforward.networks import (
    Benes,
    Clements,
    Crossbar,
    DilatedBenes,
    Piloss,
    Reck,
    SpankeBenes,
    SwitchAndSelect,
)
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
