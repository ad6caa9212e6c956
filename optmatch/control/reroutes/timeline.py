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
    """List the stages of a recovery, one after the other.

    Steps of one kind that follow each other are carried out together: cells are set at once, and
    circuits come up at once. A rack with ideal interposers has no cells in its steps; there the
    switches of all servers on the new routes are programmed at once.

    Parameters
    ----------
    state
        The state before the failure.
    transition
        The recovery.
    detect_s
        Until the failure is reported.
    decide_s
        What `Rerouter.fail` took.
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
        From the failure, at 0 s, until the job runs on; no stage overlaps another.
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

    stages = list[Stage]()
    now_s = 0.0
    for name, duration_s in durations:
        stages.append(Stage(name, now_s, now_s + duration_s))
        now_s += duration_s
    return tuple(stages)
