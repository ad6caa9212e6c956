"""The bound of plans that change nothing, which holds where a change takes longer."""

import random
from dataclasses import replace
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.training.step import ALL_REDUCE, ALL_TO_ALL, RECV, SEND, Group
from optmatch.solvers.rails import methods
from optmatch.solvers.rails.decoder import EXCHANGE
from optmatch.solvers.rails.forwarding import can_forward
from optmatch.solvers.rails.seats import seat_ranks
from optmatch.solvers.rails.staying import bound_step, time_exchanges
from optmatch.verify.rails.bounds import bound_changes, bound_staying
from tests.helpers.modes import examples
from tests.helpers.rails import make_job
from tests.helpers.static_rings import ring_s
from tests.solvers.rails.test_forwarding import draw_small_job
from tests.verify.rules.rails import group, job as recorded


def draw_expert_job(rng: random.Random, switching: Any = "per-circuit") -> om.RailJob:
    """Draw a job in which three GPUs of a rail or more exchange parts of all experts."""
    ep, pp = rng.choice((3, 4, 5, 8)), rng.choice((1, 2))
    model = om.TransformerModel(
        layers=pp, hidden=8, heads=1, sequence=rng.choice((8, 64)), vocabulary=8, ffn=8, experts=ep
    )
    schedule = rng.choice(("gpipe", "1f1b", "dualpipe")) if pp > 1 else "1f1b"
    options: dict[str, Any] = {"schedule": schedule, "ports_per_gpu": rng.choice((1, 1, 2, 3))}
    options["overlap"] = schedule == "dualpipe" and rng.random() < 0.5
    return make_job(
        dp=ep, ep=ep, pp=pp, model=model, batch=4 * ep, micro_batch=1, gpus_per_server=1,
        port_bytes_per_s=10 ** rng.uniform(4, 9), switching=switching, **options,
    )  # fmt: skip


@pytest.mark.parametrize("switching", ["per-circuit", "all-stop"])
@pytest.mark.parametrize("experts", [False, True])
def test_no_plan_is_below_the_bound_and_verify_counts_the_same(
    experts: bool, switching: Any
) -> None:
    higher = 0
    first = 0 if experts else 24  # jobs 24 and 28 have a higher bound if nothing changes
    for number in range(first, first + examples(8 if experts else 5, plain=5)):
        rng = random.Random(f"staying {number}")
        job = draw_expert_job(rng, switching) if experts else draw_small_job(rng, switching)
        if job is None or not can_forward(job):
            continue
        least = job.lower_bound()
        for delay_s in (0.0, 0.1 * least, 0.6 * least, 5 * least):
            changed = job.with_delay(delay_s)
            bound = bound_step(seat_ranks(changed))
            assert bound == pytest.approx(bound_changes(changed), rel=1e-9)
            assert bound >= least * (1 - 1e-9)
            solution = om.solve(changed, "provisioned", seed=0)
            assert bound <= solution.objective * (1 + 1e-9), number
            assert solution.lower_bound == pytest.approx(bound), number
            assert om.verify(changed, solution).ok, number
        assert bound <= ring_s(job.with_delay(1e6), number) * (1 + 1e-9), number
        bound = bound_step(seat_ranks(job.with_delay((0.01 if experts else 1e6) * least)))
        higher += bound > least * (1 + 1e-6)
    assert higher


@pytest.mark.parametrize("switching", ["per-circuit", "all-stop"])
def test_bounds_count_the_hops_between_members_of_a_ring(switching: Any) -> None:
    """Groups of 4 on a ring of 16 GPUs: the ways to the next member are 16 hops together."""
    model = om.TransformerModel(layers=2, hidden=4, heads=4, sequence=1, vocabulary=4, ffn=4)
    job = make_job(
        dp=4, tp=4, model=model, batch=4, gpus_per_server=1, latency_s=1.0, delay_s=3600.0,
        switching=switching,
    )  # fmt: skip
    step = job.step()
    collectives = {
        int(match): 2 * (len(step.groups[group].ranks) - 1)
        for match, group, kind in zip(step.match, step.group, step.kind, strict=True)
        if kind == ALL_REDUCE
    }

    # All collectives take turns on the ring; each of their messages takes 4 hops of 1 s.
    least_s = 4 * sum(collectives.values())
    assert least_s > 1.5 * job.lower_bound()
    assert bound_changes(job) == pytest.approx(bound_step(seat_ranks(job)), rel=1e-9)
    assert least_s <= bound_changes(job) <= ring_s(job, 0) * (1 + 1e-9)


@pytest.mark.parametrize("n_members", [34, 35, 64])
def test_verify_counts_all_to_alls_of_many_members(n_members: int) -> None:
    """From 35 members on there are more ways of many hops than an int64 can count."""
    rows = [[rank, ALL_TO_ALL, 0, 1000, 0, -1, 0] for rank in range(n_members)]
    job = recorded([group(tuple(range(n_members)), "ep")], rows, {"ports_per_gpu": 2})
    bound_s = bound_changes(job)
    assert bound_s == pytest.approx(bound_step(seat_ranks(job)), rel=1e-9)
    assert bound_s > job.lower_bound()


