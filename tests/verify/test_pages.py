"""The checker on the page about verification is short, and finds faults."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verification.md").read_text("utf-8")


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
