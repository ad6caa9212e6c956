"""Every method keeps the contract, on every kind of problem that it accepts."""

from optmatch.solvers import methods
from optmatch.solvers.TEMPLATE import METHOD
from optmatch.testing import SolverContract, routing_problems


class TestTemplate(SolverContract):
    """What others copy."""

    method = METHOD
    problems = routing_problems()
    tiny_problems = routing_problems(tiny=True)
