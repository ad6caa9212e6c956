"""`optmatch simulate` of lists of flows: a rolling schedule serves them as they arrive."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.options import RATE
from optmatch.commands.shared.outcome import SOLVED, name_of, print_object, print_rows
from optmatch.model import InputError

if TYPE_CHECKING:
    from optmatch.control import FlowReplay

FLOW_OPTIONS = (
    click.option(
        "--rate",
        "rate_bytes_per_s",
        type=RATE,
        help="Lists of flows: bytes per second of a circuit, or as 100Gbit/s.  [default: 1]",
    ),
    click.option(
        "--aim",
        type=click.Choice(["wait", "completion"]),
        help="Lists of flows: short waits in the mean, or all that is known complete early."
        "  [default: wait]",
    ),
    click.option(
        "--planes", type=click.IntRange(min=1), help="Lists of flows: switches side by side."
    ),
)
"""Options of lists of flows alone."""

_TABLES = (".csv", ".tsv", ".txt")


def is_flow_file(file: str) -> bool:
    """Tell by its ending whether a file is a table, which is a list of flows here."""
    endings = [suffix.lower() for suffix in PurePath(file).suffixes]
    if endings[-1:] == [".gz"]:
        endings = endings[:-1]
    return endings[-1:] != [] and endings[-1] in _TABLES


def simulate_flow_file(
    file: str, options: dict[str, Any], *, each_flow: bool, as_json: bool
) -> int:
    """Serve the flows of a file by a rolling schedule, print the figures, return the exit code.

    The file is CSV of flows with their times, or a trace of coflow-benchmark; `options` are
    parameters of `RollingSchedule` that are set, of which ``delay_s`` has to be. With `each_flow`
    a line for each flow follows; with `as_json` all is one JSON object.
    """
    from optmatch.control import replay_flows
    from optmatch.io import read_flows

    if "delay_s" not in options:
        raise InputError("--delay: a list of flows needs the reconfiguration delay; 0 if none")
    flows = read_flows(file)
    replay = replay_flows(flows, **options)
    figures = _summarise(replay)
    if as_json:
        series = {
            "flow_completion_s": replay.completion_s.tolist(),
            "coflow_wait_s": replay.coflow_wait_s.tolist(),
        }
        print_object("simulation", {"file": file, **figures, **series})
        return SOLVED
    click.echo(f"{name_of(file)}: {len(flows.time_s)} flows")
    print_rows({name: value for name, value in figures.items() if name != "flows"})
    if not each_flow:
        return SOLVED

    # A line for each flow: its ports by name, its bytes, arrival and completion.
    names = flows.names or tuple(map(str, range(flows.n_ports)))
    for source, destination, size_bytes, arrival_s, completion_s in zip(
        flows.source.tolist(),
        flows.destination.tolist(),
        flows.size_bytes.tolist(),
        flows.time_s.tolist(),
        replay.completion_s.tolist(),
        strict=True,
    ):
        click.echo(
            f"  {names[source]} -> {names[destination]}: {size_bytes:.6g} bytes,"
            f" from {arrival_s:.6g} to {completion_s:.6g} s"
        )
    return SOLVED


def _summarise(replay: FlowReplay) -> dict[str, Any]:
    """Return the figures of a replay of flows by name, in the order in which they are printed.

    A coflow is a group of flows that count as done together. The wait of a flow or coflow is its
    time from arrival to completion; figures of weights, deadlines and coflows are there if the
    flows have them.
    """
    import numpy as np

    flows = replay.flows
    wait_s = replay.wait_s
    coflow_wait_s = replay.coflow_wait_s
    has_flows = np.isin(np.arange(len(coflow_wait_s)), flows.coflow)
    figures: dict[str, Any] = {
        "flows": len(wait_s),
        "bytes": float(flows.size_bytes.sum()),
        "completion_s": float(replay.completion_s.max(initial=0.0)),
        "mean_wait_s": float(wait_s.mean()) if len(wait_s) else 0.0,
        "p99_wait_s": float(np.quantile(wait_s, 0.99)) if len(wait_s) else 0.0,
        "max_wait_s": float(wait_s.max(initial=0.0)),
        "slots": len(replay.slots),
    }
    if flows.weight is not None:
        figures["weighted_wait_s"] = replay.figures["weighted_wait_s"]
    if flows.deadline_s is not None:
        figures["with_deadline"] = replay.figures["with_deadline"]
        figures["late"] = replay.figures["late"]

    # Coflows of one flow each would only repeat the figures of flows.
    if has_flows.sum() < len(wait_s):
        figures["coflows"] = int(has_flows.sum())
        figures["mean_coflow_wait_s"] = float(coflow_wait_s[has_flows].mean())
    return figures
