"""Random matching in which each device draws its job, as the published baseline may do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.simulation.sharing.pool import Pool
from optmatch.simulation.sharing.replay import Moment, Policy
from optmatch.solvers.sharing.policies import Priority

COPIES = 32
"""Parts of a class of devices, of which each draws by itself."""
PATIENCE = 6.0
"""Where devices draw jobs, a run ends after so many times what the slowest policy takes."""


def draw_by_device(pool: Pool, tested: bool) -> tuple[Pool, Policy]:
    """Return a pool and a policy: a device draws one of the jobs that ask and that it fits.

    It draws anew when there is news while it waits. If it is `tested`, it draws once, of all that
    ask, and leaves if it does not fit.
    """
    rng = np.random.default_rng(0)
    part = rng.integers(COPIES, size=len(pool.class_of), dtype=np.int32)
    parts = replace(
        pool,
        class_of=pool.class_of * COPIES + part,
        eligible=np.repeat(pool.eligible, COPIES, axis=0),
        tier=np.repeat(pool.tier, COPIES),
    )

    def draw(now: Moment) -> Priority:
        drawn: Priority = rng.random(now.eligible.shape)
        if tested:
            most = np.where(now.asks, drawn, -1.0).max(axis=1, keepdims=True)
            drawn = np.where(drawn == most, drawn, -np.inf)
        return drawn

    return parts, draw
