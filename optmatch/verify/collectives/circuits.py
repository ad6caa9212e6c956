"""Circuits of a plan: the matching of each plane, and that circuits carry every send."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL
from optmatch.problems import Collective, CollectivePlan
from optmatch.verify.report import Findings

IntArray = NDArray[np.int64]
Seconds = NDArray[np.float64]
_MOST_SHOWN_EPOCHS = 9


class RoundLoads(NamedTuple):
    """The loads of rounds; columns have shape (rounds,)."""

    busiest_bytes: NDArray[np.float64]
    """The bytes that the busiest circuit carries."""
    hops: IntArray
    """Hops of the longest route; 0 in a round without sends."""
    ready_s: Seconds
    """When the last rank that takes part is ready, in seconds."""
    island_bytes: NDArray[np.float64]
    """The bytes that the busiest rank sends or receives inside its island; -1 in a round without
    sends inside islands."""


def check_planes(
    problem: Collective, plan: CollectivePlan, loads: RoundLoads | None, findings: Findings
) -> tuple[Seconds, Seconds] | None:
    """Check when the switches of a plan send and how much, if each changes its circuits by itself.

    Several switches, called *planes*, carry a collective together; each rank has some ports on
    each of them. In every round each plane carries a *share* of what a rank sends, at times of its
    own; the rank that sends most counts. The checks are:

    - the shares of a round together are all of its bytes;
    - a share starts when the round before has ended on all planes, and the ranks are ready;
    - a share lasts as long as its bytes take;
    - a plane has the time to change circuits between two of its shares.

    Example: two planes, and a round in which no rank sends more than 6 bytes. Shares of 4 and 2
    bytes are right, and so are shares of 6 and 0.

    Returns none in place of both if the shares or the circuits of the plan are not those of these
    rounds.
    """
    # Each round, or each step that the problem states, has a share of each plane.
    if loads is None:
        n_rounds = len(np.asarray(problem.steps))
        ready_s = np.zeros(n_rounds)
        findings.expect("steps from outside have no sends", "sends", len(plan.sends), 0)
        findings.expect("nor circuits of their own", "circuits", plan.n_epochs, 0)
    else:
        n_rounds = len(loads.busiest_bytes)
        ready_s = loads.ready_s
    if not n_rounds and not plan.shares_bytes.size:
        return np.zeros(0), np.zeros(0)
    shape = (n_rounds, problem.planes)
    rule = "planes have a share in each round"
    if not findings.expect(rule, "shares_bytes", plan.shares_bytes.shape, shape):
        return None

    # Planes that have a share also have circuits, and no others do. Steps have no circuits.
    is_used = plan.shares_bytes > 0
    if loads is not None and not _check_epochs_of_planes(problem, plan, is_used, findings):
        return None
    _check_bytes_of_rounds(problem, plan, loads, findings)

    # A round may start when all rounds before it have ended on all planes, and its ranks are
    # ready.
    last_end_s = np.maximum.accumulate(plan.end_s.max(axis=1))[:-1]
    earliest_s = np.maximum(ready_s, np.concatenate([[0.0], last_end_s]))
    slack_s = RTOL * float(plan.end_s.max())
    _check_times(problem, plan, earliest_s, slack_s, findings)
    for plane in range(problem.planes):
        _check_changes(problem, plan, plane, slack_s, findings)

    # A round starts with its first share; one without shares takes no time.
    first_start_s = np.where(is_used, plan.start_s, math.inf).min(axis=1)
    starts_s = np.where(is_used.any(axis=1), first_start_s, earliest_s)
    return starts_s, np.maximum(plan.end_s.max(axis=1), earliest_s)


def _check_bytes_of_rounds(
    problem: Collective, plan: CollectivePlan, loads: RoundLoads | None, findings: Findings
) -> None:
    """Check that the shares of all planes in a round together are what its busiest rank sends.

    No share may be negative.
    """
    # The busiest circuit is that of one port, where all ports of the planes with a share carry
    # equally much. The busiest rank sends as much over each of its ports on these planes.
    if loads is None:
        wanted_bytes = np.asarray(problem.steps)[:, 1]
    else:
        n_used_planes = (plan.shares_bytes > 0).sum(axis=1)
        wanted_bytes = loads.busiest_bytes * problem.ports * n_used_planes

    total_bytes = plan.shares_bytes.sum(axis=1)
    is_wrong = (plan.shares_bytes < 0).any(axis=1) | (total_bytes < wanted_bytes * (1 - RTOL))
    for round_ in np.flatnonzero(is_wrong)[:1]:
        rule = "planes together carry the bytes of a round"
        got = float(total_bytes[round_])
        findings.refuse(rule, f"shares_bytes[{round_}]", got, float(wanted_bytes[round_]))


def _check_times(
    problem: Collective,
    plan: CollectivePlan,
    earliest_s: Seconds,
    slack_s: float,
    findings: Findings,
) -> None:
    """Check when the shares of planes start, and how long they take.

    A plane without a share in a round must have 0 as its start and end.

    ``earliest_s[round]`` tells when a round may start, in seconds.
    """
    # A share takes the start-up of a round, the time of a hop if it is stated, and its bytes over
    # one port.
    is_used = plan.shares_bytes > 0
    duration_s = plan.shares_bytes / (problem.ports * problem.rate_bytes_per_s)
    duration_s = problem.alpha_s + (problem.hop_s or 0.0) + duration_s
    is_short = is_used & (plan.end_s - plan.start_s < duration_s - slack_s)
    _refuse_first(findings, is_short, "a share takes its time", plan.start_s)
    has_times = ~is_used & ((plan.start_s != 0) | (plan.end_s != 0))
    _refuse_first(findings, has_times, "a plane without a share has no times", plan.start_s)
    is_early = is_used & (plan.start_s < earliest_s[:, None] - slack_s)
    rule = "a round starts after the one before, and when ranks are ready"
    _refuse_first(findings, is_early, rule, plan.start_s)


def _check_epochs_of_planes(
    problem: Collective, plan: CollectivePlan, is_used: NDArray[np.bool_], findings: Findings
) -> bool:
    """Check the circuits of several switches, which carry the same rounds side by side.

    In a round each plane carries a share of the bytes, or nothing. All planes with a share have to
    have the same circuits, and planes without one must have none.

    ``is_used[round, plane]`` tells whether the plane carries something in the round.
    """
    n_rounds = len(is_used)
    rule = "each round has an epoch of its own"
    if not findings.expect(rule, "circuits", plan.n_epochs, n_rounds):
        return False
    peer = plan.circuits.reshape(n_rounds, problem.planes, problem.ports, problem.n_ranks)
    is_dark = (peer == IDLE).all(axis=(2, 3))
    rule = "planes with a share have circuits, and no others"
    _refuse_first(findings, is_dark == is_used, rule, is_used)

    # The circuits of a round are those of any of its planes and ports that are lit.
    is_used_port = is_used[:, :, None, None]
    common_peer = np.where(is_used_port, peer, IDLE).max(axis=(1, 2))
    is_other = is_used_port & (peer != common_peer[:, None, None])
    rule = "planes and ports of a round have the same circuits"
    _refuse_first(findings, is_other.any(axis=(2, 3)), rule, is_used)
    return True


def _check_changes(
    problem: Collective, plan: CollectivePlan, plane: int, slack_s: float, findings: Findings
) -> None:
    """Check that a switch has the time to change its circuits between two rounds that differ.

    The plane takes part in some rounds. If two of these that follow each other have the same
    circuits, no time is needed in between, otherwise the delay. Rounds in which the plane takes no
    part do not count.
    """
    # The circuits that the plane has at present; None as long as they are known as a text only.
    lanes = slice(plane * problem.ports, (plane + 1) * problem.ports)
    circuits: NDArray[np.generic] | None = None
    if not isinstance(problem.start, str):
        circuits = problem.start[lanes]
    free_at_s = 0.0
    for round_ in np.flatnonzero(plan.shares_bytes[:, plane] > 0).tolist():
        # Steps from outside have no circuits, only the number of a configuration: equal numbers
        # stand for equal circuits.
        new_circuits: NDArray[np.generic]
        if problem.steps is not None:
            new_circuits = np.asarray(problem.steps)[round_, :1]
        else:
            new_circuits = plan.circuits[round_, lanes]
        if circuits is None:
            is_kept = problem.start == "free"
        else:
            is_kept = np.array_equal(circuits, new_circuits)

        # The plane is free when its last share has ended, and then changes circuits if it has to.
        earliest_s = free_at_s + (0.0 if is_kept else problem.delay_s)
        start_s = float(plan.start_s[round_, plane])
        if start_s < earliest_s - slack_s:
            rule = "a plane has the time to change its circuits"
            findings.refuse(rule, f"start_s[{round_}, {plane}]", start_s, earliest_s)
        circuits = new_circuits
        free_at_s = float(plan.end_s[round_, plane])


def _refuse_first(
    findings: Findings, is_wrong: NDArray[np.bool_], rule: str, got: NDArray[np.generic]
) -> None:
    """Add a violation for the first round and plane that is wrong, if there is one."""
    for round_, plane in np.argwhere(is_wrong)[:1].tolist():
        where = f"round {round_}, plane {plane}"
        findings.refuse(rule, where, got[round_, plane].item(), rule)


def check_sends(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that rounds, ranks, chunks and kinds exist; without that nothing can be replayed."""
    # Each column of a send has a limit of its own; there are four kinds: copied, added,
    # both of these, and added in place of what was there.
    n_ranks = problem.n_ranks
    sends = plan.sends
    n_kinds = 4
    limits = (plan.n_rounds, n_ranks, n_ranks, len(plan.chunk_bytes), n_kinds)
    for column, limit in enumerate(limits):
        is_wrong = (sends[:, column] < 0) | (sends[:, column] >= limit)
        for send in np.flatnonzero(is_wrong)[:1]:
            got = int(sends[send, column])
            findings.refuse(
                "entries of sends exist", f"sends[{send}, {column}]", got, f"< {limit}"
            )
            return False

    # Columns 1 and 2 are the source and the destination.
    for send in np.flatnonzero(sends[:, 1] == sends[:, 2])[:1]:
        got_row = sends[send].tolist()
        findings.refuse("a send goes to another rank", f"sends[{send}]", got_row, "two ranks")
        return False
    return True


