"""How long a recovery takes, stage by stage."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from optmatch.model import number
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import RAISE, SET, STEP_NAMES


class Stage(NamedTuple):
    """A part of a recovery."""

    name: str
    start_s: float
    end_s: float


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
    """
    given = {"detect_s": detect_s, "decide_s": decide_s, "program_s": program_s}
    given |= {"cell_s": cell_s, "lock_s": lock_s, "restart_s": restart_s}
    takes = {name: number(name, value) for name, value in given.items()}
    set_s = takes["program_s"] + takes["cell_s"]
    parts = [("detect", takes["detect_s"]), ("decide", takes["decide_s"])]
    if state.fabric.graph is None and len(transition.changed):
        parts.append(("program switches", set_s))
    for kind, steps in groupby(kind for kind, _, _ in transition.steps.tolist()):
        names = {SET: ("set cells", set_s), RAISE: ("raise circuits", takes["lock_s"])}
        name, takes_s = names.get(kind, (f"{STEP_NAMES[kind]} circuits", 0.0))
        parts.append((f"{name} ({len(list(steps))})", takes_s))
    parts.append(("restart", takes["restart_s"]))
    stages, now_s = list[Stage](), 0.0
    for name, takes_s in parts:
        stages.append(Stage(name, now_s, now_s + takes_s))
        now_s += takes_s
    return tuple(stages)
