"""Circuits to different peers on several ports, and rails that hold different circuits."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.solvers.rails.chords import choose_chords, route_over_chords
from optmatch.solvers.rails.pooling import plan_pooled
from tests.helpers.modes import examples, nightly_only
from tests.helpers.pooled_rails import Oracle
from tests.helpers.rails import make_job
from tests.helpers.static_rings import ring_s


def expert_job(**options: Any) -> om.RailJob:
    """Return a job with all-to-alls of 16, or of 4 on each rail of servers of four."""
    model = om.TransformerModel(
        layers=4, hidden=256, heads=4, sequence=512, vocabulary=1000, ffn=512, experts=16,
        active_experts=2,
    )  # fmt: skip
    plain: dict[str, Any] = {
        **{"dp": 16, "ep": 16, "model": model, "batch": 64, "micro_batch": 1},
        **{"gpus_per_server": 1, "port_bytes_per_s": 1e9, "scale_up_bytes_per_s": 9e9},
        **{"delay_s": 0.01},
    }
    return make_job(**plain | options)


def draw_job(rng: random.Random) -> om.RailJob:
    """Draw a job with experts on several ports, or with servers whose rails may differ."""
    dp = rng.choice((4, 6, 8, 16))
    pp = rng.choice((1, 2, 4))
    g = rng.choice([k for k in (1, 2, 4) if dp // k > 1 and dp % k == 0])
    ep = rng.choice([e for e in (1, 4, 6, 8, 16) if dp % e == 0 and (e % g == 0 or e == 1)])
    model = om.TransformerModel(
        layers=2 * pp, hidden=64, heads=4, sequence=rng.choice((64, 512)), vocabulary=100,
        ffn=128, experts=max(ep, 2) if dp % max(ep, 2) == 0 else ep,
    )  # fmt: skip
    return make_job(
        dp=dp, pp=pp, ep=ep, model=model, batch=4 * dp, micro_batch=rng.choice((1, 2)),
        schedule=rng.choice(("1f1b", "gpipe")), zero_stage=rng.choice((0, 1, 3)),
        gpus_per_server=g, ports_per_gpu=rng.choice((1, 2, 3) if g > 1 else (2, 3, 4)),
        port_bytes_per_s=10 ** rng.uniform(7, 9), scale_up_bytes_per_s=9e9,
        delay_s=rng.choice((1e-4, 1e-2, 1.0)), latency_s=rng.choice((0.0, 1e-6)),
        change_rail_s=rng.choice((0.0, 1e-6)) if g > 1 else None,
        switching=rng.choice(("per-circuit", "all-stop")),
    )  # fmt: skip


@pytest.mark.parametrize(("n", "ports"), [(4, 2), (6, 3), (8, 3), (8, 6), (9, 4), (16, 4)])
def test_routes_over_chords_arrive_and_are_balanced(n: int, ports: int) -> None:
    routes = choose_chords(n, ports)
    assert routes is not None and len(routes.strides) == ports
    assert np.array_equal(routes.hops @ np.array(routes.strides) % n, routes.distance)
    assert np.allclose(np.bincount(routes.distance, routes.share)[1:], 1.0)

    # No route is longer than needed by more than one hop, and the ports are nearly equally busy.
    parts = routes.share @ routes.hops
    assert parts.max() == routes.busiest_port_parts
    assert parts.max() <= 1.25 * parts.mean()


def test_chords_of_two_ports_are_not_worse_than_one_ring_of_both() -> None:
    for n in range(3, 20):
        routes = route_over_chords(n, (1, n - 1)) if n > 2 else None
        assert routes is not None
        # Both ways round, parts go on the shorter one: a quarter of n^2 hops in all.
        assert routes.busiest_port_parts == pytest.approx(n * n // 4 / 2, abs=1e-6)


@pytest.mark.parametrize("ports", [2, 4])
def test_all_to_alls_go_over_circuits_that_stay(ports: int) -> None:
    """A ring would carry n / 2 times the bytes, and each change of circuits is a delay."""
    job = expert_job(ports_per_gpu=ports, delay_s=1.0)
    solution = om.solve(job, seed=0, limits=om.Limits(iterations=200))
    assert solution.answer.chords and solution.stats["reconfigurations"] == 0
    assert om.verify(job, solution).valid
    assert solution.objective < 0.6 * ring_s(job, 0)
    oracle = Oracle(job, solution.answer)
    assert not oracle.check() and oracle.n_chord


def test_rails_hold_different_circuits() -> None:
    job = expert_job(pp=2, gpus_per_server=4, change_rail_s=1e-6, delay_s=1.0)
    alone = replace(job, network=replace(job.network, change_rail_s=None))
    few = om.Limits(iterations=200)
    pooled, apart = om.solve(job, seed=0, limits=few), om.solve(alone, seed=0, limits=few)
    assert pooled.answer.pooled and not apart.answer.pooled
    assert pooled.objective < 0.9 * apart.objective
    assert len({timeline.matchings[0].tobytes() for timeline in pooled.answer.rails}) > 1
    assert om.verify(job, pooled).ok
    oracle = Oracle(job, pooled.answer)
    assert not oracle.check() and oracle.n_chord

    # The same plan is none of a job whose data stay on their rails.
    assert not om.verify(alone, pooled.answer).valid


def make_plans(job: om.RailJob) -> Iterator[tuple[str, om.RailPlan]]:
    """Plan a job by each method, and on pooled rails; yield the methods with their plans."""
    for method in ("prefetch", "on-demand", "provisioned", "static"):
        answer = om.solve(job, method, seed=0, limits=om.Limits(iterations=60)).answer
        if answer is not None:
            yield method, answer
    for pooled in plan_pooled(job, np.inf, np.random.default_rng(0), 60):
        yield "pooled", pooled.spelled_out(job.step())


def count_drawn_plans(n_jobs: int) -> Counter[str]:
    """Judge plans of drawn jobs by the verifier and by the oracle, and count them by what they do.

    A static split has operations on different sets of ports.
    """
    counts = Counter[str]()
    for number in range(n_jobs):
        job = draw_job(random.Random(f"chords {number}"))
        for method, plan in make_plans(job):
            assert om.verify(job, plan).valid, (number, method)
            oracle = Oracle(job, plan)
            assert not oracle.check(), (number, method)
            ports = plan.ports[job.step().rail >= 0]
            counts["plans"] += 1
            counts["changes"] += any(line.n_reconfigurations for line in plan.rails)
            counts["forwarding"] += len(plan.relays) > 0
            counts["chords"] += oracle.n_chord > 0
            counts["pooled"] += plan.pooled
            counts["static splits"] += method == "static" and len(np.unique(ports)) > 1
            counts["all-stop"] += job.network.switching == "all-stop"
    return counts


def test_drawn_plans_pass_an_oracle_of_the_tests() -> None:
    counts = count_drawn_plans(examples(12, plain=12))
    assert counts["plans"] > 40 and counts["pooled"] > 3 and counts["chords"] > 2


@nightly_only
def test_five_hundred_plans_of_every_sort_pass_an_oracle_of_the_tests() -> None:
    counts = count_drawn_plans(180)
    assert counts.pop("plans") >= 500
    assert min(counts.values()) >= 50, counts


def test_triggers_keep_the_routes_of_chords() -> None:
    job = expert_job(ports_per_gpu=4, delay_s=1.0)
    plan = om.solve(job, seed=0, limits=om.Limits(iterations=100)).answer
    assert derive_triggers(job, plan).chords == plan.chords
