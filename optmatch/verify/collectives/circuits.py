"""Circuits of a plan: the matching of each plane, and that circuits carry every send."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL, InputError
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.problem import check_circuits, check_rails
from optmatch.verify.report import Findings


def check_planes(
    problem: Collective, plan: CollectivePlan, rounds: RoundLoads | None, findings: Findings
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Check shares, lengths and changes of circuits of all planes, each by its own state.

    `rounds` is what the rounds of the plan carry; None for a list of steps that is given from
    outside. Returns when each round starts and ends; None if shares or epochs are of other rounds.
    """
    wanted = rounds.busiest_bytes if rounds is not None else np.asarray(problem.steps)[:, 1]
    ready = rounds.ready_s if rounds is not None else np.zeros(len(wanted))
    shape = (len(wanted), problem.planes)
    shares, starts, ends = plan.shares_bytes, plan.start_s, plan.end_s
    if rounds is None:
        findings.expect("steps from outside have no sends", "sends", len(plan.sends), 0)
        findings.expect("nor circuits of their own", "circuits", plan.n_epochs, 0)
    if not len(wanted) and not shares.size:
        return wanted, wanted
    if not findings.expect(
        "planes have a share in each round", "shares_bytes", shares.shape, shape
    ):
        return None
    used = shares > 0
    if rounds is not None:
        # measure_rounds let all planes with the circuits share evenly; here one port is meant.
        wanted = wanted * problem.ports * used.sum(axis=1)
        if not _check_epochs(problem, plan, used, findings):
            return None
    total = shares.sum(axis=1)
    slack = RTOL * float(ends.max())
    for k in np.flatnonzero((shares < 0).any(axis=1) | (total < wanted * (1 - RTOL)))[:1]:
        rule = "planes together carry the bytes of a round"
        findings.refuse(rule, f"shares_bytes[{k}]", float(total[k]), float(wanted[k]))
    lasts = (
        problem.alpha_s
        + (problem.hop_s or 0.0)
        + shares / (problem.ports * problem.rate_bytes_per_s)
    )
    _refuse(findings, used & (ends - starts < lasts - slack), "a share takes its time", starts)
    idle = ~used & ((starts != 0) | (ends != 0))
    _refuse(findings, idle, "a plane without a share has no times", starts)
    first = np.maximum(
        ready, np.concatenate([[0.0], np.maximum.accumulate(ends.max(axis=1))[:-1]])
    )
    early = used & (starts < first[:, None] - slack)
    _refuse(
        findings, early, "a round starts after the one before, and when ranks are ready", starts
    )
    for plane in range(problem.planes):
        _check_changes(problem, plan, rounds is None, plane, slack, findings)
    begin = np.where(used, starts, math.inf).min(axis=1)
    return np.where(used.any(axis=1), begin, first), np.maximum(ends.max(axis=1), first)


def _check_epochs(
    problem: Collective, plan: CollectivePlan, used: NDArray[np.bool_], findings: Findings
) -> bool:
    """Check that all planes with a share have the same circuits; False if epochs are no rounds."""
    rule = "each round has an epoch of its own"
    if not findings.expect(rule, "circuits", plan.n_epochs, len(used)):
        return False
    lanes = plan.circuits.reshape(len(used), problem.planes, problem.ports, problem.n_ranks)
    dark = (lanes == IDLE).all(axis=(2, 3))
    _refuse(findings, dark == used, "planes with a share have circuits, and no others", used)
    shown = np.where(used[:, :, None, None], lanes, IDLE).max(axis=(1, 2))
    other = (used[:, :, None, None] & (lanes != shown[:, None, None])).any(axis=(2, 3))
    _refuse(findings, other, "planes and ports of a round have the same circuits", used)
    return True


