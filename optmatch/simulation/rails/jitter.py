"""Step times of a plan when computations take longer or shorter than expected."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import integer, number
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import link
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import COMPUTE
from optmatch.problems.rails.training.times import ends_s


def draw_factors(rng: np.random.Generator, jitter: float, count: int) -> NDArray[np.float64]:
    """Draw by how much computations take longer: log-normal, of mean 1 and this deviation."""
    spread = math.log1p(jitter**2)
    return np.exp(rng.normal(-spread / 2, math.sqrt(spread), count))


def simulate_jitter(
    job: RailJob, plan: RailPlan | None, jitter: float, *, runs: int = 100, seed: int = 0
) -> NDArray[np.float64]:
    """Run a step again and again, in the order of a plan and with other times.

    The circuits of a plan change in its order, each as soon as what it waits for is over
    (`derive_triggers`); without a plan all links are there at once. `jitter` is the standard
    deviation of the factor of each computation. Returns ``step_s[run]``; plans of one job get the
    same factors from a seed.
    """
    jitter = number("jitter", jitter)
    runs, seed = integer("runs", runs, at_least=1), integer("seed", seed, at_least=0)
    events, rng = job.events(), np.random.default_rng(seed)
    computes = np.flatnonzero(job.step().kind[events.part] == COMPUTE)
    nodes = events
    if plan is not None:
        nodes = link(job, derive_triggers(job, plan))[1].one_step()
    step_s = np.empty(runs)
    for run in range(runs):
        lasts = nodes.duration_s.copy()
        lasts[computes] *= draw_factors(rng, jitter, len(computes))
        step_s[run] = ends_s(nodes._replace(duration_s=lasts)).max(initial=0.0)
    return step_s
