"""Solutions as JSON objects that carry their problem and its digest."""

from __future__ import annotations

from typing import Any

import numpy as np

from optmatch.io.fields import check_keys, check_object, from_object, shorten, to_object
from optmatch.io.problems import check_format, problem_digest, problem_from_tree, problem_to_tree
from optmatch.io.proofs import certificate_from_tree, certificate_to_tree
from optmatch.io.text import plain, pointer
from optmatch.model import (
    FormatError,
    InputError,
    Problem,
    Schedule,
    Solution,
)
from optmatch.model.declarations import forms_of

SCHEDULE_FORMAT = "optmatch/schedule/1"


def solution_to_tree(solution: Solution) -> dict[str, Any]:
    """Return the JSON object of a solution; arrays of schedule and certificate stay arrays."""
    answer = {} if solution.answer is None else {"answer": _answer_to_tree(solution)}
    schedule = solution.schedule and to_object(solution.schedule, keep_ndim=1)
    return {
        "format": SCHEDULE_FORMAT,
        "problem": problem_to_tree(solution.problem, arrays=True),
        "problem_sha256": problem_digest(solution.problem),
        "status": solution.status.value,
        "limit": solution.limit and solution.limit.value,
        "objective": plain(solution.objective),
        "lower_bound": plain(solution.lower_bound),
        "method": solution.method,
        "seed": solution.seed,
        "time_s": plain(solution.time_s),
        "stats": plain(solution.stats),
        "proof": solution.proof,
        "schedule": schedule,
        **answer,
        "certificate": certificate_to_tree(solution.certificate),
    }


def solution_from_tree(tree: Any) -> Solution:
    """Build a solution from its JSON object.

    Another digest than that of the problem, and parts that contradict each other, are an
    `InputError`; what breaks the format is a `FormatError`.
    """
    check_object(tree, "")
    check_format(tree, "", SCHEDULE_FORMAT)
    tags = ("format", "problem_sha256")
    needed = ("problem", "problem_sha256", "status", "method")
    check_keys(tree, "", known=(*tags, *forms_of(Solution)), needed=needed)
    problem = problem_from_tree(tree["problem"], "/problem")
    digest, found = tree["problem_sha256"], problem_digest(problem)
    if digest != found:
        raise InputError(
            f"problem_sha256 = {shorten(digest, 66)}, but the problem in this file has {found}",
            where="/problem_sha256",
        )
    fabric = getattr(problem, "broken_fabric", problem.fabric)  # the problem that proofs speak of
    return from_object(
        Solution,
        tree,
        "",
        tags=tags,
        problem=lambda _tree, _where: problem,
        schedule=lambda part, where: _schedule_from_tree(part, where, problem),
        answer=lambda part, where: _answer_from_tree(part, where, problem),
        certificate=lambda part, where: certificate_from_tree(part, where, fabric),
    )


def _check_shape(schedule: Schedule, problem: Problem, where: str) -> None:
    """Refuse arrays of another switch, which nothing behind the reader expects."""
    expected = {"matchings": problem.fabric.n_ports, "cell_states": problem.fabric.n_cells}
    for name, columns in expected.items():
        array = getattr(schedule, name)
        if array is not None and array.shape[1] != columns:
            raise InputError(
                f"{name} has rows of {array.shape[1]} entries, the fabric needs {columns}",
                where=pointer(where, name),
            )


def _schedule_from_tree(tree: Any, where: str, problem: Problem) -> Schedule | None:
    if tree is None:
        return None
    if problem.fabric is None:
        raise FormatError(f"{problem.kind} has no switch, and no schedule", where=where)
    if isinstance(tree, dict):  # JSON does not tell how many columns no rows have
        columns = {"matchings": problem.fabric.n_ports, "cell_states": problem.fabric.n_cells}
        empty = [name for name in columns if isinstance(tree.get(name), list) and not tree[name]]
        tree = tree | {name: np.empty((0, columns[name])) for name in empty}
    schedule = from_object(Schedule, tree, where)
    _check_shape(schedule, problem, where)
    return schedule


def _answer_to_tree(solution: Solution) -> dict[str, Any]:
    if not isinstance(solution.answer, solution.problem.answer_class or ()):
        raise InputError(
            f"an answer of type {type(solution.answer).__name__} has no file format for"
            f" {solution.problem.kind}"
        )
    tree = to_object(solution.answer, keep_ndim=1)
    for name in getattr(solution.answer, "left_out_if_empty", ()):
        if not len(tree[name]):
            del tree[name]
    return tree


def _answer_from_tree(tree: Any, where: str, problem: Problem) -> Any:
    if tree is None:
        return None
    if problem.answer_class is None:
        raise FormatError(f"a schedule is the whole answer to {problem.kind}", where=where)

    def schedules(parts: Any, place: str) -> Any:
        if not isinstance(parts, list):
            raise FormatError(f"{shorten(parts)}: a list is expected here", where=place)
        return [
            _schedule_from_tree(part, pointer(place, k), problem) for k, part in enumerate(parts)
        ]

    return from_object(problem.answer_class, tree, where, schedules=schedules)
