"""Single-line changes of the package's code, one at a time, and whether tests notice them.

``python -m tests.helpers.mutants NUMBER [SEED [PREFIX [TESTS]]]`` draws so many changes in the
verifier, in `optmatch/io` and in `solvers` (or what begins with the prefix; ``FILE:LINE`` is one
line), and lists those that no test of the room saw; the verifier is judged by all of
`tests/verify`, and by nothing else. ``TESTS`` are files or folders with commas between them, which
judge in place of these: then only they are recorded, which takes a fraction of the time.
``200-400`` instead of a number are those after the first 200. The files stay as they
are: a process for each puts the changed code into functions that are loaded already, and runs the
tests that execute the line, rows of `tests/verify/rules` first, then the quickest. Which do is
written down in `build/mutants`, once for each file of tests. Neither constants of modules nor
messages are changed. A changed kernel is compiled anew, and so are all that its tests call.

Changes that change nothing are listed in `tests/verify/equivalents`, with the reason, as they are
printed here; they are counted apart.
"""

import ast
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest

HERE = Path(__file__).resolve().parents[2]
RECORDS = HERE / "build" / "mutants"
LAYERS = ("optmatch/verify", "optmatch/optics", "optmatch/io", "solvers")
HOMES = ("solvers", "verify", "io", "control", "problems")
"""Folders of tests, in which a room has a folder of its own."""
CACHING = ("optmatch.verify.", "optmatch.io.", "optmatch.solvers.", "tests.")
EQUIVALENTS = HERE / "tests" / "verify" / "equivalents"
ROWS = "tests/verify/test_rules.py::test_one_rule_refuses_it["
JUDGES: list[Path] = []
"""Files and folders of tests that judge in place of those of the room; none unless told."""
FUNCTIONS: list[FunctionType] = []
"""All that are loaded."""
ALL_SECONDS = 25
"""Of the processor: what has passed for so long has survived."""

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
    kernel: bool
    """Whether it is in a kernel, of which no test executes single lines."""

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
    """List all changes of bodies of functions: no messages, annotations, defaults or doctests."""
    return [
        Mutant(path, node.lineno, node.col_offset, node.end_col_offset, new, kernel)
        for function in ast.walk(ast.parse((HERE / path).read_text()))
        if isinstance(function, ast.FunctionDef)
        for kernel in [any(ast.unparse(d).endswith("kernel") for d in function.decorator_list)]
        for statement in function.body
        for node in _below(statement)
        for new in _texts(node)
        if node.lineno == node.end_lineno
    ]


def _below(node: ast.AST) -> Iterator[Any]:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.FunctionDef | ast.Assert | ast.ClassDef):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":  # as good as an assert
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


def tests_of(mutant: Mutant) -> Iterator[dict[str, float]]:
    """Give the tests that execute the line of a change, with their seconds, quickest file first.

    Those of its own question come first, and rules, then all others, so that few files have to
    be recorded. Of a kernel, that call some kernel, those of its own file first.
    """
    if JUDGES:
        for judge in JUDGES:
            own_files = {judge} if judge.suffix else set(judge.rglob("test_*.py"))
            if tests := _select(mutant, own_files):
                yield tests
        return
    room = Path(mutant.path.removeprefix("optmatch/")).with_suffix("")  # a module may be one
    if not HERE.joinpath("tests", room).is_dir():
        room = room.parent
    layer, *rooms = room.parts
    own = HERE.joinpath("tests", layer)
    folders: list[Path] = [HERE.joinpath("tests", home, *rooms) for home in HOMES if rooms]
    files: set[Path] = {file for folder in folders for file in folder.glob("test_*.py")}
    if layer == "verify" or not own.joinpath(*rooms).exists():
        files = set(own.rglob("test_*.py"))
    shared = "contract" if layer == "solvers" else "*"
    files |= set(own.glob(f"test_{shared}.py"))
    near = {f for f in files if f.parent == own.joinpath(*rooms) or f.name == "test_rules.py"}
    for some in (near, files - near):
        if tests := _select(mutant, some):
            yield tests


def _select(mutant: Mutant, files: set[Path]) -> dict[str, float]:
    found: list[tuple[bool, float, str, float]] = []
    for file in sorted(files):
        tests = []
        for test, (seconds, lines, kernels) in _recorded(file, mutant.path).items():
            executed = kernels if mutant.kernel else mutant.line in lines.get(mutant.path, [])
            if executed:
                tests.append((mutant.kernel and mutant.path not in kernels, seconds, test))
        total = sum(seconds for _, seconds, _ in tests)
        found += [(far, total, test, seconds) for far, seconds, test in sorted(tests)]
    found.sort(key=lambda test: test[:2])
    return {test: seconds for _, _, test, seconds in found}


