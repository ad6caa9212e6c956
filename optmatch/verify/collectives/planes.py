"""Planes that change circuits by themselves, while others send: their shares and their times."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL
from optmatch.problems import Collective, CollectivePlan
from optmatch.verify.collectives.circuits import RoundLoads
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
        return np.zeros(0), np.zeros(0)
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
    slack = RTOL * max(float(np.abs(ends).max(initial=0.0)), problem.alpha_s + problem.delay_s)
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
