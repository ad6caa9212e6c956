"""The replay of a collective: circuits, bytes, times, and the data of every rank in the end."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL, Schedule, Solution
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.bounds import plain_fields
from optmatch.problems.collectives.islands import bound_collective
from optmatch.verify.bounds import check_solution
from optmatch.verify.budgets import find_over_budget
from optmatch.verify.collectives.circuits import (
    RoundLoads,
    check_epochs,
    check_planes,
    check_sends,
    measure_rounds,
)
from optmatch.verify.collectives.copies import check_copies
from optmatch.verify.collectives.parts import check_parts
from optmatch.verify.collectives.sums import check_sums
from optmatch.verify.report import Findings
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_shapes

Seconds = NDArray[np.float64]
_TINY_S = 1e-18
"""Times that differ by less are equal, whatever their size."""

SUMS = ("all-reduce", "reduce-scatter")
"""The collectives in which ranks add up what comes."""


def verify_collective(
    problem: Collective, subject: Schedule | CollectivePlan | Solution, findings: Findings
) -> None:
    """Replay a plan and, of a solution, check its schedule and its claims.

    The replay follows the data of every rank from round to round, without trust in what the plan
    says of itself. Claims of a solution are its time, its lower bound and its status. Of the
    problem the replay sees fields alone, and what two listed functions make of them.
    """
    plain: Any = plain_fields(problem)
    if not isinstance(subject, Solution):
        _replay(plain, subject, findings)
        return

    def replay(solution: Solution) -> bool:
        """Replay the answer of a solution and check its schedule; False if it has no times."""
        ends_s = _replay(plain, solution.answer, findings)
        if ends_s is not None:
            _check_schedule(plain, solution, ends_s, findings)
        return ends_s is not None

    bound_s = math.inf if _is_cut_off(plain) else bound_collective(problem).seconds
    findings.figures["lower_bound_recomputed"] = bound_s
    check_solution(problem, subject, findings, replay=replay, form="both")
    if getattr(subject.answer, "among", "all") == "whole-blocks":
        findings.notes.append("the claims are of plans that send whole blocks")


class _RoundTimes(NamedTuple):
    """When each round starts and ends."""

    starts_s: Seconds
    """``starts_s[round]``, in seconds since the first rank was ready."""
    ends_s: Seconds
    """``ends_s[round]``, in seconds since the first rank was ready."""


def _replay(problem: Collective, plan: object, findings: Findings) -> Seconds | None:
    """Check a plan of a collective by all rules, and return when its rounds end.

    A plan divides the data of ranks into chunks, which are sent over circuits in rounds. The rules
    are checked in the order in which they need each other:

    - chunks: number and sizes;
    - sends: ranks, rounds and chunks that exist;
    - data: each send has its data, and at the end each rank has what it should;
    - circuits: each send has one;
    - times: rounds last long enough.

    After a rule that is violated, later ones may not be checked.

    Returns when each round ends, in seconds; None if the plan is too wrong to define times.
    """
    if not isinstance(plan, CollectivePlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "CollectivePlan")
        return None
    # Steps that are given from outside have no sends: planes (switches) only share their bytes.
    if problem.steps is not None:
        plane_times = check_planes(problem, plan, None, findings)
        if plane_times is None:
            return None
        return _conclude(problem, plan, _RoundTimes(*plane_times), findings)

    # Without chunks, sends and parts that exist nothing can be replayed.
    has_chunks = _check_chunks(problem, plan, findings)
    if not (has_chunks and check_sends(problem, plan, findings)):
        return None
    if not check_parts(problem, plan, findings):
        return None
    # The data are replayed: sums by which ranks' data are in them, copies by when they come.
    if problem.operation in SUMS:
        check_sums(problem, plan, findings)
    else:
        check_copies(problem, plan, findings)

    # Circuits, and the times of rounds over them.
    if not check_epochs(problem, plan, findings):
        return None
    loads = measure_rounds(problem, plan, findings)
    if loads is None:
        return None
    times = _find_times(problem, plan, loads, findings)
    if times is None:
        return None
    findings.figures["sends"] = len(plan.sends)
    findings.figures["sent_bytes"] = float(plan.sent_bytes.sum())
    return _conclude(problem, plan, times, findings)


def _find_times(
    problem: Collective, plan: CollectivePlan, loads: RoundLoads, findings: Findings
) -> _RoundTimes | None:
    """Return the times of rounds: those of planes if these have shares, else one after another.

    Returns when each round starts and ends, in seconds; None if shares are too wrong to tell.
    """
    if not plan.shares_bytes.size:
        return _time_rounds(problem, plan, loads)
    if problem.island > 1:
        rule = "between islands no plane has shares"
        findings.refuse(rule, "shares_bytes", plan.shares_bytes.shape, "none")
        return None
    plane_times = check_planes(problem, plan, loads, findings)
    return None if plane_times is None else _RoundTimes(*plane_times)


def _check_chunks(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that the chunks of a plan have the right number and sizes for its operation.

    A plan cuts each block into equally many chunks; a block of an all-to-all is one chunk.
    """
    n_ranks = problem.n_ranks
    n_chunks = len(plan.chunk_bytes)
    is_all_to_all = problem.operation == "all-to-all"
    if is_all_to_all:
        n_blocks = n_ranks * n_ranks
    elif problem.operation in ("all-gather", "reduce-scatter"):
        n_blocks = n_ranks
    else:
        n_blocks = 1
    if n_chunks < 1 or n_chunks % n_blocks:
        rule = "each block has as many chunks"
        findings.refuse(rule, "chunk_bytes", n_chunks, f"a multiple of {n_blocks}")
        return False
    if is_all_to_all and n_chunks != n_blocks:
        findings.refuse("each block is a chunk", "chunk_bytes", n_chunks, n_blocks)
        return False

    # The chunks of a block hold its bytes, or more where they are padded.
    wanted_bytes = np.full(n_blocks, problem.size_bytes / n_blocks)
    if is_all_to_all:
        wanted_bytes = problem.demand.reshape(-1)
    block_bytes = plan.chunk_bytes.reshape(n_blocks, -1).sum(axis=1)
    for block in np.flatnonzero(block_bytes < wanted_bytes * (1 - RTOL))[:1]:
        rule = "the chunks of a block hold its bytes"
        got = float(block_bytes[block])
        findings.refuse(rule, f"block {block}", got, float(wanted_bytes[block]))

    is_wrong = plan.chunk_bytes < 0
    if problem.align_bytes:
        is_wrong |= plan.chunk_bytes % problem.align_bytes != 0
    for chunk in np.flatnonzero(is_wrong)[:1]:
        rule = "a chunk is a multiple of align_bytes"
        got = float(plan.chunk_bytes[chunk])
        findings.refuse(rule, f"chunk_bytes[{chunk}]", got, problem.align_bytes)
    return True


