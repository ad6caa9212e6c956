"""Plans of circuits for other simulators: astra-sim and OpenOptics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.writer import step_traces
from optmatch.io.rails.groups import groups_text
from optmatch.io.rails.topologies import Topologies, answer_of, topologies
from optmatch.model import IDLE, InputError, Solution, number
from optmatch.problems import RailJob, Step
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import SCALE_UP

_GIGA = 1e9


def _rated(solution: Solution, rate_bytes_per_s: float | None) -> Topologies:
    """Return the topologies; of a problem without bytes with the rate that is given."""
    found = topologies(solution)
    if hasattr(solution.problem, "rate_bytes_per_s") or isinstance(solution.problem, RailJob):
        return found
    if rate_bytes_per_s is None:
        kind = solution.problem.kind
        rule = f"a problem of kind {kind} has no bytes: state what a circuit carries (--rate)"
        raise InputError(f"rate: {rule}", where="rate")
    rate = number("rate", rate_bytes_per_s)
    switches = tuple(switch._replace(bytes_per_s=rate) for switch in found.switches)
    return found._replace(switches=switches)


def bandwidths(solution: Solution, rate_bytes_per_s: float | None = None) -> str:
    """Write the circuits as blocks ``BW topology``, in GB/s, in the order of their first use.

    Row is source, column destination. Of a rail job the nodes are ranks, and the links inside
    servers are in every topology; of other problems they are ports. Topology 0 is the initial one.
    Without a schedule and without a plan of rails `InputError` is raised, and without a rate for a
    problem that has none.
    """
    found = _rated(solution, rate_bytes_per_s)
    inside = _inside(solution, found.n_nodes)
    return _blocks("BW", ((found.rates(k) + inside) / _GIGA for k in range(len(found.states))))


def latencies(solution: Solution) -> str:
    """Write blocks ``LT topology``: nanoseconds of each link of `bandwidths`, 0 where none is."""
    found = topologies(solution)
    inside = _inside(solution, found.n_nodes)
    ns = 1e9 * solution.problem.network.latency_s if isinstance(solution.problem, RailJob) else 0.0
    there = (found.rates(k) + inside > 0 for k in range(len(found.states)))
    return _blocks("LT", (np.where(matrix, ns, 0.0) for matrix in there))


def network(solution: Solution, rate_bytes_per_s: float | None = None) -> str:
    """Write ``network.yml``: number of nodes, largest bandwidth, latency and delay."""
    found, problem = _rated(solution, rate_bytes_per_s), solution.problem
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


Circuit = tuple[int, int, int, int]
"""Node 1, node 2, port 1, port 2."""


def circuit_list(solution: Solution) -> str:
    """Write ``[time slice, node 1, node 2, port 1, port 2]`` for each circuit, as JSON.

    A slice for each state of the switches in the order of time; a port is the plane or the port
    of the GPU, or one of the two that it becomes. If all circuits go both ways, a line is for
    both ways. If not, a line is for one way: node 1 sends to node 2.
    """
    _, slices, both_ways = _slices(solution)
    lines = []
    for slice_, rows in enumerate(slices):
        for a, b, p, q in rows:
            if not both_ways:
                lines.append([slice_, a, b, 2 * p, 2 * q + 1])
            elif (a, p) <= (b, q):
                lines.append([slice_, a, b, p, q])
    return "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n" if lines else "[]\n"


def peer_matrix(solution: Solution) -> str:
    """Write the text that ``from_schedule`` loads: a row for each slice, -1 where idle.

    Column ``node * ports + port`` has the node at the other end, in the columns of both. A single
    slice is there twice, since one row alone is not loaded.
    """
    found, slices, both_ways = _slices(solution)
    ways = 1 if both_ways else 2
    ports, lines = ways * found.n_ports, []
    for slice_, rows in enumerate(slices):
        row = [IDLE] * (found.n_nodes * ports)
        joined = Counter[tuple[int, int]]()
        for a, b, p, q in rows:
            back = _returns((a, b, p, q), rows)
            joined[min(a, b), max(a, b)] += 1 if not back or (a, p) <= (b, q) else 0
            row[a * ports + ways * p] = b
            if not back:
                row[b * ports + ways * q + 1] = a
        for (a, b), count in joined.items():
            if count > 1:
                raise InputError(
                    f"slice {slice_}: {count} circuits join {a} and {b}, and a matrix of peers"
                    " does not say which ports belong together: write openoptics"
                )
        lines.append("\t".join(map(str, row)) + "\n")
    return "".join(lines * 2 if len(lines) == 1 else lines)


def _slices(solution: Solution) -> tuple[Topologies, list[dict[Circuit, None]], bool]:
    """List the circuits of every slice in the order of time, and whether all go both ways."""
    found = topologies(solution)
    slices = [
        {(a, b, p, q): None for a, b, p, q in found.circuits(topology).tolist()}
        for topology in found.topology.tolist()
    ]
    return found, slices, all(_returns(row, rows) for rows in slices for row in rows)


def _returns(circuit: Circuit, there: dict[Circuit, None]) -> bool:
    """Tell whether the same two ports are also joined in the other direction."""
    a, b, p, q = circuit
    return (b, a, q, p) in there
