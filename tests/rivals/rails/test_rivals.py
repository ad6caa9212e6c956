"""Rivals reproduce their known figures, and small cells of the grid are raced."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.rails import forwarding
from tests.helpers.modes import nightly_only
from tests.helpers.rails import change_job, make_job
from tests.rivals.races import TOLERANCE
from tests.rivals.rails import changing, layouts
from tests.rivals.rails.grid import draw_cells, race
from tests.rivals.rails.optimum import best_changing_s, best_ring_s

MODEL = om.TransformerModel(
    layers=8, hidden=2048, heads=16, sequence=2048, vocabulary=32000, ffn=8192
)


def test_a_forwarded_ring_reproduces_its_known_figure() -> None:
    job = make_job(
        dp=32, zero_stage=3, shard=16, gpus_per_server=8, model=MODEL, batch=64, micro_batch=1,
        delay_s=0.01, switching="all-stop",
    )  # fmt: skip
    assert layouts.forwarded_ring_s(job) == pytest.approx(58.0e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("n", "strides", "busiest"), [(8, (1, 2, 3, 4, 5, 6, 7), 1), (64, (1, 8), 224), (8, (1,), 28)]
)
def test_parts_are_counted_on_ways_of_fewest_hops(
    n: int, strides: tuple[int, ...], busiest: int
) -> None:
    assert max(layouts.count_parts(n, strides)) == busiest


def test_circuits_change_as_soon_as_ports_are_free() -> None:
    """A step in which a circuit changes and changes back lasts two delays at least."""
    model = om.TransformerModel(layers=2, hidden=64, heads=4, sequence=64, vocabulary=100, ffn=256)
    job = make_job(dp=2, pp=2, gpus_per_server=1, model=model, batch=4, micro_batch=1, delay_s=0.0)
    free_s = changing.changing_s(job)
    assert free_s >= job.lower_bound() * (1 - 1e-9)
    late_s = changing.changing_s(change_job(job, delay_s=job.lower_bound()))
    assert late_s >= 2 * job.lower_bound() * (1 - 1e-9)


@nightly_only
@pytest.mark.slow
def test_the_best_step_with_changes_is_nearly_found() -> None:
    """CP-SAT, which plans straight circuits that change, finds no step that is 0.1 % better."""
    model = om.TransformerModel(
        layers=2, hidden=512, heads=4, sequence=1024, vocabulary=1000, ffn=2048
    )
    job = make_job(
        dp=2, pp=2, model=model, gpus_per_server=1, batch=4, micro_batch=1, efficiency=0.5
    )
    job = change_job(job, delay_s=0.01 * job.lower_bound())
    greedy_s = changing.changing_s(job)
    ours_s = om.solve(job, seed=0, limits=om.Limits(iterations=6_000)).objective
    assert ours_s <= best_changing_s(job, greedy_s * 1.001, effort=3.0) * 1.001


@nightly_only
def test_no_rival_is_much_better_on_small_jobs() -> None:
    """Up to 5 % is what a search of so few trials may miss."""
    cells = draw_cells(np.random.default_rng(1), 60, most_gpus=16)
    lost = [each for each in map(race, cells) if each.loss > 5 * TOLERANCE]
    assert not lost, lost


@nightly_only
@pytest.mark.slow
def test_the_best_step_over_rings_that_stay_is_nearly_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CP-SAT, with all rings of four GPUs, finds no step that is 0.1 % better.

    It searches for steps that are shorter than the best one of a simple simulation of the same
    rings, in which communications start when they are ready. It has to find one: a model without
    solutions would find nothing that is better than ours either.
    """
    model = om.TransformerModel(
        layers=4, hidden=512, heads=4, sequence=1024, vocabulary=1000, ffn=2048,
        experts=2, active_experts=2,
    )  # fmt: skip
    job = make_job(
        dp=2, pp=2, ep=2, schedule="zb-h1", model=model, gpus_per_server=1, batch=8, micro_batch=1,
        delay_s=1000.0, efficiency=0.5,
    )  # fmt: skip
    simulated_s = layouts.forwarded_ring_s(job)
    rival_s = best_ring_s(job, simulated_s, effort=2.0)
    assert rival_s < 0.98 * simulated_s

    # Tests search less than users do, unless they say so.
    monkeypatch.setattr(forwarding, "_MOST_TRIALS", 30_000)
    ours_s = om.solve(job, seed=4).objective
    assert ours_s <= rival_s * 1.001


@pytest.mark.parametrize(
    "options",
    [
        {"dp": 8, "tp": 8, "cp": 2, "zero_stage": 3, "schedule": "gpipe", "gpus_per_server": 4,
         "batch": 16, "delay_s": 1e-5, "latency_s": 0.0},
        {"dp": 8, "pp": 4, "cp": 2, "ep": 8, "schedule": "zb-h1", "gpus_per_server": 2, "batch": 8,
         "delay_s": 3.4e-6, "latency_s": 5e-7, "ports_per_gpu": 2},
    ],
)  # fmt: skip
def test_circuits_change_where_nobody_forwards(options: dict[str, Any]) -> None:
    """Circuits straight from member to member, or messages on all ports, saved 2 and 3.6 %."""
    n_experts = options.get("ep", 1)
    model = om.TransformerModel(
        layers=options.get("pp", 1), hidden=512, heads=4, sequence=1024, vocabulary=1000, ffn=2048,
        experts=n_experts, active_experts=min(n_experts, 2),
    )  # fmt: skip
    job = make_job(
        **options, model=model, micro_batch=1, efficiency=0.5, change_rail_s=5e-7, spanning="rings"
    )
    ours_s = om.solve(job, seed=0, limits=om.Limits(iterations=300)).objective
    assert ours_s <= changing.changing_s(job) * (1 + TOLERANCE)


def test_a_search_also_finds_the_order_that_saves_a_change() -> None:
    """With three groups of each rank and a port, hastes that are drawn save one delay of ten."""
    model = om.TransformerModel(
        layers=2, hidden=512, heads=4, sequence=1024, vocabulary=1000, ffn=2048
    )
    job = make_job(
        dp=4, tp=2, cp=2, zero_stage=1, schedule="gpipe", fsdp="fsdp2", model=model, batch=4,
        micro_batch=1, gpus_per_server=1, latency_s=5e-7, delay_s=7.58e-6, spanning="rings",
    )  # fmt: skip
    ours = om.solve(job, seed=0, limits=om.Limits(iterations=6_000))
    assert om.verify(job, ours).valid
    assert ours.objective <= changing.changing_s(job) * (1 + 1e-9)
