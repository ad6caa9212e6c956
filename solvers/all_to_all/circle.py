"""Method `circle`: the round-robin tournament in port order, each matching routed as it is."""

from __future__ import annotations

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.factorise import schedule_all
from optmatch.solvers.all_to_all.live import on_live_ports
from optmatch.solvers.all_to_all.slot_shortage import names_faults


@names_faults()
@on_live_ports
def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all problem by the circle method, the baseline.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is no search, so iterations are not limited.

    Returns
    -------
    Solution
        In the fewest slots if all matchings of the tournament could be routed.
    """
    return schedule_all(problem, limits, rng, on_event, name="circle", search=False)
