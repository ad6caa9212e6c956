"""Optical circuit matchings: schedules and switch states for machine-learning clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from optmatch.io import load, save
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
from optmatch.model.later import import_later
from optmatch.notebook import show_objects

# These two now, not on first use: the import of a module would take the place of its function.
from optmatch.solve import settle_free_cells, solve
from optmatch.verify import Report, Violation, verify

if TYPE_CHECKING:
    from optmatch.compare import compare_fabrics, compare_methods
    from optmatch.io import read_netlist
    from optmatch.problems import (
        Allocation,
        AllToAll,
        ConfigurationProof,
        CountProof,
        Demand,
        LineProof,
        LoadProof,
        PlaneSchedules,
        RailJob,
        RailPlan,
        Reroute,
        Routing,
        RoutingProof,
        SliceAllocation,
        Steering,
        TransformerModel,
        Transition,
        slice_rings,
    )
    from optmatch.rerouter import Rerouter
    from optmatch.simulation.demands import Simulation, simulate
    from optmatch.simulation.rails import RailSimulation, simulate_rails
    from optmatch.verify import Budget, Optics, check_steering, measure_optics
    from optmatch.yields import YieldStudy, study_yield

__version__ = "0.1.0"

show_objects()
del show_objects

__all__ = [
    "AllToAll",
    "Allocation",
    "Benes",
    "Budget",
    "CellGraph",
    "Clements",
    "ConfigurationProof",
    "CountProof",
    "Crossbar",
    "DEVICES",
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
    "LoadProof",
    "Netlist",
    "NetlistError",
    "OptMatchError",
    "Optics",
    "Piloss",
    "PlaneSchedules",
    "RackFabric",
    "RailJob",
    "RailPlan",
    "RailSimulation",
    "Reck",
    "Report",
    "Reroute",
    "Rerouter",
    "Routing",
    "RoutingProof",
    "Schedule",
    "Simulation",
    "SliceAllocation",
    "SmartLightMesh",
    "Solution",
    "SolverError",
    "SolverUnavailable",
    "SpankeBenes",
    "SquareMesh",
    "Status",
    "Steering",
    "SwitchAndSelect",
    "TransformerModel",
    "Transition",
    "TriangularMesh",
    "VerificationError",
    "Violation",
    "YieldStudy",
    "check_steering",
    "compare_fabrics",
    "compare_methods",
    "load",
    "measure_optics",
    "read_netlist",
    "save",
    "settle_free_cells",
    "simulate",
    "simulate_rails",
    "slice_rings",
    "solve",
    "study_yield",
    "verify",
]

__getattr__ = import_later(
    __name__,
    {
        "Allocation": "problems",
        "Budget": "verify",
        "ConfigurationProof": "problems",
        "CountProof": "problems",
        "LineProof": "problems",
        "LoadProof": "problems",
        "Optics": "verify",
        "PlaneSchedules": "problems",
        "AllToAll": "problems",
        "Demand": "problems",
        "RailJob": "problems",
        "RailPlan": "problems",
        "RailSimulation": "simulation.rails",
        "Reroute": "problems",
        "Rerouter": "rerouter",
        "Routing": "problems",
        "RoutingProof": "problems",
        "Simulation": "simulation.demands",
        "SliceAllocation": "problems",
        "Steering": "problems",
        "TransformerModel": "problems",
        "Transition": "problems",
        "YieldStudy": "yields",
        "check_steering": "verify",
        "compare_fabrics": "compare",
        "compare_methods": "compare",
        "measure_optics": "verify",
        "read_netlist": "io",
        "simulate": "simulation.demands",
        "simulate_rails": "simulation.rails",
        "slice_rings": "problems",
        "study_yield": "yields",
    },
)