def _time_rounds(problem: Collective, plan: CollectivePlan, loads: RoundLoads) -> _RoundTimes:
    """Return when each round of a plan starts and ends, one round after another.

    A round starts when the round before has ended, its circuits are set up, and all its ranks are
    ready. It lasts the sum of the latency, the bytes of its busiest circuit over the rate, and, if
    the problem states the time of a hop, that of the most hops of a send.
    """
    durations_s = loads.busiest_bytes / problem.rate_bytes_per_s + problem.alpha_s
    if problem.hop_s is not None:
        durations_s = durations_s + problem.hop_s * loads.hops
    if problem.island > 1:
        # Circuits and the links of islands work side by side; a round takes what takes longer.
        has_circuits = loads.hops > 0
        has_links = loads.island_bytes >= 0
        links_s = problem.island_alpha_s + loads.island_bytes / problem.island_rate_bytes_per_s
        durations_s = np.maximum(durations_s * has_circuits, links_s * has_links)

    # Circuits change before the first round of each epoch; the first ones may be there already.
    has_change = np.diff(plan.epoch_of_round, prepend=-1) > 0
    has_change[:1] = not _first_is_free(problem, plan)
    starts_s = np.zeros(len(durations_s))
    last_end_s = 0.0
    for round_ in range(len(durations_s)):
        circuits_ready_s = last_end_s + problem.delay_s * has_change[round_]
        starts_s[round_] = max(circuits_ready_s, loads.ready_s[round_])
        last_end_s = starts_s[round_] + durations_s[round_]
    return _RoundTimes(starts_s, starts_s + durations_s)


def _first_is_free(problem: Collective, plan: CollectivePlan) -> bool:
    """Tell whether the circuits of the first epoch (the first rounds) cost no delay."""
    start = problem.start
    if isinstance(start, str):
        return start == "free"
    return not plan.n_epochs or bool((plan.circuits[0] == start).all())


def _conclude(
    problem: Collective, plan: CollectivePlan, times: _RoundTimes, findings: Findings
) -> Seconds:
    """Compare the time and the counts that a plan states with those of its replay."""
    end_s = float(times.ends_s.max(initial=0.0))
    last_ready_s = float(problem.late.max(initial=0.0))
    n_rounds_late = 0
    if last_ready_s:
        n_rounds_late = int((times.starts_s >= last_ready_s * (1 - RTOL)).sum())
    findings.figures |= {
        "objective": end_s,
        "rounds": plan.n_rounds,
        "rounds_late": n_rounds_late,
        "reconfigurations": max(0, plan.n_epochs - 1),
    }
    if not math.isclose(plan.time_s, end_s, rel_tol=RTOL, abs_tol=_TINY_S):
        findings.refuse("the time is that of the replay", "time_s", plan.time_s, end_s)
    rule = "rounds after the last late rank is ready are counted"
    findings.expect(rule, "n_rounds_late", plan.n_rounds_late, n_rounds_late)
    return times.ends_s


