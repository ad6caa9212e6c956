"""`optmatch generate rail-job`: a training job from its degrees, its model and its hardware."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.fields import RAILS, Row, field_options
from optmatch.commands.options import (
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    build_fabric,
    with_options,
    write_problem,
)
from optmatch.commands.rails.trace import rail_trace
from optmatch.fabrics import SWITCHES
from optmatch.problems import RailJob, TransformerModel

_FABRIC_NAMES = ("rows", "cols", "ports", "tx", "rx", "size")
_JOB: tuple[Row, ...] = (
    ("--gpus", "n_gpus", int, "GPUs of the job."),
    ("--gpus-per-server", "gpus_per_server", int, "GPUs of a server: the number of rails."),
    ("--dp", "dp", int, "Degree of data parallelism."),
    ("--tp", "tp", int, "Degree of tensor parallelism."),
    ("--pp", "pp", int, "Degree of pipeline parallelism."),
    ("--cp", "cp", int, "Degree of context parallelism."),
    ("--ep", "ep", int, "Degree of expert parallelism; divides --dp."),
    ("--collectives", "collectives", str, "Algorithms, as in dp=halving,cp=tree; else rings."),
    ("--zero-stage", "zero_stage", click.IntRange(0, 3), "What is sharded; 3 is FSDP."),
    (
        "--schedule",
        "schedule",
        click.Choice(["gpipe", "1f1b", "interleaved"]),
        "Order of micro-batches.",
    ),
    ("--virtual-stages", "virtual_stages", int, "Parts of the model at a rank, interleaved."),
    ("--order", "order", str, "Degrees as they count ranks, fastest first."),
    ("--placement", "placement", str, "Degrees as they fill servers, fastest first."),
    *RAILS,
    ("--batch", "batch", int, "Sequences of a step."),
    ("--micro-batch", "micro_batch", int, "Sequences of a micro-batch; -1: all in one."),
    ("--peak-flops", "peak_flops_per_s", float, "Operations per second of a GPU."),
    ("--efficiency", "efficiency", float, "The part of the peak that is reached."),
    ("--width", "width_bytes", float, "Bytes of an activation or weight."),
    ("--gradient-width", "gradient_width_bytes", float, "Bytes of a gradient."),
)
_MODEL: tuple[Row, ...] = (
    ("--layers", "layers", int, "Layers."),
    ("--hidden", "hidden", int, "Hidden units."),
    ("--heads", "heads", int, "Attention heads."),
    ("--sequence", "sequence", int, "Tokens of a sequence."),
    ("--vocabulary", "vocabulary", int, "Words."),
    ("--ffn", "ffn", int, "Hidden units of the feed-forward part."),
    ("--experts", "experts", int, "Experts of a layer."),
    ("--active-experts", "active_experts", int, "Experts that a token visits."),
    ("--ffn-matrices", "ffn_matrices", int, "Matrices of the feed-forward part."),
)


@click.command("rail-job")
@with_options(field_options(RailJob, _JOB))
@with_options(field_options(TransformerModel, _MODEL))
@click.option(
    "--fabric",
    "type_",
    type=click.Choice(list(SWITCHES)),
    help="The switch of a rail.  [default: an ideal one]",
)
@with_options(FABRIC_OPTIONS[1:])
@with_options(FILE_OPTIONS)
def rail_job(type_: str | None, output: str, force: bool, **options: Any) -> None:
    """One step of a training job, over rails that are optical switches."""
    given = {name: options.pop(name) for name in _FABRIC_NAMES}
    fabric = build_fabric(type_, given) if type_ else None
    model = TransformerModel(**{name: options.pop(name) for _, name, _, _ in _MODEL})
    for name in ("order", "placement"):
        options[name] = tuple(part.strip() for part in options[name].split(","))
    chosen = [part.partition("=") for part in options["collectives"].split(",") if part]
    options["collectives"] = {name.strip(): choice.strip() for name, _, choice in chosen}
    write_problem(RailJob(fabric=fabric, model=model, **options), output, force)


COMMANDS = (rail_job, rail_trace)
