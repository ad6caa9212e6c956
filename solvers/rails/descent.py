"""Better ways for data by trying: one group of communications after another, as long as it helps.

CP-SAT weighs ways and orders together, but for a few dozen communications only. Here the order is
that of the best plan so far, and times are longest paths, so hundreds are no matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from optmatch.model import Clock
from optmatch.problems.rail_plan import RailPlan
from optmatch.solvers.rails.order import Order, best_order
from optmatch.solvers.rails.relays import Relays, Route, divert, plan_diverted, recognise

_LEAST = 1e-12
"""Relative gain that counts as one."""


def descend(relays: Relays, known: RailPlan, clock: Clock) -> RailPlan | None:
    """Change the ways of a plan as long as the step gets shorter.

    First all communications of one kind of a class together, then each by itself.

    Parameters
    ----------
    relays
        The folded job, and the ways around that its communications may take.
    known
        The plan to start from.
    clock
        Its iterations limit the choices that are tried.

    Returns
    -------
    RailPlan or None
        None if no better one is found.
    """
    talks = relays.talks
    ways = recognise(relays, known)
    chosen = {node: relays.routes[node][way - 1] for node, way in ways.items() if way}
    start = known.start_s[talks.folded.part].tolist()
    order = best_order(divert(relays, chosen), [start])
    if order is None:
        return None
    tried, gained = 0, True
    while gained:
        gained = False
        for change in _changes(relays):
            trial = {node: route for node, route in (chosen | change).items() if route}
            if trial == chosen:
                continue
            if clock.exceeded(tried):
                return _better(relays, chosen, order, known)
            tried += 1
            found = best_order(divert(relays, trial), [order.start])
            if found is not None and found.step_s < order.step_s * (1 - _LEAST):
                chosen, order, gained = trial, found, True
    return _better(relays, chosen, order, known)


def _changes(relays: Relays) -> Iterator[dict[int, Route]]:
    """List what to try: ways for some nodes, empty for straight on."""
    kinds: dict[tuple[int, ...], list[int]] = {}
    for node in relays.routes:
        talk = relays.talks.talks[node]
        kinds.setdefault((talk.uses[0].end, talk.kind, talk.ahead), []).append(node)
    for nodes in kinds.values():
        yield dict.fromkeys(nodes, ())
        for way in relays.around:
            yield {node: way[node] for node in nodes if node in way}
    for node, routes in relays.routes.items():
        for route in ((), *routes):
            yield {node: route}


def _better(
    relays: Relays, chosen: Mapping[int, Route], order: Order, known: RailPlan
) -> RailPlan | None:
    if order.step_s >= known.step_s * (1 - _LEAST):
        return None
    return plan_diverted(divert(relays, chosen), chosen, order)
