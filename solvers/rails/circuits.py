"""Circuits of one rail: which transmit port meets which receive port for each communication.

A GPU has `ports` duplex ports on its rail; port p of GPU g is transmit port ``g * ports + p`` and
receive port ``g * ports + p`` of the switch. Circuits are rows (transmit port, receive port).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import IDLE, InputError, Limits, ignore
from optmatch.problems import Demand
from optmatch.solvers.demands.portfolio import solve_best

Circuits = NDArray[np.int32]


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
    orders = hamiltonian_cycles(len(group))
    parts = []
    for k in range(0, len(use), 2):
        around = group[orders[k // 2 % len(orders)]]
        onward = np.roll(around, -1)
        there, back = use[k], use[min(k + 1, len(use) - 1)]
        parts.append(np.stack([around * ports + there, onward * ports + back], axis=1))
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
    rounds = [len(group) >> r + 1 for r in range(len(group).bit_length() - 1)]
    places = np.arange(len(group))
    return [_facing(group, places ^ distance, port, ports) for distance in rounds]


def tree(members: ArrayLike, port: int, ports: int) -> list[Circuits]:
    """Give the rounds of a binomial tree, from the leaves to the first member.

    Examples
    --------
    >>> [rows.tolist() for rows in tree([0, 1, 2], 0, ports=1)]
    [[[1, 0]], [[2, 0]]]
    """
    group = np.asarray(members, dtype=np.int64)
    rounds = []
    for r in range((len(group) - 1).bit_length()):
        child = np.arange(1 << r, len(group), 2 << r)
        pairs = np.stack([group[child], group[child - (1 << r)]], axis=1)
        rounds.append((pairs * ports + port).astype(np.int32))
    return rounds


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
    """Connect each member to the one at the place given."""
    pairs = np.stack([group, group[partners]], axis=1)
    return (pairs * ports + port).astype(np.int32)


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