def _recorded(file: Path, path: str) -> dict[str, Any]:
    """Tell the seconds of each test of a file, and the lines of each module that it executes.

    They are found anew after a change of the file, of tables beside it, or of a module that it
    executes.
    """
    record = RECORDS / f"{'.'.join(file.relative_to(HERE).parts)}.json"
    if record.exists():
        found = _read(record, record.stat().st_mtime)
        reached = any(path in lines for _, lines, _ in found.values())
        places = [file, *file.parent.glob("rules/*.py"), *[HERE / path] * reached]
        if max(place.stat().st_mtime for place in places) < record.stat().st_mtime:
            return found
    record.parent.mkdir(parents=True, exist_ok=True)
    _fork(lambda: _record(file, record))
    return _read(record, record.stat().st_mtime)


@functools.cache
def _read(record: Path, _: float) -> dict[str, Any]:
    return dict(json.loads(record.read_text()))


def _record(file: Path, record: Path) -> None:
    recorder = _Recorder()
    _pytest([str(file)], recorder)
    written = record.with_suffix(f".{os.getpid()}")
    written.write_text(recorder.result())
    written.replace(record)  # at once: other runs may read it


class _Recorder:
    """A plugin: it writes down how long tests take, and what they execute.

    Caches are emptied before each, or the first to need something would be the only one.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.kernels: dict[str, set[str]] = {}
        self.traced = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{HERE / p}/*" for p in LAYERS]
        )
        self.traced.start()

    def pytest_collection_finish(self) -> None:
        import optmatch.solvers.kernels.decorators as decorators

        kernels: Any = decorators.LazyKernel
        call = kernels.__call__

        def called(waiting: Any, *args: Any) -> Any:
            self.called.add(_path(waiting.__wrapped__.__code__.co_filename))
            return call(waiting, *args)

        kernels.__call__ = called

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        _clear_caches()
        self.called = self.kernels[item.nodeid] = set[str]()
        self.traced.switch_context(item.nodeid)
        begun, self.seconds[item.nodeid] = time.process_time(), 0.0
        try:
            return (yield)
        finally:
            if item.nodeid in self.seconds:
                self.seconds[item.nodeid] = time.process_time() - begun

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:  # without any change, so it tells nothing
            self.seconds.pop(report.nodeid, None)

    def result(self) -> str:
        """Write as JSON, for each test: seconds, lines of each module, modules of kernels."""
        self.traced.stop()
        data = self.traced.get_data()
        lines: dict[str, dict[str, list[int]]] = {test: {} for test in self.seconds}
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    if test in lines:
                        lines[test].setdefault(_path(file), []).append(line)
        return json.dumps(
            {
                test: (seconds, lines[test], sorted(self.kernels[test]))
                for test, seconds in self.seconds.items()
            }
        )


def _clear_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(CACHING):
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def _path(file: str) -> str:
    return str(Path(file).resolve().relative_to(HERE))


class _Limits:
    """A plugin: a test that needs much longer than it did hangs, and ends its process."""

    def __init__(self, usual_s: dict[str, float], more_s: float) -> None:
        self.usual_s, self.more_s = usual_s, more_s

    @contextmanager
    def within(self, test: str) -> Iterator[None]:
        """End the process where what is done here takes too long for this test."""
        signal.setitimer(signal.ITIMER_PROF, 5 * self.usual_s.get(test, 1) + self.more_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        with self.within(item.nodeid):
            return (yield)


def run(mutant: Mutant) -> str:
    """Run the tests of a change in a process of its own."""
    result = "executed by no test"
    for tests in tests_of(mutant):
        _load(["tests/conftest.py", *dict.fromkeys(test.partition("::")[0] for test in tests)])
        status = _fork(functools.partial(_test, mutant, tests))
        slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        if not slow and status:
            return "killed"
        result = "survived so far" if slow or "far" in result else "survived"
    return result


def _load(files: list[str]) -> None:
    """Import files once for all; what there is by then is no longer looked through as garbage."""
    known = len(sys.modules)
    for file in files:
        importlib.import_module(file.removesuffix(".py").replace("/", "."))
    if len(sys.modules) > known:
        gc.collect()
        FUNCTIONS.extend(f for f in gc.get_objects() if isinstance(f, FunctionType))
        gc.freeze()


def _fork(work: Callable[[], Any]) -> int:
    """Do something in a process of its own, which says nothing; give how that ended."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            result = work()
            os._exit(result if isinstance(result, int) else 0)
        os._exit(1)
    return os.waitpid(child, 0)[1]


