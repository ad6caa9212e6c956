"""Plans: rounds of sends are laid over circuits, and timed.

A *plane* is a switch of its own, to which each rank has some ports; a *lane* is a port of a rank
on some plane, with the number ``plane * ports + port``. An *epoch* are rounds in a row with the
same circuits, and a *step* is a round whose bytes the planes share, each with circuits of its own.
A *row* of sends is round, source, destination, chunk and kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optmatch.problems import Collective, CollectivePlan
from optmatch.solvers.collectives.rounds import (
    BoolArray,
    FloatArray,
    IntArray,
    Rounds,
    chunk_sizes,
    ready_s,
    seconds_of,
    unroll_circuits,
)


class Shares(NamedTuple):
    """The part of each step that each plane does, and when; arrays of shape (steps, planes)."""

    share_s: FloatArray
    """How long a plane sends, in seconds; 0 if it takes no part in the step."""
    start_s: FloatArray
    """When it begins the step, which its latency follows; 0 if it takes no part."""
    end_s: FloatArray
    """When it ends the step; 0 if it takes no part."""

    @property
    def time_s(self) -> float:
        """The end of the plan."""
        return float(self.end_s.max(initial=0.0))


class Laid(NamedTuple):
    """A plan, and how long its circuits are there."""

    plan: CollectivePlan
    """The rounds of sends, their circuits and the time of the plan."""
    held_s: FloatArray | None = None
    """``held_s[epoch]``: for how many seconds the circuits of an epoch are there, from the end of
    their change on; None of plans whose planes change circuits by themselves."""

    @property
    def time_s(self) -> float:
        """The seconds of the plan."""
        return self.plan.time_s


def lay(problem: Collective, rounds: Rounds) -> Laid:
    """Make a timed plan of rounds of sends: circuits are changed only where a round needs others.

    A round joins the epoch of the round before if all circuits that it wants are there; circuits
    that it does not want may be there too. Otherwise a new epoch begins with the circuits of the
    round. The first round can use the circuits at the start of the problem in the same way.

    Example: round 0 wants the circuits 0 -> 1 and 1 -> 0, round 1 only 0 -> 1, and round 2 wants 0
    -> 2. The rounds 0 and 1 are one epoch, and round 2 another one.
    """
    matchings = rounds.matchings
    if matchings is None:
        matchings = list_circuits(problem, rounds)
    circuits_there: IntArray | None = None  # [lane, rank]; None if there are none at the start
    if not isinstance(problem.start, str):
        circuits_there = problem.start.astype(np.int64)

    # A new epoch begins where a round wants a circuit that is not there; circuits that no round
    # needs may stay. Rounds often share one array of circuits, which need not be compared. The
    # first epoch may have the circuits of the start.
    epochs: list[IntArray] = []
    epoch_of_round = np.zeros(len(matchings), dtype=np.int64)
    for turn, wanted_circuits in enumerate(matchings):
        if circuits_there is not wanted_circuits and (
            circuits_there is None
            or ((wanted_circuits >= 0) & (wanted_circuits != circuits_there)).any()
        ):
            circuits_there = wanted_circuits
        if not epochs or circuits_there is not epochs[-1]:
            epochs.append(circuits_there)
        epoch_of_round[turn] = len(epochs) - 1
    circuits = np.array(epochs).reshape(len(epochs), problem.lanes, problem.n_ranks)
    return assemble(problem, rounds, circuits, epoch_of_round)


def list_circuits(problem: Collective, rounds: Rounds) -> list[IntArray]:
    """List ``circuits[lane, rank]`` of each round in which each rank sends to one other.

    An entry is the peer of a port, -1 if it is dark. Rounds in a row with the same sends, such as
    those of a ring, share one array: thousands of rounds of a thousand ranks with many ports would
    take a second to be written out.
    """
    circuits: list[IntArray] = []
    last_target: IntArray | None = None
    for target in rounds.partners(problem.n_ranks):
        if last_target is not None and np.array_equal(target, last_target):
            circuits.append(circuits[-1])
        else:
            circuits.append(_lay_circuits_of_round(problem, target))
        last_target = target
    return circuits


def _lay_circuits_of_round(problem: Collective, target: IntArray) -> IntArray:
    """Return the circuits of a round in which each rank sends to one other.

    ``target[rank]`` tells to whom a rank sends, -1 for nobody. Returns the peer of each port, -1
    if it is dark.
    """
    if not problem.two_way:
        return np.repeat(target[None], problem.lanes, axis=0)

    # Over a two-way circuit a rank can only send to the rank that it receives from. That is enough
    # if each receiver sends back to its sender, or to nobody: all lanes have the same circuits
    # then. `answers` are the ranks to which the receivers send.
    circuits = np.full((problem.lanes, problem.n_ranks), -1)
    senders = np.flatnonzero(target >= 0)
    answers = target[target[senders]]
    is_pair = (answers < 0) | (answers == senders)
    if is_pair.all():
        circuits[:, senders] = target[senders]
        circuits[:, target[senders]] = senders
        return circuits

    # Else a rank sends to one neighbour and receives from another, over a lane each. Along rings
    # and lines circuits have the lanes 0 and 1 in turn, and the last one around an odd ring has
    # lane 2. The ring 0 -> 1 -> 2 -> 0 takes lane 0 from 0 to 1, lane 1 from 1 to 2, and lane 2
    # from 2 to 0.
    lines = unroll_circuits(target)
    closes_odd_ring = (lines.ring_length % 2 == 1) & (lines.steps == lines.ring_length - 1)
    lane = np.where(closes_odd_ring, 2, lines.steps % 2)[senders]
    circuits[lane, senders] = target[senders]
    circuits[lane, target[senders]] = senders
    return circuits


class HopLoads(NamedTuple):
    """All hops of all sends: one for a direct send, one for each link of a forwarded send."""

    turn: IntArray
    """``turn[hop]``: the round of the hop."""
    source: IntArray
    """``source[hop]``: the rank at which the hop begins."""
    target: IntArray
    """``target[hop]``: the rank at which it ends."""
    amount: FloatArray
    """``amount[hop]``: the bytes that it carries."""
    longest: IntArray
    """``longest[round]``: the most hops of any send."""


def assemble(
    problem: Collective, rounds: Rounds, circuits: IntArray, epoch_of_round: IntArray
) -> Laid:
    """Make a plan of rounds of sends over given circuits, and work out how long it takes.

    Rounds follow each other without gaps. Two things delay a round: the change of circuits before
    it, and ranks that are not ready yet. Rounds in a row over the same circuits are an *epoch*:
    ``circuits[epoch, lane, rank]`` is the rank to which a port leads, -1 for none, and
    ``epoch_of_round[round]`` the epoch to which a round belongs. The matchings of `rounds` do not
    count. If `rounds` has stored ranks, its sends are those for the chunks of these ranks alone,
    and stand for the sends of all ranks.

    Example: a delay of 10 us, three rounds of 4 us, and circuits that change before the last one.
    If the first circuits are there, the plan takes 4 + 4 + 10 + 4 = 22 us, and the epochs are held
    for 8 and 4 us. With a rank that is ready after 6 us, and sends in round 0, it takes 28 us.
    """
    links = rounds.links
    parts = rounds.parts
    stored_ranks = rounds.stored_ranks
    n_rounds = len(epoch_of_round)
    hops = list_hops(problem, rounds, n_rounds)
    length_s = time_rounds(problem, hops, circuits, epoch_of_round)

    # When all ranks of a round are ready, those that only forward included.
    ready_of_round_s = np.zeros(n_rounds)
    if problem.late.any():
        passes = np.stack([hops.turn, hops.source, hops.target], axis=1)
        ready_of_round_s = ready_s(problem, passes, n_rounds, stored_ranks)

    # Whether the first circuits need no change: a start is "free" if the first circuits cost no
    # delay, whichever they are, another word if they do, or the circuits that are there, an array
    # like ``circuits[0]``.
    is_there = isinstance(problem.start, str) and problem.start == "free"
    if not isinstance(problem.start, str):
        is_there = bool((circuits[:1] == problem.start).all())

    # Time the rounds one after another; `time_s` is the end of the last one, or of the change of
    # circuits after it. The circuits of an epoch are held from the end of their change to the end
    # of its last round, also while rounds wait for late ranks. The wait and the round are added
    # up: end minus change would round to 0 where ranks are late by far more than a round.
    begin_s = np.zeros(n_rounds)
    held_s = np.zeros(len(circuits))
    time_s = 0.0
    last_epoch = -1  # the epoch of the round before; none yet
    for round_, epoch in enumerate(epoch_of_round.tolist()):
        if epoch != last_epoch and (epoch or not is_there):
            time_s += problem.delay_s
        last_epoch = epoch
        begin_s[round_] = max(time_s, ready_of_round_s[round_])
        held_s[epoch] += begin_s[round_] - time_s + length_s[round_]
        time_s = begin_s[round_] + length_s[round_]

    # The plan competes with plans of all kinds (``among``), not only with those of whole blocks.
    plan = CollectivePlan(
        sends=rounds.sends,
        chunk_bytes=chunk_sizes(problem, rounds.chunk_count, stored_ranks),
        circuits=circuits,
        epoch_of_round=epoch_of_round,
        links=np.empty((0, 3)) if links is None else links,
        parts=np.empty((0, 2)) if parts is None else parts,
        places=np.empty((0, 2)) if rounds.places is None else rounds.places,
        time_s=float(time_s),
        n_rounds_late=_count_late(problem, begin_s),
        stored_ranks=stored_ranks,
        among="all",
    )
    return Laid(plan, held_s)


def list_hops(problem: Collective, rounds: Rounds, n_rounds: int) -> HopLoads:
    """List the circuits that all sends take: the hops by which a round is timed.

    With stored ranks they are those of the sends that are listed, each moved back to begin at one
    of the first ranks. Example: a send from 0 to 2 with the links 0-1 and 1-2 has two hops, each
    with all its bytes.
    """
    # A send with links has a hop for each of them; all others have one, from source to target. A
    # hop carries all bytes of its send: the whole chunk, or the part that the send takes.
    turn, source, target, chunk, _ = rounds.sends.T
    if rounds.parts is None:
        amount = chunk_sizes(problem, rounds.chunk_count, rounds.stored_ranks)[chunk]
    else:
        amount = rounds.parts[:, 1]
    longest = np.zeros(n_rounds, dtype=np.int64)
    longest[turn] = 1
    links = rounds.links
    if links is not None and len(links):
        # The hops of direct sends, which have no links, come first, then the links of all others.
        n_hops = np.bincount(links[:, 0], minlength=len(turn))
        np.maximum.at(longest, turn, n_hops)
        direct = np.flatnonzero(n_hops == 0)
        send = np.concatenate([direct, links[:, 0]])
        source = np.concatenate([source[direct], links[:, 1]])
        target = np.concatenate([target[direct], links[:, 2]])
        turn = turn[send]
        amount = amount[send]

    # All ranks do as the first s ranks do, so that the busiest circuit is found from those alone:
    # each hop is moved back by a multiple of s, to begin at one of them. Of 8 ranks with s = 2, a
    # hop from 5 to 0 counts as one from 1 to 4.
    if rounds.stored_ranks:
        places_back = source - source % rounds.stored_ranks
        source = source - places_back
        target = (target - places_back) % problem.n_ranks
    return HopLoads(turn, source, target, amount, longest)


def time_rounds(
    problem: Collective, hops: HopLoads, circuits: IntArray, epoch_of_round: IntArray
) -> FloatArray:
    """Return how long each round lasts, without changes of circuits or waiting for ranks.

    A round lasts the sum of three terms: the latency, the bytes of the busiest circuit over its
    rate, and the latency of a hop times the most hops of a send. Links inside islands send at the
    same time; if they take longer than the circuits, the round lasts as long as they do.

    ``circuits[epoch, lane, rank]`` is the rank to which a port leads, -1 for none.
    ``epoch_of_round[round]`` tells which of these circuits a round has.
    """
    n = problem.n_ranks
    n_rounds = len(epoch_of_round)
    # Hops inside islands have times of their own; all others go over circuits.
    islands_s = np.zeros(n_rounds)
    if problem.island > 1:
        inside = hops.source // problem.island == hops.target // problem.island
        islands_s = _time_islands(problem, hops, inside, n_rounds)
        hops = HopLoads(
            turn=hops.turn[~inside],
            source=hops.source[~inside],
            target=hops.target[~inside],
            amount=hops.amount[~inside],
            longest=hops.longest,
        )

    # Several ports (*lanes*) may lead from one rank to the same other one; they share the bytes
    # evenly. Hops with the same round, source and target are one pair, a number (round * n +
    # source) * n + target: with n = 8, round 2 from 1 to 5 is 141. ``load[pair]`` adds up its
    # bytes, and ``n_circuits[pair]`` counts the lanes that lead from its source to its target in
    # the round.
    pair_of_hop = (hops.turn * n + hops.source) * n + hops.target
    pair_of_round, pair_number = np.unique(pair_of_hop, return_inverse=True)
    load = np.bincount(pair_number.reshape(-1), weights=hops.amount, minlength=len(pair_of_round))
    round_of_pair, pair = np.divmod(pair_of_round, n * n)
    epoch_of_pair = epoch_of_round[round_of_pair]
    source_of_pair, target_of_pair = np.divmod(pair, n)
    n_circuits = np.zeros(len(pair), dtype=np.int64)
    for lane in range(problem.lanes):
        n_circuits += circuits[epoch_of_pair, lane, source_of_pair] == target_of_pair
    busiest = np.zeros(n_rounds)
    np.maximum.at(busiest, round_of_pair, load / n_circuits)

    # A round without hops over circuits lasts as long as the links inside islands take.
    length_s = seconds_of(problem, 1, busiest, n_hops=hops.longest)  # of each round
    if problem.island > 1:
        length_s = np.maximum(np.where(busiest > 0, length_s, 0.0), islands_s)
    return length_s


def _time_islands(
    problem: Collective, hops: HopLoads, inside: BoolArray, n_rounds: int
) -> FloatArray:
    """Return how long the busiest rank sends, or receives, inside its island in each round.

    ``inside[hop]`` tells whether both ranks are in the same island.

    Example: a rank that sends 3 MB and receives 2 MB in a round counts with 3 MB.
    """
    n = problem.n_ranks
    length_s = np.zeros(n_rounds)
    for end in (hops.source, hops.target):
        bytes_of_rank = np.bincount(
            hops.turn[inside] * n + end[inside], hops.amount[inside], n_rounds * n
        )
        busiest = bytes_of_rank.reshape(n_rounds, n).max(axis=1)
        seconds = problem.island_start_up_s + busiest / problem.island_rate_bytes_per_s
        length_s = np.maximum(length_s, np.where(busiest > 0, seconds, 0.0))
    return length_s


def _count_late(problem: Collective, begin_s: FloatArray) -> int:
    """Count the rounds that begin when the last late rank is ready, or later; 0 if none is late.

    ``begin_s[round]`` is in seconds.
    """
    late = problem.late
    return int((begin_s >= late.max()).sum()) if late.any() else 0


def lay_shares(problem: Collective, rounds: Rounds | None, shares: Shares) -> Laid:
    """Make a plan for several planes that share the bytes of each round, here called a *step*.

    In each step each plane sends for some time of its own (`shares`), over circuits that it has
    changed by itself. `rounds` are the steps as rounds of sends; None if the problem states only
    the bytes of its steps: the plan then has times and bytes alone. Planes change circuits by
    themselves, so that the result has no `held_s`.
    """
    # In `share_s` a plane sends over all its ports at once. The plan competes with plans of all
    # kinds (``among``), not only with those of whole blocks.
    n_steps, planes = shares.share_s.shape
    common: dict[str, Any] = {
        "shares_bytes": shares.share_s * problem.ports * problem.rate_bytes_per_s,
        "start_s": shares.start_s,
        "end_s": shares.end_s,
        "time_s": shares.time_s,
        "among": "all",
    }
    if rounds is None:
        return Laid(CollectivePlan(**common))

    # Each step is an epoch, and planes that carry nothing in a step have no circuits in it: lanes
    # are divided into planes and ports for that, and put together again in the plan. A step begins
    # when the first plane that takes part in it does.
    used = shares.share_s > 0
    circuits = np.array(list_circuits(problem, rounds), dtype=np.int64)
    circuits = circuits.reshape(n_steps, planes, problem.ports, problem.n_ranks)
    circuits = np.where(used[:, :, None, None], circuits, -1)
    begin_s = np.where(used, shares.start_s, np.inf).min(axis=1, initial=np.inf)
    plan = CollectivePlan(
        sends=rounds.sends,
        chunk_bytes=chunk_sizes(problem, rounds.chunk_count),
        circuits=circuits.reshape(n_steps, problem.lanes, -1),
        epoch_of_round=np.arange(n_steps),
        n_rounds_late=_count_late(problem, begin_s),
        **common,
    )
    return Laid(plan)
