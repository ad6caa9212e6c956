"""The best step over rings that stay, and over circuits that change, by CP-SAT job shops.

Each rail holds one ring of all its GPUs for the whole step, and data pass along it. A circuit is a
machine; a communication needs all circuits on its way at once, for as long as it lasts. All rings
of a few GPUs are tried. The model shares no code with the solvers.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

import optmatch as om
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND
from optmatch.verify.rails.replay import list_before, measure_work
from tests.rivals.rails import changing

TICKS = 10_000_000
"""A known step is so many ticks; durations are rounded up, which lengthens a step of some hundred
operations by less than 0.01 %."""


class Task(NamedTuple):
    """A computation, or one communication with all of its parts."""

    duration_s: float
    circuits: Sequence[int]
    """The circuits that it holds, each named by the rank that sends over it."""


class Tasks(NamedTuple):
    """The step as a job shop."""

    tasks: Sequence[Task]
    pairs: set[tuple[int, int]]
    """The first task has to end before the second starts."""


def list_rings(job: om.RailJob) -> Iterator[dict[int, list[int]]]:
    """List all rings of a job whose rails are alike: by rail its ranks in their order."""
    rails = {rail: ranks.tolist() for rail, ranks in ranks_of_rails(job.step()).items()}
    n_gpus = max(map(len, rails.values()))
    for order in permutations(range(1, n_gpus)):
        yield {rail: [ranks[0], *(ranks[k] for k in order)] for rail, ranks in rails.items()}


def list_tasks(job: om.RailJob, rings: dict[int, list[int]]) -> Tasks:
    """List the tasks of a step whose communications pass along rings that stay."""
    step = job.step()
    operations = np.arange(step.n_operations)
    work = measure_work(job, operations)
    number_of: dict[int, int] = {}
    task_of = [
        number_of.setdefault(int(match) if match >= 0 else -1 - k, len(number_of))
        for k, match in enumerate(step.match)
    ]
    tasks: dict[int, Task] = {}
    for k, number in enumerate(task_of):
        if number in tasks:
            continue
        tasks[number] = Task(float(work.full_s[k]), ())
        if step.rail[k] < 0:
            continue

        # The hops from each sender to its receiver, along the ring.
        ring = rings[int(step.rail[k])]
        place = {rank: position for position, rank in enumerate(ring)}
        members = sorted(step.groups[step.group[k]].ranks, key=lambda rank: place[rank])
        ends = list(zip(members, [*members[1:], members[0]], strict=True))
        if step.kind[k] >= SEND:
            ends = [(int(step.rank[k]), int(step.peer[k]))]
            if step.kind[k] > SEND:
                ends = [(ends[0][1], ends[0][0])]
        hops = [(place[target] - place[source]) % len(ring) for source, target in ends]
        circuits = [
            ring[(place[source] + hop) % len(ring)]
            for (source, _), count in zip(ends, hops, strict=True)
            for hop in range(count)
        ]
        n_passes = 1.0
        if step.kind[k] == ALL_TO_ALL and len(members) > 2:
            n_passes = len(members) / 2
        sent_s = float(work.sent_bytes[k]) * n_passes / job.network.rail_bytes_per_s
        tasks[number] = Task(sent_s + float(work.latency_s[k]) * max(hops), circuits)
    columns = (column.tolist() for column in list_before(step, operations))
    pairs = {(task_of[one], task_of[two]) for one, two in zip(*columns, strict=True)}
    return Tasks([tasks[number] for number in range(len(tasks))], pairs)


def improve_s(shop: Tasks, below_s: float, effort: float) -> float:
    """Return the time of a step that is shorter than `below_s`; infinite if none is found.

    Parameters
    ----------
    shop
        The step.
    below_s
        The known step time, in seconds.
    effort
        The deterministic time of CP-SAT, about a second each.
    """
    ticks = [ceil(task.duration_s / below_s * TICKS) for task in shop.tasks]
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, TICKS, "") for _ in ticks]
    step = model.new_int_var(0, TICKS - 1, "")
    on_circuit: dict[int, list[cp_model.IntervalVar]] = {}
    for start, length, task in zip(starts, ticks, shop.tasks, strict=True):
        interval = model.new_fixed_size_interval_var(start, length, "")
        for circuit in task.circuits:
            on_circuit.setdefault(circuit, []).append(interval)
        model.add(start + length <= step)
    for one, two in shop.pairs:
        model.add(starts[one] + ticks[one] <= starts[two])
    for intervals in on_circuit.values():
        model.add_no_overlap(intervals)
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = effort
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return inf
    return solver.objective_value / TICKS * below_s


def best_ring_s(job: om.RailJob, below_s: float, effort: float) -> float:
    """Return the best step over all rings that is shorter than a known one, else the known one.

    Parameters
    ----------
    job
        A job with one port for each GPU, and rails of few GPUs.
    below_s
        The known step time, in seconds.
    effort
        The deterministic time of CP-SAT for each ring, about a second each.
    """
    for rings in list_rings(job):
        below_s = min(below_s, improve_s(list_tasks(job, rings), below_s, effort))
    return below_s


def best_changing_s(job: om.RailJob, below_s: float, effort: float) -> float:
    """Return a step with straight circuits that change, shorter than a known one, else that.

    Each side of a port does its tasks one after another (a circuit through all of them, with a
    dummy for the end of the step); between tasks with other partners it changes circuits. The step
    begins with the circuits that it ends with.

    Parameters
    ----------
    job
        A job with one port for each GPU and few operations.
    below_s
        The known step time, in seconds.
    effort
        The deterministic time of CP-SAT, about a second each.
    """
    every = range(1)
    shop = changing.list_tasks(job, (every, every, every))
    scale = TICKS / below_s
    delay = ceil(job.network.delay_s * scale)
    ticks = [ceil(task.lasts_s * scale) for task in shop.tasks]
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, TICKS, "") for _ in ticks]
    step = model.new_int_var(0, TICKS - 1, "")
    users: dict[tuple[int, changing.Port], list[tuple[int, changing.Port, changing.Port]]] = {}
    for k, task in enumerate(shop.tasks):
        model.add(starts[k] + ticks[k] <= step)
        for later in shop.after[k]:
            model.add(starts[k] + ticks[k] <= starts[later])
        for (one, two), (last_one, last_two) in zip(task.circuits, task.left, strict=True):
            users.setdefault((0, one), []).append((k, two, last_two))
            users.setdefault((1, two), []).append((k, one, last_one))
    for tasks in users.values():
        arcs = []
        ends = {peer for _, first, last in tasks for peer in (first, last)}
        final = {peer: model.new_bool_var("") for peer in ends}
        model.add_exactly_one(final.values())
        for i, (k, _, left) in enumerate(tasks, 1):
            is_last = model.new_bool_var("")
            is_first = model.new_bool_var("")
            arcs += [(i, 0, is_last), (0, i, is_first)]
            model.add_implication(is_last, final[left])
            for peer, ends_so in final.items():
                if peer != tasks[i - 1][1]:
                    model.add(starts[k] >= delay).only_enforce_if(is_first, ends_so)
            for j, (later, needed, _) in enumerate(tasks, 1):
                if i != j:
                    follows = model.new_bool_var("")
                    arcs.append((i, j, follows))
                    gap = ticks[k] + (0 if left == needed else delay)
                    model.add(starts[later] >= starts[k] + gap).only_enforce_if(follows)
        model.add_circuit(arcs)
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = effort
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return below_s
    return solver.objective_value / scale
