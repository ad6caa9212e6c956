"""Optical circuit matchings: schedules and switch states for machine-learning clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optmatch.fabrics import (
    CellGraph,
    Fabric,
    HexMesh,
    IdealSwitch,
    SmartLightMesh,
    SquareMesh,
    TriangularMesh,
)
from optmatch.model import (
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
from optmatch.problems import AllToAll, Routing, RoutingProof

if TYPE_CHECKING:
    from optmatch.io import load, save
    from optmatch.solve import solve
    from optmatch.verify import Report, Violation, verify

__version__ = "0.1.0"

_LATE = {
    "solve": "optmatch.solve",
    "verify": "optmatch.verify",
    "Report": "optmatch.verify",
    "Violation": "optmatch.verify",
    "load": "optmatch.io",
    "save": "optmatch.io",
}

__all__ = [
    "AllToAll",
    "CellGraph",
    "Fabric",
    "FormatError",
    "HexMesh",
    "IdealSwitch",
    "InfeasibleError",
    "InputError",
    "Limit",
    "LimitReached",
    "Limits",
    "OptMatchError",
    "Report",
    "Routing",
    "RoutingProof",
    "Schedule",
    "SmartLightMesh",
    "Solution",
    "SolverError",
    "SolverUnavailable",
    "SquareMesh",
    "Status",
    "TriangularMesh",
    "VerificationError",
    "Violation",
    "load",
    "save",
    "solve",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import on first use what would make `import optmatch` slow."""
    if name not in _LATE:
        raise AttributeError(f"module 'optmatch' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)
