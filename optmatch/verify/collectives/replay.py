"""The replay of a collective: circuits, bytes, times, and what every rank has in the end."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL, Schedule, Solution
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import REDUCE
from optmatch.verify.bounds import check_solution
from optmatch.verify.collectives.circuits import (
    RoundLoads,
    check_epochs,
    check_planes,
    check_sends,
    measure_rounds,
)
from optmatch.verify.report import Findings
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_matchings, check_shapes

MOST_BYTES = 1 << 28
"""Sets that are held at a time; chunks do not mix, so that others come after them."""

Columns = tuple[NDArray[np.int64], ...]


def check_copies(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Check that whoever sends has received before, and that in the end all have what they want.

    Nothing is added up, so it is enough to know when something first arrives.
    """
    chunks = len(plan.chunk_bytes)
    turn, source, destination, chunk, kind = plan.sends.astype(np.int64).T
    for row in np.flatnonzero(kind == REDUCE)[:1]:
        findings.refuse(f"{problem.operation} adds nothing up", f"sends[{row}, 4]", 1, 0)
    owner = _owners(problem, chunks)
    # The first arrival of each chunk at each rank; -1 where it has been from the beginning.
    at = np.concatenate([owner * chunks + np.arange(chunks), destination * chunks + chunk])
    when = np.concatenate([np.full(chunks, -1), turn])
    order = np.lexsort([when, at])
    known, first = np.unique(at[order], return_index=True)
    when = when[order][first]
    place = np.searchsorted(known, source * chunks + chunk)
    place = np.minimum(place, len(known) - 1)
    has = (known[place] == source * chunks + chunk) & (when[place] < turn)
    for row in np.flatnonzero(~has)[:1]:
        where = f"round {turn[row]}, rank {source[row]}"
        findings.refuse("who sends a chunk has it", where, f"no chunk {chunk[row]}", "the chunk")
    wanted = _wanted(problem, plan.chunk_bytes)
    missing = np.setdiff1d(wanted, known)
    for key in missing[:1].tolist():
        rank, lost = divmod(key, chunks)
        rule = "in the end every rank has what it wants"
        findings.refuse(rule, f"rank {rank}", f"no chunk {lost}", "the chunk")


def _owners(problem: Collective, chunks: int) -> NDArray[np.int64]:
    """``owner[chunk]``: who has it at the beginning."""
    if problem.operation == "broadcast":
        return np.full(chunks, problem.root)
    return np.arange(chunks) // max(chunks // problem.n_ranks, 1)


def _wanted(problem: Collective, chunk_bytes: NDArray[np.float64]) -> NDArray[np.int64]:
    """List ``rank * chunks + chunk`` of all that has to be somewhere in the end."""
    n, chunks = problem.n_ranks, len(chunk_bytes)
    every = np.arange(chunks)
    if problem.operation == "all-to-all":
        return np.asarray((every % n * chunks + every)[problem.demand.reshape(-1) > 0])
    return np.arange(n * chunks)


