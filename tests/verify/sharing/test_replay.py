"""What jobs can get is counted, and bounded by cuts."""

import numpy as np
import pytest

from optmatch.verify.sharing.supply import Supply, count_bound
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
        assert Supply(problem).most(problem)[job] == (0 if torn else got)
    bound = count_bound(problem, Supply(problem))
    if Supply(problem).most(problem) != jobs.demand.tolist():
        assert bound == np.inf
        return
    waits = [
        max(come_s[wanted - 1] - asked_s, 0.0) if wanted else 0.0
        for come_s, wanted, asked_s in zip(mine, jobs.demand, jobs.arrivals_s, strict=True)
    ]
    assert bound == (pytest.approx(np.mean(waits)) if there.arrival_s is not None else 0.0)


def test_more_cells_than_a_number_counts() -> None:
    has = np.eye(63)[:, :3]
    supply = Supply(Sharing(Resources(has), Jobs([1], has[:, :1])))
    assert supply.serves.tolist() == [[True], [False], [False]]


def test_any_cut_bounds_what_jobs_get() -> None:
    rng = np.random.default_rng(25)
    supply, demand = Supply(FOUR), FOUR.jobs.demand
    bounds = {
        supply.cut(SupplyProof(tight=rng.integers(0, 2, (3, 2))), demand) for _ in range(200)
    }
    assert min(bounds) == 4
    assert len(bounds) > 1
