"""Rules that make a whole plan of a demand quickly, each with an estimate of its own time.

Which rules run is decided by these estimates alone: they are functions of the number of ports, of
entries, and of partners of the busiest port.

The *degree* of a demand is the most entries of a row or a column. A *term* is a permutation with
its weight, of a decomposition of the stuffed demand; a term is *held* for as long as its slot
lasts, which may be shorter than its weight.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.birkhoff import decompose, stuff
from optmatch.solvers.demands.covering import complete
from optmatch.solvers.demands.edge_colouring import cover_fewest_slots
from optmatch.solvers.demands.entries import UNLIMITED_WORK, Entries, LineSums
from optmatch.solvers.demands.entry_covers import (
    CRITICAL,
    LARGEST,
    LEAST,
    MEDIAN,
    RATED,
    STABLE,
    CoverTerms,
    ListedCover,
    SlotTable,
)
from optmatch.solvers.demands.first_fit import cover_heaviest_first
from optmatch.solvers.demands.matrix_covers import MATRIX_RULES, MatrixCover
from optmatch.solvers.demands.peeling import peel_halving
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.planted import MOST_PERMUTATIONS, cover_planted
from optmatch.solvers.demands.workspace import set_up
from optmatch.solvers.kernels.decorators import kernel

ONE_SLOT_RULES = (CRITICAL, LARGEST)
"""Covers by these rules serve each entry in one slot."""

_OVERRUN = 2.0
"""Rules that see early whether they will be done in time begin if half of the estimate fits. On
dense demands of 64 to 256 ports covers by critical lines take 0.6 (uniform) to 2 (gravity) of it;
on sparse ones 0.5 (independent entries) to 4 (as many in each line, some milliseconds)."""

_WORTH_FORESEEING_S = 0.01
"""Rules that have less time than this do not end early."""

SHORTENED = 1.05
"""By which factor a plan may be longer than another one before its slots are shortened."""

_PROMISING = 1.25
"""A decomposition that is longer than useful by more than this factor is not tried with other
units: on demands of 48 to 192 ports the best unit saves at most a seventh over one delay."""

_SLICE_S = 0.0003
"""A kernel runs about so long between two looks at the clock."""

SWEEPS = 10
"""How often all pairs of slots are made short; half of it leaves slots 5 to 10 % longer in sum."""

_PLACES_AT_ONCE = 1 << 15
"""Permutations of so many places in sum are peeled off between two looks at the clock."""

_WORK_PER_S = 4e8
"""Entries that kernels look at in a second; on two machines 2 to 6e8."""


_NS_PER_PLACE = 1.2
"""What a cover of a full matrix takes for a slot, a place and the root of the ports, as paths grow
with the ports. On demands of 64 to 256 ports it was 0.7 for uniform and 1.6 to 2.5 for gravity."""


class Size(NamedTuple):
    """The numbers on which the time of a rule depends."""

    n_ports: int  # rows and columns of the demand
    n_entries: int  # pairs with a demand
    degree: int
    """The entries of the line with most of them."""
    delays_per_entry: float = 1.0
    """How many delays an entry takes in the mean; the more, the more slots are worth it."""

    @classmethod
    def of(cls, demand: NDArray[np.int64], delay: int | None = None) -> Size:
        """Measure a demand.

        Parameters
        ----------
        demand
            ``demand[source, destination]`` in ticks, shape (n, n).
        delay
            Ticks before each slot; None if it is not known, and then entries count as long as a
            delay.

        Returns
        -------
        Size
            The ports, the entries, the most entries of a line, and the mean entry in delays.
        """
        is_entry = demand > 0
        of_rows = is_entry.sum(axis=1)
        of_columns = is_entry.sum(axis=0)
        degree = int(max(of_rows.max(initial=0), of_columns.max(initial=0)))
        n_entries = int(of_rows.sum())
        if delay is None:
            return cls(len(demand), n_entries, degree)
        total = float(demand.sum(dtype=np.float64))
        return cls(len(demand), n_entries, degree, total / max(1, n_entries * delay))

    @classmethod
    def of_entries(cls, entries: Entries, lines: LineSums, delay: int) -> Size:
        """Measure listed entries.

        Parameters
        ----------
        entries
            The demand in ticks.
        lines
            The sums of its rows and columns; each entry is in one of both.
        delay
            Ticks before each slot.

        Returns
        -------
        Size
            The ports, the entries, the most entries of a line, and the mean entry in delays.
        """
        n_entries = len(entries.ticks)
        total = float(lines.ticks.sum(dtype=np.float64)) / 2
        return cls(
            entries.n_ports, n_entries, lines.most_entries, total / max(1, n_entries * delay)
        )

    @property
    def slots_of_service(self) -> float:
        """Estimate the slots of a cover that weighs service against delays.

        A slot serves a part of most entries, about a half: so many times until a delay is left.
        With 8 to 64 partners and 1 to 5,000 delays for an entry this is right up to a factor of 2.
        """
        return 1 + self.degree * (1.0 + float(np.log2(1.0 + self.delays_per_entry)))


class QuickTask(NamedTuple):
    """A demand that is to be covered, all numbers in ticks."""

    demand: NDArray[np.int64]  # (n, n): by source and destination
    delay: int  # before each slot
    shortest: int = 1
    """No slot is shorter."""
    deadline: float = np.inf
    """When to stop, by `counted_time`."""
    useful_ticks: float = np.inf
    """A plan that takes longer than this, delays included, is of no use."""


class PlanRule(NamedTuple):
    """A way to make a plan."""

    name: str  # for messages and measurements
    build: Callable[[QuickTask], Plan | None]
    """Makes a plan, or raises `TimeUp` soon after the deadline of the task. None if the demand is
    none of those that the rule is for."""
    estimate_s: Callable[[Size], float]  # estimates the seconds that it takes
    overrun: float = 1.0
    """By which factor the estimate may exceed the time that is left. Above 1 for rules that see
    early whether they will be done in time, and end if not."""
    has_fewest_slots: bool = False
    """Whether its plans have about as few slots as can be, which decides where delays are long."""


def _cover_if_useful(task: QuickTask, rule: int) -> Plan | None:
    """Make a schedule slot by slot; give up when it is seen to be too long or too late.

    A slot is a matching that is held for some ticks; each is chosen for the demand that the slots
    before it leave.

    Parameters
    ----------
    task
        The demand, and when to give up:

        - `demand`: ``demand[source, destination]`` >= 0 in ticks, int64, shape (n, n);
        - `delay`: ticks before each slot;
        - `shortest`: no slot is shorter, in ticks;
        - `deadline`: when to stop, in seconds of `counted_time`;
        - `useful_ticks`: a plan that takes longer than this, delays included, is of no use.
    rule
        How the next slot is chosen, a number from 0 to 5 (constants of `entry_covers`):

        - ``RATED``: the length at which a slot serves most for its time with the delay, and the
          matching of greatest value for this length;
        - ``STABLE``: the same length, and a stable matching, which is found faster and has at
          least half of that value;
        - ``CRITICAL``: the heaviest matching that covers all ports with the most entries left,
          held until its largest entry is served;
        - ``LARGEST``, ``MEDIAN``, ``LEAST``: the heaviest matching, held until its largest,
          median or least entry is served.

    Returns
    -------
    Plan or None
        Slots that serve the whole demand; None if the rule gave up.

    Raises
    ------
    TimeUp
        If the deadline comes before the end of the plan.
    """
    return _cover_in_time(_begin_cover(task, rule), task.deadline, task.useful_ticks)


def cover_by_rule(task: QuickTask, rule: int) -> Plan:
    """Make a schedule of a demand, one slot after the other, each chosen by the same rule.

    A slot is a matching of source ports to destination ports that is held for some ticks. It
    serves its circuits for so long; the next slot is chosen for the demand that is left, until
    none is. Such a list of slots is called a cover of the demand.

    Parameters
    ----------
    task
        These fields are used:

        - `demand`: ``demand[source, destination]`` >= 0 in ticks, int64, shape (n, n);
        - `delay`: ticks before each slot;
        - `shortest`: no slot is shorter, in ticks;
        - `deadline`: when to stop, in seconds of `counted_time`; infinite for never.
    rule
        How the next slot is chosen, a number from 0 to 5 (constants of `entry_covers`):

        - ``RATED``: the length at which a slot serves most for its time with the delay, and the
          matching of greatest value for this length;
        - ``STABLE``: the same length, and a stable matching, which is found faster and has at
          least half of that value;
        - ``CRITICAL``: the heaviest matching that covers all ports with the most entries left,
          held until its largest entry is served;
        - ``LARGEST``, ``MEDIAN``, ``LEAST``: the heaviest matching, held until its largest,
          median or least entry is served.

    Returns
    -------
    Plan
        Slots that serve the whole demand, in the order in which they were chosen.

    Raises
    ------
    TimeUp
        If the deadline comes before the end of the plan.
    """
    plan = _cover_in_time(_begin_cover(task, rule), task.deadline, np.inf)
    assert plan is not None  # no plan is too long
    return plan


def cover_listed_by_rule(entries: Entries, terms: CoverTerms, deadline: float) -> Plan:
    """Cover listed entries slot by slot.

    A slot is a matching that is held for some ticks. A rule says how the next one is chosen, for
    example as the heaviest matching that is held until its largest entry is served.

    Parameters
    ----------
    entries
        The demand, in ticks.
    terms
        The delay, the shortest slot, and the rule that chooses slots.
    deadline
        When to stop, by `counted_time`.

    Returns
    -------
    Plan
        Slots that serve the whole demand, in the order in which they were chosen.

    Raises
    ------
    TimeUp
        If the deadline comes before the end of the plan.
    """
    plan = _cover_in_time(ListedCover(entries, terms), deadline, np.inf)
    assert plan is not None  # no plan is too long
    return plan


def _is_matrix_quicker(rule: int, n_ports: int, n_entries: int) -> bool:
    """Tell whether a rule covers the full matrix in less time than the list of its entries.

    Covers of the matrix start each assignment from the last one, but look at all places. Measured
    with 64 to 256 ports: where nine tenths of the places have a demand they take a tenth to a half
    of the time; where three tenths have one they take twice as long, and five times as long if
    slots are short.

    Parameters
    ----------
    rule
        The number of the rule (constants of `entry_covers`).
    n_ports, n_entries
        Rows and columns of the demand, and its entries.

    Returns
    -------
    bool
        False for rules that weigh service against delays, since there are no such covers.
    """
    least_density = 0.5 if rule in ONE_SLOT_RULES else 0.75
    return rule in MATRIX_RULES and n_entries > least_density * n_ports**2


def _begin_cover(task: QuickTask, rule: int) -> ListedCover | MatrixCover:
    """Prepare a cover by a rule, in the way that is estimated to be quicker.

    Parameters
    ----------
    task
        The demand in ticks, the delay and the shortest slot.
    rule
        The number of the rule that chooses slots.

    Returns
    -------
    ListedCover or MatrixCover
        A cover without slots so far. It works on the list of entries, or on the full matrix.
    """
    terms = CoverTerms(task.delay, task.shortest, rule)
    n_entries = int(np.count_nonzero(task.demand))
    if _is_matrix_quicker(rule, len(task.demand), n_entries):
        return MatrixCover(task.demand, terms)
    return ListedCover(Entries.of_matrix(task.demand), terms)


def _cover_in_time(
    cover: ListedCover | MatrixCover, deadline: float, useful_ticks: float
) -> Plan | None:
    """Make a schedule of a demand slot by slot, and give up if it becomes too long.

    A slot is a matching that is held for some ticks. The next one is chosen, by a rule, for the
    demand that is left, until none is.

    Parameters
    ----------
    cover
        The demand and the rule, without slots so far. It is used up.
    deadline
        When to stop, in seconds of `counted_time`; infinite for never.
    useful_ticks
        A plan that takes longer than this, delays included, is of no use.

    Returns
    -------
    Plan or None
        Slots that serve the whole demand, in the order in which they were chosen. None if these
        slots and a lower bound on the others take longer than is useful; or if the rule serves
        each entry in one slot and the first slots show that the deadline comes too early.

    Raises
    ------
    TimeUp
        If the deadline comes before the end of the plan.
    """
    n = cover.n_ports
    n_entries = cover.n_left

    # Each round makes `slots_at_once` slots and then looks at the clock. `cost` is the ticks of
    # the slots so far with their delays, and at `next_check` it is asked next whether it is too
    # high.
    plans = [Plan.of([], [], n)]
    slots_at_once = 1
    started_s = np.inf
    cost = 0
    next_check = 0.0
    while cover.n_left > 0:
        began_s = counted_time()
        if began_s >= deadline:
            raise TimeUp
        started_s = min(started_s, began_s)

        # The work is limited too, since a single slot of many ports may take too long.
        work = int(min(UNLIMITED_WORK, (deadline - began_s) * _WORK_PER_S))
        slots = SlotTable(
            np.empty((slots_at_once, n), np.int32), np.empty(slots_at_once, np.int64)
        )
        n_slots, is_complete = cover.choose_slots(slots, work)
        plans.append(Plan(slots.matchings[:n_slots], slots.ticks[:n_slots]))
        if not is_complete:
            raise TimeUp

        # The first slots tell how many fit between two looks at the clock.
        took_s = counted_time() - began_s
        slots_at_once = int(np.clip(n_slots * _SLICE_S / max(took_s, 1e-6), 1, 128))

        # Twenty times at most it is asked whether the plan can still be of use.
        cost += plans[-1].cost(cover.terms.delay)
        if cost >= next_check and useful_ticks < np.inf:
            next_check = cost + useful_ticks / 20
            if cost + cover.bound() > useful_ticks:
                return None
            part_left = cover.n_left / n_entries
            serves_once = cover.terms.rule in ONE_SLOT_RULES
            if serves_once and _comes_too_late(started_s, deadline, part_left):
                return None
    return Plan(
        np.concatenate([plan.matchings for plan in plans]),
        np.concatenate([plan.ticks for plan in plans]),
    )


def _comes_too_late(started_s: float, deadline: float, part_left: float) -> bool:
    """Foresee whether a schedule that is made slot by slot will not be complete in time.

    Each entry of the demand is served in one slot. To choose a slot takes time for all entries
    that are left, and each slot takes about as many of them away. When a part p of the entries is
    left, a part of 1 - p**2 of the work is done: with half of them left, three quarters.

    Parameters
    ----------
    started_s, deadline
        When the work began, and when it has to end, in seconds of `counted_time`.
    part_left
        The part of the entries that is not served yet, from 0 to 1.

    Returns
    -------
    bool
        True if more time has passed than the part of the work that is done may take. It is always
        False in the first twentieth of the time, in which nothing can be foreseen; and if there
        was less than `_WORTH_FORESEEING_S` in all, since no other rule could use what is saved.
    """
    available_s = deadline - started_s
    took_s = counted_time() - started_s
    if available_s < _WORTH_FORESEEING_S or took_s < available_s / 20:
        return False
    return took_s > available_s * (1 - part_left**2)


@kernel
def hold_as_needed(unserved, permutations, ticks):
    """Shorten the slots of a decomposition, one after the other, to what the demand still needs.

    A decomposition writes a matrix as a sum of terms, permutations with weights. The matrix was
    stuffed: entries were raised until all rows and columns had the same sum. A slot of each term,
    held for its weight, would therefore serve more than the demand. Each term is held only as long
    as the circuit that needs it longest, after what the terms before it have served. The last
    terms are shortened most.

    Parameters
    ----------
    unserved : int array, shape (n, n)
        In and out: ``unserved[source, destination]``, what is not served yet, in ticks.
    permutations : int array, shape (terms, n)
        The destination of each source.
    ticks : int array, shape (terms,)
        In and out: the weight of each term in ticks, then how long it is held; 0 for terms
        without use.
    """
    for term in range(len(ticks)):
        # The most that any circuit of the permutation has left to serve.
        needed = np.int64(0)
        for source in range(len(unserved)):
            needed = max(needed, unserved[source, permutations[term, source]])
        ticks[term] = min(ticks[term], needed)
        for source in range(len(unserved)):
            destination = permutations[term, source]
            served = min(unserved[source, destination], ticks[term])
            unserved[source, destination] -= served


def slice_by_halving(task: QuickTask) -> Plan:
    """Make a schedule by the heuristic Solstice: slots of large entries first, then smaller ones.

    Liu, Mukerjee et al. (2015), doi 10.1145/2716281.2836126. The demand is stuffed: entries are
    raised until all rows and columns have the same sum. Permutations are then taken off it
    (`peel_halving`). All entries of a permutation are at least a threshold; when there is no such
    permutation any more, the threshold is halved. Each permutation is held as a slot, for as long
    as the demand itself needs it.

    Parameters
    ----------
    task
        The demand in ticks, the shortest slot and the deadline, in seconds of `counted_time`.

    Returns
    -------
    Plan
        Slots that serve the whole demand.

    Raises
    ------
    TimeUp
        If the deadline comes before the end of the plan.
    """
    n = len(task.demand)
    stuffed = stuff(task.demand)
    space = set_up(stuffed)
    plans = [Plan.of([], [], n)]

    # A term is a permutation with its weight. The kernel writes so many of them between two looks
    # at the clock; fewer terms than asked for mean that nothing is left.
    terms_at_once = max(8, _PLACES_AT_ONCE // n)
    n_terms = terms_at_once
    while n_terms == terms_at_once:
        if counted_time() >= task.deadline:
            raise TimeUp
        terms = Plan(
            np.empty((terms_at_once, n), dtype=np.int32), np.empty(terms_at_once, dtype=np.int64)
        )
        n_terms = peel_halving(space, 0, terms.matchings, terms.ticks)
        plans.append(Plan(terms.matchings[:n_terms], terms.ticks[:n_terms]))
    matchings = np.concatenate([plan.matchings for plan in plans])
    ticks = np.concatenate([plan.ticks for plan in plans])

    # Slots that the demand does not need are left out, and others last for the shortest slot at
    # least.
    hold_as_needed(task.demand.copy(), matchings, ticks)
    plan = Plan(matchings, np.maximum(ticks, task.shortest)).take(ticks > 0)
    return complete(plan, task.demand, task.shortest)


def decompose_and_trim(task: QuickTask) -> Plan:
    """Make a schedule of the permutations into which a demand decomposes (Birkhoff, von Neumann).

    The demand is stuffed first: entries are raised until all rows and columns have the same sum.
    It is then a sum of permutations with weights, those of the largest weights first. Each is held
    as a slot, for as long as the demand itself needs it. Most of what stuffing has added is in the
    last permutations, which are shortened or left out.

    Parameters
    ----------
    task
        The demand in ticks, the shortest slot and the deadline, in seconds of `counted_time`.

    Returns
    -------
    Plan
        Slots that serve the whole demand.

    Raises
    ------
    TimeUp
        If the deadline comes before the decomposition is complete.
    """
    return _decompose_in_units(task, 1)


def decompose_in_delays(task: QuickTask) -> Plan:
    """Make a schedule of permutations, after the entries are rounded up to whole units of time.

    The demand is written as a sum of permutations, each of which is held as a slot. Rounding makes
    many entries equal, so that there are fewer permutations, and no slot is shorter than a unit.
    With a unit of one delay this is the regularisation of the method Reco.

    Which unit is best depends on the demand. One delay is tried first, then 1/2, 1/4 and 1/8 of
    it, as long as plans get shorter. If 1/2 is no better, 2 and 4 delays are tried likewise.

    Parameters
    ----------
    task
        These fields are used:

        - `demand`: ``demand[source, destination]`` in ticks, shape (n, n);
        - `delay`: ticks before each slot;
        - `shortest`: no slot is shorter, in ticks;
        - `deadline`: at this time, in seconds of `counted_time`, the best plan so far is returned;
        - `useful_ticks`: a plan that takes longer is of no use. Further units are not tried if the
          best plan so far is longer by a quarter.

    Returns
    -------
    Plan
        Slots that serve the whole demand.

    Raises
    ------
    TimeUp
        If the deadline comes before the first plan.
    """
    # The units in ticks: halves of a delay down to an eighth, and its doubles. A delay of few
    # ticks has no eighth: that unit is 0, and ends the loop.
    best = _decompose_in_units(task, max(1, task.delay))
    smaller_units = [task.delay >> 1, task.delay >> 2, task.delay >> 3]
    larger_units = [task.delay << 1, task.delay << 2]
    for units in (smaller_units, larger_units):
        is_shorter = False
        for unit in units:
            is_hopeless = best.cost(task.delay) > _PROMISING * task.useful_ticks
            if unit == 0 or is_hopeless or counted_time() >= task.deadline:
                break
            try:
                plan = _decompose_in_units(task, unit)
            except TimeUp:
                return best
            if plan.cost(task.delay) >= best.cost(task.delay):
                break
            best = plan
            is_shorter = True

        # Larger units are for demands for which half of a delay is no better than a whole one.
        if is_shorter:
            break
    return best


def _decompose_in_units(task: QuickTask, unit: int) -> Plan:
    """Make a schedule of the permutations into which a demand decomposes, in units of time.

    Entries are rounded up to whole units, and then raised until all rows and columns have the same
    sum (stuffing). The result is a sum of permutations with weights. Each permutation is held as a
    slot, for its weight at most, and no longer than the demand itself needs.

    Parameters
    ----------
    task
        The demand and the shortest slot in ticks, and the deadline, in seconds of `counted_time`.
    unit
        The ticks of a unit; entries are rounded up to whole units before they are decomposed.

    Returns
    -------
    Plan
        Slots that serve the demand itself, not rounded.

    Raises
    ------
    TimeUp
        If the deadline comes before the decomposition is complete.
    """
    if counted_time() >= task.deadline:
        raise TimeUp
    deadline = None if task.deadline == np.inf else task.deadline
    in_units = -(-task.demand // unit)  # rounded up

    # At the deadline the decomposition ends early, and leaves a rest of the matrix.
    terms = decompose(stuff(in_units), "bottleneck", deadline=deadline)
    if terms.residual.any():
        raise TimeUp
    ticks = terms.weights * unit
    hold_as_needed(task.demand.copy(), terms.permutations, ticks)
    plan = Plan(terms.permutations, np.maximum(ticks, task.shortest)).take(ticks > 0)
    return complete(plan, task.demand, task.shortest)


def fewest_slots(task: QuickTask, n_sweeps: int = 0) -> Plan:
    """Make a schedule with the fewest slots: as many as the busiest port has partners.

    Each entry of the demand is put into one slot, heavy entries first (edge colouring).

    Parameters
    ----------
    task
        The demand in ticks, the shortest slot and the deadline, in seconds of `counted_time`.
    n_sweeps
        How often all pairs of slots are made shorter afterwards, by an exchange of entries.

    Returns
    -------
    Plan
        Slots that serve the whole demand.
    """
    entries = Entries.of_matrix(task.demand)
    return cover_fewest_slots(
        entries, LineSums.of(entries), task.shortest, task.deadline, n_sweeps
    )


def estimate_fewest_slots_s(size: Size, n_sweeps: int = 0) -> float:
    """Estimate `fewest_slots`: paths grow with the ports, sweeps take all pairs of slots."""
    colouring_s = 1e-4 + 5e-8 * size.n_entries * (1.0 + size.n_ports / 400)
    return colouring_s + n_sweeps * 5e-9 * size.n_ports * size.degree**2


def _entry_rule(
    name: str,
    rule: int,
    ns_per_entry: float,
    slots_per_partner: float,
    growth: float = 0.0,
) -> PlanRule:
    """Describe a way to make a plan slot by slot, with an estimate of the time that it takes.

    Each slot is chosen by a look at all entries that are left, in the mean half of them. The
    estimate is hence 50 us and, for each slot and each of half of the entries,
    ``ns_per_entry * n_ports**growth`` nanoseconds. For covers of a full matrix it is
    `_NS_PER_PLACE` times the root of the ports, for each slot and each place.

    Parameters
    ----------
    name
        The name of the rule.
    rule
        How slots are chosen: a constant of `entry_covers`. Rules that weigh service against delays
        (``STABLE``, ``RATED``) serve an entry in several slots; ``CRITICAL`` and ``LARGEST`` serve
        each entry in one.
    ns_per_entry
        The time of a slot for each entry that is left, in nanoseconds, for one port.
    slots_per_partner
        How many slots a plan has for each partner of the busiest port; not used by rules that
        weigh service against delays.
    growth
        The power of the number of ports with which the time for an entry grows.

    Returns
    -------
    PlanRule
        The rule, with its estimate: a function of the size of a demand, in seconds. Those that
        serve each entry in one slot may begin if half of the estimate fits, as they see early
        whether they will be done in time.
    """
    weighs_delays = rule in (STABLE, RATED)

    def estimate_s(size: Size) -> float:
        """Estimate the seconds that the rule takes for a demand of a certain size.

        Parameters
        ----------
        size
            The numbers of ports and of entries, the most entries of a row or column, and how many
            delays an entry takes in the mean.
        """
        # The number of slots of the plan, about.
        slots = size.degree * slots_per_partner + 1
        if weighs_delays:
            slots = size.slots_of_service

        # Covers of a full matrix look at all its places, those of a list at the entries left.
        if _is_matrix_quicker(rule, size.n_ports, size.n_entries):
            places = float(size.n_ports**2.5)
            return 5e-5 + 1e-9 * _NS_PER_PLACE * places * slots
        entry_s = 1e-9 * ns_per_entry * size.n_ports**growth
        return 5e-5 + float(entry_s) * size.n_entries * slots / 2

    serves_once = rule in ONE_SLOT_RULES
    return PlanRule(
        name,
        partial(_cover_if_useful, rule=rule),
        estimate_s,
        overrun=_OVERRUN if serves_once else 1.0,
        has_fewest_slots=rule == CRITICAL,
    )


def cover_planted_weights(task: QuickTask) -> Plan | None:
    """Make a schedule of the few permutations of which a demand is the sum, if it is such a sum.

    Parameters
    ----------
    task
        The demand in ticks, the shortest slot and the deadline, in seconds of `counted_time`.

    Returns
    -------
    Plan or None
        A slot for each permutation, held for its weight; None if the demand is no such sum.
    """
    return cover_planted(Entries.of_matrix(task.demand), task.shortest, task.deadline)


def _planted_weights_s(size: Size) -> float:
    """Estimate `cover_planted_weights` where it looks for weights and finds none.

    Where it finds some its plan is nearly always the shortest, and it begins only if it has the
    time to decode them.

    Parameters
    ----------
    size
        The size of the demand: its entries, and the most entries of a line.

    Returns
    -------
    float
        Seconds; 0 where lines have so many entries that it does not even look.
    """
    if size.degree > MOST_PERMUTATIONS:
        return 0.0
    return 0.0002 + 1.5e-7 * size.n_entries


def _decomposition_s(size: Size) -> float:
    """Estimate `decompose_and_trim`: sorting the matrix, and words of columns for each term."""
    return 0.001 + 1e-9 * size.n_ports**2 * (60 + 2 * size.degree)


def _decomposition_in_delays_s(size: Size) -> float:
    """Estimate the first plan of `decompose_in_delays`: rounded entries leave fewer terms."""
    return 0.0005 + 1e-9 * size.n_ports**2 * (40 + size.degree)


def cover_critical_lines(demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Make a schedule with the fewest slots, as many as the busiest port has partners.

    Each slot is the heaviest matching that includes all ports with the most entries left, and is
    held until its largest entry is served. Each entry is served in one slot.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` >= 0 in ticks, int64, shape (n, n).
    shortest
        No slot is shorter, in ticks.

    Returns
    -------
    Plan
        Slots that serve the whole demand.
    """
    return cover_by_rule(QuickTask(demand, 0, shortest), CRITICAL)


