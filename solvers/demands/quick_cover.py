"""A plan of a demand within milliseconds: quick rules, then parts of the best covered anew.

A *rule* makes a whole plan (`quick_rules`); a *move* takes some slots of a plan out and covers
what they served anew; to *patch* is to add slots for what a plan leaves. The *previous* plan is
one of a demand like this one. The *rating* of a slot is what it serves for its time with the
delay. Times are seconds of `counted_time`, and a deadline is such a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.edge_colouring import cover_fewest_slots
from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.entry_covers import CRITICAL, MEDIAN, RATED, STABLE, CoverTerms
from optmatch.solvers.demands.first_fit import cover_first_fit, cover_matrix_first_fit
from optmatch.solvers.demands.moves import MoveSearch, MoveTask
from optmatch.solvers.demands.plans import Plan, join, only_demanded, serve, tidy, trim
from optmatch.solvers.demands.planted import cover_planted
from optmatch.solvers.demands.quick_rules import (
    SWEEPS,
    PlanRule,
    QuickTask,
    Size,
    build_if_short,
    cover_by_rule,
    cover_listed_by_rule,
    estimate_fewest_slots_s,
    heaviest_first,
    list_rules_in_order,
)

_GRACE_S = 0.0008
"""A former plan may prolong the work by so much, so that other steps miss nothing; and slots of
the best rating are searched in any case if they are estimated to take no longer."""

_MATRIX_PORTS = 4096
"""Plans of more ports are made of listed entries alone: a full matrix of them has over 128 MB."""

_FINISH_S_PER_PLACE = 7e-8
"""What it takes to put equal slots together and to trim them, for each slot and port; measured
with 64 to 1,024 ports."""

_MANY_PLACES = 1 << 16
"""The first plan of full matrices of so many places, 256 ports, is made without a list."""

_FEW_ENTRIES = 10_000
"""A former plan of so few entries is patched even if there is no time: in a millisecond."""

_ROUNDS = 50
"""Rounds of moves without a limit of time."""

_ROUND_S = 0.0005
"""A round of moves is estimated to take so long, if it has more than one."""

_MOST_MOVES = 50
"""The most moves of a round: for five ports these take a tenth of a millisecond."""

_PATIENCE = 100
_MORE_PATIENCE = 25
"""After so many moves in vain the search goes on from another plan, and each time it has some more
moves for that. In 30 to 100 ms and on 53 demands of 3 to 40 ports without any such step plans were
0.3 to 0.9 % above the best that were found, with 100 moves 0.15 to 0.3 %, with 400 moves 0.08 %
(up to 8 ports) to 0.3 %, and with 2,000 moves 0.04 % to 0.7 %."""

_NEVER_S = 60.0
"""A rule that is estimated to take longer than this is left to those who name it."""

_WORTH_WAITING_S = 0.01
"""A rule of at least this estimate that does not fit leaves its time to moves; before shorter ones
the work ends, so that more time is never worse."""

_SECONDS_OF_A_MOVE = 0.005
"""Moves use the heaviest matchings where a cover of the whole demand by them is estimated to take
no longer, or else stable ones."""


def cover_quickly(
    demand: NDArray[np.int64], delay: int, shortest: int = 1, *, exact: bool = True
) -> Plan:
    """Cover a demand greedily: each slot serves as much as it can for its time.

    The length of a slot is the one at which service, divided by length and delay, is greatest;
    then a matching is chosen for this length. The rules ``RATED`` and ``STABLE`` of `entry_covers`
    say how service is weighed.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` >= 0 in ticks, int64, shape (n, n).
    delay
        The reconfiguration delay before each slot, in ticks.
    shortest
        No slot is shorter, in ticks.
    exact
        Whether each slot holds the matching of greatest value (rule ``RATED``); else it holds a
        stable matching, which is found faster and has at least half of that value (``STABLE``).

    Returns
    -------
    Plan
        Slots that together serve the whole demand, in the order in which they were chosen.
    """
    return cover_by_rule(QuickTask(demand, delay, shortest), RATED if exact else STABLE)


def plan_quickly(
    demand: NDArray[np.int64], delay: int, deadline: float, previous: Plan | None = None
) -> Plan:
    """Cover a demand by slots as well as time allows: rules, the quickest first, then moves.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, int64, shape (n, n).
    delay
        Ticks before each slot.
    deadline
        When to stop, in seconds of `counted_time`; infinite for a number of moves.
    previous
        Slots of a demand like this one, which are completed for this one; None if there are none.

    Returns
    -------
    Plan
        Slots that together serve the whole demand.
    """
    return plan_entries(Entries.of_matrix(demand), delay, deadline, previous)


def plan_full_matrix(
    demand: NDArray[np.int64],
    lines: LineSums,
    delay: int,
    deadline: float,
    previous: Plan | None = None,
) -> Plan:
    """Find a schedule for a demand between most pairs of ports, as short as time allows.

    A schedule is a list of slots, matchings that are held for some ticks. For a large matrix the
    first one is made without a list of the entries: for some thousand ports such a list takes
    longer than the time limits that schedulers have. If there is time, the list is made
    afterwards, and the search goes on from this schedule (`plan_entries`).

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, int64, shape (n, n).
    lines
        The sum and the number of entries of each row and each column.
    delay
        Ticks before each slot.
    deadline
        When to stop, in seconds of `counted_time`. If it is infinite, a fixed number of changes
        ends the search.
    previous
        Slots of a demand like this one, to start from; None if there are none.

    Returns
    -------
    Plan
        The plan of least cost that was found, which serves the whole demand.
    """
    if demand.size < _MANY_PLACES:
        return plan_entries(Entries.of_matrix(demand), delay, deadline, previous)
    first = cover_matrix_first_fit(demand, lines)

    # `late` is the deadline less the time that the last steps of a search take.
    late = deadline_before_finish(deadline, first)
    is_late = previous is None and counted_time() >= late
    if is_late or first.cost(delay) <= lines.bound(delay):
        return first
    return plan_entries(Entries.of_matrix(demand), delay, deadline, previous, first=first)


def plan_entries(
    entries: Entries,
    delay: int,
    deadline: float,
    previous: Plan | None = None,
    *,
    first: Plan | None = None,
) -> Plan:
    """Find a schedule for a demand that is as short as the time until the deadline allows.

    A plan is a list of slots, matchings that are held for some ticks each. Its cost is the sum of
    these ticks, with a delay for each slot. The plan of least cost so far is kept through these
    steps, in this order; the work ends early if a plan costs as little as a lower bound:

    1. A first plan by the quickest rule, "heaviest first", however little time there is.
    2. A plan with few slots, if that takes less than half a millisecond.
    3. A plan of the slots that serve most for their time, if that takes less than a millisecond.
    4. The slots of `previous`, with new slots for what they leave (a patched plan).
    5. Other rules that fit into the time, and then moves until the deadline. A move takes some
       slots of a plan out, and covers what they served anew. Moves begin at the plan of steps 1
       to 3, never at the patched one, which only competes with the result.

    Parameters
    ----------
    entries
        The demand in ticks. Beyond `_MATRIX_PORTS` ports no full matrix is made of it: then the
        steps 1 and 2 are followed by rules for listed entries alone, and `previous` is not used.
    delay
        Ticks before each slot.
    deadline
        When to stop, in seconds of `counted_time`. If it is infinite, a fixed number of moves ends
        the search.
    previous
        A plan of a demand like this one; None if there is none.
    first
        A plan that serves all entries, instead of that of step 1; None if it has to be made.

    Returns
    -------
    Plan
        The plan of least cost that was found, which serves all entries. A demand without entries
        has a plan without slots.
    """
    if not len(entries.ticks):
        return Plan.of([], [], entries.n_ports)
    # When step 3 has to be done. Without a limit the answer is the same each time, so that no
    # clock may decide.
    best_slots_until = np.inf if deadline == np.inf else counted_time() + _GRACE_S

    # Steps 1 and 2. No plan costs less than `bound`.
    lines = LineSums.of(entries)
    bound = lines.bound(delay)
    size = Size.of_entries(entries, lines, delay)
    first = _plan_by_lists(entries, lines, size, delay, first)
    if first.cost(delay) <= bound:
        return first

    if entries.n_ports > _MATRIX_PORTS:
        return _best_of_listed_rules(entries, lines, first, delay, deadline)

    # `late` is the deadline less the time that the last step takes, in which equal slots are put
    # together and shortened.
    late = deadline_before_finish(deadline, first)
    may_look_for_best_slots = _best_slots_s(size) < _GRACE_S
    if previous is None and not may_look_for_best_slots and counted_time() >= late:
        return first

    # Steps 3 to 5 work on the full matrix. A former plan is patched if there is time, or if that
    # takes next to none.
    task = QuickTask(entries.to_matrix(), delay)
    if may_look_for_best_slots:
        first = _shorter_by_best_slots(task, first, best_slots_until)
    best = first
    if previous is not None:
        began_s = counted_time()
        if began_s < late or len(entries.ticks) < _FEW_ENTRIES:
            patched = _patch_previous(task, previous)
            best = min(first, patched, key=lambda plan: plan.cost(delay))

        # Step 5 has as much time as it has without a former plan, but for more than `_GRACE_S`.
        late += min(_GRACE_S, counted_time() - began_s)
    return _improve(task._replace(deadline=late), first, best, bound)


def make_first_plan(task: QuickTask) -> Plan:
    """Make the plan from which `schedule`, the function for schedulers, begins its search.

    A plan is a list of slots, matchings that are held for some ticks each. This one is the result
    of the steps 1 to 3 of `plan_entries`: heaviest first, the fewest slots, the best slots.

    Parameters
    ----------
    task
        The demand in ticks, not all zero, the delay and the shortest slot. Its deadline does not
        count: all steps together take about as long as a list of the entries.

    Returns
    -------
    Plan
        Slots that serve the whole demand.
    """
    entries = Entries.of_matrix(task.demand)
    lines = LineSums.of(entries)
    size = Size.of_entries(entries, lines, task.delay)
    first = None
    if task.demand.size >= _MANY_PLACES:
        first = cover_matrix_first_fit(task.demand, lines)
    first = _plan_by_lists(entries, lines, size, task.delay, first)
    if _best_slots_s(size) < _GRACE_S and entries.n_ports <= _MATRIX_PORTS:
        first = _shorter_by_best_slots(task, first, counted_time() + _GRACE_S)

    # The first two steps know nothing of a shortest slot.
    if task.shortest > 1:
        first = finish_plan(first, task.demand, task.shortest)
    return first


def deadline_before_finish(deadline: float, first: Plan) -> float:
    """Return when a search has to end, so that its plan can still be tidied before a deadline.

    Parameters
    ----------
    deadline
        In seconds, by `counted_time`.
    first
        A plan of about as many slots as the one that will be tidied.

    Returns
    -------
    float
        An earlier time in seconds.
    """
    return deadline - _FINISH_S_PER_PLACE * first.matchings.size


def _plan_by_lists(
    entries: Entries, lines: LineSums, size: Size, delay: int, first: Plan | None
) -> Plan:
    """Make a first plan by rules whose time depends on the entries, not on all places of a matrix.

    A plan is a list of slots, matchings that are held for some ticks each.

    Parameters
    ----------
    entries, lines, size
        The demand, not empty, the sums of its lines, and its size.
    delay
        Ticks before each slot.
    first
        A plan that serves the demand; None if there is none yet: then entries are put, heaviest
        first, into the first slot that has room.

    Returns
    -------
    Plan
        That plan, or one with the fewest slots if it takes less time, delays included. The latter
        is made only if that is estimated to take less than half a millisecond.
    """
    if first is None:
        first = cover_first_fit(entries, lines)
    if first.cost(delay) > lines.bound(delay) and (
        estimate_fewest_slots_s(size, SWEEPS) < _GRACE_S / 2
    ):
        # Where delays are long the number of slots decides.
        fewest = cover_fewest_slots(entries, lines, n_sweeps=SWEEPS)
        first = min(first, fewest, key=lambda plan: plan.cost(delay))
    return first


def _shorter_by_best_slots(task: QuickTask, first: Plan, deadline: float) -> Plan:
    """Return the shorter one of a plan and the cover by best slots, if there is time for that.

    A best slot is one whose length and matching serve most for its time with the delay.

    Parameters
    ----------
    task
        The demand in ticks and the delay; its own deadline does not count.
    first
        A plan that serves the demand.
    deadline
        When the cover has to be complete, in seconds of `counted_time`.

    Returns
    -------
    Plan
        The plan of fewer ticks, delays included; `first` if time ran out.
    """
    try:
        rated = cover_by_rule(task._replace(deadline=deadline), RATED)
    except TimeUp:
        return first
    rated = finish_plan(rated, task.demand)
    return min(first, rated, key=lambda plan: plan.cost(task.delay))


def _improve(task: QuickTask, first: Plan, best: Plan, bound: int) -> Plan:
    """Return the best plan of rules and moves that start from `first`, and of `best`.

    The cost of a plan is the ticks of all slots, with a delay for each. A rule makes a whole plan;
    a move covers a part of the best one anew.

    Parameters
    ----------
    task
        The demand, the delay and the shortest slot in ticks, and the deadline at which the search
        ends, in seconds of `counted_time`; if it is infinite, a fixed number of moves ends it.
    first
        The plan from which moves begin.
    best
        The best plan so far, perhaps the same as `first`.
    bound
        A lower bound on the cost in ticks; a plan that meets it ends the search.

    Returns
    -------
    Plan
        A plan that costs no more than `best`.
    """
    delay = task.delay
    steps = yield_plans(task, first, endless=task.deadline < np.inf)
    try:
        while best.cost(delay) > bound and counted_time() < task.deadline:
            plan = next(steps, None)
            if plan is None:
                break

            # The later one of equal plans is kept.
            if plan.cost(delay) <= best.cost(delay):
                best = plan
    except TimeUp:
        pass
    return best


def _best_of_listed_rules(
    entries: Entries, lines: LineSums, first: Plan, delay: int, deadline: float
) -> Plan:
    """Make several plans for a demand of very many ports, and return the best.

    A plan is a list of slots, matchings that are held for some ticks. Its cost is the sum of these
    ticks, with a delay for each slot. All ways to make one that are tried here work on the list of
    entries, as a full matrix of so many ports would be too large. They follow each other while
    there is time:

    1. the fewest slots (an edge colouring);
    2. the few permutations of which the demand is a sum, if it is one;
    3. slots chosen one after the other, by three rules.

    Parameters
    ----------
    entries, lines
        The demand, and the sums of its lines.
    first
        A plan that serves the demand; it is returned if no rule makes a shorter one in time.
    delay
        Ticks before each slot.
    deadline
        When to stop, by `counted_time`. A rule that is not at its end by then is lost.

    Returns
    -------
    Plan
        The plan of least cost, that is, of the least ticks of slots and delays.
    """
    rules: list[Callable[[], Plan | None]] = [
        partial(cover_fewest_slots, entries, lines, deadline=deadline),
        partial(cover_planted, entries, deadline=deadline),
    ]
    for rule in (STABLE, CRITICAL, MEDIAN):
        # No slot is shorter than a tick.
        terms = CoverTerms(delay, 1, rule)
        rules.append(partial(cover_listed_by_rule, entries, terms, deadline))
    best = first
    try:
        for cover in rules:
            if counted_time() >= deadline:
                break
            plan = cover()
            if plan is not None and plan.cost(delay) < best.cost(delay):
                best = plan
    except TimeUp:
        pass
    return best


def _best_slots_s(size: Size) -> float:
    """Estimate the time of a cover by the best slots where entries differ, as in most demands."""
    return 4e-8 * size.n_entries * size.degree


def yield_plans(task: QuickTask, best: Plan, *, endless: bool) -> Iterator[Plan]:
    """Make plan after plan for a demand: first by several rules, then by changes of the best.

    A plan is a list of slots, matchings that are held for some ticks. A rule makes a whole plan. A
    move, of which rounds follow, takes some slots of a plan out and makes new ones for the demand
    that they served.

    Parameters
    ----------
    task
        The demand in ticks, the delay, the shortest slot and the deadline.
    best
        A plan that is known. It is not yielded, but moves may begin at it.
    endless
        Whether rounds of moves go on until the deadline; else there are `_ROUNDS` of them.

    Yields
    ------
    Plan
        Plans that serve the demand, each with equal slots put together and without surplus.

    Raises
    ------
    TimeUp
        At the deadline, or when a short rule does not fit before it.
    """
    size = Size.of(task.demand, task.delay)
    plans = [best]
    for _, plan in try_rules(task, best, size):
        if plan is not None:
            plans.append(plan)
            yield plan
    yield from yield_rounds(task, plans, size, endless=endless)


class RuleTry(NamedTuple):
    """A rule that has had its turn, and what came of it."""

    rule: PlanRule
    plan: Plan | None
    """A plan that serves the demand. None if the rule is not for such a demand, or if its plan
    would have been longer than one that is known."""


def try_rules(
    task: QuickTask, best: Plan, size: Size, *, grace_s: float = 0.0
) -> Iterator[RuleTry]:
    """Let each rule that fits before the deadline make a plan.

    A plan is a list of slots, matchings that are held for some ticks. A rule makes a whole plan,
    and has an estimate of the seconds that it takes; rules run in a fixed order. One that does not
    fit is left out if it takes long, so that moves get the time. At a short one the end is near,
    and the work stops.

    Parameters
    ----------
    task
        The demand in ticks, the delay, the shortest slot and the deadline.
    best
        A plan that is known.
    size
        The size of the demand, from which estimates follow.
    grace_s
        A rule that has begun may end so many seconds after the deadline.

    Yields
    ------
    RuleTry
        The rule, and its plan with equal slots put together and without surplus.

    Raises
    ------
    TimeUp
        When a rule is not done in time, or when a short rule does not fit before the deadline.
    """
    least_cost = best.cost(task.delay)
    task_of_rules = task._replace(deadline=task.deadline + grace_s)
    for rule in list_rules_in_order(size):
        estimate_s = rule.estimate_s(size)
        if estimate_s > _NEVER_S:
            continue
        if counted_time() + estimate_s / rule.overrun > task.deadline:
            if estimate_s < _WORTH_WAITING_S:
                raise TimeUp
            continue
        raw_plan = build_if_short(rule, task_of_rules, least_cost)
        if raw_plan is None:
            yield RuleTry(rule, None)
            continue
        plan = finish_plan(raw_plan, task.demand, task.shortest)
        least_cost = min(least_cost, plan.cost(task.delay))
        yield RuleTry(rule, plan)


def yield_rounds(
    task: QuickTask, plans: list[Plan], size: Size, *, endless: bool
) -> Iterator[Plan]:
    """Improve plans by small changes, again and again, and hand out each plan that results.

    A plan is a list of slots, matchings that are held for some ticks. A move takes some slots of a
    plan out, and makes new ones for the demand that they served. A round is a number of moves,
    about half a millisecond; each round gives one plan.

    The search begins with the best plan, and each round with the result of the one before. After
    100 moves without gain it goes on from one of `plans` that is drawn; the next time after 125
    moves, then 150, and so on. The random numbers are the same at each call.

    Parameters
    ----------
    task
        The demand in ticks, the delay, and the deadline, at which `TimeUp` is raised.
    plans
        Plans that serve the demand, without surplus.
    size
        The size of the demand, from which the number of moves in a round follows.
    endless
        Whether rounds go on until the deadline; else there are `_ROUNDS` of them.

    Yields
    ------
    Plan
        Plans that serve the demand, each with equal slots put together and without surplus.
    """
    # Slots in one order, since random numbers belong to their places.
    starts = [tidy(plan) for plan in plans if len(plan.ticks) > 1]
    if not starts:
        return
    rng = np.random.default_rng(0)
    moves_per_round = count_moves_of_a_round(size)
    search = make_move_search(task, size)
    patience = _PATIENCE
    current = min(starts, key=lambda plan: plan.cost(task.delay))
    n_in_vain = 0
    for _ in count() if endless else range(_ROUNDS):
        remaining_s = task.deadline - counted_time()
        if remaining_s <= 0:
            raise TimeUp
        plan = search.play_round(current, remaining_s)
        if plan is None:
            raise TimeUp
        yield plan

        # From plans of the same time the search goes on as well: that leads out of plateaus.
        is_gain = plan.cost(task.delay) < current.cost(task.delay)
        n_in_vain = 0 if is_gain else n_in_vain + moves_per_round
        current = plan
        if n_in_vain >= patience or len(current.ticks) < 2:
            current = starts[int(rng.integers(len(starts)))]
            n_in_vain = 0
            patience += _MORE_PATIENCE


def count_moves_of_a_round(size: Size) -> int:
    """Return how many moves take about half a millisecond, by an estimate; one at least."""
    return int(np.clip(_ROUND_S / (_best_slots_s(size) / 4), 1, _MOST_MOVES))


def make_move_search(task: QuickTask, size: Size) -> MoveSearch:
    """Prepare rounds of moves for a demand.

    A move takes some slots of a plan out, and covers what they served anew by one of these rules:
    slots of the best rating if these are found quickly, the heaviest matchings, or slots that
    serve all critical lines; and stable matchings where the others take long.

    Parameters
    ----------
    task
        The demand in ticks, the delay and the shortest slot.
    size
        The size of the demand, from which the time of rules is estimated.

    Returns
    -------
    MoveSearch
        With rounds of `count_moves_of_a_round` moves.
    """
    rules = [RATED, RATED, CRITICAL, MEDIAN]
    if _best_slots_s(size) > _SECONDS_OF_A_MOVE:
        rules = [STABLE]
    move_task = MoveTask(task.demand, task.delay, task.shortest, np.array(rules))
    return MoveSearch(move_task, count_moves_of_a_round(size))


def _patch_previous(task: QuickTask, previous: Plan) -> Plan:
    """Make a plan for a demand from the plan of a similar one: its slots, and new ones besides.

    A slot is a matching that is held for some ticks. The slots of the former plan serve a part of
    the demand. New slots serve the rest: those that serve most for their time if these are found
    in less than a millisecond, or else by the rule "heaviest first". At last slots are shortened
    to what the demand needs.

    Parameters
    ----------
    task
        The demand in ticks, the delay and the shortest slot. Its deadline has no effect, so that
        the plan does not depend on how much time there is.
    previous
        Slots of any plan of as many ports.

    Returns
    -------
    Plan
        Slots that serve the whole demand, the longest ones first.
    """
    unserved = np.maximum(task.demand - serve(previous), 0)
    patch = task._replace(demand=unserved, deadline=np.inf)
    if _best_slots_s(Size.of(unserved)) < _GRACE_S:
        plan = join(previous, cover_by_rule(patch, RATED))
    else:
        plan = join(previous, heaviest_first(patch))
    return finish_plan(plan, task.demand, task.shortest)


def finish_plan(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put equal slots together, shorten slots, and take out circuits that no demand needs.

    Parameters
    ----------
    plan
        Slots that serve the demand.
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    shortest
        No slot of the result is shorter, in ticks.

    Returns
    -------
    Plan
        Slots that serve the demand, the longest ones first.
    """
    return only_demanded(trim(tidy(plan), demand, shortest), demand, shortest)
