"""Rails of training jobs: circuits of each phase, policies, timetables, the exact plan."""

from __future__ import annotations

from optmatch.problems import RailJob
from optmatch.solvers.method import Method, Run


def _prefetch() -> Run:
    from optmatch.solvers.rails.methods import solve_prefetch

    return solve_prefetch


def _provisioned() -> Run:
    from optmatch.solvers.rails.methods import solve_provisioned

    return solve_provisioned


def _on_demand() -> Run:
    from optmatch.solvers.rails.methods import solve_on_demand

    return solve_on_demand


def _static() -> Run:
    from optmatch.solvers.rails.methods import solve_static

    return solve_static


def _ilp() -> Run:
    from optmatch.solvers.rails.ilp import solve

    return solve


METHODS = (
    Method(
        "prefetch",
        RailJob,
        _prefetch,
        "circuits of the next phase set up while their ports are idle",
    ),
    Method(
        "provisioned",
        RailJob,
        _provisioned,
        "circuits changed as soon as the last phase has ended",
    ),
    Method("on-demand", RailJob, _on_demand, "circuits changed when all who need them are ready"),
    Method("static", RailJob, _static, "ports split once, by the square root of traffic"),
    Method(
        "ilp", RailJob, _ilp, "orders, ports, detours and first circuits by CP-SAT", exact=True
    ),
)
"""Methods for rail jobs; the first is the default."""
