"""What has failed: parts by their numbers, and the state in which they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from optmatch.model import InputError
from optmatch.problems import Reroute

Parts = int | Iterable[int] | None


class FailedParts(NamedTuple):
    """What has failed, by the fields of `Reroute`."""

    failed_chips: tuple[int, ...] = ()
    failed_ports: tuple[int, ...] = ()
    failed_fibres: tuple[int, ...] = ()
    stuck_bar: tuple[int, ...] = ()
    stuck_cross: tuple[int, ...] = ()
    dead_cells: tuple[int, ...] = ()


def list_parts(parts: Parts) -> tuple[int, ...]:
    """Return parts that are given as one, several or none, in ascending order."""
    if parts is None:
        return ()
    if isinstance(parts, int | np.integer):
        return (int(parts),)
    return tuple(sorted(int(part) for part in parts))


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
    fabric, cells = state.fabric, state.fabric.n_cells
    counts = (fabric.n_chips, fabric.n_ports, fabric.n_fibres, cells, cells, cells)
    for field, parts, count in zip(failure._fields, failure, counts, strict=True):
        for part in parts:
            if not 0 <= part < count:
                raise InputError(f"{field}: {part} is none of {count}", where=field)
            if part in getattr(state, field):
                raise InputError(f"{field}: {part} has failed already", where=field)
