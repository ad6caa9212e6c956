"""What each rank knows of each chunk, round by round: sets of ranks whose data are in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import REDUCE
from optmatch.verify.report import Findings

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
        if not _replay(problem, columns, low, high, chunks, findings):
            return


def _replay(
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
        sent = state[source]  # as it is at the start of the round
        order = np.argsort(target, kind="stable")
        same = np.flatnonzero(np.diff(target[order]) == 0)
        clash = same[~(adds[order[same]] & adds[order[same + 1]])]
        if len(clash):
            where = _where(turn, int(target[order[clash[0]]]), width, low)
            findings.refuse("a copy is all that a rank receives of a chunk", where, "more", "one")
            return False
        state[target[~adds]] = sent[~adds]
        left = order[adds[order]]
        while len(left):  # what several send to one rank is added one after another
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
