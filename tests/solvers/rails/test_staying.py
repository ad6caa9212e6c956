"""The bound of plans that change nothing, which holds where a change takes longer."""

import random
from dataclasses import replace

import pytest

import optmatch as om
from optmatch.solvers.rails.forwarding import is_served
from optmatch.solvers.rails.seats import seat_ranks
from optmatch.solvers.rails.staying import bound_step
from optmatch.verify.rails.times import bound_staying
from tests.helpers.modes import examples
from tests.helpers.rails import make_job
from tests.helpers.static_rings import ring_s
from tests.solvers.rails.test_forwarding import draw_small_job


def test_no_static_ring_is_below_the_bound() -> None:
    higher = 0
    for number in range(examples(40, plain=10)):
        job = draw_small_job(random.Random(f"staying {number}"))
        if job is None or job.network.ports_per_gpu > 1 or not is_served(job):
            continue
        job = job.with_delay(1e6)
        bound = bound_step(seat_ranks(job))
        assert bound == pytest.approx(max(job.lower_bound(), bound_staying(job)), rel=1e-9)
        assert bound <= ring_s(job, number) * (1 + 1e-9), number
        higher += bound > job.lower_bound() * (1 + 1e-6)
        short = job.with_delay(job.lower_bound())
        assert bound_step(seat_ranks(short)) == short.lower_bound()
    assert higher


def test_the_bound_is_reached_and_no_higher_claim_is_supported() -> None:
    """Two gradients of one GPU at a time: one waits for the other, which no link shows."""
    model = om.TransformerModel(
        layers=2, hidden=64, heads=4, sequence=256, vocabulary=100, ffn=128
    )
    job = make_job(
        dp=4, pp=2, model=model, batch=4, micro_batch=1, gpus_per_server=1, delay_s=1e3,
        port_bytes_per_s=1e6,
    )  # fmt: skip
    found = om.solve(job, "prefetch", seed=0, limits=om.Limits(iterations=500))
    assert found.objective is not None and found.lower_bound is not None
    assert job.lower_bound() * 1.01 < found.lower_bound <= found.objective
    assert om.verify(job, found).ok
    claim = replace(found, lower_bound=found.lower_bound * 1.01)
    assert "the lower bound is supported" in {v.rule for v in om.verify(job, claim).violations}
