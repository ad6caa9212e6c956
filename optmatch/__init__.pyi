# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .control.free_cells import settle_free_cells as settle_free_cells
from .control.rerouter import Rerouter as Rerouter
from .entrances import (
    solve as solve,
)
from .entrances import (
    verify as verify,
)
from .fabrics import (
    Benes as Benes,
)
from .fabrics import (
    Clements as Clements,
)
from .fabrics import (
    Crossbar as Crossbar,
)
from .fabrics import (
    DilatedBenes as DilatedBenes,
)
from .fabrics import (
    Fabric as Fabric,
)
from .fabrics import (
    Faulty as Faulty,
)
from .fabrics import (
    HexMesh as HexMesh,
)
from .fabrics import (
    IdealSwitch as IdealSwitch,
)
from .fabrics import (
    Netlist as Netlist,
)
from .fabrics import (
    Piloss as Piloss,
)
from .fabrics import (
    RackFabric as RackFabric,
)
from .fabrics import (
    Reck as Reck,
)
from .fabrics import (
    SpankeBenes as SpankeBenes,
)
from .fabrics import (
    SquareMesh as SquareMesh,
)
from .fabrics import (
    SwitchAndSelect as SwitchAndSelect,
)
from .fabrics import (
    TriangularMesh as TriangularMesh,
)
from .io import (
    load as load,
)
from .io import (
    read_netlist as read_netlist,
)
from .io import (
    save as save,
)
from .model import (
    Device as Device,
)
from .model import (
    FormatError as FormatError,
)
from .model import (
    InputError as InputError,
)
from .model import (
    Limit as Limit,
)
from .model import (
    Limits as Limits,
)
from .model import (
    OptMatchError as OptMatchError,
)
from .model import (
    Schedule as Schedule,
)
from .model import (
    Solution as Solution,
)
from .model import (
    SolverError as SolverError,
)
from .model import (
    SolverUnavailable as SolverUnavailable,
)
from .model import (
    Status as Status,
)
from .model import (
    VerificationError as VerificationError,
)
from .problems import (
    Allocation as Allocation,
)
from .problems import (
    AllToAll as AllToAll,
)
from .problems import (
    Demand as Demand,
)
from .problems import (
    Parallelism as Parallelism,
)
from .problems import (
    PlaneSchedules as PlaneSchedules,
)
from .problems import (
    RailJob as RailJob,
)
from .problems import (
    RailNetwork as RailNetwork,
)
from .problems import (
    RailPlan as RailPlan,
)
from .problems import (
    Reroute as Reroute,
)
from .problems import (
    Routing as Routing,
)
from .problems import (
    SliceAllocation as SliceAllocation,
)
from .problems import (
    TransformerModel as TransformerModel,
)
from .problems import (
    Transition as Transition,
)
from .problems import (
    Workload as Workload,
)
from .simulation.demands.replay import simulate as simulate
from .simulation.rails.replay import simulate_rails as simulate_rails
from .studies.all_to_all.yields import study_yield as study_yield
from .studies.comparisons import (
    compare_fabrics as compare_fabrics,
)
from .studies.comparisons import (
    compare_methods as compare_methods,
)
from .verify import (
    Report as Report,
)
from .verify import (
    Violation as Violation,
)
from .verify.optics import (
    Budget as Budget,
)
from .verify.optics import (
    Optics as Optics,
)
from .verify.optics import (
    measure_optics as measure_optics,
)

__version__: str
