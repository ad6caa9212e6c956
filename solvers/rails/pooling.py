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
    """Tell whether plans of a job may pool rails: servers of several GPUs, and ideal switches.

    To pool rails is to let the GPUs of a server use all its rails together: data change rail
    inside the server. A share is the part that a GPU has of one port of a rail.

    Parameters
    ----------
    job
        The job. Its network says how long data take to change rail (None if they cannot).

    Returns
    -------
    bool
        False if data cannot change rail, servers have one GPU, GPUs would have more shares than a
        plan can number, the switch is a given fabric, or the step is a recorded one.
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
    """Find a plan that pools rails and is faster than a known one, if there is one.

    In such a plan the GPUs of a server use all its rails together, because data can change rail
    inside the server. Each GPU then has a share of every port. A job in which each GPU has these
    shares as its own ports is planned; then the shares are dealt to the rails again.

    Parameters
    ----------
    job
        The job.
    known_s
        The step time of the known plan, in seconds; infinite if there is none.
    rng
        Draws what is tried.
    most
        How many plans are tried; None for as many as the work of a search allows.

    Yields
    ------
    RailPlan
        One plan, or none if no faster one is found or rails of the job cannot be pooled.
    """
    if not may_pool(job) or not can_forward(job):
        return
    pooled = job.with_pooled_rails()
    plans = plan_forwarded(pooled, known_s, rng, most, share=WORK_SHARE, fits=_servers_are_seats)
    for plan in plans:
        yield deal_ports(job, plan)


def _servers_are_seats(seats: Seats) -> bool:
    """Tell whether all GPUs of a server do the same: they are one seat, and no others.

    Parameters
    ----------
    seats
        The folded step of a job with pooled rails: a seat is the ranks that do the same.

    Returns
    -------
    bool
        Whether each seat is all GPUs of one server, and every GPU rides a rail.
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
    """Turn a plan of pooled rails into one of the job: deal the ports to its rails.

    With pooled rails a GPU uses the ports of all rails of its server; a share is its part of one
    of these ports. A plan of pooled rails has one large switch, whose ports are the shares. Share
    ``q * k + p`` of a GPU is port p of rail number q: with k = 2 ports and 8 rails, share 5 is
    port 1 of rail 2.

    Parameters
    ----------
    job
        The job, whose GPUs have k ports on their rails.
    plan
        A plan of ``job.with_pooled_rails()``, which has one timeline for all rails.

    Returns
    -------
    RailPlan
        A timeline for each rail: the states of its switch, and when each begins, in seconds. Times
        of operations, their ports and who forwards stay those of `plan`.
    """
    # States of the switch of shares: by state, GPU, number of the rail and port the share to which
    # it leads.
    k = job.network.ports_per_gpu
    n_rails = job.network.gpus_per_server
    (shared,) = plan.rails
    states = shared.matchings.reshape(len(shared.matchings), -1, n_rails, k)
    timelines = []
    for number, rail in enumerate(ranks_of_rails(job.step())):
        # The switch of shares counts its ports as ``gpu * n_rails * k + share``, the switch of a
        # rail as ``gpu * k + p``.
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
