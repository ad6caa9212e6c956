"""Cost and power of networks: the published figures, to the digits, and the parts of them."""

import csv
import io
import json
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.plotting import costs_data, plot_costs
from optmatch.problems.costs import DESIGNS, PRICES, Design, compare_costs
from tests.helpers.command import call, refused

H200 = PRICES["h200"]


@pytest.mark.parametrize(
    ("n", "ports", "cost", "power", "ratios"),
    [
        (1024, [5120, 5060, 2048], ["8.384", "8.297", "1.965"], ["263.4", "260.4", "11.0"],
         ("4.22", "23.6")),
        (2048, [10000, 10240, 4096], ["16.42", "16.77", "3.93"], ["514.9", "526.7", "22.1"],
         ("4.27", "23.86")),
    ],
)  # fmt: skip
def test_the_published_table(
    n: int, ports: list[int], cost: list[str], power: list[str], ratios: tuple[str, str]
) -> None:
    (row,) = compare_costs([n], H200)
    assert [network.switch_ports + network.ocs_ports for network in row.networks] == ports
    for network, shown in zip(row.networks, cost, strict=True):
        assert f"{network.cost_usd / 1e6:.{len(shown.partition('.')[2])}f}" == shown
    assert [f"{network.power_w / 1e3:.1f}" for network in row.networks] == power
    assert f"{row.cost_ratio:.2f}" == ratios[0]
    assert f"{row.power_ratio:.{len(ratios[1]) - 3}f}" == ratios[1]


@given(st.sampled_from(sorted(PRICES)), st.integers(1, 700), st.sampled_from(DESIGNS))
def test_the_sum_of_its_parts(name: str, servers: int, design: Design) -> None:
    prices = PRICES[name]
    n = servers * prices.gpus_per_server
    (row,) = compare_costs([n], prices)
    network = row.networks[DESIGNS.index(design)]
    counts = (network.transceivers, network.switch_ports, network.ocs_ports)
    parts = (prices.transceiver, prices.switch_port, prices.ocs_port)
    cost = sum(count * part.usd for count, part in zip(counts, parts, strict=True))
    power = sum(count * part.watts for count, part in zip(counts, parts, strict=True))
    assert network.cost_usd == pytest.approx(cost)
    assert network.power_w == pytest.approx(power)
    assert network.switch_ports + network.ocs_ports >= n
    told = n + network.switch_ports * prices.switch_transceivers
    assert network.transceivers == told


def test_flaws() -> None:
    with pytest.raises(om.InputError, match=r"n_gpus = 1020: no multiple of 8 GPUs per server"):
        compare_costs([1020], H200)
    with pytest.raises(om.InputError, match=r"n_gpus = 0: must be >= 1"):
        compare_costs([0], H200)
    with pytest.raises(om.InputError, match=r"usd = -1: must be >= 0"):
        replace(H200.ocs_port, usd=-1.0)


def test_curves() -> None:
    rows = compare_costs([2048, 128, 1024], H200)
    data = costs_data(rows)
    assert data.n_gpus.tolist() == [128, 1024, 2048]
    assert data.cost_usd.shape == data.power_w.shape == (3, 3)
    assert data.cost_usd[1, 1] == rows[2].networks[1].cost_usd
    panels = plot_costs(rows).axes
    assert [len(ax.lines) for ax in panels] == [3, 3]
    assert [ax.get_ylabel() for ax in panels] == ["cost in million US dollars", "power in kW"]


def run(*options: str) -> str:
    """Run the command in this process and return what it prints."""
    return call("cost", *options).stdout


def test_the_command(tmp_path: Path) -> None:
    assert "4.22x cheaper, 23.59x less power" in run("--gpus", "1024")
    rows = list(csv.DictReader(io.StringIO(run("--gpus", "1024,2048", "--csv"))))
    assert [(row["n_gpus"], row["design"]) for row in rows][3] == ("2048", "fat-tree")
    told = json.loads(run("--gpus", "1024", "--json", "--hardware", "gb200"))
    assert told["prices"]["transceiver"]["watts"] == 16.0
    assert len(told["sizes"][0]["networks"]) == 3
    changed = json.loads(
        run("--gpus", "36", "--gpus-per-server", "4", "--transceiver-usd", "219", "--json",
            "--ocs-port-usd", "1", "--ocs-port-watts", "2")
    )  # fmt: skip
    photonic = changed["sizes"][0]["networks"][2]
    assert (photonic["cost_usd"], photonic["power_w"]) == (36 * 219 + 72, 36 * 10 + 144)
    run("-o", str(tmp_path / "cost.svg"))
    assert "</svg>" in (tmp_path / "cost.svg").read_text()


@pytest.mark.slow
def test_bad_input_of_the_command(tmp_path: Path) -> None:
    """Exit code 2 and one line; nothing is written, nothing replaced."""
    (tmp_path / "there.png").write_text("old")
    for options, complaint in (
        (["--gpus", "a"], "whole numbers, separated by commas"),
        (["--csv", "--json"], "either --csv or --json"),
        (["--ocs-port-usd", "-3"], "'--ocs-port-usd': -3.0"),
        (["-o", "there.png"], "is there already"),
        (["-o", "cost.html"], "its name has to end in .png, .svg, .pdf"),
    ):
        with chdir(tmp_path):
            done = refused(complaint, "cost", *options)
        assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["there.png"]
    assert (tmp_path / "there.png").read_text() == "old"
