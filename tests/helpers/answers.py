"""An answer of every kind, found in a moment; two where an answer has two forms."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import optmatch as om
from optmatch.problems import Jobs, Resources
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from tests.helpers.rails import small_job


def _reroute() -> Any:
    from dataclasses import replace

    return replace(fill_rack(om.RackFabric()), failed_chips=(21,))


def _reroute_mesh() -> Any:
    from dataclasses import replace

    mesh = hold_matching(om.HexMesh(5, 5, ports=12), [1, 0, 3, 2, 5, 4, *[-1] * 6], seed=0)
    return replace(mesh, failed_ports=(0,))


def _reroute_ideal() -> Any:
    circuits = [[0, 1], [1, 2], [2, 0]]
    return om.Reroute(om.IdealSwitch(5), circuits, spares=(3, 4), failed_ports=(1,))


def _slice() -> Any:
    rack = om.RackFabric(racks=2, joined=True)
    first = om.solve(om.SliceAllocation(rack, (2, 2, 2)), seed=0).answer
    return om.SliceAllocation(rack, (2, 2, 1), placed=(first,), reserved=(7,))


def _sharing() -> Any:
    return om.PortSharing(Resources([[100.0, 400, 400, 800]]), Jobs([2, 3], [[400.0, 400]]))


def _demand(planes: int) -> Any:
    matrix = np.random.default_rng(0).integers(0, 5, (6, 6)) * 1e6
    return om.Demand(
        om.IdealSwitch(6), matrix, rate_bytes_per_s=1e9, delay_s=1e-4, planes=planes,
        quantum_s=1e-6,
    )  # fmt: skip


_COLLECTIVE: dict[str, Any] = {"alpha_s": 2.7e-6, "delay_s": 1e-5}

PROBLEMS: dict[str, Callable[[], Any]] = {
    "all-to-all": lambda: om.AllToAll(om.HexMesh(4, 4, ports=8)),
    "routing": lambda: om.Routing(om.HexMesh(4, 4, ports=8), [4, 3, 6, 1, 0, 7, 2, 5]),
    "demand": lambda: _demand(1),
    "demand-planes": lambda: _demand(2),
    "rail-job": lambda: small_job(delay_s=0.005),
    "reroute": _reroute,
    "reroute-mesh": _reroute_mesh,
    "reroute-ideal": _reroute_ideal,
    "slice-allocation": _slice,
    "collective": lambda: om.Collective("all-to-all", 8, 1e6, **_COLLECTIVE),
    "collective-planes": lambda: om.Collective("all-reduce", 4, 1e6, planes=2, **_COLLECTIVE),
    "port-sharing": _sharing,
}
METHODS = {"rail-job": "on-demand"}


@cache
def problem_named(name: str) -> Any:
    """Return a problem of `PROBLEMS`."""
    return PROBLEMS[name]()


@cache
def answer_named(name: str) -> om.Solution:
    """Solve a problem of `PROBLEMS`."""
    limits: dict[str, Any] = {"time_limit_s": 0.3} if name.startswith("demand") else {}
    return om.solve(problem_named(name), METHODS.get(name), seed=0, **limits)
