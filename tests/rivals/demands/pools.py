"""The best lengths for a pool of slots that simple covers found, by linear programs."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from tests.rivals.demands import covers
from tests.rivals.demands.plans import IntMatrix, Slot, cost_of, is_served, only_as_long_as_needed

_COVERS = (
    covers.critical_lines,
    covers.maximum_weight_largest,
    covers.maximum_weight_median,
    covers.solstice,
    covers.reco,
)
_ROUNDS = 6


def lengths_by_linear_program(demand: IntMatrix, delay: int) -> list[Slot]:
    """Take the slots of five covers as a pool, and choose the lengths of all of them anew.

    A linear program minimises the sum of lengths such that each entry is served. Delays enter by
    reweighting (Candes, Wakin and Boyd 2008, doi 10.1007/s00041-008-9045-x): a slot that had
    length a in the last round costs 1 + delay / a for each tick, so that short slots fall out.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    delay
        Ticks before each slot.

    Returns
    -------
    list of Slot
        Slots that serve the demand: the best plan of the five covers and of all rounds.
    """
    plans = [cover(demand, delay) for cover in _COVERS]
    best = min(plans, key=lambda slots: cost_of(slots, delay))
    pool = [slot for slots in plans for slot in slots]

    # Row by entry, column by slot: -1 where the slot serves the entry.
    number_of_entry = np.full(demand.shape, -1)
    sources, destinations = np.nonzero(demand)
    number_of_entry[sources, destinations] = np.arange(len(sources))
    rows = np.concatenate([number_of_entry[slot.sources, slot.destinations] for slot in pool])
    columns = np.repeat(np.arange(len(pool)), [len(slot.sources) for slot in pool])
    is_entry = rows >= 0
    serves = csr_array(
        (-np.ones(is_entry.sum()), (rows[is_entry], columns[is_entry])),
        shape=(len(sources), len(pool)),
    )

    # The program counts in parts of the largest entry. Lengths get a little more than the
    # tolerance of the program, and are cut again where that is not needed.
    unit = int(demand.max())
    needed = demand[sources, destinations] / unit
    cost = np.ones(len(pool))
    for _ in range(_ROUNDS):
        program = linprog(cost, A_ub=serves, b_ub=-needed, bounds=(0, None), method="highs")
        if program.x is None:
            break
        lengths = np.ceil(program.x * unit * (1 + 1e-6) + 1e-6 * unit).astype(np.int64)
        lengths[program.x < 1e-9] = 0
        slots = [
            slot._replace(ticks=int(length))
            for slot, length in zip(pool, lengths, strict=True)
            if length
        ]
        slots = only_as_long_as_needed(slots, demand)
        if is_served(slots, demand):
            best = min(best, slots, key=lambda slots: cost_of(slots, delay))

        # A slot without length costs as one of a thousandth of a delay.
        delay_in_units = delay / unit
        cost = 1 + delay_in_units / np.maximum(program.x, 1e-3 * delay_in_units + 1e-9)
    return best
