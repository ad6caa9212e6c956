"""Plans from orders: each end serves in a given order, and changes as soon as it is free.

Nothing is asked for: a circuit that is used next is set up while its ports are idle, which hides
the delay wherever that is possible in the given order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import check_time
from optmatch.solvers.rails.lines import Lines, draw_lines
from optmatch.solvers.rails.paths import Ints, Timed, longest_paths
from optmatch.solvers.rails.policies import usual_lanes
from optmatch.solvers.rails.timetable import Draft
from optmatch.solvers.rails.transfers import Transfers

Start = Sequence[float] | NDArray[np.float64]


def plan_ahead(transfers: Transfers, starts: Sequence[Start] = ()) -> Draft | None:
    """Set up circuits early: the best of a few orders; None if no order can be kept.

    Tried are the order in which communications would start with all circuits there, and those of
    known plans, of which `starts` are those of nodes; and steps that begin with the circuits that
    they use first, or used last. Every change begins as soon as the port is free.
    """
    lanes, uses = usual_lanes(transfers), transfers.uses()
    lasts = transfers.lasting(lanes)
    everything = dict.fromkeys(lanes, (1 << transfers.n_lanes) - 1)
    free = longest_paths(transfers.lasting(everything), transfers.pairs)
    best_s, best = np.inf, None
    for start in [*([] if free is None else [free.start_s]), *starts]:
        check_time()
        served = draw_lines(uses, transfers.rank(start)[uses.node], lanes)
        for standing in (served.last, served.first):
            found = _time(transfers, served, standing, lasts)
            step_s = np.inf if found is None else found.timed.end_s.max(initial=0.0)
            if found is not None and step_s < best_s:
                best_s, best = step_s, (served, standing, found)
    if best is None:
        return None
    served, standing, found = best
    begins = found.timed.start_s[len(transfers.duration_s) :]
    turns = served.turns(found.turned, begins, begins)
    at_once = np.zeros(len(standing))
    still = served.turns(standing, at_once, at_once)
    return Draft(transfers, found.timed, lanes, still, turns)


class _OrderTimes(NamedTuple):
    """Times in a given order."""

    timed: Timed
    turned: Ints
    """``row[change]``: the row that the change is for; changes are nodes after all others."""


def _time(
    transfers: Transfers, served: Lines, standing: Ints, lasts: NDArray[np.float64]
) -> _OrderTimes | None:
    """Find the start of each node, and ends that turn; `standing` has the peer of each line."""
    (node, _, _, peer, *_), before, last = served.uses, served.before, served.last
    turns, back = peer != served.faced(standing), peer[last] != peer[standing]
    same = ~turns & (before >= 0)
    turned = np.concatenate([np.flatnonzero(turns), standing[back]])
    number = len(transfers.duration_s) + np.arange(len(turned))
    drained = np.concatenate([before[turns], node[last[back]]])
    used = drained >= 0
    pairs = (
        transfers.pairs,
        np.stack([before[same], node[same]], axis=1),
        np.stack([drained[used], number[used]], axis=1),
        np.stack([number[: turns.sum()], node[turns]], axis=1),
    )
    delays = np.full(len(turned), transfers.job.network.delay_s)
    timed = longest_paths(np.concatenate([lasts, delays]), np.concatenate(pairs))
    return None if timed is None else _OrderTimes(timed, turned)
