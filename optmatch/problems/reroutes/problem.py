"""Reroute: something has failed in a running state, and circuits must get around it.

A *unit* is what a spare replaces: a chip of a rack, or one port of a switch. A *handover* is a
choice of spares: each lost unit gets the spare that takes over its circuits. A circuit is *hit* if
the failure takes its light, or one of its ends is on a lost unit. A loss is *stated* if an ideal
switch has it in a table by source and destination; otherwise cells and fibres on the way have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import inf
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric, Faulty, IdealSwitch, RackFabric, Units, units_of
from optmatch.fabrics.cellgraph import check_parts
from optmatch.fabrics.fabric import number_names
from optmatch.fabrics.units import UNITS_PER_DB, measure_reach
from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    Axes,
    Displayed,
    Given,
    GivenOrNone,
    Index,
    InputError,
    Range,
    Score,
    check_fields,
    frozen,
    given,
)
from optmatch.model.declarations import BY_NAME, Label, form_of
from optmatch.model.device import Loss
from optmatch.model.numbers import check_length, refuse_entries
from optmatch.problems.reroutes.running import (
    Damage,
    FailedParts,
    Passed,
    Routes,
    check_ends,
    follow_fibres,
    follow_light,
    group_size,
    list_passed,
    number_named_ends,
)
from optmatch.problems.reroutes.transition import SET, Transition

_MOST_HANDOVERS = 720
"""The most choices of spares that the bound tries one by one."""


def _try_handovers(
    state: Reroute, lengths: NDArray[np.integer], end_units: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return how long or how lossy the shortest new routes are, for each choice of spares.

    ``lengths[source, destination]`` is one of both arrays of `Reach`, and ``end_units[circuit]``
    are both units of each hit circuit. The result is ``lengths`` between the ends of each hit
    circuit (column) after each handover (row). With 2 lost units and 3 spares there are 3 * 2 = 6
    handovers. There is one row alone

    - if whole racks are lost: a rack is replaced by one that is alike, so that lengths stay;
    - if there are more than ``_MOST_HANDOVERS``: each circuit has the least length that it has
      with any spares, even if no single handover is the best one for all circuits.
    """
    sources, destinations = end_units.T
    lost = list(state.lost)
    spares = list(state.live_spares)
    tried: NDArray[np.integer]
    if not state.units.through:
        # Racks that go elsewhere stay as far from each other.
        tried = lengths[sources, destinations][None]
    elif math.perm(len(spares), len(lost)) > _MOST_HANDOVERS:
        # Too many handovers: each lost end of each circuit may be any spare by itself.
        nearest = lengths.copy()
        nearest[lost] = nearest[spares].min(axis=0, initial=UNREACHED)
        nearest[:, lost] = nearest[:, spares].min(axis=1, initial=UNREACHED)[:, None]
        tried = nearest[sources, destinations][None]
    else:
        # ``unit_after[handover, unit]``: the spare in place of a lost unit, others as they are.
        handovers = np.array(list(permutations(spares, len(lost))), dtype=np.int64)
        unit_after = np.tile(np.arange(len(lengths)), (len(handovers), 1))
        unit_after[:, lost] = handovers.reshape(len(handovers), len(lost))
        tried = lengths[unit_after[:, sources], unit_after[:, destinations]]
    return tried.astype(np.int64)


class _AssessedState(Displayed):
    """The attributes that `Reroute` derives once from its fields, and keeps beside them."""

    __slots__ = ("circuit_routes", "damage", "passed", "units")
    units: Units
    circuit_routes: Routes
    passed: Passed
    damage: Damage


