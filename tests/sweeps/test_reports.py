"""Reports of sweeps: the grid of sizes, gaps with their unit, and pages that fit a phone."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from optmatch.commands.shared.outcome import print_table
from optmatch.sweeps.reports import csv_table, html_page, make_report
from optmatch.sweeps.store import Row
from tests.helpers.browsers import open_html
from tests.plotting.conftest import browser

__all__ = ["browser"]  # a fixture


def row(name: str, method: str, gap: float, seed: int = 0) -> Row:
    """Return a row of a sweep with a gap."""
    return Row(
        key=f"{name} {method} {seed}", name=name, kind="demand", problem_sha256=name,
        method=method, seed=seed, options="{}", version="1", status="feasible",
        objective=1.0, lower_bound=1.0 - gap, gap=gap, time_s=0.1,
    )  # fmt: skip


def rows() -> list[Row]:
    """Return a sweep over three sizes, two draws and two methods."""
    found = []
    for size in (8, 16, 32):
        for draw in (0, 1):
            name = f"solstice-v2-{size}-{draw}"
            found.append(row(name, "best", 0.01 * size / 8))
            found.append(row(name, "solstice", 0.02 * size / 8 + 0.01 * draw))
    return found


def test_names_that_differ_in_numbers_are_a_grid() -> None:
    """Each number that differs has a table; one that all names have stays in the name."""
    (kind,) = make_report(rows()).kinds
    grid, draws = kind.grids
    assert draws.place == 3
    assert [line["solstice"] for line in draws.table()] == ["4.67 %", "5.67 %"]
    assert grid.family == "solstice-v2-*-*"
    assert grid.place == 2
    table = grid.table()
    assert [line["number"] for line in table] == ["8", "16", "32"]
    assert [line["tasks"] for line in table] == [4, 4, 4]
    assert [line["best"] for line in table] == ["1 %", "2 %", "4 %"]
    assert [line["solstice"] for line in table] == ["2.5 %", "4.5 %", "8.5 %"]


def test_parameters_that_vary_are_columns() -> None:
    """Tasks of `vary` are named by fields and values, some of them with exponents."""
    found = [
        row(f"delay_s={delay}, planes={planes}", "best", gap)
        for delay, planes, gap in (("1e-06", 1, 0.1), ("2e-05", 1, 0.2), ("1e-06", 2, 0.3))
    ]
    (kind,) = make_report(found).kinds
    assert [grid.title for grid in kind.grids] == ["delay_s", "planes"]
    delays, planes = (grid.table() for grid in kind.grids)
    assert [(line["delay"], line["best"]) for line in delays] == [
        ("1 µs", "20 %"),
        ("20 µs", "20 %"),
    ]
    assert [(line["planes"], line["tasks"]) for line in planes] == [("1", 2), ("2", 1)]
    assert "mean gap by delay_s" in html_page(make_report(found), "a variation")


def test_an_all_to_all_of_fewer_slots_is_the_better_one() -> None:
    """Whatever its objective is; of equally many slots the objective decides."""
    found = [
        replace(row("mesh", method, 0.0), objective=objective, slots=slots)
        for method, objective, slots in (("many", 5.8, 10), ("few", 6.7, 9), ("worse", 9.0, 9))
    ]
    (kind,) = make_report(found).kinds
    assert {line["method"]: line["rank"] for line in kind.table} == {
        "few": 1.0,
        "worse": 2.0,
        "many": 3.0,
    }
    assert kind.quality["few"] == [1.0] and kind.time["many"] == [math.inf]
    assert b",10," in csv_table(found)


def test_means_of_different_tasks_say_so() -> None:
    """A sweep that was cut off: one method has run on less than the other."""
    (whole,) = make_report(rows()).kinds
    assert whole.note == ""
    cut = [*rows()[:-1], row("other", "best", 0.5, seed=3)]
    (kind,) = make_report(cut).kinds
    assert kind.note.startswith("only some methods have run on 2 of the problems and seeds")
    assert kind.note in html_page(make_report(cut), "cut off")


def test_names_without_a_pattern_are_no_grid() -> None:
    (kind,) = make_report([row("a", "best", 0.1), row("b", "best", 0.2)]).kinds
    assert kind.grids == []


def test_the_page_has_titles_and_units_and_fits_a_phone(browser: Any, tmp_path: Path) -> None:
    """The page is no wider than 390 pixels; letters of charts are eight points or more there."""
    page_text = html_page(make_report(rows()), "a sweep")
    for words in ("mean gap", "2.33 %", "100 ms", "Gap against size", "% of the tasks"):
        assert words in page_text
    page, _ = open_html(browser, tmp_path, page_text, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    sizes = page.evaluate(
        """[...document.querySelectorAll('svg text')].map(
          (node) => parseFloat(getComputedStyle(node).fontSize) * node.getScreenCTM().d)"""
    )
    assert len(sizes) > 20
    upright = [abs(size) for size in sizes if abs(size) > 1]  # turned ones have d = 0
    assert min(upright) >= 10.6
    charts = page.locator("svg")
    assert charts.count() == 4
    page.close()


def test_tables_have_colours_where_a_terminal_has_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The row of titles is bold, and words such as failed are coloured; the columns stay."""
    lines = [["task", "status"], ["a", "optimal"], ["b", "failed"]]
    with click.Context(click.Command("x"), color=True):
        print_table(lines)
    painted = capsys.readouterr().out
    assert "\x1b[1m" in painted and "\x1b[32m" in painted and "\x1b[31m" in painted
    with click.Context(click.Command("x"), color=False):
        print_table(lines)
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d*m", "", painted) == plain
