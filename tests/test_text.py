"""Docstrings say a thing once: what is still said twice is counted, and may only get less.

Names that a stub exports are described in full. Any other function has one paragraph, and of its
parameters only what their names and types do not say.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.kinds import modules

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(
    r"^(Parameters|Returns)\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", re.MULTILINE | re.DOTALL
)
FEW_STATEMENTS = 8
"""A private function of fewer statements has no table of parameters or of what it returns."""

TABLES: dict[str, int] = {}
"""Tables at small private functions, by room: lower a figure as they go, and never raise one."""

TWICE = {
    "optmatch": 2, "optmatch/commands": 3, "optmatch/model": 6,
    "optmatch/plotting": 14, "optmatch/problems": 38, "optmatch/simulation": 1,
    "optmatch/sweeps": 1, "optmatch/switches": 1, "optmatch/testing": 5,
}  # fmt: skip
"""Parameters described again in their module at functions that no stub exports, by room."""


class Described(NamedTuple):
    """A function with a docstring, and where it stands in its module."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    is_private: bool
    is_exported: bool

    def rows(self, section: str) -> list[str]:
        """List the names that a section of the docstring describes, one or several a line."""
        lines = [
            text
            for name, text in SECTION.findall(ast.get_docstring(self.node) or "")
            if name == section
        ]
        heads = re.findall(r"^(\S[^:\n]*)", "\n".join(lines), re.MULTILINE)
        return [name.strip().lstrip("*") for head in heads for name in head.split(",")]

    def types(self) -> dict[str, str]:
        """Return the annotation of each parameter."""
        arguments = self.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return {one.arg: ast.unparse(one.annotation) if one.annotation else "" for one in every}


def functions_of(
    node: ast.AST, exported: set[str], inside: bool = False, member: bool = False
) -> Iterator[Described]:
    """List all functions of a module, from its end to its beginning."""
    for child in reversed(list(ast.iter_child_nodes(node))):
        if isinstance(child, ast.expr):
            continue
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        name = getattr(child, "name", "")
        is_exported = member or name in exported
        if is_function:
            is_private = inside or (name.startswith("_") and not name.endswith("__"))
            yield Described(child, is_private, is_exported)  # type: ignore[arg-type]
        yield from functions_of(
            child, exported, inside or is_function, is_exported and not is_function
        )


def n_statements(function: ast.AST) -> int:
    """Count the statements inside a function, without docstrings."""
    inside = [one for one in ast.walk(function) if isinstance(one, ast.stmt)][1:]
    texts = [one.value for one in inside if isinstance(one, ast.Expr)]
    return len(inside) - sum(isinstance(text, ast.Constant) for text in texts)


def tables(functions: list[Described], place: str) -> list[str]:
    """List the private functions of a module that are too small for the table that they have."""
    found = []
    for one in functions:
        if not one.is_private or not (one.rows("Parameters") or one.rows("Returns")):
            continue
        n_inside = n_statements(one.node)
        if n_inside < FEW_STATEMENTS:
            here = f"{place}:{one.node.lineno} {one.node.name}"
            found.append(f"{here}: a table for {n_inside} statements")
    return found


def twice(functions: list[Described], place: str) -> list[str]:
    """List the parameters that a module describes again: same name, same type."""
    first: dict[tuple[str, str], str] = {}
    found = []
    for one in functions:
        types = one.types()
        for name in one.rows("Parameters"):
            key = (name, types.get(name, ""))
            if key in first and not one.is_exported:
                here = f"{place}:{one.node.lineno} {one.node.name}"
                found.append(f"{here}: {name} stands already at {first[key]}")
            first.setdefault(key, f"{one.node.name}, line {one.node.lineno}")
    return found


def exported_names() -> set[str]:
    """List what the stubs of the package export."""
    trees = [ast.parse(stub.read_text("utf-8")) for stub in (ROOT / "optmatch").rglob("*.pyi")]
    blocks = [block for tree in trees for block in (tree, *tree.body)]
    nodes = [node for block in blocks for node in getattr(block, "body", [])]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


@cache
def said_twice() -> dict[str, tuple[list[str], list[str]]]:
    """Return the tables and the parameters that are counted in each room of the product."""
    exported = exported_names()
    found: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for path, tree in modules().items():
        parts = path.relative_to(ROOT).parts
        functions = list(functions_of(tree, exported))
        counted = found["/".join(parts[:-1][:2])]
        counted[0].extend(tables(functions, "/".join(parts)))
        counted[1].extend(twice(functions, "/".join(parts)))
    return found


@pytest.mark.parametrize(("number", "held"), [(0, TABLES), (1, TWICE)], ids=["tables", "twice"])
def test_rooms_say_no_more_twice_than_they_did(number: int, held: dict[str, int]) -> None:
    for room, counted in said_twice().items():
        lines = counted[number]
        n_held = held.get(room, 0)
        assert len(lines) <= n_held, "\n".join([f"{room} has {len(lines)}, not {n_held}:", *lines])


MODULE = """
class Public:
    def add(self, port: int):
        '''Add a port.

        Parameters
        ----------
        port : int
            The port.
        '''
        total = self.total

def remove(port: int, *others: int) -> int:
    '''Remove ports.

    Parameters
    ----------
    port, *others
        The ports.
    '''

def _count(port: str, others: int):
    '''Count.

    Returns
    -------
    int
        How many.
    '''
    def inside(port: str):
        '''Parameters
        ----------
        port : str
            Again.
        '''
"""


def test_what_is_said_twice_is_counted() -> None:
    """A public name may describe what it likes; `port` of another type is another parameter."""
    module = ast.parse(MODULE)
    every = list(functions_of(module, set()))
    assert twice(list(functions_of(module, {"remove"})), "new.py") == [
        "new.py:3 add: port stands already at remove, line 13"
    ]
    assert twice(list(functions_of(module, {"Public", "remove"})), "new.py") == []
    assert tables(every, "new.py") == [
        "new.py:22 _count: a table for 1 statements",
        "new.py:30 inside: a table for 0 statements",
    ]
    long = ast.parse(MODULE.replace("    def inside", "    a = 1\n" * 7 + "    def inside"))
    small = tables(list(functions_of(long, set())), "new.py")
    assert [line.split()[1] for line in small] == ["inside:"]
