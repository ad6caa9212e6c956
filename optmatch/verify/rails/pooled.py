"""The replay of plans in which data change rail inside a server, so that rails may differ.

The GPUs of a server then use all of its rails together, each an equal share of every port: GPU r
of a server with R GPUs of k ports has R k shares, of which share ``q k + p`` is one R-th of port p
on rail q. As all GPUs of a server do the same at the same time, each rail of shares is a rail like
any other, with R k ports for each GPU, and one of these rails stands for all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import MOST_PORTS, RailPlan, RailTimeline
from optmatch.problems.rails.training.layout import place_ranks
from optmatch.verify.rails.context import Context
from optmatch.verify.rails.times import describe_load
from optmatch.verify.report import Rule

MAY_CHANGE_RAIL = Rule("data change rail only in jobs that let them")
RAILS_ARE_ALIKE = Rule("where data change rail, all GPUs of a server do the same together")

_RanksOfRail = dict[int, NDArray[np.int64]]
"""By rail its ranks, ascending: the order in which its switch counts their GPUs."""


def lets_pool(job: RailJob) -> bool:
    """Tell whether plans of a job may let data change rail in servers.

    The job says how long that takes, is made from a model, has ideal switches, and no more than 31
    shares of ports for each GPU.
    """
    n_shares = job.network.gpus_per_server * job.network.ports_per_gpu
    return (
        job.network.change_rail_s is not None
        and job.workload.recorded is None
        and job.fabric is None
        and n_shares <= MOST_PORTS
    )


def check_pooled(context: Context, ranks_of_rail: _RanksOfRail) -> bool:
    """Check that a plan may let data change rail, and that all rails do the same."""
    job = context.job
    n_rails = job.network.gpus_per_server
    findings = context.findings
    if not lets_pool(job):
        findings.refuse(MAY_CHANGE_RAIL, "pooled", True, "network.change_rail_s, ideal switches")
        return False

    # Every GPU of a server has a rail of its own, in the order of their numbers.
    if list(ranks_of_rail) != list(range(n_rails)):
        findings.refuse(RAILS_ARE_ALIKE, "rails", list(ranks_of_rail), list(range(n_rails)))
        return False

    # Each rail is compared with the first one, by its load and the servers of its GPUs. Loads are
    # arrays without names of ranks or groups; the groups of all rails are numbered together.
    server_of_rank = place_ranks(job.parallelism) // n_rails
    numbers_of_groups: dict[tuple[str, bytes], int] = {}
    first_load = None
    first_servers = server_of_rank[ranks_of_rail[0]]
    for rail, ranks in ranks_of_rail.items():
        riding = np.flatnonzero(context.step.rail == rail)
        load = describe_load(context, ranks, riding, numbers_of_groups)
        if first_load is None:
            first_load = load
        is_alike = np.array_equal(server_of_rank[ranks], first_servers)
        is_alike = is_alike and all(map(np.array_equal, load, first_load))
        if not is_alike:
            findings.refuse(RAILS_ARE_ALIKE, f"rail {rail}", "another load", "that of rail 0")
            return False
    return True


def pool_job(job: RailJob) -> RailJob:
    """Return the job in which a GPU has shares of all ports of its server as ports of its own.

    A server has R GPUs with k ports each; each GPU gets an R-th of all R k ports. A byte takes its
    time on a port, then that on the links of one GPU, which carry the bytes of k ports. With 2
    ports of 50 GB/s and links of 400 GB/s a GB takes 1 / 50 + 2 / 400 = 0.025 s: a port has 40
    GB/s, and each of 8 GPUs 5 GB/s of it. Each message is late by a change of rail.
    """
    network = job.network
    n_rails = network.gpus_per_server
    seconds_per_byte = 1 / network.port_bytes_per_s
    seconds_per_byte += network.ports_per_gpu / network.scale_up_bytes_per_s
    assert network.change_rail_s is not None  # `check_pooled` refuses jobs without it
    shares = replace(
        network,
        ports_per_gpu=n_rails * network.ports_per_gpu,
        port_bytes_per_s=1 / (seconds_per_byte * n_rails),
        rail_latency_s=network.latency_on_rails_s + network.change_rail_s,
        radix=None,
    )
    # The step and its groups do not depend on rates, and are shared with the job.
    pooled = replace(job, network=shares)
    derived = {name: job.once(name, job.step) for name in ("step",)}
    object.__setattr__(pooled, "_built", derived | {"groups": job.groups()})
    return pooled


def pool_timelines(job: RailJob, plan: RailPlan) -> RailTimeline:
    """Join the switches of all rails to one, on which a GPU has all ports of its server.

    Its ports are numbered by GPU (counted on its rail), rail and port. With 8 rails and 2 ports on
    each, port 21 = 1 * 16 + 2 * 2 + 1 is port 1 of GPU 1 on rail 2: port 1 * 2 + 1 = 3 of that
    switch.
    """
    n_rails = job.network.gpus_per_server
    k = job.network.ports_per_gpu
    timeline_of_rail = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    # A state begins whenever some rail changes; shares[state, GPU, rail, port] is where that port
    # leads to in it.
    starts_s = np.unique(np.concatenate([timeline.starts_s for timeline in plan.rails]))
    n_gpus = timeline_of_rail[0].matchings.shape[1] // k
    shares = np.full((len(starts_s), n_gpus, n_rails, k), IDLE, np.int64)
    for rail, timeline in timeline_of_rail.items():
        # The state of this rail at each of these times; receivers get the numbers of shares.
        state = np.searchsorted(timeline.starts_s, starts_s, side="right") - 1
        receiver = timeline.matchings[state].astype(np.int64).reshape(-1, n_gpus, k)
        share = receiver // k * (n_rails * k) + rail * k + receiver % k
        shares[:, :, rail] = np.where(receiver == IDLE, IDLE, share)
    return RailTimeline(
        rails=tuple(range(n_rails)),
        matchings=shares.reshape(len(starts_s), -1).astype(np.int32),
        asked_s=starts_s,
        starts_s=starts_s,
    )
