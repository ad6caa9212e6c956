"""The scripts of `benchmarks/papers` print what `docs/papers.md` says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from tests.helpers.benchmarks import ROOT, load_benchmark
from tests.helpers.modes import nightly_only

PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8").splitlines()
lumion = load_benchmark("papers.lumion")
morphlux = load_benchmark("papers.morphlux")
opus = load_benchmark("papers.opus")
propius = load_benchmark("papers.propius")
racks = load_benchmark("papers.racks")
stragglar = load_benchmark("papers.stragglar")


def in_page(table: Any) -> list[bool]:
    """Tell of each row of a table whether it is a line of the page."""
    titles, _, *rows = table.lines()
    assert titles in PAGE
    return [row in PAGE for row in rows]


@pytest.mark.parametrize(
    "table",
    [
        lambda: next(propius.tables()),
        lambda: opus.cost_table(),
        lambda: morphlux.bandwidth_table(),
        lambda: stragglar.rounds_table(32),
    ],
)
def test_quick_tables_are_those_of_the_page(table: Any) -> None:
    assert all(in_page(table()))


def test_each_spare_of_the_page_is_a_row() -> None:
    assert in_page(lumion.spares_table()).count(True) == 4


@nightly_only
@pytest.mark.slow
def test_slow_tables_are_those_of_the_page() -> None:
    assert in_page(opus.step_table(["h200-dp2"])).count(True) == 9
    assert all(in_page(stragglar.speed_up_table(16)))
    assert all(in_page(lumion.affected_table()))
    assert all(in_page(next(load_benchmark("papers.pipswitch").tables())))


def test_spares_against_drawn_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact distribution and 40,000 racks drawn at random agree."""
    monkeypatch.setattr(lumion, "CHIP_FAILURES_PER_YEAR", 2.0)
    monkeypatch.setattr(lumion, "SERVER_FAILURES_PER_YEAR", 0.5)
    rng = np.random.default_rng(0)
    alone, whole = (r * 7 / 365.25 / (1 + r * 7 / 365.25) for r in (2.0, 0.5))
    broken = rng.random((40_000, 16)) < whole
    chips = (rng.random((40_000, 16, 4)) < alone) | broken[:, :, None]
    drawn = {"chip": chips.sum(axis=(1, 2)), "server": chips.any(axis=2).sum(axis=1)}
    for unit, down in drawn.items():
        probability = lumion.down_units(om.RackFabric(), unit)
        assert probability.sum() == pytest.approx(1)
        for count in range(6):
            assert probability[count] == pytest.approx((down == count).mean(), abs=0.01)


def test_each_system_of_the_page_has_a_script() -> None:
    scripts = {path.stem for path in Path(lumion.__file__).parent.glob("*.py")}
    named = {line.split("|")[3].strip(" `") for line in PAGE if "arxiv.org/abs" in line}
    assert named == scripts - {"figures", "racks"}
