"""What has failed: parts by their numbers, and the state in which they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from optmatch.model import InputError, integer
from optmatch.problems import Reroute

Parts = int | Iterable[int] | None
Stuck = Literal["bar", "cross"] | None


class FailedParts(NamedTuple):
    """What has failed, by the fields of `Reroute`."""

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
    """Check what is said to have failed; arguments as of `Rerouter.fail`."""
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


def take_out(
    state: Reroute, recorded: tuple[FailedParts, ...], repaired: FailedParts
) -> tuple[dict[str, Any], tuple[FailedParts, ...]]:
    """Take repaired parts out of a state and of failures on record; cells are as if dead.

    Returns the fields of the state that change, and what stays on record.
    """
    changes: dict[str, Any] = {}
    broken = "stuck_bar", "stuck_cross", "dead_cells"
    for name, parts in repaired._asdict().items():
        fields = broken if name == "dead_cells" else (name,)
        holders = (state, *recorded)
        failed = {p for holder in holders for field in fields for p in getattr(holder, field)}
        for part in parts:
            if part not in failed:
                what = name.split("_")[1].removesuffix("s")
                raise InputError(f"{what} {part} has not failed", where=what)
        for field in fields if parts else ():
            changes[field] = _without(state, field, parts)
            recorded = tuple(f._replace(**{field: _without(f, field, parts)}) for f in recorded)
    return changes, tuple(failure for failure in recorded if any(failure))


def _without(holder: Reroute | FailedParts, field: str, parts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(part for part in getattr(holder, field) if part not in parts)


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
    names = ("chip", "port", "fibre", "cell", "cell", "cell")
    for field, name, parts, count in zip(failure._fields, names, failure, counts, strict=True):
        for part in parts:
            if not 0 <= part < count:
                there = f"{name}s are 0 .. {count - 1}" if count else f"there are no {name}s"
                raise InputError(f"{name} = {part}: {there}", where=name)
            if part in getattr(state, field):
                raise InputError(f"{name} {part} has failed already", where=name)
