"""Answers made by hand, for tests of files and pictures."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

import optmatch as om
from optmatch.model import Status
from optmatch.problems import Group, PlaneSchedules, Step
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline
from optmatch.problems.rails.training.step import ALL_REDUCE, COMPUTE, OPERATIONS
from tests.helpers.rails import make_job


def rails() -> om.Solution:
    """Plan four GPUs that compute, reduce over neighbours, then over the others."""
    groups = (
        Group("dp.0", "dp", (0, 1), 0),
        Group("dp.1", "dp", (2, 3), 0),
        Group("cp.0", "cp", (0, 2), 0),
        Group("cp.1", "cp", (1, 3), 0),
    )
    rows = [
        row
        for rank in range(4)
        for row in (
            (rank, COMPUTE, -1, 0.0, 1.0, -1),
            (rank, ALL_REDUCE, rank // 2, 12.5e9, 0.0, rank // 2),
            (rank, ALL_REDUCE, 2 + rank % 2, 25e9, 0.0, 2 + rank % 2),
        )
    ]
    columns: Any = [np.array(column) for column in zip(*rows, strict=True)]
    rank, kind, group, size, duration, match = columns
    step = Step(
        groups=groups, rank=rank, kind=kind, group=group, size_bytes=size, duration_s=duration,
        peer=np.full(12, -1), match=match,
        dep_start=np.cumsum([0, *[0, 1, 1] * 4]), dep=np.delete(np.arange(12), np.s_[2::3]),
    )  # fmt: skip
    job = make_job(gpus_per_server=1, recorded=step, port_bytes_per_s=12.5e9, latency_s=0.0,
        delay_s=0.5,
    )  # fmt: skip
    timeline = RailTimeline(
        rails=(0,),
        matchings=np.array([[1, 0, 3, 2], [2, 3, 0, 1], [1, 0, 3, 2]]),
        asked_s=np.array([0.0, 2.0, 4.5]),
        starts_s=np.array([0.0, 2.0, 4.5]),
    )
    start = np.tile([0.0, 1.0, 2.5], 4)
    plan = RailPlan(
        rails=(timeline,), start_s=start, end_s=np.tile([1.0, 2.0, 4.5], 4),
        ports=np.tile([0, 1, 1], 4), step_s=4.5,
    )  # fmt: skip
    return om.Solution(
        problem=job, schedule=None, answer=plan, status=Status.OPTIMAL, objective=4.5,
        lower_bound=4.5, method="by hand",
    )  # fmt: skip


def pipeline() -> om.Solution:
    """Plan two stages that exchange two messages each way, the first forth and back at once."""
    pair = Group("pp.0", "pp", (0, 1), 0)
    send, receive = OPERATIONS.index("send"), OPERATIONS.index("recv")
    whole = np.zeros(8, dtype=np.int32)
    step = Step(
        groups=(pair,),
        rank=np.repeat([0, 1], 4),
        kind=np.array([send, receive] * 2 + [receive, send] * 2),
        group=whole,
        size_bytes=np.full(8, 8.0),
        duration_s=np.zeros(8),
        peer=np.repeat([1, 0], 4),
        match=np.array([0, 1, 2, 3] * 2),
        dep_start=np.zeros(9, dtype=np.int64),
        dep=np.zeros(0, dtype=np.int64),
    )
    job = make_job(gpus_per_server=1, recorded=step, port_bytes_per_s=8.0)
    state = RailTimeline(
        rails=(0,), matchings=np.array([[1, 0]]), asked_s=np.zeros(1), starts_s=np.zeros(1)
    )
    start = np.array([0.0, 0.0, 1.0, 1.0] * 2)
    plan = RailPlan(rails=(state,), start_s=start, end_s=start + 1, ports=1 + whole, step_s=2.0)
    return om.Solution(
        problem=job, schedule=None, answer=plan, status=Status.FEASIBLE, objective=2.0,
        limit=om.Limit.EXHAUSTED, lower_bound=0.0, method="by hand",
    )  # fmt: skip


@st.composite
def demands(draw: st.DrawFn) -> om.Solution:
    """Draw a schedule of a demand, on one plane or on two."""
    n, planes = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    problem = om.Demand(
        om.IdealSwitch(n), np.ones((n, n)), rate_bytes_per_s=2.5e9, delay_s=0.25, planes=planes
    )
    schedules = []
    for _ in range(planes):
        slots = draw(st.integers(1, 4))
        rows = [draw(st.permutations(range(n))) for _ in range(slots)]
        kept = draw(st.lists(st.booleans(), min_size=n * slots, max_size=n * slots))
        matchings = np.where(np.reshape(kept, (slots, n)), rows, -1)
        lasts = draw(st.lists(st.integers(1, 9), min_size=slots, max_size=slots))
        schedules.append(
            om.Schedule(matchings=matchings, durations_s=np.array(lasts) / 4, delay_s=0.25)
        )
    several = PlaneSchedules(schedules=tuple(schedules)) if planes > 1 else None
    return om.Solution(
        problem=problem, schedule=None if several else schedules[0], answer=several,
        status=Status.FEASIBLE, limit=om.Limit.EXHAUSTED, objective=1e9, lower_bound=0.0,
        method="by hand",
    )  # fmt: skip
