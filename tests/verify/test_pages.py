"""The page about verification names functions that stand where it says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verification.md").read_text("utf-8")
CHAPTERS = {
    "All pairs, and one matching": "routing",
    "Demands": "demands",
    "Collectives": "collectives",
    "Rail jobs": "rails",
    "Reroutes": "reroutes",
    "Slices": "slices",
    "Port sharing": "sharing",
}


def list_names(files: list[Path]) -> set[str]:
    """List the functions, methods and classes of some modules, methods with their class."""
    names = set[str]()
    for file in files:
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                names |= {f"{node.name}.{method.name}" for method in methods}
    return names


@pytest.mark.parametrize("title", CHAPTERS)
def test_functions_of_a_chapter_are_there(title: str) -> None:
    text = PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    room = CHAPTERS[title]
    verify = ROOT / "optmatch" / "verify"
    files = [*(verify / room).glob("*.py"), verify / "light.py"]
    if room == "collectives":
        files += (ROOT / "optmatch" / "problems" / room).glob("*.py")
    if room in ("demands", "reroutes"):
        files += (verify / "routing").glob("*.py")
    called = set(re.findall(r"`(_?[a-z][a-z0-9_]*_[a-z0-9_]+|[A-Z][a-z]+\.[a-z_]+)`", text))
    assert len(called) > 4
    assert called <= list_names(files), sorted(called - list_names(files))


def test_the_checker_has_twenty_lines_and_finds_faults() -> None:
    """It refuses what the verifier refuses: cells that are free, and cells that are not there."""
    code = PAGE.rsplit("```python\n", 1)[1].split("```", 1)[0]
    function = code.split("\n\n\n")[1]
    assert len(function.splitlines()) <= 20
    names: dict[str, object] = {}
    exec(code, names)  # prints the empty list
    solution, check = names["solution"], names["check"]
    problem, plan = solution.problem, solution.schedule  # type: ignore[attr-defined]
    right = solution.objective  # type: ignore[attr-defined]
    assert check(problem, plan, right) == []  # type: ignore[operator]
    assert check(problem, plan, right + 1)  # type: ignore[operator]
    states = plan.cell_states.copy()
    slot, cell = (states >= 0).nonzero()
    states[slot[0], cell[0]] ^= 1
    changed = type(plan)(
        matchings=plan.matchings, durations_s=plan.durations_s, cell_states=states
    )
    assert check(problem, changed, right)  # type: ignore[operator]
