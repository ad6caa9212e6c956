"""Circuits of one rail: which transmit port meets which receive port for each communication.

A GPU has `ports` duplex ports on its rail; port p of GPU g is transmit port ``g * ports + p`` and
receive port ``g * ports + p`` of the switch. Circuits are rows (transmit port, receive port).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import IDLE, InputError, Limits, ignore
from optmatch.problems import Demand
from optmatch.problems.rails.rounds import Algorithm, meet
from optmatch.solvers.demands.portfolio import solve_best

Circuits = NDArray[np.int32]
Facing = NDArray[np.int64]
"""``facing[round, side, lane, place]``: the place in its group of whom a member faces, where it
transmits (0) and where it receives (1), on each lane, in each round."""


def ring(members: ArrayLike, use: Sequence[int], ports: int) -> Circuits:
    r"""Connect a group in rings, as many as the ports allow.

    Two ports make one ring in both directions; each further two another ring, which shares no edge
    with those before while the group has any left: a complete graph splits into
    :math:`\lfloor (n - 1) / 2 \rfloor` of them (Walecki [1]_), then they repeat. A port without
    a partner makes a ring in one direction.

    Parameters
    ----------
    members
        The GPUs of the group in ring order, each once; integers, shape (n,).
    use
        The ports, by their number at each GPU. They are paired in this order.
    ports
        How many ports each GPU has.

    Returns
    -------
    Circuits
        int32, shape (n * len(use), 2); none for a group of one.

    References
    ----------
    .. [1] Alspach (2008). The wonderful Walecki construction. *Bulletin of the ICA* 52, 7-20.

    Examples
    --------
    >>> ring([0, 1, 2], [0], ports=1).tolist()
    [[0, 1], [1, 2], [2, 0]]
    >>> ring([0, 1, 2], [0, 1], ports=2).tolist()
    [[0, 3], [2, 5], [4, 1], [3, 0], [5, 2], [1, 4]]
    """
    group = np.asarray(members, dtype=np.int64)
    if len(group) < 2:
        return np.empty((0, 2), dtype=np.int32)
    parts = []
    for k in range(0, len(use), 2):
        onward = group[successors(len(group), k // 2)]
        there, back = use[k], use[min(k + 1, len(use) - 1)]
        parts.append(np.stack([group * ports + there, onward * ports + back], axis=1))
        if back != there:
            parts.append(parts[-1][:, ::-1])
    return np.concatenate(parts).astype(np.int32)


def hamiltonian_cycles(n: int) -> NDArray[np.int64]:
    """Split the complete graph on n points into cycles through all, which share no edge.

    Returns
    -------
    NDArray[np.int64]
        ``cycles[k, i]``, shape (max(1, (n - 1) // 2), n); the first is 0, 1, ..., n - 1.

    Notes
    -----
    Walecki's zigzag through an even number of points on a circle, turned step by step, and one
    point in the middle. Where n is even, one more point is put into the middle of each zigzag:
    the edges that it replaces are diameters, so no two of the new edges are the same.

    Examples
    --------
    >>> hamiltonian_cycles(5).tolist()
    [[0, 1, 2, 3, 4], [0, 2, 4, 1, 3]]
    """
    half = (n - 1) // 2
    if half < 2:
        return np.arange(n)[None]
    rim = 2 * half
    steps = np.arange(rim)
    zigzag = np.where(steps % 2, (steps + 1) // 2, -(steps // 2)) % rim
    cycles = np.full((half, n), rim)  # the point in the middle comes first
    turned = (zigzag + np.arange(half)[:, None]) % rim
    cycles[:, 1 : half + 1] = turned[:, :half]
    cycles[:, n - half :] = turned[:, half:]
    if n % 2 == 0:
        cycles[:, half + 1] = rim + 1
    names: NDArray[np.int64] = np.argsort(cycles[0])
    return np.take(names, cycles)


@lru_cache
def successors(n: int, ring: int) -> NDArray[np.int64]:
    """Tell who comes after each place on one of the rings of a group; they repeat.

    Examples
    --------
    >>> [successors(5, ring).tolist() for ring in range(2)]
    [[1, 2, 3, 4, 0], [2, 3, 4, 0, 1]]
    """
    orders = hamiltonian_cycles(n)
    around = orders[ring % len(orders)]
    onward = np.empty(n, dtype=np.int64)
    onward[around] = np.roll(around, -1)
    return onward


def face_rings(n: int, lanes: int, *, duplex: bool) -> Facing:
    """Put a group into rings: lanes 2r and 2r + 1 turn ring r forward and backward.

    A lane of bidirectional ports turns a ring of its own, both ways.

    Examples
    --------
    >>> face_rings(3, 2, duplex=False).tolist()
    [[[[1, 2, 0], [2, 0, 1]], [[2, 0, 1], [1, 2, 0]]]]
    """
    found = np.empty((1, 2, lanes, n), dtype=np.int64)
    for lane in range(lanes):
        onward = successors(n, lane if duplex else lane // 2)
        both = onward, np.argsort(onward)
        turned = 0 if duplex else lane % 2
        found[0, :, lane] = both[turned], both[1 - turned]
    return found


def face_shifts(n: int, lanes: int) -> Facing:
    """Let everyone send so many places onward, another number on each lane in each round.

    In the last round lanes that are left over stay as they are.

    Examples
    --------
    >>> face_shifts(4, 2)[:, 0, :, 0].tolist()
    [[1, 2], [3, 2]]
    """
    places, rounds = np.arange(n), -(-(n - 1) // lanes)
    found = np.empty((rounds, 2, lanes, n), dtype=np.int64)
    for turn in range(rounds):
        for lane in range(lanes):
            if turn and lane + turn * lanes >= n - 1:
                found[turn, :, lane] = found[turn - 1, :, lane]
                continue
            by = 1 + (lane + turn * lanes) % (n - 1)
            found[turn, :, lane] = (places + by) % n, (places - by) % n
    return found


def face_pairs(algorithm: Algorithm, n: int, lanes: int, distances: Sequence[int]) -> Facing:
    """Let members meet in pairs on all lanes, round by round.

    Who meets nobody in a round faces its next partner already, or its last one still.

    Examples
    --------
    >>> face_pairs("tree", 3, 1, [1, 2])[:, 0, 0].tolist()
    [[1, 0, 0], [2, 0, 0]]
    """
    met = np.stack([meet(algorithm, n, distance) for distance in distances])
    for turn in range(len(met) - 1, 0, -1):
        met[turn - 1] = np.where(met[turn - 1] == IDLE, met[turn], met[turn - 1])
    for turn in range(1, len(met)):
        met[turn] = np.where(met[turn] == IDLE, met[turn - 1], met[turn])
    return np.broadcast_to(met[:, None, None], (len(met), 2, lanes, n))


def line(members: ArrayLike, ahead: int, behind: int, ports: int, *, closed: bool) -> Circuits:
    """Connect pipeline neighbours: each stage with the next one, in both directions.

    Parameters
    ----------
    members
        The GPUs of one pipeline by stage; integers, shape (stages,).
    ahead, behind
        The ports towards the next and from the last stage. The same port twice gives circuits
        towards the next stage only, as a port meets one other at a time.
    ports
        How many ports each GPU has.
    closed
        Whether the last stage is followed by the first, as in interleaved pipelines.

    Examples
    --------
    >>> line([0, 1, 2], 0, 1, ports=2, closed=False).tolist()
    [[0, 3], [2, 5], [3, 0], [5, 2]]
    """
    stages = np.asarray(members, dtype=np.int64)
    source = stages if closed else stages[:-1]
    onward = np.roll(stages, -1)[: len(source)]
    forward = np.stack([source * ports + ahead, onward * ports + behind], axis=1)
    both = [forward] if ahead == behind else [forward, forward[:, ::-1]]
    return np.concatenate(both).astype(np.int32)


def halving(members: ArrayLike, port: int, ports: int) -> list[Circuits]:
    """Give the rounds of recursive halving (or, read backwards, doubling): partners 1, 2, 4 ...

    Each round is a perfect matching; in round r of log2(n), half as much is sent as in the round
    before, farthest partners first.

    Raises
    ------
    InputError
        If the number of members is no power of two.

    Examples
    --------
    >>> [rows.tolist() for rows in halving([0, 1, 2, 3], 0, ports=1)]
    [[[0, 2], [1, 3], [2, 0], [3, 1]], [[0, 1], [1, 0], [2, 3], [3, 2]]]
    """
    group = np.asarray(members, dtype=np.int64)
    if len(group) & (len(group) - 1) or not len(group):
        raise InputError(
            f"a group of {len(group)}: recursive halving needs a power of two", where="members"
        )
    distances = [len(group) >> r + 1 for r in range(len(group).bit_length() - 1)]
    return [_facing(group, meet("halving", len(group), d), port, ports) for d in distances]


def tree(members: ArrayLike, port: int, ports: int) -> list[Circuits]:
    """Give the rounds of a binomial tree, from the leaves to the first member, or backwards.

    Circuits lead both ways, to sum up and to spread.

    Examples
    --------
    >>> [rows.tolist() for rows in tree([0, 1, 2], 0, ports=1)]
    [[[0, 1], [1, 0]], [[0, 2], [2, 0]]]
    """
    group = np.asarray(members, dtype=np.int64)
    distances = [1 << r for r in range((len(group) - 1).bit_length())]
    return [_facing(group, meet("tree", len(group), d), port, ports) for d in distances]


def shifts(members: ArrayLike, use: Sequence[int], ports: int) -> list[Circuits]:
    """Give the rounds of an all-to-all of equal parts: everyone sends s places onward.

    On several ports as many shifts at once; n - 1 shifts are the fewest permutations in which
    every pair meets.

    Examples
    --------
    >>> [len(rows) for rows in shifts(range(4), [0, 1], ports=2)]
    [8, 4]
    """
    group = np.asarray(members, dtype=np.int64)
    everyone = [
        _facing(group, np.roll(np.arange(len(group)), -s), use[(s - 1) % len(use)], ports)
        for s in range(1, len(group))
    ]
    return [np.concatenate(everyone[k : k + len(use)]) for k in range(0, len(everyone), len(use))]


def scatter(
    members: ArrayLike,
    size_bytes: ArrayLike,
    port: int,
    ports: int,
    *,
    rate_bytes_per_s: float,
    delay_s: float,
    seed: int = 0,
    limits: Limits | None = None,
) -> list[tuple[Circuits, float]]:
    """Give the rounds of an all-to-all of unequal parts, as experts that are not equally liked.

    A demand on a switch of the members alone, scheduled by method `best`. With equal parts the
    shifts of `shifts` are as good as any.

    Parameters
    ----------
    members
        The GPUs of the group, each once; integers, shape (n,).
    size_bytes
        ``size_bytes[i, j]``: what member i sends to member j; shape (n, n), zero diagonal.
    port, ports
        The port that is used, by its number at each GPU, and how many each has.
    rate_bytes_per_s
        Of a port.
    delay_s
        Of a reconfiguration.
    seed, limits
        As for every method.

    Returns
    -------
    list of (Circuits, float)
        For each round its circuits and how many seconds they are held.

    Examples
    --------
    >>> size_bytes = [[0, 3, 0], [0, 0, 3], [1, 0, 0]]
    >>> for circuits, duration_s in scatter(
    ...     [4, 5, 6], size_bytes, 0, ports=1, rate_bytes_per_s=1.0, delay_s=0.5
    ... ):
    ...     print(circuits.tolist(), duration_s)
    [[4, 5], [5, 6], [6, 4]] 3.0
    """
    group = np.asarray(members, dtype=np.int64)
    problem = Demand(
        IdealSwitch(len(group)),
        np.asarray(size_bytes, dtype=np.float64),
        rate_bytes_per_s=rate_bytes_per_s,
        delay_s=delay_s,
    )
    found = solve_best(problem, limits or Limits(), np.random.default_rng(seed), ignore).schedule
    if found is None:
        return []
    rounds = []
    for matching, duration_s in zip(found.matchings, found.durations_s.tolist(), strict=True):
        senders = np.flatnonzero(matching != IDLE)
        pairs = np.stack([group[senders], group[matching[senders]]], axis=1)
        rounds.append(((pairs * ports + port).astype(np.int32), duration_s))
    return rounds


def _facing(
    group: NDArray[np.int64], partners: NDArray[np.int64], port: int, ports: int
) -> Circuits:
    """Connect each member to the one at the place given, -1 for none."""
    pairs = np.stack([group, group[partners]], axis=1)[partners != IDLE]
    found: Circuits = (pairs * ports + port).astype(np.int32)
    return found


def to_matching(circuits: Circuits, n_ports: int) -> NDArray[np.int32]:
    """Put circuits into one matching of the switch.

    Parameters
    ----------
    circuits
        Rows (transmit port, receive port).
    n_ports
        Transmit ports of the switch, and receive ports.

    Returns
    -------
    NDArray[np.int32]
        ``matching[transmit port] = receive port``, -1 where idle; shape (n_ports,).

    Raises
    ------
    InputError
        Naming the port that is beyond the switch or in two circuits.

    Examples
    --------
    >>> to_matching(ring([0, 1], [0], ports=2), 4).tolist()
    [2, -1, 0, -1]
    """
    for side, name in enumerate(("transmit", "receive")):
        used = circuits[:, side]
        for port in used[used >= n_ports][:1]:
            raise InputError(
                f"{name} port {port}: the switch has {n_ports} of them", where="circuits"
            )
        for port in np.flatnonzero(np.bincount(used, minlength=n_ports) > 1)[:1]:
            raise InputError(f"{name} port {port} is in two circuits", where="circuits")
    matching = np.full(n_ports, IDLE, dtype=np.int32)
    matching[circuits[:, 0]] = circuits[:, 1]
    return matching