def heaviest_first(task: QuickTask) -> Plan:
    """Put each entry, heaviest first, into the first slot in which both its ports are free."""
    return cover_heaviest_first(task.demand, task.shortest)


FIRST = PlanRule("heaviest first", heaviest_first, lambda size: 1e-4 + 5e-8 * size.n_entries)
"""The rule that always runs: it takes time for entries, not for entries times slots."""

RULES = (
    _entry_rule("stable", STABLE, 30, 0.0),
    _entry_rule("critical lines", CRITICAL, 9, 1.0, growth=0.5),
    _entry_rule("maximum weight, largest", LARGEST, 80, 1.0),
    _entry_rule("maximum weight, median", MEDIAN, 18, 5.0),
    _entry_rule("rated", RATED, 200, 0.0),
    PlanRule("planted weights", cover_planted_weights, _planted_weights_s),
    PlanRule("fewest slots", fewest_slots, estimate_fewest_slots_s),
    PlanRule(
        "fewest slots, short pairs",
        partial(fewest_slots, n_sweeps=SWEEPS),
        partial(estimate_fewest_slots_s, n_sweeps=SWEEPS),
    ),
    PlanRule("halving thresholds", slice_by_halving, _decomposition_s),
    PlanRule("trimmed decomposition", decompose_and_trim, _decomposition_s),
    PlanRule("decomposition in delays", decompose_in_delays, _decomposition_in_delays_s),
    _entry_rule("maximum weight, least", LEAST, 100, 45.0),
)
"""The other rules. Their times were measured on 200 demands of 24 to 512 ports, of all models of
traffic and delays of 1 us to 10 ms. The geometric means of time over estimate are 0.7 to 0.8 for
decompositions and stable matchings, about 1 for critical lines and for the heaviest matchings, and
0.3 for the best rated ones, whose time depends most on how similar the entries are: from a tenth
of the estimate to seventeen times."""