def _check_changes(
    problem: Collective,
    plan: CollectivePlan,
    given: bool,
    plane: int,
    slack: float,
    findings: Findings,
) -> None:
    """Check that a plane has the time to change circuits between two rounds that differ."""
    ports = slice(plane * problem.ports, (plane + 1) * problem.ports)
    before, free_at = None, 0.0
    if not isinstance(problem.start, str):
        before = problem.start[ports]
    for k in np.flatnonzero(plan.shares_bytes[:, plane] > 0).tolist():
        now = np.asarray(problem.steps)[k, :1] if given else plan.circuits[k, ports]
        kept = problem.start == "free" if before is None else np.array_equal(before, now)
        earliest = free_at + (0.0 if kept else problem.delay_s)
        if plan.start_s[k, plane] < earliest - slack:
            rule = "a plane has the time to change its circuits"
            where = f"start_s[{k}, {plane}]"
            findings.refuse(rule, where, float(plan.start_s[k, plane]), earliest)
        before, free_at = now, float(plan.end_s[k, plane])


def _refuse(
    findings: Findings, wrong: NDArray[np.bool_], rule: str, got: NDArray[np.generic]
) -> None:
    """Add a violation for the first round and plane that is wrong."""
    for k, plane in np.argwhere(wrong)[:1].tolist():
        findings.refuse(rule, f"round {k}, plane {plane}", got[k, plane].item(), rule)


class RoundLoads(NamedTuple):
    """The loads of rounds, by round."""

    busiest_bytes: NDArray[np.float64]
    hops: NDArray[np.int64]
    """Hops of the longest route; 0 in a round without sends."""
    ready_s: NDArray[np.float64]
    """When the last rank that takes part is ready."""
    island_bytes: NDArray[np.float64]
    """What the busiest rank sends or receives inside its island; -1 in a round without that."""


