"""Covers of a demand: critical lines, maximum weight, Solstice, Eclipse, decompositions, Reco."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

import optmatch as om
from tests.rivals.demands.plans import IntMatrix, Slot, cost_of, only_as_long_as_needed


def _heaviest_matching(value: NDArray[Any], unserved: IntMatrix, ticks: int = 0) -> Slot:
    """Find the matching of greatest value, and leave out circuits without a demand.

    Parameters
    ----------
    value
        ``value[source, destination]`` of each circuit, shape (n, n).
    unserved
        The demand that is left, in ticks, of the same shape.
    ticks
        How long the slot lasts; 0 for the largest entry of the matching.

    Returns
    -------
    Slot
        The circuits with a demand, and the ticks.
    """
    sources, destinations = linear_sum_assignment(value, maximize=True)
    is_circuit = unserved[sources, destinations] > 0
    sources = sources[is_circuit]
    destinations = destinations[is_circuit]
    return Slot(sources, destinations, ticks or int(unserved[sources, destinations].max()))


def critical_lines(demand: IntMatrix, delay: int) -> list[Slot]:
    """Take as many matchings as the busiest line has entries (SPECTRA, arXiv 2603.07373).

    A line is a row or a column. Each matching is the heaviest one that covers every line with as
    many entries as matchings are still to come, and is held until its largest entry is served.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    delay
        Not used: the plan has the fewest slots in any case.

    Returns
    -------
    list of Slot
        Slots that serve the demand.
    """
    unserved = demand.copy()
    slots = []
    while unserved.any():
        row_entries = np.count_nonzero(unserved, axis=1)
        column_entries = np.count_nonzero(unserved, axis=0)
        most = max(row_entries.max(), column_entries.max())

        # A critical line counts more than all ticks of a matching, of which each is one at most.
        critical = 1.0 * (row_entries == most)[:, None] + 1.0 * (column_entries == most)[None, :]
        value = unserved / unserved.max() + 2.0 * len(unserved) * critical
        slot = _heaviest_matching(np.where(unserved > 0, value, 0.0), unserved)
        slots.append(slot)
        unserved[slot.sources, slot.destinations] = 0
    return only_as_long_as_needed(slots, demand)


def _maximum_weight(demand: IntMatrix, hold: str) -> list[Slot]:
    """Take the matching that has most ticks left, again and again.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    hold
        Until which of its entries a matching is held: ``"largest"``, ``"median"`` or ``"least"``.

    Returns
    -------
    list of Slot
        Slots that serve the demand.
    """
    unserved = demand.copy()
    slots = []
    while unserved.any():
        slot = _heaviest_matching(unserved, unserved)
        circuits = (slot.sources, slot.destinations)
        entries = np.sort(unserved[circuits])
        index = {"largest": -1, "median": len(entries) // 2, "least": 0}[hold]
        ticks = int(entries[index])
        slots.append(slot._replace(ticks=ticks))
        unserved[circuits] = np.maximum(unserved[circuits] - ticks, 0)
    return only_as_long_as_needed(slots, demand)


def maximum_weight_largest(demand: IntMatrix, delay: int) -> list[Slot]:
    """Hold each matching until its largest entry is served."""
    return _maximum_weight(demand, "largest")


def maximum_weight_median(demand: IntMatrix, delay: int) -> list[Slot]:
    """Hold each matching until half of its entries are served."""
    return _maximum_weight(demand, "median")


def maximum_weight_least(demand: IntMatrix, delay: int) -> list[Slot]:
    """Hold each matching until one of its entries is served."""
    return _maximum_weight(demand, "least")


def quick_stuff(demand: IntMatrix) -> IntMatrix:
    """Raise entries, large ones first and zeros last, until all lines have one sum (Solstice)."""
    matrix = demand.copy()
    sums = matrix.sum(axis=1), matrix.sum(axis=0)
    most = max(sums[0].max(), sums[1].max())
    missing_rows = (most - sums[0]).tolist()
    missing_columns = (most - sums[1]).tolist()
    n = len(matrix)
    for place in np.argsort(-matrix, axis=None, kind="stable").tolist():
        row, column = divmod(place, n)
        add = min(missing_rows[row], missing_columns[column])
        if add:
            matrix[row, column] += add
            missing_rows[row] -= add
            missing_columns[column] -= add
    return matrix


def solstice(demand: IntMatrix, delay: int) -> list[Slot]:
    """Stuff a demand, then take slots of halving thresholds (Solstice, Liu et al. 2015).

    A slot is a perfect matching among entries of at least the threshold, which is halved where
    there is none. It is held until its least entry is used up. Slots end when all is served.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    delay
        Not used: the thresholds alone make few slots.

    Returns
    -------
    list of Slot
        Slots that serve the demand.
    """
    stuffed = quick_stuff(demand)
    unserved = demand.copy()
    threshold = 1 << (int(stuffed.max()).bit_length() - 1)
    ports = np.arange(len(demand))
    slots = []
    while unserved.any():
        graph = csr_array(stuffed >= threshold)
        columns = maximum_bipartite_matching(graph, perm_type="column")
        if (columns < 0).any():
            threshold = max(1, threshold // 2)
            continue
        ticks = int(stuffed[ports, columns].min())
        slots.append(Slot(ports, columns.astype(np.int64), ticks))
        stuffed[ports, columns] -= ticks
        unserved[ports, columns] = np.maximum(unserved[ports, columns] - ticks, 0)
    return only_as_long_as_needed(slots, demand)


def eclipse(demand: IntMatrix, delay: int) -> list[Slot]:
    """Take the slot that serves most for its time, again and again (Venkatakrishnan et al. 2016).

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    delay
        Ticks before each slot, which count in its time. At most 16 lengths of a slot are compared,
        entries that are left, evenly spread.

    Returns
    -------
    list of Slot
        Slots that serve the demand.
    """
    unserved = demand.copy()
    slots = []
    while unserved.any():
        lengths = np.unique(unserved[unserved > 0])
        if len(lengths) > 16:
            lengths = lengths[np.linspace(0, len(lengths) - 1, 16).astype(int)]

        # A slot serves no more of an entry than its length.
        best_rate = -1.0
        for length in lengths.tolist():
            value = np.minimum(unserved, length)
            slot = _heaviest_matching(value, unserved, length)
            rate = value[slot.sources, slot.destinations].sum() / (length + delay)
            if rate > best_rate:
                best_rate = rate
                best_slot = slot
        slots.append(best_slot)
        circuits = (best_slot.sources, best_slot.destinations)
        unserved[circuits] = np.maximum(unserved[circuits] - best_slot.ticks, 0)
    return only_as_long_as_needed(slots, demand)


def trimmed_decomposition(demand: IntMatrix, delay: int) -> list[Slot]:
    """Stuff and decompose, and hold each permutation only as long as an entry needs it."""
    permutations, weights = om.decompose(demand, fill=True)
    return _held_as_needed(demand, permutations, weights.tolist())


def _held_as_needed(
    demand: IntMatrix, permutations: NDArray[Any], weights: list[int]
) -> list[Slot]:
    """Hold each permutation of a decomposition no longer than an entry of the demand needs it.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    permutations
        The destination of each source, shape (terms, n).
    weights
        The ticks of each permutation, which together serve the demand.

    Returns
    -------
    list of Slot
        Slots that serve the demand.
    """
    unserved = demand.copy()
    ports = np.arange(len(demand))
    slots = []
    for columns, weight in zip(permutations, weights, strict=True):
        ticks = int(min(weight, unserved[ports, columns].max()))
        if ticks:
            is_circuit = unserved[ports, columns] > 0
            slots.append(Slot(ports[is_circuit], columns[is_circuit].astype(np.int64), ticks))
            unserved[ports, columns] = np.maximum(unserved[ports, columns] - ticks, 0)
    return only_as_long_as_needed(slots, demand)


def reco(demand: IntMatrix, delay: int) -> list[Slot]:
    """Round entries up to whole delays, stuff and decompose (Reco): few short slots."""
    if delay == 0:
        return trimmed_decomposition(demand, delay)
    in_delays = -(-demand // delay)
    permutations, weights = om.decompose(quick_stuff(in_delays))
    return _held_as_needed(demand, permutations, [weight * delay for weight in weights.tolist()])


def reco_of_five_units(demand: IntMatrix, delay: int) -> list[Slot]:
    """Decompose entries rounded up to 1/4, 1/2, 1, 2 and 4 delays, and take the best of the five.

    A small unit wastes little time by rounding, a large one makes few slots.
    """
    plans = []
    for quarters in (1, 2, 4, 8, 16):
        unit = max(1, quarters * delay // 4)
        permutations, weights = om.decompose(quick_stuff(-(-demand // unit)))
        plans.append(_held_as_needed(demand, permutations, [w * unit for w in weights.tolist()]))
    return min(plans, key=lambda slots: cost_of(slots, delay))
