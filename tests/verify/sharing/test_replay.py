"""Wrong assignments and wrong claims are refused, each by its rule."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import PortSharing
from optmatch.verify.sharing.supply import Supply, count_bound
from tests.helpers.sharing import (
    Assignment,
    Jobs,
    Resources,
    Sharing,
    SupplyProof,
    draw_sharing,
    serves,
)

PORTS = Resources(
    [[1.0, 2.0, 3.0, 4.0]],
    private=[[0.0, 1.0, 1.0, 1.0]],
    arrival_s=[0.0, 1.0, 2.0, 3.0],
    departure_s=[4.0, 9.0, 9.0, 9.0],
    plane=[0, 0, 1, 1],
)
JOBS = Jobs(
    [2, 1, 2],
    [[1.0, 3.0, 1.0]],
    private=[[0.0, 0.0, 1.0]],
    arrival_s=[0.0, 5.0, 0.0],
    all_or_nothing=[0, 0, 1],
    plane_caps=[[1, 1], [2, 2], [2, 1]],
)
PROBLEM = Sharing(PORTS, JOBS)


def complaints(job_of: list[int], problem: PortSharing = PROBLEM) -> list[str]:
    """Return the rules that an answer breaks."""
    return [v.rule for v in om.verify(problem, Assignment(job_of)).violations]


@pytest.mark.parametrize(
    ("job_of", "rule"),
    [
        ([0, 2, 2, 1], None),
        ([0, 2, 2], "each resource has an entry"),
        ([0, 2, 2, 3], "the job exists"),
        ([-1, 1, -1, -1], "no attribute is below the bound"),
        ([2, 2, -1, -1], "no attribute is below the bound"),
        ([-1, -1, 1, 1], "no job gets more than it wants"),
        ([-1, 2, -1, -1], "the job gets all or nothing"),
        ([0, 0, -1, -1], "no job exceeds its cap"),
    ],
)
def test_a_wrong_assignment_is_refused(job_of: list[int], rule: str | None) -> None:
    """By the one rule that it breaks."""
    assert complaints(job_of) == ([] if rule is None else [rule])


def test_a_resource_that_has_left_serves_nobody() -> None:
    """It leaves when the job asks, or before."""
    late = Sharing(
        Resources([[1.0, 1.0]], departure_s=[5.0, 6.0]), Jobs([1], [[1.0]], arrival_s=[5.0])
    )
    assert complaints([0, -1], late) == ["a resource leaves after its job has asked"]
    assert complaints([-1, 0], late) == []


def test_unmet_demands_have_no_mean_time() -> None:
    """With `min-jct` every demand is met."""
    problem = Sharing(Resources([[1.0, 1.0]]), Jobs([1, 1], [[1.0, 1.0]]), "min-jct")
    assert complaints([0, -1], problem) == ["every demand is met"]


def claims(**changes: Any) -> list[str]:
    """Return the rules that a changed solution breaks."""
    problem = Sharing(Resources([[1.0, 2.0, 2.0]]), Jobs([2, 2], [[1.0, 2.0]]))
    solution = om.solve(problem, seed=0)
    assert solution.objective == 1.0
    return [v.rule for v in om.verify(problem, replace(solution, **changes)).violations]


def test_wrong_claims_are_refused() -> None:
    """Objective, bound, problem, and a cut of something else."""
    assert claims() == []
    assert claims(objective=2.0, lower_bound=2.0)[0] == "the lower bound is supported"
    assert claims(certificate=SupplyProof(tight=[[1]])) == ["the certificate is a proof"]
    other = Sharing(Resources([[1.0, 2.0, 3.0]]), Jobs([2, 2], [[1.0, 2.0]]))
    assert claims(problem=other) == ["the solution is one of this problem"]


@pytest.mark.parametrize("seed", range(40))
def test_what_jobs_get_alone_is_counted(seed: int) -> None:
    """How much, and when the last comes, against a look at each resource."""
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
    """Sixty-three attributes have 2**63 cells: each resource is one of its own."""
    has = np.eye(63)[:, :3]
    supply = Supply(Sharing(Resources(has), Jobs([1], has[:, :1])))
    assert supply.serves.tolist() == [[True], [False], [False]]


def test_any_cut_bounds_what_jobs_get() -> None:
    """Also one that is not the smallest; the one of the flow is reached."""
    rng = np.random.default_rng(25)
    supply, demand = Supply(PROBLEM), JOBS.demand
    bounds = {
        supply.cut(SupplyProof(tight=rng.integers(0, 2, (3, 2))), demand) for _ in range(200)
    }
    assert min(bounds) == 4
    assert len(bounds) > 1


@pytest.mark.parametrize("objective", ["lexicographic", "max-min"])
def test_without_its_cut_a_bound_is_not_supported(objective: Any) -> None:
    """What counting does not show needs one; a useless one shows nothing."""
    problem = Sharing(Resources([[2.0, 2.0, 1.0]]), Jobs([2, 2], [[2.0, 2.0]]), objective)
    solution = om.solve(problem, seed=0)
    assert om.verify(problem, solution).proof == "certificate"
    loose = SupplyProof(tight=np.ones((2, 1), dtype=np.int8))
    for wrong in (None, (None, loose) if objective == "lexicographic" else loose):
        broken = om.verify(problem, replace(solution, certificate=wrong)).violations
        assert [v.rule for v in broken] == ["the lower bound is supported"]
    other: Any = loose if objective == "lexicographic" else (None, loose)
    broken = om.verify(problem, replace(solution, certificate=other)).violations
    assert broken[0].rule == "the certificate is a proof"
