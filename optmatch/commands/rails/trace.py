"""`optmatch generate rail-trace`: a rail job from traces, lists of phases or recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    KINETO,
    LENIENT,
    RAIL_FIELDS,
    Parsed,
    field_options,
    given_traces,
    say_skipped,
    with_options,
    write_problem,
)
from optmatch.commands.shared.outcome import say
from optmatch.io.text import csv_text
from optmatch.problems import RailJob, RailNetwork, Workload
from optmatch.problems.rails.training.step import DIMENSIONS, Dimension


def _read_named(text: str) -> tuple[str, str]:
    """Read the name of a group and its dimension, ``NAME=pp``; else it is a `ValueError`."""
    name, equals, dimension = text.rpartition("=")
    if not equals or dimension not in DIMENSIONS:
        raise ValueError(text)
    return name, dimension


_NAMED = Parsed("name=dimension", _read_named, f"NAME=DIMENSION, one of {', '.join(DIMENSIONS)}")


@click.command("rail-trace")
@click.option(
    "--chakra",
    type=click.Path(),
    metavar="PREFIX",
    help="Chakra traces PREFIX.RANK.et of all ranks.",
)
@with_options(KINETO)
@click.option(
    "--list",
    "listed",
    is_flag=True,
    help="Write no job; list what the FILEs of --kineto hold, as CSV.",
)
@click.option(
    "--phases", type=click.Path(), help="Instead of traces, a list of phases: .csv or .json."
)
@click.option(
    "--recordings",
    type=click.Path(),
    metavar="PREFIX",
    help="Instead of traces, recordings of Opus: PREFIX_SERVER_rankGPU.txt.",
)
@click.option(
    "--message-bytes",
    type=click.IntRange(min=1),
    help="The size of a message in recordings, which tell none.  [default: 1]",
)
@click.option(
    "--collective-bytes",
    type=click.IntRange(min=1),
    help="The shard of any other operation in recordings, in bytes.  [default: 1]",
)
@click.option(
    "--groups", type=click.Path(), help="JSON with the ranks of each communicator group."
)
@LENIENT
@click.option(
    "--gpus-per-server",
    type=int,
    default=1,
    help="The GPUs of a server, which are also the number of rails.",
)
@click.option("--stride", type=int, default=1, help="How far apart the ranks of a server are.")
@click.option(
    "--dimension",
    "dimensions",
    type=_NAMED,
    multiple=True,
    help="The dimension of a group (dp, tp, pp, cp or ep), where its use does not tell.",
)
@click.option(
    "--leave-out",
    multiple=True,
    help="A group whose collectives take no time, such as the one of all ranks.",
)
@click.option(
    "--flops",
    "flops_per_s",
    type=float,
    help="Operations per second of a GPU, for computations without a duration.",
)
@with_options(field_options(RailNetwork, RAIL_FIELDS))
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
    # The step is read from one of four sources, the others are None: `chakra`, the name of traces;
    # with `kineto` the files `files` of PyTorch's profiler; `phases`, a list of phases; or
    # `recordings`, the beginning of their names; these lack sizes, which `message_bytes` and
    # `collective_bytes` state. `groups` is a file with the ranks of groups. Servers have
    # `gpus_per_server`, and `stride` is how far apart the ranks of a server are. `dimensions` has
    # pairs (group, kind of parallelism), and `leave_out` groups whose collectives take no time.
    # `output` is the problem file that is written. `options` are fields of the network of rails.
    from optmatch.io.rails.chakra import TraceOptions, read_groups, read_step
    from optmatch.io.rails.kineto import read_kineto_step
    from optmatch.io.rails.phases import read_phase_list, read_recorded_step

    # Exactly one source is there, and no options that are for another one.
    traces = given_traces(kineto, files)
    if [chakra, traces, phases, recordings].count(None) != 3:
        raise click.UsageError("either --chakra, --kineto, --phases or --recordings")
    if recordings is None and (message_bytes, collective_bytes) != (None, None):
        raise click.UsageError("--message-bytes and --collective-bytes are for --recordings")
    if listed and traces is None:
        raise click.UsageError("--list is for --kineto")
    if lenient and chakra is None and traces is None:
        raise click.UsageError("--lenient is for --chakra and --kineto")

    # What a trace does not tell is left out and listed, or an error.
    skipped: list[str] | None = [] if lenient else None
    ranks_of_group = {} if groups is None else read_groups(groups)
    if listed:
        _list_calls(traces or (), ranks_of_group, skipped)
        return

    # The step of all ranks, whatever its source.
    trace_options = TraceOptions(
        gpus_per_server=gpus_per_server,
        stride=stride,
        dimensions=dict(dimensions),
        leave_out=leave_out,
        flops_per_s=flops_per_s,
    )
    if chakra is not None:
        step = read_step(chakra, groups, trace_options, skipped=skipped)
    elif traces is not None:
        step = read_kineto_step(traces, ranks_of_group, trace_options, skipped=skipped)
    elif phases is not None:
        step = read_phase_list(phases, ranks_of_group, trace_options)
    else:
        step = read_recorded_step(
            str(recordings),
            ranks_of_group,
            trace_options,
            message_bytes=message_bytes or 1,
            collective_bytes=collective_bytes or 1,
        )

    # The problem: this step over rails.
    say_skipped(skipped)
    network = RailNetwork(gpus_per_server=gpus_per_server, **options)
    job = RailJob(network=network, workload=Workload(recorded=step))
    write_problem(job, output, force)


def _list_calls(
    files: Sequence[str],
    ranks_of_group: Mapping[str, Sequence[int]],
    skipped: list[str] | None,
) -> None:
    """Print the communication of traces as CSV, and say on stderr how long each rank did what.

    A rank is a GPU with its own trace. A row of the table is one call of a collective operation or
    of a message. What is left out of a trace is added to `skipped`; None refuses it.
    """
    from optmatch.io.rails.kineto import Listed, list_calls, measure, read_recording

    recordings = [read_recording(file, groups=ranks_of_group, skipped=skipped) for file in files]
    say_skipped(skipped)
    for recording in recordings:
        times = []
        for name, time_s in measure(recording)._asdict().items():
            times.append(f"{name.removesuffix('_s')} {time_s:.6g} s")
        say(f"{recording.path}: {', '.join(times)}")

    lines: list[Iterable[Any]] = [Listed._fields]
    for call in list_calls(recordings):
        columns: dict[str, Any] = call._asdict()
        columns["ranks"] = " ".join(map(str, call.ranks))
        lines.append(columns.values())
    click.echo(csv_text(lines), nl=False)
