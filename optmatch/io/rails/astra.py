"""Files of astra-sim with reconfigurable circuits: schedules of matrices, groups, network, log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.writer import step_traces
from optmatch.io.rails.groups import groups_text
from optmatch.io.rails.topologies import answer_of, topologies
from optmatch.model import InputError, Solution
from optmatch.problems import RailJob, Step
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import SCALE_UP

_GIGA = 1e9


def bandwidths(solution: Solution) -> str:
    """Write the circuits as blocks ``BW topology``, in GB/s, in the order of their first use.

    Row is source, column destination. Of a rail job the nodes are ranks, and the links inside
    servers are in every topology; of other problems they are ports. Topology 0 is the initial one.
    Without a schedule and without a plan of rails `InputError` is raised.
    """
    found = topologies(solution)
    inside = _inside(solution, found.n_nodes)
    return _blocks("BW", ((found.rates(k) + inside) / _GIGA for k in range(len(found.states))))


def latencies(solution: Solution) -> str:
    """Write blocks ``LT topology``: nanoseconds of each link of `bandwidths`, 0 where none is."""
    found = topologies(solution)
    inside = _inside(solution, found.n_nodes)
    ns = 1e9 * solution.problem.network.latency_s if isinstance(solution.problem, RailJob) else 0.0
    there = (found.rates(k) + inside > 0 for k in range(len(found.states)))
    return _blocks("LT", (np.where(matrix, ns, 0.0) for matrix in there))


def network(solution: Solution) -> str:
    """Write ``network.yml``: number of nodes, largest bandwidth, latency and delay."""
    found, problem = topologies(solution), solution.problem
    inside = _inside(solution, found.n_nodes)
    rates = [float((found.rates(k) + inside).max(initial=0)) for k in range(len(found.states))]
    ns = 1e9 * problem.network.latency_s if isinstance(problem, RailJob) else 0.0
    return (
        "topology: [FullyConnected]\n"
        f"npus_count: [{found.n_nodes}]\n"
        f"bandwidth: [{_number(max(rates, default=0) / _GIGA)}]  # GB/s\n"
        f"latency: [{_number(ns)}]  # ns\n"
        f"reconfig_time: [{_number(found.delay_s * 1e9)}]  # ns\n"
    )


def reconfigurations(solution: Solution) -> str:
    """Write when which topology is switched to, as lines of the simulator's log."""
    found = topologies(solution)
    moments = zip(found.starts_s.tolist(), found.topology.tolist(), strict=True)
    return "".join(
        f"TM: !!! TIME: {round(start * 1e9)} Reconfig to topo_id: {topology},"
        f" Devices count: {found.n_nodes}, NPUs count: {found.n_nodes}, inflight_coll 0\n"
        for start, topology in moments
    )


def group_numbers(step: Step) -> dict[str, str]:
    """Name groups by whole numbers, as astra-sim wants: their own names if these are numbers."""
    names = [group.name for group in step.groups]
    if all(name.isdecimal() for name in names):
        return {name: name for name in names}
    return {name: str(number) for number, name in enumerate(names, start=1)}


def communicators(solution: Solution) -> str:
    """Write the communicator groups of a rail job as JSON, by number."""
    step = _job(solution).step()
    numbers = group_numbers(step)
    return groups_text({numbers[group.name]: group.ranks for group in step.groups})


def traces(solution: Solution) -> dict[str, bytes]:
    """Write the step of a rail job as Chakra traces, with the groups of `communicators`."""
    step = _job(solution).step()
    numbers = group_numbers(step)
    groups = tuple(replace(group, name=numbers[group.name]) for group in step.groups)
    contents = step_traces(replace(step, groups=groups))
    return {f".{rank}.et": content for rank, content in enumerate(contents)}


def group_topologies(solution: Solution) -> str:
    """Write ``pg-2-schedule.yml``: the topology in which each group communicates first.

    A group inside a server has its links in each of them; it stands with topology 0.
    """
    job, plan = _job(solution), answer_of(solution)
    step, found = job.step(), topologies(solution)
    numbers, lines = group_numbers(step), []
    for k, group in enumerate(step.groups):
        operations = np.flatnonzero(step.group == k)
        topology = 0
        if group.rail >= 0 and len(operations) and isinstance(plan, RailPlan):
            first = float(plan.start_s[operations].min())
            moment = int(np.searchsorted(found.starts_s, first, side="right")) - 1
            topology = int(found.topology[max(0, moment)])
        lines.append(f"{numbers[group.name]}: {topology}")
    return f"mapping: {{{', '.join(lines)}}}\n"


def _blocks(kind: str, matrices: Iterable[NDArray[np.float64]]) -> str:
    parts = []
    for topology, matrix in enumerate(matrices):
        cells = [["0"] * len(matrix) for _ in matrix]
        for row, column in np.argwhere(matrix).tolist():  # few are not 0
            cells[row][column] = _number(float(matrix[row, column]))
        rows = "".join(" ".join(row) + "\n" for row in cells)
        parts.append(f"{kind} {topology}\n{rows}END\n")
    return "\n".join(parts)


def _number(value: float) -> str:
    """Write a number with as many digits as bring it back, without an empty fraction."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _job(solution: Solution) -> RailJob:
    if not isinstance(solution.problem, RailJob):
        raise InputError(
            f"a problem of kind {solution.problem.kind}: only rail jobs have communicator groups"
        )
    return solution.problem


def _inside(solution: Solution, n: int) -> NDArray[np.float64]:
    """Return the links inside servers, in bytes per second."""
    matrix = np.zeros((n, n))
    job = solution.problem
    if isinstance(job, RailJob):
        for group in job.groups():
            if group.rail == SCALE_UP:
                matrix[np.ix_(group.ranks, group.ranks)] = job.network.scale_up_bytes_per_s
        np.fill_diagonal(matrix, 0)
    return matrix
