"""Random resources and jobs, for experiments and measurements."""

from __future__ import annotations

import numpy as np

from optmatch.model import InputError, check_size, integer, number
from optmatch.problems.sharing.resources import Jobs, Resources

_EXACT = 2**53


def draw_shares(
    n_resources: int,
    n_jobs: int,
    rng: np.random.Generator,
    *,
    attributes: int = 4,
    levels: int = 4,
    load: float = 1.0,
) -> tuple[Resources, Jobs]:
    """Draw resources with uniform attributes in [0, 1), and jobs with bounds on each.

    The bounds are multiples of 1 / `levels`. Each job has those of a random resource or lower
    ones, so that somebody can serve it. `load` is the demand of all jobs over the resources, on
    average.
    """
    count = integer("resources", n_resources, at_least=1)
    width, steps = (
        integer("attributes", attributes, at_least=1),
        integer("levels", levels, at_least=1),
    )
    jobs = integer("jobs", n_jobs, at_least=1)
    check_size("entries", width * max(count, jobs), "resources")
    mean = number("load", load) * count / jobs
    if 2 * mean > _EXACT:
        raise InputError(f"load = {load:g}: a demand is at most 2**53", where="load")
    has = rng.random((width, count))
    model = np.floor(has[:, rng.integers(0, count, jobs)] * steps)
    least = np.floor(rng.random((width, jobs)) * (model + 1)) / steps
    demand = np.rint(rng.random(jobs) * 2 * mean).astype(np.int64)
    return Resources(has), Jobs(demand, least)
