"""Pictures of collectives show what plans and studies say."""

from __future__ import annotations

from pathlib import Path

import pytest

import optmatch as om
from optmatch.plotting import delays_data, rounds_data, save_picture


def test_a_cell_tells_what_a_rank_receives() -> None:
    """Sums first, then copies; circuits change between them."""
    solution = om.solve(om.Collective("all-reduce", 4, 4.0), "halving-doubling", seed=0)
    data = rounds_data(solution.answer)
    assert data.does.tolist() == [[2, 2, 1, 1]] * 4
    assert data.changes.tolist() == [1, 3]
    with pytest.raises(om.InputError, match="the plan has no sends"):
        rounds_data(om.CollectivePlan())


def test_a_plan_is_drawn(tmp_path: Path) -> None:
    """As a file."""
    solution = om.solve(om.Collective("all-to-all", 5, 5.0), "bruck", seed=0)
    path = save_picture(solution, tmp_path / "rounds.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_study_without_rows_is_refused() -> None:
    """By name."""
    with pytest.raises(om.InputError, match="the study has no rows"):
        delays_data({"times": [], "winners": []})
