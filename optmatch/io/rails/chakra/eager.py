"""Sends that do not wait for their receives: eager ones, as MPI calls them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.model import InputError
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.step import RECV, Step
from optmatch.problems.rails.training.times import ends_s, events, streams


def can_start(step: Step) -> bool:
    """Tell whether all of a step can be done if a send waits until its receive is ready."""
    if not (step.kind == RECV).any():
        return True
    try:
        ends_s(events(step, RailNetwork(gpus_per_server=1), {}))
    except InputError:
        return False
    return True


def send_eagerly(step: Step) -> Step:
    """Let messages wait for their senders alone, and what comes after for what it waited for.

    A message is one operation with two ends, so it cannot arrive before its receive starts. But a
    receive without dependencies delays no send. What depended on it takes its dependencies over,
    of each stream the last: those before it have ended by then.
    """
    stream, receives = streams(step).tolist(), (step.kind == RECV).tolist()
    start, dep = step.dep_start.tolist(), step.dep.tolist()
    taken_over: dict[int, list[int]] = {}
    found: list[list[int]] = []
    for operation, receive in enumerate(receives):
        last: dict[int, int] = {}
        for one in dep[start[operation] : start[operation + 1]]:
            for each in (one, *taken_over.get(one, ())):
                last[stream[each]] = max(each, last.get(stream[each], each))
        found.append([] if receive else sorted(last.values()))
        if receive:
            taken_over[operation] = list(last.values())
    return replace(
        step,
        dep_start=np.cumsum([0, *map(len, found)]),
        dep=np.array([one for ones in found for one in ones], dtype=np.int64),
    )
