"""Which rounds of an algorithm get new circuits: the exact dynamic programme over a pool.

The pool has the circuits that are up already, those that each round asks for, and rings that go 1,
2, 4, ... places onward; of very many, only the first few of the rounds. The cost of a round over
each set of circuits is counted once; then the best last change before each round is the best end
of the round before, plus a delay (PCCL; Harvest, restricted to this pool). The choice is exact for
the pool because a delay does not depend on what changes into what.

An *epoch* are rounds in a row with the same circuits. The circuits of a rank lead to one other, so
that they make rings and lines, and the *place* of a rank is its number along them, ring after ring
and line after line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optmatch.problems import Collective
from optmatch.problems.collectives.plan import REDUCE
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import (
    BoolArray,
    CircuitLines,
    FloatArray,
    IntArray,
    Rounds,
    ready_s,
    seconds_of,
    unroll_circuits,
)

_MOST_WORK = 30_000_000
"""Sends times circuits whose cost is counted: some 2 s."""
S_PER_TIMED_SEND = 7e-8
"""Seconds of CPU to count the cost of one send over one entry of the pool. Measured: 17 million of
256 ranks, one core. With half of it the limits of `best` are overrun by half a second."""


class CircuitChoice(NamedTuple):
    """Which circuits each round has."""

    time_s: float
    """The time of all rounds and changes, in seconds."""
    pool: IntArray
    """``pool[number, rank]``: circuits to choose from."""
    number: IntArray
    """``number[round]``: which of them a round has."""


def choice_effort_s(rounds: Rounds) -> float:
    """Estimate how many seconds of CPU `choose` takes for the rounds of an algorithm."""
    # The first send of each round stands for its circuits: where its ends are others than those of
    # the round before, the circuits are counted as others.
    n_rounds = rounds.n_rounds
    is_other_round = np.diff(rounds.sends[:, 0], prepend=-1) > 0
    first_of_round = rounds.sends[is_other_round, 1:3]
    n_entries = 1 + int((np.diff(first_of_round, axis=0) != 0).any(axis=1).sum())
    n_ranks = 1 + int(rounds.sends[:, 1:3].max(initial=0))
    n_timed: int = min(n_entries * n_rounds * n_ranks, _MOST_WORK)
    return n_timed * S_PER_TIMED_SEND


def least_time_s(problem: Collective, rounds: Rounds) -> float:
    """Return the seconds of all rounds, each over circuits of its own that change in no time."""
    busiest_bytes = float(rounds.bytes_sent(problem).max(axis=1, initial=0.0).sum())
    return seconds_of(problem, rounds.n_rounds, busiest_bytes / problem.lanes)


def choose(problem: Collective, rounds: Rounds) -> CircuitChoice:
    """Choose which circuits each round of an algorithm has, so that the last round ends first.

    Setting up other circuits takes a delay. A round may therefore keep the circuits of the round
    before, even if they do not join all its senders to their receivers: its data are forwarded
    then, over several circuits. All circuits that a round may have are in a list, the *pool*.

    This is an exact dynamic programme. A round over certain circuits begins at the earlier one of
    two times: when the round before has ended over the same circuits, or a delay after the
    earliest end of the round before over any circuits.
    """
    # `cost_s[number, round]` is how long a round takes over each entry of the pool, and
    # `adds[round]` tells whether any of it is added up, not copied.
    partner = rounds.partners(problem.n_ranks)
    n_rounds = len(partner)
    adds = np.zeros(n_rounds, dtype=np.bool_)
    adds[rounds.sends[rounds.sends[:, 4] == REDUCE, 0]] = True
    sent_bytes = rounds.bytes_sent(problem)
    pool, is_there = _make_pool(problem, partner)
    cost_s = np.array(
        [_time_over(problem, circuits, partner, sent_bytes, adds) for circuits in pool]
    ).reshape(len(pool), n_rounds)

    # Forwards: when each round can end over each entry of the pool, and over which entry the round
    # before ended. `end_s` is by entry; before the first round it is when the circuits are set up.
    begin_s = ready_s(problem, rounds.sends, n_rounds)
    free = isinstance(problem.start, str) and problem.start == "free"
    end_s = np.where(free | is_there, 0.0, problem.delay_s)
    previous = np.zeros((n_rounds, len(pool)), dtype=np.int64)
    for turn in range(n_rounds):
        # Circuits are changed where that is earlier than the end over the same circuits. The first
        # round changes none.
        first_done = int(end_s.argmin())
        changed_s = end_s[first_done] + problem.delay_s
        pays = (changed_s < end_s) & (turn > 0)
        previous[turn] = np.where(pays, first_done, np.arange(len(pool)))
        end_s = np.maximum(np.where(pays, changed_s, end_s), begin_s[turn])
        end_s = end_s + cost_s[:, turn]

    # Backwards from the earliest end of the last round: the entries that led to it.
    number = np.zeros(n_rounds, dtype=np.int64)
    chosen = int(end_s.argmin())
    for turn in reversed(range(n_rounds)):
        number[turn] = chosen
        chosen = int(previous[turn, chosen])
    return CircuitChoice(float(end_s.min()), pool, number)


def rewire(problem: Collective, rounds: Rounds, choice: CircuitChoice) -> Laid:
    """Make a plan of the rounds of an algorithm, over circuits that were chosen for each round.

    Each rank has a circuit to one other rank. Where no circuit leads from the sender of a send to
    its receiver, ranks in between forward it. The circuits that it goes over are its *hops*: over
    the circuits 0 -> 1 -> 2, a send from rank 0 to rank 2 has the hops 0 -> 1 and 1 -> 2. There
    are two kinds of plans, over the circuits of `choice`:

    - if the problem has a time of hops (``hop_s``), all hops of a send are in its round;
    - otherwise each hop gets a round of its own, and is a send of its own.
    """
    # All lanes of a rank have the circuits of the entry of the pool.
    circuits_of_entry = [
        np.broadcast_to(entry, (problem.lanes, len(entry))) for entry in choice.pool
    ]
    matchings = [circuits_of_entry[number] for number in choice.number.tolist()]

    # Follow all sends along circuits until they arrive. hops[0] has the first hop of every send,
    # hops[1] the second hop of those that have one, and so on: rows of send, from and to.
    next_rank = choice.pool[choice.number]  # [round, rank]
    turn, rank, target = rounds.sends.T[:3]
    send = np.arange(len(rank))
    hops = []
    while len(send):
        onward = next_rank[turn[send], rank]
        hops.append(np.column_stack([send, rank, onward]))
        is_on_its_way = onward != target[send]
        send = send[is_on_its_way]
        rank = onward[is_on_its_way]

    # Each hop in a round of its own. All first hops of a round become a new round, all its second
    # hops the next one, and so on, as many as its longest send has.
    if problem.hop_s is None:
        n_hops_of_round = np.zeros(len(matchings), dtype=np.int64)
        for number, rows in enumerate(hops, 1):
            n_hops_of_round[turn[rows[:, 0]]] = number
        first_of_round = np.cumsum(n_hops_of_round) - n_hops_of_round
        parts = [np.empty((0, 5), dtype=np.int64)]
        for number, rows in enumerate(hops):
            whole_send = rounds.sends[rows[:, 0]]
            new_turn = first_of_round[whole_send[:, 0]] + number
            parts.append(np.column_stack([new_turn, rows[:, 1:], whole_send[:, 3:]]))

        # The new rounds of a round all have its circuits.
        sends = np.concatenate(parts)
        sends = sends[np.argsort(sends[:, 0], kind="stable")]
        old_turn = np.repeat(np.arange(len(matchings)), n_hops_of_round).tolist()
        circuits_of_hops = [matchings[turn] for turn in old_turn]
        return lay(problem, Rounds(sends, rounds.chunk_count, circuits_of_hops))

    # All hops in the round of the send. `links` are the rows of all hops of forwarded sends,
    # sorted by send, and for each send in the order of its hops. A send is forwarded if it has a
    # second hop; the plan lists no links for others.
    links = np.concatenate([np.empty((0, 3), dtype=np.int64), *hops])
    is_forwarded = np.bincount(links[:, 0], minlength=len(rounds.sends)) > 1
    links = links[is_forwarded[links[:, 0]]]
    links = links[np.argsort(links[:, 0], kind="stable")]
    return lay(problem, rounds._replace(matchings=matchings, links=links))


def _make_pool(problem: Collective, partner: IntArray) -> tuple[IntArray, BoolArray]:
    """List the circuits that rounds may have, and tell which of them are up at the start.

    The list, called the *pool*, has

    - the circuits that each round asks for;
    - if circuits are one-way, rings that lead 1, 2, 4, ... ranks onward;
    - the circuits of the start, if the problem names them.

    ``partner[round, rank]`` tells to whom a rank sends, -1 for nobody. The result ``pool[number,
    rank]`` is the rank to which a rank transmits, -1 for none; all rows differ. The second result
    ``is_there[number]`` tells which row has the circuits of the start.
    """
    # Two-way circuits have to lead back. One-way ones may be rings over which sends are forwarded,
    # which are always in the pool; the circuits that rounds ask for are as many as there is time.
    n = problem.n_ranks
    candidates = partner.copy()
    if problem.two_way:
        turn, rank = np.nonzero(partner >= 0)
        candidates[turn, partner[turn, rank]] = rank
    elif n > 1:
        shifts = 1 << np.arange((n - 1).bit_length())
        rings = (np.arange(n) + shifts[:, None]) % n
        n_sends = max(1, int((partner >= 0).sum()))
        most = max(1, _MOST_WORK // n_sends)
        candidates = np.vstack([rings, np.unique(candidates, axis=0)[:most]])

    # The circuits of the start, if they are named and all lanes have the same ones.
    first_circuits = np.full(n, -2)  # equal to no circuits
    if not isinstance(problem.start, str) and (problem.start == problem.start[0]).all():
        first_circuits = problem.start[0].astype(np.int64)
        candidates = np.vstack([candidates, first_circuits])
    pool = np.unique(candidates, axis=0) if len(candidates) else candidates
    return pool, (pool == first_circuits).all(axis=1)


def _time_over(
    problem: Collective,
    circuits: IntArray,
    partner: IntArray,
    sent_bytes: FloatArray,
    adds: BoolArray,
) -> FloatArray:
    """Return how many seconds each round of an algorithm takes if it has the given circuits.

    Circuits make rings and lines, so there is only one way between two ranks. A send whose
    receiver is no neighbour is forwarded along this way: inside its round if the problem states
    the time of a hop, else in a round of its own for each hop. A round is infinitely long if its
    circuits cannot carry its sends.

    ``circuits[rank]`` is the rank to which it transmits, -1 for none. ``partner[round, rank]``
    tells to whom a rank sends, -1 for nobody, and ``sent_bytes[round, rank]`` how much;
    ``adds[round]`` whether any of it is added up.
    """
    # One entry for each send: its round, source, target and bytes.
    lines = unroll_circuits(circuits)
    turn, rank = np.nonzero(partner >= 0)
    target = partner[turn, rank]
    amount = sent_bytes[turn, rank]

    # `lines.place` numbers the ranks along rings and lines, `lines.first` is the first place of
    # the ring or line of a rank, and `lines.ring_length` the length of its ring (0 on a line). A
    # send goes forward along its ring or line, on a ring also over its end. It is lost if its
    # target is on another ring or line, or behind its source on a line.
    ahead = lines.place[target] - lines.place[rank]
    hops = np.where(ahead > 0, ahead, ahead + lines.ring_length[rank])
    is_lost = lines.first[rank] != lines.first[target]
    is_lost |= (ahead < 0) & (lines.ring_length[rank] == 0)
    n_rounds = len(partner)
    longest = np.zeros(n_rounds, dtype=np.int64)
    np.maximum.at(longest, turn, np.where(is_lost, 0, hops))
    if problem.hop_s is None:
        moved = _bytes_of_hop_rounds(turn, np.where(is_lost, 0, hops), amount, n_rounds)
        seconds = seconds_of(problem, longest, moved / problem.lanes)
        # A sum cannot be forwarded: the rank that forwards it would add its own data.
        seconds[adds & (longest > 1)] = np.inf
    else:
        busiest = _load_circuits(lines, turn, (rank, target), amount, n_rounds)
        seconds = seconds_of(problem, 1, busiest / problem.lanes, n_hops=longest)
    seconds[turn[is_lost]] = np.inf
    return seconds


def _load_circuits(
    lines: CircuitLines,
    turn: IntArray,
    ends: tuple[IntArray, IntArray],
    amount: FloatArray,
    n_rounds: int,
) -> FloatArray:
    """Return the bytes on the busiest circuit of each round, if sends are forwarded inside it.

    `ends` are the source and the target of each send, ranks of the same ring or line;
    ``turn[send]`` is its round, and ``amount[send]`` its bytes.

    Example: the ring 0 -> 1 -> 2 -> 0 has the places 0, 1 and 2. A send of 5 bytes from rank 0 to
    rank 2 loads the circuits at places 0 and 1 with 5 bytes each.
    """
    # `change[round, place]` is by how much the load of a circuit is more than that of the place
    # before; its running sum is the load. A send adds its bytes at its first circuit, and takes
    # them off behind its last one.
    source, target = ends
    change = np.zeros((n_rounds, len(lines.place) + 1))
    np.add.at(change, (turn, lines.place[source]), amount)
    np.add.at(change, (turn, lines.place[target]), -amount)

    # A send that goes over the end of a ring takes its bytes off behind the last place of the
    # ring, and adds them again at its first place.
    wraps = lines.place[target] < lines.place[source]
    line_start = lines.first[source]
    line_end = line_start + lines.ring_length[source]
    np.add.at(change, (turn[wraps], line_end[wraps]), -amount[wraps])
    np.add.at(change, (turn[wraps], line_start[wraps]), amount[wraps])
    busiest: FloatArray = np.cumsum(change, axis=1).max(axis=1)
    return busiest


def _bytes_of_hop_rounds(
    turn: IntArray, hops: IntArray, amount: FloatArray, n_rounds: int
) -> FloatArray:
    """Return the bytes of the largest sends of all hops of each round, added up.

    Data are forwarded hop by hop: all first hops of a round are made together, then all second
    ones, and so on, and each of these *hop rounds* lasts as long as its largest send.
    ``turn[send]`` is the round of the algorithm, ``hops[send]`` how many circuits the send takes,
    0 for one that is left out, and ``amount[send]`` its bytes. The result is by round.

    Example: in a round one send of 5 bytes takes 1 circuit, and one of 3 bytes takes 2. The first
    hop round has 5 bytes and the second one 3: 8 together.
    """
    # largest_bytes[round, hops]: the largest send with so many hops, or with more. Each hop round
    # k is made by the sends with k hops or more.
    largest_bytes = np.zeros((n_rounds, int(hops.max(initial=0)) + 1))
    np.maximum.at(largest_bytes, (turn, hops), amount)
    largest_bytes = np.maximum.accumulate(largest_bytes[:, ::-1], axis=1)[:, ::-1]
    total_bytes: FloatArray = largest_bytes[:, 1:].sum(axis=1)
    return total_bytes
