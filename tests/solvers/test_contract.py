"""Every method keeps the contract, on every kind of problem that it accepts."""

import os

import pytest

from optmatch.kinds import all_methods
from optmatch.problems import AllToAll
from optmatch.solvers.routing.TEMPLATE import METHOD
from optmatch.testing import (
    SolverContract,
    all_to_all_problems,
    feed_forward_fabrics,
    routing_problems,
)

pytestmark = pytest.mark.kernels

# As plain Python the kernels are some hundred times slower, and run for coverage.
ELSEWHERE = (
    "collective",
    "demand",
    "slice-allocation",
    "reroute",
    "rail-job",
    "port-sharing",
    "tenancy",
)
EXAMPLES = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 50


class RoutingContract(SolverContract):
    """Tests that all methods for one matching share."""

    examples = EXAMPLES
    problems = routing_problems()
    tiny_problems = routing_problems(tiny=True)


class AllToAllContract(SolverContract):
    """Tests that all methods for all pairs share."""

    examples = EXAMPLES
    problems = all_to_all_problems()
    tiny_problems = all_to_all_problems(tiny=True)


class TestTemplate(RoutingContract):
    """What others copy."""

    method = METHOD


class TestNegotiatedRouting(RoutingContract):
    """Negotiated congestion."""

    method = "negotiated"


class TestIlpRouting(RoutingContract):
    """Branch and price."""

    method = "ilp"


class TestNegotiatedAllToAll(AllToAllContract):
    """The search over 1-factorisations."""

    method = "negotiated"


class TestIlpAllToAll(AllToAllContract):
    """The joint model, which is for small meshes; what is tiny costs CP-SAT no conflict."""

    method = "ilp"
    iterates = False
    problems = all_to_all_problems(tiny=True)


class TestConstructiveRouting(RoutingContract):
    """The exact routers of feed-forward fabrics, and what takes over where faults stop them."""

    method = "constructive"
    problems = routing_problems(switches=feed_forward_fabrics())
    tiny_problems = routing_problems(switches=feed_forward_fabrics(tiny=True))


class TestConstructiveAllToAll(AllToAllContract):
    """A tournament on a feed-forward fabric."""

    method = "constructive"
    problems = feed_forward_fabrics(most_ports=5).map(AllToAll)
    tiny_problems = feed_forward_fabrics(tiny=True).map(AllToAll)


def test_every_method_is_under_contract() -> None:
    """On every kind of problem that it accepts; a new method brings a class above.

    Those for collectives, demands, slices, failures and rails are in files of their own.
    """
    contracts = [cls for cls in globals().values() if isinstance(cls, type)]
    covered = {
        (cls.method, cls._kind())
        for cls in contracts
        if issubclass(cls, SolverContract) and isinstance(getattr(cls, "method", None), str)
    }
    wanted = {(method.name, method.solves.kind) for method in all_methods()}
    assert covered == {(name, kind) for name, kind in wanted if kind not in ELSEWHERE}


def test_the_template_is_not_offered_to_users() -> None:
    assert METHOD not in all_methods()
