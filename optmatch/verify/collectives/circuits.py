"""Circuits of a plan: every send has some, and what the busiest of a round carries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.problem import check_circuits
from optmatch.verify.report import Findings


class RoundLoads(NamedTuple):
    """What rounds have to carry, by round."""

    busiest_bytes: NDArray[np.float64]
    hops: NDArray[np.int64]
    """Of the longest route; 0 in a round without sends."""
    ready_s: NDArray[np.float64]
    """When the last rank that takes part is ready."""


def check_sends(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that rounds, ranks, chunks and kinds exist; without that nothing can be replayed."""
    n, sends = problem.n_ranks, plan.sends
    limits = (plan.n_rounds, n, n, len(plan.chunk_bytes), 2)
    for column, limit in enumerate(limits):
        for row in np.flatnonzero((sends[:, column] < 0) | (sends[:, column] >= limit))[:1]:
            place = f"sends[{row}, {column}]"
            findings.refuse("entries of sends exist", place, int(sends[row, column]), f"< {limit}")
            return False
    for row in np.flatnonzero(sends[:, 1] == sends[:, 2])[:1]:
        findings.refuse("a send goes to another rank", f"sends[{row}]", int(sends[row, 1]), "more")
        return False
    return True


def check_epochs(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check the circuits of all epochs, and that rounds go through them in order."""
    epochs = plan.epoch_of_round
    steps = np.diff(epochs, prepend=-1)
    ascending = not len(epochs) or (steps[0] == 1 and ((steps == 0) | (steps == 1)).all())
    if not ascending or (int(epochs[-1]) + 1 if len(epochs) else 0) != plan.n_epochs:
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
        check_circuits("circuits", plan.circuits, two_way=problem.two_way)
    except InputError as exc:
        findings.refuse("each lane holds a matching", "circuits", exc.message, "a matching")
        return False
    return True


def measure_rounds(
    problem: Collective, plan: CollectivePlan, findings: Findings
) -> RoundLoads | None:
    """Check that each send has its circuits, and add up what they carry.

    Equal circuits of several lanes share what goes from one rank to another evenly.
    """
    n, rounds, late = problem.n_ranks, plan.n_rounds, problem.late
    send, origin, target = _hops(problem, plan, findings)
    if send is None:
        return None
    turn = plan.sends[send, 0].astype(np.int64)
    epoch = plan.epoch_of_round[turn].astype(np.int64)
    key = (turn * n + origin) * n + target
    wanted, inverse = np.unique(key, return_inverse=True)
    carried = np.bincount(inverse, weights=plan.chunk_bytes[plan.sends[send, 3]])
    at, lane, rank = np.nonzero(plan.circuits != IDLE)
    there = (at * n + rank) * n + plan.circuits[at, lane, rank]
    circuits, lanes = np.unique(there, return_counts=True)
    asked = np.zeros(len(wanted), dtype=np.int64)
    asked[inverse] = (epoch * n + origin) * n + target
    place = np.minimum(np.searchsorted(circuits, asked), max(len(circuits) - 1, 0))
    found = circuits[place] == asked if len(circuits) else np.zeros(len(asked), dtype=np.bool_)
    for lost in np.flatnonzero(~found)[:1]:
        u, v = divmod(int(asked[lost]) % (n * n), n)
        where = f"round {wanted[lost] // (n * n)}"
        findings.refuse("a send goes over a circuit", where, f"none from {u} to {v}", "a circuit")
        return None
    busiest, hops, ready = np.zeros(rounds), np.zeros(rounds, dtype=np.int64), np.zeros(rounds)
    np.maximum.at(busiest, wanted // (n * n), carried / lanes[place])
    np.maximum.at(hops, plan.sends[:, 0], np.bincount(send, minlength=len(plan.sends)))
    if late.any():
        np.maximum.at(ready, turn, np.maximum(late[origin], late[target]))
    return RoundLoads(busiest, hops, ready)


def _hops(
    problem: Collective, plan: CollectivePlan, findings: Findings
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64], NDArray[np.int64]]:
    """List send, from and to of all hops, direct sends included; None if routes are broken."""
    links = plan.links.astype(np.int64)
    sends = plan.sends.astype(np.int64)
    nothing = np.empty(0, dtype=np.int64)
    if len(links):
        if problem.hop_s is None:
            rule = "nothing is forwarded inside a round without hop_s"
            findings.refuse(rule, "links", len(links), 0)
            return None, nothing, nothing
        send, origin, target = links.T
        right = (send < len(sends)) & ((links[:, 1:] >= 0) & (links[:, 1:] < problem.n_ranks)).all(
            1
        )
        if not right.all():
            row = int(np.flatnonzero(~right)[0])
            findings.refuse("sends and ranks exist", f"links[{row}]", links[row].tolist(), "both")
            return None, nothing, nothing
        begins = np.append(True, np.diff(send) != 0)
        ends = np.append(np.diff(send) != 0, True)
        comes_from = np.where(begins, sends[send, 1], np.roll(target, 1))
        broken = (comes_from != origin) | (ends & (target != sends[send, 2]))
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            rule = "links lead from the source of a send to its destination"
            findings.refuse(rule, f"links[{row}]", links[row].tolist(), int(comes_from[row]))
            return None, nothing, nothing
    if not len(links):
        return np.arange(len(sends)), sends[:, 1], sends[:, 2]
    alone = np.ones(len(sends), dtype=np.bool_)
    alone[links[:, 0]] = False
    direct = np.flatnonzero(alone)
    together = np.concatenate([links, np.column_stack([direct, sends[direct, 1:3]])])
    return together[:, 0], together[:, 1], together[:, 2]
