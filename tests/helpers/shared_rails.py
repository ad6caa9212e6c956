"""An oracle of rail sharing: rounds are walked through on the ports of the switches.

Written apart from the solver and the verifier. ``python -m tests.helpers.shared_rails FIRST LAST``
draws, solves and replays problems by number, and prints how many there were.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import optmatch as om
from optmatch.problems import NamedJob, RailShares, RailSharing
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.solvers.rail_sharing import METHODS
from tests.helpers.rails import small_job

METHOD_NAMES = tuple(method.name for method in METHODS)


def draw_sharing(rng: random.Random) -> RailSharing:
    """Draw two or three jobs of up to 16 GPUs that share rails in some way."""
    by: Any = rng.choice(("ports", "servers", "time"))
    g = rng.choice((1, 1, 2))
    most = rng.choice((1, 2, 2))
    delay_s = rng.choice((0.0, 1e-4, 1e-2, 0.5))
    change_rail_s = rng.choice((None, 1e-6))
    switching = rng.choice(("per-circuit", "all-stop")) if by == "time" else "per-circuit"
    jobs: list[om.RailJob] = []
    for _ in range(rng.choice((2, 2, 3))):
        dp = rng.choice((1, 2, 4))
        pp = rng.choice((1, 2))
        ep = rng.choice((1, 2)) if dp > 1 else 1
        experts = {"experts": 4, "active_experts": 2} if ep > 1 else {}
        model = om.TransformerModel(
            layers=2 * pp, hidden=rng.choice((32, 64)), heads=4, sequence=32, vocabulary=100,
            ffn=128, **experts,
        )  # fmt: skip
        jobs.append(
            small_job(
                dp, g, pp, ep=ep, model=model, gpus_per_server=g, ports_per_gpu=most,
                delay_s=delay_s, change_rail_s=change_rail_s, switching=switching,
                port_bytes_per_s=1e8, zero_stage=rng.choice((0, 1)),
            )
        )  # fmt: skip
    ports = [most * job.n_gpus // g for job in jobs]
    radix = max(ports) if by == "time" else rng.randint(max(ports), sum(ports))
    if by == "ports":
        radix = max(radix, sum(ports) // most)
    if by == "servers":
        radix = max(radix, sum(most * job.parallelism.pp * 2 for job in jobs))
    named = tuple(NamedJob(f"job-{number}", job) for number, job in enumerate(jobs))
    handover_s = rng.choice((0.0, 0.0, 0.02))
    return RailSharing(
        jobs=named, radix=radix, by=by, handover_s=handover_s, round_s=rng.choice((0.5, 5.0, 20.0))
    )


def switch_at(plan: RailPlan, rail: int, time_s: float) -> dict[int, int]:
    """Return the circuits of a rail that a plan has asked its switch to hold at a time."""
    for timeline in plan.rails:
        if rail in timeline.rails:
            state = max(k for k, start in enumerate(timeline.starts_s.tolist()) if start <= time_s)
            row = timeline.matchings[state].tolist()
            return {port: to for port, to in enumerate(row) if to >= 0}
    return {}


def switch_at_start(plan: RailPlan, rail: int) -> dict[int, int]:
    """Return the circuits that are up when a step begins; the first change may come at once."""
    for timeline in plan.rails:
        if rail in timeline.rails:
            row = timeline.matchings[0].tolist()
            return {port: to for port, to in enumerate(row) if to >= 0}
    return {}


def replay_sharing(problem: RailSharing, shares: RailShares) -> list[str]:
    """Replay the shares of all jobs, and return what is wrong."""
    rails = range(shares.first_port.shape[1])
    faults: list[str] = []

    def circuits_of(number: int, rail: int, time_s: float) -> dict[int, int]:
        first_port = int(shares.first_port[number, rail])
        plan = shares.beside[number].plan
        own = switch_at(plan, rail, time_s) if time_s > 0 else switch_at_start(plan, rail)
        return {first_port + port: first_port + to for port, to in own.items()}

    # At once: at any change of any of the jobs, no port sends or receives for two of them.
    if problem.by != "time":
        times = [
            sorted({t for timeline in share.plan.rails for t in timeline.starts_s.tolist()})
            for share in shares.beside
        ]
        for at in product(*times):
            for rail in rails:
                lit = [circuits_of(number, rail, time_s) for number, time_s in enumerate(at)]
                senders = [port for circuits in lit for port in circuits]
                receivers = [port for circuits in lit for port in circuits.values()]
                if len(set(senders)) < len(senders) or len(set(receivers)) < len(receivers):
                    faults.append(f"rail {rail} at {at}: a port of two jobs")
                if max([*senders, *receivers], default=0) >= problem.radix:
                    faults.append(f"rail {rail} at {at}: a port that the switch does not have")
        return faults

    # In turns: two rounds, step after step. The second one begins as the first has ended.
    network = problem.jobs[0].job.network
    now_s = 0.0
    ends: list[list[float]] = [[] for _ in problem.jobs]
    held = {rail: circuits_of(0, rail, 0.0) for rail in rails}
    for _ in range(2):
        for number, share in enumerate(shares.beside):
            if len(problem.jobs) > 1 and now_s > 0:
                wanted = {rail: circuits_of(number, rail, 0.0) for rail in rails}
                dark = any(
                    held[rail].get(port) != to
                    for rail in rails
                    for port, to in wanted[rail].items()
                )
                now_s += max(problem.handover_s, network.delay_s if dark else 0.0)
            for _ in range(shares.steps[number]):
                now_s += share.plan.step_s
                ends[number].append(now_s)
            held = {rail: circuits_of(number, rail, share.plan.step_s) for rail in rails}
    told = problem.measure_steps(shares)
    for number, steps in enumerate(shares.steps):
        # From the last step of the first round to that of the second one.
        got_s = (ends[number][-1] - ends[number][steps - 1]) / steps
        if abs(got_s - told[number]) > 1e-9 * now_s:
            faults.append(f"job {number}: a step in {got_s}, told {told[number]}")
    return faults


def best_stretch(problem: RailSharing, steps_s: list[dict[Any, float]]) -> float:
    """Find the least worst stretch by brute force over all shares, or over all rounds.

    `steps_s` has the step of each job by its share. Where time is divided, the handover has to
    last at least as long as a change of circuits: then the rails rest for the handover between
    turns, whichever circuits the plans hold.
    """
    least = []
    for named in problem.jobs:
        parts = []
        for ports, replicas in problem.list_shares(named):
            parallelism = replace(named.job.parallelism, dp=replicas)
            network = replace(named.job.network, ports_per_gpu=ports)
            parts.append(replace(named.job, parallelism=parallelism, network=network))
        least.append(min(part.lower_bound() for part in parts))
    best = float("inf")
    if problem.by == "time":
        assert all(problem.handover_s >= named.job.network.delay_s for named in problem.jobs)
        own = [next(iter(row.values())) for row in steps_s]
        rests_s = problem.handover_s * len(own) if len(own) > 1 else 0.0
        most = [max(1, int(problem.round_s / step_s)) for step_s in own]
        for steps in product(*(range(1, n + 1) for n in most)):
            round_s = sum(n * step_s for n, step_s in zip(steps, own, strict=True)) + rests_s
            if round_s <= problem.round_s or set(steps) == {1}:
                worst = max(round_s / n / floor for n, floor in zip(steps, least, strict=True))
                best = min(best, worst)
        return best
    for chosen in product(*(row.items() for row in steps_s)):
        used: dict[int, int] = {}
        for named, ((ports, replicas), _) in zip(problem.jobs, chosen, strict=True):
            job = named.job
            g = job.network.gpus_per_server
            for rail in range(g):
                gpus = job.n_gpus // g * replicas // job.parallelism.dp
                used[rail] = used.get(rail, 0) + ports * gpus
        if max(used.values()) <= problem.radix:
            worst = max(step_s / floor for (_, step_s), floor in zip(chosen, least, strict=True))
            best = min(best, worst)
    return best


def main() -> None:
    """Draw, solve and replay problems by number, and print what is wrong."""
    first, last = map(int, sys.argv[1:3])
    counts: dict[str, int] = {}
    wrong = 0
    for number in range(first, last):
        rng = random.Random(f"sharing {number}")
        try:
            problem = draw_sharing(rng)
        except om.InputError as exc:
            print(number, exc)
            counts["refused"] = counts.get("refused", 0) + 1
            continue
        limits = om.Limits(iterations=60)
        solution = om.solve(problem, rng.choice(METHOD_NAMES), seed=0, limits=limits)
        counts[problem.by] = counts.get(problem.by, 0) + 1
        if solution.answer is None:
            counts["no plan"] = counts.get("no plan", 0) + 1
            continue
        faults = replay_sharing(problem, solution.answer)
        report = om.verify(problem, solution)
        if faults or not report.valid:
            wrong += 1
            print(number, faults[:3], report.complaint)
    print(counts, "wrong", wrong)


if __name__ == "__main__":
    main()
