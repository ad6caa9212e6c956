"""Every method for demands keeps the contract."""

import os

from optmatch.fabrics import IdealSwitch
from optmatch.testing import SolverContract, demand_problems
from tests.helpers.contracts import contracts, methods_of

COUNT = [m for m in methods_of("demand") if m in ("best", "ilp") or m.startswith("birkhoff")]
"""The methods that also know what the fewest matchings are."""


class DemandContract(SolverContract):
    """Tests that all methods for demands share."""

    examples = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 4
    problems = demand_problems()
    tiny_problems = demand_problems(tiny=True)
    iterates = False


class CountContract(DemandContract):
    """Of exact decompositions, the fewest matchings."""

    problems = demand_problems(objectives=("matchings",), fabrics=[IdealSwitch(4), IdealSwitch(2)])
    tiny_problems = demand_problems(tiny=True, objectives=("matchings",))


ideal = demand_problems(tiny=True, fabrics=[IdealSwitch(n) for n in (3, 2, 1)])
exact = {"examples": 4, "tiny_problems": ideal}  # elsewhere `ilp` does what `best` does
globals().update(contracts(DemandContract, methods_of("demand"), ilp=exact))
globals().update(contracts(CountContract, COUNT))
