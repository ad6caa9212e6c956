"""`optmatch generate rail-job`: a training job from its degrees, its model and its hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from optmatch.commands.shared.options import (
    FABRIC_NAMES,
    FILE_OPTIONS,
    NUMBERS,
    RAILS,
    Duration,
    Listed,
    Row,
    SectionedCommand,
    build_fabric,
    fabric_options,
    field_options,
    pair,
    take,
    with_options,
    write_problem,
)
from optmatch.model import InputError
from optmatch.problems import Parallelism, RailJob, RailNetwork, TransformerModel, Workload
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.presets import PRESETS, make_job
from optmatch.problems.rails.training.parallelism import DEGREES
from optmatch.problems.rails.training.workload import ACCELERATORS, describe_accelerator

T = TypeVar("T", Parallelism, RailNetwork, TransformerModel, Workload)

SKEW = Listed(float, "a number, or one for each expert, as in 3,1,1,1", single=True)
_SPLIT: tuple[Row, ...] = (
    ("--dp", "dp", "Degree of data parallelism."),
    ("--tp", "tp", "Degree of tensor parallelism."),
    ("--pp", "pp", "Degree of pipeline parallelism."),
    ("--cp", "cp", "Degree of context parallelism."),
    ("--ep", "ep", "Degree of expert parallelism; divides --dp x --cp."),
    ("--zero-stage", "zero_stage", "How much is sharded, 0 to 3; 3 is FSDP."),
    ("--shard", "shard", "Hybrid sharding: ranks that share one copy.  [default: all]"),
    ("--fsdp", "fsdp", "Streams of hybrid sharding: one, or one more for copies (fsdp2)."),
    ("--sequence-parallel", "sequence_parallel", "Whether tensor ranks share activations."),
    ("--schedule", "schedule", "Order of micro-batches."),
    ("--overlap", "overlap", "Whether passes of dualpipe side by side go on together."),
    ("--virtual-stages", "virtual_stages", "Parts of the model at a rank, interleaved."),
    (
        "--stage-layers",
        "stage_layers",
        "Layers of each part, as in 7,8,7.  [default: equal]",
        NUMBERS,
    ),
    ("--order", "order", "Degrees as they count ranks, fastest first.", str),
    ("--placement", "placement", "Degrees as they fill servers, fastest first.", str),
)
_NETWORK: tuple[Row, ...] = (
    ("--gpus-per-server", "gpus_per_server", "GPUs of a server: the number of rails."),
    *RAILS,
    ("--rail-latency", "rail_latency_s", "Seconds of a message on a rail.  [default: --latency]"),
    (
        "--change-rail",
        "change_rail_s",
        "Seconds to change rail in a server.  [default: data stay on theirs]",
    ),
    ("--spanning", "spanning", "How groups use several rails."),
)
_WORKLOAD: tuple[Row, ...] = (
    ("--batch", "batch", "Sequences of a step."),
    ("--micro-batch", "micro_batch", "Sequences of a micro-batch; -1: all in one."),
    ("--peak-flops", "peak_flops_per_s", "Operations per second of a GPU."),
    ("--efficiency", "efficiency", "The part of the peak that is reached."),
    ("--memory-rate", "memory_bytes_per_s", "Memory bytes per second.  [default: no bound]"),
    ("--optimizer-bytes", "optimizer_bytes", "Bytes the optimiser moves for a weight."),
    ("--bucket", "bucket_bytes", "Bytes of gradients that are exchanged at once."),
    ("--one-stream", "one_stream", "Whether a GPU communicates one thing at a time."),
    ("--skew", "skew", "Tokens of the busiest rank over the mean, or of each expert.", SKEW),
    ("--width", "width_bytes", "Bytes of an activation or weight."),
    ("--dispatch-width", "dispatch_width_bytes", "Bytes on the way to experts.  [default: width]"),
    ("--gradient-width", "gradient_width_bytes", "Bytes of a gradient."),
)
_MODEL: tuple[Row, ...] = (
    ("--layers", "layers", "Layers."),
    ("--hidden", "hidden", "Hidden units."),
    ("--heads", "heads", "Attention heads."),
    ("--sequence", "sequence", "Tokens of a sequence."),
    ("--vocabulary", "vocabulary", "Words."),
    ("--ffn", "ffn", "Hidden units of the feed-forward part."),
    ("--experts", "experts", "Experts of a layer."),
    ("--active-experts", "active_experts", "Experts that a token visits."),
    ("--expert-servers", "expert_servers", "Servers a token goes to.  [default: any]"),
    ("--kv-heads", "kv_heads", "Heads of keys and values.  [default: all]"),
    ("--ffn-matrices", "ffn_matrices", "Matrices of the feed-forward part."),
    ("--attended", "attended", "Tokens that one token attends to.  [default: the sequence]"),
)
_NEEDED = {
    field.name
    for cls in (RailNetwork, TransformerModel)
    for field in fields(cls)
    if field.default is MISSING
}


@click.command("rail-job", cls=SectionedCommand)
@click.option("--gpus", type=int, required=True, help="GPUs: the product of the degrees.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="A job of a known model, which the options that are given change.",
)
@click.option(
    "--as-run", is_flag=True, help="A preset as it was run: causal, overlap, efficiency."
)
@with_options(field_options(Parallelism, _SPLIT), "Parallelism")
@with_options(field_options(RailNetwork, _NETWORK, optional=True), "Network")
@with_options(field_options(Workload, _WORKLOAD), "Workload")
@with_options(field_options(TransformerModel, _MODEL, optional=True), "Model")
@click.option(
    "--accelerator", type=click.Choice(list(ACCELERATORS)), help="Peak, memory and efficiency."
)
@click.option(
    "--measured-step", type=Duration(), help="Measured time of a step, to fit the efficiency to."
)
@click.option(
    "--collectives",
    type=Listed(pair("=", str, str), "dp=tree"),
    help="Algorithms, as in dp=halving,cp=tree; else rings.",
)
@with_options(fabric_options(None, "The switch of a rail.  [default: an ideal one]"), "Switch")
@with_options(FILE_OPTIONS)
@click.pass_context
def rail_job(
    context: click.Context,
    /,
    gpus: int,
    preset: str | None,
    as_run: bool,
    accelerator: str | None,
    measured_step: float | None,
    collectives: list[tuple[str, str]] | None,
    type_: str | None,
    output: str,
    force: bool,
    **options: Any,
) -> None:
    """One step of a training job, over rails that are optical switches."""
    shape = take(options, FABRIC_NAMES)
    fabric = build_fabric(type_, shape) if type_ else None
    if as_run and not preset:
        raise InputError("--as-run: needs --preset")

    # The parts of the job, each made of its options, or that of the preset with some changes.
    preset_job = None
    if preset:
        preset_job = make_job(preset, gpus, as_run=as_run)
    parts = _JobParts(context, options)
    if preset_job is None:
        parallelism = parts.make(Parallelism, _SPLIT)
        _check_ranks(parallelism, gpus)
        model = parts.make(TransformerModel, _MODEL)
        workload = parts.make(Workload, _WORKLOAD, model=model)
        network = parts.make(RailNetwork, _NETWORK, fabric=fabric)
    else:
        parallelism = parts.change(preset_job.parallelism, _SPLIT)
        _check_ranks(parallelism, gpus)
        assert preset_job.workload.model is not None
        model = parts.change(preset_job.workload.model, _MODEL)
        workload = parts.change(preset_job.workload, _WORKLOAD, model=model)
        network = parts.change(preset_job.network, _NETWORK, fabric=fabric)

    # An accelerator states peak, memory and efficiency, which options go before.
    if accelerator:
        figures = describe_accelerator(accelerator)
        for name in list(figures):
            if parts.is_typed(name):
                del figures[name]
        workload = replace(workload, **figures)

    job = RailJob(
        parallelism=parallelism,
        network=network,
        workload=workload,
        collectives=dict(collectives or ()),  # type: ignore[arg-type]
    )
    if measured_step is not None:
        job = calibrate(job, measured_step)
    write_problem(job, output, force)


def _check_ranks(parallelism: Parallelism, n_gpus: int) -> None:
    """Refuse degrees of parallelism whose product is not the number of GPUs."""
    if parallelism.n_ranks != n_gpus:
        degrees = [f"{degree} {getattr(parallelism, degree)}" for degree in DEGREES]
        product = f"{' x '.join(degrees)} = {parallelism.n_ranks} ranks"
        raise InputError(f"{product}, but --gpus = {n_gpus}")


class _JobParts:
    """Makes the parts of a job from the options of the command.

    Parameters
    ----------
    context
        The context of the command, which knows the options that a user has typed.
    options
        The values of all options.
    """

    def __init__(self, context: click.Context, options: dict[str, Any]) -> None:
        self.context = context
        self.options = options

    def is_typed(self, name: str) -> bool:
        """Tell whether a user has set an option, by typing it or by a variable."""
        return self.context.get_parameter_source(name) is not ParameterSource.DEFAULT

    def make(self, cls: type[T], rows: Sequence[Row], **more: Any) -> T:
        """Make a part of the values of its options, and of `more` fields."""
        values = {}
        for flag, name, *_ in rows:
            values[name] = self.options[name]
            if values[name] is None and name in _NEEDED:
                raise InputError(f"{flag}: is needed without --preset")
        return cls(**values, **more)

    def change(self, part: T, rows: Sequence[Row], **more: Any) -> T:
        """Replace in a part the fields whose options a user has set, and `more` fields."""
        changes = dict(more)
        for _, name, *_ in rows:
            if self.is_typed(name):
                changes[name] = self.options[name]
        return replace(part, **changes)
