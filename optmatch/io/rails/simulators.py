"""Plans of circuits for other simulators: astra-sim and OpenOptics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.writer import step_traces
from optmatch.io.rails.groups import groups_text
from optmatch.io.rails.topologies import Topologies, topologies
from optmatch.model import InputError, Solution, number
from optmatch.problems import RailJob, Step
from optmatch.problems.rails.training.step import SCALE_UP

_GIGA = 1e9


def _rated(solution: Solution, rate_bytes_per_s: float | None) -> Topologies:
    """Return the topologies of a solution, each switch with its rate in bytes per second.

    The given rate counts for problems without a rate of their own; these need it.
    """
    system = topologies(solution)
    if hasattr(solution.problem, "rate_bytes_per_s") or isinstance(solution.problem, RailJob):
        return system
    if rate_bytes_per_s is None:
        kind = solution.problem.kind
        rule = f"a problem of kind {kind} has no bytes: state what a circuit carries (--rate)"
        raise InputError(f"rate: {rule}", where="rate")
    rate = number("rate", rate_bytes_per_s)
    switches = tuple(switch._replace(bytes_per_s=rate) for switch in system.switches)
    return system._replace(switches=switches)


def bandwidths(solution: Solution, rate_bytes_per_s: float | None = None) -> str:
    """Write the circuits as blocks ``BW topology`` for astra-sim, in GB/s, sources in rows.

    A topology is all circuits that are there at a time, in the order of first use; 0 is the
    initial one. In a rail job the nodes are ranks, and the links inside servers are in every
    topology; of other problems they are ports.
    """
    system = _rated(solution, rate_bytes_per_s)
    return _format_blocks("BW", (rates / _GIGA for rates in _list_rates(solution, system)))


def latencies(solution: Solution) -> str:
    """Write blocks ``LT topology`` for astra-sim: the latency of each link in nanoseconds.

    Rows are sources; 0 where there is no link. Links inside servers are in every topology.
    """
    latency_ns = _latency_ns(solution)
    all_rates = _list_rates(solution, topologies(solution))
    return _format_blocks("LT", (np.where(rates > 0, latency_ns, 0.0) for rates in all_rates))


def network(solution: Solution, rate_bytes_per_s: float | None = None) -> str:
    """Write ``network.yml`` of astra-sim: number of nodes, largest bandwidth, latency, delay.

    Bandwidths are in GB/s, times in nanoseconds.
    """
    system = _rated(solution, rate_bytes_per_s)
    all_rates = _list_rates(solution, system)
    largest_rate = max((float(rates.max(initial=0)) for rates in all_rates), default=0)
    return (
        "topology: [FullyConnected]\n"
        f"npus_count: [{system.n_nodes}]\n"
        f"bandwidth: [{_format_number(largest_rate / _GIGA)}]  # GB/s\n"
        f"latency: [{_format_number(_latency_ns(solution))}]  # ns\n"
        f"reconfig_time: [{_format_number(system.delay_s * 1e9)}]  # ns\n"
    )


def _latency_ns(solution: Solution) -> float:
    """Return the latency of a link of a rail job, in nanoseconds; 0 of other problems."""
    if not isinstance(solution.problem, RailJob):
        return 0.0
    return 1e9 * solution.problem.network.latency_s


def _group_numbers(step: Step) -> dict[str, str]:
    """Name groups by whole numbers, as astra-sim wants, from 1 in the order of the groups.

    Their own names count if these are numbers.
    """
    names = [group.name for group in step.groups]
    if all(name.isdecimal() for name in names):
        return {name: name for name in names}
    return {name: str(number) for number, name in enumerate(names, start=1)}


def communicators(solution: Solution) -> str:
    """Write the ranks of the communicator groups of a rail job as JSON, by number of the group."""
    step = _job(solution).step()
    numbers = _group_numbers(step)
    return groups_text({numbers[group.name]: group.ranks for group in step.groups})


def traces(solution: Solution) -> dict[str, bytes]:
    """Write the step of a rail job as Chakra traces, with groups named by numbers.

    The contents stand by the ends of file names, ``.RANK.et``.
    """
    step = _job(solution).step()
    numbers = _group_numbers(step)
    groups = tuple(replace(group, name=numbers[group.name]) for group in step.groups)
    contents = step_traces(replace(step, groups=groups))
    return {f".{rank}.et": content for rank, content in enumerate(contents)}


def _format_blocks(kind: str, matrices: Iterable[NDArray[np.float64]]) -> str:
    """Write a block of rows, under the word `kind` and its number, for each square matrix."""
    blocks = []
    for topology, matrix in enumerate(matrices):
        # Few entries of a large matrix differ from 0: only these are formatted.
        cells = [["0"] * len(matrix) for _ in matrix]
        for row, column in np.argwhere(matrix).tolist():
            cells[row][column] = _format_number(float(matrix[row, column]))
        lines = "".join(" ".join(row) + "\n" for row in cells)
        blocks.append(f"{kind} {topology}\n{lines}END\n")
    return "\n".join(blocks)


def _format_number(value: float) -> str:
    """Write a number with as many digits as bring it back, without an empty fraction."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _job(solution: Solution) -> RailJob:
    """Return the rail job of a solution; other problems have no groups."""
    if not isinstance(solution.problem, RailJob):
        rule = "only rail jobs have communicator groups"
        raise InputError(f"a problem of kind {solution.problem.kind}: {rule}")
    return solution.problem


def _list_rates(solution: Solution, system: Topologies) -> Iterator[NDArray[np.float64]]:
    """Yield ``rates[source, destination]`` of each topology, in bytes per second.

    The links inside servers of a rail job are in all of them.
    """
    inside = np.zeros((system.n_nodes, system.n_nodes))
    job = solution.problem
    if isinstance(job, RailJob):
        for group in job.groups():
            if group.rail == SCALE_UP:
                inside[np.ix_(group.ranks, group.ranks)] = job.network.scale_up_bytes_per_s
        np.fill_diagonal(inside, 0)
    for topology in range(len(system.states)):
        yield system.rates(topology) + inside


def circuit_list(solution: Solution) -> str:
    """Write ``[time slice, node 1, node 2, port 1, port 2]`` for each circuit, as JSON.

    A slice is one state of all switches, in the order of time; a port is the plane or the port of
    the GPU. A line is for both ways if all circuits go both ways. If not, node 1 sends to node 2,
    and port p becomes 2 p, which sends, and 2 p + 1, which receives.
    """
    # By slice the circuits: source and destination node, source and destination port.
    system = topologies(solution)
    circuits_of_slice = [
        list(map(tuple, system.circuits(topology).tolist())) for topology in system.topology
    ]
    are_both_ways = all(
        {(target, source, back, port) for source, target, port, back in circuits} == set(circuits)
        for circuits in circuits_of_slice
    )

    lines = []
    for slice_, circuits in enumerate(circuits_of_slice):
        for source, target, port, target_port in circuits:
            if not are_both_ways:
                # A port becomes two: the even one sends, the odd one receives.
                lines.append([slice_, source, target, 2 * port, 2 * target_port + 1])
            elif (source, port) <= (target, target_port):
                lines.append([slice_, source, target, port, target_port])
    return "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n" if lines else "[]\n"
