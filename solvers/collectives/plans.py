"""Plans: rounds of sends are laid over circuits, and timed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective, CollectivePlan
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes, ready_s


class Shares(NamedTuple):
    """The part of each step that each plane does, and when; arrays of shape (steps, planes)."""

    share_s: NDArray[np.float64]
    """How long a plane sends."""
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]

    @property
    def time_s(self) -> float:
        """The end of the plan."""
        return float(self.end_s.max(initial=0.0))


class Laid(NamedTuple):
    """A plan, and how long its circuits are there."""

    plan: CollectivePlan
    held_s: NDArray[np.float64] | None = None
    """``held_s[epoch]``; None of plans whose planes change circuits by themselves."""


def lay(problem: Collective, rounds: Rounds) -> Laid:
    """Give each round circuits of its own, unless those that are there serve it too."""
    matchings = rounds.matchings
    if matchings is None:
        matchings = lay_circuits(problem, rounds)
    epochs: list[NDArray[np.int64]] = []
    held = None if isinstance(problem.start, str) else problem.start.astype(np.int64)
    of_round = np.zeros(len(matchings), dtype=np.int64)
    for turn, wanted in enumerate(matchings):
        if held is None or ((wanted >= 0) & (wanted != held)).any():
            held = wanted
        if not epochs or held is not epochs[-1]:
            epochs.append(held)
        of_round[turn] = len(epochs) - 1
    circuits = np.array(epochs).reshape(len(epochs), problem.lanes, problem.n_ranks)
    laid = assemble(problem, rounds.sends, rounds.chunk_count, circuits, of_round)
    if rounds.places is None:
        return laid
    return laid._replace(plan=replace(laid.plan, places=rounds.places))


def lay_circuits(problem: Collective, rounds: Rounds) -> NDArray[np.int64]:
    """Return ``circuits[round, lane, rank]`` of rounds in which each rank sends to one other.

    All lanes have the same circuits. Two-way circuits along a ring need two lanes, which take
    turns, and a third one if the ring is odd.
    """
    n, lanes = problem.n_ranks, problem.lanes
    partner = rounds.partners(n)
    if not problem.two_way:
        return np.repeat(partner[:, None], lanes, axis=1)
    circuits = np.full((rounds.n_rounds, lanes, n), -1)
    for k, row in enumerate(partner):
        sent = np.flatnonzero(row >= 0)
        back = np.where(row[row[sent]] < 0, sent, row[row[sent]])
        if (back == sent).all():
            circuits[k][:, sent], circuits[k][:, row[sent]] = row[sent], sent
            continue
        for at, lane in _take_turns(row):
            circuits[k, lane, at], circuits[k, lane, row[at]] = row[at], at
    return circuits


def _take_turns(row: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Give each send along rings a lane, so that neighbours have different ones."""
    found: list[tuple[int, int]] = []
    seen = np.zeros(len(row), dtype=np.bool_)
    for start in np.argsort(np.isin(np.arange(len(row)), row), kind="stable").tolist():
        ring, at = [], start  # lines first, from their ends
        while at >= 0 and not seen[at] and row[at] >= 0:
            seen[at] = True
            ring.append(at)
            at = int(row[at])
        odd = len(ring) % 2 == 1 and at == start
        found += [
            (rank, 2 if odd and k == len(ring) - 1 else k % 2) for k, rank in enumerate(ring)
        ]
    return found


