"""The replay of a tenancy: ports of one job each, and the question of each job on its ports."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED
from optmatch.model import IDLE, InputError, Schedule, Solution
from optmatch.problems import AllToAll, Collective, CollectivePlan, Demand, Tenancy, TenancyPlan
from optmatch.verify.bounds import check_solution
from optmatch.verify.collectives.circuits import measure_rounds
from optmatch.verify.collectives.replay import verify_collective
from optmatch.verify.demands.replay import verify_demand
from optmatch.verify.report import Findings, Rule
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_matchings, check_shapes
from optmatch.verify.routing.schedules import count_toggles, verify_schedule

# The answer
ANSWERED_TOGETHER = Rule("ports and schedule answer it together")
PLAN_AND_SCHEDULE = Rule("a plan and a schedule answer it")
BOUND_OF_WORST_JOB = Rule("the lower bound is not below that of the worst job")

# Ports
JOB_HAS_PARTS = Rule("each job has its {parts}")
JOB_HAS_PORTS = Rule("a job has as many ports as it needs")
PORTS_ARE_ALIVE = Rule("ports are alive")
PORT_OF_ONE_JOB = Rule("a port belongs to one job, once")
CIRCUIT_WITHIN_JOB = Rule("a circuit joins ports of one job")

# Times
SLOT_LASTS_SLOT_S = Rule("a slot lasts slot_s")
DELAY_IS_GIVEN = Rule("the delay is the problem's")
ALL_STOP = Rule("all circuits change together")

# The question of each job
JOB_CAN_BE_ASKED = Rule("the job can be asked of its ports")
ONLY_COLLECTIVES_HAVE_PLANS = Rule("only collectives have plans")
COLLECTIVE_HAS_PLAN = Rule("a collective has a plan")
EPOCHS_IN_ORDER = Rule(
    "a collective has its epochs one after the other, in the slots that they need"
)


def verify_tenancy(
    problem: Tenancy, subject: Schedule | TenancyPlan | Solution, findings: Findings
) -> None:
    """Replay jobs side by side on one switch, and check the claims of a solution.

    Parameters
    ----------
    problem
        The jobs (tenants), and the switch that they share.
    subject
        A solution: its plan gives each job ports, and its schedule has the circuits of all. A
        schedule or a plan alone is refused, since only both together answer the question.
    findings
        Violations and figures are added to it, among them the bounds ``lower_bound_recomputed``
        in seconds and ``slots_lower_bound``.
    """
    findings.figures["lower_bound_recomputed"] = problem.lower_bound()
    findings.figures["slots_lower_bound"] = problem.min_slots
    if not isinstance(subject, Solution):
        findings.refuse(ANSWERED_TOGETHER, "answer", type(subject).__name__, "Solution")
        return
    replay = partial(_replay, problem, findings=findings)
    check_solution(
        problem, subject, findings, replay=replay, form="both", floor=BOUND_OF_WORST_JOB
    )


def _replay(problem: Tenancy, solution: Solution, findings: Findings) -> bool:
    """Check an answer by all rules: of ports and times, of the light of all jobs, and of each job.

    In a *tenancy* several jobs share one switch. Each of them has ports of its own. Time is
    divided into slots, in each of which the switch has the circuits of all jobs.

    Parameters
    ----------
    problem
        The jobs and their switch.
    solution
        Its answer is the plan, the ports of each job; its schedule has the circuits of all slots.
    findings
        Violations are added to it, and figures: slots, circuits that change, the makespan and
        the objective in seconds, and cells and toggles of the whole schedule.

    Returns
    -------
    bool
        False if the answer defines no circuits.
    """
    plan = solution.answer
    schedule = solution.schedule
    if not isinstance(plan, TenancyPlan) or schedule is None:
        findings.refuse(PLAN_AND_SCHEDULE, "answer", plan, "both")
        return False
    fabric = problem.fabric
    if not (
        _check_ports(problem, plan, findings)
        and check_shapes(fabric, schedule, findings)
        and check_matchings(fabric, schedule, findings)
    ):
        return False

    _check_times(problem, schedule, findings)
    _check_separation(problem, plan, schedule.matchings, findings)
    traced = check_light(fabric, schedule, findings)
    for job, tenant in enumerate(problem.tenants):
        job_findings = Findings()
        _check_job(problem, job, plan, schedule, job_findings)
        findings.include(job_findings, f"job {tenant.name!r}: ")

    # The objective is the end of the last slot plus a delay for each circuit that changes.
    changed_circuits = problem.changed_circuits(plan.ports, schedule.matchings)
    findings.figures |= {
        "slots": schedule.n_slots,
        "changed_circuits": changed_circuits,
        "makespan_s": schedule.makespan_s,
        "objective": schedule.makespan_s + problem.delay_s * changed_circuits,
        "total_cells": int(traced.cells.sum()),
        "shortest_cells": _count_shortest_cells(problem, schedule.matchings),
        "toggles": count_toggles(schedule),
    }
    return True


def _check_times(problem: Tenancy, schedule: Schedule, findings: Findings) -> None:
    """Check that all slots last equally long, with the delay of the problem between them.

    Parameters
    ----------
    problem
        The duration of a slot and the delay, in seconds.
    schedule
        The schedule of all jobs.
    findings
        Violations are added to it.
    """
    for slot, duration_s in enumerate(schedule.durations_s.tolist()):
        findings.expect(SLOT_LASTS_SLOT_S, f"durations_s[{slot}]", duration_s, problem.slot_s)
    findings.expect(DELAY_IS_GIVEN, "delay_s", schedule.delay_s, problem.delay_s)
    findings.expect(ALL_STOP, "switching", schedule.switching, "all-stop")


def _check_ports(problem: Tenancy, plan: TenancyPlan, findings: Findings) -> bool:
    """Check that each job has its number of live ports, and that no other job has them.

    Parameters
    ----------
    problem
        The jobs and their switch.
    plan
        ``ports[job]``: the ports of a job; ``plans[job]``: its plan of a collective, or None.
    findings
        Violations are added to it.

    Returns
    -------
    bool
        False if a rule is broken: then it is not known whose circuits are whose.
    """
    n_jobs = len(problem.tenants)
    for parts in ("ports", "plans"):
        n_parts = len(getattr(plan, parts))
        if not findings.expect(JOB_HAS_PARTS.format(parts=parts), parts, n_parts, n_jobs):
            return False

    violations_before = len(findings.violations)
    job_of_port: dict[int, int] = {}
    for job, (tenant, ports) in enumerate(zip(problem.tenants, plan.ports, strict=True)):
        where = f"ports[{job}]"
        findings.expect(JOB_HAS_PORTS, where, len(ports), tenant.n_ports)
        for port in ports:
            if port not in problem.fabric.live_ports:
                findings.refuse(PORTS_ARE_ALIVE, where, port, "a live port")
            if port in job_of_port:
                expected = f"not one of job {job_of_port[port]}"
                findings.refuse(PORT_OF_ONE_JOB, where, port, expected)
            job_of_port[port] = job
    return len(findings.violations) == violations_before


def _check_separation(
    problem: Tenancy, plan: TenancyPlan, matchings: NDArray[np.int32], findings: Findings
) -> None:
    """Check that no circuit leads from a port of one job to a port of another one.

    Parameters
    ----------
    problem
        The switch of the jobs.
    plan
        ``ports[job]``: the ports of a job.
    matchings
        ``matchings[slot, source]``: the destination, -1 if idle.
    findings
        Gets a violation for each circuit between two jobs, or of a port without a job.
    """
    job_of_port = np.full(problem.fabric.n_ports, -1)
    for job, ports in enumerate(plan.ports):
        job_of_port[list(ports)] = job

    slots, sources = np.nonzero(matchings != IDLE)
    destinations = matchings[slots, sources]
    source_jobs = job_of_port[sources]
    destination_jobs = job_of_port[destinations]
    wrong = (source_jobs != destination_jobs) | (source_jobs < 0)
    for circuit in np.flatnonzero(wrong):
        source = sources[circuit]
        destination = destinations[circuit]
        where = f"slot {slots[circuit]}, circuit from port {source} to port {destination}"
        jobs = [int(source_jobs[circuit]), int(destination_jobs[circuit])]
        findings.refuse(CIRCUIT_WITHIN_JOB, where, jobs, "one job")


def _check_job(
    problem: Tenancy, job: int, plan: TenancyPlan, schedule: Schedule, findings: Findings
) -> None:
    """Check what one job of a shared switch gets, as if the job had the switch alone.

    A job asks for a collective operation, for a demand of bytes, or for a circuit between each two
    of its ports. The schedule of all jobs is cut down to the ports of this job, and slots in which
    it has no circuit are left out. That has to be a right answer to the job alone.

    Parameters
    ----------
    problem
        The jobs and their switch.
    job
        The number of the job.
    plan
        ``ports[job]``: its ports; ``plans[job]``: its plan, if the question is a collective.
    schedule
        The circuits of all jobs.
    findings
        The report of this job, to which violations are added.
    """
    ports = list(plan.ports[job])
    try:
        question = problem.question(problem.tenants[job], plan.ports[job])
    except InputError as exc:  # a demand between ports that no light joins
        findings.refuse(JOB_CAN_BE_ASKED, f"ports[{job}]", exc.message, "others")
        return

    # The matchings of the job, with its ports numbered from 0; slots without a circuit left out.
    index_in_job = np.full(problem.fabric.n_ports + 1, IDLE)  # the last entry is of an idle port
    index_in_job[ports] = np.arange(len(ports))
    matchings = index_in_job[schedule.matchings[:, ports]].astype(np.int32)
    busy = (matchings != IDLE).any(axis=1)

    if isinstance(question, Collective):
        _check_epochs(problem, question, plan.plans[job], matchings[busy], findings)
        return
    findings.expect(ONLY_COLLECTIVES_HAVE_PLANS, f"plans[{job}]", plan.plans[job], None)
    states = schedule.cell_states
    restricted = Schedule(
        matchings=matchings[busy],
        durations_s=np.ones(int(busy.sum())),
        cell_states=None if states is None else states[busy],
    )
    if isinstance(question, Demand):
        verify_demand(question, restricted, findings)
    elif isinstance(question, AllToAll):
        verify_schedule(question, restricted, findings)


def _check_epochs(
    problem: Tenancy,
    question: Collective,
    plan: CollectivePlan | None,
    matchings: NDArray[np.int32],
    findings: Findings,
) -> None:
    """Check that a job's slots have the circuits of its plan, in order and for long enough.

    A job does a collective, such as an all-reduce, in rounds of messages. Rounds in a row with the
    same circuits are an *epoch* of its plan. Time on the switch is divided into slots of equal
    length, and an epoch gets as many slots as its rounds need: with slots of 1 s, three rounds of
    0.5 s need 2.

    Parameters
    ----------
    problem
        ``rate_bytes_per_s`` of a circuit and ``alpha_s``, the latency of a round; all slots have
        the same length.
    question
        The collective of the job.
    plan
        Its plan; None, as where it is missing, is a violation.
    matchings
        ``matchings[slot, rank]``: the partner of a rank of the job, -1 if idle; without slots in
        which the job has no circuit.
    findings
        Violations are added to it.
    """
    if plan is None:
        findings.refuse(COLLECTIVE_HAS_PLAN, "plans", None, "a CollectivePlan")
        return
    verify_collective(question, plan, findings)
    if findings.violations:
        return
    rounds = measure_rounds(question, plan, findings)
    if rounds is None:
        return

    # An epoch holds its circuits for as many slots as its rounds need.
    epoch_s = np.zeros(plan.n_epochs)
    round_s = rounds.busiest_bytes / problem.rate_bytes_per_s + problem.alpha_s
    np.add.at(epoch_s, plan.epoch_of_round, round_s)
    slots_of_epoch = [problem.slots_for(seconds) for seconds in epoch_s.tolist()]
    expected = np.repeat(plan.circuits[:, 0], slots_of_epoch, axis=0)
    expected = expected[(expected != IDLE).any(axis=1)]
    if not np.array_equal(matchings, expected):
        findings.refuse(
            EPOCHS_IN_ORDER,
            "matchings",
            f"{len(matchings)} slots",
            f"{len(expected)}: {slots_of_epoch}",
        )


def _count_shortest_cells(problem: Tenancy, matchings: NDArray[np.int32]) -> int:
    """Add up the cells on the shortest routes of all circuits, each as if it were alone.

    Parameters
    ----------
    problem
        The switch of the jobs.
    matchings
        ``matchings[slot, source]``: the destination, -1 if idle.

    Returns
    -------
    int
        Over all slots; a circuit between bidirectional ports counts once.
    """
    slots, sources = np.nonzero(matchings != IDLE)
    destinations = matchings[slots, sources]
    cells = problem.fabric.route_cells()[sources, destinations].astype(np.int64)
    total = int(cells[cells != UNREACHED].sum())
    # A circuit between bidirectional ports is listed from both of its ends.
    return total // 2 if problem.fabric.bidirectional else total
