"""Imports inside functions of solvers: none of them counts in a time limit."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOLVERS = Path(__file__).resolve().parents[2] / "solvers"
LIGHT = ("optmatch.fabrics", "optmatch.problems")
"""What is there as soon as there is a problem."""


def counted_imports(tree: ast.AST, *, in_function: bool = False) -> Iterator[ast.stmt]:
    """Yield the imports inside functions that stand in no block of `uncounted`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items]
            if any("uncounted(" in ast.unparse(call) for call in calls):
                continue
        if in_function and isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if not module.startswith(LIGHT):
                yield node
        inside = in_function or isinstance(node, ast.FunctionDef)
        yield from counted_imports(node, in_function=inside)


def test_no_import_counts_in_a_time_limit() -> None:
    """One of OR-tools took a second of the limit on a fresh machine.

    Modules of the name `__init__` list methods, whose loading `Method.run` keeps out of the time.
    `rules` lists rules in the same way: `portfolio`, which runs them, has loaded their modules.
    """
    import optmatch.solvers.demands.portfolio  # noqa: F401

    loaders = ast.parse((SOLVERS / "demands" / "rules.py").read_text("utf-8"))
    for node in counted_imports(loaders):
        assert isinstance(node, ast.ImportFrom) and node.module in sys.modules

    found = []
    for path in sorted(SOLVERS.rglob("*.py")):
        if path.name in ("__init__.py", "rules.py") or path.parent.name == "kernels":
            continue
        for node in counted_imports(ast.parse(path.read_text("utf-8"))):
            found.append(f"{path.relative_to(SOLVERS)}:{node.lineno} {ast.unparse(node)}")
    assert found == []
