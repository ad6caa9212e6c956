"""Covers of a demand over its full matrix, by ratings of slots.

A slot of length a serves min(a, unserved) on each of its circuits and costs a and the delay. Which
length and which matching serve most for their time is Eclipse's question (Venkatakrishnan et al.
2016, doi 10.1145/2896377.2901479): for each of some lengths an assignment. Two terms on top of it
make covers shorter than Eclipse's: a circuit that is *finished* saves its ports a further
reconfiguration, so it earns (part of) a delay; and service to ports with much left to do counts
more than service to others.

*Unserved* is what earlier slots leave of the demand. The *bonus* is what a finished circuit earns,
in ticks. The *rate* of a slot is its weighed service, with bonuses, divided by its length and the
delay. *Pressure* is how much more busy ports count. *Known* prices are column prices of the last
slot's assignments, for a unit of time, from which the next assignments start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.assignment import CHOICES, RANKED, assign
from optmatch.solvers.demands.first_fit import cover_heaviest_first
from optmatch.solvers.demands.plans import Plan, join, serve
from optmatch.solvers.demands.sorting import sort_first
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


class Rating(NamedTuple):
    """The rating of a slot."""

    finish_bonus: float = 1.0
    """The gain of a finished circuit, in delays."""
    pressure: float = 10.0
    """How much more busy ports count: as exp(pressure * load / greatest load)."""
    choices: int = CHOICES
    """How many lengths are compared for each slot, if as many distinct demands remain."""


ECLIPSE = Rating(0.0, 0.0)
"""The rule of the paper: volume by time."""


@inner_kernel
def _greatest(rows, columns):
    """Return the greatest value of both vectors."""
    most = rows[0]
    for k in range(len(rows)):
        most = max(most, max(rows[k], columns[k]))
    return most


@inner_kernel
def _weigh(space, unserved, delay, pressure):
    """Set how much a tick of service counts on each circuit: the more, the busier its ports.

    A circuit joins a source and a destination. The load of a port is the time that its demands
    still take: their ticks, and a delay for each. Each port has a factor from its load:

        exp(pressure * (load / greatest load - 1))

    It is 1 for the busiest port. The weight of a circuit is the sum of the factors of its source
    and its destination; without a demand it is 0.

    Parameters
    ----------
    space : AssignmentSpace
        Out: ``weight[source, destination]``. In and out: ``work[0]``, from which the places
        looked at are taken off. Scratch: ``row_price`` and ``column_price``, which hold loads and
        then factors here, not prices.
    unserved : int array, shape (n, n)
        The demand that is left, ``unserved[source, destination]`` in ticks.
    delay : int
        Ticks before each slot.
    pressure : float
        How much more busy ports count; 0 weighs all circuits alike.

    Returns
    -------
    int
        How many circuits have a demand.
    """
    # The load of each line: what it has to serve yet, and a delay for each entry.
    n = len(unserved)
    row_load = space.row_price
    column_load = space.column_price
    row_load[:] = 0.0
    column_load[:] = 0.0
    n_entries = 0
    for i in range(n):
        for j in range(n):
            if unserved[i, j] > 0:
                row_load[i] += unserved[i, j] + delay
                column_load[j] += unserved[i, j] + delay
                n_entries += 1
    if n_entries == 0:
        return 0

    # From loads to factors: 1 for the busiest line, exp(-pressure) for an idle one.
    most = _greatest(row_load, column_load)
    for k in range(n):
        row_load[k] = np.exp(pressure * (row_load[k] / most - 1.0))
        column_load[k] = np.exp(pressure * (column_load[k] / most - 1.0))
    for i in range(n):
        for j in range(n):
            space.weight[i, j] = row_load[i] + column_load[j] if unserved[i, j] > 0 else 0.0
    space.work[0] -= 2 * n * n
    return n_entries


@inner_kernel
def _rate(space, unserved, length, bonus):
    """Set the worth of each circuit in a slot of a length, and bound that of all matchings.

    A circuit is worth its weight times the ticks that the slot serves on it: all that is left if
    that is no more than the length, and then the bonus too, or else the length. No matching is
    worth more than the best circuits of all rows together, or of all columns.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``weight``; out: ``value``, the problem of `assign`; ``distance`` is scratch. From
        ``work[0]`` the places looked at are taken off.
    unserved : int array, shape (n, n)
        The demand that is left, in ticks.
    length, bonus : float
        How long the slot is, and what a finished entry earns, in ticks.

    Returns
    -------
    float
        An upper bound on the worth of a matching.
    """
    n = len(unserved)
    column_best = space.distance
    column_best[:] = 0.0
    rows_total = 0.0
    for i in range(n):
        row_best = 0.0
        for j in range(n):
            ticks = unserved[i, j]
            value = 0.0
            if ticks > 0:
                value = space.weight[i, j] * (ticks + bonus if ticks <= length else length)
                row_best = max(row_best, value)
                column_best[j] = max(column_best[j], value)
            space.value[i, j] = value
        rows_total += row_best

    # Each row has one circuit at most, and so has each column: both sums are bounds.
    columns_total = 0.0
    for j in range(n):
        columns_total += column_best[j]
    space.work[0] -= n * n
    return min(rows_total, columns_total)


@inner_kernel
def _choose_lengths(unserved, n_entries, choices, sizes):
    """Pick some lengths for the next slot: different demands that are left, small to large.

    A slot that is as long as some demand finishes that one; no other length finishes one exactly
    at its end. The lengths are spread evenly over the sorted demands: of 2, 3, 5, 8 and 9 ticks,
    three choices are 2, 5 and 9. If more than `RANKED` demands are left, a regular sample of them
    is sorted, every second or every third one, for example.

    Parameters
    ----------
    unserved : int array, shape (n, n)
        The demand that is left, in ticks.
    n_entries : int
        How many of its entries are not zero.
    choices : int
        How many are picked at most, > 1.
    sizes : int array, shape (ranked,)
        Out: the lengths of a slot that are compared, in ticks, ascending.

    Returns
    -------
    int
        How many lengths there are in `sizes`.
    """
    # At most RANKED of them: every so many.
    stride = 1 + n_entries // RANKED
    number = 0
    for i in range(len(unserved)):
        for j in range(len(unserved)):
            if unserved[i, j] > 0:
                number += 1
                if number % stride == 0:
                    sizes[number // stride - 1] = unserved[i, j]
    n_ranked = number // stride
    sort_first(sizes, n_ranked)

    # Keep one of equal sizes, in place; the write position is never ahead of the read one.
    n_distinct = 0
    for k in range(n_ranked):
        if k == 0 or sizes[k] != sizes[k - 1]:
            sizes[n_distinct] = sizes[k]
            n_distinct += 1
    if n_distinct <= choices:
        return n_distinct

    # Take distinct sizes evenly by rank, the least and the greatest included.
    for k in range(choices):
        sizes[k] = sizes[k * (n_distinct - 1) // (choices - 1)]
    return choices


@inner_kernel
def _bound_lengths(space, unserved, delay, bonus, count):
    """Bound the rate of a slot of each length, and sort the lengths by it, the greatest first.

    The rate is weighed service divided by the length and the delay. With lengths in this order,
    the search for the best slot ends at the first bound that is too low.

    Parameters
    ----------
    space : AssignmentSpace
        In and out: ``sizes``, the lengths in ticks, of which the first `count` are sorted anew.
        Out: ``bounds``, the bound of each.
    unserved : int array, shape (n, n)
        The demand that is left, in ticks.
    delay : int
        Ticks before each slot.
    bonus : float
        The ticks that a finished entry earns.
    count : int
        The number of lengths.
    """
    sizes = space.sizes
    bounds = space.bounds
    for k in range(count):
        size = sizes[k]
        bound = _rate(space, unserved, size, bonus) / (size + delay)

        # Insert the length where its bound belongs: an insertion sort, for there are few.
        place = k
        while place > 0 and bounds[place - 1] < bound:
            sizes[place] = sizes[place - 1]
            bounds[place] = bounds[place - 1]
            place -= 1
        sizes[place] = size
        bounds[place] = bound


@inner_kernel
def _find_best_slot(space, unserved, terms, count, matching):
    """Choose the next slot, its matching and its length, such that it serves most for its time.

    A slot is a matching of sources with destinations that is held for some ticks, after a delay.
    Its rate is its service divided by length + delay. Service is counted with a weight for each
    circuit, and with a bonus for each circuit whose demand the slot finishes.

    Some lengths are given, with an upper bound on the rate of each, the greatest bound first. For
    each length an assignment problem gives the best matching. The search ends at a length whose
    bound is no greater than the best rate so far.

    An assignment problem is solved quickly if it starts from good prices of the columns (its dual
    variables). Those of the last slot are kept for this, divided by the time of that slot.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``sizes``, the lengths in ticks; ``bounds``, the upper bounds on their rates,
        descending; ``weight[source, destination]``, how much a tick of service counts.
        In and out: ``known_price[k]``, the column prices for the length of rank k, by tick of
        time; ``work[0]``, from which the places looked at are taken off. All else is scratch.
    unserved : int array, shape (n, n)
        The demand that is left, in ticks.
    terms : RatedTerms
        The delay in ticks, and the `Rating`.
    count : int
        The number of lengths.
    matching : int array, shape (n,)
        Out: the destination of each source.

    Returns
    -------
    int
        The length in ticks; 0 if the work was used up before a slot was found.
    """
    bonus = terms.rating.finish_bonus * terms.delay
    best_rate = -1.0
    best_length = np.int64(0)
    for k in range(count):
        if space.bounds[k] <= best_rate:
            break

        # The assignment problem of this length starts from the prices that the length of the same
        # rank had for the last slot, per unit of time.
        length = space.sizes[k]
        time = length + terms.delay
        _rate(space, unserved, length, bonus)
        price_set = min(k, len(space.known_price) - 1)
        for j in range(len(unserved)):
            space.column_price[j] = space.known_price[price_set, j] * time
        rate = assign(space) / time
        if space.work[0] < 0:
            break

        # The prices are kept for the next slot, and the matching if it is the best one so far.
        for j in range(len(unserved)):
            space.known_price[price_set, j] = space.column_price[j] / time
        if rate > best_rate:
            best_rate = rate
            best_length = length
            for i in range(len(unserved)):
                matching[i] = space.column_of[i]
    return best_length


class RatedTerms(NamedTuple):
    """The task of a cover by ratings."""

    delay: int  # ticks before each slot
    shortest: int  # no slot is shorter, in ticks
    rating: Rating  # how slots are compared


@kernel
def cover(space, unserved, terms, matchings, lengths, done):
    """Serve a demand by slots, each the best for its time, while there is demand and room.

    A slot is a matching of sources with destinations that is held for some ticks, after a delay.
    Its rate is its service divided by length + delay. A tick of service counts more on busy ports,
    and each demand that the slot finishes counts a bonus. Some lengths are compared for each slot,
    and the length and matching of the greatest rate are taken.

    Parameters
    ----------
    space : AssignmentSpace
        Scratch, but for ``work[0]``, in and out: how many places of a matrix may still be looked
        at. It is negative after the kernel if the kernel had to end early.
    unserved : int array, shape (n, n)
        In and out: ``unserved[source, destination]`` in ticks, what is not served.
    terms : RatedTerms
        The delay, the shortest slot and the rating.
    matchings : int32 array, shape (slots, n)
        Out: the destination of each source, from slot `done` on.
    lengths : int array, shape (slots,)
        Out: how long each is held, in ticks.
    done : int
        Slots that were written before.

    Returns
    -------
    int
        How many slots are written now. Each ends one of its circuits at least, so this ends.
    """
    n = len(unserved)
    while done < len(matchings):
        # One slot: weights of circuits, lengths that are worth a look, and the best of them.
        n_entries = _weigh(space, unserved, terms.delay, terms.rating.pressure)
        if n_entries == 0:
            break
        count = _choose_lengths(unserved, n_entries, max(2, terms.rating.choices), space.sizes)
        bonus = terms.rating.finish_bonus * terms.delay
        _bound_lengths(space, unserved, terms.delay, bonus, count)
        length = _find_best_slot(space, unserved, terms, count, matchings[done])
        if space.work[0] < 0:
            break

        # A slot lasts as long as the least demand of its matching, or longer: it finishes one.
        least = np.int64(1) << 62
        for i in range(n):
            ticks = unserved[i, matchings[done, i]]
            if ticks > 0:
                least = min(least, ticks)
        length = max(terms.shortest, max(length, least))
        lengths[done] = length
        for i in range(n):
            j = matchings[done, i]
            unserved[i, j] -= min(unserved[i, j], length)
        done += 1
    return done


def complete(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Serve what a plan leaves of a demand, heaviest first.

    A slot is a matching that is held for some ticks; a demand is served if each pair has its
    circuit for long enough over all slots.

    Parameters
    ----------
    plan
        Any slots.
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    shortest
        No slot that is added is shorter, in ticks.

    Returns
    -------
    Plan
        The slots of `plan`, then those of `cover_heaviest_first`, if anything is left for them.
    """
    unserved = np.maximum(demand - serve(plan), 0)
    return join(plan, cover_heaviest_first(unserved, shortest)) if unserved.any() else plan
