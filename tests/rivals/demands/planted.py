"""Mixtures of few permutations, decoded by the weights that occur in many rows."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from tests.rivals.demands.covers import critical_lines
from tests.rivals.demands.plans import IntMatrix, Slot, only_as_long_as_needed


def planted_weights(demand: IntMatrix, delay: int) -> list[Slot]:
    """Guess the weights of planted permutations, and peel the permutations off.

    A value that occurs in a quarter of the rows is a candidate. An entry suits a candidate fully
    if it is equal to it, nearly if the rest is another candidate, less if the rest is a sum of
    two. The candidate with the best matching is peeled; what is left at the end is covered.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    delay
        Ticks before each slot, for the cover of what is left.

    Returns
    -------
    list of Slot
        Slots that serve the demand.
    """
    unserved = demand.copy()
    n = len(unserved)
    slots = []
    while unserved.any():
        values, rows_with = np.unique(
            np.concatenate([np.unique(row[row > 0]) for row in unserved]), return_counts=True
        )
        candidates = values[rows_with >= max(2, n / 4)]
        if len(candidates) == 0 or len(candidates) > 64:
            break
        sums = np.unique(candidates[:, None] + candidates[None, :])
        best_value = -1.0
        for weight in candidates[::-1].tolist():
            left = unserved - weight
            value = np.where(left == 0, 1.0, 0.0)
            value = np.maximum(value, 0.9 * np.isin(left, candidates))
            value = np.maximum(value, 0.6 * np.isin(left, sums))
            rows, columns = linear_sum_assignment(value, maximize=True)
            total = value[rows, columns].sum()
            if total > best_value:
                best_value = total
                is_circuit = value[rows, columns] > 0
                best_slot = Slot(rows[is_circuit], columns[is_circuit], weight)
        slots.append(best_slot)
        unserved[best_slot.sources, best_slot.destinations] -= best_slot.ticks
    if unserved.any():
        slots += critical_lines(unserved, delay)
    return only_as_long_as_needed(slots, demand)