def _test(mutant: Mutant, tests: dict[str, float]) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (ALL_SECONDS, ALL_SECONDS + 5))
    changed, read = HERE / mutant.path, importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        if Path(loader.path).resolve() != changed:
            return read(loader, name)
        return compile(mutant.apply(changed.read_bytes()), loader.path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
    _clear_caches()
    if mutant.kernel or not _replace(mutant):
        for name in [n for n in sys.modules if n.startswith(("optmatch", "tests."))]:
            del sys.modules[name]
    if mutant.kernel:
        from optmatch.solvers.kernels import compiler

        kept: Any = compiler._Cache
        kept.load_overload = kept.save_overload = lambda *_: None
    limits = _Limits(tests, 15 if mutant.kernel else 5)
    _judge(
        [test for test in tests if test.startswith(ROWS)], limits
    )  # what it raises ends the process as a failed test does
    tests = {test: seconds for test, seconds in tests.items() if not test.startswith(ROWS)}
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    runs = ([t for t in tests if t.startswith(f"{file}::")] for file in files)
    return next((code for run in runs if (code := _pytest(["-x", *run], limits))), 0)


def _judge(tests: list[str], limits: _Limits) -> None:
    """Judge tables of rows without pytest, which takes longer than most of them."""
    judging = importlib.import_module("tests.verify.test_rules")
    for test in tests:
        with limits.within(test):
            judging.test_one_rule_refuses_it(test.removeprefix(ROWS).removesuffix("]"))


def _replace(mutant: Mutant) -> bool:
    """Put changed code into the functions of a module; False if a function has another form."""
    text, place = (HERE / mutant.path).read_bytes(), (HERE / mutant.path).resolve()
    named = [f for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))]
    for file in [f for f in named if f.endswith(place.name) and Path(f).resolve() == place]:
        old, new = (
            compile(t, file, "exec", dont_inherit=True) for t in (text, mutant.apply(text))
        )
        found: dict[CodeType, CodeType] = {}
        waiting = [(old, new)]
        while waiting:
            old, new = waiting.pop()
            inside = [
                [c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)
            ]
            if len(inside[0]) != len(inside[1]) or old.co_freevars != new.co_freevars:
                return False
            waiting += zip(*inside, strict=True)
            found[old] = new
        for function in FUNCTIONS:
            if function.__code__.co_filename == file and function.__code__ in found:
                function.__code__ = found[function.__code__]
    return True


def _pytest(tests: list[str], plugin: object) -> int:
    options = ["-q", "--assert=plain", "-p", "no:xdist", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *tests], plugins=[plugin]))


def list_equivalents() -> dict[tuple[str, ...], str]:
    """Return the reasons of the changes that change nothing, by path, old line and new line."""
    found: dict[tuple[str, ...], str] = {}
    for file in sorted(EQUIVALENTS.glob("*.txt")):
        for block in file.read_text("utf-8").strip().split("\n\n"):
            place, old, new, *why = map(str.strip, block.splitlines())
            found[place, old, new] = " ".join(why)
    return found


def key_of(mutant: Mutant) -> tuple[str, ...]:
    """Return how a change is listed: its path, the old line and the new one."""
    place, old, new = map(str.strip, mutant.describe().splitlines())
    return place.partition(":")[0], old, new


def list_mutants(prefix: str = "") -> list[Mutant]:
    """List all changes of files that begin with a prefix; ``FILE:LINE`` is one line."""
    prefix, _, line = prefix.partition(":")
    files = [file for layer in LAYERS for file in (HERE / layer).rglob("*.py")]
    return [
        mutant
        for path in sorted(str(file.relative_to(HERE)) for file in files)
        if path.startswith(prefix)
        for mutant in mutants_of(path)
        if line in ("", str(mutant.line))
    ]


def main(number: str, seed: int = 0, prefix: str = "", tests: str = "") -> int:
    """Draw changes, run them, and print those that survived."""
    first, last = ["0", *number.split("-")][-2:]
    JUDGES.extend(HERE / place for place in tests.split(",") if place)
    for name in ("hypothesis", "numba", "ortools.sat.python.cp_model", "scipy.optimize"):
        importlib.import_module(name)  # once for all processes
    os.chdir(HERE)
    found, equivalents = list_mutants(prefix), list_equivalents()
    random.Random(seed).shuffle(found)
    results = Counter[str]()
    print(f"{len(found)} changes in {prefix or ', '.join(LAYERS)}; {number} of them, seed {seed}")
    for mutant in found[int(first) : int(last)]:
        result = "equivalent" if key_of(mutant) in equivalents else run(mutant)
        results[result] += 1
        if result not in ("killed", "equivalent"):
            print(f"{int(first) + results.total()}, {result}: {mutant.describe()}", flush=True)
    spent_s, judged = sum(os.times()[:4]), results.total() - results["equivalent"]
    print(", ".join(f"{count} {result}" for result, count in results.items()), f"{spent_s:.0f} s")
    print(f"{results['killed'] / max(judged, 1):.1%} of those that change something are killed")
    return 0


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    sys.exit(main(given[1], int(given.get(2, 0)), given.get(3, ""), given.get(4, "")))
