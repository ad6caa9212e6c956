"""Rails of training jobs: circuits of each phase, policies, timetables, the exact plan."""

from __future__ import annotations

from functools import partial
from typing import Literal

from optmatch.problems import RailJob
from optmatch.solvers.method import Method, Run


def _by(name: Literal["static", "on-demand", "provisioned", "prefetch"]) -> Run:
    from optmatch.solvers.rails.methods import solve_by

    return partial(solve_by, name)


def _ilp() -> Run:
    from optmatch.solvers.rails.ilp import solve

    return solve


METHODS = (
    Method(
        "prefetch",
        RailJob,
        partial(_by, "prefetch"),
        "circuits of the next phase set up while their ports are idle",
    ),
    Method(
        "provisioned",
        RailJob,
        partial(_by, "provisioned"),
        "circuits changed as soon as the last phase has ended",
    ),
    Method(
        "on-demand",
        RailJob,
        partial(_by, "on-demand"),
        "circuits changed when all who need them are ready",
    ),
    Method(
        "static",
        RailJob,
        partial(_by, "static"),
        "ports split once, by the square root of traffic",
    ),
    Method(
        "ilp", RailJob, _ilp, "orders, ports, detours and first circuits by CP-SAT", exact=True
    ),
)
"""Methods for rail jobs; the first is the default."""
