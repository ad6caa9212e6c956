"""The verifier of rail plans: any change of a plan that breaks a rule is refused."""

from dataclasses import replace
from functools import cache
from itertools import combinations, product
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import optmatch as om
from optmatch.problems.rails.execution.plan import RailTimeline
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COMPUTE,
    RECV,
    SEND,
)
from optmatch.verify.rails import replay
from optmatch.verify.rails.bounds import bound_staying, bound_step
from optmatch.verify.rails.replay import (
    MOST_TOLD,
    Context,
    list_before,
    list_transfers,
    measure_work,
)
from optmatch.verify.report import Findings
from tests.helpers.rails import random_jobs
from tests.verify.rules.rails import CHIP, ROWS, group, job as recorded, line, sent


@settings(max_examples=25, deadline=None)
@given(random_jobs())
def test_the_bound_is_that_of_the_problem(job: om.RailJob) -> None:
    assert bound_step(job) == pytest.approx(job.lower_bound(), rel=1e-12)


def test_light_of_cells_that_lead_elsewhere_is_followed() -> None:
    report = om.verify(CHIP, sent(line([[1, -1]], cell_states=[[0]])))
    told = {violation.rule for violation in report.violations}
    assert told == {"light reaches its partner", "light comes back from the partner"}


def draw_recorded(rng: np.random.Generator) -> om.RailJob:
    """Draw a job of six ranks on two rails: work, sums, exchanges, messages."""
    groups = [
        group((0, 1)), group((2, 3)), group((0, 1, 2, 3), "ep"), group((1, 2, 3), "ep"),
        group((4, 5), rail=1), group((0, 1, 2, 3), "pp"), group((0, 1, 2, 3), "tp", rail=-1),
    ]  # fmt: skip
    rows, match = [], 0
    for number in range(int(rng.integers(3, 10))):
        of, size = int(rng.integers(0, 7)), int(rng.integers(1, 9))
        if rng.random() < 0.3:
            rows.append([int(rng.integers(0, 6)), number, COMPUTE, -1, 0, size, -1, -1])
            continue
        kind = int(rng.choice([ALL_REDUCE, ALL_GATHER, ALL_TO_ALL]))
        parts = [(rank, kind, -1) for rank in groups[of].ranks]
        if of == 5:
            source, target = rng.permutation(4)[:2].tolist()
            parts = [(source, SEND, target), (target, RECV, source)]
        rows += [[rank, number, how, of, size, 0, peer, match] for rank, how, peer in parts]
        match += 1
    rows.sort()
    deps = [
        (k, k - 1)
        for k in range(1, len(rows))
        if rows[k][0] == rows[k - 1][0] and rng.random() < 0.5
    ]
    network = {"port_bytes_per_s": 2.0, "latency_s": 0.25}
    return recorded(groups, [[rank, *rest] for rank, _, *rest in rows], network, deps=deps)


def bound_sets(job: om.RailJob) -> float:
    """Try all sets of the collectives of a ring: the first head, all their time, the last tail.

    Messages of a collective wait for the latency of as many hops as there are to the next member,
    on the average of all members of a ring of all who communicate.
    """
    step = job.step()
    own = np.arange(step.n_operations)
    work, (before, after) = measure_work(job, own), list_before(step, own)
    event = [("one", k) if step.match[k] < 0 else ("all", int(step.match[k])) for k in own]
    lasts = {event[k]: float(work.full_s[k]) for k in own}
    follows = {(event[a], event[b]) for a, b in zip(before, after, strict=True)}

    @cache
    def reach(one: Any, way: int) -> float:
        ends = [pair[1 - way] for pair in follows if pair[way] == one]
        return max((reach(other, way) + lasts[other] for other in ends), default=0.0)

    ring = {event[k]: {event[k]} for k in own if step.rail[k] >= 0}
    for a, b in product(own[step.rail >= 0].tolist(), repeat=2):
        if step.rank[a] == step.rank[b] and ring[event[a]] is not ring[event[b]]:
            joined = ring[event[a]] | ring[event[b]]
            ring |= dict.fromkeys(joined, joined)
    needed = {}
    for k in own[(step.rail >= 0) & (step.kind < SEND)].tolist():
        members = len(step.groups[step.group[k]].ranks)
        half = members / 2 if step.kind[k] == ALL_TO_ALL else 1.0
        on_ring = {step.rank[i] for i in own[step.rail >= 0] if event[i] in ring[event[k]]}
        hops = ceil(len(on_ring) / members)
        needed[event[k]] = work.sent_bytes[k] / 2.0 * half + work.latency_s[k] * hops
    return max(
        (
            min(reach(e, 1) for e in some)
            + sum(needed[e] for e in some)
            + min(reach(e, 0) for e in some)
            for together in {id(each): each for each in ring.values()}.values()
            for count in range(1, len(together) + 1)
            for some in combinations([e for e in together if e in needed], count)
        ),
        default=0.0,
    )


