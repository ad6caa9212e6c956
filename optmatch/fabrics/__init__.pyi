# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .catalogue import FABRICS as FABRICS, SWITCHES as SWITCHES
from .cellgraph import (
    DEAD as DEAD,
    EXITS as EXITS,
    TERMINAL_NAMES as TERMINAL_NAMES,
    CellGraph as CellGraph,
    Links as Links,
    state_between as state_between,
)
from .fabric import Fabric as Fabric, IdealSwitch as IdealSwitch
from .faults import (
    Fault as Fault,
    FaultKind as FaultKind,
    Faulty as Faulty,
    SelectedPorts as SelectedPorts,
    break_cells as break_cells,
)
from .feedforward.networks import (
    Benes as Benes,
    Clements as Clements,
    Crossbar as Crossbar,
    DilatedBenes as DilatedBenes,
    FeedForward as FeedForward,
    Piloss as Piloss,
    Reck as Reck,
    SpankeBenes as SpankeBenes,
    SwitchAndSelect as SwitchAndSelect,
)
from .meshes.mesh import (
    HexMesh as HexMesh,
    Mesh as Mesh,
    SmartLightMesh as SmartLightMesh,
    SquareMesh as SquareMesh,
    TriangularMesh as TriangularMesh,
)
from .netlists.circuits import CellCircuit as CellCircuit, CellPart as CellPart
from .netlists.flaws import NetlistError as NetlistError
from .netlists.netlist import Netlist as Netlist
from .netlists.tree import netlist_from_tree as netlist_from_tree
from .racks.rack import (
    RackFabric as RackFabric,
    RouteLengths as RouteLengths,
    fibres_of_switch as fibres_of_switch,
    switch_schedules as switch_schedules,
)
from .reach import (
    UNREACHED as UNREACHED,
    Walks as Walks,
    forced_links as forced_links,
    shortest_routes as shortest_routes,
    walk as walk,
)
from .units import PortUnits as PortUnits, Units as Units, units_of as units_of