def build_if_short(rule: PlanRule, task: QuickTask, known_ticks: int) -> Plan | None:
    """Make the plan of a rule, unless it is seen to be longer than one that is known.

    Parameters
    ----------
    rule
        The rule, a way to make a whole plan.
    task
        The demand in ticks, the delay, the shortest slot and the deadline. Its own `useful_ticks`
        have no effect.
    known_ticks
        The ticks of the plan that is known, delays included. The new plan may be longer by the
        factor `SHORTENED`, because slots are shortened afterwards.

    Returns
    -------
    Plan or None
        Slots that serve the whole demand; None if the rule gave up, or is not for such demands.

    Raises
    ------
    TimeUp
        If the deadline comes before the end of the plan.
    """
    return rule.build(task._replace(useful_ticks=SHORTENED * known_ticks))


def list_rules_in_order(size: Size) -> list[PlanRule]:
    """Return the rules that make plans in the order in which they run: the quickest first.

    The order follows from estimates of their time. There is one exception. Where delays are longer
    than entries, a plan with few slots is the best one, so the rule with the fewest slots counts
    with a quarter of its estimate. On dense demands of 150 ports the rules before it left it no
    time within 0.3 s, which cost 2 %.

    Parameters
    ----------
    size
        The size of the demand, of which estimates are functions.

    Returns
    -------
    list of PlanRule
        All of `RULES`, that is, all rules but `FIRST`, which always runs.
    """

    def rank(rule: PlanRule) -> float:
        """Return the estimate in seconds, or less for a rule that decides."""
        decides = rule.has_fewest_slots and size.delays_per_entry < 1
        return rule.estimate_s(size) / (4 if decides else 1)

    return sorted(RULES, key=rank)
