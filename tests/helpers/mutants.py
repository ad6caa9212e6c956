"""Single-line changes of the package's code, one at a time, and whether tests notice them.

``python -m tests.helpers.mutants NUMBER [SEED [PREFIX]]`` draws so many changes in the verifier,
in `optmatch/io` and in `solvers` (or what begins with the prefix), and lists those that no test of
the room saw. The files stay as they are: a process for each imports the changed text. Neither
constants of modules nor messages are changed. Changed kernels run as plain Python.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numba
import ortools.sat.python.cp_model
import pytest
import scipy.optimize  # loaded here, once for all processes

HERE = Path(__file__).resolve().parents[2]
LAYERS = ("optmatch/verify", "optmatch/io", "solvers")
TEST_SECONDS, ALL_SECONDS = 8, 12
"""Of the processor: a test that needs more hangs; what has passed for so long has survived."""

SWAPS: dict[type, str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-",
    ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//", ast.And: "or",
    ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
NAMES |= {"minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}


class Mutant(NamedTuple):
    """One change of one file."""

    path: str
    line: int
    start: int
    end: int
    new: str
    plain: bool
    """Whether it is in a module of kernels."""

    def apply(self, text: bytes) -> bytes:
        """Return the changed text; columns count bytes."""
        lines = text.splitlines(keepends=True)
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: self.start] + self.new.encode() + old[self.end :]
        return b"".join(lines)

    def describe(self) -> str:
        """Show the place and both lines."""
        text = (HERE / self.path).read_bytes()
        old, new = (
            t.splitlines()[self.line - 1].decode().strip() for t in (text, self.apply(text))
        )
        return f"{self.path}:{self.line}\n    {old}\n    {new}"


def mutants_of(path: str) -> list[Mutant]:
    """List all changes of a file."""
    source = (HERE / path).read_text()
    plain = "kernel\n" in source and "@" in source
    return [
        Mutant(path, node.lineno, node.col_offset, node.end_col_offset, new, plain)
        for node in _code(ast.parse(source))
        for new in _texts(node)
        if node.lineno == node.end_lineno
    ]


def _code(tree: ast.AST) -> Iterator[Any]:
    """Walk through bodies of functions: neither messages, annotations, defaults nor doctests."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _below(statement)


def _below(node: ast.AST) -> Iterator[Any]:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.FunctionDef | ast.Assert | ast.ClassDef):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _below(child)


def _texts(node: Any) -> Iterator[str]:
    """Give the changed texts of one node, in brackets where they are expressions."""
    swap = None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        swap = SWAPS.get(type(node.ops[0]))
        sides = ast.unparse(node.left), ast.unparse(node.comparators[0])
    elif isinstance(node, ast.BinOp):
        swap = SWAPS.get(type(node.op))
        sides = ast.unparse(node.left), ast.unparse(node.right)
        if isinstance(node.op, ast.BitAnd | ast.BitOr):
            yield from (f"({side})" for side in sides)
    elif isinstance(node, ast.BoolOp):
        swap = SWAPS[type(node.op)]
        sides = ast.unparse(node.values[0]), f" {swap} ".join(map(ast.unparse, node.values[1:]))
        yield from (f"({ast.unparse(value)})" for value in node.values)
    if swap is not None:
        yield f"(({sides[0]}) {swap} ({sides[1]}))"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Name | ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in NAMES:
            yield ast.unparse(node)[: -len(name)] + NAMES[name]
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Break | ast.Continue):
        yield "continue" if isinstance(node, ast.Break) else "break"


def tests_of(path: str) -> list[str]:
    """Name the tests of a module's room: its own file first, then its folder, then others'."""
    module = Path(path)
    layer, rooms = (
        (module.parts[0], module.parts[1:-1])
        if path.startswith("solvers")
        else (module.parts[1], module.parts[2:-1])
    )
    folder = HERE.joinpath("tests", layer, *rooms)
    own = folder / f"test_{module.stem}.py"
    found = [own] if own.exists() else []
    while folder.name != "tests" and not folder.is_dir():
        folder = folder.parent
    inside = sorted(
        folder.glob("test_*.py"), key=lambda file: ("contract" in file.name, file.name)
    )
    others = [HERE.joinpath("tests", other, *rooms) for other in ("solvers", "verify")]
    more = [other for other in others if rooms and other.is_dir() and other != folder]
    if layer in ("verify", "io"):
        more.append(HERE / "tests/verify/test_forged.py")
    return [str(file) for file in dict.fromkeys([*found, *inside, *more])]


class _Limits:
    """A plugin: a test that hangs fails, and says so."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Any:
        signal.signal(signal.SIGPROF, _hangs)
        signal.setitimer(signal.ITIMER_PROF, TEST_SECONDS)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _hangs(*_: object) -> None:
    os._exit(1)


def run(mutant: Mutant) -> str:
    """Run the tests of a change in a process of its own: killed, survived, or survived so far."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_CPU, (ALL_SECONDS, ALL_SECONDS + 5))
            os._exit(_test(mutant))
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "survived so far" if os.WTERMSIG(status) == signal.SIGXCPU else "killed"
    return "survived" if os.WEXITSTATUS(status) in (0, 5) else "killed"


def _test(mutant: Mutant) -> int:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if mutant.plain:
        os.environ |= {"OPTMATCH_JIT": "0", "NUMBA_DISABLE_JIT": "1"}
        numba.config.DISABLE_JIT = True  # type: ignore[attr-defined]
    changed, read = HERE / mutant.path, importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        if Path(loader.path).resolve() != changed:
            return read(loader, name)
        return compile(mutant.apply(changed.read_bytes()), str(changed), "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
    options = ["-q", "-x", "--assert=plain", "-p", "no:xdist", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *tests_of(mutant.path)], plugins=[_Limits()]))


def main(number: int, seed: int = 0, prefix: str = "") -> int:
    """Draw changes, run them, and print those that survived."""
    assert all((hypothesis, ortools, scipy))
    files = [
        str(file.relative_to(HERE)) for layer in LAYERS for file in (HERE / layer).rglob("*.py")
    ]
    found = [
        mutant for file in sorted(files) if file.startswith(prefix) for mutant in mutants_of(file)
    ]
    random.Random(seed).shuffle(found)
    results = Counter[str]()
    print(f"{len(found)} changes in {prefix or ', '.join(LAYERS)}; {number} of them, seed {seed}")
    for mutant in found[:number]:
        result = run(mutant)
        results[result] += 1
        if result != "killed":
            print(f"{results.total()}, {result}: {mutant.describe()}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in results.items()))
    return 0


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    sys.exit(main(int(given[1]), int(given.get(2, 0)), given.get(3, "")))
