"""The replay of collectives agrees with real numbers, and sees whatever is changed."""

import time
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import optmatch as om
from optmatch.problems.collectives.fields import OPERATIONS
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.verify.collectives import replay as sums
from optmatch.verify.report import Findings
from tests.helpers.collectives import compute
from tests.verify.rules import claim

COSTS: dict[str, Any] = {"alpha_s": 1e-6, "rate_bytes_per_s": 1e9, "delay_s": 1e-5}


def solved(operation: Any, n: int, method: str, **fields: Any) -> tuple[Any, Any, Any]:
    """Return a problem, its solution and the plan."""
    problem = om.Collective(operation, n, 6400.0, **(COSTS | fields))
    solution = om.solve(problem, method, seed=0)
    return problem, solution, solution.answer


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("most_bytes", [1, 1 << 28])
def test_the_replay_agrees_with_real_numbers(
    operation: str, n: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "MOST_BYTES", most_bytes)
    rng = np.random.default_rng(n)
    for method in ("ring", "bruck"):
        problem, _, plan = solved(operation, n, method)
        assert compute(problem, plan)
        assert om.verify(problem, plan).ok
        for row in rng.integers(0, len(plan.sends), 5 if len(plan.sends) else 0):
            fewer = replace(plan, sends=np.delete(plan.sends, row, axis=0))
            rules = {violation.rule for violation in om.verify(problem, fewer).violations}
            broken = any("has it" in rule or "in the end" in rule for rule in rules)
            assert broken == (not compute(problem, fewer))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sends", [[0, 1]], "sends has 2 columns, not 5"),
        ("sends", [[1, 0, 1, 0, 0], [0, 1, 2, 0, 0]], "sends: other rows given, rows that ascend"),
        ("links", [[-1, 0, 1]], r"links\[0, 0\] = -1: must be >= 0"),
        ("shares_bytes", [[1.0]], r"start_s: \(0, 0\) given, shape \(1, 1\) expected"),
        ("time_s", -1.0, "time_s = -1: must be >= 0"),
        ("n_rounds_late", 0.5, "n_rounds_late = 0.5: not a whole number"),
    ],
)
def test_what_is_no_plan_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.CollectivePlan(**{name: value})


