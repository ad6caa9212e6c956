"""The best step over rings that stay, and over circuits that change, by CP-SAT job shops.

Each rail holds one ring of all its GPUs for the whole step, and data pass along it. A circuit is a
machine; a communication needs all circuits on its way at once, for as long as it lasts. All rings
of a few GPUs are tried. The model shares no code with the solvers.
"""

from collections.abc import Hashable, Sequence
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

import optmatch as om
from optmatch.verify.rails.replay import measure_work
from tests.helpers.list_scheduling import Way, list_events
from tests.helpers.static_rings import Orders, list_all_orders, ways_along
from tests.rivals.rails import changing

TICKS = 10_000_000
"""A known step is so many ticks; durations are rounded up, which lengthens a step of some hundred
operations by less than 0.01 %."""


class Tasks(NamedTuple):
    """The step as a job shop."""

    tasks: Sequence[Way]
    """What each computation or communication takes, and the circuits that it holds."""
    after: Sequence[Sequence[int]]
    """The tasks that each one has to end before."""


def list_tasks(job: om.RailJob, orders: Orders) -> Tasks:
    """List the tasks of a step whose communications pass along rings that stay."""
    step = job.step()
    full_s = measure_work(job, np.arange(step.n_operations)).full_s
    find_way = ways_along(job, orders)
    events = list_events(step)
    tasks = []
    for k, *_ in events.parts:
        task = Way(float(full_s[k]), ())
        if step.rail[k] >= 0:
            task = find_way(k)
        tasks.append(task)
    return Tasks(tasks, events.after)


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
    ticks = [ceil(task.lasts_s / below_s * TICKS) for task in shop.tasks]
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, TICKS, "") for _ in ticks]
    step = model.new_int_var(0, TICKS - 1, "")
    on_circuit: dict[Hashable, list[cp_model.IntervalVar]] = {}
    for start, length, task in zip(starts, ticks, shop.tasks, strict=True):
        interval = model.new_fixed_size_interval_var(start, length, "")
        for circuit in task.ports:
            on_circuit.setdefault(circuit, []).append(interval)
        model.add(start + length <= step)
    for one, later in enumerate(shop.after):
        for two in later:
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
    for orders in list_all_orders(job):
        below_s = min(below_s, improve_s(list_tasks(job, orders), below_s, effort))
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
