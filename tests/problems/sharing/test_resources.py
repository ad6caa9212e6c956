"""Resources, jobs and their classes: equal ones, and refusals by name."""

import re
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch import problems
from optmatch.io import dumps, loads
from optmatch.problems import classify
from tests.helpers.modes import examples
from tests.helpers.sharing import Jobs, Resources, Sharing, draw_sharing, serves


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Resources([[1.0, 2.0], [1.0]], names=("cpu", "ram")),
         "public[1] has 1 numbers, the first row 2"),
        (lambda: Resources([[1.0]], arrival_s=[1.7e308]), "arrival_s[0] = 1.7e+308"),
        (lambda: Resources([[1.0, 2.0]], arrival_s=[1.0]), "arrival_s has 1 entries, there are 2"),
        (lambda: Resources([[1.0]], arrival_s=[3.0], departure_s=[2.0]),
         "departure_s[0] = 2: after its arrival, 3, is expected"),
        (lambda: Resources([[1.0, np.nan]]), "public[0, 1] = nan: not a finite number"),
        (lambda: Resources([[1.0]], departure_s=[np.nan]), "departure_s[0] = nan"),
        (lambda: Resources([[1.0]], plane=[-1]), "plane[0] = -1: must be >= 0"),
        (lambda: Resources([[1.0]], names=("a", "b")), "names has 2 entries, there are 1"),
        (lambda: Resources([]), "public: one attribute of resources or more"),
        (lambda: Jobs([1, -2], [[0.0, 0.0]]), "demand[1] = -2: must be >= 0"),
        (lambda: Jobs([1, 2], [[0.0]]), "demand has 2 entries, there are 1 jobs"),
        (lambda: Jobs([1], [[np.inf]]), "public[0, 0] = inf"),
        (lambda: Jobs([1], [[0.0]], fair_share=[0.0]), "fair_share[0] = 0: must be > 0"),
        (lambda: Jobs([1], [[0.0]], plane_caps=[[1], [1]]), "plane_caps has 2 entries"),
        (lambda: Sharing(Resources([[1.0]], names=("cpu",)), Jobs([0, 3], [[9.0, 4.0]])),
         "job 1 (cpu >= 4, since 0 s): no resource can serve it"),
        (lambda: Sharing(Resources([[1.0]]), Jobs([1], [[0.0], [0.0]])),
         "public: 1 attributes of resources, 2 of jobs"),
        (lambda: Sharing(Resources([[1.0]], plane=[2]), Jobs([1], [[0.0]], plane_caps=[[1]])),
         "plane[0] = 2: plane_caps has 1 planes"),
        (lambda: Sharing(Resources([[1.0]]), Jobs([1], [[0.0]]), order=[1]), "each of 1 jobs"),
        (lambda: Sharing(Resources([[1.0]]), Jobs([1], [[0.0]]), "most"), "objective = 'most'"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make: Any, told: str) -> None:
    with pytest.raises(om.InputError, match=re.escape(told)):
        make()


@pytest.mark.parametrize(
    "table", [3, None, "ab", [[1], [1, 2]], [[[1], [1, 2]]], [1, 2], np.array(3), {}, [["a"]]]
)
def test_what_is_no_table_is_refused(table: Any) -> None:
    for names in ((), ("rate",), 3, None):
        with pytest.raises(om.InputError):
            problems.Resources(table, names=names)  # type: ignore[arg-type]
    with pytest.raises(om.InputError):
        problems.Jobs([1], table)


def test_classes_are_those_of_pairs() -> None:
    rng = np.random.default_rng(26)
    for k in range(examples(60, plain=20)):
        problem = draw_sharing(rng, resources=12, caps=k % 3 == 0)
        found, jobs = problem.classes, problem.jobs
        for resource, row in enumerate(found.jobs_of[found.class_of].tolist()):
            assert row == [
                serves(problem.resources, jobs, resource, job) for job in range(jobs.n_jobs)
            ]
        assert len(np.unique(found.eligible, axis=1).T) == found.eligible.shape[1]
        kinds = {
            (*row, plane) for row, plane in zip(found.eligible.tolist(), found.plane, strict=True)
        }
        assert len(kinds) == len(found.sizes)
        assert found.sizes.sum() == problem.resources.n_resources


def test_many_levels_need_no_table() -> None:
    rng = np.random.default_rng(27)
    has, least = rng.random((8, 50)), rng.random((8, 400)) * 0.3
    found = classify(Resources(has), Jobs(np.ones(400), least))
    expected = (has[:, :, None] >= least[:, None, :]).all(axis=0)
    assert (found.jobs_of[found.class_of] == expected).all()


def test_values_are_kept_as_they_are() -> None:
    problem = draw_sharing(np.random.default_rng(28), caps=True, whole=True)
    assert not problem.resources.public.flags.writeable
    again = loads(dumps(problem))
    assert again == problem and hash(again) == hash(problem)
