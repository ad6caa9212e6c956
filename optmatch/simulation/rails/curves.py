"""Step time against reconfiguration delay: windows measured at one delay, all others predicted."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import decode, read_bytes
from optmatch.model import FormatError, InputError
from optmatch.problems import RailJob, RailNetwork, Workload
from optmatch.problems.rails.windows import PipelineWindows
from optmatch.simulation.rails.replay import RailPolicy, simulate_rails

Curves = dict[str, dict[tuple[str, float], float]]
"""By case: step time in seconds, by policy and delay in seconds."""

_MARGIN = 1e-9
_EXACT_S = 1e-9


def read_curves(path: str | os.PathLike[str]) -> Curves:
    """Read step times from a CSV file.

    Parameters
    ----------
    path
        Columns ``case, policy, delay_ms, step_ns``; lines with ``#`` in front are comments.

    Raises
    ------
    FormatError
        Naming file and line.
    """
    lines = decode(read_bytes(path), os.fspath(path)).splitlines()
    kept = [(k, line) for k, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    rows = csv.DictReader(line for _, line in kept)
    found: Curves = {}
    try:
        for row in rows:
            key = row["policy"], float(row["delay_ms"]) / 1e3
            found.setdefault(row["case"], {})[key] = float(row["step_ns"]) / 1e9
    except (KeyError, TypeError, ValueError, csv.Error) as exc:
        place = f"{path}:{kept[rows.line_num - 1][0]}"
        raise FormatError("case, policy, delay_ms and step_ns are expected", path=place) from exc
    return found


def windows_job(
    windows: PipelineWindows, rate_bytes_per_s: float, *, delay_s: float = 0.01
) -> RailJob:
    """Make the job of measured windows: each GPU a server of its own, with one port on one rail.

    Parameters
    ----------
    windows
        The windows.
    rate_bytes_per_s
        The rate of a port.
    delay_s
        The reconfiguration delay.
    """
    network = RailNetwork(gpus_per_server=1, port_bytes_per_s=rate_bytes_per_s, delay_s=delay_s)
    return RailJob(network=network, workload=Workload(recorded=windows.step(rate_bytes_per_s)))


def forward_s(step_s: float, compute_s: float, stages: int, message_s: float) -> float:
    """Tell how long one stage computes forward, from the step time with all links there.

    A third of what a stage computes is forward, and half of its scale-up communication. The step
    is the forward and backward passes of all stages, one after the other, and the messages.

    Parameters
    ----------
    step_s
        The step time.
    compute_s
        What one rank computes in it.
    stages
        Stages of the pipeline.
    message_s
        The time of one message between stages.

    Examples
    --------
    >>> forward_s(step_s=41.0, compute_s=6.0, stages=4, message_s=1 / 6)
    4.0
    """
    communication_s = (step_s - 2 * (stages - 1) * message_s) / stages - compute_s
    return compute_s / 3 + communication_s / 2


def fit_windows(
    start: PipelineWindows,
    measured: dict[tuple[str, float], float],
    delay_s: float,
    rate_bytes_per_s: float,
) -> PipelineWindows:
    """Find the windows for which the simulator gives the step times at one delay.

    The length of the backward pass follows from the step time without delay, the slack from the
    one on demand, and the time before the first exchange from the provisioned one. That the
    counts of exposed switches are right is no part of the fit: they are the simulator's.

    Parameters
    ----------
    start
        All that is known: degrees, sizes and the forward pass.
    measured
        Step times in seconds, by policy and delay; those at 0 and `delay_s` are used.
    delay_s
        The delay.
    rate_bytes_per_s
        The rate of a port.

    Raises
    ------
    InputError
        If no windows give these step times.
    """
    from scipy.optimize import brentq

    def solve(
        windows: PipelineWindows, name: str, policy: RailPolicy, delay: float, room_s: float
    ) -> PipelineWindows:
        """Solve for one window: the step time is monotone in it, and piecewise linear."""

        def change(value: float) -> PipelineWindows:
            changed: dict[str, Any] = {name: value}
            return replace(windows, **changed)

        def late_s(value: float) -> float:
            job = windows_job(change(value), rate_bytes_per_s, delay_s=delay)
            return simulate_rails(job, policy).step_s - measured[policy, delay]

        least = taken_s + windows.slack_s + windows.quiet_s if name == "backward_s" else 0.0
        low, high = least * (1 + _MARGIN), (least + room_s) * (1 - _MARGIN)
        if late_s(low) * late_s(high) > 0:
            raise InputError(f"{name}: no window of {low:g} to {high:g} s gives this step time")
        return change(brentq(late_s, low, high, xtol=_EXACT_S))

    taken_s = 2 * (start.replicas - 1) / start.replicas * start.gradient_bytes / rate_bytes_per_s
    found = replace(start, slack_s=0.0, quiet_s=0.0)
    for _ in range(3):  # each moves the others by less than the time of a message
        found = solve(found, "backward_s", "on-demand", 0.0, measured["on-demand", 0.0])
        room_s = found.backward_s - taken_s
        found = solve(found, "slack_s", "on-demand", delay_s, room_s - found.quiet_s)
        found = solve(found, "quiet_s", "provisioned", delay_s, room_s - found.slack_s)
    return found


def predict(
    windows: PipelineWindows,
    policy: RailPolicy,
    delays_s: Sequence[float],
    rate_bytes_per_s: float,
) -> NDArray[np.float64]:
    """Return the step time at each delay, in seconds."""
    job = windows_job(windows, rate_bytes_per_s)
    return np.array(
        [simulate_rails(job, policy, delay_s=delay).step_s for delay in delays_s], np.float64
    )
