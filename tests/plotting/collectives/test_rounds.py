"""Pictures of collectives agree with plans and studies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.plotting import rounds_data, save_picture


def test_a_cell_tells_what_a_rank_receives() -> None:
    solution = om.solve(om.Collective("all-reduce", 4, 4.0), "halving-doubling", seed=0)
    data = rounds_data(solution.answer)
    assert data.does.tolist() == [[2, 2, 1, 1]] * 4
    assert data.changes.tolist() == [1, 3]
    with pytest.raises(om.InputError, match="the plan has no sends"):
        rounds_data(om.CollectivePlan())


def test_shares_of_planes_are_drawn_in_their_times(tmp_path: Path) -> None:
    steps = np.array([[1, 16e6], [2, 8e6], [1, 16e6]])
    times = om.Collective("all-reduce", 4, 32e6, rate_bytes_per_s=5e10, alpha_s=2e-5, delay_s=2e-4)
    problem = replace(times, planes=2, steps=steps)
    solution = om.solve(problem, seed=0)
    table = solution.to_dataframe()
    assert table.groupby("round").share_bytes.sum().tolist() == pytest.approx([16e6, 8e6, 16e6])
    axes = solution.plot().axes[0]
    corners = [np.asarray(path.vertices) for bars in axes.collections for path in bars.get_paths()]
    drawn = sorted((round(y.mean()), x.min(), x.max()) for x, y in (c[:4].T for c in corners))
    told = zip(table.plane, table.start_s, table.end_s, strict=True)
    span_s = table.end_s.max()
    order = np.lexsort((table["round"], table.plane))
    assert np.array(drawn) == pytest.approx(np.array(sorted(told)), abs=2e-6 * span_s)
    assert [text.get_text() for text in axes.texts] == list(map(str, table["round"].iloc[order]))
    assert save_picture(solution, tmp_path / "planes.svg").stat().st_size > 1000
