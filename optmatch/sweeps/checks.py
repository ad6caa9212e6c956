"""The answers of a store, verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from optmatch.entrances import verify
from optmatch.model import InputError, Problem
from optmatch.sweeps.store import Store, StoreError
from optmatch.sweeps.tasks import DAMAGED, Row, key_of

Verdict = Literal["ok", "unproved", "violated", "damaged", "none"]


class Checked(NamedTuple):
    """A row and what became of its check; ``"none"`` where it has no answer."""

    row: Row
    verdict: Verdict
    complaint: str


def check_store(store: Store) -> Iterator[Checked]:
    """Verify each answer, and that it is the answer that its row speaks of."""
    last = ""
    problem: Problem | None = None
    for row in store.rows(answers=True):
        if row.status == DAMAGED:
            yield Checked(row, "damaged", row.error)
            continue
        if row.answer is None:
            yield Checked(row, "none", row.error)
            continue
        try:
            if problem is None or row.problem_sha256 != last:
                problem, last = store.problem(row.problem_sha256), row.problem_sha256
            yield _check(row, problem)
        except (StoreError, InputError) as exc:
            yield Checked(row, "damaged", str(exc))


def _check(row: Row, problem: Problem) -> Checked:
    parts = row.problem_sha256, row.method, row.seed, row.options, row.version
    if row.key != key_of(*parts):
        return Checked(row, "damaged", "its key is not that of its task")
    solution = row.solution(problem)
    for name in ("objective", "lower_bound", "method", "seed"):
        if getattr(row, name) != getattr(solution, name):
            return Checked(row, "damaged", f"{name} is not that of its answer")
    if row.status != solution.status.value:
        return Checked(row, "damaged", "status is not that of its answer")
    report = verify(problem, solution)
    if not report.valid:
        return Checked(row, "violated", report.complaint)
    return Checked(row, "ok" if report.ok else "unproved", "; ".join(map(str, report.unproved)))
