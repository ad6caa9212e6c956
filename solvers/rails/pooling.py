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
    RailPlan,
    RailTimeline,
    ranks_of_rails,
)
from optmatch.problems.rails.training.layout import place_ranks
from optmatch.problems.rails.training.network import MOST_PORTS
from optmatch.solvers.rails.forwarding import can_forward, plan_forwarded
from optmatch.solvers.rails.seats import Seats, seat_ranks

WORK_SHARE = 0.5
"""The work of the search for a pooled plan, as a part of that for a plan of each rail by itself.
With a quarter of it not all numbers of chords are tried on 1,024 GPUs of DeepSeek-V3."""


def may_pool(job: RailJob) -> bool:
    """Tell whether the GPUs of a server may use the ports of all its rails together.

    True if all of these hold: the job says how long it takes data to change rail
    (`change_rail_s`), a server has several GPUs and thus several rails, and a set of ports of a
    server, one bit each, fits into a number of 32 bits. The switches have to be ideal, as ports
    are dealt to rails by their numbers on such switches. A recorded step does not say which ranks
    are in one server, and is not pooled.
    """
    # Each GPU gets a share of every port of its server, and these are its ports then.
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
    """Find a plan, faster than `known_s` seconds, in which a server uses the ports of all rails.

    Yields one plan at most, by the search of `plan_forwarded`, which tries `most` choices; none if
    rails cannot be pooled, or if the GPUs of a server do different things.
    """
    if not may_pool(job) or not can_forward(job):
        return
    pooled = job.with_pooled_rails()
    if _servers_are_seats(seat_ranks(pooled)):
        for plan in plan_forwarded(pooled, known_s, rng, most, share=WORK_SHARE):
            yield deal_ports(job, plan)


def _servers_are_seats(seats: Seats) -> bool:
    """Tell whether each seat of a step with pooled rails is all GPUs of one server.

    Of a large job these are the servers of its first replica. False if the GPUs of a server do
    different things, so that they are several seats, or if some rank is on no rail.
    """
    # No seat is on two servers if there are as many different pairs of a seat and a server as
    # seats. `place_ranks` tells the GPU of each rank, by which servers are numbered.
    job = seats.job
    in_first = seats.replica_of == 0
    server_of_rank = (place_ranks(job.parallelism) // job.network.gpus_per_server)[in_first]
    seat_of_rank = seats.folded.class_of[in_first]
    pairs = {*zip(seat_of_rank.tolist(), server_of_rank.tolist(), strict=True)}
    one_server_each = len(pairs) == seats.n_seats

    # A seat has then no more ranks than a server has GPUs. If all seats have as many on average,
    # each of them is a whole server: 8 ranks on servers of 4 GPUs have to be 2 seats.
    has_all_gpus = len(seat_of_rank) == seats.n_seats * job.network.gpus_per_server
    return bool((seats.rail_of >= 0).all()) and one_server_each and has_all_gpus


def deal_ports(job: RailJob, plan: RailPlan) -> RailPlan:
    """Turn a plan of one large switch into one of a switch for each rail.

    With k ports a GPU on each rail, port ``gpu * rails * k + rail * k + p`` of the large switch is
    port ``gpu * k + p`` of its rail: with 4 rails and 2 ports, port 26 = 3 * 8 + 1 * 2 + 0 is port
    6 of rail 1, as it is port 0 of GPU 3. The result has only states in which the rail changes.
    """
    # ``states[state, GPU, rail, port]``: the port of the large switch to which this one leads, -1
    # where idle.
    k = job.network.ports_per_gpu
    n_rails = job.network.gpus_per_server
    (shared,) = plan.rails  # the one timeline of the large switch
    states = shared.matchings.reshape(len(shared.matchings), -1, n_rails, k)
    timelines = []
    for number, rail in enumerate(ranks_of_rails(job.step())):
        # The large switch numbers its ports as ``gpu * n_rails * k + rail * k + p``, the switch of
        # a rail as ``gpu * k + p``. Circuits lead from a rail to the same rail: with 4 rails and 2
        # ports, 26 becomes 26 // 8 * 2 + 26 % 2 = 6.
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
