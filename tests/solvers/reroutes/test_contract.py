"""Every method for failures keeps the contract."""

import os

from optmatch.testing import SolverContract, reroute_problems
from tests.helpers.contracts import contracts, methods_of
from tests.helpers.exhaustive.reroutes import best_reroute


class RerouteContract(SolverContract):
    """Tests that all methods for failures share."""

    examples = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 6
    problems = reroute_problems()
    tiny_problems = reroute_problems(tiny=True)
    oracle = best_reroute
    iterates = False


small = {"examples": 4, "problems": reroute_problems(tiny=True)}  # so that conflicts are few
globals().update(contracts(RerouteContract, methods_of("reroute"), ilp=small))
