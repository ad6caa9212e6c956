"""When new circuits pay: thresholds that can be computed by hand."""

from pathlib import Path

import pytest

import optmatch as om
from optmatch.studies.collectives import (
    break_even_delay,
    late_speed_up,
    study_collectives,
)
from tests.helpers.command import call


def test_a_gather_pays_for_new_circuits_up_to_a_delay_that_size_does_not_matter_for() -> None:
    for size in (64.0, 6.4e6):
        problem = om.Collective("all-gather", 64, size, alpha_s=2.7e-6)
        found = break_even_delay(problem, "mixed-radix")
        assert found == pytest.approx(2.7e-6 * (63 - 14), rel=2e-4)


def test_new_circuits_that_never_pay_break_even_at_nothing() -> None:
    problem = om.Collective("all-gather", 3, 3e3, alpha_s=1e-6)
    assert break_even_delay(problem, "mixed-radix") == 0.0


LATE = {"alpha_s": 3e-6, "rate_bytes_per_s": 450 * 2.0**30}
"""The costs of the simulation of StragglAR (arXiv:2505.23523), with 1 GiB."""


@pytest.mark.parametrize(
    ("n", "speed_up", "delay_us"),
    [(4, 1.127, 125.5), (8, 1.363, 130.8), (16, 1.565, 90.4), (32, 1.718, 55.2)],
)
def test_the_published_gains_around_a_late_rank_come_out(
    n: int, speed_up: float, delay_us: float
) -> None:
    problem = om.Collective("all-reduce", n, 2.0**30, **LATE)  # type: ignore[arg-type]
    assert late_speed_up(problem, n - 1) == pytest.approx(speed_up, abs=5e-4)
    if n <= 8:  # found by halving, which takes a while
        late = om.Collective("all-reduce", n, 2.0**30, late_s={n - 1: 1e4}, **LATE)  # type: ignore[arg-type, dict-item]
        assert break_even_delay(late, "stragglar") * 1e6 == pytest.approx(delay_us, abs=0.06)


def test_each_size_has_a_winner_of_its_own() -> None:
    problem = om.Collective("all-gather", 8, 8e5, alpha_s=1e-6)
    names = ["ring", "bruck"]
    alone = study_collectives(problem, delays_s=[1e-6], sizes_bytes=[8e5], methods=names)
    among = study_collectives(problem, delays_s=[1e-6], sizes_bytes=[8e3, 8e5], methods=names)
    assert among.tables["winners"][1:] == alone.tables["winners"]


def test_the_command_writes_tables_and_a_picture(tmp_path: Path) -> None:
    path, picture = tmp_path / "gather.json", tmp_path / "delays.svg"
    om.save(om.Collective("all-gather", 8, 8e5, alpha_s=1e-6), path)
    done = call(
        "study", "collectives", path, "--delays", "1e-7,1e-3", "--sizes", "8e5,8e6",
        "--method", "ring", "--method", "mixed-radix", "-o", picture,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "break-even" in done.stdout
    assert picture.read_text().startswith("<?xml")
    wrong = call("study", "collectives", path, "--delays", "soon")
    assert (wrong.exit_code, "'soon': times" in wrong.stderr) == (2, True)
    wrong = call("study", "collectives", path, "--method", "swung")
    assert (wrong.exit_code, "these fit: ilp, rewire" in wrong.stderr) == (2, True)
