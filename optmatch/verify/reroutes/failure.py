"""What a failure does to a running state, found anew: the verifier's own view of it."""

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
class Scene:
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
        """Tell whether a circuit is of a job of which nothing was hit."""
        owners = self.problem.owners
        return all(owners[circuit] != owners[other] for other in self.hit)


def view(problem: Reroute) -> Scene:
    """Look at a problem: whom the failure hits, which units are lost, which spares are left."""
    fabric = problem.fabric
    per_unit = fabric.ports_per_unit
    scene = Scene(problem, None, np.empty(0, dtype=np.int8), fabric.fibre_of_terminal, per_unit)
    if fabric.graph is not None:
        faults = np.full(fabric.n_cells, FREE, dtype=np.int8)
        states = np.array(problem.cell_states)
        for cells, state in ((problem.stuck_bar, BAR), (problem.stuck_cross, CROSS)):
            for cell in cells:
                faults[cell] = states[cell] = state
        faults[list(problem.dead_cells)] = DEAD
        scene.graph, scene.states = break_cells(fabric.graph, faults), states
    for chip in problem.failed_chips:
        scene.dead_ports.update(range(chip * per_unit, chip * per_unit + per_unit))
    scene.dead_ports.update(problem.failed_ports)
    _find_lost(scene)
    _find_hit(scene)
    return scene


def _find_lost(scene: Scene) -> None:
    """Find the units that have fewer live ports than circuits out, or circuits in."""
    outs: dict[int, int] = {}
    ins: dict[int, int] = {}
    for source, destination in scene.problem.circuits.tolist():
        outs[scene.unit(source)] = outs.get(scene.unit(source), 0) + 1
        into = outs if scene.problem.fabric.bidirectional else ins
        into[scene.unit(destination)] = into.get(scene.unit(destination), 0) + 1
    for unit in range(scene.problem.fabric.n_units):
        ports = range(unit * scene.per_unit, (unit + 1) * scene.per_unit)
        live = sum(port not in scene.dead_ports for port in ports)
        if live < max(outs.get(unit, 0), ins.get(unit, 0)):
            scene.lost.add(unit)
        if live > 0 and unit in scene.problem.spares:
            scene.spares.add(unit)


def _find_hit(scene: Scene) -> None:
    problem = scene.problem
    for circuit, ends in enumerate(problem.circuits.tolist()):
        if any(port in scene.dead_ports or scene.unit(port) in scene.lost for port in ends):
            scene.hit.add(circuit)
    gone = set(problem.failed_fibres)
    if scene.graph is None:
        scene.hit.update(k for k, route in enumerate(problem.routes) if gone & set(route))
        return
    light = light_of(problem, problem.fabric.graph, problem.cell_states[None], problem.circuits)  # type: ignore[index]
    cells = light.entered // 4
    wrong = np.asarray(problem.cell_states)[cells] != scene.states[cells]
    wrong |= np.isin(cells, problem.dead_cells)
    wrong |= np.isin(scene.fibre_of_terminal[light.entered], problem.failed_fibres)
    scene.hit.update(light.beam[wrong].tolist())


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