@pytest.mark.parametrize(
    ("sends", "places"),
    [
        ([[0, 0, 1, REDUCE]], [3, 0]),
        ([[0, 0, 1, REDUCE], [0, 0, 1, COPY]], [0, 0]),
        ([[0, 0, 1, REDUCE]], [0, 2]),
        ([[0, 0, 1, REDUCE], [1, 0, 1, REDUCE]], [0, 0]),
        ([[0, 0, 1, REDUCE]], [0, 0]),
    ],
)
@pytest.mark.parametrize("chunks", [[0, 1], [1]])
@pytest.mark.parametrize("most_bytes", [1, 1 << 28])
def test_the_first_wrong_chunk_is_told(
    sends: Any, places: Any, chunks: Any, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is, alone, whether chunks are replayed together or one by one."""
    monkeypatch.setattr(sums, "MOST_BYTES", most_bytes)
    right = [[2, 0, 1, 0, REDUCE], [2, 1, 0, 0, REDUCE]][: 2 * (chunks == [1])]
    wrong = [[turn, *ends, chunk, kind] for turn, *ends, kind in sends for chunk in chunks]
    plan = om.CollectivePlan(
        sends=np.array(wrong + right),
        places=np.array([places] * len(wrong) + [[0, 0]] * len(right)),
        chunk_bytes=np.ones(2),
    )
    findings = Findings()
    sums.check_sums(om.Collective("all-reduce", 2, 2.0), plan, findings)
    (violation,) = findings.violations
    assert f"chunk {chunks[0]}" in violation.where


def test_a_place_with_a_huge_number_takes_no_memory() -> None:
    problem, _, plan = solved("all-reduce", 4, "ring")
    places = np.zeros((len(plan.sends), 2), dtype=np.int32)
    places[3, 1] = np.iinfo(np.int32).max
    (violation,) = om.verify(problem, replace(plan, places=places)).violations
    assert violation.rule == "nothing is added to an empty place"


def test_whose_claims_are_of_whole_blocks() -> None:
    problem, solution, plan = solved("all-gather", 3, "ring")
    note = "the claims are of plans that send whole blocks"
    for among in ("all", "whole-blocks"):
        said = replace(solution, answer=replace(plan, among=among))
        assert (note in om.verify(problem, said).notes) == (among == "whole-blocks")


def test_a_large_collective_is_replayed_at_once() -> None:
    """An all-reduce of 256 ranks: 130,560 sends, each onto a set of 256 ranks."""
    problem = om.Collective("all-reduce", 256, 1e9, alpha_s=1e-6)
    plan = om.solve(problem, "ring", seed=0).answer
    started = time.process_time()
    assert om.verify(problem, plan).ok
    assert time.process_time() - started < 3.0


def test_only_ranks_that_exchange_data_have_to_be_joined() -> None:
    """All circuits of rank 0 are over their budget; an uneven all-to-all may do without them."""
    losses_db = [[9, 9, 9], [9, 1, 1], [9, 1, 1]]
    switch = om.IdealSwitch(3, loss_db=losses_db, budget_db=3.0)
    uneven = om.Collective(
        "all-to-all",
        3,
        0.0,
        demand_bytes=[[0, 0, 0], [0, 0, 1], [0, 1, 0]],
        fabric=switch,
        **COSTS,
    )
    report = om.verify(uneven, om.solve(uneven, seed=0))
    assert report.ok
    assert report.figures["lower_bound_recomputed"] == uneven.lower_bound() < np.inf
    even = om.Collective("all-to-all", 3, 2.0, fabric=switch, **COSTS)
    report = om.verify(even, om.solve(even, seed=0))
    assert report.ok
    assert report.figures["lower_bound_recomputed"] == np.inf
    joined = om.Collective("all-to-all", 3, 2.0, fabric=om.IdealSwitch(3), **COSTS)
    report = om.verify(joined, om.solve(joined, seed=0))
    assert report.figures["lower_bound_recomputed"] == joined.lower_bound() < np.inf


def test_a_schedule_with_a_slot_too_many_is_refused() -> None:
    problem = om.Collective("all-to-all", 3, 2.0, fabric=om.IdealSwitch(3), **COSTS)
    solution = om.solve(problem, seed=0)
    slots: Any = solution.schedule
    longer = replace(
        slots,
        matchings=np.vstack([slots.matchings, slots.matchings[-1:]]),
        durations_s=np.append(slots.durations_s, 1.0),
    )
    report = om.verify(problem, replace(solution, schedule=longer))
    assert [v.rule for v in report.violations] == ["the schedule has the circuits of the plan"]


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("operation", ["broadcast", "all-gather"])
def test_ranks_that_no_circuits_reach_are_found(operation: Any, two_way: bool) -> None:
    """Two ports a rank, data over several circuits; against a search in a graph of all ranks."""
    rng = np.random.default_rng(5)
    answers = set[bool]()
    for root in rng.integers(5, size=40).tolist():
        more: dict[str, Any] = {"root": root} if operation == "broadcast" else {}
        is_over = rng.random((10, 10)) > 0.15
        switch = om.IdealSwitch(10, loss_db=1.0 + is_over, budget_db=1.5)
        problem = om.Collective(
            operation, 5, 8.0, ports=2, two_way=two_way, fabric=switch, **COSTS, **more
        )
        graph = nx.DiGraph()
        graph.add_nodes_from(range(5))
        for source, destination in np.argwhere(~is_over).tolist():
            if two_way or source % 2 == destination % 2:
                graph.add_edge(source // 2, destination // 2)
        is_cut_off = not nx.is_strongly_connected(graph)
        if operation == "broadcast":
            is_cut_off = len(nx.descendants(graph, root) | {root}) < 5
        figures = om.verify(problem, claim(problem)).figures
        assert (figures["lower_bound_recomputed"] == np.inf) == is_cut_off
        answers.add(is_cut_off)
    assert answers == {False, True}


def test_cuts_a_hair_apart_do_not_add_up_to_bytes_that_nobody_sends() -> None:
    """Each empty part begins a billionth of its chunk after the one before, 20,000 times."""
    n_parts = 20_000
    problem = om.Collective("all-gather", 2, 2.0, rate_bytes_per_s=1.0)
    begins = 0.999e-9 * np.arange(1, n_parts + 1)
    parts = [*([begin, 0.0] for begin in begins.tolist()), [2e-5, 1 - 2e-5]]
    plan = om.CollectivePlan(
        sends=[[0, rank, 1 - rank, rank, COPY] for rank in (0, 1) for _ in parts],
        parts=parts * 2,
        chunk_bytes=[1.0, 1.0],
        circuits=[[[1, 0]]],
        epoch_of_round=[0],
        time_s=1 - 2e-5,
    )
    rules = {violation.rule for violation in om.verify(problem, plan).violations}
    assert "in the end every rank has what it wants" in rules


@pytest.mark.parametrize("shares", [[[6.0]], [[3.0, 3.0]]])
def test_hops_inside_a_round_take_their_time_on_all_planes(shares: Any) -> None:
    """The longest route has three hops of 10 s each, whether planes have shares or not."""
    ring = [1, 2, 3, 0]
    sends = [[0, rank, (rank + far) % 4, rank, COPY] for rank in range(4) for far in (1, 2, 3)]
    links = [
        [send, (rank + hop) % 4, (rank + hop + 1) % 4]
        for send, (_, rank, _, _, _) in enumerate(sends)
        for hop in range(send % 3 + 1)
    ]
    planes = len(shares[0])
    problem = om.Collective(
        "all-gather", 4, 4.0, alpha_s=1.0, hop_s=10.0, rate_bytes_per_s=1.0, planes=planes
    )
    for hops, is_right in ((3, True), (1, False)):
        end_s = 1 + 10 * hops + shares[0][0]
        plan = om.CollectivePlan(
            sends=sends,
            links=links,
            chunk_bytes=[1.0] * 4,
            circuits=[[ring] * planes],
            epoch_of_round=[0],
            shares_bytes=shares if planes > 1 else np.zeros((0, 0)),
            start_s=np.zeros((1, planes)) if planes > 1 else np.zeros((0, 0)),
            end_s=np.full((1, planes), end_s) if planes > 1 else np.zeros((0, 0)),
            time_s=end_s,
        )
        assert om.verify(problem, plan).ok is is_right


def test_a_rank_without_rails_is_reached_over_the_links_of_its_island() -> None:
    loss_db = np.ones((4, 4))
    loss_db[0] = 9.0
    loss_db[:, 0] = 9.0
    problem = om.Collective(
        "all-gather",
        4,
        4.0,
        alpha_s=1.0,
        rate_bytes_per_s=1.0,
        island=2,
        island_rate_bytes_per_s=1.0,
        fabric=om.IdealSwitch(4, loss_db=loss_db, budget_db=2.0),
    )
    infeasible = claim(problem, status=om.Status.INFEASIBLE, limit=None, lower_bound=float("inf"))
    assert not om.verify(infeasible).ok
    assert om.solve(problem, seed=0).status is not om.Status.INFEASIBLE


def test_a_part_that_ends_a_hair_behind_its_chunk_is_none_of_the_next() -> None:
    half = 5e8
    problem = om.Collective("broadcast", 2, 2 * half, rate_bytes_per_s=1e9)
    plan = om.CollectivePlan(
        sends=[[0, 0, 1, 0, COPY]] * 2,
        parts=[[0.0, half - 0.25], [half - 0.25, 0.5]],
        chunk_bytes=[half, half],
        circuits=[[[1, -1]]],
        epoch_of_round=[0],
        time_s=(half + 0.25) / 1e9,
        among="all",
    )
    rules = {violation.rule for violation in om.verify(problem, plan).violations}
    assert rules == {"in the end every rank has what it wants"}


@pytest.mark.parametrize(("port", "is_right"), [(0, True), (1, False)])
def test_two_way_circuits_of_planes_need_lit_ports_within_their_budgets(
    port: int, is_right: bool
) -> None:
    """Port 0 of rank 0 and port 1 of rank 1 lose too much, and no other port is lit."""
    loss_db = np.ones((4, 4))
    loss_db[0, 3] = loss_db[3, 0] = 9.0
    problem = om.Collective(
        "all-gather",
        2,
        2.0,
        rate_bytes_per_s=1.0,
        ports=2,
        planes=2,
        two_way=True,
        fabric=om.IdealSwitch(4, loss_db=loss_db, budget_db=5.0, bidirectional=True),
    )
    circuits = np.full((1, 4, 2), -1)
    circuits[0, 0, 0] = 1
    circuits[0, port, 1] = 0
    plan = om.CollectivePlan(
        sends=[[0, 0, 1, 0, COPY], [0, 1, 0, 1, COPY]],
        chunk_bytes=[1.0, 1.0],
        circuits=circuits,
        epoch_of_round=[0],
        time_s=1.0,
    )
    assert om.verify(problem, plan).ok is is_right