@dataclass(frozen=True, slots=True, eq=False)
class Reroute(_AssessedState):
    """Get the circuits of a running state around a failure; without one it *is* the state.

    A *unit* is what a spare replaces: a chip of a rack with its ports, or one port of a switch. A
    unit is lost when it has failed, or has fewer live ports left than circuits; all its circuits
    then go to one spare. A circuit that keeps its unit may take another live port there. Where no
    light passes chips (`RackFabric.through`) whole racks are lost and take over, chip by chip.

    The objective is lexicographic: circuits of others disturbed, circuits changed, cells set,
    the loss of the worst new route in hundredths of a dB (where an ideal switch states losses,
    that of the worst new circuit), and the length of all new routes in cells and fibres.
    *Others* are the jobs of which no circuit was hit.

    Parameters
    ----------
    fabric
        A rack, a switch with cells, or an ideal switch, whose ports are the units.
    circuits
        ``circuits[circuit] = source port, destination port``, by number or name; int32, shape
        (circuits, 2). On bidirectional ports each circuit stands once.
    owners
        ``owners[circuit]``: the job it belongs to; None for a job of its own each.
    spares
        Chips of a rack, or ports of a switch by number or name, that are in reserve.
    routes
        ``routes[circuit]``: the fibres of each circuit, in a rack with ideal interposers; empty
        where there are cells, as these say it.
    cell_states
        ``cell_states[cell]``: 0 bar, 1 cross, -1 never set; None where there are no cells.
    failed_chips
        The chips of a rack that have failed, as 3,14.
    failed_ports
        The ports of a rack or a switch that have failed and carry no light any more, by number or
        name; and cells below.
    failed_fibres
        The fibres of a rack that have failed, as 3,14.
    stuck_bar
        The cells that stay in bar, whatever they are told.
    stuck_cross
        The cells that stay in cross, whatever they are told.
    dead_cells
        The cells that carry no light.
    cell_loss_db
        The loss of a cell, in dB.
    fibre_loss_db
        The loss of a fibre with its two couplings, in dB.

    Attributes
    ----------
    units : Units
        The units that spares replace: chips on servers that fibres join, or ports.
    circuit_routes : tuple of tuple of int
        The route of each circuit: fibres that it passes, or terminals where it enters cells.
    passed : Passed
        The parts of `circuit_routes`, one route after another, and whose they are.
    damage : Damage
        What the failures hit.

    Raises
    ------
    InputError
        Naming the circuit whose port does not exist or is in use, the spare that is in use, the
        circuit whose route or cells do not carry it, or the failed part that does not exist.

    See Also
    --------
    Transition : The answer.
    Rerouter : Holds a running state and answers failures at once.
    RackFabric : Racks, whose units are chips.

    Examples
    --------
    Chip 0 of a rack fails; its circuit to chip 1, in the same server, goes to the spare chip 63:

    >>> from optmatch.fabrics import RackFabric
    >>> problem = Reroute(RackFabric(), [[0, 6], [6, 0]], routes=[[], []], spares=[63],
    ...                   failed_chips=[0])
    >>> problem.lost, problem.hit.tolist()
    ((0,), [True, True])
    """

    fabric: Fabric
    circuits: Annotated[Given[np.int32], Axes(2, 2), BY_NAME] = given()
    owners: Given[np.int32] = given(default=None)  # never None once built
    spares: tuple[Label, ...] = ()
    routes: tuple[tuple[Index, ...], ...] = ()
    cell_states: Annotated[GivenOrNone[np.int8], Range(FREE, CROSS)] = given(default=None)
    failed_chips: tuple[Index, ...] = field(default=(), kw_only=True)
    failed_ports: tuple[Label, ...] = field(default=(), kw_only=True)
    failed_fibres: tuple[Index, ...] = field(default=(), kw_only=True)
    stuck_bar: tuple[Label, ...] = field(default=(), kw_only=True)
    stuck_cross: tuple[Label, ...] = field(default=(), kw_only=True)
    dead_cells: tuple[Label, ...] = field(default=(), kw_only=True)
    cell_loss_db: Loss = field(default=0.48, kw_only=True)
    fibre_loss_db: Loss = field(default=3.6, kw_only=True)
    kind: ClassVar[str] = "reroute"
    answer_class: ClassVar[type[Transition] | None] = Transition
    objectives: ClassVar[dict[str, str]] = {
        "reroute": "disturbed, changed, cells set, hundredths of a dB, cells or fibres"
    }

    def __post_init__(self) -> None:
        """Check all fields, follow the light of all circuits, and assess the failures.

        InputError names the first field, circuit, spare or failed part that is wrong.
        """
        # Ports and cells may be called by their names: they become numbers.
        form_of(Fabric).check("fabric", self.fabric)
        for name in ("stuck_bar", "stuck_cross", "dead_cells"):
            self._set(**{name: number_names(self.fabric.find_cell, getattr(self, name))})
        self._set(failed_ports=number_names(self.fabric.find_port, self.failed_ports))
        if not isinstance(self.fabric, RackFabric):
            self._set(spares=number_names(self.fabric.find_port, self.spares))
        self._set(circuits=number_named_ends(self.fabric, self.circuits))

        # Without owners each circuit is a job of its own.
        if self.owners is None:
            self._set(circuits=frozen("circuits", self.circuits, 2, np.int32))
            self._set(owners=np.arange(len(self.circuits)))
        check_fields(self)

        # All fields have their types now; the rest is whether they fit the fabric.
        fabric = self.fabric
        if isinstance(fabric, Faulty):
            raise InputError("fabric: list its faults as failures", where="fabric")
        if fabric.graph is None and not isinstance(fabric, RackFabric | IdealSwitch):
            raise InputError(
                "fabric: a rack, a switch with cells, or an ideal switch", where="fabric"
            )
        if isinstance(fabric, IdealSwitch) and not self.routes:
            # Light of an ideal switch passes no fibre of ours.
            self._set(routes=((),) * len(self.circuits))
        check_ends(fabric, self.circuits)

        # No running circuit is over its link budget, and each has an owner.
        if fabric.over_budget is not None:
            ends = self.circuits
            refuse_entries(
                "circuits",
                fabric.over_budget[tuple(ends.T)],
                lambda k: f": over the link budget: {fabric.explain_dead_pair(*ends[k].tolist())}",
            )
        check_length("owners", self.owners, len(self.circuits), "circuits")
        self._set(units=units_of(fabric))
        self._check_parts()

        # The cells say where the light of a circuit goes; without cells its route lists fibres.
        routes = self.routes
        if fabric.graph is None:
            if self.cell_states is not None:
                raise InputError("cell_states: the fabric has no cells", where="cell_states")
            passed = follow_fibres(self.units, self.circuits, routes)
        else:
            if routes:
                raise InputError("routes: the cells say them", where="routes")
            if self.cell_states is None:
                raise InputError("cell_states: needed where there are cells", where="cell_states")
            routes = follow_light(fabric, self.circuits, self.cell_states)
            passed = list_passed(routes)
        self._set(circuit_routes=routes, passed=passed)
        self._set(damage=assess(self, self.failed))

    def _check_parts(self) -> None:
        """Refuse spares and failed parts that do not exist, and spares in use; sort the others.

        A part may not be listed twice, nor a cell with two faults.
        """
        sizes = {
            "spares": (self.n_units, f"{self.units.unit_name}s"),
            "failed_chips": (self.units.n_chips, "chips"),
            "failed_ports": (self.fabric.n_ports, "ports"),
            "failed_fibres": (self.units.n_fibres, "fibres"),
            "stuck_bar": (self.fabric.n_cells, "cells"),
            "stuck_cross": (self.fabric.n_cells, "cells"),
            "dead_cells": (self.fabric.n_cells, "cells"),
        }
        # A cell has one fault at most, so that its lists know of each other.
        faults: dict[int, str] = {}
        for name, (count, noun) in sizes.items():
            taken = faults if noun == "cells" else None
            parts = check_parts(name, getattr(self, name), count, noun, taken)
            self._set(**{name: tuple(sorted(parts))})

        # No circuit ends at a spare.
        circuit_of_unit = np.full(self.n_units, -1)
        end_units = self.circuits.T // self.units.ports_per_unit
        circuit_of_unit[end_units] = np.arange(len(self.circuits))
        for number, spare in enumerate(self.spares):
            user = circuit_of_unit[spare]
            if user >= 0:
                name = self.units.describe_unit(spare)
                raise InputError(
                    f"spares[{number}] = {spare}: {name} is in use by circuit {user}",
                    where=f"spares[{number}]",
                )

    @property
    def n_units(self) -> int:
        """The number of chips of a rack, or of ports of a switch."""
        return self.units.n_units

    @property
    def stuck(self) -> dict[int, int]:
        """The state of each stuck cell."""
        return self.failed.stuck

    @property
    def failed(self) -> FailedParts:
        """The parts that have failed, by kind."""
        return FailedParts(*(getattr(self, field) for field in FailedParts._fields))

    @property
    def hit(self) -> NDArray[np.bool_]:
        """``hit[circuit]``: whether the failure takes its light, or an end of it is lost."""
        return self.damage.hit

    @property
    def lost(self) -> tuple[int, ...]:
        """The units that a spare has to take over, ascending."""
        return self.damage.lost

    @property
    def live_spares(self) -> tuple[int, ...]:
        """The spares that have not failed, ascending."""
        return self.damage.spares

    @property
    def dead_ports(self) -> frozenset[int]:
        """The ports that have failed, alone or with their chip."""
        return self.damage.dead_ports

    @property
    def broken_fabric(self) -> Fabric:
        """The switch with its stuck and dead cells; of a rack the rack itself."""
        cells = (self.stuck_bar, self.stuck_cross, self.dead_cells)
        if isinstance(self.fabric, RackFabric) or not any(cells):
            return self.fabric
        return Faulty(self.fabric, *cells)

    @property
    def foreign(self) -> NDArray[np.bool_]:
        """``foreign[circuit]``: whether it is of a job of which nothing was hit."""
        return ~np.isin(self.owners, self.owners[self.hit])

    @property
    def loss_units(self) -> tuple[int, int]:
        """The loss of a cell and of a fibre in hundredths of a dB, rounded."""
        cell_loss = round(UNITS_PER_DB * self.cell_loss_db)
        fibre_loss = round(UNITS_PER_DB * self.fibre_loss_db)
        return cell_loss, fibre_loss

    def lower_bound(self) -> Score:
        """Bound the objective: hit circuits change, and no route is shorter than the way is far.

        Returns
        -------
        tuple of int, or float
            Level by level; infinite if there are fewer live spares than lost units, or a circuit
            has no way at all.
        """
        if len(self.lost) > len(self.live_spares):
            return inf

        # Every hit circuit changes, while circuits of others and cells to be set are bounded by 0.
        # One row for each handover, one column for each hit circuit: loss and length of a shortest
        # route.
        units = units_of(self.broken_fabric)
        end_units = self.circuits[self.hit] // units.ports_per_unit  # (circuits, 2)
        reach = measure_reach(units, self.loss_units)
        losses = _try_handovers(self, reach.loss, end_units)
        lengths = _try_handovers(self, reach.length, end_units)

        # Handovers that leave a circuit without any route are no answers.
        has_routes = (lengths < UNREACHED).all(axis=1)
        if not has_routes.any():
            return inf

        # The best handover by the levels in their order: first the worst loss, then the length.
        worst_loss = losses[has_routes].max(axis=1, initial=0)
        length = lengths[has_routes].sum(axis=1)
        best = np.lexsort((length, worst_loss))[0]
        return 0, len(end_units), 0, int(worst_loss[best]), int(length[best])

    def after(self, transition: Transition, more: Mapping[str, Any] | None = None) -> Reroute:
        """Return the state that a transition leads to, with all failures still in it.

        Parameters
        ----------
        transition
            A transition of this problem; `optmatch.verify` tells whether it is a right one. Its
            ``moves`` say which spares are used up, ``changed``, ``circuits`` and ``routes`` the
            new ports and routes of circuits, and its steps of kind `SET` the new states of cells.
        more
            Parts to add to fields of the new state: by the field's name, such as
            ``"failed_chips"``, ``"stuck_bar"`` or ``"spares"``, the numbers of the parts. These
            are failures that this state does not have yet, if the transition is an answer to
            them, and units that become spares by it. None adds nothing.

        Returns
        -------
        Reroute
            The state after all steps. Spares that have taken over are spares no more; lost units
            and other failed parts stay listed as failed.
        """
        more = more or {}

        # Circuits that change get their new ports; units that take over are no spares any more.
        circuits = np.array(self.circuits)
        circuits[transition.changed] = transition.circuits
        used_spares = set(transition.moves[:, 1].tolist())
        changes: dict[str, Any] = {
            "circuits": circuits,
            "spares": tuple(unit for unit in self.spares if unit not in used_spares),
        }

        # Without cells a circuit's route is its list of fibres. With cells their states say it:
        # stuck cells are in their states whatever they are told, all others as the steps set them.
        if self.cell_states is None:
            routes = list(self.routes)
            for circuit, route in zip(transition.changed, transition.routes, strict=True):
                routes[circuit] = route
            changes["routes"] = tuple(routes)
        else:
            states = np.array(self.cell_states)
            states[[*self.stuck_bar, *more.get("stuck_bar", ())]] = BAR
            states[[*self.stuck_cross, *more.get("stuck_cross", ())]] = CROSS

            # Steps come last: they set cells that work. Of several steps of a cell the last stays.
            _, cells, new_states = transition.steps[transition.steps[:, 0] == SET].T
            states[cells] = new_states
            changes["cell_states"] = states

        # The parts in `more` are added to those that the fields have so far.
        for name, parts in more.items():
            changes[name] = (*changes.get(name, getattr(self, name)), *parts)
        return replace(self, **changes)


