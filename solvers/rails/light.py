"""Cell states for the matchings of a rail plan, where the switch of a rail has cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import Limits, ignore, uncounted
from optmatch.problems import RailJob, Routing
from optmatch.problems.rails.execution.plan import RailPlan

_ROUNDS = 200


def route_plan(job: RailJob, plan: RailPlan) -> RailPlan | None:
    """Find the states of the cells for every matching of a plan; None if one cannot be routed.

    Where the switch has no cells the plan comes back as it is.
    """
    fabric = job.fabric
    if fabric is None or fabric.graph is None:
        return plan
    known: dict[bytes, NDArray[np.int8] | None] = {}
    timelines = []
    for timeline in plan.rails:
        rows = []
        for matching in timeline.matchings:
            key = matching.tobytes()
            if key not in known:
                known[key] = _route(fabric, matching)
            states = known[key]
            if states is None:
                return None
            rows.append(states)
        timelines.append(replace(timeline, cell_states=np.array(rows)))
    return replace(plan, rails=tuple(timelines))


def _route(fabric: Fabric, matching: NDArray[np.int32]) -> NDArray[np.int8] | None:
    with uncounted():
        # these modules load the kernels of routing
        from optmatch.solvers.feedforward import is_feed_forward
        from optmatch.solvers.routing.methods import route_by_negotiation, route_forward

    problem = Routing(fabric, matching)
    route = route_forward if is_feed_forward(problem) else route_by_negotiation
    found = route(problem, Limits(iterations=_ROUNDS), np.random.default_rng(0), ignore)
    if found.schedule is None or found.schedule.cell_states is None:
        return None
    states: NDArray[np.int8] = found.schedule.cell_states[0]
    return states
