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
    RAIL_FIELDS,
    Duration,
    FieldOption,
    SectionedCommand,
    build_fabric,
    fabric_options,
    field_options,
    flag_of_field,
    listed,
    pair,
    take,
    with_options,
    write_problem,
)
from optmatch.model import InputError
from optmatch.problems import Parallelism, RailJob, RailNetwork, TransformerModel, Workload
from optmatch.problems.rails.accelerators import ACCELERATORS, describe_accelerator
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.presets import PRESETS, make_job
from optmatch.problems.rails.training.parallelism import DEGREES

T = TypeVar("T", Parallelism, RailNetwork, TransformerModel, Workload)

_SKEW = listed(float, "a number, or one for each expert, as in 3,1,1,1", single=True)
_SPLIT = (
    *("dp", "tp", "pp", "cp", "ep", "zero_stage", "shard", "fsdp", "sequence_parallel"),
    *("schedule", "overlap", "virtual_stages"),
    FieldOption("stage_layers", type=NUMBERS),
    FieldOption("order", type=str),
    FieldOption("placement", type=str),
)
_NETWORK = ("gpus_per_server", *RAIL_FIELDS, "rail_latency_s", "change_rail_s", "spanning")
_WORKLOAD = (
    *(
        "batch",
        FieldOption("micro_batch", default=1),
        "peak_flops_per_s",
        "efficiency",
        "memory_bytes_per_s",
    ),
    FieldOption("optimizer_bytes", "--optimizer-bytes"),
    *("bucket_bytes", "one_stream"),
    FieldOption("skew", type=_SKEW),
    *("width_bytes", "dispatch_width_bytes", "gradient_width_bytes"),
)
_MODEL = (
    *("layers", "hidden", "heads", "sequence", "vocabulary", "ffn", "experts", "active_experts"),
    *("expert_servers", "kv_heads", "ffn_matrices", "attended"),
)
_NEEDED = [
    field.name
    for cls in (TransformerModel, RailNetwork)
    for field in fields(cls)
    if field.default is MISSING
]
"""What only a preset could replace."""


