"""The answers of a store, verified."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from optmatch.entrances import verify
from optmatch.model import InputError, Problem
from optmatch.sweeps.store import Store, StoreError
from optmatch.sweeps.tasks import DAMAGED, Row, key_of

_TOLD = "objective", "lower_bound", "method", "seed"
Verdict = Literal["ok", "unproved", "violated", "damaged", "none"]


class Checked(NamedTuple):
    """A row and what became of its check; ``"none"`` where it has no answer."""

    row: Row
    verdict: Verdict
    complaint: str


def check_store(store: Store) -> Iterator[Checked]:
    """Verify each answer, and that it is the answer that its row speaks of."""
    problem_of = lru_cache(1)(store.problem)  # neighbours often have one problem
    for row in store.rows(answers=True):
        if row.answer is None:
            yield Checked(row, "damaged" if row.status == DAMAGED else "none", row.error)
            continue
        try:
            yield Checked(row, *_check(row, problem_of(row.problem_sha256)))
        except (StoreError, InputError) as exc:
            yield Checked(row, "damaged", str(exc))


def _check(row: Row, problem: Problem) -> tuple[Verdict, str]:
    parts = row.problem_sha256, row.method, row.seed, row.options, row.version
    if row.key != key_of(*parts):
        return "damaged", "its key is not that of its task"
    solution = row.solution(problem)
    told = {name: getattr(solution, name) for name in _TOLD} | {"status": solution.status.value}
    for name, value in told.items():
        if getattr(row, name) != value:
            return "damaged", f"{name} is not that of its answer"
    report = verify(problem, solution)
    if not report.valid:
        return "violated", report.complaint
    return "ok" if report.ok else "unproved", "; ".join(map(str, report.unproved))