def check_epochs(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check the circuits of a plan, and that its rounds go through them in order."""
    # The number of the epoch grows by 0 or 1 from round to round, and the first one is 0.
    epochs = plan.epoch_of_round
    steps = np.diff(epochs, prepend=-1)
    is_in_order = ((steps == 0) | (steps == 1)).all()
    if not is_in_order or int(epochs.max(initial=-1)) + 1 != plan.n_epochs:
        rule = "rounds go through all epochs in order"
        got = epochs.tolist()[:_MOST_SHOWN_EPOCHS]
        findings.refuse(rule, "epoch_of_round", got, f"0 .. {plan.n_epochs - 1}")
        return False
    if not plan.n_epochs:
        return True

    shape = (plan.n_epochs, problem.lanes, problem.n_ranks)
    rule = "each rank has its lanes in each epoch"
    if not findings.expect(rule, "circuits.shape", plan.circuits.shape, shape):
        return False
    wrong = _find_wrong_circuit(problem, plan.circuits.astype(np.int64))
    if wrong:
        findings.refuse("each lane holds a matching", "circuits", wrong, "a matching")
        return False

    # Between islands a circuit leads to the same place of another island.
    ranks = np.arange(problem.n_ranks)
    leaves_rail = (plan.circuits != IDLE) & (
        plan.circuits % problem.island != ranks % problem.island
    )
    for epoch, lane, rank in np.argwhere(leaves_rail)[:1].tolist():
        peer = plan.circuits[epoch, lane, rank]
        got = f"a circuit leads from rank {rank} to {peer}"
        findings.refuse("circuits stay on their rails", "circuits", got, "the same place")
        return False
    return True


def _find_wrong_circuit(problem: Collective, circuits: IntArray) -> str:
    """Say which of ``circuits[epoch, lane, rank]`` the ports cannot hold; empty if there is none.

    One-way circuits of a lane lead to different ranks. Two-way ones lead back: in each plane as
    many from one rank to another as from the other to the one, perhaps over other ports.
    """
    _, n_lanes, n_ranks = circuits.shape
    is_nowhere = (circuits < IDLE) | (circuits >= n_ranks) | (circuits == np.arange(n_ranks))
    for epoch, lane, rank in np.argwhere(is_nowhere)[:1].tolist():
        return f"rank {rank} sends to {circuits[epoch, lane, rank]} of {n_ranks}"

    # A bundle are the circuits that are compared: those of a lane, or of all lanes of a plane.
    # Each circuit is one number, (bundle * n_ranks + rank) * n_ranks + peer.
    epoch, lane, rank = np.nonzero(circuits != IDLE)
    peer = circuits[epoch, lane, rank]
    if problem.two_way:
        bundle = (epoch * n_lanes + lane) // problem.ports
        there = np.sort((bundle * n_ranks + rank) * n_ranks + peer)
        back = np.sort((bundle * n_ranks + peer) * n_ranks + rank)
        for alone in there[there != back][:1].tolist():
            first, second = divmod(alone % n_ranks**2, n_ranks)
            return f"a circuit joins ranks {first} and {second} in one direction alone"
        return ""
    ends = np.sort((epoch * n_lanes + lane) * n_ranks + peer)
    for twice in ends[1:][ends[1:] == ends[:-1]][:1].tolist():
        lane_of_end = twice // n_ranks % n_lanes
        return f"lane {lane_of_end} leads to rank {twice % n_ranks} more than once"
    return ""


class _Hops(NamedTuple):
    """The hops of all sends; columns have shape (hops,)."""

    send: IntArray
    """The number of the send that a hop belongs to."""
    source: IntArray
    """The rank at which the hop begins."""
    target: IntArray
    """The rank at which the hop ends."""

    def take(self, is_taken: NDArray[np.bool_]) -> _Hops:
        """Return some of the hops, in the same order: those with True in a mask, shape (hops,)."""
        return _Hops(self.send[is_taken], self.source[is_taken], self.target[is_taken])


def measure_rounds(
    problem: Collective, plan: CollectivePlan, findings: Findings
) -> RoundLoads | None:
    """Check that each send has circuits to go over, and find what limits each round.

    If several lanes have a circuit from one rank to another, the bytes from the one to the other
    are shared evenly among them.
    """
    n_ranks = problem.n_ranks
    n_rounds = plan.n_rounds
    n_pairs = n_ranks * n_ranks
    all_hops = _list_hops(problem, plan, findings)
    if all_hops is None:
        return None

    # Members of an island tell each other without circuits.
    hops = all_hops
    island_bytes = np.full(n_rounds, -1.0)
    if problem.island > 1:
        is_inside = all_hops.source // problem.island == all_hops.target // problem.island
        island_bytes = _load_islands(plan, n_ranks, all_hops.send[is_inside])
        hops = all_hops.take(~is_inside)

    # A flow are all bytes from one rank to another in one round. Flows are numbered by round,
    # source and target in one integer: round * n_pairs + source * n_ranks + target.
    round_of_hop = plan.sends[hops.send, 0].astype(np.int64)
    pair_of_hop = hops.source * n_ranks + hops.target
    flows, flow_of_hop = _number_flows(round_of_hop * n_pairs + pair_of_hop)
    flow_bytes = np.bincount(flow_of_hop, weights=plan.sent_bytes[hops.send])
    round_of_flow, pair_of_flow = np.divmod(flows, n_pairs)

    # Every flow needs a circuit in the epoch of its round, over some lane of its source.
    source_of_flow, target_of_flow = np.divmod(pair_of_flow, n_ranks)
    epoch_of_flow = plan.epoch_of_round[round_of_flow]
    n_lanes_of_flow = np.zeros(len(flows), dtype=np.int64)
    for lane in range(plan.circuits.shape[1]):
        peer_of_flow = plan.circuits[epoch_of_flow, lane, source_of_flow]
        n_lanes_of_flow += peer_of_flow == target_of_flow
    for flow in np.flatnonzero(n_lanes_of_flow == 0)[:1]:
        where = f"round {round_of_flow[flow]}"
        got = f"none from {source_of_flow[flow]} to {target_of_flow[flow]}"
        findings.refuse("a send goes over a circuit", where, got, "a circuit")
        return None

    # A flow is shared evenly by the lanes that have its circuit. Results are by round: the largest
    # load of a circuit, the most hops of a send, and when the last rank that takes part is ready.
    busiest_bytes = np.zeros(n_rounds)
    np.maximum.at(busiest_bytes, round_of_flow, flow_bytes / n_lanes_of_flow)
    n_hops_of_send = np.bincount(hops.send, minlength=len(plan.sends))
    most_hops = np.zeros(n_rounds, dtype=np.int64)
    np.maximum.at(most_hops, plan.sends[:, 0], n_hops_of_send)
    ready_s = np.zeros(n_rounds)
    if problem.late.any():
        ready_of_hop_s = np.maximum(problem.late[hops.source], problem.late[hops.target])
        np.maximum.at(ready_s, round_of_hop, ready_of_hop_s)
    return RoundLoads(busiest_bytes, most_hops, ready_s, island_bytes)


def _number_flows(flow_number: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct numbers of flows, and which of them each hop belongs to.

    ``flow_number[hop]`` is the number of the flow of a hop.
    """
    differences = np.diff(flow_number, prepend=-1)
    if (differences < 0).any():
        flows, flow_of_hop = np.unique(flow_number, return_inverse=True)
        return flows, flow_of_hop.reshape(-1)
    is_new = differences > 0
    return flow_number[is_new], np.cumsum(is_new) - 1


def _load_islands(plan: CollectivePlan, n_ranks: int, send: IntArray) -> NDArray[np.float64]:
    """Return what the busiest rank sends, or receives, inside its island in each round.

    Returns bytes; -1 for rounds in which nothing is sent inside islands.
    """
    # Columns 1 and 2 of a send are its source and its destination. Bytes are added up by round and
    # rank, for either end; -1 stays where a round has no send inside islands.
    busiest_bytes = np.full(plan.n_rounds, -1.0)
    round_ = plan.sends[send, 0].astype(np.int64)
    for end in (1, 2):
        rank = plan.sends[send, end]
        n_entries = plan.n_rounds * n_ranks
        bytes_of_rank = np.bincount(round_ * n_ranks + rank, plan.sent_bytes[send], n_entries)
        most_bytes = bytes_of_rank.reshape(plan.n_rounds, n_ranks).max(axis=1)
        np.maximum.at(busiest_bytes, round_, most_bytes[round_])
    return busiest_bytes


def _list_hops(problem: Collective, plan: CollectivePlan, findings: Findings) -> _Hops | None:
    """List all circuits that sends go over: one for a direct send, several for a forwarded one.

    A direct send from rank 0 to rank 2 has one hop, 0 -> 2. If rank 1 forwards it, it has two, 0
    -> 1 and 1 -> 2, and the plan lists both as links.

    The result is None if a link names no send or rank, or if the links of a send do not lead from
    its source to its destination.
    """
    source_of_send = plan.sends[:, 1].astype(np.int64)
    target_of_send = plan.sends[:, 2].astype(np.int64)
    if not len(plan.links):
        return _Hops(np.arange(len(plan.sends)), source_of_send, target_of_send)
    if problem.hop_s is None:
        rule = "nothing is forwarded inside a round without hop_s"
        findings.refuse(rule, "links", len(plan.links), 0)
        return None

    # Each link is of a send that exists, between ranks that exist.
    send, source, target = plan.links.astype(np.int64).T
    exists = (send < len(plan.sends)) & (source < problem.n_ranks) & (target < problem.n_ranks)
    for link in np.flatnonzero(~exists)[:1]:
        got = plan.links[link].tolist()
        findings.refuse("sends and ranks exist", f"links[{link}]", got, "both")
        return None

    # The links of a send follow each other: from its source, each from the end of the last one.
    is_other_send = np.diff(send) != 0
    is_first = np.append(True, is_other_send)
    is_last = np.append(is_other_send, True)
    expected_source = np.where(is_first, source_of_send[send], np.roll(target, 1))
    is_broken = (expected_source != source) | (is_last & (target != target_of_send[send]))
    for link in np.flatnonzero(is_broken)[:1]:
        rule = "links lead from the source of a send to its destination"
        got = plan.links[link].tolist()
        findings.refuse(rule, f"links[{link}]", got, int(expected_source[link]))
        return None

    # A send without links is direct: its only hop leads from its source to its destination.
    is_direct = np.ones(len(plan.sends), dtype=np.bool_)
    is_direct[send] = False
    direct = np.flatnonzero(is_direct)
    return _Hops(
        send=np.concatenate([send, direct]),
        source=np.concatenate([source, source_of_send[direct]]),
        target=np.concatenate([target, target_of_send[direct]]),
    )
