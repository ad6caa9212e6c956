"""A slice in one rack under a largest load, as a model for CP-SAT."""

from __future__ import annotations

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import Clock, Limit, OnEvent, Tick, ignore
from optmatch.solvers.cpsat import minimise
from optmatch.solvers.slices.search import Plan, Search


def decide(
    search: Search, clock: Clock, on_event: OnEvent, *, seed: int
) -> tuple[Plan | None, Limit | None]:
    """Find a slice with the load that a search was made for, or show that there is none.

    Slot i on server u is a binary, and so is each route of each pair between each two servers: of
    a pair exactly the routes out of the server of its first slot and into that of its second add
    up to one.

    Parameters
    ----------
    search
        The rack, the slice, its offered routes and the room on each edge.
    clock
        Its time is a limit; its iterations are not, since the search has counted.
    on_event
        Called now and then.
    seed
        Of CP-SAT.

    Returns
    -------
    (Plan or None, Limit or None)
        The answer; a limit if nothing is known. Neither: there is no slice.
    """
    model, plan = cp_model.CpModel(), search.plan
    lengths, routes = search.lengths, search.routes
    servers = lengths.shape[1]
    seats = [[model.new_bool_var("") for _ in range(servers)] for _ in range(plan.n_slots)]
    for row in seats:
        model.add_exactly_one(row)
    for u in range(servers):
        model.add_at_most_one(row[u] for row in seats)
    numbers = [sum(u * seat for u, seat in enumerate(row)) for row in seats]
    for slot, others in enumerate(search.below.tolist()):
        for other in others:
            if other >= 0:
                model.add(numbers[other] <= numbers[slot] - 1)
    users: dict[int, list[Any]] = {}
    chosen = []
    for pair, (a, b) in enumerate(plan.pairs.tolist()):
        kind, weight = int(search.kinds[pair]), int(plan.weights[pair])
        literals = {}
        for u, v, k in np.argwhere(lengths[kind] > 0).tolist():
            edges = routes[kind, u, v, k, : lengths[kind, u, v, k]].tolist()
            if all(search.limit_room[edge] >= weight for edge in edges):
                literals[u, v, k] = literal = model.new_bool_var("")
                for edge in edges:
                    users.setdefault(edge, []).append(weight * literal)
        for u in range(servers):
            model.add(sum(x for (s, _, _), x in literals.items() if s == u) == seats[a][u])
            model.add(sum(x for (_, t, _), x in literals.items() if t == u) == seats[b][u])
        chosen.append(literals)
    for edge, terms in users.items():
        model.add(sum(terms) <= int(search.limit_room[edge]))
    on_event(Tick("cp-sat", 0))
    outcome = minimise(model, clock, ignore, seed=seed)
    if not outcome.found:
        return None, None if outcome.infeasible else outcome.limit
    at = [next(u for u in range(servers) if outcome.holds(row[u])) for row in seats]
    ways = []
    for pair, literals in enumerate(chosen):
        u, v, k = next(place for place, x in literals.items() if outcome.holds(x))
        kind = search.kinds[pair]
        ways.append(routes[kind, u, v, k, : lengths[kind, u, v, k]].astype(np.int64))
    return Plan(search.rack.servers[at], ways), None
