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
from optmatch.verify.report import Findings
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_matchings, check_shapes
from optmatch.verify.routing.schedules import count_toggles, verify_schedule


def verify_tenancy(
    problem: Tenancy, subject: Schedule | TenancyPlan | Solution, findings: Findings
) -> None:
    """Replay the jobs side by side and, of a solution, check its claims."""
    findings.figures["lower_bound_recomputed"] = problem.lower_bound()
    findings.figures["slots_lower_bound"] = problem.min_slots
    if not isinstance(subject, Solution):
        findings.refuse(
            "ports and schedule answer it together", "answer", type(subject).__name__, "Solution"
        )
        return
    floor = "the lower bound is not below that of the worst job"
    replay = partial(_replay, problem, findings=findings)
    check_solution(problem, subject, findings, replay=replay, form="both", floor=floor)


def _replay(problem: Tenancy, solution: Solution, findings: Findings) -> bool:
    """Apply all rules; False if no circuits are defined."""
    plan, schedule = solution.answer, solution.schedule
    if not isinstance(plan, TenancyPlan) or schedule is None:
        findings.refuse("a plan and a schedule answer it", "answer", plan, "both")
        return False
    fabric = problem.fabric
    if not (
        _check_ports(problem, plan, findings)
        and check_shapes(fabric, schedule, findings)
        and check_matchings(fabric, schedule, findings)
    ):
        return False
    for slot in np.flatnonzero(schedule.durations_s != problem.slot_s).tolist():
        duration = float(schedule.durations_s[slot])
        findings.refuse("a slot lasts slot_s", f"durations_s[{slot}]", duration, problem.slot_s)
    findings.expect("the delay is the problem's", "delay_s", schedule.delay_s, problem.delay_s)
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")
    _check_separation(problem, plan, schedule.matchings, findings)
    total = int(check_light(fabric, schedule, findings).cells.sum())
    for k, tenant in enumerate(problem.tenants):
        inner = Findings()
        _check_tenant(problem, k, plan, schedule, inner)
        findings.include(inner, f"job {tenant.name!r}: ")
    changed = problem.changed_circuits(plan.ports, schedule.matchings)
    findings.figures |= {
        "slots": schedule.n_slots,
        "changed_circuits": changed,
        "makespan_s": schedule.makespan_s,
        "objective": schedule.makespan_s + problem.delay_s * changed,
        "total_cells": total,
        "shortest_cells": _shortest_cells(problem, schedule.matchings),
        "toggles": count_toggles(schedule),
    }
    return True


def _check_ports(problem: Tenancy, plan: TenancyPlan, findings: Findings) -> bool:
    """Check that each job has its number of live ports, and no other job has them."""
    jobs = len(problem.tenants)
    for name in ("ports", "plans"):
        rule = f"each job has its {name}"
        if not findings.expect(rule, name, len(getattr(plan, name)), jobs):
            return False
    owners: dict[int, int] = {}
    before = len(findings.violations)
    for k, (tenant, ports) in enumerate(zip(problem.tenants, plan.ports, strict=True)):
        rule = "a job has as many ports as it needs"
        findings.expect(rule, f"ports[{k}]", len(ports), tenant.n_ports)
        for port in ports:
            if port not in problem.fabric.live_ports:
                findings.refuse("ports are alive", f"ports[{k}]", port, "a live port")
            if port in owners:
                rule = "a port belongs to one job, once"
                findings.refuse(rule, f"ports[{k}]", port, f"not one of job {owners[port]}")
            owners[port] = k
    return len(findings.violations) == before


def _check_separation(
    problem: Tenancy, plan: TenancyPlan, matchings: NDArray[np.int32], findings: Findings
) -> None:
    """Check that each circuit stays within one job."""
    owner = np.full(problem.fabric.n_ports, -1)
    for k, ports in enumerate(plan.ports):
        owner[list(ports)] = k
    slots, sources = np.nonzero(matchings != IDLE)
    targets = matchings[slots, sources]
    astray = (owner[sources] != owner[targets]) | (owner[sources] < 0)
    for slot, i, j in np.stack([slots, sources, targets], axis=1)[astray].tolist():
        rule = "a circuit joins ports of one job"
        where = f"slot {slot}, circuit from port {i} to port {j}"
        findings.refuse(rule, where, [int(owner[i]), int(owner[j])], "one job")


def _check_tenant(
    problem: Tenancy, k: int, plan: TenancyPlan, schedule: Schedule, findings: Findings
) -> None:
    """Verify the part of a job on its ports as an answer to its own question."""
    tenant, ports = problem.tenants[k], plan.ports[k]
    place = np.full(problem.fabric.n_ports + 1, IDLE)  # the last entry is that of an idle port
    place[list(ports)] = np.arange(len(ports))
    own = place[schedule.matchings[:, list(ports)]].astype(np.int32)
    busy = (own != IDLE).any(axis=1)
    try:
        asked = problem.question(tenant, ports)
    except InputError as exc:  # a demand between ports that no light joins
        findings.refuse("the job can be asked of its ports", f"ports[{k}]", exc.message, "others")
        return
    if isinstance(asked, Collective):
        _check_rounds(problem, asked, plan.plans[k], own[busy], findings)
        return
    findings.expect("only collectives have plans", f"plans[{k}]", plan.plans[k], None)
    states = schedule.cell_states
    restricted = Schedule(
        matchings=own[busy],
        durations_s=np.ones(int(busy.sum())),
        cell_states=None if states is None else states[busy],
    )
    if isinstance(asked, Demand):
        verify_demand(asked, restricted, findings)
    elif isinstance(asked, AllToAll):
        verify_schedule(asked, restricted, findings)


def _check_rounds(
    problem: Tenancy,
    asked: Collective,
    plan: CollectivePlan | None,
    own: NDArray[np.int32],
    findings: Findings,
) -> None:
    """Check that the slots of a collective are the epochs of its plan, long enough for them."""
    if plan is None:
        findings.refuse("a collective has a plan", "plans", None, "a CollectivePlan")
        return
    verify_collective(asked, plan, findings)
    rounds = None if findings.violations else measure_rounds(asked, plan, findings)
    if rounds is None:
        return
    seconds = np.zeros(plan.n_epochs)
    last_s = rounds.busiest_bytes / problem.rate_bytes_per_s + problem.alpha_s
    np.add.at(seconds, plan.epoch_of_round, last_s)
    held = [problem.slots_for(each) for each in seconds.tolist()]
    wanted = np.repeat(plan.circuits[:, 0], held, axis=0)
    wanted = wanted[(wanted != IDLE).any(axis=1)]
    if not np.array_equal(own, wanted):
        rule = "a collective has its epochs one after the other, in the slots that they need"
        findings.refuse(rule, "matchings", f"{len(own)} slots", f"{len(wanted)}: {held}")


def _shortest_cells(problem: Tenancy, matchings: NDArray[np.int32]) -> int:
    """Add up the shortest routes of all circuits, as if each were alone."""
    slots, sources = np.nonzero(matchings != IDLE)
    cells = problem.fabric.route_cells()[sources, matchings[slots, sources]].astype(np.int64)
    total = int(cells[cells != UNREACHED].sum())
    return total // 2 if problem.fabric.bidirectional else total
