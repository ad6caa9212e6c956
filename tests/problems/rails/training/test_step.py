"""Steps: their checks, sizes, phases, order in time, and ranks that behave alike."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import optmatch as om
from optmatch.problems.collectives.steps import list_rounds
from optmatch.problems.rails.training.phases import find_stages, phases
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COMPUTE,
    OPERATIONS,
    RECV,
    REDUCE_SCATTER,
    SEND,
    Group,
    Step,
    ring_bytes,
)
from optmatch.problems.rails.training.times import durations_s, ends_s
from tests.helpers.rails import PAIR, make_job, message_step, random_jobs, small_job

BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"rank": [0, 1, 0]}, "rank", "not ascending"),
    ({"size_bytes": [8.0, 8.0]}, "size_bytes", "2 entries, there are 3 operations"),
    ({"kind": [0, 6, 9]}, "kind[2]", r"kind\[2\] = 9: from 0 to 7"),
    ({"group": [-1, 0, 1]}, "group[2]", "group 1 given, less than 1 expected"),
    ({"duration_s": [-1.0, 0, 0]}, "duration_s[0]", "must be >= 0"),
    ({"dep": [1]}, "dep[0]", "operation 1 .send. of rank 0 in group pp.0 depends on operation 1"),
    ({"dep_start": [0, 0, 1]}, "dep_start", "4 offsets from 0 to 1"),
    ({"dep_start": [0, 0, 0, 1], "dep": [0]}, "dep[0]", "an earlier one of the same rank"),
    ({"group": [0, 0, 0]}, "group[0]", "operation 0 .compute. of rank 0.*computation none"),
    ({"match": [-1, -1, 0]}, "match[1]", "operation 1 .send. of rank 0 in group pp.0: match = -1"),
    ({"match": [-1, 0, 1]}, "match[1]", "operation 1 .send. of rank 0.*: 1 of 2 parts are there"),
    ({"size_bytes": [0, 8, 9]}, "match[2]", "operation 2 .recv. of rank 1.*size differ"),
    ({"kind": [0, 6, 6]}, "match[1]", "no send and receive between the same ranks"),
    ({"peer": [-1, 1, 1]}, "match[1]", "no send and receive between the same ranks"),
    ({"peer": [-1, 2, 0]}, "group[1]", "rank 2 is not in that group, which has ranks 0, 1"),
    ({"names": ("a",)}, "names", "1 entries"),
]


@pytest.mark.parametrize(("change", "where", "message"), BROKEN)
def test_a_broken_step_is_refused(change: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(om.InputError, match=message) as caught:
        replace(message_step(), **change)
    assert caught.value.where == where


def test_a_collective_has_its_members_and_no_other() -> None:
    group = Group("dp.3", "dp", (0, 1), rail=0)
    good: dict[str, Any] = {
        "groups": (group,),
        "rank": [0, 1],
        "kind": [ALL_REDUCE] * 2,
        "group": [0, 0],
        "size_bytes": [8.0, 8.0],
        "duration_s": [0.0, 0.0],
        "peer": [-1, -1],
        "match": [0, 0],
        "dep_start": [0, 0, 0],
        "dep": np.empty(0, np.int64),
    }
    assert Step(**good).n_ranks == 2
    for change, message in (
        ({"rank": [0, 2]}, r"of rank 2 in group dp\.3: rank 2 is not in that group"),
        ({"match": [0, 1]}, r"of rank 0 in group dp\.3: 1 of 2 parts"),
        ({"match": [2**31 - 1] * 2}, r"match\[0\] = 2147483647: below 1048576 is expected"),
        ({"rank": [0, 0]}, r"of rank 0 in group dp\.3: the rank takes part twice"),
        ({"kind": [ALL_REDUCE, ALL_GATHER]}, "kind, group or size differ"),
    ):
        with pytest.raises(om.InputError, match=message):
            Step(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimension": "xp"}, "dimension = 'xp': one of dp, tp"),
        ({"ranks": ()}, "group pp.0: it has no ranks"),
        ({"ranks": (0, 1, 0)}, "group pp.0: rank 0 is in it twice"),
    ],
)
def test_a_broken_group_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        replace(PAIR, **change)


@given(st.integers(1, 9), st.integers(0, 10**9))
def test_ring_bytes_are_those_of_the_messages(n: int, size: int) -> None:
    around = {
        kind: sum(each.share * size for each in list_rounds("ring", OPERATIONS[kind], n))
        for kind in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
    }
    counted: dict[int, float] = {
        COMPUTE: 0.0,
        **around,
        ALL_TO_ALL: sum(size / n for _ in range(n - 1)),
        BROADCAST: size,
        SEND: size,
        RECV: size,
    }
    found = ring_bytes(list(counted), [size] * len(counted), n)
    np.testing.assert_allclose(found, list(counted.values()), rtol=1e-12)


def test_stages_are_what_groups_join() -> None:
    job = small_job(dp=2, tp=2, pp=3)
    assert find_stages(job.step()) == tuple(
        (rail, (4 * stage + 2 * rail, 4 * stage + 2 * rail + 1))
        for rail in range(2)
        for stage in range(3)
    )
    alone = small_job(dp=1, tp=2, pp=2)
    assert find_stages(alone.step()) == ((0, (0,)), (0, (2,)), (1, (1,)), (1, (3,)))


relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(random_jobs())
def test_phases_are_runs(job: om.RailJob) -> None:
    """Every operation on a rail is in one phase of its rank, and dimensions alternate."""
    step, found = job.step(), job.phases()
    covered = np.zeros(step.n_operations, dtype=int)
    dimension = [step.groups[group].dimension if group >= 0 else "" for group in step.group]
    before: dict[tuple[int, int], str] = {}
    for phase in found:
        key = phase.rail, phase.stage
        assert before.get(key) != phase.dimension
        before[key] = phase.dimension
        for first, last in zip(phase.first, phase.last, strict=True):
            inside = np.arange(first, last + 1)
            inside = inside[step.rail[inside] == phase.rail]
            assert {dimension[k] for k in inside} == {phase.dimension}
            covered[inside] += 1
    assert (covered == (step.rail >= 0)).all()


def test_ranks_of_a_stage_that_differ_are_stages_of_their_own() -> None:
    groups = (Group("dp.0", "dp", (0, 1), rail=0), Group("pp.0", "pp", (1, 2), rail=0))
    step = Step(
        groups=groups,
        rank=[0, 1, 1, 2],
        kind=[ALL_REDUCE, ALL_REDUCE, SEND, RECV],
        group=[0, 0, 1, 1],
        size_bytes=[1, 1, 1, 1],
        duration_s=[0, 0, 0, 0],
        peer=[-1, -1, 2, 1],
        match=[0, 0, 1, 1],
        dep_start=[0] * 5,
        dep=np.empty(0, np.int64),
    )
    found = [(phase.stage, phase.ranks, phase.dimension) for phase in phases(step)]
    assert found == [(0, (0,), "dp"), (1, (1,), "dp"), (1, (1,), "pp"), (2, (2,), "pp")]


def test_ranks_that_wait_for_each_other_are_refused() -> None:
    step = Step(
        groups=(PAIR,),
        rank=[0, 0, 1, 1],
        kind=[RECV, SEND, RECV, SEND],
        group=[0] * 4,
        size_bytes=[1] * 4,
        duration_s=[0] * 4,
        peer=[1, 1, 0, 0],
        match=[0, 1, 1, 0],
        dep_start=[0, 0, 1, 1, 2],
        dep=[0, 2],
    )
    job = make_job(gpus_per_server=1, recorded=step)
    one, other = (f"operation {k} of rank 0 in group pp.0" for k in ("0 (recv)", "1 (send)"))
    circle = f"{one} waits for itself, by way of {other}: an order that no ranks can keep"
    for ask in (job.lower_bound, lambda: om.solve(job, seed=0)):
        with pytest.raises(om.InputError, match=re.escape(circle)):
            ask()


@relaxed
@given(random_jobs())
def test_the_ends_with_all_links_are_the_longest_paths(job: om.RailJob) -> None:
    step = job.step()
    given_, lasts = job.events(), durations_s(step, job.network, job.collectives)
    before: dict[int, set[int]] = {}
    streams: dict[tuple[Any, ...], int] = {}
    for k in range(step.n_operations):
        event = int(given_.event_of[k])
        own = before.setdefault(event, set())
        own |= {
            int(given_.event_of[d]) for d in step.dep[step.dep_start[k] : step.dep_start[k + 1]]
        }
        group = int(step.group[k])
        dimension = step.groups[group].dimension if group >= 0 else None
        way = int(step.kind[k]) if step.kind[k] >= SEND else None
        stream = (int(step.rank[k]), dimension, step.rail[k] >= 0, int(step.peer[k]), way)
        if stream in streams:
            own.add(int(given_.event_of[streams[stream]]))
        streams[stream] = k
    ends: dict[int, float] = {}
    todo = list(before)
    while todo:
        left = [e for e in todo if not before[e] <= ends.keys()]
        for e in set(todo) - set(left):
            start = max((ends[b] for b in before[e]), default=0.0)
            ends[e] = start + lasts[given_.part[e]]
        assert len(left) < len(todo)
        todo = left
    np.testing.assert_allclose(ends_s(job.events()), [ends[e] for e in sorted(ends)])
    assert job.lower_bound() == pytest.approx(max(ends.values()))