def check_sends(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that rounds, ranks, chunks and kinds exist; without that nothing can be replayed."""
    n, sends = problem.n_ranks, plan.sends
    limits = (plan.n_rounds, n, n, len(plan.chunk_bytes), 3)
    for column, limit in enumerate(limits):
        for row in np.flatnonzero((sends[:, column] < 0) | (sends[:, column] >= limit))[:1]:
            place = f"sends[{row}, {column}]"
            findings.refuse("entries of sends exist", place, int(sends[row, column]), f"< {limit}")
            return False
    for row in np.flatnonzero(sends[:, 1] == sends[:, 2])[:1]:
        got = sends[row].tolist()
        findings.refuse("a send goes to another rank", f"sends[{row}]", got, "two ranks")
        return False
    return True


def check_epochs(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check the circuits of all epochs, and that rounds go through them in order."""
    epochs = plan.epoch_of_round
    steps = np.diff(epochs, prepend=-1)
    ascending = ((steps == 0) | (steps == 1)).all()
    if not ascending or int(epochs.max(initial=-1)) + 1 != plan.n_epochs:
        rule = "rounds go through all epochs in order"
        findings.refuse(rule, "epoch_of_round", epochs.tolist()[:9], f"0 .. {plan.n_epochs - 1}")
        return False
    if not plan.n_epochs:
        return True
    shape = (plan.n_epochs, problem.lanes, problem.n_ranks)
    rule = "each rank has its lanes in each epoch"
    if not findings.expect(rule, "circuits.shape", plan.circuits.shape, shape):
        return False
    try:
        check_circuits("circuits", plan.circuits, two_way=problem.two_way, ports=problem.ports)
    except InputError as exc:
        findings.refuse("each lane holds a matching", "circuits", exc.message, "a matching")
        return False
    try:
        check_rails("circuits", plan.circuits, problem.island)
    except InputError as exc:
        findings.refuse("circuits stay on their rails", "circuits", exc.message, "the same place")
        return False
    return True


def measure_rounds(
    problem: Collective, plan: CollectivePlan, findings: Findings
) -> RoundLoads | None:
    """Check that each send has its circuits, and add up what they carry.

    Equal circuits of several lanes share what goes from one rank to another evenly.
    """
    n, rounds, late = problem.n_ranks, plan.n_rounds, problem.late
    hops = _hops(problem, plan, findings)
    if hops is None:
        return None
    send, origin, target = hops
    island_bytes = np.full(rounds, -1.0)
    inside = origin // problem.island == target // problem.island
    _load_islands(plan, n, send[inside], island_bytes)
    send, origin, target = send[~inside], origin[~inside], target[~inside]
    turn = plan.sends[send, 0].astype(np.int64)
    epoch = plan.epoch_of_round[turn].astype(np.int64)
    key = (turn * n + origin) * n + target
    wanted, inverse = np.unique(key, return_inverse=True)
    carried = np.bincount(inverse, weights=plan.sent_bytes[send])
    at, lane, rank = np.nonzero(plan.circuits != IDLE)
    there = (at * n + rank) * n + plan.circuits[at, lane, rank]
    circuits, lanes = np.unique(there, return_counts=True)
    asked = np.zeros(len(wanted), dtype=np.int64)
    asked[inverse] = (epoch * n + origin) * n + target
    for lost in np.flatnonzero(~np.isin(asked, circuits))[:1]:
        u, v = divmod(int(asked[lost]) % (n * n), n)
        where = f"round {wanted[lost] // (n * n)}"
        findings.refuse("a send goes over a circuit", where, f"none from {u} to {v}", "a circuit")
        return None
    busiest, most, ready = np.zeros(rounds), np.zeros(rounds, dtype=np.int64), np.zeros(rounds)
    shared = lanes[np.searchsorted(circuits, asked)]
    np.maximum.at(busiest, wanted // (n * n), carried / shared)
    np.maximum.at(most, plan.sends[:, 0], np.bincount(send, minlength=len(plan.sends)))
    if late.any():
        np.maximum.at(ready, turn, np.maximum(late[origin], late[target]))
    return RoundLoads(busiest, most, ready, island_bytes)


def _load_islands(
    plan: CollectivePlan, n: int, send: NDArray[np.int64], busiest: NDArray[np.float64]
) -> None:
    """Write what the busiest rank sends, or receives, inside its island in each round."""
    turn = plan.sends[send, 0].astype(np.int64)
    for end in (1, 2):
        each = np.bincount(
            turn * n + plan.sends[send, end], plan.sent_bytes[send], len(busiest) * n
        )
        np.maximum.at(busiest, turn, each.reshape(-1, n).max(axis=1)[turn])


def _hops(
    problem: Collective, plan: CollectivePlan, findings: Findings
) -> tuple[NDArray[np.int64], ...] | None:
    """List send, from and to of all hops, direct sends included; None if routes are broken."""
    links = plan.links.astype(np.int64)
    sends = plan.sends.astype(np.int64)
    if len(links):
        if problem.hop_s is None:
            rule = "nothing is forwarded inside a round without hop_s"
            findings.refuse(rule, "links", len(links), 0)
            return None
        send, origin, target = links.T
        right = (send < len(sends)) & (links[:, 1:] < problem.n_ranks).all(axis=1)
        if not right.all():
            row = int(np.flatnonzero(~right)[0])
            findings.refuse("sends and ranks exist", f"links[{row}]", links[row].tolist(), "both")
            return None
        begins = np.append(True, np.diff(send) != 0)
        ends = np.append(np.diff(send) != 0, True)
        comes_from = np.where(begins, sends[send, 1], np.roll(target, 1))
        broken = (comes_from != origin) | (ends & (target != sends[send, 2]))
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            rule = "links lead from the source of a send to its destination"
            findings.refuse(rule, f"links[{row}]", links[row].tolist(), int(comes_from[row]))
            return None
    if not len(links):
        return np.arange(len(sends)), sends[:, 1], sends[:, 2]
    alone = np.ones(len(sends), dtype=np.bool_)
    alone[links[:, 0]] = False
    direct = np.flatnonzero(alone)
    together = np.concatenate([links, np.column_stack([direct, sends[direct, 1:3]])])
    return together[:, 0], together[:, 1], together[:, 2]
