"""Verification of all answers in a store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from optmatch.entrances import verify
from optmatch.model import InputError, Problem
from optmatch.sweeps.store import Store, StoreError
from optmatch.sweeps.tasks import DAMAGED, Row, key_of

# Columns of a row that repeat a field of the solution.
_REPEATED_FIELDS = "objective", "lower_bound", "method", "seed"

Verdict = Literal["ok", "unproved", "violated", "damaged", "none"]


class Checked(NamedTuple):
    """The result of checking one row.

    Parameters
    ----------
    row
        The row as the store has it.
    verdict
        ``"ok"``; ``"unproved"``: nothing is violated, but a claim lacks a proof; ``"violated"``;
        ``"damaged"``: the row and its answer contradict each other; ``"none"``: there is no
        answer.
    complaint
        Why the verdict is not ``"ok"``; else empty.
    """

    row: Row
    verdict: Verdict
    complaint: str


def check_store(store: Store) -> Iterator[Checked]:
    """Verify each answer of a store, and that its row describes this answer.

    Parameters
    ----------
    store
        An open store.

    Yields
    ------
    Checked
        One for each row, in the order of the store.
    """
    # Neighbouring rows often have the same problem: it is read once for all of them.
    read_problem = lru_cache(1)(store.problem)

    for row in store.rows(answers=True):
        if row.answer is None:
            yield Checked(row, "damaged" if row.status == DAMAGED else "none", row.error)
            continue
        try:
            verdict, complaint = _check_row(row, read_problem(row.problem_sha256))
        except (StoreError, InputError) as exc:
            yield Checked(row, "damaged", str(exc))
        else:
            yield Checked(row, verdict, complaint)


def _check_row(row: Row, problem: Problem) -> tuple[Verdict, str]:
    """Check one row of a store that has an answer.

    Parameters
    ----------
    row
        The row, with its packed answer.
    problem
        The problem of its task.

    Returns
    -------
    verdict : str
        "ok"; "damaged" if columns disagree with the answer; "violated" if the answer breaks a
        rule; "unproved" if a claim could not be checked.
    complaint : str
        The reason; empty if nothing is wrong.
    """
    # The key must be the digest of the columns that identify the task.
    if row.key != key_of(row.problem_sha256, row.method, row.seed, row.options, row.version):
        return "damaged", "its key is not that of its task"

    # Columns that repeat the answer must agree with it.
    solution = row.solution(problem)
    fields = {name: getattr(solution, name) for name in _REPEATED_FIELDS}
    fields["status"] = solution.status.value
    for name, value in fields.items():
        if getattr(row, name) != value:
            return "damaged", f"{name} is not that of its answer"

    report = verify(problem, solution)
    if not report.valid:
        return "violated", report.complaint
    if not report.ok:
        return "unproved", "; ".join(map(str, report.unproved))
    return "ok", ""
