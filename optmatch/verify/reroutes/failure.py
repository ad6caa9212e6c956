"""The effect of a failure on a running state, found anew: the verifier's own view of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph, break_cells
from optmatch.fabrics.light import Light, trace
from optmatch.model import BAR, CROSS, FREE
from optmatch.problems import Reroute


@dataclass
class Failure:
    """The state after the failure, before anything is done.

    A *unit* is what a spare replaces: a chip of a rack, or a port of a switch.
    """

    problem: Reroute
    graph: CellGraph | None
    """The cells with their faults; None where circuits lead over fibres alone."""
    states: NDArray[np.int8]
    """``states[cell]``, stuck ones as they are; empty without cells."""
    fibre_of_terminal: NDArray[np.int32]
    """``fibre_of_terminal[terminal]``: the fibre whose light enters there, or -1."""
    per_unit: int
    """Ports of a unit."""
    dead_ports: set[int] = field(default_factory=set)
    hit: set[int] = field(default_factory=set)
    """Circuits that have lost their light."""
    lost: set[int] = field(default_factory=set)
    """Units that have to be replaced."""
    spares: set[int] = field(default_factory=set)
    """Units that can replace them."""

    def unit(self, port: int) -> int:
        """Return the unit that a port belongs to."""
        return port // self.per_unit

    def foreign(self, circuit: int) -> bool:
        """Return whether a circuit is of a job without hit circuits."""
        owners = self.problem.owners
        return all(owners[circuit] != owners[other] for other in self.hit)


def assess_failure(problem: Reroute) -> Failure:
    """Find the circuits that a failure hits, the lost units, and the spares that are left."""
    fabric = problem.fabric
    units = problem.units
    failure = Failure(
        problem=problem,
        graph=None,
        states=np.empty(0, dtype=np.int8),
        fibre_of_terminal=units.fibre_of_terminal,
        per_unit=units.ports_per_unit,
    )
    if fabric.graph is not None:
        _break_cells(failure, fabric.graph)
    for chip in problem.failed_chips:
        first_port = chip * failure.per_unit
        failure.dead_ports.update(range(first_port, first_port + failure.per_unit))
    failure.dead_ports.update(problem.failed_ports)

    # Where no light passes a chip on its way, racks are replaced as a whole.
    if units.through:
        _find_lost_units(failure)
        _find_hit_circuits(failure)
    else:
        _find_lost_racks(failure)
    return failure


def _break_cells(failure: Failure, graph: CellGraph) -> None:
    """Set the graph and the states of the cells to those after the failure."""
    problem = failure.problem
    faults = np.full(graph.n_cells, FREE, dtype=np.int8)
    states = np.array(problem.cell_states)
    for cells, state in ((problem.stuck_bar, BAR), (problem.stuck_cross, CROSS)):
        for cell in cells:
            faults[cell] = state
            states[cell] = state
    faults[list(problem.dead_cells)] = DEAD
    failure.graph = break_cells(graph, faults)
    failure.states = states


def rack_of(problem: Reroute, chip: int) -> int:
    """Return the rack of a chip."""
    chips_per_rack = problem.units.n_units // problem.units.racks
    return chip // chips_per_rack


def _find_lost_racks(failure: Failure) -> None:
    """Find racks with failed parts in use, which are lost, and racks of spares that work.

    Where no light passes a chip on its way, racks are replaced as a whole: all chips of a lost
    rack are lost, and all their circuits are hit.
    """
    problem = failure.problem
    chips = range(problem.units.n_units)
    failed_fibres = set(problem.failed_fibres)
    racks_of_fibre = {fibre: _racks_at(problem, fibre) for fibre in failed_fibres}
    racks_of_dead_ports = {rack_of(problem, failure.unit(port)) for port in failure.dead_ports}

    lost_racks = set[int]()
    for ports, route in zip(problem.circuits.tolist(), problem.routes, strict=True):
        dead_ends = failure.dead_ports.intersection(ports)
        lost_racks.update(rack_of(problem, failure.unit(port)) for port in dead_ends)
        for fibre in failed_fibres.intersection(route):
            lost_racks |= racks_of_fibre[fibre]

    # A spare rack has spares alone, and no failed part, in use or not.
    not_spare = {rack_of(problem, chip) for chip in chips if chip not in problem.spares}
    not_spare = not_spare.union(racks_of_dead_ports, *racks_of_fibre.values())

    for circuit, ports in enumerate(problem.circuits.tolist()):
        if any(rack_of(problem, failure.unit(port)) in lost_racks for port in ports):
            failure.hit.add(circuit)
    failure.lost.update(chip for chip in chips if rack_of(problem, chip) in lost_racks)
    failure.spares.update(chip for chip in chips if rack_of(problem, chip) not in not_spare)


def _racks_at(problem: Reroute, fibre: int) -> set[int]:
    """Return the racks at the ends of a fibre; a switch at an end is in none."""
    units = problem.units
    chips_per_server = units.n_units // units.n_servers
    servers = [end for end in units.edges[units.edge_of_fibre[fibre]] if end < units.n_servers]
    return {rack_of(problem, int(server) * chips_per_server) for server in servers}


def _find_lost_units(failure: Failure) -> None:
    """Find the units with fewer live ports than circuits to send or to receive.

    They are lost; a spare needs one live port.
    """
    problem = failure.problem
    n_units = problem.units.n_units
    circuits_out = [0] * n_units
    circuits_in = [0] * n_units
    for source, destination in problem.circuits.tolist():
        circuits_out[failure.unit(source)] += 1
        # A bidirectional port serves one circuit, whichever end of it the port is.
        at_destination = circuits_out if problem.fabric.bidirectional else circuits_in
        at_destination[failure.unit(destination)] += 1

    for unit in range(n_units):
        ports = range(unit * failure.per_unit, (unit + 1) * failure.per_unit)
        n_live = sum(port not in failure.dead_ports for port in ports)
        if n_live < max(circuits_out[unit], circuits_in[unit]):
            failure.lost.add(unit)
        if n_live > 0 and unit in problem.spares:
            failure.spares.add(unit)


def _find_hit_circuits(failure: Failure) -> None:
    """Find the circuits that have lost their light.

    A circuit is hit if it has a dead port or a lost unit, or if its light passes a failed fibre, a
    dead cell, or a cell that is stuck in another state than it needs.
    """
    problem = failure.problem
    for circuit, ports in enumerate(problem.circuits.tolist()):
        if any(port in failure.dead_ports or failure.unit(port) in failure.lost for port in ports):
            failure.hit.add(circuit)
    if failure.graph is None:
        failed_fibres = set(problem.failed_fibres)
        for circuit, route in enumerate(problem.routes):
            if not failed_fibres.isdisjoint(route):
                failure.hit.add(circuit)
        return

    # The light as it was before the failure: where it passes a cell that is no longer so, it goes.
    whole_graph = problem.fabric.graph
    states = problem.cell_states
    assert whole_graph is not None and states is not None
    light = trace_circuits(problem, whole_graph, states, problem.circuits)
    cells = light.entered // 4
    hit = states[cells] != failure.states[cells]
    hit |= np.isin(cells, problem.dead_cells)
    hit |= np.isin(failure.fibre_of_terminal[light.entered], problem.failed_fibres)
    failure.hit.update(light.beam[hit].tolist())


def trace_circuits(
    problem: Reroute, graph: CellGraph, states: NDArray[np.int8], circuits: NDArray[np.int32]
) -> Light:
    """Trace the light of circuits from their sources, in the one slot 0; beam k is circuit k."""
    starts = problem.fabric.source_terminals[circuits[:, 0]].astype(np.int64)
    return trace(graph, states[None], starts[None])


def split_by_beam(light: Light, beams: int) -> list[list[int]]:
    """List the terminals that each beam of a single slot enters, in order."""
    first = np.searchsorted(light.beam, np.arange(beams + 1)).tolist()
    return [light.entered[begin:end].tolist() for begin, end in pairwise(first)]
