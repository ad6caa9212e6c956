"""Every method for rail sharing keeps the contract."""

from typing import Any

import optmatch as om
from optmatch.problems import NamedJob, RailSharing
from optmatch.problems.rail_sharing import give_share
from optmatch.testing import SolverContract
from tests.helpers.contracts import contracts, methods_of
from tests.helpers.exhaustive.rails import best_rail
from tests.helpers.rails import make_job, small_job
from tests.helpers.shared_rails import best_stretch

TINY = om.TransformerModel(layers=2, hidden=16, heads=2, sequence=8, vocabulary=10, ffn=32)


def tiny_job(dp: int, pp: int) -> om.RailJob:
    """Return a job all orders of whose communications can be tried."""
    return make_job(
        dp=dp, pp=pp, model=TINY, batch=dp, peak_flops_per_s=1e9, port_bytes_per_s=1e9,
        gpus_per_server=1, delay_s=1e-5,
    )  # fmt: skip


def share(*jobs: om.RailJob, **options: Any) -> RailSharing:
    """Return jobs that share rails."""
    named = tuple(NamedJob(f"job-{number}", job) for number, job in enumerate(jobs))
    return RailSharing(jobs=named, **options)


def best_sharing(problem: Any) -> float:
    """Find the best division by brute force over shares, orders of communications and circuits.

    The jobs have one port for each GPU, as plans with more cannot be found by brute force here.
    Shares hence differ in replicas alone, where servers are divided; else each job has one share.
    """
    steps_s: list[dict[Any, float]] = []
    for named in problem.jobs:
        row = {}
        for ports, replicas in problem.list_shares(named):
            assert ports == 1
            step_s = best_rail(give_share(named.job, ports, replicas))
            assert step_s is not None
            row[ports, replicas] = step_s
        steps_s.append(row)
    return best_stretch(problem, steps_s)


class RailSharingContract(SolverContract):
    """Tests that all methods for rail sharing share."""

    examples = 3
    iterates = False
    problems = (
        share(small_job(2, 1, 2, ports_per_gpu=2), small_job(4, 1, 1, ports_per_gpu=2), radix=12),
        share(small_job(4, 2, 1), small_job(2, 2, 2), radix=6, by="servers"),
        share(small_job(2, 1, 2), small_job(2, 1, 1), radix=4, by="time", round_s=9.0),
    )
    tiny_problems = tuple(
        share(tiny_job(1, 2), tiny_job(2, 1), radix=4, by=by, handover_s=2e-5, round_s=1e-3)
        for by in ("ports", "servers", "time")
    )
    oracle = best_sharing


globals().update(contracts(RailSharingContract, methods_of("rail-sharing")))
