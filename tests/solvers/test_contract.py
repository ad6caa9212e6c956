"""Every method keeps the contract, on every kind of problem that it accepts."""

import os

import pytest

from optmatch.kinds import all_kinds
from optmatch.problems import AllToAll
from optmatch.testing import (
    SolverContract,
    all_to_all_problems,
    feed_forward_fabrics,
    routing_problems,
)
from tests.helpers.contracts import contracts, methods_of

pytestmark = pytest.mark.kernels

KINDS = {"routing", "all-to-all"}
ELSEWHERE = {  # in files of their own
    "collective",
    "demand",
    "slice-allocation",
    "reroute",
    "rail-job",
    "port-sharing",
}
# As plain Python the kernels are some hundred times slower, and run for coverage.
EXAMPLES = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 25


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


routed = {
    "problems": routing_problems(switches=feed_forward_fabrics()),
    "tiny_problems": routing_problems(switches=feed_forward_fabrics(tiny=True)),
}
paired = {
    "problems": feed_forward_fabrics(most_ports=5).map(AllToAll),
    "tiny_problems": feed_forward_fabrics(tiny=True).map(AllToAll),
}
joint = {"iterates": False, "problems": all_to_all_problems(tiny=True)}  # for small meshes
searched = {"examples": 25}  # of three problems, none may need a second iteration
globals().update(
    contracts(RoutingContract, methods_of("routing"), ilp=searched, constructive=routed)
)
globals().update(
    contracts(AllToAllContract, methods_of("all-to-all"), ilp=joint, constructive=paired)
)


def test_every_kind_is_under_contract() -> None:
    assert {kind.problem.kind for kind in all_kinds()} == KINDS | ELSEWHERE
