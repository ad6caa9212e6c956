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

    Examples
    --------
    Two ranks that send before they receive, each after what it has sent:

    >>> from optmatch.problems.rails.training.step import Group
    >>> step = Step(
    ...     groups=(Group("pp.0", "pp", (0, 1), rail=0),), rank=[0, 0, 0, 1, 1, 1],
    ...     kind=[6, 7, 0, 6, 7, 0], group=[0, 0, -1] * 2, size_bytes=[8, 8, 0] * 2,
    ...     duration_s=[0] * 6, peer=[1, 1, -1, 0, 0, -1], match=[0, 1, -1, 1, 0, -1],
    ...     dep_start=[0, 0, 1, 2, 2, 3, 4], dep=[0, 1, 3, 4])
    >>> can_start(step)
    False
    >>> eager = send_eagerly(step)
    >>> can_start(eager), eager.dep_start.tolist(), eager.dep.tolist()
    (True, [0, 0, 0, 2, 2, 2, 4], [0, 1, 3, 4])
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
