"""Every method for rail jobs keeps the contract."""

from optmatch.testing import SolverContract, rail_problems
from tests.helpers.contracts import contracts, methods_of
from tests.helpers.exhaustive.rails import best_rail


class RailContract(SolverContract):
    """Tests that all methods for rail jobs share."""

    examples = 8
    problems = rail_problems()
    tiny_problems = rail_problems(tiny=True)
    oracle = best_rail
    iterates = False


globals().update(contracts(RailContract, methods_of("rail-job")))