def test_what_stays_is_bounded_by_the_worst_set() -> None:
    bounds = [
        (bound_staying(job), bound_sets(job))
        for job in [draw_recorded(np.random.default_rng(seed)) for seed in range(15)]
    ]
    assert [found for found, _ in bounds] == pytest.approx([wanted for _, wanted in bounds])
    assert any(wanted > 0 for _, wanted in bounds)


@pytest.mark.parametrize("n", [4, 8])
def test_what_is_doubled_reaches_everyone(n: int) -> None:
    """After each round a rank has twice the blocks; sums are halved in the opposite order."""
    rounds = list_transfers("halving", "all-gather", n)
    known = [{rank} for rank in range(n)]
    for each in rounds:
        before = [set(blocks) for blocks in known]
        for sender, receiver, part in each:
            assert part == len(before[sender])
            known[receiver] |= before[sender]
    assert known == [set(range(n))] * n
    scattered = list_transfers("halving", "reduce-scatter", n)
    parts = [[(a, b, part * n) for a, b, part in each] for each in scattered]
    assert parts == rounds[::-1]
    back = [[(a, b, part / n) for a, b, part in each] for each in rounds]
    assert list_transfers("halving", "all-reduce", n) == [*scattered, *back]


@pytest.mark.parametrize("n", [3, 4, 7, 8])
def test_a_tree_sums_up_and_spreads(n: int) -> None:
    rounds = list_transfers("tree", "all-reduce", n)
    terms = [{rank} for rank in range(n)]
    for each in rounds[: len(rounds) // 2]:
        for child, parent, part in each:
            assert part == 1.0 and not terms[parent] & terms[child]
            terms[parent] |= terms[child]
    assert terms[0] == set(range(n))
    reached = {0}
    down = rounds[len(rounds) // 2 :]
    assert down == list_transfers("tree", "broadcast", n)
    for each in down:
        assert {parent for parent, _, _ in each} <= reached
        reached |= {child for _, child, _ in each}
    assert reached == set(range(n)) and sum(map(len, down)) == n - 1


@pytest.mark.parametrize("count", [MOST_TOLD, MOST_TOLD + 2])
def test_the_first_few_operations_are_told(count: int) -> None:
    rows = [[0, COMPUTE, -1, 0, 1, -1, -1] for _ in range(count)]
    job = recorded([group((0, 1), "pp")], rows)
    context = Context(job, job.step(), Any, findings := Findings())  # type: ignore[arg-type]
    context.refuse_operations("a rule", np.arange(count), np.ones(count, bool), 0, 1)
    told = [violation.where for violation in findings.violations]
    assert len(told) == min(count, MOST_TOLD + 1)
    assert (told[-1] == "2 more operations") == (count > MOST_TOLD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matchings": [[0, 0]]}, "share destination 0"),
        ({"asked_s": [0.0, 1.0]}, "asked_s has 2 entries, there are 1 states"),
        ({"cell_states": [[0], [1]]}, "cell_states has 2 entries"),
        ({"matchings": np.empty((0, 2)), "asked_s": [], "starts_s": []}, "no states"),
        ({"matchings": [[0]] * 2, "asked_s": [0.0] * 2, "starts_s": [1.0, 0.5]}, "starts_s"),
    ],
)
def test_timelines_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    plain: dict[str, Any] = {
        "rails": (0,),
        "matchings": [[0, 1]],
        "asked_s": [0.0],
        "starts_s": [0.0],
    }
    with pytest.raises(om.InputError, match=message):
        RailTimeline(**{**plain, **changes})


def test_plans_that_cannot_be() -> None:
    plan = sent()
    with pytest.raises(om.InputError, match="end_s has 1 entries"):
        replace(plan, end_s=np.zeros(1))
    with pytest.raises(om.InputError, match="rail 0 is there twice"):
        replace(plan, rails=plan.rails * 2)


@pytest.mark.parametrize("method", ["prefetch", "provisioned", "on-demand"])
def test_a_barrier_without_latency_ends_when_its_circuits_are_given_up(method: str) -> None:
    """It takes no time, just when the circuits change from a ring of four ranks to two of two."""
    rows = []
    for rank in range(4):
        pair = 1 + rank // 2
        rows += [[rank, ALL_REDUCE, 0, 8, 0, -1, 0], [rank, ALL_REDUCE, 0, 0, 0, -1, 1]]
        rows.append([rank, ALL_REDUCE, pair, 8, 0, -1, 1 + pair])
    groups = [group((0, 1, 2, 3)), group((0, 1), "ep"), group((2, 3), "ep")]
    deps = [(k, k - 1) for k in range(12) if k % 3]
    job = recorded(groups, rows, {"delay_s": 0.5}, deps=deps)
    solution = om.solve(job, method, seed=0, limits=om.Limits(iterations=50))
    assert solution.objective == pytest.approx(21.0)
    assert solution.stats["reconfigurations"] == 2
    assert om.verify(job, solution).ok

    # Data that take time have no use for circuits that are given up.
    (only,) = solution.answer.rails
    starts_s = only.starts_s.copy()
    starts_s[-1] -= 0.25
    early = replace(only, starts_s=starts_s, asked_s=np.minimum(only.asked_s, starts_s))
    report = om.verify(job, replace(solution.answer, rails=(early,)))
    assert "its circuits are there from start to end" in {v.rule for v in report.violations}


def test_strides_beyond_those_of_ports_take_changes_that_all_ports_share() -> None:
    """Of 5 GPUs with 2 ports each: a part takes 1 s over a port, and 4 strides 2 / 2 delays."""
    members = tuple(range(5))
    rows = [[rank, ALL_TO_ALL, 0, 10, 0, -1, 0] for rank in members]
    for delay_s, expected_s in ((0.5, 4.5), (1.5, 5.5), (3.0, 6.0)):
        network = {"ports_per_gpu": 2, "delay_s": delay_s}
        exchange = recorded([group(members)], rows, network)
        assert bound_step(exchange, few_ports=True) == pytest.approx(expected_s)


def test_rules_hold_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_N_COMPARED", 1)
    monkeypatch.setattr(replay, "_CHUNK", 1)
    for row in ROWS:
        violations = om.verify(row.problem, row.subject).violations
        assert {violation.rule for violation in violations} == ({row.rule} - {None}), row


@pytest.mark.parametrize("latency_s", [1e-13, 1e-12])
@pytest.mark.parametrize("method", ["prefetch", "on-demand"])
def test_messages_shorter_than_rounding_use_the_circuit_before_them(
    method: str, latency_s: float
) -> None:
    """Each message of 0 bytes ends just when its circuit is given up, up to rounding."""
    pair, chain, ring = group((0, 1), "ep", 1), group((2, 0, 1), "pp"), group((0, 2, 1), "ep")
    rows = [
        [0, ALL_GATHER, 0, 1.25e12, 0, -1, 0],
        [0, SEND, 1, 0, 0, 1, 1],
        [0, ALL_REDUCE, 2, 0, 0, -1, 2],
        [1, ALL_GATHER, 0, 1.25e12, 0, -1, 0],
        [1, RECV, 1, 0, 0, 0, 1],
        [1, ALL_REDUCE, 2, 0, 0, -1, 2],
        [2, ALL_REDUCE, 2, 0, 0, -1, 2],
    ]
    network = {"port_bytes_per_s": 5e10, "delay_s": 1e-5, "latency_s": latency_s}
    deps = [(1, 0), (2, 1), (4, 3), (5, 4)]
    job = recorded([pair, chain, ring], rows, network, deps=deps)
    assert om.verify(om.solve(job, method, seed=0)).valid


def test_an_exchange_in_rounds_counts_the_stops_within_it_alone() -> None:
    """The second one begins after stops of the switch, which are none of its own."""
    rows = [[rank, ALL_TO_ALL, 0, 3, 0, -1, turn] for rank in range(3) for turn in range(2)]
    network = {"switching": "all-stop", "delay_s": 0.5}
    job = recorded([group((0, 1, 2))], rows, network)
    solution = om.solve(job, "on-demand", seed=0)
    assert len(solution.answer.rails[0].starts_s) >= 4
    assert om.verify(job, solution).ok
