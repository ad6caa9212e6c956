# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from . import (
    io as io,
    plotting as plotting,
    switches as switches,
)
from .control.demands.rolling import RollingSchedule as RollingSchedule, Slot as Slot
from .control.demands.schedules import (
    decompose as decompose,
    schedule as schedule,
)
from .control.figures import Call as Call
from .control.reroutes.answering import Proposal as Proposal
from .control.reroutes.rerouter import Rerouter as Rerouter
from .control.routing.router import (
    Routed as Routed,
    Router as Router,
    settle_free_cells as settle_free_cells,
)
from .control.warming import warm_up as warm_up
from .fabrics import (
    Benes as Benes,
    Clements as Clements,
    Crossbar as Crossbar,
    DilatedBenes as DilatedBenes,
    Fabric as Fabric,
    Faulty as Faulty,
    HexMesh as HexMesh,
    IdealSwitch as IdealSwitch,
    Netlist as Netlist,
    Piloss as Piloss,
    RackFabric as RackFabric,
    Reck as Reck,
    SpankeBenes as SpankeBenes,
    SquareMesh as SquareMesh,
    SwitchAndSelect as SwitchAndSelect,
    TriangularMesh as TriangularMesh,
)
from .io import (
    load as load,
    read_netlist as read_netlist,
    save as save,
)
from .model import (
    Device as Device,
    FormatError as FormatError,
    InfeasibleError as InfeasibleError,
    InputError as InputError,
    Limit as Limit,
    LimitReached as LimitReached,
    Limits as Limits,
    OptMatchError as OptMatchError,
    Schedule as Schedule,
    Solution as Solution,
    SolverError as SolverError,
    SolverUnavailable as SolverUnavailable,
    Status as Status,
    VerificationError as VerificationError,
)
from .optics import (
    Budget as Budget,
    Optics as Optics,
    measure_optics as measure_optics,
)
from .plotting.viewer import explore as explore
from .problems import (
    Allocation as Allocation,
    AllToAll as AllToAll,
    Collective as Collective,
    CollectivePlan as CollectivePlan,
    Demand as Demand,
    Parallelism as Parallelism,
    PlaneSchedules as PlaneSchedules,
    PortSharing as PortSharing,
    RailJob as RailJob,
    RailNetwork as RailNetwork,
    RailPlan as RailPlan,
    Reroute as Reroute,
    Routing as Routing,
    SliceAllocation as SliceAllocation,
    TransformerModel as TransformerModel,
    Transition as Transition,
    Workload as Workload,
    rails as rails,
)
from .simulation.demands import simulate as simulate
from .simulation.rails.replay import simulate_rails as simulate_rails
from .solvers.reroutes.states import fill_rack as fill_rack
from .studies.all_to_all import study_yield as study_yield
from .studies.comparisons import (
    compare_fabrics as compare_fabrics,
    compare_methods as compare_methods,
    vary as vary,
)
from .sweeps.store import Task as Task
from .sweeps.sweep import sweep as sweep
from .switches.player import play as play
from .verify import (
    Report as Report,
    Violation as Violation,
)

# isort: split
# After `.verify`: Pyright takes `verify` for the package of that name otherwise.
from .entrances import (
    solve as solve,
    verify as verify,
)

__version__: str
