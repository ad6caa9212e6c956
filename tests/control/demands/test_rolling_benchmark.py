"""The benchmark of rolling schedules copes with runs of any length."""

import sys

import pytest

from tests.helpers.benchmarks import load_benchmark


def test_a_quarter_without_a_slot_has_no_backlog() -> None:
    stability = load_benchmark("rolling_stability")
    sample = stability.Sample
    samples = [sample(0.0, 2.0, 1.0), sample(1.0, 4.0, 3.0), sample(9.0, 1.0, 1.0)]
    assert stability.mean_of_quarters(samples, 12.0) == (3.5, 0.0, 0.0, 1.0)


def test_a_run_has_one_slot_at_least() -> None:
    stability = load_benchmark("rolling_stability")
    cell = stability.list_cells()[0]
    run, _flows, _end_s = stability.run_ours(
        cell.n_ports, stability.yield_flows(cell, 0), cpu_s=0.0
    )
    assert run.quarters_s[0] > 0


def test_one_seed_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stability = load_benchmark("rolling_stability")
    monkeypatch.setattr(sys, "argv", ["", "--flows-per-port", "1", "--seeds", "1"])
    with pytest.raises(SystemExit):
        stability.main()
    assert "--seeds: a confidence interval needs 2 or more" in capsys.readouterr().err


def test_each_number_of_flows_has_its_seeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stability = load_benchmark("rolling_stability")
    arguments = ["--flows-per-port", "2", "4", "--seeds", "3", "2", "--loads", "0.5"]
    monkeypatch.setattr(sys, "argv", ["", *arguments, "--ports", "4"])
    stability.main()
    _head, _line, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[3:5] for row in rows] == [[" 2 ", " 3 "], [" 4 ", " 2 "]]

    monkeypatch.setattr(sys, "argv", ["", "--flows-per-port", "2", "--seeds", "3", "2"])
    with pytest.raises(SystemExit):
        stability.main()
    assert "--seeds: 2 of 1 numbers" in capsys.readouterr().err
