"""Figures in data files: read, checked by the classes of their records, and as they were."""

import json
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.commands.cost import PRICE_LISTS
from optmatch.io.problems import problem_digest
from optmatch.problems.costs import PRICES, compare_costs
from optmatch.problems.rails.accelerators import ACCELERATORS
from optmatch.problems.rails.presets import CALIBRATION, PRESETS, Preset, list_inputs, make_job
from optmatch.problems.rails.published import CASES, HARDWARE, published_job
from optmatch.problems.records import FOLDER, build_records, from_object, read_tables

KNOWN = json.loads((Path(__file__).parents[1] / "data" / "rail-figures.json").read_text("utf-8"))
"""Digests of jobs, from when their figures stood in Python."""


def test_jobs_of_presets_are_those_of_before() -> None:
    for name, preset in PRESETS.items():
        n_ranks = preset.parallelism.n_ranks
        sizes = [n_ranks, 2 * n_ranks] + [n_ranks // 2] * (preset.parallelism.cp > 1)
        for as_run in (False, True):
            for gpus in sizes:
                digest = problem_digest(make_job(name, gpus, as_run=as_run))
                assert digest.startswith(KNOWN[f"{name} {gpus} {as_run}"])


def test_published_jobs_are_those_of_before() -> None:
    for case in CASES:
        for electrical in (False, True):
            job = published_job(case, efficiency=0.9, electrical=electrical, delay_s=0.25)
            assert problem_digest(job).startswith(KNOWN[f"{case} {electrical}"])


def test_inputs_as_run_are_those_of_the_changes() -> None:
    for name, preset in PRESETS.items():
        added = {key for changes in preset.as_run.values() for key in changes}
        plain, as_run = list_inputs(name), list_inputs(name, as_run=True)
        assert {key for key in as_run if as_run[key] != plain.get(key)} == {
            *added, "attended", "efficiency",
        }  # fmt: skip
    assert CALIBRATION.efficiency == 0.544


def test_a_port_of_a_switch_has_its_part_of_the_switch() -> None:
    prices = PRICES["h200"]
    assert (prices.switch_port.usd, prices.switch_port.watts) == (37299 / 64, 2524 / 64)
    assert (prices.ocs_port.usd, prices.ocs_port.watts) == (520, 75 / 192)
    assert PRICES["gb200"].switch_port.usd == 149939 / 144
    (row,) = compare_costs([1024], prices)
    assert row.cost_ratio == pytest.approx(4.22, abs=0.005)


def test_the_command_knows_all_price_lists() -> None:
    assert list(PRICE_LISTS) == list(PRICES)


def test_every_record_has_a_source() -> None:
    records: list[Any] = [*PRESETS.values(), *ACCELERATORS.values(), CALIBRATION]
    sources = [record.source for record in records]
    sources += [hardware.source for hardware in HARDWARE.values()]
    for prices in PRICES.values():
        sources += [prices.transceiver.source, prices.switch_port.source, prices.ocs_port.source]
    assert all(len(source) > 8 for source in sources)
    assert {case.hardware for case in CASES.values()} == set(HARDWARE)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_file_says_what_it_is(path: Path) -> None:
    assert path.read_text("utf-8").startswith("# ")
    assert read_tables(path.name)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"batch": 1}, "small: key 'model' is missing"),
        ({"colour": 1}, "small/colour: unknown key 'colour': known are model, parallelism"),
        ({"model": {"layers": 0}}, "small/model: key 'hidden' is missing"),
        ({"parallelism": {"dp": 0}, "model": 3}, "small/model: 3: an object is expected"),
        ({"parallelism": {"dp": 0}}, "small/parallelism/dp: dp = 0"),
        ({"batch": "many"}, "batch = 'many': not a whole number"),
    ],
)
def test_a_record_is_checked_by_its_class(table: dict[str, Any], message: str) -> None:
    """What is wrong is named with its place in the file; one table has a batch alone."""
    whole = read_tables("presets.toml")["presets"]["mixtral-8x22b"]
    changed = {**whole, **table}
    if table.get("batch") == 1:
        changed = table
    with pytest.raises(om.InputError) as caught:
        from_object(Preset, changed, "/small")
    assert message in str(caught.value)


def test_records_cannot_be_changed() -> None:
    records: Any = build_records(Preset, read_tables("presets.toml")["presets"])
    with pytest.raises(TypeError):
        records["new"] = None


def test_text_that_is_no_toml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong.toml").write_text("a = \n")
    monkeypatch.setattr("optmatch.problems.records.FOLDER", tmp_path)
    with pytest.raises(om.InputError, match=r"wrong\.toml: .*line 1"):
        read_tables("wrong.toml")
