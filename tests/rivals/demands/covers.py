"""Covers of a demand: critical lines, maximum weight, Solstice, Eclipse, decompositions, Reco."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

import optmatch as om
from tests.rivals.demands.plans import IntMatrix, Slot, cost_of, only_as_long_as_needed


def critical_lines(demand: IntMatrix, delay: int) -> list[Slot]:
    """Take as many matchings as the busiest line has entries (SPECTRA, arXiv 2603.07373).

    Each is the heaviest matching that covers every line with as many entries as matchings are
    still to come.
    """
    rest = demand.copy()
    slots = []
    while rest.any():
        row_entries = np.count_nonzero(rest, axis=1)
        column_entries = np.count_nonzero(rest, axis=0)
        most = max(row_entries.max(), column_entries.max())
        critical = 1.0 * (row_entries == most)[:, None] + 1.0 * (column_entries == most)[None, :]
        value = np.where(rest > 0, rest / rest.max() + 2.0 * len(rest) * critical, 0.0)
        rows, columns = linear_sum_assignment(value, maximize=True)
        is_circuit = rest[rows, columns] > 0
        rows, columns = rows[is_circuit], columns[is_circuit]
        slots.append(Slot(rows, columns, int(rest[rows, columns].max())))
        rest[rows, columns] = 0
    return only_as_long_as_needed(slots, demand)


def _maximum_weight(demand: IntMatrix, hold: str) -> list[Slot]:
    """Take the matching with most bytes left, again and again; `hold` says for how long."""
    rest = demand.copy()
    slots = []
    while rest.any():
        rows, columns = linear_sum_assignment(rest, maximize=True)
        is_circuit = rest[rows, columns] > 0
        rows, columns = rows[is_circuit], columns[is_circuit]
        entries = np.sort(rest[rows, columns])
        index = {"largest": -1, "median": len(entries) // 2, "least": 0}[hold]
        ticks = int(entries[index])
        slots.append(Slot(rows, columns, ticks))
        rest[rows, columns] = np.maximum(rest[rows, columns] - ticks, 0)
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
    """Stuff, then slice by halving thresholds (Liu et al. 2015), until everything is served."""
    rest = quick_stuff(demand)
    unserved = demand.copy()
    threshold = 1 << (int(rest.max()).bit_length() - 1)
    ports = np.arange(len(rest))
    slots = []
    while unserved.any():
        graph = csr_array(rest >= threshold)
        columns = maximum_bipartite_matching(graph, perm_type="column")
        if (columns < 0).any():
            threshold = max(1, threshold // 2)
            continue
        ticks = int(rest[ports, columns].min())
        slots.append(Slot(ports, columns.astype(np.int64), ticks))
        rest[ports, columns] -= ticks
        unserved[ports, columns] = np.maximum(unserved[ports, columns] - ticks, 0)
    return only_as_long_as_needed(slots, demand)


def eclipse(demand: IntMatrix, delay: int) -> list[Slot]:
    """Take the slot that serves most for its time, of 16 lengths (Venkatakrishnan et al. 2016)."""
    rest = demand.copy()
    slots = []
    while rest.any():
        lengths = np.unique(rest[rest > 0])
        if len(lengths) > 16:
            lengths = lengths[np.linspace(0, len(lengths) - 1, 16).astype(int)]
        best_rate = -1.0
        for length in lengths.tolist():
            value = np.minimum(rest, length)
            rows, columns = linear_sum_assignment(value, maximize=True)
            rate = value[rows, columns].sum() / (length + delay)
            if rate > best_rate:
                best_rate, best_length = rate, length
                best_rows, best_columns = rows, columns
        is_circuit = rest[best_rows, best_columns] > 0
        circuits = best_rows[is_circuit], best_columns[is_circuit]
        slots.append(Slot(*circuits, best_length))
        rest[circuits] = np.maximum(rest[circuits] - best_length, 0)
    return only_as_long_as_needed(slots, demand)


def trimmed_decomposition(demand: IntMatrix, delay: int) -> list[Slot]:
    """Stuff and decompose, and hold each permutation only as long as an entry needs it."""
    permutations, weights = om.decompose(demand, fill=True)
    return _held_as_needed(demand, permutations, weights.tolist())


def _held_as_needed(
    demand: IntMatrix, permutations: NDArray[Any], weights: list[int]
) -> list[Slot]:
    rest = demand.copy()
    ports = np.arange(len(demand))
    slots = []
    for columns, weight in zip(permutations, weights, strict=True):
        ticks = int(min(weight, rest[ports, columns].max()))
        if ticks:
            is_circuit = rest[ports, columns] > 0
            slots.append(Slot(ports[is_circuit], columns[is_circuit].astype(np.int64), ticks))
            rest[ports, columns] = np.maximum(rest[ports, columns] - ticks, 0)
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