def test_no_plan_that_pools_rails_is_below_the_bound_and_verify_counts_the_same() -> None:
    """Eight GPUs of a rail exchange over the ports of two rails: several hops, or changes."""
    model = om.TransformerModel(
        layers=1, hidden=64, heads=4, sequence=64, vocabulary=100, ffn=128, experts=8
    )
    n_higher = n_pooled = n_claims = 0
    for delay_s in (0.0, 1e-4, 1.0):
        job = make_job(
            dp=8, tp=2, ep=8, model=model, batch=16, micro_batch=1, gpus_per_server=2,
            port_bytes_per_s=1e8, change_rail_s=5e-7, delay_s=delay_s,
        )  # fmt: skip
        bound_s = methods._bound_changes(job)
        for method in ("provisioned", "prefetch"):
            found = om.solve(job, method, seed=0, limits=om.Limits(iterations=300))
            assert bound_s <= found.objective * (1 + 1e-9)
            assert om.verify(job, found).ok
            n_pooled += found.answer.pooled
        n_higher += bound_s > job.lower_bound() * 1.01
        claim = replace(found, lower_bound=max(bound_s, job.lower_bound()) * 1.001)
        if claim.lower_bound < found.objective:
            n_claims += 1
            rules = {violation.rule for violation in om.verify(job, claim).violations}
            assert "the lower bound is supported" in rules
    assert n_higher and n_pooled
    assert n_claims == 3


@pytest.mark.parametrize("n", range(3, 8))
def test_no_stages_are_quicker_than_the_least_time_of_an_exchange(n: int) -> None:
    """All sets of strides, each part on a way of fewest hops, found by breadth first."""
    model = om.TransformerModel(
        layers=1, hidden=8, heads=1, sequence=8, vocabulary=8, ffn=8, experts=n
    )
    job = make_job(
        dp=n, ep=n, model=model, batch=n, gpus_per_server=1, latency_s=0.0, port_bytes_per_s=1e3
    )
    seats = seat_ranks(job)
    node = int(np.flatnonzero(seats.nodes.how == EXCHANGE)[0])
    part_s = seats.nodes.bytes_sent[node] / 1e3 / (n - 1)
    for delay_s in (0.0, part_s / 3, part_s, 3 * part_s, 1e3):
        best = np.inf
        for many in range(1, n):
            for strides in combinations(range(1, n), many):
                far, hops = {0: 0}, 0
                while len(far) < n and hops < n:
                    hops += 1
                    ways = combinations_with_replacement(strides, hops)
                    for way in ways:
                        far.setdefault(sum(way) % n, hops)
                if len(far) == n:
                    best = min(best, sum(far.values()) * part_s + (many - 1) * delay_s)
        found = time_exchanges(seats._replace(job=job.with_delay(delay_s)), delay_s)
        assert found.min() <= best * (1 + 1e-12)
        assert n > 5 or found[0] == pytest.approx(best)


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


def joined_job(joining: list[list[Any]], members: tuple[int, ...], latency_s: float) -> om.RailJob:
    """Return two pairs of GPUs that each have a sum of 4 s, and operations that join them.

    ``joining`` are rows of `recorded` in the group of `members`.
    """
    groups = [
        Group("a", "dp", (0, 1), rail=0),
        Group("b", "dp", (2, 3), rail=0),
        Group("all", "ep", members, rail=0),
    ]
    sums = [[rank, ALL_REDUCE, rank // 2, 4.0, 0, -1, rank // 2] for rank in range(4)]
    rows = sorted(sums + joining, key=lambda row: row[0])
    return recorded(groups, rows, {"delay_s": 99.0, "latency_s": latency_s})


@pytest.mark.parametrize(
    "joining, members",
    [
        ([[rank, ALL_REDUCE, 2, 0.0, 0, -1, 2] for rank in range(4)], (0, 1, 2, 3)),
        ([[1, SEND, 2, 0.0, 0, 2, 2], [2, RECV, 2, 0.0, 0, 1, 2]], (1, 2)),
    ],
    ids=["barrier", "message"],
)
def test_what_takes_no_time_joins_no_rings(
    joining: list[list[Any]], members: tuple[int, ...]
) -> None:
    job = joined_job(joining, members, 0.0)
    assert bound_staying(job) == pytest.approx(4.0)
    assert bound_step(seat_ranks(job)) == pytest.approx(4.0)

    # A plan in which both pairs have circuits of their own takes no longer.
    solution = om.solve(job, seed=0)
    assert solution.lower_bound <= 4.0 * (1 + 1e-9)
    timeline = replace(
        solution.answer.rails[0],
        matchings=np.array([[1, 0, 3, 2]], dtype=np.int32),
        asked_s=np.zeros(1),
        starts_s=np.zeros(1),
    )
    step = job.step()
    answer = replace(
        solution.answer,
        rails=(timeline,),
        start_s=np.zeros(step.n_operations),
        end_s=np.where(step.size_bytes > 0, 4.0, 0.0),
        ports=np.ones(step.n_operations, np.int32),
        relays=np.empty((0, 3), np.int32),
        step_s=4.0,
    )
    report = om.verify(job, answer)
    assert report.ok, report.violations
    assert report.figures["objective"] == 4.0

    # Where it takes a latency it needs a circuit, and both pairs are on one ring.
    assert bound_staying(joined_job(joining, members, 1e-3)) > 8.0
