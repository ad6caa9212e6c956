"""Failed parts by their numbers, and the state of each."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from optmatch.model import InputError, integer
from optmatch.problems import Reroute

Parts = int | Iterable[int] | None
Stuck = Literal["bar", "cross"] | None


KINDS = ("chip", "port", "fibre", "cell", "cell", "cell")
"""The kind of part of each field of `FailedParts`."""


class FailedParts(NamedTuple):
    """Failed parts, by the fields of `Reroute`."""

    failed_chips: tuple[int, ...] = ()
    failed_ports: tuple[int, ...] = ()
    failed_fibres: tuple[int, ...] = ()
    stuck_bar: tuple[int, ...] = ()
    stuck_cross: tuple[int, ...] = ()
    dead_cells: tuple[int, ...] = ()


def list_parts(name: str, parts: Parts) -> tuple[int, ...]:
    """Return parts that are given as one, several or none, in ascending order."""
    if parts is None:
        return ()
    if not isinstance(parts, Iterable) or isinstance(parts, str | bytes):
        return (integer(name, parts, at_least=0),)
    numbers = sorted(integer(name, part, at_least=0) for part in parts)
    for one, other in pairwise(numbers):
        if one == other:
            raise InputError(f"{name} {one} is named twice", where=name)
    return tuple(numbers)


def list_failure(chip: Parts, port: Parts, fibre: Parts, cell: Parts, stuck: Stuck) -> FailedParts:
    """Check a report of failed parts; arguments as of `Rerouter.fail`."""
    if stuck not in (None, "bar", "cross"):
        raise InputError(f"stuck = {stuck!r}: one of 'bar', 'cross', None", where="stuck")
    cells = list_parts("cell", cell)
    if stuck and not cells:
        raise InputError(f"stuck = {stuck!r}, but no cell is named", where="stuck")
    failure = FailedParts(
        list_parts("chip", chip),
        list_parts("port", port),
        list_parts("fibre", fibre),
        cells if stuck == "bar" else (),
        cells if stuck == "cross" else (),
        cells if stuck is None else (),
    )
    if not any(failure):
        raise InputError("no part is named: a chip, port, fibre or cell")
    return failure


class Record(NamedTuple):
    """The failed parts and the answers to them; a record never changes.

    Parts in the state are answered, refused parts wait, and parts that are answered have a
    proposal that is not applied yet; no part is in two of them. All else works.
    """

    state: Reroute
    homes: tuple[tuple[int, int], ...] = ()
    """Pairs of a stand-in and the unit whose circuits it has."""
    refused: tuple[FailedParts, ...] = ()
    """Parts that were reported together, and that nothing has helped so far."""
    cut_off: tuple[int, ...] = ()
    """Units that have gone with the last fibres of their server: they work again with these."""
    answered: tuple[FailedParts, ...] = ()
    """Parts that were reported together, and have a proposal that is not applied."""

    @property
    def waiting(self) -> tuple[FailedParts, ...]:
        """All failures that are on record and not in the state."""
        return (*self.refused, *self.answered)

    def refuse(self, parts: FailedParts) -> Record:
        """Put parts on record that nothing helps; those that wait already stay as they are."""
        refused = _apart((*self.refused, parts))
        if refused == self.refused:
            return self
        return self._replace(refused=refused, answered=_drop(self.answered, parts))

    def answer(self, parts: FailedParts) -> Record:
        """Put parts on record for which there is a proposal."""
        if parts in self.answered:
            return self
        left = self.without(parts)
        return left._replace(answered=(*left.answered, parts))

    def without(self, gone: FailedParts) -> Record:
        """Let parts wait no longer, in whichever failure they are."""
        refused, answered = (_drop(fs, gone) for fs in (self.refused, self.answered))
        return self._replace(refused=refused, answered=answered)

    def back_to(self, past: Record) -> Record:
        """Return to a past record; what was reported since waits."""
        answered = _drop(self.answered, parts_in(past.state))
        gone = unite((parts_in(past.state), *answered))
        refused = _drop(_apart((*past.refused, *self.refused)), gone)
        return past._replace(refused=refused, answered=answered)

    def reported(self, chips: Set[int]) -> Record:
        """Return a past record that is told of chips which have failed themselves since.

        Those that work in it wait; the others were cut off since, and have failed in its state.
        """
        working = tuple(sorted(chips - {*self.state.failed_chips}))
        cut_off = tuple(unit for unit in self.cut_off if unit not in chips)
        return self.refuse(FailedParts(working))._replace(cut_off=cut_off)

    def closed_to(self, own: FailedParts) -> FailedParts:
        """Return the parts that wait beside a failure: its answer uses none of them."""
        return subtract(unite(self.waiting), own)

    def before(self, after: Record) -> Record:
        """Return the record after a rollback: parts that the change dealt with no longer wait."""
        return self._replace(answered=after.answered)


def _drop(failures: tuple[FailedParts, ...], gone: FailedParts) -> tuple[FailedParts, ...]:
    """Take parts out of failures."""
    sets = _sets_of(gone)
    return tuple(left for parts in failures if any(left := _without(parts, sets)))


def _apart(failures: Iterable[FailedParts]) -> tuple[FailedParts, ...]:
    """Leave each part in the first failure that has it, cells once for each thing wrong."""
    known, left = tuple(set[int]() for _ in FailedParts._fields), list[FailedParts]()
    for failure in failures:
        if any(fresh := _without(failure, known)):
            left.append(fresh)
            _add(known, fresh)
    return tuple(left)


def _sets_of(parts: FailedParts) -> tuple[set[int], ...]:
    """Return the numbers of each field; the fields of cells share one set."""
    cells = set[int]()
    sets = (set[int](), set[int](), set[int](), cells, cells, cells)
    _add(sets, parts)
    return sets


def _add(sets: tuple[set[int], ...], parts: FailedParts) -> None:
    for known, numbers in zip(sets, parts, strict=True):
        known.update(numbers)


def _without(parts: FailedParts, sets: tuple[set[int], ...]) -> FailedParts:
    if all(map(set.isdisjoint, sets, parts)):
        return parts
    return FailedParts(
        *(tuple(p for p in field if p not in out) for field, out in zip(parts, sets, strict=True))
    )


def unite(failures: Iterable[FailedParts]) -> FailedParts:
    """Return the parts of all failures, ascending, cells as if dead."""
    sets = _sets_of(FailedParts())
    for failure in failures:
        _add(sets, failure)
    chips, ports, fibres, cells = (tuple(sorted(known)) for known in sets[:4])
    return FailedParts(chips, ports, fibres, dead_cells=cells)


def subtract(parts: FailedParts, gone: FailedParts) -> FailedParts:
    """Return parts without others; a cell is the same whatever is wrong with it."""
    return _without(parts, _sets_of(gone))


def take_out(record: Record, repaired: FailedParts) -> Record:
    """Take repaired parts off a record; a unit whose stand-in serves is a spare from then on.

    Units that were cut off with their server work again once that has fibres both ways.
    """
    state = record.state
    waits, answered = record.closed_to(FailedParts()), parts_in(state)
    failed = [{*one, *other} for one, other in zip(waits[:3], answered[:3], strict=True)]
    failed.append({*waits.dead_cells, *state.stuck, *state.dead_cells})
    asked = (*repaired[:3], repaired.dead_cells)
    for name, known, parts in zip(KINDS[:4], failed, asked, strict=True):
        for part in parts:
            if part not in known:
                raise InputError(f"{name} {part} has not failed", where=name)
    back = _joined_again(record, repaired.failed_fibres)
    repaired = repaired._replace(failed_chips=(*repaired.failed_chips, *back))
    after = replace(state, **subtract(answered, repaired)._asdict())
    per_unit, whole = state.units.ports_per_unit, set(range(state.n_units))
    whole -= {port // per_unit for port in after.dead_ports}
    units = {*repaired.failed_chips, *(p // per_unit for p in repaired.failed_ports)}
    if not state.units.through:  # a rack works again as a whole, or not at all
        size, of_fibre = state.n_units // state.units.racks, state.units.rack_of_fibre
        broken = {unit // size for unit in range(state.n_units) if unit not in whole}
        broken |= set(of_fibre[list(after.failed_fibres)].tolist())
        racks = {unit // size for unit in units} | set(of_fibre[list(repaired[2])].tolist())
        units = whole = {u for u in whole if u // size in racks - broken}
    busy = np.unique(after.circuits // per_unit).tolist()
    idle = (units & whole).difference(busy, after.spares)
    if idle:
        after = replace(after, spares=(*after.spares, *sorted(idle)))
    still = tuple(unit for unit in record.cut_off if unit in after.failed_chips)
    return record.without(repaired)._replace(state=after, cut_off=still)


def parts_in(state: Reroute) -> FailedParts:
    """Return the failed parts of a state."""
    return FailedParts(*(getattr(state, field) for field in FailedParts._fields))


def _joined_again(record: Record, fibres: tuple[int, ...]) -> tuple[int, ...]:
    """List the units that were cut off, and whose server has fibres both ways again."""
    if not (record.cut_off and fibres):
        return ()
    dead = {*record.state.failed_fibres, *record.closed_to(FailedParts()).failed_fibres}
    fabric = record.state.units
    live = np.setdiff1d(np.arange(fabric.n_fibres), sorted(dead.difference(fibres)))
    tails, heads = fabric.edges[fabric.edge_of_fibre[live]].T
    joined = np.intersect1d(tails, heads)
    return tuple(u for u in record.cut_off if fabric.server_of_unit[u] in joined)


def add_failure(state: Reroute, failure: FailedParts) -> Reroute:
    """Return a state in which more has failed."""
    changes: dict[str, Any] = {
        field: (*getattr(state, field), *parts)
        for field, parts in failure._asdict().items()
        if parts
    }
    return replace(state, **changes)


def check_failure(state: Reroute, failure: FailedParts) -> None:
    """Refuse parts that do not exist, or have failed before."""
    units, cells = state.units, state.fabric.n_cells
    counts = (units.n_chips, state.fabric.n_ports, units.n_fibres, cells, cells, cells)
    for field, name, parts, count in zip(failure._fields, KINDS, failure, counts, strict=True):
        for part in parts:
            if not 0 <= part < count:
                there = f"{name}s are 0 .. {count - 1}" if count else f"there are no {name}s"
                raise InputError(f"{name} = {part}: {there}", where=name)
            if part in getattr(state, field):
                raise InputError(f"{name} {part} has failed already", where=name)
