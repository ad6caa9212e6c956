"""The modules of the product, and which name a kind of problem outside the rooms of questions.

A room of a question is a folder or a module of its name: ``problems/rails``, ``testing/rails.py``;
and ``io/matrices``, which reads demands.
One question may build on another, so no such room counts.
"""

import ast
from functools import cache
from pathlib import Path

from optmatch.kinds import Kind, all_kinds

ROOT = Path(__file__).resolve().parents[2]


def folder_of(kind: Kind) -> str:
    """Return the name of its folders, which is the same in every layer."""
    return kind.problem.__module__.split(".")[2]


@cache
def modules() -> dict[Path, ast.Module]:
    """Return the modules of the product, each read once."""
    found = [*(ROOT / "optmatch").rglob("*.py"), *(ROOT / "solvers").rglob("*.py")]
    paths = sorted({path.resolve() for path in found})
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def names_in(tree: ast.Module) -> tuple[set[str], set[str], set[str]]:
    """List the parts of module names that a module imports from, all names, and all texts."""
    rooms, names, texts = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            imported = {alias.name for alias in node.names}
            names |= imported
            origin = (getattr(node, "module", None) or "").split(".")
            if "optmatch" in (origin[0], *(name.partition(".")[0] for name in imported)):
                rooms |= {*origin, *(part for name in imported for part in name.split("."))}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    return rooms, names, texts


def name_kinds() -> dict[str, list[str]]:
    """Return for each kind the modules that import from its folders, or name it or a class."""
    found: dict[str, list[str]] = {kind.problem.kind: [] for kind in all_kinds()}
    questions = {folder_of(kind) for kind in all_kinds()} | {"matrices"}
    for path, tree in modules().items():
        if questions & set(path.relative_to(ROOT).with_suffix("").parts):
            continue
        rooms, names, texts = names_in(tree)
        for kind in all_kinds():
            classes = kind.problem, kind.problem.answer_class
            if (
                folder_of(kind) in rooms
                or kind.problem.kind in texts
                or names & {cls.__name__ for cls in classes if cls is not None}
            ):
                found[kind.problem.kind].append(path.relative_to(ROOT).as_posix())
    return found
