"""A task of a sweep: a problem, a method, a seed and limits; and the row that it becomes."""

from __future__ import annotations

import json
import zlib
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from optmatch import __version__
from optmatch.io.problems import problem_digest, problem_to_tree
from optmatch.io.schedules import solution_from_tree, solution_to_tree
from optmatch.io.text import canonical, digest, parse_json, plain
from optmatch.kinds import check_method_name, default_method
from optmatch.model import FormatError, Limits, Problem, Score, Solution, Value, integer

# What a row may say beside the values of `Status`.
REFUSED = "refused"
"""The method does not take the problem."""
FAILED = "failed"
"""The method has raised an error, or its process has died."""
DAMAGED = "damaged"
"""The row in the store is not what was written."""


_FREE = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Task(Value):
    """One solve of a sweep.

    Parameters
    ----------
    problem
        What to solve.
    method
        By its name; None becomes the name of the default of its kind. A name that no method has is
        refused; a method that does not take the problem gives a row that says so.
    seed
        The seed of the random numbers.
    limits
        Of the solve. A method that goes on long after its time limit is ended from outside, and
        so is one that takes more memory.
    name
        The name of the problem in tables; its digest if empty.

    Examples
    --------
    >>> import optmatch as om
    >>> task = om.Task(om.AllToAll(om.HexMesh(3, 3, ports=4)), seed=1)
    >>> task.method, task.key() == replace(task, name="mesh").key()
    ('negotiated', True)
    """

    problem: Problem
    method: str | None = None
    _: KW_ONLY
    seed: int = 0
    limits: Limits = _FREE
    name: str = ""

    def __post_init__(self) -> None:
        integer("seed", self.seed, at_least=0)
        if self.method is None:
            self._set(method=default_method(self.problem).name)
        else:
            check_method_name(self.method)

    def options(self) -> str:
        """Return the limits that are set, as JSON."""
        return _limits_as_json(self.limits)

    def key(self, problem_sha256: str = "") -> str:
        """Return the key of this task in a store: a digest of all that determines its result.

        Parameters
        ----------
        problem_sha256
            The digest of the problem, where it is at hand; it is computed if empty.

        Returns
        -------
        str
            The digest of problem, method, seed, limits and version of optmatch, in hexadecimal
            digits.
        """
        sha256 = problem_sha256 or problem_digest(self.problem)
        return key_of(sha256, self.method or "", self.seed, self.options(), __version__)


@lru_cache
def _limits_as_json(limits: Limits) -> str:
    """Return the limits that are set, as JSON. Many tasks share the same limits."""
    limits_set = {name: value for name, value in asdict(limits).items() if value}
    return json.dumps(limits_set, sort_keys=True)


def key_of(*parts: str | int) -> str:
    """Return the key of a row, a digest.

    Parameters
    ----------
    *parts
        The digest of the problem, method, seed, limits as JSON, and version, in this order.
    """
    return digest("\n".join(map(str, parts)).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The outcome of a task.

    Parameters
    ----------
    key
        The digest of the task.
    method, seed, options, version
        As given; `options` are the limits as JSON.
    status
        A value of `Status`, or ``"refused"``, ``"failed"``, ``"damaged"``.
    limit, objective, lower_bound, gap, proof, time_s
        As in `Solution`; None where there is none.
    error
        Why it was refused or failed; else empty.
    answer
        The solution, compressed, without its problem; None where there is none, or where the
        store was read without answers.
    """

    key: str
    name: str
    kind: str
    problem_sha256: str
    method: str
    seed: int
    options: str
    version: str
    status: str
    limit: str | None = None
    objective: Score | None = None
    lower_bound: Score | None = None
    gap: float | None = None
    proof: str | None = None
    time_s: float = 0.0
    error: str = ""
    answer: bytes | None = None

    @property
    def done(self) -> bool:
        """Whether the task has run to its end, with an answer or without."""
        return self.status not in (REFUSED, FAILED, DAMAGED)

    @property
    def reason(self) -> str:
        """Why it stopped early, was refused or failed; empty with a proof."""
        return self.error or self.limit or ""

    def solution(self, problem: Problem) -> Solution:
        """Unpack the answer of this row as a solution of its problem.

        Parameters
        ----------
        problem
            The problem of the task.

        Raises
        ------
        FormatError
            If the row has no answer, or a damaged one.
        """
        if self.answer is None:
            raise FormatError("the row has no answer", where=self.key)
        try:
            tree = parse_json(zlib.decompress(self.answer), self.key)
        except zlib.error as exc:
            raise FormatError(f"the answer is damaged: {exc}", where=self.key) from exc
        return solution_from_tree(tree | {"problem": problem_to_tree(problem)})

    def figures(self) -> dict[str, Any]:
        """Return all fields but the answer as JSON has them."""
        return {name: plain(getattr(self, name)) for name in COLUMNS}


COLUMNS: tuple[str, ...] = tuple(part.name for part in fields(Row) if part.name != "answer")
"""The figures of a row."""


def empty_row(task: Task, status: str, error: str, problem_sha256: str = "") -> Row:
    """Return the row of a task that gave no solution.

    Parameters
    ----------
    task
        The task.
    status, error
        The status and the reason, as the columns of the row say it.
    problem_sha256
        The digest of the problem, where it is at hand; it is computed if empty.

    Returns
    -------
    Row
        With the columns that identify the task, and without an answer.
    """
    sha256 = problem_sha256 or problem_digest(task.problem)
    return Row(
        key=task.key(sha256),
        name=task.name or sha256[:12],
        kind=task.problem.kind,
        problem_sha256=sha256,
        method=task.method or "",
        seed=task.seed,
        options=task.options(),
        version=__version__,
        status=status,
        error=error,
    )


def row_of(task: Task, solution: Solution) -> Row:
    """Return the row of a task that was solved, with its answer packed.

    Parameters
    ----------
    task
        The task.
    solution
        Its solution.

    Returns
    -------
    Row
        Its ``answer`` is the compressed canonical text of the solution, without the problem,
        which the store keeps by its digest.
    """
    tree = solution_to_tree(solution)
    del tree["problem"]
    tree = plain(tree)
    return replace(
        empty_row(task, solution.status.value, "", tree["problem_sha256"]),
        limit=tree["limit"],
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        proof=solution.proof,
        time_s=solution.time_s,
        answer=zlib.compress(canonical(tree)),
    )