def check_sums(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Replay copies and additions on sets of ranks; nothing may be added twice."""
    n, chunks = problem.n_ranks, len(plan.chunk_bytes)
    words = -(-n // 64)
    together = max(1, MOST_BYTES // (8 * words * n))
    for low in range(0, chunks, together):
        high = min(low + together, chunks)
        inside = (plan.sends[:, 3] >= low) & (plan.sends[:, 3] < high)
        columns = plan.sends[inside].astype(np.int64)
        columns[:, 3] -= low
        if not _sum_up(problem, columns, low, high, chunks, findings):
            return


def _sum_up(
    problem: Collective,
    sends: NDArray[np.int64],
    low: int,
    high: int,
    chunks: int,
    findings: Findings,
) -> bool:
    """Replay the chunks from `low` to `high`; False at the first thing that is wrong."""
    n, width = problem.n_ranks, high - low
    words = -(-n // 64)
    own = np.zeros((n, words), dtype=np.uint64)
    own[np.arange(n), np.arange(n) // 64] = np.uint64(1) << (np.arange(n) % 64).astype(np.uint64)
    state = np.repeat(own, width, axis=0)  # state[rank * width + chunk]: whose data are in it
    turns, starts = np.unique(sends[:, 0], return_index=True)
    ends = np.append(starts, len(sends))[1:]
    for turn, start, end in zip(turns.tolist(), starts.tolist(), ends.tolist(), strict=True):
        rows = sends[start:end]
        source, target = rows[:, 1] * width + rows[:, 3], rows[:, 2] * width + rows[:, 3]
        adds = rows[:, 4] == REDUCE
        sent = state[source]  # states at the start of the round
        order = np.argsort(target, kind="stable")
        same = np.flatnonzero(np.diff(target[order]) == 0)
        clash = same[~(adds[order[same]] & adds[order[same + 1]])]
        if len(clash):
            where = _where(turn, int(target[order[clash[0]]]), width, low)
            findings.refuse("a copy is all that a rank receives of a chunk", where, "more", "one")
            return False
        state[target[~adds]] = sent[~adds]
        left = order[adds[order]]
        while len(left):  # chunks that several ranks send to one are added one after another
            first = np.append(True, np.diff(target[left]) != 0)
            into, data = target[left[first]], sent[left[first]]
            twice = (state[into] & data).any(axis=1)
            if twice.any():
                where = _where(turn, int(into[twice][0]), width, low)
                findings.refuse("nothing is added twice", where, "a rank's data, again", "once")
                return False
            state[into] |= data
            left = left[~first]
    full = np.bitwise_or.reduce(own, axis=0)
    found = state.reshape(n, width, words)
    whole = (found == full).all(axis=2)
    if problem.operation == "reduce-scatter":
        pieces = max(chunks // n, 1)
        whole |= np.arange(n)[:, None] != np.arange(low, high) // pieces
    for rank, chunk in np.argwhere(~whole)[:1].tolist():
        rule = "in the end every rank has the sum that it wants"
        got = int(sum(int(word).bit_count() for word in found[rank, chunk].tolist()))
        findings.refuse(rule, f"rank {rank}, chunk {low + chunk}", f"{got} ranks", f"{n} ranks")
        return False
    return True


def _where(turn: int, key: int, width: int, low: int) -> str:
    rank, chunk = divmod(key, width)
    return f"round {turn}, rank {rank}, chunk {low + chunk}"


SUMS = ("all-reduce", "reduce-scatter")


def verify_collective(
    problem: Collective, subject: Schedule | CollectivePlan | Solution, findings: Findings
) -> None:
    """Replay a plan and, of a solution, check its schedule and its claims."""
    if not isinstance(subject, Solution):
        _replay(problem, subject, findings)
        return

    def replay(solution: Solution) -> bool:
        replayed = _replay(problem, solution.answer, findings)
        if replayed:
            _check_schedule(problem, solution, findings)
        return replayed

    findings.figures["lower_bound_recomputed"] = problem.lower_bound()
    check_solution(problem, subject, findings, replay=replay, form="both")


def _replay(problem: Collective, plan: object, findings: Findings) -> bool:
    """Apply all rules of plans; False if there is nothing to apply them to."""
    if not isinstance(plan, CollectivePlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "CollectivePlan")
        return False
    if problem.steps is not None:
        times_s = check_planes(problem, plan, None, findings)
        return times_s is not None and _conclude(problem, plan, times_s, findings)
    sound = _check_chunks(problem, plan, findings)
    if not (sound and check_sends(problem, plan, findings)):
        return False
    (check_sums if problem.operation in SUMS else check_copies)(problem, plan, findings)
    if not check_epochs(problem, plan, findings):
        return False
    rounds = measure_rounds(problem, plan, findings)
    if rounds is None:
        return False
    if plan.shares_bytes.size:
        times_s = check_planes(problem, plan, rounds, findings)
    else:
        times_s = _time_rounds(problem, plan, rounds)
    if times_s is None:
        return False
    figures = findings.figures
    figures["sends"] = len(plan.sends)
    figures["sent_bytes"] = float(plan.chunk_bytes[plan.sends[:, 3]].sum())
    return _conclude(problem, plan, times_s, findings)


def _check_chunks(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that chunks make up the blocks that the operation speaks of."""
    n, sizes, align = problem.n_ranks, plan.chunk_bytes, problem.align_bytes
    blocks = {"all-to-all": n * n, "all-gather": n, "reduce-scatter": n}.get(problem.operation, 1)
    if len(sizes) < 1 or len(sizes) % blocks:
        rule = "each block has as many chunks"
        findings.refuse(rule, "chunk_bytes", len(sizes), f"a multiple of {blocks}")
        return False
    if problem.operation == "all-to-all":
        if len(sizes) != blocks:
            findings.refuse("each block is a chunk", "chunk_bytes", len(sizes), blocks)
            return False
        wanted = problem.demand.reshape(-1)
    else:
        wanted = np.full(blocks, problem.size_bytes / blocks)
    whole = sizes.reshape(blocks, -1).sum(axis=1)
    for block in np.flatnonzero(whole < wanted * (1 - RTOL))[:1]:
        rule = "the chunks of a block hold its bytes"
        findings.refuse(rule, f"block {block}", float(whole[block]), float(wanted[block]))
    for chunk in np.flatnonzero((sizes < 0) | (sizes % align != 0 if align else False))[:1]:
        rule = "a chunk is a multiple of align_bytes"
        findings.refuse(rule, f"chunk_bytes[{chunk}]", float(sizes[chunk]), align)
    return True


def _time_rounds(
    problem: Collective, plan: CollectivePlan, rounds: RoundLoads
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Let one round start after another: when its circuits and all who take part are ready."""
    last_s = rounds.busiest_bytes / problem.rate_bytes_per_s + problem.alpha_s
    if problem.hop_s is not None:
        last_s = last_s + problem.hop_s * rounds.hops
    changes = np.diff(plan.epoch_of_round, prepend=-1) > 0
    changes[:1] = not _first_is_there(problem, plan)
    starts_s, now = np.zeros(len(last_s)), 0.0
    for k, (length, change, ready) in enumerate(
        zip(last_s.tolist(), changes.tolist(), rounds.ready_s.tolist(), strict=True)
    ):
        starts_s[k] = max(now + problem.delay_s * change, ready)
        now = starts_s[k] + length
    return starts_s, starts_s + last_s


def _first_is_there(problem: Collective, plan: CollectivePlan) -> bool:
    """Tell whether the circuits of the first epoch cost no delay."""
    start = problem.start
    if isinstance(start, str):
        return start == "free"
    return not plan.n_epochs or bool((plan.circuits[0] == start).all())


def _conclude(
    problem: Collective,
    plan: CollectivePlan,
    times: tuple[NDArray[np.float64], NDArray[np.float64]],
    findings: Findings,
) -> bool:
    """Compare the times that the plan states with those of the replay."""
    starts_s, ends_s = times
    end = float(ends_s.max(initial=0.0))
    last = float(problem.late.max(initial=0.0))
    after = int((starts_s >= last * (1 - RTOL)).sum()) if last else 0
    figures = findings.figures
    figures |= {"objective": end, "rounds": plan.n_rounds, "rounds_late": after}
    figures["reconfigurations"] = max(0, plan.n_epochs - 1)
    if not math.isclose(plan.time_s, end, rel_tol=RTOL, abs_tol=1e-18):
        findings.refuse("the time is that of the replay", "time_s", plan.time_s, end)
    rule = "rounds after the last late rank is ready are counted"
    findings.expect(rule, "n_rounds_late", plan.n_rounds_late, after)
    return True


def _check_schedule(problem: Collective, solution: Solution, findings: Findings) -> None:
    """Check that the schedule is that of the plan, and that the fabric holds it."""
    schedule, plan, fabric = solution.schedule, solution.answer, problem.fabric
    if problem.planes > 1 or problem.steps is not None:
        findings.expect("several planes have no one schedule", "schedule", schedule, None)
        return
    if schedule is None:
        findings.refuse("a plan comes with the schedule of its switch", "schedule", None, "one")
        return
    if not (
        check_shapes(fabric, schedule, findings) and check_matchings(fabric, schedule, findings)
    ):
        return
    wanted = np.full((plan.n_epochs, fabric.n_ports), -1)
    for lane in range(problem.ports if plan.n_epochs else 0):
        at, rank = np.nonzero(plan.circuits[:, lane] >= 0)
        to = plan.circuits[at, lane, rank]
        wanted[at, rank * problem.ports + lane] = to * problem.ports + lane
    if not np.array_equal(schedule.matchings, wanted):
        findings.refuse(
            "the schedule has the circuits of the plan", "matchings", "others", "those"
        )
    findings.expect("the delay is the problem's", "delay_s", schedule.delay_s, problem.delay_s)
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")
    # The makespan of a schedule has a delay before its first slot, too.
    unpaid = bool(plan.n_epochs) and _first_is_there(problem, plan)
    end = float(findings.figures["objective"]) + problem.delay_s * unpaid
    if not math.isclose(schedule.makespan_s, end, rel_tol=RTOL, abs_tol=1e-18):
        rule = "the schedule ends with the plan"
        findings.refuse(rule, "durations_s", schedule.makespan_s, end)
    check_light(fabric, schedule, findings)
