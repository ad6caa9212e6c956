"""The replay of a rail plan: states of the switches, circuits of each operation, times, bound.

An operation *rides* a rail if it communicates over it; its *load* is all that rides it, with times
and ports.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule, Solution
from optmatch.problems import RailJob, RailPlan
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, RECV
from optmatch.verify.bounds import check_solution
from optmatch.verify.rails.chords import check_chord_routes, check_chords
from optmatch.verify.rails.circuits import Rail, Sent, check_timeline, open_rail
from optmatch.verify.rails.context import Context
from optmatch.verify.rails.exchanges import check_exchanges, check_in_rounds, check_stages
from optmatch.verify.rails.pooled import check_pooled, lets_pool, pool_job, pool_timelines
from optmatch.verify.rails.routes import check_forwarded, check_routes
from optmatch.verify.rails.times import bound_changes, bound_step, check_times, describe_load
from optmatch.verify.rails.work import measure_work
from optmatch.verify.report import Findings, Rule

BOUND_OF_ALL_LINKS = Rule("the lower bound is not below that of all links")
ANSWER_IS_PLAN = Rule("the answer is a plan")
EVERY_OPERATION_HAS_TIMES = Rule("every operation has its times")
EVERY_RAIL_HAS_TIMELINE = Rule("every rail has a timeline")
NO_RAIL_NO_PORT = Rule("what rides no rail uses no port")
PORTS_OF_ITS_GPU = Rule("an operation on a rail uses ports of its GPU")
ONE_OPERATION_PER_PORT = Rule("a port sends for one operation at a time")

_CHUNK = 1 << 18
"""The number of all-to-alls that are followed at once, to bound memory."""


@np.errstate(over="ignore", invalid="ignore")  # of times far beyond all: they are refused
def verify_rails(
    problem: RailJob, subject: Schedule | RailPlan | Solution, findings: Findings
) -> None:
    """Check a plan by replaying it; of a solution also its objective and its bound.

    The bound may be no higher than the greater of two that are worked out anew: with all circuits
    up at all times, and with changes counted.
    """
    counted_s = bound_step(problem)
    findings.figures["lower_bound_recomputed"] = counted_s
    if not isinstance(subject, Solution):
        _replay(problem, subject, findings)
        return

    # A higher bound counts changes of circuits. Its argument is for ports of one direction: a port
    # either sends or receives.
    network = problem.network
    one_way = problem.fabric is None or not problem.fabric.bidirectional
    if one_way:
        checked_s = bound_changes(problem)

        # If data may change rail inside a server, a plan may also give each GPU a share of all
        # ports of its server. The bound has to hold for both sorts of plans.
        if lets_pool(problem) and network.gpus_per_server > 1:
            checked_s = min(checked_s, bound_changes(pool_job(problem)))
        if checked_s > counted_s:
            findings.figures["lower_bound_checked"] = checked_s
            findings.proof = "counting"
    replay = partial(_replay, problem, findings=findings)
    check_solution(problem, subject, findings, replay=replay, floor=BOUND_OF_ALL_LINKS)


def _replay(job: RailJob, plan: object, findings: Findings) -> bool:
    """Check the form of a plan, its times, switches and circuits; False if it ends early."""
    # Form. A timeline is the states of a switch over time; rails that do the same share one, and
    # together the timelines name each rail once.
    step = job.step()
    if not isinstance(plan, RailPlan):
        findings.refuse(ANSWER_IS_PLAN, "answer", type(plan).__name__, "RailPlan")
        return False
    n_times = len(plan.start_s)
    if not findings.expect(EVERY_OPERATION_HAS_TIMES, "start_s", n_times, step.n_operations):
        return False
    ranks_of_rail = ranks_of_rails(step)
    planned = sorted(rail for timeline in plan.rails for rail in timeline.rails)
    if not findings.expect(EVERY_RAIL_HAS_TIMELINE, "rails", planned, list(ranks_of_rail)):
        return False

    # Times. An operation with rail -1 is beside all rails, and may use no port.
    context = Context(job, step, plan, findings)
    check_times(context)
    wrong = np.flatnonzero((step.rail < 0) & (plan.ports != 0))
    context.refuse(NO_RAIL_NO_PORT, wrong, np.ones(len(wrong), bool), plan.ports[wrong], 0)

    # Switches. All timelines are checked, also after a wrong one.
    fits = [
        check_timeline(context, number, len(ranks_of_rail[timeline.rails[0]]))
        for number, timeline in enumerate(plan.rails)
        if timeline.rails
    ]
    if not all(fits):
        findings.skipped.append("circuits: states that are no matchings of a rail define none")
        return False
    # In a pooled plan data change rail inside a server: each GPU sends over all ports of its
    # server, of which it has equal shares. This is allowed only if all rails do the same.
    if plan.pooled and not check_pooled(context, ranks_of_rail):
        findings.skipped.append("circuits: rails that may not be used together")
        return False
    if plan.pooled:
        # From here on the job is one in which these shares are ports of the GPU itself.
        context = Context(pool_job(job), step, plan, findings)
    if not check_forwarded(context) or not check_chord_routes(context):
        findings.skipped.append("circuits: what is forwarded has no route")
        return False

    # Circuits. In a pooled plan all rails do the same: rail 0 is checked, with the ports of all.
    if plan.pooled:
        rail = open_rail(context.job, ranks_of_rail[0], pool_timelines(job, plan))
        _check_rail(context, rail, np.flatnonzero(step.rail == 0))
    else:
        _check_rails(context, ranks_of_rail)
    _add_figures(plan, findings)
    return True


def _check_rails(context: Context, ranks_of_rail: dict[int, NDArray[np.int64]]) -> None:
    """Check the circuits of all rails; of rails that do the same, only one is checked."""
    numbers_of_groups: dict[tuple[str, bytes], int] = {}
    for timeline in context.plan.rails:
        # A load is all that happens on a rail, as arrays without names. The first rail of a
        # timeline is checked, and others only if their load differs from the first one.
        checked_load = None
        for rail_number in timeline.rails:
            ranks = ranks_of_rail[rail_number]
            riding = np.flatnonzero(context.step.rail == rail_number)
            load = describe_load(context, ranks, riding, numbers_of_groups)
            if checked_load is None or not all(map(np.array_equal, load, checked_load)):
                _check_rail(context, open_rail(context.job, ranks, timeline), riding)
            if checked_load is None:
                checked_load = load


def _check_rail(context: Context, rail: Rail, riding: NDArray[np.int64]) -> None:
    """Check the circuits of all operations on one rail, and refuse those that break a rule.

    All-to-alls go over chords, in rounds or in stages, other collectives in the rounds of their
    algorithm; all else goes along circuits that stay. Each check takes the operations that go its
    way, and the next one gets the rest.
    """
    step = context.step

    # Ports are bits: each operation needs one at least, and none beyond those of its GPU. Later
    # rules look ports up and rely on that.
    ports = context.plan.ports[riding]
    wrong = (ports <= 0) | (ports >> context.job.network.ports_per_gpu != 0)
    context.refuse(PORTS_OF_ITS_GPU, riding, wrong, ports, 1)
    if wrong.any():
        return

    # Who sends nothing, in no time, needs no circuits.
    lasts_s = context.plan.end_s[riding] - context.plan.start_s[riding]
    riding = riding[(lasts_s > 0) | (measure_work(context.job, riding).full_s > 0)]

    # `scattered` are the all-to-alls of more than two members. Those for which the plan names GPUs
    # that forward go around a ring, along routes that stay, and are left out here.
    senders = riding[step.kind[riding] != RECV]
    of_several = context.group_size[step.group[senders]] > 2
    scattered = senders[(step.kind[senders] == ALL_TO_ALL) & of_several]
    forwarded = np.unique(step.match[context.plan.relays[:, 0]])
    scattered = scattered[~np.isin(step.match[scattered], forwarded)]

    # First those over chords, then those in rounds and in stages, in chunks to bound memory.
    over_chords = check_chords(context, rail, scattered)
    scattered = scattered[~np.isin(scattered, over_chords)]
    chunks = np.array_split(scattered, 1 + len(scattered) // _CHUNK)
    exchanges = [check_exchanges(context, rail, chunk) for chunk in chunks]
    in_stages = np.concatenate([scattered[:0], *(exchange.in_stages for exchange in exchanges)])
    check_stages(context, rail, in_stages)

    # All other sends go over circuits that stay for the whole operation.
    changing = np.concatenate(
        [
            *(exchange.in_rounds for exchange in exchanges),
            in_stages,
            check_in_rounds(context, rail, riding),
            over_chords,
        ]
    )
    staying = senders[~np.isin(senders, changing)]
    sent = check_routes(context, rail, riding, staying)
    _check_sharing(context, rail, changing, sent)


def _check_sharing(context: Context, rail: Rail, changing: NDArray[np.int64], sent: Sent) -> None:
    """Check that no port sends for two operations at the same time."""
    # The ports of all sends on this rail, an entry for each.
    step = context.step
    plan = context.plan
    used = rail.list_ports(step.rank[changing], plan.ports[changing])
    operation = np.concatenate([sent.operation, changing[used.row]])
    port = np.concatenate([sent.port, used.port])

    # Sorted by port and time, an overlap shows between neighbours.
    order = np.lexsort([plan.end_s[operation], plan.start_s[operation], port])
    operation = operation[order]
    port = port[order]
    start_s = plan.start_s[operation][1:]
    end_before_s = plan.end_s[operation][:-1]
    overlap = (np.diff(port) == 0) & (start_s < end_before_s - context.slack_s)
    context.refuse(ONE_OPERATION_PER_PORT, operation[1:], overlap, start_s, end_before_s)


def _add_figures(plan: RailPlan, findings: Findings) -> None:
    """Add the objective, and how often switches and circuits change, over all rails."""
    n_reconfigurations = 0
    n_circuits_changed = 0
    for timeline in plan.rails:
        matchings = timeline.matchings
        new_circuit = (matchings[1:] != matchings[:-1]) & (matchings[1:] != IDLE)
        n_circuits_changed += int(new_circuit.sum()) * len(timeline.rails)
        n_reconfigurations += timeline.n_reconfigurations * len(timeline.rails)
    findings.figures |= {
        "objective": plan.step_s,
        "reconfigurations": n_reconfigurations,
        "circuits_changed": n_circuits_changed,
    }
