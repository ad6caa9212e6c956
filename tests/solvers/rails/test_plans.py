"""Plans of rail jobs: times of policies, folded steps, lanes, switches with cells."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.model import Status
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import ALL_REDUCE, RECV, SEND, Group, Step
from optmatch.problems.rails.training.times import ends_s
from optmatch.solvers.frame import meets_bound
from optmatch.solvers.rails import choices, forwarding, methods
from optmatch.solvers.rails.fold import fold
from optmatch.solvers.rails.policies import plan_programs, share_lanes, usual_lanes
from optmatch.solvers.rails.seats import seat_ranks
from optmatch.solvers.rails.transfers import fold_transfers
from tests.helpers.modes import some
from tests.helpers.rails import (
    change_job,
    make_job,
    random_jobs,
    small_job,
)
from tests.verify.rules.rails import ABOVE, BELOW, TWO_WAYS, rerouted

POLICIES = ("on-demand", "provisioned")
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plan_of(job: om.RailJob, method: str) -> RailPlan:
    """Solve a job, and return its plan."""
    answer = om.solve(job, method, seed=0).answer
    assert isinstance(answer, RailPlan)
    return answer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay_s": 1e12}, "of a step of .* s, and times have no digits for that"),
        ({"delay_s": 1e308}, r"delay_s = 1e\+308: from 0 to 1e\+12"),
        ({"port_bytes_per_s": 1e-320}, "lasts inf s, at most 1e\\+12 s are expected"),
    ],
)
def test_times_beyond_all_digits_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        plan_of(small_job(2, 2, 2, **options), "provisioned")


@pytest.mark.parametrize("method", ["provisioned", "prefetch"])
def test_rounds_of_a_collective_beyond_all_digits_are_refused(method: str) -> None:
    """The all-reduce lasts several delays, its data too little beside them."""
    job = small_job(8, 1, 1, delay_s=1e12, switching="all-stop", collectives={"dp": "halving"})
    with pytest.raises(om.InputError, match=r"without changes, .* no digits"):
        plan_of(job, method)


@pytest.mark.parametrize("method", ["provisioned", "on-demand"])
def test_what_is_short_beside_the_delay_is_seen(method: str) -> None:
    job = small_job(2, 2, 2, delay_s=1e3)
    shortest_s = float(job.events().duration_s.min())
    assert plan_of(job, method).step_s * 1e-9 > shortest_s


@pytest.mark.parametrize("method", ["prefetch", "provisioned", "on-demand"])
def test_a_message_of_no_time_leaves_its_port_to_the_next_one(method: str) -> None:
    """Rank 0 sends nothing to rank 2, then rank 1 sends to it: both at 0 s, as changes are free.

    Before, the circuits of both stood in one matching.
    """
    columns: dict[str, Any] = {
        "rank": [0, 1, 2, 2],
        "kind": [SEND, SEND, RECV, RECV],
        "group": [0] * 4,
        "size_bytes": [0, 1000, 0, 1000],
        "duration_s": [0] * 4,
        "peer": [2, 2, 0, 1],
        "match": [0, 1, 0, 1],
        "dep_start": [0, 0, 0, 0, 1],
        "dep": [2],
    }
    step = Step(groups=(Group("pp.0", "pp", (0, 1, 2), rail=0),), **columns)
    job = make_job(gpus_per_server=1, delay_s=0.0, latency_s=0.0, recorded=step)
    assert om.solve(job, method, seed=0).status is Status.OPTIMAL


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("delay_s", [0.0, 1e-4, 1e-2, 1.0])
def test_switches_that_stop_as_a_whole(policy: str, delay_s: float) -> None:
    job = small_job(2, 2, 2, delay_s=delay_s, switching="all-stop")
    gentle = plan_of(change_job(job, switching="per-circuit"), policy)
    assert gentle.step_s <= plan_of(job, policy).step_s * (1 + 1e-12)


@pytest.mark.parametrize(
    ("policy", "port_bytes_per_s"), [("on-demand", 1e5), ("provisioned", 1e6)]
)
def test_a_rail_that_stops_for_no_circuit_has_a_state_for_it(
    policy: str, port_bytes_per_s: float
) -> None:
    """A stage turns from one neighbour to the other while neither faces it: sends rest, too."""
    options: dict[str, Any] = {"delay_s": 1e-3, "batch": 16, "micro_batch": 1}
    job = small_job(1, 1, 6, switching="all-stop", port_bytes_per_s=port_bytes_per_s, **options)
    assert om.solve(job, policy, seed=0).status is Status.FEASIBLE


def test_what_starts_together_is_asked_for_by_the_first() -> None:
    draft = plan_programs(fold_transfers(small_job(2, 2, 2, delay_s=1e-3)), "on-demand")
    turned = np.flatnonzero(draft.turn_s >= 0)
    asked_s = draft.asked_s.copy()
    asked_s[turned] = draft.turn_s[turned] + np.arange(len(turned))[::-1]
    asked: dict[float, float] = {}
    for at, when in zip(draft.turn_s[turned].tolist(), asked_s[turned].tolist(), strict=True):
        asked[at] = min(asked.get(at, when), when)
    assert len(asked) < len(turned)
    for timeline in draft._replace(asked_s=asked_s).build().rails:
        assert timeline.n_reconfigurations
        for at, when in zip(timeline.starts_s[1:], timeline.asked_s[1:], strict=True):
            assert when == asked[at]


@pytest.mark.parametrize("method", [*POLICIES, "prefetch"])
def test_programs_that_contradict_each_other_are_served_by_time(method: str) -> None:
    model = om.TransformerModel(layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128)
    job = small_job(
        2, 1, 2, schedule="interleaved", virtual_stages=2, zero_stage=2,
        batch=8, micro_batch=1, delay_s=1e-3, model=model,
    )  # fmt: skip
    solution = om.solve(job, method, seed=0)
    assert solution.objective is not None


def test_splitting_ports_needs_no_change() -> None:
    job = small_job(2, 1, 2, ports_per_gpu=2, delay_s=10.0)
    static = om.solve(job, "static", seed=0)
    assert static.stats["reconfigurations"] == 0
    best = om.solve(job, "prefetch", seed=0)
    assert best.objective <= static.objective
    assert static.objective < om.solve(job, "on-demand", seed=0).objective


@pytest.mark.parametrize("method", ["prefetch", "provisioned", "on-demand", "static"])
def test_a_first_plan_comes_out_of_any_limit(method: str) -> None:
    """A limit that is over before anything was planned gives a plan all the same."""
    job = small_job(2, 1, 2, ports_per_gpu=2, delay_s=10.0)
    found = om.solve(job, method, seed=0, time_limit_s=1e-9)
    assert found.status in (Status.FEASIBLE, Status.OPTIMAL)


@pytest.mark.parametrize("change_rail_s", [None, 1e-5])
def test_a_search_that_ends_by_itself_has_not_reached_the_time(change_rail_s: Any) -> None:
    """The plan is that without a limit, and nobody is told that more time might help."""
    job = small_job(4, 2, 2, delay_s=0.1, change_rail_s=change_rail_s)
    limited = om.solve(job, seed=0, time_limit_s=1e4)
    assert limited.status is Status.FEASIBLE
    assert limited.limit is om.Limit.EXHAUSTED
    assert limited.objective == om.solve(job, seed=0).objective


@pytest.mark.parametrize(("above", "ends"), [(4e-10, True), (7e-10, False)])
def test_a_search_ends_only_at_a_step_that_its_bound_proves(above: float, ends: bool) -> None:
    """Delays of 1e-9 of the step count: what is not proved can still become better."""
    seats = seat_ranks(small_job(2, 1, 2))
    search = choices.Search(seats, np.random.default_rng(0), 0.0, np.inf)
    search.best_s = search.bound_s * (1 + above)
    assert search._is_done(np.inf) is ends
    assert meets_bound(search.best_s, search.bound_s) is ends


@pytest.mark.parametrize("change_rail_s", [None, 1e-5])
def test_a_search_that_is_cut_by_its_iterations_says_so(change_rail_s: Any) -> None:
    """More iterations might help; those that are never needed cut nothing."""
    job = small_job(4, 2, 2, delay_s=0.1, change_rail_s=change_rail_s)
    for iterations in (0, 1, 5):
        found = om.solve(job, "prefetch", seed=0, limits=om.Limits(iterations=iterations))
        assert found.limit is om.Limit.ITERATIONS
    found = om.solve(job, "prefetch", seed=0, limits=om.Limits(iterations=10**9))
    assert found.limit is om.Limit.EXHAUSTED


@pytest.mark.parametrize("change_rail_s", [None, 1e-5])
@pytest.mark.parametrize(
    ("module", "speed"),
    [
        (methods, "_DRAFTED_PER_S"),
        (forwarding, "_PLANNED_PER_S"),
        (choices, "_RELAYS_PER_S"),
    ],
)
def test_what_is_left_out_for_lack_of_time_is_told(
    monkeypatch: pytest.MonkeyPatch, module: Any, speed: str, change_rail_s: Any
) -> None:
    """Drafts, searches and plans that would take longer than the time that is left."""
    monkeypatch.setattr(module, speed, 1e-6)
    job = small_job(4, 2, 2, delay_s=0.1, change_rail_s=change_rail_s)
    assert om.solve(job, seed=0, time_limit_s=1e4).limit is om.Limit.TIME


@pytest.mark.parametrize("most_uses_first", [0, 200_000])
def test_a_plan_beyond_the_limit_is_the_first_alone(
    monkeypatch: pytest.MonkeyPatch, most_uses_first: int
) -> None:
    monkeypatch.setattr(methods, "_MOST_USES_FIRST", most_uses_first)

    def no_further_rule(*_: object) -> None:
        raise AssertionError("a further rule is drawn though the time is up")

    monkeypatch.setattr(methods, "plan_programs", no_further_rule)
    found = om.solve(small_job(4, 1, 2, delay_s=0.1), seed=0, time_limit_s=1e-9)
    assert found.limit is om.Limit.TIME
    assert found.status is Status.FEASIBLE


def test_a_split_needs_a_port_for_each_kind_of_circuit() -> None:
    """One port cannot hold a ring and a pipeline: there is no static plan, and it says why."""
    found = om.solve(small_job(2, 1, 2), "static", seed=0)
    assert found.status is Status.UNKNOWN
    assert "kinds of circuits" in found.stats["reason"]


@given(st.lists(st.floats(1.0, 1e12), min_size=1, max_size=5), st.integers(1, 9))
def test_lanes_are_shared_by_the_root_of_traffic(traffic: list[float], lanes: int) -> None:
    shares = share_lanes(traffic, lanes)
    if len(traffic) > lanes:
        assert shares is None
        return
    assert shares is not None
    assert sum(shares) == lanes
    assert min(shares) >= 1
    for one, a in zip(shares, traffic, strict=True):
        for two, b in zip(shares, traffic, strict=True):
            assert one <= two or a >= b


def test_rails_that_are_alike_have_the_same_seats() -> None:
    """Three stages of four replicas on two rails: a seat has a rank on each rail."""
    seats = seat_ranks(small_job(4, 2, 3))
    assert seats.n_seats == 12
    assert (np.bincount(seats.folded.class_of) == 2).all()
    assert [alike.rails for alike in seats.rails] == [(0, 1)]


@relaxed
@given(random_jobs())
def test_ranks_that_are_folded_end_alike(job: om.RailJob) -> None:
    """The operations of all ranks of a seat end when those of its first rank do."""
    step = job.step()
    folded = seat_ranks(job).folded
    ends = ends_s(job.events())[job.events().event_of]
    for rank, first in enumerate(folded.like.tolist()):
        own = slice(step.rank_start[rank], step.rank_start[rank + 1])
        like = slice(step.rank_start[first], step.rank_start[first + 1])
        np.testing.assert_allclose(ends[own], ends[like])


def test_a_rank_that_differs_is_not_folded() -> None:
    job = small_job(dp=4, tp=1, pp=2)
    step = job.step()
    duration = step.duration_s.copy()
    duration[step.rank_start[2]] *= 2
    changed = make_job(gpus_per_server=1, recorded=replace(step, duration_s=duration))
    found = fold(changed, [b""] * 8)
    alone = found.class_of == found.class_of[2]
    assert alone.sum() == 1
    assert (found.class_of == found.class_of[6]).sum() == 1  # it gets its messages
    assert len(set(found.class_of[[0, 1, 3]])) == 1


@pytest.mark.parametrize("switching", ["all-stop", "per-circuit"])
@pytest.mark.parametrize("method", ["on-demand", "provisioned", "prefetch"])
def test_a_rank_has_ports_on_several_rails(method: str, switching: str) -> None:
    """Three ranks communicate in pairs, over a ring of two rails: both have circuits to change."""
    pairs = ((0, 1), (0, 1), (0, 2), (1, 2))
    groups = tuple(
        Group(f"dp.{k}", "dp", ranks, rail=rail)
        for k, (ranks, rail) in enumerate(zip(pairs, (0, 1, 1, 0), strict=True))
    )
    of_rank = [[k for k, ranks in enumerate(pairs) if rank in ranks] for rank in range(3)]
    group = [number for numbers in of_rank for number in numbers]
    columns: dict[str, Any] = {
        "rank": [rank for rank, numbers in enumerate(of_rank) for _ in numbers],
        "kind": [ALL_REDUCE] * 8,
        "group": group,
        "size_bytes": [8.0] * 8,
        "duration_s": [0.0] * 8,
        "peer": [-1] * 8,
        "match": group,
        "dep_start": [0] * 9,
        "dep": [],
    }
    job = make_job(
        gpus_per_server=1,
        recorded=Step(groups=groups, **columns),
        delay_s=1e-3,
        switching=switching,
    )
    plan = plan_of(job, method)
    assert [timeline.rails for timeline in plan.rails] == [(0,), (1,)]
    assert all(timeline.n_reconfigurations for timeline in plan.rails)


def test_pipelines_share_lanes_only_where_they_must() -> None:
    two, three = (fold_transfers(small_job(1, 1, pp, ports_per_gpu=2)) for pp in (2, 3))
    assert set(usual_lanes(two)[two.rides].tolist()) == {0b11}
    assert set(usual_lanes(three)[three.rides].tolist()) == {0b01, 0b10}


@pytest.mark.parametrize(
    "fabric",
    [
        om.Benes(8),
        om.Crossbar(8),
        om.HexMesh(7, 7, tx=8, rx=8),
        om.HexMesh(5, 5, ports=8),
    ],
)
def test_states_of_cells_are_found_for_every_matching(fabric: om.Fabric) -> None:
    """On fabrics with cells a plan says how the light goes, and the verifier traces it."""
    job = small_job(2, 1, 2, fabric=fabric, ports_per_gpu=2, delay_s=1e-3)
    found = om.solve(job, "provisioned", seed=0)
    assert isinstance(found.answer, RailPlan), found.stats
    states = found.answer.rails[0].cell_states
    assert states is not None
    assert states.shape[1] == fabric.n_cells


def test_bidirectional_ports_come_in_twos() -> None:
    """A ring of one port does not exist there; the refusal names the number of ports."""
    job = small_job(2, 1, 2, fabric=om.HexMesh(5, 5, ports=8))
    with pytest.raises(om.InputError, match="ports_per_gpu = 1"):
        om.solve(job, "provisioned", seed=0)


def check_rings(
    matching: NDArray[np.int32], members: int, ports: int, *, two_way: bool = False
) -> None:
    """Each port number, or each even one if circuits are two-way, leads once round all members."""
    for port in range(0, ports, 1 + two_way):
        met, member = [], 0
        for _ in range(members):
            met.append(member)
            receiver = int(matching[member * ports + port])
            assert receiver % ports == port + two_way
            member = receiver // ports
        assert member == 0
        assert sorted(met) == list(range(members))


@pytest.mark.parametrize("members", [2, 3, 5, 8])
@pytest.mark.parametrize("ports", [1, 2, 3, 8])
def test_each_port_holds_a_ring_of_all_members(members: int, ports: int) -> None:
    plan = plan_of(small_job(members, 1, 1, ports_per_gpu=ports), "provisioned")
    (matching,) = np.unique(plan.rails[0].matchings, axis=0)
    check_rings(matching, members, ports)


@pytest.mark.parametrize("fabric", [om.Crossbar(20), om.Benes(20), om.HexMesh(9, 9, ports=20)])
def test_rings_on_a_fabric_with_cells(fabric: om.Fabric) -> None:
    plan = plan_of(small_job(5, 1, 1, fabric=fabric, ports_per_gpu=4), "provisioned")
    (timeline,) = plan.rails
    assert timeline.cell_states is not None
    (matching,) = timeline.matchings
    check_rings(matching, 5, 4, two_way=fabric.bidirectional)


EXPERTS = om.TransformerModel(
    layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128, experts=8, active_experts=2
)


ALL_TO_ALLS = product([1, 2, 3, 8], [0.0, 1e-6, 1e-2], ["per-circuit", "all-stop"], [1, 2])


@pytest.mark.parametrize("method", ["static", "on-demand", "provisioned", "prefetch"])
@pytest.mark.parametrize(("ports", "delay_s", "switching", "pp"), some(ALL_TO_ALLS, 5))
def test_all_to_alls_of_experts(
    ports: int, delay_s: float, switching: str, pp: int, method: str
) -> None:
    options: dict[str, Any] = {"ports_per_gpu": ports, "delay_s": delay_s, "switching": switching}
    job = small_job(4, 2, pp, ep=4, model=EXPERTS, micro_batch=1, batch=8, **options)
    found = om.solve(job, method, seed=0)  # refuses what the verifier refuses
    if method == "static":
        assert found.stats.get("reconfigurations", 0) == 0
    elif delay_s == 0.0 and ports < 8:  # nothing is gained by going around
        assert found.stats["reconfigurations"] > 0


def test_a_model_that_is_settled_as_it_is_loaded_does_not_end_the_process() -> None:
    """CP-SAT 9.15 aborted on this job when four workers began at once."""
    model = om.TransformerModel(
        layers=4, hidden=1024, heads=8, sequence=512, vocabulary=32000, ffn=4096
    )
    job = om.RailJob(
        parallelism=om.Parallelism(dp=2, tp=2, pp=2),
        network=om.RailNetwork(gpus_per_server=2, delay_s=0.01),
        workload=om.Workload(model=model, batch=4, micro_batch=1),
    )
    solution = om.solve(job, "ilp", seed=0)
    assert om.verify(job, solution).valid


@pytest.mark.parametrize(
    ("starts_s", "states", "interrupts"),
    [
        ([0, 4, 12], [ABOVE, BELOW, ABOVE], True),
        ([0, 4, 12], [ABOVE, ABOVE, ABOVE], False),
        ([0, 0, 9], [ABOVE, BELOW, ABOVE], False),
        ([0, 0.5, 9], [ABOVE, BELOW, ABOVE], True),
        ([0, 0, 8.5], [ABOVE, BELOW, ABOVE], True),
    ],
)
def test_no_route_changes_under_data(starts_s: Any, states: Any, interrupts: bool) -> None:
    """A message goes from 1 to 9 s, and circuits are up one second after a change."""
    plan = rerouted(starts_s, states, 13.0)
    found = methods._interrupts(TWO_WAYS, plan, plan.rails[0], np.array(states, dtype=np.int8))
    assert found == interrupts
