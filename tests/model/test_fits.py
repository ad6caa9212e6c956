"""Answers know what they index: shapes and ranges are declared at their classes."""

from dataclasses import replace
from typing import Any

import pytest

import optmatch as om
from optmatch.kinds import all_kinds, view_of_solution


@pytest.mark.parametrize("kind", [kind.problem.kind for kind in all_kinds()])
def test_every_class_of_answers_checks_itself(kind: str) -> None:
    (row,) = [row for row in all_kinds() if row.problem.kind == kind]
    answer: Any = row.problem.answer_class or om.Schedule
    assert callable(answer.check_fits)


def test_a_wrong_answer_is_drawn_if_it_fits_and_refused_by_name_if_not() -> None:
    problem = om.Demand.from_matrix([[0, 3, 1], [2, 0, 1], [1, 1, 0]], delay_s=1.0)
    solution = om.solve(problem, seed=0)
    schedule = solution.schedule
    late = replace(schedule, durations_s=schedule.durations_s / 2)
    wrong = replace(solution, schedule=late)
    assert not om.verify(wrong).valid
    assert wrong.plot().axes
    other = om.Schedule(matchings=[[1, 0]], durations_s=[1.0])
    with pytest.raises(om.InputError, match="matchings has rows of 2 entries, the fabric needs 3"):
        view_of_solution(replace(solution, schedule=other))
