"""Every method for demands keeps the contract."""

from __future__ import annotations

import os

from optmatch.fabrics import IdealSwitch
from optmatch.kinds import all_methods
from optmatch.testing import SolverContract, demand_problems

NAMES = sorted(m.name for m in all_methods() if m.solves.kind == "demand")
COUNT = tuple(name for name in NAMES if name in ("best", "ilp") or name.startswith("birkhoff"))
"""The methods that also know what the fewest matchings are."""


class DemandContract(SolverContract):
    """What methods for demands have in common."""

    examples = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 5
    problems = demand_problems()
    tiny_problems = demand_problems(tiny=True)
    iterates = False


class CountContract(DemandContract):
    """Of exact decompositions, the fewest matchings."""

    problems = demand_problems(objectives=("matchings",), fabrics=[IdealSwitch(4), IdealSwitch(2)])
    tiny_problems = demand_problems(tiny=True, objectives=("matchings",))


def _add(base: type[DemandContract], names: list[str] | tuple[str, ...]) -> None:
    """Make a class for each method, for pytest to collect."""
    for name in names:
        title = "Test" + base.__name__.removesuffix("Contract") + name.title().replace("-", "")
        doc = f"Method {name}."
        globals()[title] = type(title, (base,), {"method": name, "__doc__": doc})


_add(DemandContract, [name for name in NAMES if name != "ilp"])
_add(CountContract, COUNT)


class TestDemandIlp(DemandContract):
    """Method ilp, which proves optima on ideal switches; elsewhere it does what `best` does."""

    method = "ilp"
    examples = 4
    tiny_problems = demand_problems(tiny=True, fabrics=[IdealSwitch(n) for n in (3, 2, 1)])


def test_some_methods_are_under_contract() -> None:
    """The classes above come from the table of kinds; an empty one would test nothing."""
    assert "birkhoff-bottleneck" in COUNT
