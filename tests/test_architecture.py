"""The rooms keep to their walls: imports and their time, and contents that no file may have."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import optmatch
from optmatch import kinds
from optmatch.problems import PROBLEMS
from tests.helpers.command import python
from tests.helpers.kinds import modules, name_kinds

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("numba", "scipy", "ortools", "matplotlib", "networkx", "click", "pandas")


def contracts() -> list[dict[str, Any]]:
    """Return the import contracts of the project."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def test_the_contracts_see_the_solvers() -> None:
    grimp = pytest.importorskip("grimp", reason="needs grimp: pip install 'optmatch[dev]'")
    graph = grimp.build_graph("optmatch", cache_dir=None)
    assert "optmatch.solvers.method" in graph.modules
    assert "optmatch.solvers.routing" in graph.find_modules_directly_imported_by("optmatch.kinds")


def name_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = ("optmatch", *parts) if parts[0] == "solvers" else parts
    return ".".join(parts).removesuffix(".__init__")


def imports_of(path: Path, names: set[str]) -> set[str]:
    """List what a file imports of the package, in functions and for type checkers too."""
    found = set()
    for node in ast.walk(modules()[path]):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {part if part in names else node.module for part in parts}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & names - {name_of(path)}


def test_imports_have_no_circles() -> None:
    names = {name_of(path): path for path in modules()}
    (rooms,) = [contract for contract in contracts() if contract["type"] == "layers"]
    allowed = [tuple(arrow.split(" -> ")) for arrow in rooms["ignore_imports"]]
    left = {name: imports_of(path, set(names)) for name, path in names.items()}
    left = {
        name: {there for there in found if (name, there) not in allowed}
        for name, found in left.items()
    }
    while True:
        used = set[str]().union(*left.values())
        kept = {name: found & left.keys() for name, found in left.items() if name in used}
        kept = {name: found for name, found in kept.items() if found}
        if kept == left:
            break
        left = kept
    assert left == {}


def test_a_class_name_has_one_meaning() -> None:
    """Below the commands, who reads a class name need not look where it was imported from."""
    layers = ("solvers/", "optmatch/model/", "optmatch/problems/", "optmatch/verify/")
    found: dict[str, list[str]] = {}
    for path, tree in modules().items():
        place = path.relative_to(ROOT).as_posix()
        for node in ast.walk(tree):
            if place.startswith(layers) and isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(place)
    assert {"Method", "Schedule"} <= found.keys()
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_every_kind_stands_in_its_row() -> None:
    rows = kinds.all_kinds()
    assert list(kinds.KIND_NAMES) == [kind.problem.kind for kind in rows]
    assert {kind.problem for kind in rows} == set(PROBLEMS.values())
    assert all(method.solves is kind.problem for kind in rows for method in kind.methods)


def test_few_modules_name_a_kind() -> None:
    for kind, paths in name_kinds().items():
        assert len(paths) <= 6, (kind, paths)


def test_a_kind_is_looked_up_without_the_others() -> None:
    code = (
        "import sys, optmatch as om;"
        "om.solve(om.Routing(om.IdealSwitch(2), [1, 0]), seed=0);"
        "print([m for m in sys.modules if '.rails' in m or '.slices' in m or '.demands' in m])"
    )
    assert python("-c", code).stdout.strip() == "[]"


def test_the_front_door_shows_its_names() -> None:
    """`dir` and tab completion list what `__all__` lists, before any name is used; all exist."""
    code = (
        "import optmatch as om; print(dir(om) == sorted(om.__all__),"
        " [name for name in om.__all__ if not hasattr(om, name)], *om.__all__)"
    )
    same, absent, *names = python("-c", code).stdout.split()
    assert (same, absent) == ("True", "[]")
    assert {"AllToAll", "HexMesh", "Router", "Solution", "solve", "verify"} <= set(names)


def test_every_room_is_a_layer() -> None:
    """A new room is placed in the contract before it can be used."""
    (layers,) = [contract["layers"] for contract in contracts() if contract["type"] == "layers"]
    placed = {name.strip() for layer in layers for name in layer.split("|")}
    rooms = {
        f"optmatch.{path.stem}"
        for path in (ROOT / "optmatch").iterdir()
        if path.stem != "__init__" and (path.is_dir() or path.suffix == ".py")
        if path.name != "__pycache__"
    }
    assert placed == rooms


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no rusage of children there")
@pytest.mark.parametrize(
    ("arguments", "most"),
    [(("-c", "import optmatch"), 28), (("-m", "optmatch", "--help"), 45)],
)
def test_front_doors_open_at_once(arguments: tuple[str, ...], most: float) -> None:
    """Processor time is at most so many times that of an interpreter that does nothing.

    It is 20 and 33 times that now, of which NumPy alone takes 15. The least of five runs counts.
    """
    import resource

    def work_s(*arguments: str) -> float:
        """Run Python, and return its seconds of the processor, compiled modules and one thread."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        settings = {"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, *arguments]
        subprocess.run(command, capture_output=True, check=True, env=os.environ | settings)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    empty_s = min(work_s("-c", "pass") for _ in range(5))
    assert min(work_s(*arguments) for _ in range(5)) < most * empty_s


@pytest.mark.parametrize("module", ["optmatch", "optmatch.verify", "optmatch.io"])
def test_checking_needs_no_solver(module: str) -> None:
    """The verifier and the files work where no solver is ever loaded, nor what solvers need."""
    code = (
        f"import sys, {module};"
        f"print(*sorted(set({HEAVY}) & set(sys.modules)),"
        " *[name for name in sys.modules if name.startswith('optmatch.solvers')])"
    )
    assert python("-c", code).stdout.strip() == ""


def test_a_module_says_what_it_is() -> None:
    assert len(modules()) > 300
    for path, tree in modules().items():
        doc = ast.get_docstring(tree)
        assert doc, path
        assert doc.splitlines()[0].endswith((".", ":")), path
        words = path.parent.name.rstrip("s")
        assert path.stem == "__init__" or not path.stem.startswith((words + "_", words + "s_"))


def test_tests_see_only_what_is_public() -> None:
    private = re.compile(r"^ *from [\w.]+ import (?:[\w, ]*|\([^)]*)\b_\w+", re.MULTILINE)
    assert private.search("from a.b import (\n    c,\n    _d,\n)")
    sources = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    assert [path for path, text in sources.items() if private.search(text)] == []


def test_smoke_tests_see_only_what_is_installed() -> None:
    """They are copied to where there is no checkout, beside an installed wheel."""
    named = {
        word
        for path in sorted((ROOT / "tests" / "smoke").glob("*.py"))
        for word in re.findall(r"^(?:from|import) (\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert "optmatch" in named
    assert not named & {"tests", "docs", "benchmarks", "conftest"}


def texts() -> list[Path]:
    """List the files that people read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout of git")
    kinds = {".py", ".md", ".toml", ".json", ".html", ".cff", ".yaml", ".ipynb"}
    paths = (ROOT / name for name in listed.stdout.splitlines())
    return [path for path in paths if path.suffix in kinds and path.is_file()]


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    # Put together here, or this file would be the first to be found.
    forbidden = re.compile(
        "|".join(("/ho" + "me/", "/ro" + "ot/", "/wo" + "rk/", "TO" + "DO", "FIX" + "ME"))
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


def test_the_version_is_written_once() -> None:
    version = optmatch.__version__
    assert metadata.version("optmatch") == version
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited
    assert cited.group(1) == version
