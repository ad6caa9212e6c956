"""Method `ilp` for all-to-all on small meshes: the fewest slots, then the fewest cells, proved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import answer_at_once
from optmatch.solvers.all_to_all.factorise import schedule_all
from optmatch.solvers.all_to_all.joint_model import decide_fewest, improve
from optmatch.solvers.all_to_all.slot_shortage import with_faults
from optmatch.solvers.frame import stoppable


@partial(with_faults, decide=decide_fewest)
def solve(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Solve an all-to-all problem exactly.

    An iteration is a conflict of CP-SAT. The method `negotiated` goes first; where its total meets
    the bound of the problem, that is the answer. Otherwise the fewest slots are sought one by one,
    then the least total in them. The refutations of CP-SAT have no short certificate:
    ``stats["bound_by"]`` says so.
    """
    clock = limits.start()
    decided = answer_at_once(problem, "ilp")
    if decided is not None:
        return decided

    # The heuristic search comes first; its iterations are others than those of CP-SAT.
    endless = replace(limits, iterations=None)
    solution = schedule_all(problem, endless, rng, on_event, name="ilp", starts=1, start=start)
    if solution.schedule is None or solution.limit in (None, Limit.TIME, Limit.INTERRUPTED):
        return solution
    with stoppable() as stop:
        return improve(problem, solution, clock, rng, on_event)

    # `stoppable` ends its block at Ctrl-C and at the end of the time, without a `return`. Only
    # then is this reached, and the answer of the heuristic search stands.
    return replace(solution, limit=stop.limit)
