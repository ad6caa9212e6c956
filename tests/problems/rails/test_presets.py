"""Jobs of known models: their degrees, sizes, and refused options."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.io import loads
from optmatch.problems.rails.presets import PRESETS, list_inputs, make_job
from tests.helpers.command import call


@pytest.mark.parametrize("gpus", [1024, 2048])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fills_its_gpus(name: str, gpus: int) -> None:
    job = make_job(name, gpus)
    assert job.n_gpus == gpus
    assert {group.rail for group in job.groups()} <= set(range(-1, 8))
    assert PRESETS[name].source.startswith(("The ", "DeepSeek", "Sizes", "Language"))


def test_weights_are_as_many_as_published() -> None:
    for name, billions in (("llama3-405b", 405), ("gpt3-175b-fsdp", 175), ("mixtral-8x22b", 141)):
        model = PRESETS[name].model
        layer = (2 + 2 * model.shared_keys) * model.hidden**2
        layer += model.ffn_matrices * model.hidden * model.ffn * model.experts
        words = model.hidden * model.vocabulary * (1 if name.startswith("gpt3") else 2)
        assert model.layers * layer + words == pytest.approx(1e9 * billions, rel=0.02)


@pytest.mark.parametrize("name", PRESETS)
def test_every_input_says_where_it_is_from(name: str) -> None:
    """What differs from the defaults, and what is left at them; the page has the same table."""
    preset, inputs = PRESETS[name], list_inputs(name)
    plain = om.Parallelism()
    for field in fields(preset.parallelism):
        if getattr(preset.parallelism, field.name) != getattr(plain, field.name):
            assert field.name in inputs
    assert {"model", "batch", "micro_batch", "attended", "efficiency", "network"} <= set(inputs)
    assert set(inputs.values()) <= {"paper", "fitted", "chosen"}
    page = (Path(__file__).parents[3] / "docs" / "rails-figures.md").read_text()
    shown = {kind: [k for k, v in inputs.items() if v == kind] for kind in ("paper", "chosen")}
    cells = [", ".join(f"`{one}`" for one in ones) for ones in shown.values()]
    assert f"| `{name}` | {cells[0]} | none | {cells[1]} |" in page
    run_as = list_inputs(name, as_run=True)
    moved = [k for k in run_as if run_as[k] != inputs.get(k)]
    assert all(f"`{k}`" in page.split("### As they were run")[1] for k in moved)
    assert run_as["efficiency"] == "fitted"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_as_run_differs_in_what_it_says(name: str) -> None:
    """The plain preset stays as it was; what changes is what `list_inputs` adds, no more."""
    plain, job = make_job(name, 2048), make_job(name, 2048, as_run=True)
    assert not plain.parallelism.overlap
    assert plain.workload.efficiency == 0.5
    assert plain.workload.model == PRESETS[name].model
    changed = set()
    pairs: list[tuple[Any, Any]] = [(plain.parallelism, job.parallelism)]
    pairs += [(plain.network, job.network), (plain.workload, job.workload)]
    for one, two in [*pairs, (plain.workload.model, job.workload.model)]:
        changed |= {f.name for f in fields(one) if getattr(one, f.name) != getattr(two, f.name)}
    known, told = list_inputs(name), list_inputs(name, as_run=True)
    assert changed - {"model"} == {k for k in told if told[k] != known.get(k)}
    assert make_job(name, 2048, plain.network, as_run=True).network == plain.network


def run(line: str, code: int = 0) -> Any:
    """Run the command line."""
    return call("generate", "rail-job", *line.split(), code=code)


def test_the_command_starts_from_a_preset() -> None:
    done = run("--preset mixtral-8x22b --gpus 1024 --delay 0.5 --spanning rings --batch 2048")
    job, known = loads(done.stdout), make_job("mixtral-8x22b", 1024)
    assert isinstance(job, om.RailJob)
    assert job.parallelism == known.parallelism
    assert (job.network.delay_s, job.network.spanning, job.workload.batch) == (0.5, "rings", 2048)
    assert job.workload.model == known.workload.model


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--preset llama3-405b --gpus 3000", "gpus = 3000: llama3-405b needs a multiple of 2048"),
        ("--preset mixtral-8x22b --gpus 1000", "needs a multiple of 128 (dp 8 x tp 2 x pp 8)"),
        ("--preset llama3-405b --gpus 2048 --order tp-dp", "order = tp, dp: each of dp, tp, pp"),
        (
            "--preset llama3-405b --gpus 2048 --stage-layers 1,x",
            "'1,x': whole numbers, separated by commas",
        ),
        ("--preset mixtral-8x22b --gpus 1024 --experts 12", "ep = 8: does not divide the 12"),
        (
            "--gpus 8 --dp 8 --layers 80",
            "needed without --preset: --hidden, --heads, --sequence, --vocabulary, --ffn,"
            " --gpus-per-server",
        ),
        ("--gpus 8 --dp 8 --as-run", "--as-run: needs --preset"),
        ("--preset deepseek-v3 --gpus 1024 --as-run --schedule 1f1b", "overlap = True with"),
    ],
)
def test_what_does_not_fit_is_refused(line: str, message: str) -> None:
    done = run(line, code=2)
    assert message in done.stderr


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(om.InputError, match="preset = 'gpt5': one of llama3-405b, deepseek-v3"):
        make_job("gpt5", 1024)
