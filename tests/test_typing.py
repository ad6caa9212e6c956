"""Editors complete: Pyright, the checker of VS Code, accepts what users write, and knows types."""

import ast
import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import python
from tests.helpers.modes import nightly_only
from tests.test_docs import FRAGMENTS, PAGES, blocks

ROOT = Path(__file__).resolve().parent.parent
SITE = runpy.run_path(str(ROOT / "docs" / "site.py"))
PACKAGES = ["optmatch", *(f"optmatch.{room}" for room in SITE["ROOMS"])]
"""The packages that the reference documents, and whose names users import."""


def pyright(*words: str | Path, folder: Path) -> dict[str, Any]:
    """Run Pyright for a user whose `optmatch` is this checkout, and return its report."""
    environment = {"PYTHONPATH": str(ROOT), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    options = ("--outputjson", "--pythonpath", sys.executable)
    done = python("-m", "pyright", *options, *words, code=None, cwd=folder, **environment)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def documented_code() -> dict[str, str]:
    """Return all Python that users are shown, by a name for its place."""
    found = {"service": (ROOT / "docs" / "service.py").read_text("utf-8")}
    for page in PAGES:
        if page.name not in FRAGMENTS:
            stem = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            found |= {f"{stem}_{k}": text for k, text in enumerate(blocks(page, "python"))}
    return found


def notebooks_as_code() -> dict[str, str]:
    """Return the code of each notebook; it is written for one reading, and has no annotations."""
    found = {}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        lines = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        code = "\n".join(line for line in lines.splitlines() if not line.startswith("%"))
        found[f"notebook_{path.stem}".replace("-", "_")] = code
    return found


@nightly_only
@pytest.mark.slow
def test_pyright_accepts_what_users_are_shown(tmp_path: Path) -> None:
    """It finds nothing in pages, tutorials and typical calls, but a mistake beside them."""
    for name, code in documented_code().items():
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    typical = ROOT / "tests" / "helpers" / "typical.py"
    (tmp_path / "typical.py").write_text(typical.read_text("utf-8"), "utf-8")
    wrong = "import optmatch as om\nom.solve(om.AllToAll(om.HexMesh(3, 3))).schedule.slots\n"
    (tmp_path / "wrong.py").write_text(wrong, "utf-8")

    report = pyright(tmp_path, folder=tmp_path)

    assert report["summary"]["filesAnalyzed"] > 50
    errors = [found for found in report["generalDiagnostics"] if found["severity"] == "error"]
    messages = {Path(found["file"]).name: found["message"] for found in errors}
    assert messages.pop("wrong.py").startswith('Cannot access attribute "slots" for class')
    assert messages == {}


@nightly_only
@pytest.mark.slow
def test_the_type_of_every_documented_name_is_known(tmp_path: Path) -> None:
    """All attributes and arguments of documented names have types that no checker has to guess."""
    names = set[str]()
    definitions = set[str]()
    for package in PACKAGES:
        names |= {f"{package}.{name}" for name in importlib.import_module(package).__all__}
        definitions |= set(SITE["public_names"](package).values())
    inside = (*(f"{place}." for place in definitions), "optmatch.testing.")

    report = pyright("--verifytypes", "optmatch", "--ignoreexternal", folder=tmp_path)

    symbols = report["typeCompleteness"]["symbols"]
    assert len(symbols) > 5000
    unknown = [
        symbol["name"]
        for symbol in symbols
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
        if symbol["name"] in names | definitions or symbol["name"].startswith(inside)
    ]
    assert unknown == []


def test_pages_import_documented_packages_alone() -> None:
    """A reader finds each name that is imported in the reference."""
    wrong = []
    for place, code in (documented_code() | notebooks_as_code()).items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            inside = [name for name in modules if name.partition(".")[0] == "optmatch"]
            wrong += [f"{place}: {name}" for name in inside if name not in PACKAGES]
    assert wrong == []
