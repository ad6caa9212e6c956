"""When the demand is complete, how long each pair has had a circuit, and proofs of bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import find_staying
from optmatch.model import (
    IDLE,
    Axes,
    Count,
    Index,
    Range,
    Schedule,
    Value,
)
from optmatch.problems.demands.problem import Demand


def held_ticks(problem: Demand, schedule: Schedule) -> NDArray[np.int64]:
    """Add up how long each pair of ports has a circuit that can send, in ticks.

    A schedule is a list of slots; each has a matching (which source is connected to which
    destination) and a duration, and a delay before it. In the delay no circuit sends, with one
    exception: with per-circuit switching a circuit goes on that was there in the slot before, if
    no cell on its route is set anew.

    Parameters
    ----------
    problem
        The demand, for its tick, its delay and its kind of switching.
    schedule
        The slots of one plane.

    Returns
    -------
    ndarray
        ``ticks_up[source, destination]``, shape (ports, ports), also of pairs without a demand.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> problem = Demand(IdealSwitch(2), [[0, 3], [2, 0]], delay_s=1.0)
    >>> held_ticks(problem, problem.schedule([[1, 0]], [3])).tolist()
    [[0, 3], [3, 0]]
    """
    n_ports = problem.fabric.n_ports
    ticks_up = np.zeros((n_ports, n_ports), dtype=np.int64)
    durations = np.rint(schedule.durations_s / problem.tick_s).astype(np.int64)
    matchings = schedule.matchings
    slots, sources = np.nonzero(matchings != IDLE)
    np.add.at(ticks_up, (sources, matchings[slots, sources]), durations[slots])

    # A circuit that stays sends during the delay between both slots, too.
    if problem.switching == "per-circuit":
        stays = find_staying(problem.fabric, matchings, schedule.cell_states)
        slots, sources = np.nonzero(stays)
        np.add.at(ticks_up, (sources, matchings[slots, sources]), problem.delay_ticks)
    return ticks_up


def completion_s(problem: Demand, schedules: Sequence[Schedule]) -> float:
    """Find when the demand is complete: the last slot has ended, and the packet network too.

    Parameters
    ----------
    problem
        The question.
    schedules
        One for each plane.

    Returns
    -------
    float
        In seconds; infinite if something is left and no packet network takes it.
    """
    ticks_up = sum(
        (held_ticks(problem, schedule) for schedule in schedules),
        start=np.zeros_like(problem.directed_ticks),
    )

    # The rest that circuits leave, and the port that has most of it to send or to receive. A plane
    # ends after all its slots, with a delay before each.
    left = np.maximum(problem.directed_ticks - ticks_up, 0)
    most = max(int(left.sum(axis=0).max()), int(left.sum(axis=1).max()))
    ends = [
        int(np.rint(schedule.durations_s / problem.tick_s).sum())
        + problem.delay_ticks * schedule.n_slots
        for schedule in schedules
    ]
    if most and not problem.packet_share:
        return float("inf")
    return max(0.0, *ends, most / problem.packet_share if most else 0.0) * problem.tick_s


Axis = Literal["source", "destination"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigurationProof(Value):
    r"""Prices of demands that no slot can earn faster than time passes.

    Let serving one tick of the demand :math:`d_{ij}` earn :math:`y_{ij} \ge 0`. If no matching
    :math:`P` and no duration :math:`w` earn more than they take,
    :math:`\sum_{ij \in P} y_{ij} \min(w, d_{ij}) \le w + \delta`, then all demands,
    :math:`\sum y_{ij} d_{ij}`, cannot be earned earlier: the bound of the configuration LP. It
    needs to be checked only at the durations :math:`w` that are entries of the demand. On small
    meshes matchings are those that the cells hold.

    Parameters
    ----------
    duals
        ``duals[source, destination]``: prices in units of 1 / `units`, >= 0; int64, shape (ports,
        ports). Integers, so that checking involves no rounding.
    units
        The price of one in these units, > 0.
    """

    duals: Annotated[NDArray[np.int64], Axes(2), Range(0)]
    units: Count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountProof(Value):
    """A reason why an exact decomposition needs so many matchings.

    A line of k entries needs k matchings. Each matching joins an entry of a line to one of another
    line, and both are sums of the weights of what they are joined by. In parts that are joined the
    two lines have the same sum, and a part of v entries takes v - 1 matchings or more. Two
    lines hence need as many as they have entries, less the most groups into which both can be put
    with equal sums.

    Parameters
    ----------
    axis, port
        The first line.
    against_axis, against_port
        The second line.
    """

    axis: Axis
    port: Index
    against_axis: Axis
    against_port: Index
