"""The replay of a collective: circuits, bytes, times, and the data of every rank in the end."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL, Schedule, Solution
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import COPY, KEEP, REDUCE
from optmatch.verify.bounds import check_solution
from optmatch.verify.collectives.circuits import (
    RoundLoads,
    check_epochs,
    check_planes,
    check_sends,
    measure_rounds,
)
from optmatch.verify.collectives.parts import check_parts, cut
from optmatch.verify.report import Findings
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_shapes

Seconds = NDArray[np.float64]
MOST_BYTES = 1 << 28
"""The number of sets that are held at a time; chunks do not mix, so others come after them."""


def check_copies(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Check that each sender has received before, and that in the end all ranks have their data.

    Nothing is added up, so the time of the first arrival is enough.
    """
    for row in np.flatnonzero(plan.sends[:, 4] != COPY)[:1]:
        got = int(plan.sends[row, 4])
        findings.refuse(f"{problem.operation} adds nothing up", f"sends[{row}, 4]", got, COPY)
    pieces = cut(plan)
    count = len(pieces.chunk)
    turn, source, destination, piece = pieces.rows[:, :4].T
    owner = _owners(problem, len(plan.chunk_bytes))[pieces.chunk]
    # The first arrival of each piece at each rank; -1 where it has been from the beginning.
    at = np.concatenate([owner * count + np.arange(count), destination * count + piece])
    when = np.concatenate([np.full(count, -1), turn])
    order = np.lexsort([when, at])
    known, first = np.unique(at[order], return_index=True)
    when = when[order][first]
    place = np.searchsorted(known[:-1], source * count + piece)
    has = (known[place] == source * count + piece) & (when[place] < turn)
    for row in np.flatnonzero(~has)[:1]:
        where, lost = f"round {turn[row]}, rank {source[row]}", pieces.chunk[piece[row]]
        findings.refuse("who sends a chunk has it", where, f"no chunk {lost}", "the chunk")
    wanted = _wanted(problem, pieces.chunk)
    missing = np.setdiff1d(wanted, known)
    for key in missing[:1].tolist():
        rank, lost = divmod(key, count)
        rule = "in the end every rank has what it wants"
        findings.refuse(rule, f"rank {rank}", f"no chunk {pieces.chunk[lost]}", "the chunk")


def _owners(problem: Collective, chunks: int) -> NDArray[np.int64]:
    """``owner[chunk]``: the rank that has it at the beginning."""
    if problem.operation == "broadcast":
        return np.full(chunks, problem.root)
    return np.arange(chunks) // max(chunks // problem.n_ranks, 1)


def _wanted(problem: Collective, chunk: NDArray[np.int64]) -> NDArray[np.int64]:
    """List ``rank * pieces + piece`` of all data that have to arrive."""
    n, count = problem.n_ranks, len(chunk)
    every = np.arange(count)
    if problem.operation == "all-to-all":
        return np.asarray((chunk % n * count + every)[problem.demand.reshape(-1)[chunk] > 0])
    return np.arange(n * count)


