"""Random operations on controllers in files, judged by a replay that knows only what was reported.

One operation in ten closes the controller and opens it again: it must be equal to the one before.

The replay keeps the parts that were reported and not repaired, each with its latest fault. From
these it says which parts must have failed in the state or be pending, and how. Where there are
cells, the verifier traces the light of every circuit. It accepts every answer, and none uses a
part that is on record. Once all is repaired nothing is on record, and every idle unit is a spare.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import optmatch as om
from optmatch.solvers.reroutes.states import fill_rack, hold_matching

KINDS_OF_FIELDS = {
    "failed_chips": "chip",
    "failed_ports": "port",
    "failed_fibres": "fibre",
    "stuck_bar": "cell",
    "stuck_cross": "cell",
    "dead_cells": "cell",
}

FIELD_OF_FAULT = {None: "dead_cells", "bar": "stuck_bar", "cross": "stuck_cross"}

Part = tuple[str, int]
"""A kind of part and its number."""


def half_matching(n_ports: int) -> list[int]:
    """Join neighbouring ports in pairs, but for the last quarter, which are spares."""
    matching = np.arange(n_ports) ^ 1
    matching[3 * n_ports // 4 // 2 * 2 :] = -1
    return matching.tolist()  # type: ignore[no-any-return]


def _directed_matching(n_ports: int) -> list[int]:
    """Join each source with the next destination, but for the last quarter."""
    matching = np.arange(1, n_ports + 1)
    matching[3 * n_ports // 4 :] = -1
    return matching.tolist()


STATES: dict[str, Callable[[], om.Reroute]] = {
    "rack": lambda: fill_rack(om.RackFabric()),
    "joined racks": lambda: fill_rack(om.RackFabric(racks=2, joined=True)),
    "pod": lambda: fill_rack(
        om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=8, joined=True, through=False),
        [((0, 0, 0), (4, 4, 2))],
    ),
    "mesh": lambda: hold_matching(om.HexMesh(4, 4, ports=12), half_matching(12), seed=0),
    "long mesh": lambda: hold_matching(om.HexMesh(2, 5, ports=8), half_matching(8), seed=0),
    "dilated Benes": lambda: hold_matching(om.DilatedBenes(8), _directed_matching(8), seed=0),
    "crossbar": lambda: hold_matching(om.Crossbar(6), _directed_matching(6), seed=0),
    "Benes": lambda: hold_matching(om.Benes(8), _directed_matching(8), seed=0),
}


def describe(controller: om.Rerouter) -> tuple[Any, ...]:
    """Return all that a controller remembers, to be compared."""
    return (
        controller.state,
        controller.stand_ins,
        controller.refused,
        controller.answered,
        controller.history,
    )


def faults_of(holder: Any) -> dict[Part, str]:
    """Return the failed parts of a state or of a failure, and the field that lists each."""
    return {
        (kind, number): field
        for field, kind in KINDS_OF_FIELDS.items()
        for number in getattr(holder, field)
    }


def parts_used(proposal: Any) -> Iterator[Part]:
    """List the parts that new routes pass, the units that take over, and the ports they use."""
    state, transition = proposal.state, proposal.transition
    units = state.units
    for lost, spare in transition.moves.tolist():
        yield units.unit_name, spare
        circuits = state.circuits[transition.changed]
        for old, new in zip(circuits.ravel(), transition.circuits.ravel(), strict=True):
            if old // units.ports_per_unit == lost:
                yield "port", int(new)
    for circuit, route in zip(transition.changed.tolist(), transition.routes, strict=True):
        for at in route:
            if not units.through and at in state.routes[circuit]:
                continue  # the other end's, dark as it may be until its rack has gone too
            if state.cell_states is None:
                yield "fibre", at
                continue
            yield "cell", at // 4
            if units.fibre_of_terminal[at] >= 0:
                yield "fibre", int(units.fibre_of_terminal[at])


class Reopened:
    """One controller in files, and the replay beside it."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.name = name
        self.path = folder / f"{name}.json"
        self.rng = np.random.default_rng(seed)
        self.controller = self._open(STATES[name]())
        state = self.controller.state
        counts = {
            "chip": state.units.n_chips,
            "port": state.fabric.n_ports,
            "fibre": state.units.n_fibres,
            "cell": state.fabric.n_cells,
        }
        self.counts = {kind: count for kind, count in counts.items() if count}
        self.reported: dict[Part, str] = {}
        """Parts that were reported and not repaired since, and their latest faults."""
        self.proposals: list[Any] = []
        self.violations: list[str] = []

    def _open(self, state: om.Reroute | None) -> om.Rerouter:
        return om.Rerouter.open(self.path, state, history=6, durable="interval")

    def operate(self) -> None:
        """Do one thing at random, and check what must hold after it."""
        draw = self.rng.random()
        with suppress(om.OptMatchError):  # refused, or there is no way
            if draw < 0.4:
                self._fail()
            elif draw < 0.6:
                self._apply()
            elif draw < 0.8:
                self._repair()
            elif draw < 0.87:
                self._roll_back()
            elif draw < 0.92:
                for unit in list(self.controller.stand_ins)[:2]:
                    self.proposals.append(self.controller.give_back(unit, deadline_s=0.3))
            elif draw < 0.96:
                for offer in self.controller.retry(deadline_s=0.3):
                    self._judge(offer)
                    self.proposals.append(offer)
            else:
                self.controller.save(self.path.with_suffix(".saved"))
        self._check()
        if self.rng.random() < 0.1:
            self.reopen()

    def _draw_part(self) -> tuple[str, int]:
        kind = str(self.rng.choice(list(self.counts)))
        if self.reported and self.rng.random() < 0.15:  # a part that has failed fails once more
            of_kind = sorted(self.reported)
            return of_kind[int(self.rng.integers(len(of_kind)))]
        return kind, int(self.rng.integers(self.counts[kind]))

    def _fail(self) -> None:
        kind, number = self._draw_part()
        stuck: Any = None
        if kind == "cell":
            stuck = (None, "bar", "cross")[int(self.rng.integers(3))]
        failed: Any = {kind: number}
        if kind != "cell" and self.rng.random() < 0.2:
            failed[kind] = sorted({number, int(self.rng.integers(self.counts[kind]))})
        if self.rng.random() < 0.1:
            self.controller.what_if(**failed, stuck=stuck, deadline_s=0.3)
            return
        try:
            proposal = self.controller.fail(**failed, stuck=stuck, deadline_s=0.3)
        except om.InputError:
            raise
        except om.OptMatchError:
            self._report(kind, failed[kind], stuck)
            raise
        self._judge(proposal)
        self._report(kind, failed[kind], stuck)
        self.proposals.append(proposal)

    def _report(self, kind: str, numbers: Any, stuck: Any) -> None:
        field = FIELD_OF_FAULT[stuck] if kind == "cell" else f"failed_{kind}s"
        for number in np.atleast_1d(numbers).tolist():
            self.reported[kind, number] = field

    def _apply(self) -> None:
        if self.proposals:
            k = int(self.rng.integers(max(0, len(self.proposals) - 3), len(self.proposals)))
            proposal = self.proposals.pop(k)
            self.controller.apply(proposal)
            self._judge(proposal)

    def _judge(self, proposal: Any) -> None:
        """Ask the verifier, and whether a part on record is used; light may pass a stuck cell."""
        state, failed = proposal.state, faults_of(proposal.failure)
        closed = {part for part, field in self.reported.items() if not field.startswith("stuck")}
        used = closed.difference(failed).intersection(parts_used(proposal))
        if used:
            self._complain(f"an answer uses {sorted(used)}, which has failed")
        if proposal.restored is not None:
            return
        fields: dict[str, Any] = {}
        for field, kind in KINDS_OF_FIELDS.items():
            before = [part for part in getattr(state, field) if (kind, part) not in failed]
            fields[field] = (*before, *getattr(proposal.failure, field))
        report = om.verify(replace(state, **fields), proposal.transition)
        if not report.ok:
            self._complain(f"a wrong answer to {proposal.failure}: {report.complaint}")

    def _repair(self) -> None:
        if self.reported:
            parts = sorted(self.reported)
            kind, number = parts[int(self.rng.integers(len(parts)))]
            failed: Any = {kind: number}
            self.controller.repair(**failed)
            self.reported.pop((kind, number), None)

    def _roll_back(self) -> None:
        """Take a change back: what was pending before stays so, and past failures are back."""
        controller = self.controller
        pending = self._list_pending()
        past = faults_of(controller.history[-1]) if controller.history else {}
        state = controller.rollback()
        if faults_of(state) != past:
            self._complain("a rollback leads to another state than that in the history")
        self.reported = past | self._list_pending()
        lost = pending.items() - self.reported.items()
        if lost:
            self._complain(f"{sorted(lost)} is lost after a rollback")

    def _list_pending(self) -> dict[Part, str]:
        """Return the pending parts and their faults; each may be pending only once."""
        pending: dict[Part, str] = {}
        for failure in (*self.controller.refused, *self.controller.answered):
            faults = faults_of(failure)
            if faults.keys() & pending.keys():
                self._complain(f"{sorted(faults.keys() & pending.keys())} is pending twice")
            pending |= faults
        return pending

    def _check(self) -> None:
        """Compare the record with the replay, and trace the light of all circuits."""
        controller = self.controller
        state = controller.state
        pending = self._list_pending()
        in_state = faults_of(state)
        answered = pending.items() & in_state.items()
        if answered:
            self._complain(f"{sorted(answered)} is pending and answered")
        on_record = in_state | pending
        lost = self.reported.items() - on_record.items()
        if lost:
            self._complain(f"{sorted(lost)} was reported and is not on record")
        if state.hit.any():
            self._complain("a circuit has no light")
        if state.cell_states is not None:
            _check_light(state, self._complain)
        used_ports = {port for ends in state.circuits.tolist() for port in ends}
        per_unit = state.units.ports_per_unit
        if {port // per_unit for port in used_ports} & set(state.spares):
            self._complain("a spare is in use")

    def _complain(self, text: str) -> None:
        self.violations.append(f"{self.name}: {text}")

    def reopen(self) -> None:
        """Close the controller, and open its files: all that it remembers must be equal."""
        before = describe(self.controller)
        saved = self.path.with_suffix(".copy")
        self.controller.save(saved)
        self.controller.close()
        self.controller = self._open(None)
        if describe(self.controller) != before:
            self._complain("the controller that was opened again differs")
        loaded = om.Rerouter.load(saved, history=6)
        if describe(loaded) != before:
            self._complain("the controller that was saved and loaded differs")
        self.proposals.clear()  # they are of the states of the controller that was closed

    def finish(self) -> None:
        """Repair all and give circuits back: nothing is on record, and no unit is stranded."""
        controller = self.controller
        for kind, number in sorted(faults_of(controller.state) | self._list_pending()):
            failed: Any = {kind: number}
            with suppress(om.InputError):  # units that were cut off come back with the fibres
                controller.repair(**failed)
        if faults_of(controller.state) or self._list_pending() or controller.state.hit.any():
            self._complain("something is on record after all was repaired")
        for unit in 2 * list(controller.stand_ins):
            with suppress(om.OptMatchError):
                controller.apply(controller.give_back(unit, deadline_s=0.5))
        state = controller.state
        used_units = (state.circuits // state.units.ports_per_unit).ravel().tolist()
        if set(state.spares) != set(range(state.n_units)).difference(used_units):
            self._complain("an idle unit is no spare")
        controller.close()


def _check_light(state: om.Reroute, complain: Callable[[str], None]) -> None:
    """Let the verifier trace the circuits through the cells, broken ones as they are."""
    matching = np.full(state.fabric.n_ports, -1)
    for source, destination in state.circuits.tolist():
        matching[source] = destination
        if state.fabric.bidirectional:
            matching[destination] = source
    cell_states = np.asarray(state.cell_states)[None]
    schedule = om.Schedule(
        matchings=matching[None], durations_s=np.ones(1), cell_states=cell_states
    )
    report = om.verify(om.Routing(state.broken_fabric, matching), schedule)
    if not report.ok:
        complain(report.complaint)