def _check_schedule(
    problem: Collective, solution: Solution, ends_s: Seconds, findings: Findings
) -> None:
    """Check that what the switch does, as the solution says, is what the plan needs.

    In each slot the ports of the switch are joined in a certain way, for some time; before it
    circuits change, for the time of the delay. There has to be one slot for each epoch, which
    joins the same ports and ends with the last round of the epoch. Problems of several switches,
    or whose rounds are given as a list of steps, have no schedule.

    ``ends_s[round]`` tells when each round of the plan ends in the replay, in seconds.
    """
    schedule = solution.schedule
    plan = solution.answer
    fabric = problem.fabric
    if problem.planes > 1 or problem.steps is not None:
        findings.expect("several planes have no one schedule", "schedule", schedule, None)
        return
    if schedule is None:
        findings.refuse("a plan comes with the schedule of its switch", "schedule", None, "one")
        return
    if not check_shapes(fabric, schedule, findings):
        return
    # The same circuits, delay and way of switching as in the plan.
    if not _has_circuits(problem, plan, schedule):
        rule = "the schedule has the circuits of the plan"
        findings.refuse(rule, "matchings", "others", "those")
        return
    findings.expect("the delay is the problem's", "delay_s", schedule.delay_s, problem.delay_s)
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")

    # A schedule has a delay before its first slot, too, where the plan may pay none. A slot has to
    # end when the last round of its epoch ends, which `searchsorted` finds, as epochs ascend.
    epochs = np.arange(plan.n_epochs)
    last_round_of_epoch = np.searchsorted(plan.epoch_of_round, epochs, side="right") - 1
    free_delay_s = problem.delay_s * _first_is_free(problem, plan)
    wanted_s = ends_s[last_round_of_epoch] + free_delay_s
    slot_ends_s = np.cumsum(schedule.durations_s + problem.delay_s)
    is_equal = np.isclose(slot_ends_s, wanted_s, rtol=RTOL, atol=_TINY_S)
    for slot in np.flatnonzero(~is_equal)[:1]:
        rule = "a slot ends with the rounds of its circuits"
        got = float(slot_ends_s[slot])
        findings.refuse(rule, f"durations_s[{slot}]", got, float(wanted_s[slot]))
    check_light(fabric, schedule, findings)


def _is_cut_off(problem: Collective) -> bool:
    """Tell whether some rank cannot send to some other one, because light would lose too much.

    A *link budget* is the most that light may lose on a circuit. Circuits over their budget cannot
    be used. Data may go over several circuits, from rank to rank. In a broadcast the root has to
    reach all ranks; in other operations each rank has to reach each other one.
    """
    if problem.demand_bytes is not None or problem.steps is not None:
        return False
    is_over = find_over_budget(problem.fabric)
    if not is_over.any():
        return False
    ports = range(problem.ports)

    def is_joined(source: int, destination: int) -> bool:
        """Tell whether a circuit within its budget may lead from one rank to another."""
        first = source * problem.ports
        last = destination * problem.ports
        return any(
            not is_over[first + port, last + other]
            for port in ports
            for other in (ports if problem.two_way else (port,))
        )

    # If one rank, the root, reaches all others and all reach it, then any rank reaches any other
    # one: a search forwards and one backwards. A broadcast needs the search forwards alone.
    start = problem.root
    directions = (False,) if problem.operation == "broadcast" else (False, True)
    for backwards in directions:
        reached = {start}
        waiting = [start]
        while waiting:
            rank = waiting.pop()
            for other in set(range(problem.n_ranks)) - reached:
                if is_joined(*((other, rank) if backwards else (rank, other))):
                    reached.add(other)
                    waiting.append(other)
        if len(reached) < problem.n_ranks:
            return True
    return False


def _has_circuits(problem: Collective, plan: CollectivePlan, schedule: Schedule) -> bool:
    """Tell whether the matchings of ports are the circuits of ranks, and no others.

    One-way circuits join ports of equal numbers. A two-way circuit may join others, but it leads
    back from the port to which it leads.
    """
    n_ports_of_rank = problem.ports
    shape = (plan.n_epochs, problem.fabric.n_ports)
    if schedule.matchings.shape != shape:
        return False

    # Port ``lane`` of a rank is ``rank * ports + lane``; ports behind those of all ranks are dark.
    peer_of_port = np.full(shape, IDLE, dtype=np.int32)
    if plan.n_epochs:
        n_used_ports = problem.n_ranks * n_ports_of_rank
        peers = plan.circuits.swapaxes(1, 2).reshape(plan.n_epochs, n_used_ports)
        peer_of_port[:, :n_used_ports] = peers
    # Quotients are rounded down, so that a dark port, which is -1, faces rank -1.
    facing_port = schedule.matchings
    facing_rank, facing_lane = np.divmod(facing_port, n_ports_of_rank)
    if not np.array_equal(facing_rank, peer_of_port):
        return False

    is_dark = facing_port == IDLE

    if problem.two_way:
        facing_back = np.take_along_axis(facing_port, facing_port, axis=1)
        port = np.arange(shape[1])
        return bool((is_dark | (facing_back == port)).all())
    lane_of_port = np.arange(shape[1]) % n_ports_of_rank
    return bool((is_dark | (facing_lane == lane_of_port)).all())
