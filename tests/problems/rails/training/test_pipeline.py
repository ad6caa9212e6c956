"""Orders of passes: feasible, bounded in memory, with the bubbles that were published."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.problems.rails.training.pipeline import find_part, list_passes
from optmatch.problems.rails.training.step import ALL_TO_ALL, COMPUTE, RECV, SEND
from tests.helpers.rails import MODEL, change_job, random_jobs, small_job

SCHEDULES = st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"])
relaxed = settings(max_examples=60, deadline=None)


class Replayed(NamedTuple):
    """The times of an order of passes."""

    step_s: float
    """Until the last stage has ended."""
    kept: list[int]
    """Micro-batches whose activations a stage keeps, at most, counted for each part."""


def replay(
    schedule: Any,
    pp: int,
    micro_batches: int,
    lasts_s: tuple[float, float, float] = (1.0, 1.0, 1.0),
    *,
    together: bool = False,
) -> Replayed:
    """Run every pass once what it needs has ended; F and B side by side may be one, `together`."""
    parts = 2 if schedule in ("interleaved", "zb-v", "dualpipe") else 1
    orders = [list_passes(schedule, pp, stage, parts, micro_batches) for stage in range(pp)]
    last = (pp if schedule == "dualpipe" else pp * parts) - 1
    ahead_s, inputs_s, weights_s = lasts_s
    cost = {"F": ahead_s, "I": inputs_s, "W": weights_s, "B": inputs_s + weights_s}
    ends: dict[tuple[str, int, int], float] = {}
    at, now = [0] * pp, [0.0] * pp
    kept, most = [0] * pp, [0] * pp

    def needs(stage: int, kind: str, part: int, batch: int) -> list[tuple[str, int, int]]:
        where = find_part(schedule, pp, stage, part)
        if kind == "F":
            return [("F", where - 1, batch)] if where else []
        if kind == "W":
            return [("I", where, batch)]
        return [("F", where, batch), *([("I", where + 1, batch)] if where < last else [])]

    left = sum(map(len, orders))
    while left:
        before = left
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                block = order[at[stage] : at[stage] + 1]
                pair = order[at[stage] : at[stage] + 2]
                if together and [one.kind for one in pair] == ["F", "B"]:
                    block = pair
                needed = [each for one in block for each in needs(stage, *one)]
                if any(each not in ends for each in needed):
                    break
                start = max([now[stage], *(ends[each] for each in needed)])
                now[stage] = start + sum(cost[one.kind] for one in block)
                for kind, part, batch in block:
                    where = find_part(schedule, pp, stage, part)
                    ends["I" if kind == "B" else kind, where, batch] = now[stage]
                    kept[stage] += (kind == "F") - (kind in "BW")
                    most[stage] = max(most[stage], kept[stage])
                at[stage] += len(block)
                left -= len(block)
        assert left < before, "stages wait for each other"
    return Replayed(max(now), most)


@relaxed
@given(SCHEDULES, st.integers(1, 6), st.integers(1, 12))
def test_every_pass_is_done_once_and_none_waits_for_ever(
    schedule: Any, pp: int, rounds: int
) -> None:
    """At every stage each micro-batch goes forward once, and back once, through each part."""
    pp = 2 * pp if schedule == "dualpipe" else pp
    batches = {"interleaved": rounds * pp, "dualpipe": 2 * pp + 2 * rounds}.get(schedule, rounds)
    parts = 2 if schedule in ("interleaved", "zb-v", "dualpipe") else 1
    each = range(batches)
    for stage in range(pp):
        passes = list_passes(schedule, pp, stage, parts, batches)
        done = {
            kind: sorted(one[1:] for one in passes if one.kind in kind) for kind in ("F", "BI")
        }
        every = [(part, batch) for part in range(parts) for batch in each]
        if schedule == "dualpipe":
            every = [(batch // (batches // 2), batch) for batch in each]
        assert done["F"] == done["BI"] == every
        split = sorted(one[1:] for one in passes if one.kind == "I")
        assert split == sorted(one[1:] for one in passes if one.kind == "W")
    kept = replay(schedule, pp, batches).kept
    most = {
        "gpipe": [batches] * pp,
        "1f1b": [min(pp - stage, batches) for stage in range(pp)],
        "interleaved": [2 * batches] * pp,
        "zb-h1": [pp] * pp,
        "zb-v": [2 * pp] * pp,
        "dualpipe": [pp + 1] * pp,
    }
    assert all(one <= bound for one, bound in zip(kept, most[schedule], strict=True))


@pytest.mark.parametrize("pp", [2, 4, 6, 8])
@pytest.mark.parametrize("lasts_s", [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (0.5, 0.7, 0.4)])
def test_bubbles_are_the_published_ones(pp: int, lasts_s: tuple[float, float, float]) -> None:
    ahead_s, inputs_s, weights_s = lasts_s
    back_s = inputs_s + weights_s
    for batches in (2 * pp, 3 * pp + 2):
        work_s = batches * (ahead_s + back_s)

        def bubble_s(schedule: str, *, together: bool = False) -> float:
            found = replay(schedule, pp, batches, lasts_s, together=together)  # noqa: B023
            return found.step_s - work_s  # noqa: B023

        assert bubble_s("1f1b") == pytest.approx((pp - 1) * (ahead_s + back_s))
        assert bubble_s("zb-h1") == pytest.approx((pp - 1) * (ahead_s + back_s - 2 * weights_s))
        both_s = ahead_s + back_s
        dual_s = (pp // 2 - 1) * (both_s + back_s - 3 * weights_s)
        assert bubble_s("dualpipe", together=True) == pytest.approx(dual_s)
        assert bubble_s("dualpipe") <= dual_s + 1e-9


@pytest.mark.parametrize("pp", [2, 3, 4, 6, 8])
def test_zb_v_has_no_bubble(pp: int) -> None:
    for batches in (2 * pp, 2 * pp + 3, 5 * pp):
        assert replay("zb-v", pp, batches).step_s == (pp - 1) + 6 * batches


def test_the_copies_of_dualpipe_sum_their_gradients() -> None:
    job = small_job(1, 1, 4, schedule="dualpipe", batch=8, micro_batch=1)
    step = job.step()
    model = job.workload.model
    assert model is not None
    weights = 4 * model.hidden**2 + model.ffn_matrices * model.hidden * model.ffn
    weights *= model.layers // 4
    words = model.hidden * model.vocabulary
    last = [step.rank_start[rank + 1] - 1 for rank in range(4)]
    for rank, end in enumerate(last):
        assert step.kind[end - 3 : end + 1].tolist() == [SEND, RECV, SEND, RECV]
        assert (step.peer[end - 3 : end + 1] == 3 - rank).all()
        expected = 2 * (weights + words * (rank in (0, 3)))
        assert (step.size_bytes[end - 3 : end + 1] == expected).all()


@settings(max_examples=15, deadline=None)
@given(random_jobs())
def test_messages_keep_their_order(job: om.RailJob) -> None:
    keep_their_order(job)


def keep_their_order(job: om.RailJob) -> None:
    """Assert that a rank receives what another one sends in the order in which it is sent."""
    step = job.step()
    for kind in (SEND, RECV):
        at = step.kind == kind
        own, other = (step.rank, step.peer) if kind == SEND else (step.peer, step.rank)
        order = {
            (a, b): step.match[at & (own == a) & (other == b)].tolist()
            for a, b in set(zip(own[at].tolist(), other[at].tolist(), strict=True))
        }
        if kind == SEND:
            sent = order
    assert order == sent


@settings(max_examples=15, deadline=None)
@given(random_jobs())
def test_derived_steps_keep_the_rules(job: om.RailJob) -> None:
    """They are made without checks: each message has both ends, each collective all its parts."""
    replace(job.step())


def overlapped(**options: Any) -> om.RailJob:
    """Return a job of experts over two servers, with DualPipe and its overlap."""
    model = replace(MODEL, layers=8, experts=8, active_experts=4)
    plain: dict[str, Any] = {
        **{"gpus_per_server": 2, "ep": 4, "schedule": "dualpipe", "overlap": True},
        **{"batch": 32, "micro_batch": 1, "model": model, "peak_flops_per_s": 1e9},
        **{"scale_up_bytes_per_s": 1e9, "port_bytes_per_s": 1e9},
    }
    return small_job(4, 1, 2, **{**plain, **options})


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 4), st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 2, 3]), st.booleans())
def test_passes_side_by_side_do_the_same_work(
    layers: int, ep: int, zero_stage: int, one_stream: bool
) -> None:
    """Neither bytes nor computations change, whatever the layers of a stage; messages in order."""
    model = replace(MODEL, layers=4 + layers, experts=8, active_experts=4)
    options: dict[str, Any] = {"ep": ep, "zero_stage": zero_stage, "model": model}
    options |= {"stage_layers": (4, layers), "one_stream": one_stream}
    job = overlapped(**options)
    apart = change_job(job, overlap=False)
    assert 0 < job.lower_bound() < 1e9
    found: list[Any] = []
    expected: list[Any] = []
    for one, rows in ((job, found), (apart, expected)):
        step = one.step()
        for rank in range(one.n_gpus):
            own = step.rank == rank
            bytes_of = np.zeros(len(step.groups) + 1)
            np.add.at(bytes_of, step.group[own], step.size_bytes[own])
            rows.append([step.duration_s[own].sum(), *bytes_of])
    np.testing.assert_allclose(found, expected)
    keep_their_order(job)


def test_what_is_sent_hides_behind_what_the_other_pass_computes() -> None:
    """Beside links that take no time: at most a third of what passes one by one expose."""
    job = overlapped(batch=96, port_bytes_per_s=2e7)
    free = change_job(job, port_bytes_per_s=1e15, scale_up_bytes_per_s=1e15, latency_s=0.0)
    apart = change_job(job, overlap=False)
    shown = [(one.lower_bound() - free.lower_bound()) / free.lower_bound() for one in (job, apart)]
    assert 0 <= shown[0] < shown[1] / 3


def test_turns_are_those_of_the_report() -> None:
    """Figure 4 of arXiv 2412.19437: MLP (B, W, F), then attention (B, W, F), layer by layer."""
    job = overlapped()
    step = job.step()
    first = step.duration_s[0]  # a forward pass begins with attention
    lasts = step.duration_s[(step.rank == 0) & (step.kind == COMPUTE)]
    text = "".join("A" if each == pytest.approx(first) else "M" for each in lasts)
    order = [one.kind for one in list_passes("dualpipe", 2, 0, 2, 8)]
    pairs = sum(pair == ("F", "B") for pair in pairwise(order))
    assert text.count("MMMAAA" * 3 + "MMMAA") == pairs > 3
    apart = change_job(job, overlap=False).step()
    lasts = apart.duration_s[(apart.rank == 0) & (apart.kind == COMPUTE)]
    assert len(lasts) < len(text)  # gradients of weights are no computations of their own


def test_data_for_one_server_leave_once_and_in_fewer_bytes() -> None:
    job = overlapped()
    fewer = change_job(
        job,
        model=replace(MODEL, layers=8, experts=8, active_experts=4, expert_servers=1),
        dispatch_width_bytes=1.0,
    )

    def sizes(one: om.RailJob, inside: bool) -> Any:
        step = one.step()
        own = (step.kind == ALL_TO_ALL) & ((step.rail < 0) == inside)
        return np.unique(step.size_bytes[own & (step.rank == 0)])

    (plain,) = sizes(job, True)
    assert sizes(job, False) == [plain]
    assert sizes(fewer, True).tolist() == [plain / 2, plain]
    assert sizes(fewer, False).tolist() == [plain / 8, plain / 4]


def test_overlap_is_of_dualpipe() -> None:
    with pytest.raises(om.InputError, match="overlap = True with schedule 1f1b: with dualpipe"):
        om.Parallelism(pp=2, overlap=True)
