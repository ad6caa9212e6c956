"""The slots of a rival's plan, what they cost, and whether they serve a demand."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntMatrix = NDArray[np.int64]


class Slot(NamedTuple):
    """Circuits that are up together."""

    sources: NDArray[np.int64]
    destinations: NDArray[np.int64]
    ticks: int


def cost_of(slots: Sequence[Slot], delay: int, planes: int = 1) -> int:
    """Return when the last plane ends, in ticks; the longest slots are dealt out first."""
    ends = [0] * planes
    for ticks in sorted((slot.ticks for slot in slots), reverse=True):
        plane = ends.index(min(ends))
        ends[plane] += ticks + delay
    return max(ends)


def is_served(slots: Sequence[Slot], demand: IntMatrix) -> bool:
    """Tell whether each slot is a matching, and all together serve the demand."""
    unserved = demand.copy()
    for slot in slots:
        if len(set(slot.sources.tolist())) < len(slot.sources):
            return False
        if len(set(slot.destinations.tolist())) < len(slot.destinations):
            return False
        unserved[slot.sources, slot.destinations] -= slot.ticks
    return bool((unserved <= 0).all())


def only_as_long_as_needed(slots: Sequence[Slot], demand: IntMatrix) -> list[Slot]:
    """Shorten each slot, the shortest first, by what no demand needs; leave out empty ones."""
    served = np.zeros_like(demand)
    for slot in slots:
        served[slot.sources, slot.destinations] += slot.ticks
    trimmed = []
    for slot in sorted(slots, key=lambda slot: slot.ticks):
        is_needed = demand[slot.sources, slot.destinations] > 0
        circuits = (slot.sources[is_needed], slot.destinations[is_needed])
        spare = int((served[circuits] - demand[circuits]).min(initial=slot.ticks))
        ticks = slot.ticks - max(0, min(spare, slot.ticks))
        served[slot.sources, slot.destinations] -= slot.ticks - ticks
        if ticks > 0:
            trimmed.append(Slot(*circuits, ticks))
    return trimmed
