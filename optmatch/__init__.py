"""Optical circuit matchings: schedules and switch states for machine-learning clusters."""

from __future__ import annotations

from optmatch.compare import compare_fabrics, compare_methods
from optmatch.fabrics import (
    Benes,
    CellGraph,
    Clements,
    Crossbar,
    DilatedBenes,
    Fabric,
    Fault,
    Faulty,
    FeedForward,
    HexMesh,
    IdealSwitch,
    Netlist,
    NetlistError,
    Piloss,
    RackFabric,
    Reck,
    SmartLightMesh,
    SpankeBenes,
    SquareMesh,
    SwitchAndSelect,
    TriangularMesh,
)
from optmatch.io import load, read_netlist, save
from optmatch.model import (
    DEVICES,
    Device,
    FormatError,
    InfeasibleError,
    InputError,
    Limit,
    LimitReached,
    Limits,
    OptMatchError,
    Schedule,
    Solution,
    SolverError,
    SolverUnavailable,
    Status,
    VerificationError,
)
from optmatch.notebook import show_objects
from optmatch.problems import (
    AllToAll,
    ConfigurationProof,
    CountProof,
    Demand,
    LineProof,
    PlaneSchedules,
    RailJob,
    Reroute,
    Routing,
    RoutingProof,
    TransformerModel,
    Transition,
)
from optmatch.rerouter import Rerouter

# Now, not on first use: a later import of a module would take the place of its function.
from optmatch.simulate import Simulation, simulate
from optmatch.simulate_rails import RailSimulation, simulate_rails
from optmatch.solve import settle_free_cells, solve
from optmatch.verify import Budget, Optics, Report, Violation, measure_optics, verify
from optmatch.yields import YieldStudy, study_yield

__version__ = "0.1.0"

show_objects()
del show_objects

__all__ = [
    "DEVICES",
    "AllToAll",
    "Benes",
    "Budget",
    "CellGraph",
    "Clements",
    "ConfigurationProof",
    "CountProof",
    "Crossbar",
    "Demand",
    "Device",
    "DilatedBenes",
    "Fabric",
    "Fault",
    "Faulty",
    "FeedForward",
    "FormatError",
    "HexMesh",
    "IdealSwitch",
    "InfeasibleError",
    "InputError",
    "Limit",
    "LimitReached",
    "Limits",
    "LineProof",
    "Netlist",
    "NetlistError",
    "OptMatchError",
    "Optics",
    "Piloss",
    "PlaneSchedules",
    "RackFabric",
    "RailJob",
    "RailSimulation",
    "Reck",
    "Report",
    "Reroute",
    "Rerouter",
    "Routing",
    "RoutingProof",
    "Schedule",
    "Simulation",
    "SmartLightMesh",
    "Solution",
    "SolverError",
    "SolverUnavailable",
    "SpankeBenes",
    "SquareMesh",
    "Status",
    "SwitchAndSelect",
    "TransformerModel",
    "Transition",
    "TriangularMesh",
    "VerificationError",
    "Violation",
    "YieldStudy",
    "compare_fabrics",
    "compare_methods",
    "load",
    "measure_optics",
    "read_netlist",
    "save",
    "settle_free_cells",
    "simulate",
    "simulate_rails",
    "solve",
    "study_yield",
    "verify",
]
