"""`optmatch generate rail-trace`: a rail job from traces, lists of phases or recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    KINETO,
    LENIENT,
    RAILS,
    field_options,
    given_traces,
    say_skipped,
    with_options,
    write_problem,
)
from optmatch.commands.shared.outcome import csv_text, say
from optmatch.problems import RailJob, RailNetwork, Workload
from optmatch.problems.rails.training.step import DIMENSIONS, Dimension


class _Named(click.ParamType):  # type: ignore[type-arg] # no generic class before click 8.3.2
    """The name of a group and its dimension, ``NAME=pp``."""

    name = "name=dimension"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Dimension]:
        """Parse the text."""
        name, equals, dimension = str(value).rpartition("=")
        if not equals or dimension not in DIMENSIONS:
            self.fail(f"{value!r}: NAME=DIMENSION, one of {', '.join(DIMENSIONS)}", param, ctx)
        return name, dimension


@click.command("rail-trace")
@click.option("--chakra", type=click.Path(), help="Traces PREFIX.RANK.et, by their prefix.")
@with_options(KINETO)
@click.option("--list", "listed", is_flag=True, help="Only list what FILEs hold, as CSV.")
@click.option("--phases", type=click.Path(), help="A list of phases instead: .csv or .json")
@click.option(
    "--recordings", type=click.Path(), help="Those of Opus instead: PREFIX_SERVER_rankGPU.txt"
)
@click.option(
    "--message-bytes", type=click.IntRange(min=1), help="Of a recorded message.  [default: 1]"
)
@click.option(
    "--collective-bytes",
    type=click.IntRange(min=1),
    help="Bytes of each other recorded operation, a shard.  [default: 1]",
)
@click.option("--groups", type=click.Path(), help="JSON with the ranks of each group.")
@LENIENT
@click.option("--gpus-per-server", type=int, default=1, help="The number of rails.")
@click.option("--stride", type=int, default=1, help="Between the ranks of a server.")
@click.option(
    "--dimension", "dimensions", type=_Named(), multiple=True, help="NAME=dp, tp, pp, cp or ep."
)
@click.option("--leave-out", multiple=True, help="A group whose collectives take no time.")
@click.option(
    "--flops", "flops_per_s", type=float, help="GPU speed, for computations without a duration."
)
@with_options(field_options(RailNetwork, RAILS))
@with_options(FILE_OPTIONS)
def rail_trace(
    chakra: str | None,
    kineto: bool,
    files: tuple[str, ...],
    listed: bool,
    phases: str | None,
    recordings: str | None,
    message_bytes: int | None,
    collective_bytes: int | None,
    groups: str | None,
    lenient: bool,
    gpus_per_server: int,
    stride: int,
    dimensions: tuple[tuple[str, Dimension], ...],
    leave_out: tuple[str, ...],
    flops_per_s: float | None,
    output: str,
    force: bool,
    **options: Any,
) -> None:
    """One recorded step of a training job.

    Chakra traces, those of PyTorch's profiler, a list of phases, or recordings.
    """
    from optmatch.io.rails.chakra.options import TraceOptions
    from optmatch.io.rails.chakra.step import read_step
    from optmatch.io.rails.groups import read_groups
    from optmatch.io.rails.kineto.job import read_kineto_step
    from optmatch.io.rails.phases import read_phase_list
    from optmatch.io.rails.recordings import read_recorded_step

    traces = given_traces(kineto, files)
    if sum(one is not None for one in (chakra, traces, phases, recordings)) != 1:
        raise click.UsageError("either --chakra, --kineto, --phases or --recordings")
    if recordings is None and (message_bytes, collective_bytes) != (None, None):
        raise click.UsageError("--message-bytes and --collective-bytes are for --recordings")
    if listed and traces is None:
        raise click.UsageError("--list is for --kineto")
    if lenient and chakra is None and traces is None:
        raise click.UsageError("--lenient is for --chakra and --kineto")
    skipped: list[str] | None = [] if lenient else None
    members = {} if groups is None else read_groups(groups)
    if listed:
        _list(traces or (), members, skipped)
        return
    told = TraceOptions(
        gpus_per_server=gpus_per_server,
        stride=stride,
        dimensions=dict(dimensions),
        leave_out=leave_out,
        flops_per_s=flops_per_s,
    )
    if chakra is not None:
        step = read_step(chakra, groups, told, skipped=skipped)
    elif traces is not None:
        step = read_kineto_step(traces, members, told, skipped=skipped)
    elif phases is not None:
        step = read_phase_list(phases, members, told)
    else:
        step = read_recorded_step(
            str(recordings),
            members,
            told,
            message_bytes=message_bytes or 1,
            collective_bytes=collective_bytes or 1,
        )
    say_skipped(skipped)
    network = RailNetwork(gpus_per_server=gpus_per_server, **options)
    job = RailJob(network=network, workload=Workload(recorded=step))
    write_problem(job, output, force)


def _list(
    files: Sequence[str], members: Mapping[str, Sequence[int]], skipped: list[str] | None
) -> None:
    """Print what was communicated as CSV, and say how long each rank did what."""
    from optmatch.io.rails.kineto.job import Listed, list_calls, measure
    from optmatch.io.rails.kineto.recordings import read_recording

    found = [read_recording(file, groups=members, skipped=skipped) for file in files]
    say_skipped(skipped)
    for one in found:
        times = measure(one)._asdict().items()
        shown = ", ".join(f"{name.removesuffix('_s')} {value:.6g} s" for name, value in times)
        say(f"{one.path}: {shown}")
    rows = [{**row._asdict(), "ranks": " ".join(map(str, row.ranks))} for row in list_calls(found)]
    click.echo(csv_text([Listed._fields, *(row.values() for row in rows)]), nl=False)
