"""How long a recovery takes, stage by stage."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from optmatch.model import number
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import RAISE, SET, STEP_NAMES


class Stage(NamedTuple):
    """A part of a recovery."""

    name: str  # what is done, with the number of cells or circuits
    start_s: float  # seconds from the failure
    end_s: float  # the start of the next stage


def list_stages(
    state: Reroute,
    transition: Transition,
    *,
    detect_s: float = 0.0,
    decide_s: float = 0.0,
    program_s: float = 0.0,
    cell_s: float = 0.0,
    lock_s: float = 0.0,
    restart_s: float = 0.0,
) -> tuple[Stage, ...]:
    """List what happens from a failure until the job runs on, with times in seconds.

    The stages follow each other: detect, decide, set cells (2 x 2 switches), raise circuits, and
    so on, restart. Steps of one kind in a row are one stage, since they are done at the same time.
    In a fabric without cells, one stage programs the switches of all servers on the new routes.

    Parameters
    ----------
    state
        The state before the failure.
    transition
        The recovery: ``changed`` are the circuits that change; a row (kind, number) of ``steps``
        sets a cell, or takes a circuit down or up.
    detect_s
        Until the failure is reported; this and all times below in seconds.
    decide_s
        The time that `Rerouter.fail` took.
    program_s
        To send settings to the controllers of cells or switches.
    cell_s
        Until cells or switches have settled, in each round of settings.
    lock_s
        Until transceivers see each other on a new route.
    restart_s
        Until the job runs on: processes, communicators, a checkpoint.

    Returns
    -------
    tuple of Stage
        Name, start and end in seconds of each stage. The first starts at 0, the failure; each
        other one where the one before ends.
    """
    detect_s = number("detect_s", detect_s)
    decide_s = number("decide_s", decide_s)
    set_s = number("program_s", program_s) + number("cell_s", cell_s)
    lock_s = number("lock_s", lock_s)
    restart_s = number("restart_s", restart_s)

    durations = [("detect", detect_s), ("decide", decide_s)]
    if state.fabric.graph is None and len(transition.changed):
        durations.append(("program switches", set_s))

    # A step is a row (kind, number): steps of one kind in a row happen at once.
    for kind, group in groupby(transition.steps[:, 0].tolist()):
        n_steps = len(list(group))
        if kind == SET:
            durations.append((f"set cells ({n_steps})", set_s))
        elif kind == RAISE:
            durations.append((f"raise circuits ({n_steps})", lock_s))
        else:
            durations.append((f"{STEP_NAMES[kind]} circuits ({n_steps})", 0.0))
    durations.append(("restart", restart_s))

    # Each stage starts where the one before ends.
    stages = list[Stage]()
    now_s = 0.0
    for name, duration_s in durations:
        stages.append(Stage(name, now_s, now_s + duration_s))
        now_s += duration_s
    return tuple(stages)
