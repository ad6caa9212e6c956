"""The picture of shares: a bar for each job."""

from pathlib import Path

import pytest

import optmatch as om
from optmatch.plotting import plot_shares, shares_data
from tests.helpers.command import call
from tests.helpers.sharing import Jobs, Resources, Sharing


def solve() -> om.Solution:
    """Share four ports among three jobs that ask in another order than that of their numbers."""
    ports = Resources([[100.0, 400, 400, 800]], names=("rate",))
    jobs = Jobs([2, 3, 0], [[400.0, 100, 100]], arrival_s=[1.0, 0.0, 2.0])
    return om.solve(Sharing(ports, jobs, "lexicographic"), seed=0)


def test_bars_are_in_the_order_of_service() -> None:
    data = shares_data(solve())
    assert data.job.tolist() == [1, 0, 2]
    assert data.demand.tolist() == [3, 2, 0] and data.served.tolist() == [3, 1, 0]
    assert data.unused == 0
    axes = plot_shares(solve()).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "0", "2"]
    assert "4 of 5 wanted" in axes.get_title()


def test_the_command_draws_shares(tmp_path: Path) -> None:
    om.save(solve(), tmp_path / "shares.json")
    picture = tmp_path / "shares.svg"
    call("plot", tmp_path / "shares.json", "-o", picture)
    assert picture.read_text().startswith("<?xml")
    nobody = om.solve(Sharing(Resources([[1.0]]), Jobs([0], [[0.0]])), seed=0)
    with pytest.raises(om.InputError, match="no job wants anything"):
        shares_data(nobody)