def assemble(
    problem: Collective,
    sends: NDArray[np.int64],
    chunk_count: int,
    circuits: NDArray[np.int64],
    epoch_of_round: NDArray[np.int64],
    links: NDArray[np.int64] | None = None,
    parts: NDArray[np.float64] | None = None,
) -> Laid:
    """Time a plan, and make it.

    `sends`, `circuits`, `epoch_of_round`, `links` and `parts` are as in a `CollectivePlan`; the
    data are cut into `chunk_count` equal chunks.
    """
    n = problem.n_ranks
    sizes = chunk_sizes(problem, chunk_count)
    n_rounds = len(epoch_of_round)
    turn, source, target, chunk = sends.T[:4]
    amounts = sizes[chunk] if parts is None else parts[:, 1]
    hops = np.ones(len(sends), dtype=np.int64)
    send = np.arange(len(sends))
    if links is not None and len(links):
        hops = np.maximum(np.bincount(links[:, 0], minlength=len(sends)), 1)
        direct = np.ones(len(sends), dtype=np.bool_)
        direct[links[:, 0]] = False
        alone = send[direct]
        send = np.concatenate([alone, links[:, 0]])
        source = np.concatenate([source[alone], links[:, 1]])
        target = np.concatenate([target[alone], links[:, 2]])
        turn, amounts = turn[send], amounts[send]
    passes = np.stack([turn, source, target], axis=1)  # ranks that forward have to be ready, too
    links_s = np.zeros(n_rounds)
    if problem.island > 1:
        inside = source // problem.island == target // problem.island
        links_s = _links_s(problem, passes[inside], amounts[inside], n_rounds)
        turn, source, target, amounts = (each[~inside] for each in (turn, source, target, amounts))
    at, which = np.unique((turn * n + source) * n + target, return_inverse=True)
    loads = np.bincount(which.reshape(-1), weights=amounts, minlength=len(at))
    round_of, pair = np.divmod(at, n * n)
    lanes = circuits[epoch_of_round[round_of], :, pair // n] == (pair % n)[:, None]
    busiest = np.zeros(n_rounds)
    np.maximum.at(busiest, round_of, loads / lanes.sum(axis=1))
    length_s = problem.alpha_s + busiest / problem.rate_bytes_per_s
    if problem.hop_s is not None:
        longest = np.zeros(n_rounds, dtype=np.int64)
        np.maximum.at(longest, sends[:, 0], hops)
        length_s = length_s + problem.hop_s * longest
    if problem.island > 1:
        length_s = np.maximum(np.where(busiest > 0, length_s, 0.0), links_s)
    begin_s = ready_s(problem, passes, n_rounds)
    held_s, time_s, held = np.zeros(len(circuits)), 0.0, -1
    for k, epoch in enumerate(epoch_of_round.tolist()):
        if epoch != held and (epoch or not _is_there(problem, circuits[0])):
            time_s += problem.delay_s
        held = epoch
        begin_s[k] = max(time_s, begin_s[k])
        held_s[epoch] += begin_s[k] - time_s + length_s[k]  # above 0, however late it is
        time_s = begin_s[k] + length_s[k]
    plan = CollectivePlan(
        sends=sends,
        chunk_bytes=sizes,
        circuits=circuits,
        epoch_of_round=epoch_of_round,
        links=np.empty((0, 3)) if links is None else links,
        parts=np.empty((0, 2)) if parts is None else parts,
        time_s=float(time_s),
        n_rounds_late=_count_late(problem, begin_s),
        among="all",
    )
    return Laid(plan, held_s)


def _links_s(
    problem: Collective, passes: NDArray[np.int64], amounts: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Return how long ranks send inside their islands in each round."""
    n, found = problem.n_ranks, np.zeros(count)
    for end in (1, 2):
        each = np.bincount(passes[:, 0] * n + passes[:, end], amounts, count * n)
        busiest = each.reshape(count, n).max(axis=1)
        seconds = problem.island_alpha_s + busiest / problem.island_rate_bytes_per_s
        found = np.maximum(found, np.where(busiest > 0, seconds, 0.0))
    return found


def _count_late(problem: Collective, begin_s: NDArray[np.float64]) -> int:
    """Count the rounds that begin when the last late rank is ready, or later."""
    late = problem.late
    return int((begin_s >= late.max()).sum()) if late.any() else 0


def _is_there(problem: Collective, circuits: NDArray[np.int64]) -> bool:
    """Tell whether the first circuits cost no delay."""
    if isinstance(problem.start, str):
        return problem.start == "free"
    return bool((circuits == problem.start).all())


def lay_shares(problem: Collective, rounds: Rounds | None, shares: Shares) -> Laid:
    """Make a plan of shares of planes; `rounds` is None for steps from outside."""
    count, planes = shares.share_s.shape
    common = {
        "shares_bytes": shares.share_s * problem.ports * problem.rate_bytes_per_s,
        "start_s": shares.start_s,
        "end_s": shares.end_s,
        "time_s": shares.time_s,
        "among": "all",
    }
    if rounds is None:
        return Laid(CollectivePlan(**common))  # type: ignore[arg-type]
    circuits = lay_circuits(problem, rounds).reshape(count, planes, problem.ports, -1)
    circuits = np.where((shares.share_s > 0)[:, :, None, None], circuits, -1)
    begin_s = np.where(shares.share_s > 0, shares.start_s, np.inf).min(axis=1, initial=np.inf)
    plan = CollectivePlan(
        sends=rounds.sends,
        chunk_bytes=chunk_sizes(problem, rounds.chunk_count),
        circuits=circuits.reshape(count, problem.lanes, -1),
        epoch_of_round=np.arange(count),
        n_rounds_late=_count_late(problem, begin_s),
        **common,  # type: ignore[arg-type]
    )
    return Laid(plan)