def check_sums(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Replay copies and additions on sets of ranks; nothing may be added twice."""
    pieces = cut(plan)
    count = len(pieces.chunk)
    words = -(-problem.n_ranks // 64)
    together = max(1, MOST_BYTES // (8 * words * problem.n_ranks))
    for low in range(0, count, together):
        high = min(low + together, count)
        inside = (pieces.rows[:, 3] >= low) & (pieces.rows[:, 3] < high)
        rows = pieces.rows[inside]
        rows[:, 3] -= low
        part = _Together(problem.n_ranks, pieces.chunk[low:high])
        if not _sum_up(problem, plan, rows, part, findings):
            return


class _Together(NamedTuple):
    """The pieces that are replayed together."""

    n_ranks: int
    chunk: NDArray[np.int64]

    def key(
        self, place: NDArray[np.int64], rank: NDArray[np.int64], piece: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return a number for each place of a piece at a rank."""
        return (place * self.n_ranks + rank) * len(self.chunk) + piece

    def where(self, turn: int, key: int) -> str:
        """Return the name of a place."""
        other, piece = divmod(key, len(self.chunk))
        place, rank = divmod(other, self.n_ranks)
        beside = f", place {place}" if place else ""
        return f"round {turn}, rank {rank}, chunk {self.chunk[piece]}{beside}"


def _sum_up(
    problem: Collective,
    plan: CollectivePlan,
    sends: NDArray[np.int64],
    part: _Together,
    findings: Findings,
) -> bool:
    """Replay some pieces; False at the first thing that is wrong."""
    n, width = problem.n_ranks, len(part.chunk)
    words = -(-n // 64)
    own = np.zeros((n, words), dtype=np.uint64)
    own[np.arange(n), np.arange(n) // 64] = np.uint64(1) << (np.arange(n) % 64).astype(np.uint64)
    turn_of, at, to, piece, kind, origin, into = sends.T
    keys = part.key(origin, at, piece), part.key(into, to, piece), part.key(0 * to, to, piece)
    number = np.concatenate([np.arange(n * width), *keys])  # the sums first
    if number.max() < 2 * len(number):
        used = np.arange(number.max() + 1)
    else:  # places that nothing uses take no memory
        used, number = np.unique(number, return_inverse=True)
    source_of, target_of, sum_of = number.reshape(-1)[n * width :].reshape(3, -1)
    state = np.zeros((len(used), words), dtype=np.uint64)  # whose data are in it
    first = used < 2 * n * width  # sums, and the data that ranks had
    state[first] = own[used[first] // width % n]
    turns, starts = np.unique(turn_of, return_index=True)
    ends = np.append(starts, len(sends))[1:]
    for turn, start, end in zip(turns.tolist(), starts.tolist(), ends.tolist(), strict=True):
        source, target, kinds = source_of[start:end], target_of[start:end], kind[start:end]
        sent = state[source]  # states at the start of the round
        for row in np.flatnonzero(~sent.any(axis=1))[:1]:
            where = part.where(turn, int(used[source[row]]))
            findings.refuse("who sends a chunk has it", where, "nothing", "the chunk")
            return False
        keeps, adds = kinds == KEEP, kinds == REDUCE
        if keeps.any():
            adds = np.append(adds, np.ones(int(keeps.sum()), dtype=np.bool_))
            sent = np.concatenate([sent, sent[keeps]])
            target = np.append(target, sum_of[start:end][keeps])
        order = np.argsort(target, kind="stable")
        same = np.flatnonzero(np.diff(target[order]) == 0)
        clash = same[~(adds[order[same]] & adds[order[same + 1]])]
        if len(clash):
            where = part.where(turn, int(used[target[order[clash[0]]]]))
            findings.refuse("a copy is all that a rank receives of a chunk", where, "more", "one")
            return False
        for key in target[adds][~state[target[adds]].any(axis=1)][:1].tolist():
            where = part.where(turn, int(used[key]))
            findings.refuse("nothing is added to an empty place", where, "nothing", "a sum")
            return False
        state[target[~adds]] = sent[~adds]
        left = order[adds[order]]
        while len(left):  # chunks that several ranks send to one are added one after another
            once = np.ones(len(left), dtype=np.bool_)
            once[1:] = target[left[1:]] != target[left[:-1]]
            goal, data = target[left[once]], sent[left[once]]
            twice = (state[goal] & data).any(axis=1)
            if twice.any():
                where = part.where(turn, int(used[goal[twice][0]]))
                findings.refuse("nothing is added twice", where, "a rank's data, again", "once")
                return False
            state[goal] |= data
            left = left[~once]
    full = np.bitwise_or.reduce(own, axis=0)
    found = state[: n * width].reshape(n, width, words)
    whole = (found == full).all(axis=2)
    if problem.operation == "reduce-scatter":
        owner = part.chunk // max(len(plan.chunk_bytes) // n, 1)
        whole |= np.arange(n)[:, None] != owner
    for rank, piece in np.argwhere(~whole)[:1].tolist():
        rule = "in the end every rank has the sum that it wants"
        got = int(sum(int(word).bit_count() for word in found[rank, piece].tolist()))
        where = f"rank {rank}, chunk {part.chunk[piece]}"
        findings.refuse(rule, where, f"{got} ranks", f"{n} ranks")
        return False
    return True


SUMS = ("all-reduce", "reduce-scatter")


def verify_collective(
    problem: Collective, subject: Schedule | CollectivePlan | Solution, findings: Findings
) -> None:
    """Replay a plan and, of a solution, check its schedule and its claims."""
    if not isinstance(subject, Solution):
        _replay(problem, subject, findings)
        return

    def replay(solution: Solution) -> bool:
        ends_s = _replay(problem, solution.answer, findings)
        if ends_s is not None:
            _check_schedule(problem, solution, ends_s, findings)
        return ends_s is not None

    findings.figures["lower_bound_recomputed"] = problem.lower_bound()
    check_solution(problem, subject, findings, replay=replay, form="both")
    if getattr(subject.answer, "among", "all") == "whole-blocks":
        findings.notes.append("the claims are of plans that send whole blocks")


def _replay(problem: Collective, plan: object, findings: Findings) -> Seconds | None:
    """Apply all rules of plans; return when rounds end, None where they define no times."""
    if not isinstance(plan, CollectivePlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "CollectivePlan")
        return None
    if problem.steps is not None:
        times_s = check_planes(problem, plan, None, findings)
        return None if times_s is None else _conclude(problem, plan, times_s, findings)
    sound = _check_chunks(problem, plan, findings)
    if not (sound and check_sends(problem, plan, findings)):
        return None
    if not check_parts(problem, plan, findings):
        return None
    (check_sums if problem.operation in SUMS else check_copies)(problem, plan, findings)
    if not check_epochs(problem, plan, findings):
        return None
    rounds = measure_rounds(problem, plan, findings)
    if rounds is None:
        return None
    if plan.shares_bytes.size:
        if problem.island > 1:
            rule = "between islands no plane has shares"
            findings.refuse(rule, "shares_bytes", plan.shares_bytes.shape, "none")
            return None
        times_s = check_planes(problem, plan, rounds, findings)
    else:
        times_s = _time_rounds(problem, plan, rounds)
    if times_s is None:
        return None
    figures = findings.figures
    figures["sends"] = len(plan.sends)
    figures["sent_bytes"] = float(plan.sent_bytes.sum())
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
) -> tuple[Seconds, Seconds]:
    """Start one round after another: when its circuits and all its ranks are ready."""
    last_s = rounds.busiest_bytes / problem.rate_bytes_per_s + problem.alpha_s
    if problem.hop_s is not None:
        last_s = last_s + problem.hop_s * rounds.hops
    if problem.island > 1:  # circuits and islands work side by side
        told = rounds.island_bytes >= 0
        links_s = problem.island_alpha_s + rounds.island_bytes / problem.island_rate_bytes_per_s
        last_s = np.maximum(last_s * (rounds.hops > 0), links_s * told)
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
    times: tuple[Seconds, Seconds],
    findings: Findings,
) -> Seconds:
    """Compare the times that the plan states with those of the replay; return when rounds end."""
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
    return ends_s


def _check_schedule(
    problem: Collective, solution: Solution, ends_s: Seconds, findings: Findings
) -> None:
    """Check that the schedule is that of the plan, and that the fabric holds it."""
    schedule, plan, fabric = solution.schedule, solution.answer, problem.fabric
    if problem.planes > 1 or problem.steps is not None:
        findings.expect("several planes have no one schedule", "schedule", schedule, None)
        return
    if schedule is None:
        findings.refuse("a plan comes with the schedule of its switch", "schedule", None, "one")
        return
    if not check_shapes(fabric, schedule, findings):
        return
    if not _has_circuits(problem, plan, schedule):
        findings.refuse(
            "the schedule has the circuits of the plan", "matchings", "others", "those"
        )
        return
    findings.expect("the delay is the problem's", "delay_s", schedule.delay_s, problem.delay_s)
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")
    # A schedule has a delay before its first slot, too, where the plan may pay none.
    last = np.searchsorted(plan.epoch_of_round, np.arange(plan.n_epochs), side="right") - 1
    wanted = ends_s[last] + problem.delay_s * _first_is_there(problem, plan)
    slot_ends_s = np.cumsum(schedule.durations_s + problem.delay_s)
    for slot in np.flatnonzero(~np.isclose(slot_ends_s, wanted, rtol=RTOL, atol=1e-18))[:1]:
        rule, where = "a slot ends with the rounds of its circuits", f"durations_s[{slot}]"
        findings.refuse(rule, where, float(slot_ends_s[slot]), float(wanted[slot]))
    check_light(fabric, schedule, findings)


def _has_circuits(problem: Collective, plan: CollectivePlan, schedule: Schedule) -> bool:
    """Tell whether the matchings of ports are the circuits of ranks, and no others.

    One-way circuits join ports of equal numbers. A two-way circuit may join others, but it leads
    back from the port to which it leads.
    """
    ports, n_ports = problem.ports, problem.fabric.n_ports
    if schedule.matchings.shape != (plan.n_epochs, n_ports):
        return False
    peer_of_port = np.full((plan.n_epochs, n_ports), IDLE)
    used = plan.n_epochs and problem.n_ranks * ports
    if used:
        by_rank = plan.circuits.swapaxes(1, 2).reshape(plan.n_epochs, used)
        peer_of_port[:, :used] = by_rank
    lit = schedule.matchings != IDLE
    facing_rank = np.where(lit, schedule.matchings // ports, IDLE)
    if not np.array_equal(facing_rank, peer_of_port):
        return False
    epoch, port = np.nonzero(lit)
    facing_port = schedule.matchings[epoch, port]
    if problem.two_way:
        return bool((schedule.matchings[epoch, facing_port] == port).all())
    return bool((facing_port % ports == port % ports).all())
