"""The method `portfolio`, several covers, and the search of `best`, which rebuilds parts of them.

`portfolio` takes the plans of the rules that fit into the time and keeps the best. The search of
`best` goes on from there: some slots are taken out, their service is covered anew by a rule drawn
at random, and the result is kept if it is not longer (a large neighbourhood search).

A *rule* is a way to make a whole plan, with an estimate of the seconds that it takes. A *move*, or
*rebuild*, covers a part of a plan anew. A *rating* is how slots are compared by a rule that takes
the best slot again and again (`Rating`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from optmatch.model import Clock, Limits, TimeUp, counted_time
from optmatch.solvers.demands.assignment import CHOICES
from optmatch.solvers.demands.covering import ECLIPSE, Rating
from optmatch.solvers.demands.covers import cover_by, yield_solstice, yield_tms
from optmatch.solvers.demands.plans import Plan, join, serve, tidy, trim
from optmatch.solvers.demands.quick_cover import (
    count_moves_of_a_round,
    deadline_before_finish,
    make_first_plan,
    make_move_search,
    try_rules,
    yield_rounds,
)
from optmatch.solvers.demands.quick_rules import (
    FIRST,
    SHORTENED,
    PlanRule,
    QuickTask,
    Size,
    list_rules_in_order,
)
from optmatch.solvers.demands.scheduling import CoverTask, is_plain
from optmatch.solvers.params import DemandParams

RATINGS = (
    Rating(1.0, 3.0, 8),
    Rating(0.5, 10.0),
    Rating(1.0, 10.0),
    Rating(0.5, 3.0),
    ECLIPSE,
)
_STUCK = 400  # rebuilds that bring nothing, until the search goes on from the plan of a rule
_MANY = 6000  # entries: from so many on, a move that covers most of them anew takes seconds

_SHARE_OF_RULES = 0.8
"""Of the time that is left, a rule may be estimated to take so much. With a half the best rule for
sixteen permutations of 384 ports, a decomposition, was left out of 50 ms, which cost 14 %."""

_OVERRUN_OF_TMS = 2.5
"""The method TMS takes an eighth to six tenths of its estimate, and ends when time is up. It was
0.4 to 3.2 % better for three of 852 demands where it was left out."""

SHARE_OF_SCHEDULE = 0.25
"""The search begins with all that `schedule` does in this part of the time, to be no worse than
that. Without this, `schedule` in a quarter of the time was 0.2 to 1 % better for one demand of a
hundred."""

_SHARE_OF_MOVES = 0.3
"""The moves that belong to it go on for so long, since `best` has more to do beside them."""

_SHARE_OF_QUICK_MOVES = 0.5
"""The same where moves take less than half a millisecond: then they lead further than others. With
a quarter, `schedule` was 0.1 to 0.3 % better for two of 124 demands of 3 to 14 ports."""

_SHARE_OF_OTHER_RULES = 0.95
"""As `_SHARE_OF_RULES`, after the search has begun as `schedule` does: the moves that a rule has
to leave time for have been made."""

_SHARE_OF_ECLIPSE = 0.25
"""A cover by Eclipse that is too slow for the demand gets this part of the time. Without it, the
method of this name, cut short after a quarter of the time, was 1.3 % better for heavy tails of 279
ports in 0.1 s."""

_LONGEST_RULE_S = 10.0
"""Without any limit, rules that are estimated to take longer are left out."""

_ALL_MOVES_S = 20.0
"""Without any limit, all moves together take about so long at most."""


class TimedRule(NamedTuple):
    """A rule of the portfolio, and what it is estimated to take, in seconds."""

    estimate_s: float  # a function of the size of the demand alone, whatever machine it is
    build: Callable[[CoverTask], Iterator[Plan]]
    quick_rule: PlanRule | None = None  # the rule of `schedule`, for schedulers, that this one is
    overrun: float = 1.0  # by which factor the estimate may exceed the time; see `PlanRule`


def list_rules(work: CoverTask) -> list[TimedRule]:
    """List all rules of the portfolio, with estimates of their time, as they run.

    A rule makes a whole plan of slots. First comes the heaviest-first rule, then all others, the
    quickest first: the rules of `quick_rules`, those of papers (TMS, Solstice), and covers that
    take the slot of the best rating again and again.

    Parameters
    ----------
    work
        The demand in ticks, and the delay.

    Returns
    -------
    list of TimedRule
        Each with an estimate in seconds that is a function of the numbers of ports, of entries and
        of the most partners of a port (degree) alone, so that it is the same on every machine.
    """
    size = Size.of(work.demand, work.delay)
    square = size.n_ports**2
    quick_rules = [
        TimedRule(
            rule.estimate_s(size),
            partial(_yield_quick, rule=rule),
            quick_rule=rule,
            overrun=rule.overrun,
        )
        for rule in list_rules_in_order(size)
    ]
    rules = [
        TimedRule(_estimate_rated_s(size, rating), partial(_yield_rated, rating=rating))
        for rating in RATINGS
    ]
    # Measured on demands of 32 to 256 ports, as those of `quick_rules`.
    rules += [
        TimedRule(
            0.005 + 1e-9 * square * (500 + 20 * size.degree), yield_tms, overrun=_OVERRUN_OF_TMS
        ),
        TimedRule(0.005 + 1e-9 * square * (10_000 + 300 * size.degree), yield_solstice),
    ]

    # Rules of `schedule` keep their order, in which the one that decides comes early. The others
    # come where their estimates belong.
    first = TimedRule(0.0, partial(_yield_quick, rule=FIRST), quick_rule=FIRST)
    ordered = [first]
    rules.sort(key=lambda rule: rule.estimate_s)
    for quick_rule in quick_rules:
        while rules and rules[0].estimate_s < quick_rule.estimate_s:
            ordered.append(rules.pop(0))
        ordered.append(quick_rule)
    return [*ordered, *rules]


def _estimate_rated_s(size: Size, rating: Rating) -> float:
    """Estimate the seconds of a cover by slots of the best rating, for a demand of some size.

    A cover has about as many slots as the busiest port has entries (degree). Each looks at all
    places of the matrix, and at all entries for as many lengths as the rating compares.
    """
    places_s = 2e-7 * size.n_ports**2 * size.degree
    entries_s = 5e-9 * size.n_ports * size.n_entries * size.degree
    return rating.choices / CHOICES * (places_s + entries_s)


def _yield_quick(work: CoverTask, rule: PlanRule) -> Iterator[Plan]:
    """Yield the plan of a quick rule, unless it has none or needs more time than is left.

    Parameters
    ----------
    work
        The demand in ticks, the delay, the clock, and the ticks above which a plan is of no use.
    rule
        The rule.

    Yields
    ------
    Plan
        One plan that serves the demand, or none at all.
    """
    deadline = counted_time() + work.clock.remaining_s
    task = QuickTask(work.demand, work.delay, work.shortest, deadline, work.useful_ticks)
    try:
        plan = rule.build(task)
    except TimeUp:
        return
    if plan is not None:
        yield plan


def _yield_rated(work: CoverTask, rating: Rating) -> Iterator[Plan]:
    """Yield one plan, the cover that takes the slot of the best rating again and again."""
    yield cover_by(work, rating)


def _tidy_and_trim(work: CoverTask, plan: Plan) -> Plan:
    """Put equal slots of a plan together, and shorten slots to what the demand needs."""
    return trim(tidy(plan), work.demand, work.shortest)


def _is_unlimited(work: CoverTask) -> bool:
    """Tell whether nothing but the number of moves ends the search."""
    return work.clock.limits.time_s is None and work.clock.limits.iterations is None


class PlanOfRule(NamedTuple):
    """A plan, and the rule that made it."""

    rule: TimedRule
    plan: Plan


def _yield_plans_of_rules(
    work: CoverTask, share: float = _SHARE_OF_RULES, tried: Collection[PlanRule] = ()
) -> Iterator[PlanOfRule]:
    """Make one plan by each rule for which there is time.

    A rule makes a whole plan of slots that serve the demand, and has an estimate of the seconds
    that it takes. The first rule always runs. Each other one runs

    - with a limit of time: if its estimate is at most a share of the time that is left (more by a
      factor, its ``overrun``, for rules that see early whether they will be done), so that the
      search that follows has some;
    - without any limit: if its estimate is at most `_LONGEST_RULE_S`.

    Some rules are those of `schedule`, the function for schedulers with milliseconds. Where slots
    and delays alone decide how long a plan is, one of these may give up and make no plan, if that
    would be longer by a factor of `SHORTENED` than another one of them.

    Parameters
    ----------
    work
        The demand in ticks, delay and shortest slot, and the clock.
    share
        The part of the time that is left which a rule may take.
    tried
        Rules of `schedule` that have had their turn and are left out. TMS comes first then, since
        it has little in common with them, and is good for heavy tails.

    Yields
    ------
    PlanOfRule
        The rule, and its plan, in which equal slots are one and none is longer than needed.
    """
    longest_s = _LONGEST_RULE_S if _is_unlimited(work) else np.inf
    may_give_up = is_plain(work.problem)
    rules = list_rules(work)
    if tried:
        rules = [rule for rule in rules if rule.quick_rule not in tried]
        rules.sort(key=lambda rule: rule.build is not yield_tms)
    for number, rule in enumerate(rules):
        affordable_s = min(longest_s, rule.overrun * share * work.clock.remaining_s)
        is_first_plan = number == 0 and not tried
        if not is_first_plan and rule.estimate_s > affordable_s:
            continue
        for raw_plan in rule.build(work):
            plan = _tidy_and_trim(work, raw_plan)
            if may_give_up and rule.quick_rule is not None:
                # Other rules do not count, so that these make the same plans as in `schedule`.
                useful_ticks = min(work.useful_ticks, SHORTENED * plan.cost(work.delay))
                work = work._replace(useful_ticks=useful_ticks)
            yield PlanOfRule(rule, plan)


def yield_all(work: CoverTask) -> Iterator[Plan]:
    """Yield the plans of method `portfolio`: those of all rules that fit into the time."""
    for _, plan in _yield_plans_of_rules(work):
        yield plan


@dataclass
class PlansFound:
    """What a search for a short plan has found so far."""

    delay: int
    """Ticks before each slot."""
    best: Plan | None
    """The plan of least cost: ticks of its slots, and a delay for each; None without any."""
    of_rules: list[Plan] = field(default_factory=list)
    """The plans of rules, from which the search goes on after many changes without gain."""
    tried: list[PlanRule] = field(default_factory=list)
    """The rules of `schedule` that have had their turn."""

    def take(self, plan: Plan) -> None:
        """Keep a plan if it is better than the best one."""
        if self.best is None or plan.cost(self.delay) < self.best.cost(self.delay):
            self.best = plan


def _search_as_schedule(work: CoverTask, found: PlansFound) -> Iterator[Plan]:
    """Begin a search with all plans that the function `schedule` makes in a quarter of the time.

    `schedule` is for schedulers, and takes milliseconds. This search has more time, and should
    never end with a longer plan than `schedule` in a quarter of that time. It therefore begins
    with the same steps in the same order:

    - *rules*, which make a whole plan each; chosen for a deadline after `SHARE_OF_SCHEDULE` of the
      time;
    - *moves*, which make some slots of a plan anew. They have a little longer than that, so that
      no fewer of them are made.

    Parameters
    ----------
    work
        The demand in ticks, with the clock of the search, which has a limit of time.
    found
        It is changed: ``best`` is the best plan so far, ``of_rules`` gets the plans of rules, and
        ``tried`` the rules.

    Yields
    ------
    Plan
        Plans that serve the demand.
    """
    # Quick moves, several of which fit into half a millisecond, get more of the time.
    limit_s = work.clock.limits.time_s
    assert limit_s is not None
    share = _SHARE_OF_MOVES
    if count_moves_of_a_round(Size.of(work.demand, work.delay)) > 1:
        share = _SHARE_OF_QUICK_MOVES
    moves_s = min(share * limit_s, work.clock.remaining_s)
    rules_s = min(SHARE_OF_SCHEDULE * limit_s, moves_s)
    yield from yield_as_schedule(work, found, rules_s=rules_s, moves_s=moves_s)


def yield_as_schedule(
    work: CoverTask, found: PlansFound, *, rules_s: float, moves_s: float
) -> Iterator[Plan]:
    """Make the plans that `schedule`, the function for schedulers, makes, in the same order.

    A first plan is made quickly, then one by each rule that fits into the time; then moves take
    some slots of a plan out, and make new ones for the demand that they served. All of these
    follow from the demand and the deadline, since the random numbers are the same at each call.

    Parameters
    ----------
    work
        The demand in ticks, the delay, the shortest slot and the clock.
    found
        Gets the plans and the rules.
    rules_s
        Rules have to fit into so many seconds from now, by their estimates.
    moves_s
        When moves end, in seconds from now; no less than `rules_s`. Rules that have begun may take
        until then, too.

    Yields
    ------
    Plan
        Plans that serve the demand.
    """
    began_s = counted_time()
    elapsed_at_end_s = work.clock.elapsed_s + moves_s
    task = QuickTask(work.demand, work.delay, work.shortest)
    size = Size.of(work.demand, work.delay)
    first = make_first_plan(task)
    found.take(first)
    found.of_rules.append(first)
    found.tried.append(FIRST)
    yield first

    # Both raise `TimeUp` when they have no more time.
    with suppress(TimeUp):
        task = task._replace(deadline=deadline_before_finish(began_s + rules_s, first))
        for rule, plan in try_rules(task, first, size, grace_s=moves_s - rules_s):
            found.tried.append(rule)
            if plan is not None:
                found.take(plan)
                found.of_rules.append(plan)
                yield plan
        task = task._replace(deadline=began_s + moves_s)
        for plan in yield_rounds(task, list(found.of_rules), size, endless=True):
            found.take(plan)
            yield plan
            if work.clock.elapsed_s >= elapsed_at_end_s:
                return


def rebuild(work: CoverTask, rebuilds: int = DemandParams().rebuilds) -> Iterator[Plan]:
    """Make plan after plan for a demand, at first by rules, then by changes of the best one.

    A plan is a list of slots, matchings that are held for some ticks each. Its cost is the sum of
    these ticks, with a delay for each slot. There are three phases:

    1. If time is limited, a part of it is spent as `schedule`, the function for schedulers with
       milliseconds, would spend it: quick rules make a whole plan each, and then some slots of the
       best plan are taken out, and the demand that they served gets new slots (a move).
    2. Each other rule that fits into the time makes a whole plan.
    3. A large neighbourhood search: moves with slower ways to find new slots, too (rebuilds).

    Parameters
    ----------
    work
        The task, of which these fields are used here:

        - `delay`: ticks before each slot;
        - `former`: a plan from an earlier solution that serves the demand, or None;
        - `rng`: the random numbers.

        Demand, shortest slot and clock are used by the functions that make the plans.
    rebuilds
        The most rebuilds if neither time nor iterations are limited.

    Yields
    ------
    Plan
        Each plan as it is made, good or bad; all serve the demand. The caller keeps the best.
    """
    found = PlansFound(work.delay, work.former)
    if work.clock.limits.time_s is not None:
        yield from _search_as_schedule(work, found)
    yield from _try_other_rules(work, found)
    yield from _rebuild_parts(work, found, rebuilds)


def _try_other_rules(work: CoverTask, found: PlansFound) -> Iterator[Plan]:
    """Make one plan by each rule that fits into the time and has not had its turn.

    Where ports are many, a cover by the rule of Eclipse does not fit. But it takes the best slots
    first, so that a part of it is of use, too: it gets `_SHARE_OF_ECLIPSE` of the time, and a
    quick rule serves what it leaves. With a limit of time, that much is kept from the other rules.

    Parameters
    ----------
    work
        The demand in ticks, delay, shortest slot and clock.
    found
        What the search has found; it gets the plans.

    Yields
    ------
    Plan
        Plans that serve the demand.
    """
    share = _SHARE_OF_RULES
    if found.tried:
        share = _SHARE_OF_OTHER_RULES
    if found.of_rules and is_plain(work.problem):
        least_ticks = min(plan.cost(work.delay) for plan in found.of_rules)
        work = work._replace(useful_ticks=SHORTENED * least_ticks)

    # A whole cover by Eclipse does not fit if its estimate is above a rule's share of the time.
    # `eclipse_s` is then the time after which it is cut short, else 0.
    limit_s = work.clock.limits.time_s
    remaining_s = work.clock.remaining_s
    size = Size.of(work.demand, work.delay)
    eclipse_s = 0.0
    if limit_s is not None and _estimate_rated_s(size, ECLIPSE) > share * remaining_s:
        eclipse_s = min(_SHARE_OF_ECLIPSE * limit_s, remaining_s)
    of_rules = work
    if eclipse_s > 0:
        of_rules = work._replace(clock=begin_part(work.clock, remaining_s - eclipse_s))
    for _, plan in _yield_plans_of_rules(of_rules, share, found.tried):
        found.take(plan)
        found.of_rules.append(plan)
        yield plan

    # Eclipse follows if there is still time for a useful part of it: half of what was kept for
    # it, besides the quick rule that serves the rest.
    if eclipse_s > 0 and FIRST.estimate_s(size) < work.clock.remaining_s - eclipse_s / 2:
        part = work._replace(clock=begin_part(work.clock, eclipse_s))
        plan = _tidy_and_trim(work, cover_by(part, ECLIPSE))
        found.take(plan)
        found.of_rules.append(plan)
        yield plan


def begin_part(clock: Clock, seconds: float) -> Clock:
    """Start a clock for a part of the time of another one, which ends no later than that."""
    return Clock(Limits(time_s=max(0.0, seconds)), clock.now, clock.now(), outer=clock)


def _rebuild_parts(work: CoverTask, found: PlansFound, rebuilds: int) -> Iterator[Plan]:
    """Change parts of the best plan at random, as long as there is time for that.

    A plan is a list of slots, matchings that are held for some ticks. A rebuild takes some slots
    out, and makes new ones for the demand that they served. A result that costs no more is the
    next one to be changed. After `_STUCK` rebuilds without any gain the search goes on from the
    plan of a rule that is drawn.

    Parameters
    ----------
    work
        The demand in ticks, the delay, the random numbers and the clock.
    found
        The best plan so far, and the plans of rules; it is not changed.
    rebuilds
        The most rebuilds if neither time nor iterations are limited.

    Yields
    ------
    Plan
        Each result, good or bad; all serve the demand.
    """
    moves = _Moves(work)
    current = found.best
    n_moves = 0
    n_in_vain = 0

    # A plan of one slot has no part to rebuild.
    while current is not None and len(current.ticks) > 1 and moves.fit():
        if _is_unlimited(work) and n_moves >= moves.affordable(rebuilds):
            break
        n_moves += 1
        rebuilt = moves.rebuild_part(current)
        if rebuilt is None:  # time is up
            return

        # Plans of the same cost are gone on from, too: that leads out of plateaus.
        is_gain = rebuilt.cost(work.delay) < current.cost(work.delay)
        n_in_vain = 0 if is_gain else n_in_vain + 1
        if rebuilt.cost(work.delay) <= current.cost(work.delay):
            current = rebuilt
        yield rebuilt
        if n_in_vain > _STUCK and found.of_rules:
            current = found.of_rules[int(work.rng.integers(len(found.of_rules)))]
            n_in_vain = 0


class _Moves:
    """The moves of the search, each of which covers a part of a plan anew.

    There are two kinds. A "matrix" move takes slots out and covers their service by a `Rating`
    over the full matrix (`_replace_some`): slower, with assignments. An "entries" move is a round
    of the moves of `schedule`, which cover the list of entries by quick rules (`MoveSearch`).
    """

    def __init__(self, work: CoverTask) -> None:
        """Estimate from the size of the demand how long a move of each kind takes.

        Parameters
        ----------
        work
            The demand in ticks, with the clock and the random numbers of the search.
        """
        self._work = work
        self._size = Size.of(work.demand, work.delay)
        task = QuickTask(work.demand, work.delay, work.shortest)
        self._search = make_move_search(task, self._size)
        # Seconds for a cover of the whole demand, of the same form as the estimate for ratings in
        # `list_rules`. A cover has about as many slots as the busiest port has entries (degree);
        # each looks at all places of the matrix and finds assignments. A move covers only a part,
        # about a quarter. It is a first guess: times that are measured replace it in `_took_s`.
        matrix_s = 2e-7 * self._size.n_ports**2 * self._size.degree + 2e-9 * (
            self._size.n_ports * self._size.n_entries * self._size.degree
        )
        self._estimate_s = {"matrix": matrix_s / 4, "entries": 0.0}
        """How long a move of each kind takes; a move covers a part of the demand."""
        self._took_s = dict(self._estimate_s)
        """How long the last one took."""

    def fit(self) -> bool:
        """Tell whether the time that is left suffices for a move."""
        return self._work.clock.remaining_s > min(self._took_s.values())

    def affordable(self, rebuilds: int) -> int:
        """Return how many moves are made without a limit: fewer where each takes long.

        That follows from estimates alone, so that the result is a function of the problem.
        """
        longest_s = max(1e-6, self._estimate_s["matrix"])
        return min(rebuilds, max(2, int(_ALL_MOVES_S / longest_s)))

    def rebuild_part(self, plan: Plan) -> Plan | None:
        """Change a part of a plan at random: take some slots out, and make new ones instead.

        A plan is a list of slots, matchings that are held for some ticks. There are two kinds of
        changes, one of which is drawn:

        - "matrix": the demand that the slots served is covered by slots whose matchings are best
          assignments over the full matrix, which is slow;
        - "entries": several quick changes, which work on the list of entries.

        With a limit, a kind is left out if its last change took longer than the time that is left.
        Without any, "matrix" changes are left out if they are estimated to take long, so that the
        result does not depend on the clock.

        Parameters
        ----------
        plan
            Slots that serve the demand, two at least.

        Returns
        -------
        Plan or None
            A plan that serves the demand, with some slots that are new, perhaps longer than
            `plan`; None if time is up.
        """
        work = self._work
        kinds = [kind for kind, took_s in self._took_s.items() if took_s < work.clock.remaining_s]
        if _is_unlimited(work):
            kinds = [kind for kind in kinds if self._estimate_s[kind] < _LONGEST_RULE_S / 10]

        # The time that a move takes says whether another one of its kind fits later on.
        kind = "entries" if "matrix" not in kinds else str(work.rng.choice(kinds))
        began_s = work.clock.elapsed_s
        if kind == "matrix":
            rebuilt = _tidy_and_trim(work, _replace_some(work, plan))
        else:
            remaining_s = np.inf if _is_unlimited(work) else work.clock.remaining_s
            round_plan = self._search.play_round(plan, remaining_s)
            if round_plan is None:
                return None
            rebuilt = round_plan
        self._took_s[kind] = work.clock.elapsed_s - began_s
        return rebuilt


def _replace_some(work: CoverTask, plan: Plan) -> Plan:
    """Replace some slots of a plan, mostly those of little use, by new ones.

    A slot is a matching that is held for some ticks. Its use is the demand that it serves, divided
    by its ticks and the delay. From 2 to 10 slots, or up to all, are taken out, those first that
    are of little use; chance has a part in this order. The demand that the others do not serve
    gets new slots. These are chosen by a rating: by what they serve for their time, with more
    weight for busy ports and for circuits that are finished.

    Parameters
    ----------
    work
        The demand in ticks, and the random numbers, which draw how many slots go, how much chance
        counts beside their use, and the rating of the cover.
    plan
        Slots that serve the demand.

    Returns
    -------
    Plan
        The slots that stay, then those of a cover, with a rating that is drawn, of the demand that
        they leave.
    """
    # The use of each slot. A circuit serves its demand, or as much as fits into the slot.
    rng = work.rng
    ports = np.arange(len(work.demand))
    demand_of_circuit = np.where(plan.matchings >= 0, work.demand[ports, plan.matchings], 0)
    served = np.minimum(demand_of_circuit, plan.ticks[:, None]).sum(axis=1)
    use = served / (plan.ticks + work.delay)
    # Chance counts beside use, so that moves differ; how much it counts is drawn as well.
    rank = use / use.max() + rng.random(len(plan.ticks)) * rng.choice([0.3, 1.0, 5.0])

    # How many slots go, those of the lowest rank. Few are quick to cover, many lead further.
    is_small = rng.random() < 0.5 or np.count_nonzero(work.demand) > _MANY
    most = min(len(plan.ticks), 10) if is_small else len(plan.ticks)
    n_out = int(rng.integers(2, max(3, most) + 1))
    base = plan.take(np.argsort(rank, kind="stable")[n_out:])
    unserved = np.maximum(work.demand - serve(base), 0)
    rating = Rating(
        finish_bonus=float(rng.choice([0.5, 1.0])),
        pressure=float(rng.choice([3.0, 10.0])),
        choices=int(rng.choice([6, 12, 20])),
    )
    return join(base, cover_by(work, rating, unserved))
