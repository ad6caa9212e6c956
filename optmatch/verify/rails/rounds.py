"""The rules of collectives in rounds: in each of them the circuits of all who send are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.plan import RailPlan
from optmatch.verify.rails.times import SLACK, tell
from optmatch.verify.rails.transfers import Transfers, shapes
from optmatch.verify.report import Findings

if TYPE_CHECKING:
    from optmatch.verify.rails.circuits import Rail


class _Rows(NamedTuple):
    """The ports of the parts of some collectives, one a row."""

    operation: NDArray[np.int64]
    call: NDArray[np.int64]
    """The collective, numbered from 0."""
    place: NDArray[np.int64]
    """Of its rank in its group."""
    port: NDArray[np.int64]
    """Of the switch."""
    uses: NDArray[np.int64]
    """How many ports its rank uses."""


def check_in_rounds(
    job: RailJob, plan: RailPlan, rail: Rail, findings: Findings
) -> NDArray[np.int64]:
    """Replay the collectives of a rail that are done in rounds.

    A round begins when the last one has ended and the circuits of all who send are up, and lasts
    as long as its bytes need; the collective ends with its last round. If the rail stops at that
    moment, it may end before the stop or after it.

    Returns
    -------
    NDArray[np.int64]
        The operations that were replayed.
    """
    step = job.step()
    on_rail = np.array([*(group.rail == rail.number for group in step.groups), False])[step.group]
    found = [np.empty(0, dtype=np.int64)]
    for operations, n, transfers in shapes(job):
        own = operations[on_rail[operations]]
        if len(own):
            _replay(job, plan, rail, (own, n, transfers), findings)
            found.append(own)
    return np.concatenate(found)


def _replay(
    job: RailJob,
    plan: RailPlan,
    rail: Rail,
    shape: tuple[NDArray[np.int64], int, list[Transfers]],
    findings: Findings,
) -> None:
    step, slack = job.step(), SLACK * max(plan.step_s, 1e-9)
    own, n, transfers = shape
    first, rows = _list_rows(job, plan, rail, own)
    members = {number: step.groups[number].ranks for number in np.unique(step.group[own]).tolist()}
    partner = np.array([members[number] for number in step.group[first].tolist()])
    cursor = plan.start_s[first].copy()
    at = rail.timeline.starts_s
    state = np.searchsorted(at, plan.start_s[rows.operation] + slack, side="right") - 1
    following = _following(rail)
    lost = np.zeros(step.n_operations, dtype=bool)
    for each in transfers:
        target = np.full(n, -1)
        target[[sender for sender, _, _ in each]] = [receiver for _, receiver, _ in each]
        share = max(part for _, _, part in each)
        sends = np.flatnonzero(target[rows.place] >= 0)
        call, port = rows.call[sends], rows.port[sends]
        wanted = partner[call, target[rows.place[sends]]]
        rate = rows.uses[sends] * job.network.port_bytes_per_s
        lasts = share * step.size_bytes[rows.operation[sends]] / rate + job.network.latency_s
        state[sends] = _seek(rail, following, (state[sends], port, wanted), cursor[call] + lasts)
        missing = _reached(job, rail, state[sends], port) != wanted
        since = rail.since_s[state[sends], port] + job.network.delay_s
        np.maximum.at(cursor, call, np.where(missing, -np.inf, since))
        length = np.zeros(len(cursor))
        np.maximum.at(length, call, lasts)
        late = _advance(job, rail, cursor, length, -slack)
        cursor = _advance(job, rail, cursor, length, slack)
        missing |= rail.until_s[state[sends], port] < cursor[call] - slack
        lost[rows.operation[sends[missing]]] = True
    rule = "in each round of a collective its circuits are there"
    tell(findings, step, rule, lost, plan.start_s, np.nan)
    ends, wrong = np.zeros(step.n_operations), np.zeros(step.n_operations, dtype=bool)
    ends[rows.operation] = cursor[rows.call]
    after = plan.end_s[rows.operation]
    stops = np.clip(after - cursor[rows.call], 0.0, (late - cursor)[rows.call])
    stops = np.rint(stops / (job.network.delay_s or 1.0)) * job.network.delay_s
    wrong[rows.operation] = np.abs(after - cursor[rows.call] - stops) > slack
    rule = "a collective ends with the last of its rounds"
    tell(findings, step, rule, wrong & ~lost, plan.end_s, ends)


def _list_rows(
    job: RailJob, plan: RailPlan, rail: Rail, own: NDArray[np.int64]
) -> tuple[NDArray[np.int64], _Rows]:
    """List the ports of operations; and one operation of each collective."""
    step, k = job.step(), job.network.ports_per_gpu
    _, first, call = np.unique(step.match[own], return_index=True, return_inverse=True)
    known: dict[tuple[int, int], int] = {}
    for number in np.unique(step.group[own]).tolist():
        known |= {(number, rank): p for p, rank in enumerate(step.groups[number].ranks)}
    pairs = zip(step.group[own].tolist(), step.rank[own].tolist(), strict=True)
    place = np.array([known[pair] for pair in pairs])
    row, port = np.nonzero(plan.ports[own][:, None] >> np.arange(k) & 1)
    gpu = np.searchsorted(rail.ranks, step.rank[own[row]])
    uses = np.bincount(row, minlength=len(own))[row]
    at = rail.port_of[gpu * k + port]
    return own[first], _Rows(own[row], call.reshape(-1)[row], place[row], at, uses)


def _following(rail: Rail) -> NDArray[np.int64]:
    """Return for each state and port the next state in which its circuit is another."""
    matchings = rail.timeline.matchings
    found = np.full(matchings.shape, len(matchings))
    for state in range(len(matchings) - 2, -1, -1):
        changed = matchings[state] != matchings[state + 1]
        found[state] = np.where(changed, state + 1, found[state + 1])
    return found


def _reached(
    job: RailJob, rail: Rail, state: NDArray[np.int64], port: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the ranks at the other end of circuits, -1 where there is none."""
    arrives = rail.timeline.matchings[state, port]
    at = np.where(arrives == IDLE, -1, rail.gpu_port[arrives])
    return np.where(at < 0, -1, rail.ranks[at // job.network.ports_per_gpu])


def _seek(
    rail: Rail,
    following: NDArray[np.int64],
    circuits: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    least_s: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Find the first state, from one on, whose circuit leads to a rank and lasts so long.

    Returns
    -------
    NDArray[np.int64]
        The last state that was looked at, if there is none.
    """
    state, port, wanted = (column.copy() for column in circuits)
    k = len(rail.port_of) // max(1, len(rail.ranks))
    slack = SLACK * max(float(rail.timeline.starts_s[-1]), 1e-9)
    going = np.arange(len(state))
    while len(going):
        arrives = rail.timeline.matchings[state[going], port[going]]
        at = np.where(arrives == IDLE, -1, rail.gpu_port[arrives])
        fits = (at >= 0) & (rail.ranks[at // k] == wanted[going])
        fits &= rail.until_s[state[going], port[going]] >= least_s[going] - slack
        later = following[state[going], port[going]]
        going, later = going[~fits], later[~fits]
        inside = later < len(rail.timeline.matchings)
        going, later = going[inside], later[inside]
        state[going] = later
    return state


def _advance(
    job: RailJob,
    rail: Rail,
    begin: NDArray[np.float64],
    lasts: NDArray[np.float64],
    slack: float,
) -> NDArray[np.float64]:
    """Return when what begins then ends, if the rail may stand still meanwhile."""
    if job.network.switching != "all-stop":
        return begin + lasts
    stops, delay = rail.timeline.starts_s[1:], job.network.delay_s
    if not len(stops):
        return begin + lasts
    number = np.searchsorted(stops, begin, side="right")
    inside = np.minimum(begin - stops[np.maximum(number - 1, 0)], delay)
    dark = np.where(number > 0, (number - 1) * delay + inside, 0.0)
    light = begin - dark + lasts  # how long the rail is up before the end
    before = np.searchsorted(stops - np.arange(len(stops)) * delay, light - slack, side="left")
    return np.maximum(begin, light + before * delay)
