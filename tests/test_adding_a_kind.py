"""The page on new kinds: its changes, made in a copy of the package, give a kind that works."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optmatch.kinds import all_kinds
from optmatch.verify.report import Findings
from tests.helpers.command import python
from tests.helpers.lacking import PLACES, list_lacking

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "adding-a-kind.md").read_text("utf-8")
PROGRAM = """
import importlib.util, pytest
import numpy as np, optmatch as om
from optmatch.cli import main
from optmatch.kinds import kind_of
has_pictures = importlib.util.find_spec("matplotlib")
for line in (
    "generate single-slot --size 4 -o single.json",
    "solve single.json -o single.schedule.json",
    "verify single.schedule.json",
    "plot single.schedule.json -o single.svg",
):
    if has_pictures or not line.startswith("plot"):
        assert not main(line.split(), standalone_mode=False), line
from optmatch.problems import SingleSlot
problem = om.load("single.json")
assert type(problem) is SingleSlot
solution = om.load("single.schedule.json")
assert solution.problem == problem and om.verify(problem, solution).ok
best = min(
    problem.demand.sum() - sum(problem.demand[i, j] for i, j in enumerate(order))
    for order in __import__("itertools").permutations(range(4))
)
assert solution.objective == best
wrong = om.Schedule(matchings=[[0, 1, 2, 3], [1, 0, 3, 2]], durations_s=[1, 1])
assert not om.verify(problem, wrong).ok
columns = kind_of(problem).view().tabulate(solution)
assert sum(columns["served"]) == problem.demand.sum() - best
if importlib.util.find_spec("pandas"):
    assert solution.to_dataframe()["served"].tolist() == columns["served"].tolist()
if has_pictures:
    (axes,) = solution.plot().axes
    assert [bar.get_height() for bar in axes.patches] == columns["served"].tolist()
    assert "<iframe" in solution._repr_html_()
assert pytest.main(["-q", "-p", "no:cacheprovider", "test_contract.py"]) == 0
print("fine")
"""
CONTRACT = """
import numpy as np
from optmatch.fabrics import IdealSwitch
from optmatch.problems import SingleSlot
from optmatch.testing import SolverContract

class TestAssignment(SolverContract):
    method = "assignment"
    examples = 4
    problems = [
        SingleSlot(IdealSwitch(4), np.random.default_rng(seed).integers(0, 9, (4, 4)))
        for seed in range(4)
    ]
"""
"""The method of the page under the contract of all methods."""


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the blocks of the page with the file that each belongs to."""
    found = re.findall(rf"^```{language}\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [(name, text) for name, text in found]


def apply(text: str, change: str) -> str:
    """Apply a block of added, removed and unchanged lines, which stand in the file once."""
    lines = [line for line in change.splitlines() if line]
    before = "\n".join(line[1:] for line in lines if line[0] in " -")
    after = "\n".join(line[1:] for line in lines if line[0] in " +")
    squeezed = re.sub(r"\n\n+", "\n", text)
    assert squeezed.count(before) == 1, before
    return squeezed.replace(before, after)


@pytest.mark.slow
def test_the_page_adds_a_kind(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "optmatch", tmp_path / "optmatch", symlinks=True)
    shutil.copytree(ROOT / "solvers", tmp_path / "solvers")
    assert len(blocks("python")) == 6 and len(blocks("diff")) == 6
    for name, text in blocks("python"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if not (path.parent / "__init__.py").exists():
            (path.parent / "__init__.py").write_text('"""New."""\n')
        path.write_text(text)
    for name, change in blocks("diff"):
        path = tmp_path / name
        path.write_text(apply(path.read_text("utf-8"), change))
    (tmp_path / "test_contract.py").write_text(CONTRACT)
    done = python("-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.stdout.endswith("\nfine\n")


def test_an_answer_of_its_own_is_solved_verified_and_shown() -> None:
    """The verifier of the page accepts the answer of its method, and refuses another one."""
    (code,) = re.findall(r"^```python\n(# The parts .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    parts: dict[str, Any] = {"__name__": "monitoring"}
    exec(compile(code, "adding-a-kind.md", "exec", dont_inherit=True), parts)
    problem = parts["problem"]
    solution = parts["solve"](problem)
    assert (solution.answer.port, solution.objective) == (0, 0.0)

    for subject, is_right in ((solution, True), (parts["MonitoredPort"](3), False)):
        findings = Findings()
        parts["verify_monitoring"](problem, subject, findings)
        assert (findings.violations == []) == is_right
    assert findings.violations[0].rule == "the monitored port is one of the switch"
    assert [node[5] for node in parts["page"](solution)["nodes"]] == [1, 0, 0]


def test_no_kind_lacks_anything() -> None:
    for kind in all_kinds():
        assert list_lacking(kind) == [], kind.problem.kind


def test_a_new_kind_lacks_every_place() -> None:
    """A row alone, of a class whose name stands nowhere."""
    problem = type(
        "Unheard", (), {"kind": "unheard-of", "__module__": "optmatch.problems.unheard"}
    )
    method = SimpleNamespace(name="of-no-page")
    problem.answer_class = object  # type: ignore[attr-defined]
    view = SimpleNamespace(page=None)
    kind: Any = SimpleNamespace(problem=problem, methods=(method,), view=lambda: view)
    lacking = list_lacking(kind)
    assert len(lacking) == len(PLACES) + 1
    assert "a tutorial docs/tutorials/unheard-of.md, and its line in docs/tutorials.md" in lacking
