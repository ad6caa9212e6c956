"""What jobs can get is counted, and bounded by cuts."""

import numpy as np
import pytest

from optmatch.verify.sharing.bounds import Supply, count_bound
from tests.helpers.sharing import Jobs, Resources, Sharing, SupplyProof, draw_sharing, serves
from tests.verify.rules.sharing import FOUR


@pytest.mark.parametrize("seed", range(40))
def test_what_jobs_get_alone_is_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = draw_sharing(rng, "min-jct", caps=seed % 2 == 0, whole=seed % 4 < 2)
    there, jobs, mine = problem.resources, problem.jobs, []
    for job, wanted in enumerate(jobs.demand.tolist()):
        able = [i for i in range(there.n_resources) if serves(there, jobs, i, job)]
        mine.append(sorted(float(there.arrivals_s[i]) for i in able))
        per_plane = np.bincount(there.planes[able], minlength=3)
        if jobs.plane_caps is not None:
            per_plane = np.minimum(per_plane, jobs.plane_caps[job])
        got = min(wanted, int(per_plane.sum()))
        torn = jobs.all_or_nothing is not None and jobs.all_or_nothing[job] and got < wanted
        assert Supply(problem).count_alone(problem)[job] == (0 if torn else got)
    bound = count_bound(problem, Supply(problem))
    if Supply(problem).count_alone(problem) != jobs.demand.tolist():
        assert bound == np.inf
        return
    waits = [
        max(come_s[wanted - 1] - asked_s, 0.0) if wanted else 0.0
        for come_s, wanted, asked_s in zip(mine, jobs.demand, jobs.arrivals_s, strict=True)
    ]
    assert bound == (pytest.approx(np.mean(waits)) if there.arrival_s is not None else 0.0)


@pytest.mark.parametrize("attributes", [63, 30, 3])
def test_more_cells_than_a_number_counts(attributes: int) -> None:
    has = np.eye(attributes)[:, :3]
    supply = Supply(Sharing(Resources(has), Jobs([1], has[:, :1])))
    assert supply.counts[supply.serves[:, 0]].tolist() == [1] and sum(supply.counts) == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_counted_resource_by_resource(seed: int) -> None:
    """A job that is tight somewhere counts for itself; resources count whom others could have."""
    rng = np.random.default_rng(seed)
    problem = draw_sharing(rng, "max-flow", caps=seed % 2 == 0, whole=False)
    there, jobs = problem.resources, problem.jobs
    wanted = rng.integers(0, 3, jobs.n_jobs)
    caps = np.full((jobs.n_jobs, 1), 99) if jobs.plane_caps is None else jobs.plane_caps
    tight = rng.integers(0, 2, caps.shape)
    plane = there.planes if jobs.plane_caps is not None else np.zeros(there.n_resources, int)
    expected = sum(min(w, c @ t) for w, c, t in zip(wanted, caps, tight, strict=True))
    for i in range(there.n_resources):
        others = [j for j in range(jobs.n_jobs) if wanted[j] and not tight[j, plane[i]]]
        expected += any(serves(there, jobs, i, j) for j in others)
    assert Supply(problem).cut(SupplyProof(tight=tight), wanted) == expected


def test_any_cut_bounds_what_jobs_get() -> None:
    rng = np.random.default_rng(25)
    supply, demand = Supply(FOUR), FOUR.jobs.demand
    bounds = {
        supply.cut(SupplyProof(tight=rng.integers(0, 2, (3, 2))), demand) for _ in range(200)
    }
    assert min(bounds) == 4
    assert len(bounds) > 1
