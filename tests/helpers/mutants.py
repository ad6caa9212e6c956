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
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numba
import ortools.sat.python.cp_model
import pytest
import scipy.optimize  # loaded here, once for all processes

HERE = Path(__file__).resolve().parents[2]
LAYERS = ("optmatch/verify", "optmatch/io", "solvers")
TEST_SECONDS, ALL_SECONDS = 8, 25
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
    """Name the tests that may notice a change of a module, contracts last.

    First those that import it, then the rest of its room, then those of its users.
    """
    module = Path(path)
    layer, *rooms = module.parts[0 if path.startswith("solvers") else 1 : -1]
    homes = [HERE.joinpath("tests", home, *rooms) for home in (layer, "solvers", "verify")]
    steps = _steps(path)
    found = {file: step for file, step in steps.items() if file.name.startswith("test_")}
    for home in homes[: len(homes) if rooms else 1]:
        inside = home.rglob("test_*.py") if rooms else home.glob("test_*.py")
        found |= {file: found.get(file, len(steps)) for file in inside}
    if layer in ("verify", "io"):
        found.setdefault(HERE / "tests/verify/test_forged.py", len(steps))
    if layer == "solvers":
        found.setdefault(HERE / "tests/solvers/test_contract.py", len(steps))

    def order(file: Path) -> tuple[object, ...]:
        places = [i for i, home in enumerate(homes) if home in file.parents]
        place = min(places, default=len(homes))
        other = file.stem != f"test_{module.stem}"
        return "contract" in file.name, found[file] > 1, place, other, found[file], str(file)

    return [str(file) for file in sorted(found, key=order)]


def _steps(path: str) -> dict[Path, int]:
    """Count the imports from each file to a module, up to three."""
    steps = {HERE / path: 0}
    for step in range(1, 4):
        names = {_name(file) for file, before in steps.items() if before == step - 1}
        users = [file for file, imports in _imports().items() if names & imports]
        steps |= {file: step for file in users if file not in steps}
    return steps


def _name(file: Path) -> str:
    name = ".".join(file.relative_to(HERE).with_suffix("").parts).removesuffix(".__init__")
    return f"optmatch.{name}" if name.startswith("solvers") else name


@cache
def _imports() -> dict[Path, set[str]]:
    """Say what each file imports: modules, and names in them."""
    return {
        file: {
            name
            for node in ast.walk(ast.parse(file.read_bytes()))
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for name in (node.module, *(f"{node.module}.{part.name}" for part in node.names))
        }
        for folder in ("optmatch", "solvers", "tests")
        for file in (HERE / folder).rglob("*.py")
    }


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
