"""The search for a short plan: one loop of rules and moves for `schedule`, `best` and `portfolio`.

Rules come in the order of their estimated time, and moves fill the time until a longer rule is
worth its own. The order does not depend on the limit: what a shorter limit finds is found first.

A *rule* makes plans from nothing, each a list of matchings and of the ticks that they are held. A
*move* takes some of these slots out of a plan and covers anew what they served. *First fit*, the
quickest rule, puts each entry, the largest first, into the first slot where its ports are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count

import numpy as np
from numpy.typing import NDArray

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.entry_covers import RATED, yield_cover
from optmatch.solvers.demands.first_fit import cover_first_fit, cover_matrix_first_fit
from optmatch.solvers.demands.moves import MoveSearch
from optmatch.solvers.demands.plans import Plan, finish_plan, join, serve, tidy
from optmatch.solvers.demands.rules import RULES, PlanRule
from optmatch.solvers.demands.tasks import CoverTask, Size

_GRACE_S = 0.0008
"""The first rules may prolong the work by so much, if they are estimated to take no longer."""
_MATRIX_PORTS = 4096
"""Plans of more ports are made of listed entries alone: a full matrix of them has over 128 MB."""
_FINISH_S_PER_PLACE = 7e-8
"""The time to put equal slots together and to trim them, for each slot and port; measured
with 64 to 1,024 ports (``benchmarks/demand_constants.py portfolio._FINISH_S_PER_PLACE 3e-8 1.4e-7
--ports 256``)."""
_MANY_PLACES = 1 << 16
"""The first plan of full matrices of so many places, 256 ports, is made without a list."""
_FEW_ENTRIES = 10_000
"""A former plan of so few entries is patched even if there is no time: in a millisecond."""
_ROUNDS = 50
"""Rounds of moves of `schedule` without a limit of time."""
_PATIENCE = 100
_MORE_PATIENCE = 25
"""After so many moves in vain the search goes on from another plan, and each time it has some more
moves for that. In 30 to 100 ms and on 53 demands of 3 to 40 ports without any such step plans were
0.3 to 0.9 % above the best that were found, with 100 moves 0.15 to 0.3 %, with 400 moves 0.08 %
(up to 8 ports) to 0.3 %, and with 2,000 moves 0.04 % to 0.7 %
(``benchmarks/demand_constants.py portfolio._PATIENCE 400 2000``)."""
_SHORTENED = 1.05
"""By which factor a plan may be longer than another one before its slots are shortened."""
_WAITING = 0.5
"""A rule begins when so much of its estimate has passed; until then moves improve a plan."""
_MOST_OF_ESTIMATE = 4.0
"""A rule ends after so often its estimate, or after `_SHARE_OF_RULE` of the time that is left if
that is more. Rules take 0.2 to 1.6 times their estimates at half of the demands of
`benchmarks/demand_rules.py`, and less than 4 times at nine of ten."""
_SHARE_OF_RULE = 0.25
"""Each rule may take this part of the time that is left, whatever its estimate, which is the time
of compiled kernels on a free machine."""
_LONGEST_RULE_S = 10.0
"""Without any limit, rules that are estimated to take longer are left out."""
_LONGEST_MOVE_S = 1.0
"""There are no moves where the whole demand is estimated to take longer: no clock is read, and
Ctrl-C has to wait, while one is made. 300 ports that all have a demand for each other take so
long."""
_ALL_MOVES_S = 20.0
"""Without any limit, all moves together take about so long at most."""


def plan_matrix(
    demand: NDArray[np.int64],
    delay: int,
    deadline: float,
    previous: Plan | None = None,
    lines: LineSums | None = None,
) -> Plan:
    """Find a schedule for a full matrix that is as short as the time until the deadline allows.

    ``demand[source, destination]`` and the delay before each slot are in ticks, and `deadline` is
    a time of `counted_time`. `previous` is a former plan; `lines` are the sums of the matrix, if
    they are known. If there is time for the first plan alone, which is a first fit, the entries of
    a large matrix are not even listed.
    """
    if lines is None:
        lines = LineSums.of_matrix(demand)
    first: Plan | None = None
    if demand.size >= _MANY_PLACES:
        first = cover_matrix_first_fit(demand, lines)
        finish_s = _FINISH_S_PER_PLACE * first.matchings.size
        # It is the answer if no time is left to improve it, or if none can be shorter.
        is_late = previous is None and counted_time() >= deadline - finish_s
        if is_late or first.cost(delay) <= lines.bound(delay):
            return first
    task = CoverTask(
        entries=Entries.of_matrix(demand),
        lines=lines,
        full_matrix=demand,
        delay=delay,
        deadline=deadline,
    )
    return _find_best_plan(task, previous, first)


def plan_entries(
    entries: Entries, delay: int, deadline: float, previous: Plan | None = None
) -> Plan:
    """Find a schedule for listed entries, as short as the time until the deadline allows."""
    demand = entries.to_matrix() if entries.n_ports <= _MATRIX_PORTS else None
    task = CoverTask(
        entries=entries,
        lines=LineSums.of(entries),
        full_matrix=demand,
        delay=delay,
        deadline=deadline,
    )
    return _find_best_plan(task, previous, None)


def _find_best_plan(task: CoverTask, previous: Plan | None, first: Plan | None) -> Plan:
    """Return the best plan of the search, or the first one that meets the bound.

    `previous` is a plan of an earlier demand, which is patched for this one and competes with the
    others; `first` is the plan with which the search begins, None to make a first fit. Costs are
    ticks, with a delay for each slot.
    """
    if not len(task.entries.ticks):
        return Plan.of([], [], task.entries.n_ports)

    # Without a limit of time the answer is the same each time, after `_ROUNDS` rounds of moves.
    if task.deadline == np.inf:
        task = task._replace(n_moves=_ROUNDS)

    # A former plan is patched and competes, also after the deadline if that takes a millisecond.
    best: Plan | None = None
    is_quick_to_patch = len(task.entries.ticks) < _FEW_ENTRIES
    began_s = counted_time()
    has_time = is_quick_to_patch or began_s < task.deadline
    if previous is not None and task.full_matrix is not None and has_time:
        # All its slots stay at their lengths first, and new ones serve what they leave. These are
        # found by first fit, in next to no time, or by a cover with the best slots (RATED), which
        # is shorter, if that is estimated to take less than `_GRACE_S` seconds.
        unserved = np.maximum(task.demand - serve(previous), 0)
        patch = CoverTask.of(unserved, task.delay, task.shortest)
        new = cover_first_fit(patch.entries, patch.lines, task.shortest)
        if len(new.ticks) and Size.of(patch).best_slots_s < _GRACE_S:
            new = next(yield_cover(patch, RATED))

        # Slots of the same matching become one, and each is shortened to what this demand needs.
        best = finish_plan(join(previous, new), task.demand, task.shortest)

        # The deadline moves on by the time of the patch, so that the other plans lose none.
        grace_s = min(_GRACE_S, counted_time() - began_s)
        task = task._replace(deadline=task.deadline + grace_s)
    bound = task.lines.bound(task.delay)
    for plan in yield_plans(task, first=first):
        # The later one of equal plans is kept.
        if best is None or plan.cost(task.delay) <= best.cost(task.delay):
            best = plan
        if best.cost(task.delay) <= bound:
            break
    assert best is not None
    return best


def list_rules(size: Size) -> list[tuple[float, PlanRule]]:
    """Return the rules of the portfolio with their estimates in seconds, the quickest first.

    Rules without an estimate are methods by name alone, or are made in any case.
    """
    estimates = [(rule.estimate_s(size), rule) for rule in RULES if rule.estimate_s is not None]
    return sorted(estimates, key=lambda estimate: estimate[0])


def yield_plans(
    task: CoverTask, *, first: Plan | None = None, has_moves: bool = True
) -> Iterator[Plan]:
    """Make plan after plan for a demand: by all rules for which there is time, and by moves.

    A first fit is made in any case, unless it is there already: `first`. Rules follow, that of the
    shortest estimate first. Before each one moves improve the best plan so far, until the share
    `_WAITING` of its estimate has passed, and after the last one until the deadline. Without a
    deadline all rules come before the moves; with `has_moves` false there are rules alone.
    """
    size = Size.of(task)
    began_s = counted_time()
    is_timed = task.deadline < np.inf
    if first is None:
        first = cover_first_fit(task.entries, task.lines, task.shortest)
    plans = [first]
    yield first

    if task.former is not None:
        plans.append(task.former)

    # Moves end so early that a plan as large as the first one can still be finished before the
    # deadline. Rules may end up to `_GRACE_S` seconds after the start even if that is later.
    moves_deadline = task.deadline - _FINISH_S_PER_PLACE * first.matchings.size
    rules_deadline = max(moves_deadline, began_s + _GRACE_S) if is_timed else np.inf
    moves = _yield_moves(task._replace(deadline=moves_deadline), size, plans)
    for estimate_s, rule in list_rules(size):
        is_too_long = not is_timed and estimate_s > _LONGEST_RULE_S
        if is_too_long or (rule.needs_matrix and task.full_matrix is None):
            continue
        # A rule begins when the share `_WAITING` of its estimate has passed, if moves can be made
        # meanwhile, else now. It is left out if even its shortest time, the estimate divided by
        # ``rule.overrun``, does not fit in. Example: the limit is 20 s, and a rule of 16 s begins
        # at 8 s. It would end at 24 s, too late; with an overrun of 2 it may end at 16 s, and is
        # tried.
        begin_s = counted_time()
        if is_timed and has_moves and _WAITING * estimate_s > size.best_slots_s + _GRACE_S:
            begin_s = max(begin_s, began_s + _WAITING * estimate_s)
        if begin_s + estimate_s / rule.overrun > rules_deadline:
            continue

        # Until the rule begins, moves improve the best plan.
        while counted_time() < begin_s:
            moved = next(moves, None)
            if moved is None:
                break
            yield moved

        # The rule gives up on plans that are longer than useful. It has to end after the share
        # `_SHARE_OF_RULE` of the time that is left, or a multiple of its estimate if that is more.
        least_cost = min(plan.cost(task.delay) for plan in plans)
        useful_ticks = _SHORTENED * least_cost if task.is_plain else np.inf
        rule_deadline = rules_deadline
        if is_timed:
            share_s = _SHARE_OF_RULE * (rules_deadline - counted_time())
            most_s = max(share_s, _MOST_OF_ESTIMATE * max(estimate_s, 2 * _GRACE_S))
            rule_deadline = min(rules_deadline, counted_time() + most_s)

        # Its plans, with no slot longer than the demand needs where all entries are known.
        with suppress(TimeUp):
            for raw_plan in rule.build(
                task._replace(deadline=rule_deadline, useful_ticks=useful_ticks)
            ):
                plan = raw_plan
                if task.full_matrix is not None:
                    plan = finish_plan(raw_plan, task.demand, task.shortest)
                plans.append(plan)
                yield plan
    if has_moves:
        yield from moves


def _yield_moves(task: CoverTask, size: Size, plans: list[Plan]) -> Iterator[Plan]:
    """Improve the best plan by small changes, and hand out each plan that results.

    Whoever takes the plans may append others to `plans` meanwhile: the next round begins with one
    of them if it is shorter than all before. After many changes in vain the search goes on from a
    plan of the list that is drawn. It ends at the deadline, or after ``task.n_moves`` rounds of
    moves. There are none without a full matrix, nor where a cover of the whole demand is estimated
    to take over `_LONGEST_MOVE_S`.
    """
    if task.full_matrix is None or size.best_slots_s > _LONGEST_MOVE_S:
        return
    search = MoveSearch(task, size)

    # There are fewer rounds than the task allows where these would take over `_ALL_MOVES_S`.
    n_rounds: Iterable[int] = count()
    if task.n_moves is not None:
        n_rounds = range(min(task.n_moves, max(2, int(_ALL_MOVES_S / size.best_slots_s))))
    rng = np.random.default_rng(0)
    patience = _PATIENCE
    n_in_vain = 0
    n_known = 0
    current = plans[0]
    least_cost = np.inf
    for _ in n_rounds:
        for plan in plans[n_known:]:
            # Moves draw a random number for the place of each slot: with its slots in one order,
            # a plan leads to the same moves by whatever rule it was made.
            if plan.cost(task.delay) < least_cost:
                current = tidy(plan)
                least_cost = plan.cost(task.delay)
        n_known = len(plans)
        remaining_s = task.deadline - counted_time()
        if remaining_s <= 0:
            return
        moved = search.play_round(current, remaining_s)
        if moved is None:
            return
        yield moved

        # A round returns a plan that is no longer, and the search goes on from it also if it is
        # as long: that leads out of plateaus.
        is_gain = moved.cost(task.delay) < current.cost(task.delay)
        n_in_vain = 0 if is_gain else n_in_vain + search.moves_per_round
        least_cost = min(least_cost, moved.cost(task.delay))
        current = moved

        # After too many moves in vain, or from a plan of one slot, it goes on from any plan.
        if n_in_vain >= patience or len(current.ticks) < 2:
            current = tidy(plans[int(rng.integers(len(plans)))])
            n_in_vain = 0
            patience += _MORE_PATIENCE
