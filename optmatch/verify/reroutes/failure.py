"""The effect of a failure on a running state, found anew: the verifier's own view of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph, break_cells
from optmatch.fabrics.light import Light, trace
from optmatch.model import BAR, CROSS, FREE
from optmatch.problems import Reroute


@dataclass
class Failure:
    """The state after the failure, before anything is done."""

    problem: Reroute
    graph: CellGraph | None
    """The cells with their faults."""
    states: NDArray[np.int8]
    """``states[cell]``, stuck ones as they are; empty without cells."""
    fibre_of_terminal: NDArray[np.int32]
    """``fibre_of_terminal[terminal]``: the fibre whose light enters there, or -1."""
    per_unit: int
    dead_ports: set[int] = field(default_factory=set)
    hit: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    spares: set[int] = field(default_factory=set)

    def unit(self, port: int) -> int:
        """Return the unit that a port belongs to."""
        return port // self.per_unit

    def foreign(self, circuit: int) -> bool:
        """Tell whether a circuit is of a job without hit circuits."""
        owners = self.problem.owners
        return all(owners[circuit] != owners[other] for other in self.hit)


def assess_failure(problem: Reroute) -> Failure:
    """Look at a problem: circuits that the failure hits, lost units, spares that are left."""
    fabric = problem.fabric
    per_unit = problem.units.ports_per_unit
    failure = Failure(
        problem, None, np.empty(0, dtype=np.int8), problem.units.fibre_of_terminal, per_unit
    )
    if fabric.graph is not None:
        faults = np.full(fabric.n_cells, FREE, dtype=np.int8)
        states = np.array(problem.cell_states)
        for cells, state in ((problem.stuck_bar, BAR), (problem.stuck_cross, CROSS)):
            for cell in cells:
                faults[cell] = states[cell] = state
        faults[list(problem.dead_cells)] = DEAD
        failure.graph, failure.states = break_cells(fabric.graph, faults), states
    for chip in problem.failed_chips:
        failure.dead_ports.update(range(chip * per_unit, chip * per_unit + per_unit))
    failure.dead_ports.update(problem.failed_ports)
    if not problem.units.through:
        _find_racks(failure)
        return failure
    _find_lost(failure)
    _find_hit(failure)
    return failure


def rack_of(problem: Reroute, chip: int) -> int:
    """Return the rack of a chip."""
    return chip // (problem.units.n_units // problem.units.racks)


def _find_racks(failure: Failure) -> None:
    """Find the racks of failed parts that are in use, and those of spares that all work."""
    problem, unit, chips = failure.problem, failure.unit, range(failure.problem.units.n_units)
    ends, lost = problem.units.edges[problem.units.edge_of_fibre].tolist(), set[int]()
    failed = set(problem.failed_fibres)
    racks_of_fibre = {
        fibre: {rack_of(problem, chip_at) for chip_at in _chips_at(problem, ends[fibre])}
        for fibre in failed
    }
    for pair, route in zip(problem.circuits.tolist(), problem.routes, strict=True):
        lost.update(rack_of(problem, unit(port)) for port in pair if port in failure.dead_ports)
        for fibre in failed.intersection(route):
            lost |= racks_of_fibre[fibre]
    used = {rack_of(problem, chip) for chip in chips if chip not in problem.spares}
    used.update(rack_of(problem, unit(port)) for port in failure.dead_ports)
    used.update(*racks_of_fibre.values())
    for circuit, pair in enumerate(problem.circuits.tolist()):
        if any(rack_of(problem, unit(port)) in lost for port in pair):
            failure.hit.add(circuit)
    failure.lost.update(chip for chip in chips if rack_of(problem, chip) in lost)
    failure.spares.update(chip for chip in chips if rack_of(problem, chip) not in used)


def _chips_at(problem: Reroute, ends: list[int]) -> list[int]:
    """Return a chip at each end of a fibre that is no switch."""
    size = problem.units.n_units // problem.units.n_servers
    return [end * size for end in ends if end < problem.units.n_servers]


def _find_lost(failure: Failure) -> None:
    """Find the units that have fewer live ports than circuits out, or circuits in."""
    outs: dict[int, int] = {}
    ins: dict[int, int] = {}
    for source, destination in failure.problem.circuits.tolist():
        outs[failure.unit(source)] = outs.get(failure.unit(source), 0) + 1
        into = outs if failure.problem.fabric.bidirectional else ins
        into[failure.unit(destination)] = into.get(failure.unit(destination), 0) + 1
    for unit in range(failure.problem.units.n_units):
        ports = range(unit * failure.per_unit, (unit + 1) * failure.per_unit)
        live = sum(port not in failure.dead_ports for port in ports)
        if live < max(outs.get(unit, 0), ins.get(unit, 0)):
            failure.lost.add(unit)
        if live > 0 and unit in failure.problem.spares:
            failure.spares.add(unit)


def _find_hit(failure: Failure) -> None:
    problem = failure.problem
    for circuit, ends in enumerate(problem.circuits.tolist()):
        if any(port in failure.dead_ports or failure.unit(port) in failure.lost for port in ends):
            failure.hit.add(circuit)
    gone = set(problem.failed_fibres)
    if failure.graph is None:
        failure.hit.update(k for k, route in enumerate(problem.routes) if gone & set(route))
        return
    light = light_of(problem, problem.fabric.graph, problem.cell_states[None], problem.circuits)  # type: ignore[index]
    cells = light.entered // 4
    wrong = np.asarray(problem.cell_states)[cells] != failure.states[cells]
    wrong |= np.isin(cells, problem.dead_cells)
    wrong |= np.isin(failure.fibre_of_terminal[light.entered], problem.failed_fibres)
    failure.hit.update(light.beam[wrong].tolist())


def light_of(
    problem: Reroute, graph: Any, states: NDArray[np.int8], circuits: NDArray[np.int32]
) -> Light:
    """Trace all circuits through one row of states."""
    starts = problem.fabric.source_terminals[circuits[:, 0]]
    return trace(graph, states, starts[None].astype(np.int64))


def split_by_beam(light: Light, beams: int) -> list[list[int]]:
    """List the terminals that each beam of a single slot enters, in order."""
    ends = np.searchsorted(light.beam, np.arange(beams + 1))
    return [light.entered[a:b].tolist() for a, b in pairwise(ends.tolist())]
