"""Pictures of collectives agree with plans and studies."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.plotting import rounds_data, save_picture, viewer_page
from optmatch.plotting.collectives import page as page_of
from tests.helpers.command import call
from tests.plotting.test_every_kind import check_texts


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


def texts_of(figure: Any) -> list[str]:
    """Return what is written in the boxes of a picture."""
    return [text.get_text() for text in figure.axes[0].texts]


def test_islands_are_shown() -> None:
    """24 equal rows showed neither islands nor which data came over rails."""
    gather = om.Collective("all-gather", 64, 1e6, alpha_s=2.7e-6, delay_s=1e-5, island=8)
    solution = om.solve(gather, seed=0, time_limit_s=1)
    figure = solution.plot()
    check_texts(figure)
    (ax,) = figure.axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    islands = sorted({name.partition(",")[0] for name in names})
    assert len(names) == 24 and islands == ["island 0", "island 4", "island 7"], "whole ones"
    legend: Any = ax.get_legend()
    assert {"over rails, copies", "in the island, copies"} <= {
        text.get_text() for text in legend.get_texts()
    }

    # Bars are counted from the sends themselves: a rank, a round, and the link.
    shown = [k for k in range(64) if k // 8 in (0, 4, 7)]
    sends = solution.answer.sends
    boxes = {(d, r, s // 8 == d // 8) for r, s, d, *_ in sends.tolist() if d in shown}
    drawn = sum(
        len(bars.get_paths())
        for bars in ax.collections
        if not bars.get_label().startswith("circuits")
    )
    assert drawn == len(boxes)


def test_boxes_of_all_rows_have_texts_where_one_has() -> None:
    """Ranks of two digits were left out of boxes in which there was room for them."""
    figure = om.solve(om.Collective("all-reduce", 16, 1e6), "ring").plot()
    assert len(texts_of(figure)) == 16 * 30
    check_texts(figure)


def test_rounds_that_nobody_of_the_chosen_ranks_hears_are_not_empty() -> None:
    """Half of the picture of a broadcast was empty: its first rounds reach few ranks."""
    figure = om.solve(om.Collective("broadcast", 500, 1e6, delay_s=1e-5), "pipelined").plot()
    bars = figure.axes[0].collections[0]
    rounds = {int(path.vertices[:, 0].min()) for path in bars.get_paths()}
    assert len(rounds) == int(figure.axes[0].get_title().split()[0])
    check_texts(figure)


def test_bytes_are_said_once_and_rounds_are_numbered_in_round_steps() -> None:
    figure = om.solve(om.Collective("all-reduce", 64, 1e6), "ring").plot()
    (ax,) = figure.axes
    assert "round; at most 15.62 kB to a peer" in ax.get_xlabel()
    assert [tick.get_text() for tick in ax.get_xticklabels()][:3] == ["0", "10", "20"]


def test_a_collective_has_rounds_and_no_slots(tmp_path: Path) -> None:
    """Changes of circuits were called slots: a ring of seven rounds had one, of another time."""
    for fabric, n_rounds, n_epochs in ((om.IdealSwitch(8), 7, 1), (om.Benes(8), 3, 3)):
        gather = om.Collective("all-gather", 8, 8e5, alpha_s=2.7e-6, fabric=fabric, delay_s=1e-6)
        method = "ring" if n_epochs == 1 else "halving-doubling"
        solution = om.solve(gather, method, seed=0)
        data = page_of(solution)
        rows = dict(row[:2] for row in data["figures"])
        assert rows["Rounds"] == str(n_rounds) and not {"Slots", "Makespan"} & set(rows)
        assert len(data["names"]) == len(data["durations"]) == n_rounds
        assert len(data["matchings"]) == n_epochs == len(set(data["epoch_of_round"]))
        scripts = re.compile("<script.*?</script>|<style.*?</style>", re.DOTALL)
        page = scripts.sub("", viewer_page(solution))
        assert "Previous round" in page
        assert "slot" not in re.sub(r'(id|class)="[^"]*"', "", page).lower()

    # The command says as much; other kinds have their slots.
    file = tmp_path / "gather.json"
    om.save(gather, file)
    text = call("solve", str(file), "--seed", "0").stdout
    assert "rounds" in text and "slots" not in text


def test_late_ranks_are_named() -> None:
    late = om.Collective("all-reduce", 8, 1e9, delay_s=1e-3, late_s={"7": 0.02})
    for figure in (late.plot(), om.solve(late, seed=0, time_limit_s=1).plot()):
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert names == [*map(str, range(7)), "late: 7"]
        check_texts(figure)


def test_only_what_is_written_is_explained() -> None:
    """The numbers of narrow rounds had no room, but the axis said what they were."""
    split = om.Collective("all-reduce", 64, 1e8, planes=4, delay_s=1e-4, alpha_s=2.7e-6)
    figure = om.solve(split, "overlap", seed=0).plot()
    assert ("a number is" in figure.axes[0].get_xlabel()) == bool(texts_of(figure))