@click.command("rail-job", cls=SectionedCommand)
@click.option(
    "--gpus", type=int, required=True, help="The GPUs of the job: the product of the degrees."
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="A job of a known model, which the options that are given change; any other model has"
    " --layers, --hidden, --heads, --ffn, --vocabulary and --sequence.",
)
@click.option(
    "--as-run",
    is_flag=True,
    help="Take --preset as it was run: causal attention, overlap, and fitted efficiency.",
)
@with_options(field_options(Parallelism, _SPLIT), "Parallelism")
@with_options(field_options(TransformerModel, _MODEL, optional=True), "Model")
@with_options(field_options(Workload, _WORKLOAD), "Workload")
@with_options(field_options(RailNetwork, _NETWORK, optional=True), "Network")
@click.option(
    "--accelerator",
    type=click.Choice(list(ACCELERATORS)),
    help="A known GPU, which sets --peak-flops, --memory-rate and --efficiency.",
)
@click.option(
    "--measured-step",
    type=Duration(),
    help="Measured time of a step without switching, to which the efficiency is fitted.",
)
@click.option(
    "--collectives",
    type=listed(pair("=", str, str), "dp=tree"),
    help="How collectives of a dimension are done on rails, as dp=halving,cp=tree: ring,"
    " halving or tree.  [default: ring]",
)
@with_options(fabric_options(None, "The switch of a rail.  [default: an ideal one]"))
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
    """One step of a training job, over rails that are optical switches.

    Begin with --preset, or with --gpus-per-server, the degrees of parallelism and the sizes of the
    model; all else has a default. The degree --dp follows from --gpus and the other degrees.
    """
    # `gpus` is the number of all GPUs, `preset` the name of a known job and `accelerator` that of
    # a GPU, None for none; `as_run` takes the preset with the settings of its published run.
    # `measured_step` is the measured time of a step in seconds, to which computations are scaled.
    # `collectives` has pairs (dimension, algorithm). `type_` is the type of the fabric of each
    # rail, and `output` the problem file. `options` are fields of the parts of the job, by name.
    shape = take(options, FABRIC_NAMES)
    fabric = build_fabric(type_, shape) if type_ else None
    if as_run and not preset:
        raise InputError("--as-run: needs --preset")
    missing = [flag_of_field(name) for name in _NEEDED if options[name] is None]
    if missing and not preset:
        raise InputError(f"needed without --preset: {', '.join(missing)}")

    # The parts of the job, each made of its options, or that of the preset with those typed.
    parts = _JobParts(context, options)
    if preset:
        # Degrees that are typed go before those of the preset, of which one replica is taken.
        n_preset_gpus = gpus
        if any(parts.is_typed(degree) for degree in DEGREES):
            n_preset_gpus = PRESETS[preset].parallelism.n_ranks
        preset_job = make_job(preset, n_preset_gpus, as_run=as_run)
        degrees = preset_job.parallelism
        if parts.is_typed("pp"):
            degrees = replace(degrees, stage_layers=())
        parts.of_preset = {
            Parallelism: degrees,
            TransformerModel: preset_job.workload.model,
            Workload: preset_job.workload,
            RailNetwork: preset_job.network,
        }
    parallelism = _fit_replicas(parts.make(Parallelism, _SPLIT), gpus, parts)
    load: dict[str, Any] = {"model": parts.make(TransformerModel, _MODEL)}
    if preset:
        load["batch"] = PRESETS[preset].batch * parallelism.dp
    workload = parts.make(Workload, _WORKLOAD, **load)
    network = parts.make(RailNetwork, _NETWORK, fabric=fabric)

    # An accelerator states peak, memory and efficiency, which options go before.
    if accelerator:
        figures: dict[str, Any] = dict(describe_accelerator(accelerator))
        for name in list(figures):
            if parts.is_typed(name):
                del figures[name]
        workload = replace(workload, **figures)

    # The job of these parts, made as slow as the measured one.
    job = RailJob(
        parallelism=parallelism,
        network=network,
        workload=workload,
        collectives=dict(collectives or ()),  # type: ignore[arg-type]
    )
    if measured_step is not None:
        job = calibrate(job, measured_step)
    write_problem(job, output, force)


def _fit_replicas(parallelism: Parallelism, n_gpus: int, parts: _JobParts) -> Parallelism:
    """Return degrees whose product is the number of GPUs; ``dp`` follows if nobody states it."""
    n_ranks_of_replica = parallelism.n_ranks // parallelism.dp
    if not parts.is_typed("dp") and n_gpus % n_ranks_of_replica == 0:
        parallelism = replace(parallelism, dp=n_gpus // n_ranks_of_replica)
    if parallelism.n_ranks != n_gpus:
        degrees = [f"{degree} {getattr(parallelism, degree)}" for degree in DEGREES]
        product = f"{' x '.join(degrees)} = {parallelism.n_ranks} ranks"
        raise InputError(f"{product}, but --gpus = {n_gpus}")
    return parallelism


class _JobParts:
    """Makes the parts of a job from the values of all options of the command.

    The context of the command knows which options a user has typed; ``of_preset[cls]`` is the part
    of a class that a preset has.
    """

    def __init__(self, context: click.Context, options: dict[str, Any]) -> None:
        self.context = context
        self.options = options
        self.of_preset: dict[type, Any] = {}

    def is_typed(self, name: str) -> bool:
        """Tell whether a user has set an option, by typing it or by a variable."""
        return self.context.get_parameter_source(name) is not ParameterSource.DEFAULT

    def make(self, cls: type[T], rows: Sequence[str | FieldOption], **values: Any) -> T:
        """Make a part of a job from `values` of some fields, and from its options.

        Of a part that a preset has, only the options count that a user has set.
        """
        part: T | None = self.of_preset.get(cls)
        for row in rows:
            name = row if isinstance(row, str) else row.field
            if part is None or self.is_typed(name):
                values[name] = self.options[name]
        return cls(**values) if part is None else replace(part, **values)
