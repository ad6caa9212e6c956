"""Every method for failures keeps the contract."""

from __future__ import annotations

import os

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract, reroute_problems


class RerouteContract(SolverContract):
    """What methods for failures have in common."""

    examples = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 6
    problems = reroute_problems()
    tiny_problems = reroute_problems(tiny=True)
    iterates = False


class TestGreedy(RerouteContract):
    """Quick repair."""

    method = "greedy"


class TestIlpReroutes(RerouteContract):
    """The least disturbance; models are small, so that conflicts are few."""

    method = "ilp"
    examples = 4
    problems = reroute_problems(tiny=True)


def test_every_method_for_failures_is_under_contract() -> None:
    """A new one brings a class above."""
    covered = {cls.method for cls in RerouteContract.__subclasses__()}
    known = {m.name for m in all_methods() if m.solves.kind == "reroute"}
    assert covered == known
