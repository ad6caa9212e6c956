"""Every method for collectives keeps the contract."""

from typing import Any

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract, collective_problems

SLOW = {"overlap": {"most_ranks": 4}}
"""Methods that small problems have to do for."""


class CollectiveContract(SolverContract):
    """Tests that all methods for collectives share."""

    examples = 3
    tiny_problems = ()
    iterates = False


def _contract(method: Any) -> type[CollectiveContract]:
    """Make the class of a method; a new method so has one, too."""
    name = f"Test{method.name.title().replace('-', '')}"
    problems = collective_problems(takes=method.takes, **SLOW.get(method.name, {}))
    members = {"method": method.name, "problems": problems, "__module__": __name__}
    return type(name, (CollectiveContract,), members)


CONTRACTS = [_contract(each) for each in all_methods() if each.solves.kind == "collective"]
globals().update({contract.__name__: contract for contract in CONTRACTS})


def test_every_method_for_collectives_is_under_contract() -> None:
    assert {"best", "ring"} <= {contract.method for contract in CONTRACTS}
