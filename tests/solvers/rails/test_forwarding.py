"""Circuits that stay: a naive ring on each rail is never better, at any delay."""

import random

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.rails import choices, forwarding
from tests.helpers.drawn_rails import draw_options
from tests.helpers.modes import examples
from tests.helpers.rails import make_job
from tests.helpers.static_rings import ring_s

DRAWN = examples(60, plain=4)


def draw_small_job(rng: random.Random) -> om.RailJob | None:
    """Draw a job in which data may be forwarded; None if options do not fit each other."""
    options = draw_options(rng)
    options |= {"switching": "per-circuit", "collectives": {}, "fabric": None, "radix": None}
    try:
        job = make_job(**options | {"dp": min(options["dp"], 4)})
        job.lower_bound()
    except om.InputError:
        return None
    return job if any(group.rail >= 0 for group in job.groups()) else None


@pytest.mark.parametrize("part", range(4))
def test_a_static_ring_is_never_better(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_MOST_TRIALS", examples(20_000, plain=1_000))
    better = tried = 0
    for number in range(DRAWN * part // 4, DRAWN * (part + 1) // 4):
        job = draw_small_job(random.Random(f"ring {number}"))
        if job is None:
            continue
        rival_s, tried = ring_s(job, number), tried + 1
        few = om.solve(job, "prefetch", seed=0, limits=om.Limits(iterations=300))
        many = om.solve(job, "prefetch", seed=0)
        assert few.objective is not None
        assert many.objective is not None
        assert many.objective <= few.objective
        assert many.objective <= rival_s * (1 + 1e-9), number
        better += many.objective < rival_s * (1 - 1e-9)
    assert better > tried / 3


@pytest.mark.parametrize("delay_s", [0.01, 1.0])
def test_what_is_forwarded_passes_several_ranks(delay_s: float) -> None:
    model = om.TransformerModel(
        layers=4, hidden=64, heads=4, sequence=256, vocabulary=100, ffn=128, experts=4
    )
    job = make_job(
        dp=4, pp=2, ep=4, model=model, batch=8, micro_batch=1, gpus_per_server=1,
        port_bytes_per_s=1e9, delay_s=delay_s,
    )  # fmt: skip
    found = om.solve(job, "prefetch", seed=0)
    assert isinstance(found.answer, om.RailPlan)
    assert om.verify(job, found).ok
    assert found.stats["reconfigurations"] == 0
    kinds = job.step().kind[found.answer.relays[:, 0]]
    assert len(set(kinds.tolist())) > 1


def test_the_old_name_still_works() -> None:
    job = make_job(dp=2, pp=2, gpus_per_server=1, batch=4, model=om.TransformerModel(
        layers=2, hidden=64, heads=4, sequence=8, vocabulary=100, ffn=128
    ))  # fmt: skip
    old, new = (om.solve(job, method, seed=0) for method in ("ilp", "prefetch"))
    assert (old.objective, old.method) == (new.objective, "ilp")


def test_what_is_planned_for_a_longer_delay_is_right_with_the_delay_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step ends when its last change does, which takes less time than it was planned with."""
    model = om.TransformerModel(
        layers=4, hidden=64, heads=4, sequence=256, vocabulary=100, ffn=128
    )
    job = make_job(
        dp=4, cp=2, model=model, batch=8, micro_batch=1, gpus_per_server=1, delay_s=1e-6,
        port_bytes_per_s=1e9,
    )  # fmt: skip
    go_on = choices.Search.go_on

    def leave_out(self: choices.Search, delay_s: float, left: int, most_work: float) -> None:
        if delay_s > job.network.delay_s:
            go_on(self, delay_s, left, most_work)

    monkeypatch.setattr(choices.Search, "go_on", leave_out)
    plan = forwarding.plan_forwarded(job, 1.0, np.random.default_rng(0))
    assert plan is not None
    assert sum(rail.n_reconfigurations for rail in plan.rails)
    assert om.verify(job, plan).ok