def assess(state: Reroute, failed: FailedParts) -> Damage:
    """Find which circuits lose their light or an end when parts fail, and what must be replaced.

    The parts that have failed are `failed` alone, not those of the state: of a running state with
    failures, pass both together.
    """
    # Circuits that end at a dead port are hit; those of a failed chip are all dead.
    units = state.units
    per_unit = units.ports_per_unit
    is_dead = np.zeros(units.n_units * per_unit, dtype=np.bool_)  # by port
    is_dead.reshape(units.n_units, per_unit)[list(failed.failed_chips)] = True
    is_dead[list(failed.failed_ports)] = True
    hit = np.asarray(is_dead[state.circuits].any(axis=1))

    # A circuit that passes a failed fibre is hit. It passes fibres or, on a fabric with cells,
    # terminals (terminal t is of cell t // 4), whose fibres are looked up. Those without a fibre
    # have the number -1, and find the last entry of `has_failed`, which is False.
    passed = state.passed
    if failed.failed_fibres:
        fibre: NDArray[np.integer] = passed.part
        if state.cell_states is not None:
            fibre = units.fibre_of_terminal[passed.part]
        has_failed = np.zeros(units.n_fibres + 1, dtype=np.bool_)
        has_failed[list(failed.failed_fibres)] = True
        hit[passed.circuit[has_failed[fibre]]] = True

    # A circuit that passes a dead cell is hit, or one that is stuck in another state.
    if state.cell_states is not None and failed.broken_cells:
        is_broken = np.zeros(len(state.cell_states), dtype=np.bool_)  # by cell
        is_broken[list(failed.dead_cells)] = True
        for cell, stuck_state in failed.stuck.items():
            is_broken[cell] = stuck_state != state.cell_states[cell]
        hit[passed.circuit[is_broken[passed.part // 4]]] = True

    # Circuits of lost units are hit, at whichever port. Where light passes chips (`through`), each
    # unit is lost and replaced by itself, else whole racks are.
    if units.through:
        is_lost, takes_over = _find_lost_units(state, is_dead)
    else:
        is_lost, takes_over = _find_lost_racks(state, failed, is_dead)
    hit |= is_lost[state.circuits // per_unit].any(axis=1)
    return Damage(
        dead_ports=frozenset(np.flatnonzero(is_dead).tolist()),
        hit=hit,
        lost=tuple(np.flatnonzero(is_lost).tolist()),
        spares=tuple(unit for unit in state.spares if takes_over[unit]),
    )


def _find_lost_units(
    state: Reroute, is_dead: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which units are lost, and which can take over, once ports are dead (`is_dead`).

    A unit is lost if it has more circuits than live ports: a chip with 4 ports and 3 circuits is
    lost when a second port fails. A unit without a live port cannot take over. Both results are
    by unit.
    """
    n_units = state.units.n_units
    if not is_dead.any():
        return np.zeros(n_units, dtype=np.bool_), np.ones(n_units, dtype=np.bool_)
    per_unit = state.units.ports_per_unit
    n_live = per_unit - is_dead.reshape(n_units, per_unit).sum(axis=1)

    # A bidirectional port serves one circuit, whichever end is there; other ports serve one that
    # starts and one that ends there.
    unit_of_end = state.circuits // per_unit  # (circuits, 2)
    sides = [unit_of_end] if state.fabric.bidirectional else list(unit_of_end.T)
    n_circuits = [np.bincount(side.ravel(), minlength=n_units) for side in sides]
    return np.max(n_circuits, axis=0) > n_live, n_live > 0


def _find_lost_racks(
    state: Reroute, failed: FailedParts, is_dead: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which units are lost, and which take over, where whole racks replace each other.

    That is so where no light passes chips. A rack is lost if a circuit ends at a dead port of it,
    or passes a failed fibre of it. It takes over if all its chips are spares and nothing in it has
    failed, also where nothing is in use. Both results are by unit.
    """
    units = state.units
    per_rack = group_size(units)
    racks = np.arange(units.racks)
    rack_of_port = np.arange(len(is_dead)) // (per_rack * units.ports_per_unit)
    failed_fibres = np.array(failed.failed_fibres, dtype=np.int64)

    # Racks with something in use that has failed, and those with anything that has.
    used_ports = state.circuits[is_dead[state.circuits]]
    used_fibres = np.intersect1d(state.passed.part, failed_fibres)
    is_lost = np.isin(racks, rack_of_port[used_ports])
    is_lost |= np.isin(racks, units.rack_of_fibre[used_fibres])
    is_sound = ~np.isin(racks, rack_of_port[is_dead])
    is_sound &= ~np.isin(racks, units.rack_of_fibre[failed_fibres])
    is_spare = np.isin(np.arange(units.n_units), state.spares).reshape(-1, per_rack).all(axis=1)
    return np.repeat(is_lost, per_rack), np.repeat(is_spare & is_sound, per_rack)
