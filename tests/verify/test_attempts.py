"""Answers and claims that were made to pass, and those that are as good and have to pass."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.kinds import default_method
from optmatch.model import Limit, Status, VerificationError
from optmatch.problems import LoadProof, RoutingProof
from optmatch.problems.sharing.problem import Assignment
from optmatch.problems.sharing.resources import Jobs, Resources
from optmatch.verify.routing.bounds import route_lengths

FEW_SLOTS = om.AllToAll(om.HexMesh(1, 2, ports=[0, 1, 3, 10]))
"""Counting says three slots; a certificate says six."""


def claim(problem: Any, **parts: Any) -> om.Solution:
    """Make a solution that somebody claims to have found."""
    given: dict[str, Any] = {
        "status": Status.FEASIBLE,
        "limit": Limit.EXHAUSTED,
        "lower_bound": -np.inf,
    }
    return om.Solution(problem=problem, method="claimed", **given | parts)


def test_prices_of_too_few_slots_bound_no_schedule_that_is_not_there() -> None:
    prices = om.solve(FEW_SLOTS, seed=0).certificate.prices[0]
    report = om.verify(
        claim(
            FEW_SLOTS,
            status=Status.UNKNOWN,
            limit=Limit.TIME,
            lower_bound=300_000.0,
            certificate=RoutingProof.of_prices(1000 * prices),
        )
    )
    assert "the lower bound is supported" in str(report.violations)


@pytest.mark.parametrize("objective", ["total-cells", "power-mw"])
def test_a_certificate_is_read_whatever_the_objective(objective: Any) -> None:
    mesh = om.HexMesh(1, 1, ports=[0, 1])
    solution = om.solve(om.AllToAll(mesh, objective=objective), seed=0)
    wrong = RoutingProof.of_prices(np.array([1, 2, 3]), infeasible=True)
    report = om.verify(replace(solution, certificate=wrong))
    assert "prices for 3 links" in str(report.violations)


def test_a_method_cannot_answer_another_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = om.Demand.from_matrix([[0, 4, 1], [2, 0, 3], [1, 1, 0]], delay_s=1)
    easier = om.solve(om.Demand.from_matrix([[0, 1, 0], [0, 0, 0], [0, 0, 0]], delay_s=1), seed=0)
    method = default_method(asked)
    monkeypatch.setattr(type(method), "run", lambda *_: easier)
    with pytest.raises(VerificationError, match="the solution is one of this problem"):
        om.solve(asked, method.name, seed=0)


def test_what_is_asked_cannot_be_changed_afterwards() -> None:
    asked = om.Demand.from_matrix([[0, 4, 1], [2, 0, 3], [1, 1, 0]], delay_s=1)
    fabric = om.Benes(4)
    for array in (asked.directed_ticks, fabric.source_terminals, fabric.destination_terminals):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_a_start_whose_bound_nobody_proved_is_improved() -> None:
    problem = om.PortSharing(Resources([[400.0, 400, 800]]), Jobs([2, 1], [[400.0, 400]]))
    nothing = claim(
        problem,
        answer=Assignment([-1, -1, -1]),
        status=Status.OPTIMAL,
        limit=None,
        objective=3.0,
        lower_bound=3.0,
        stats={"bound_by": "search"},
    )
    report = om.verify(nothing)
    assert report.valid and not report.ok
    solution = om.solve(problem, seed=0, start=nothing)
    assert (solution.objective, solution.status) == (0.0, Status.OPTIMAL)


def test_a_proof_of_a_slice_too_large_to_search_proves_nothing() -> None:
    rack = om.RackFabric((8, 8, 8), (1, 1, 1), fibres=4)
    problem = om.SliceAllocation(rack, (8, 8, 8))
    report = om.verify(
        claim(
            problem,
            status=Status.UNKNOWN,
            limit=Limit.NODES,
            lower_bound=4.0,
            certificate=LoadProof(bound=4, cuts=()),
        )
    )
    assert "the lower bound is supported" in str(report.violations)


def test_an_ideal_switch_loses_nothing() -> None:
    problem = om.Routing(om.IdealSwitch(2), [1, 0], objective="loss-db")
    assert om.solve(problem, seed=0).objective == 0.0


def test_an_interposer_has_no_faults_of_its_own() -> None:
    with pytest.raises(om.InputError, match="interposer: one that works"):
        om.RackFabric(
            (1, 1, 2), (1, 1, 1), fibres=1, interposer=om.Faulty(om.Benes(4), stuck_bar=[3])
        )


def test_pooled_circuits_that_change_at_the_beginning_take_their_delay() -> None:
    model = om.TransformerModel(
        layers=4, hidden=1024, heads=8, sequence=128, vocabulary=1000, ffn=4096, experts=8
    )
    network = om.RailNetwork(gpus_per_server=2, delay_s=1e-3, change_rail_s=1e-6)
    job = om.RailJob(
        parallelism=om.Parallelism(dp=8, tp=2, ep=4),
        network=network,
        workload=om.Workload(model=model, batch=8),
    )
    plan = om.solve(job, seed=0).answer
    assert isinstance(plan, om.RailPlan) and plan.pooled
    end_s = float(plan.end_s.max())
    rails = []
    for timeline in plan.rails:
        dark = np.full_like(timeline.matchings, -1)
        times_s = np.array([0.0, 0.0, end_s])
        rails.append(
            replace(
                timeline,
                matchings=np.vstack([dark, timeline.matchings, dark]),
                asked_s=times_s,
                starts_s=times_s,
            )
        )
    late = replace(plan, rails=tuple(rails), step_s=end_s + network.delay_s)
    assert "its circuits are there from start to end" in str(om.verify(job, late).violations)


def test_a_plan_alone_says_nothing_of_cells() -> None:
    problem = om.Collective(
        "all-to-all",
        4,
        4.0,
        alpha_s=1.0,
        rate_bytes_per_s=1.0,
        fabric=om.SquareMesh(1, 1, ports=[0, 1, 2, 3]),
        two_way=True,
    )
    matchings = [[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]
    sends = [[k, r, to[r], r * 4 + to[r], 0] for k, to in enumerate(matchings) for r in range(4)]
    plan = om.CollectivePlan(
        sends=sends,
        chunk_bytes=np.ones(16),
        circuits=[[to] for to in matchings],
        epoch_of_round=[0, 1, 2],
        time_s=6.0,
    )
    report = om.verify(problem, plan)
    assert not report.ok
    assert "light" in str(report.skipped)


def test_gaps_between_many_parts_do_not_add_up() -> None:
    """Each of 10,000 parts lacks less than 1e-12 of the block, and all together 9e-9."""
    n_parts = 10_000
    problem = om.Collective("all-gather", 2, 2.0, rate_bytes_per_s=1.0)
    begins = np.tile(np.arange(n_parts) / n_parts, 2)
    sends = np.repeat([[0, 0, 1, 0, 0], [0, 1, 0, 1, 0]], n_parts, axis=0)
    for gap, is_right in ((0.9e-12, False), (0.0, True)):
        size = 1 / n_parts - gap
        plan = om.CollectivePlan(
            sends=sends,
            chunk_bytes=[1.0, 1.0],
            parts=np.column_stack([begins, np.full(2 * n_parts, size)]),
            circuits=[[[1, 0]]],
            epoch_of_round=[0],
            time_s=size * n_parts,
            among="all",
        )
        assert om.verify(problem, plan).ok == is_right


def test_no_array_of_an_answer_hides_entries_from_comparisons() -> None:
    masked: Any = np.array(np.ma.array([1.0], mask=[True]), subok=True)
    masked.flags.writeable = False
    with pytest.raises(om.InputError, match=r"durations_s\[0\] is masked"):
        om.Schedule(matchings=[[1, 0]], durations_s=masked)


def test_no_array_of_an_answer_can_be_made_writeable() -> None:
    schedule = om.Schedule(matchings=[[1, 0]], durations_s=np.ones(1))
    for array in (schedule.matchings, schedule.durations_s):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True

    # A read-only array whose owner may write again is copied; one of a schedule is not.
    durations_s = np.ones(1)
    durations_s.flags.writeable = False
    copied = om.Schedule(matchings=schedule.matchings, durations_s=durations_s)
    durations_s.flags.writeable = True
    durations_s[0] = 2.0
    assert copied.durations_s.tolist() == [1.0]
    assert copied.matchings is schedule.matchings


def test_lengths_that_are_kept_cannot_be_written() -> None:
    for fabric in (om.HexMesh(1, 1, ports=[0, 1]), om.IdealSwitch(2)):
        with pytest.raises(ValueError, match="read-only"):
            route_lengths(fabric)[0, 1] = 0.0
