"""Plans in which data change rail inside a server, so that each rail holds circuits of its own.

The GPUs of a server use all its rails together: such a plan *pools* the rails. Each GPU has a
*share* of every port (`RailNetwork.pool_rails`): with q rails and k ports for each GPU these are
``q * k`` shares. A job on such shares is one with several ports for each GPU, which may lead to
different GPUs: it is planned as any other, and its ports are then dealt to the rails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import (
    MOST_PORTS,
    RailPlan,
    RailTimeline,
    ranks_of_rails,
)
from optmatch.problems.rails.training.layout import place_ranks
from optmatch.solvers.rails.forwarding import can_forward, plan_forwarded
from optmatch.solvers.rails.seats import Seats

WORK_SHARE = 0.5
"""The work of the search for a pooled plan, as a part of that for a plan of each rail by itself.
With a quarter of it not all numbers of chords are tried on 1,024 GPUs of DeepSeek-V3."""


def may_pool(job: RailJob) -> bool:
    """Tell whether plans of a job may let data change rail inside a server.

    The GPUs of a server then use all its rails together, and each has a share of every port.

    Parameters
    ----------
    job
        The job. Its network says how long data take to change rail (None if they cannot).

    Returns
    -------
    bool
        False in each of these cases: data cannot change rail; servers have one GPU; a GPU would
        have more shares than a plan can number (`MOST_PORTS`); the switch is a given fabric; the
        step is a recorded one.
    """
    network = job.network
    n_shares = network.gpus_per_server * network.ports_per_gpu
    return (
        network.change_rail_s is not None
        and network.gpus_per_server > 1
        and n_shares <= MOST_PORTS
        and job.fabric is None
        and job.workload.recorded is None
    )


def plan_pooled(
    job: RailJob, known_s: float, rng: np.random.Generator, most: int | None = None
) -> Iterator[RailPlan]:
    """Find a plan in which data change rail inside a server and that is faster than a known one.

    A GPU then sends over the ports of all rails of its server, and has an equal share of each. A
    job in which GPUs have these shares as ports of their own is planned, by search. Then the
    shares are dealt to the rails again.

    Parameters
    ----------
    job
        The job.
    known_s
        The step time of the known plan, in seconds; infinite if there is none.
    rng
        Random numbers of the search.
    most
        How many plans are tried; None for as many as the work of a search allows.

    Yields
    ------
    RailPlan
        One plan, or none if no faster one is found, or if data cannot change rail in this job.
    """
    if not may_pool(job) or not can_forward(job):
        return
    pooled = job.with_pooled_rails()
    plans = plan_forwarded(pooled, known_s, rng, most, share=WORK_SHARE, fits=_servers_are_seats)
    for plan in plans:
        yield deal_ports(job, plan)


def _servers_are_seats(seats: Seats) -> bool:
    """Tell whether each server is one seat: its GPUs do the same, and no other GPU does.

    Parameters
    ----------
    seats
        The folded step of a job: a seat is all ranks that do the same. ``folded.class_of[rank]``
        is the seat of a rank, and ``rail_of[rank]`` its rail, -1 if it is on none.

    Returns
    -------
    bool
        Whether this is true of all servers, and every GPU is on a rail.
    """
    job = seats.job
    server_of_rank = place_ranks(job.parallelism) // job.network.gpus_per_server
    rides = seats.rail_of >= 0
    if not rides.all():
        return False
    n_seats = len(seats.rail)

    # A seat is within one server if the least and the greatest server of its ranks are the same.
    lowest = np.full(n_seats, len(rides))
    highest = np.full(n_seats, -1)
    np.minimum.at(lowest, seats.folded.class_of, server_of_rank)
    np.maximum.at(highest, seats.folded.class_of, server_of_rank)

    # Then there are as many seats as servers only if no server has two.
    return bool((lowest == highest).all()) and n_seats * job.network.gpus_per_server == len(rides)


def deal_ports(job: RailJob, plan: RailPlan) -> RailPlan:
    """Turn a plan in which GPUs use all rails of their server into states of the single rails.

    Data may change rail inside a server. Such a plan is made as if each GPU had the ports of all
    rails for itself, on one large switch. With 8 rails and 2 ports on each, a GPU has 16 such
    ports; its port 5 is port 1 of rail 2, as 5 = 2 * 2 + 1. This function deals the ports of the
    large switch to the switches of the rails.

    Parameters
    ----------
    job
        The job, whose GPUs have k ports, each on its own rail.
    plan
        A plan of ``job.with_pooled_rails()``, which has one timeline: that of the large switch.

    Returns
    -------
    RailPlan
        A timeline for each rail: the states of its switch, and when each is asked for and begins,
        in seconds. Operations keep their times, their ports, and the ranks that forward for them.
        The mark `pooled` is set.
    """
    # ``states[state, GPU, rail, port]``: the port of the large switch to which this one leads, -1
    # where idle.
    k = job.network.ports_per_gpu
    n_rails = job.network.gpus_per_server
    (shared,) = plan.rails
    states = shared.matchings.reshape(len(shared.matchings), -1, n_rails, k)
    timelines = []
    for number, rail in enumerate(ranks_of_rails(job.step())):
        # The large switch numbers its ports as ``gpu * n_rails * k + rail * k + p``, the switch of
        # a rail as ``gpu * k + p``. Circuits lead from a rail to the same rail.
        share = states[:, :, number].reshape(len(states), -1)
        receiver = share // (n_rails * k) * k + share % k
        matchings = np.where(share == IDLE, IDLE, receiver).astype(np.int32)

        # Only states in which this rail changes something are states of its switch.
        changes = (matchings[1:] != matchings[:-1]).any(axis=1)
        states_kept = np.append(0, 1 + np.flatnonzero(changes))
        timelines.append(
            RailTimeline(
                rails=(rail,),
                matchings=matchings[states_kept],
                asked_s=shared.asked_s[states_kept],
                starts_s=shared.starts_s[states_kept],
            )
        )
    return replace(plan, rails=tuple(timelines), pooled=True)
