"""Classes for pytest to collect: every method of a kind of problem under contract."""

from collections.abc import Sequence
from typing import Any

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract


def methods_of(kind: str) -> list[str]:
    """Name all methods of a kind, as the table of kinds has them."""
    found = [method.name for method in all_methods() if method.solves.kind == kind]
    assert found  # of none, nothing would be tested
    return found


def contracts(
    base: type[SolverContract], names: Sequence[str], **special: dict[str, Any]
) -> dict[str, type]:
    """Make a class for each method; `special` has other fields of some, by their names."""
    classes: dict[str, type] = {}
    for name in names:
        title = "Test" + base.__name__.removesuffix("Contract") + name.title().replace("-", "")
        fields = {"method": name, "__doc__": f"Method {name}.", **special.get(name, {})}
        classes[title] = type(title, (base,), fields)
    return classes
