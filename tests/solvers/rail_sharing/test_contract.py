"""Every method for rail sharing keeps the contract."""

from dataclasses import replace
from itertools import product
from typing import Any

import optmatch as om
from optmatch.problems import NamedJob, RailSharing
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
    """Find the best division by brute force over shares, orders of communications and circuits."""
    steps_s: list[dict[Any, float]] = []
    for named in problem.jobs:
        row = {}
        for ports, replicas in problem.list_shares(named):
            parallelism = replace(named.job.parallelism, dp=replicas)
            step_s = best_rail(replace(named.job, parallelism=parallelism))
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
        share(tiny_job(*one), tiny_job(*two), radix=4, by=by, round_s=1e-3)
        for by, (one, two) in product(("ports", "servers", "time"), [((1, 2), (2, 1))])
    )
    oracle = best_sharing


globals().update(contracts(RailSharingContract, methods_of("rail-sharing")))
