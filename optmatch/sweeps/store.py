"""Tasks of sweeps, the rows that they become, and the durable store of rows: an SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import Any

from optmatch import __version__
from optmatch.io.files import (
    problem_digest,
    problem_from_tree,
    problem_to_tree,
    solution_from_tree,
    solution_to_tree,
)
from optmatch.io.text import canonical, digest, parse_json, plain
from optmatch.kinds import check_method_name, default_method
from optmatch.model import FormatError, Limits, Problem, Score, Solution, Value, integer
from optmatch.model.databases import Database, Layout, StoreError as StoreError
from optmatch.problems import AllToAll

# Statuses of a row beside the values of `Status`.
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
        limits_set = {name: value for name, value in asdict(self.limits).items() if value}
        return json.dumps(limits_set, sort_keys=True)

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
        Why it was refused or failed, or has no answer; else empty.
    slots
        Of an all-to-all: the number of slots of its schedule, which comes before the objective.
        None of other kinds, and where there is no schedule.
    answer
        The `Solution`, also one without a schedule: its JSON text without the problem, compressed
        by zlib. None where the task was refused or failed, or the store was read without answers.
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
    slots: int | None = None
    answer: bytes | None = None

    @property
    def done(self) -> bool:
        """Whether the task has run to its end, with an answer or without."""
        return self.status not in (REFUSED, FAILED, DAMAGED)

    @property
    def reason(self) -> str:
        """Why it stopped early, has no answer, was refused or failed; empty with a proof."""
        return self.error or self.limit or ""

    @property
    def score(self) -> Score | None:
        """What answers to the same problem are compared by, less is better.

        It is the objective, of an all-to-all (slots, objective); None without an answer.
        """
        if self.slots is None:
            return self.objective
        return self.slots, self.objective

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


COLUMNS: tuple[str, ...] = tuple(
    part.name for part in fields(Row) if part.name not in ("slots", "answer")
)
"""The figures of a row that a store has beside its answer."""


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
    error = ""
    if solution.objective is None:
        error = str(solution.stats.get("reason", ""))
    slots = None
    if solution.schedule is not None and task.problem.kind == AllToAll.kind:
        slots = solution.schedule.n_slots
    return replace(
        empty_row(task, solution.status.value, error, tree["problem_sha256"]),
        limit=tree["limit"],
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        proof=solution.proof,
        time_s=solution.time_s,
        slots=slots,
        answer=zlib.compress(canonical(tree)),
    )


# Rows that one query reads: a broken page makes this many rows be read one by one.
_ROWS_PER_READ = 500

# A damaged row may hold a key that is no text. It gets the key "rowid 17" then, so that `discard`
# can name it.
_ROWID_PREFIX = "rowid "
_KEY_COLUMN = f"CASE typeof(key) WHEN 'text' THEN key ELSE '{_ROWID_PREFIX}' || rowid END AS key"

_COLUMN_LIST = ", ".join(f'"{name}"' for name in COLUMNS)
_LAYOUT = Layout(
    noun="store of a sweep",
    application_id=0x6F706D74,  # "opmt" in ASCII
    version=1,
    tables=(
        "CREATE TABLE IF NOT EXISTS problems (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS results ({_COLUMN_LIST}, seal BLOB, answer BLOB, "
        "PRIMARY KEY (key))",
    ),
)

# Bytes of a digest in a seal.
_DIGEST_SIZE = 16

_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class Store:
    """Rows of sweeps in a file, to which several processes of one machine may write.

    Each row is a transaction of a write-ahead log: a process that is killed loses nothing that was
    written. A power cut may lose the last seconds, and nothing else. Write-ahead logs do not work
    on network file systems.

    Parameters
    ----------
    path
        The file, which is made if it is not there, unless it is `read_only`.
    read_only
        Whether nothing is changed, which works also in folders where nothing may be written.

    Raises
    ------
    StoreError
        If the file is no store, is of a newer version, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """Open a store of results, a database of SQLite, and make it if there is none."""
        self._file = Database(path, _LAYOUT, read_only=read_only)
        self.path: str = self._file.path
        self._db = self._file.connection

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; rows are there already."""
        self._file.close()

    def add(self, row: Row, problem: Problem) -> None:
        """Write a row and, if it is new, its problem.

        Parameters
        ----------
        row
            The result of a task. One with an answer is never replaced; one that was refused,
            failed or is damaged is.
        problem
            The problem of the task.
        """
        # Levels and infinities are texts in the table.
        columns = [
            json.dumps(value) if isinstance(value, list) else value
            for value in row.figures().values()
        ]
        with self._file.errors_by_name(), self._file.transaction():
            former = self._find_row(row.key, with_answer=True)
            if former is not None and former.done:
                return

            sha256 = row.problem_sha256
            query = "SELECT 1 FROM problems WHERE sha256 = ?"
            if self._db.execute(query, (sha256,)).fetchone() is None:
                content = zlib.compress(canonical(problem_to_tree(problem)))
                self._db.execute("INSERT INTO problems VALUES (?, ?)", (sha256, content))

            seal = _seal(columns, _digest(row.answer))
            values = (*columns, seal, row.answer)
            placeholders = ", ".join("?" * len(values))
            self._db.execute(f"INSERT OR REPLACE INTO results VALUES ({placeholders})", values)

    def has(self, key: str) -> bool:
        """Tell whether there is a whole row of this key that is done."""
        with self._file.errors_by_name():
            row = self._find_row(key, with_answer=True)
        return row is not None and row.done

    def row(self, key: str) -> Row:
        """Return the row of a task with its answer.

        Parameters
        ----------
        key
            The key of the task. One that is not there is a `StoreError`.
        """
        with self._file.errors_by_name():
            row = self._find_row(key, with_answer=True)
        if row is None:
            raise StoreError(f"{self.path}: no row {key}")
        return row

    def _find_row(self, key: str, *, with_answer: bool = False) -> Row | None:
        """Return the row of a key, which may be damaged; None if there is none."""
        columns = _selected_columns(with_answer)
        cursor = self._db.execute(f"SELECT {columns} FROM results WHERE key = ?", (key,))
        values = cursor.fetchone()
        return None if values is None else _to_row(values, with_answer)

    def rows(self, *, answers: bool = False) -> Iterator[Row]:
        """Yield all rows that are there now, in the order they were written.

        Parameters
        ----------
        answers
            Whether the rows have their answers, which takes longer to read.

        Yields
        ------
        Row
            The result of a task. A row that is not what was written, or lies on a broken page of
            the file, has the status ``"damaged"``; the others are not touched by it.
        """
        with self._file.errors_by_name():
            query = f"SELECT rowid, {_KEY_COLUMN} FROM results"
            rowids_and_keys = sorted(self._db.execute(query).fetchall())

        # Rows are read by their numbers in batches, which lets others write meanwhile.
        select = f"SELECT {_selected_columns(answers)} FROM results WHERE rowid"
        for start in range(0, len(rowids_and_keys), _ROWS_PER_READ):
            batch = rowids_and_keys[start : start + _ROWS_PER_READ]
            first_rowid, _ = batch[0]
            last_rowid, _ = batch[-1]
            try:
                cursor = self._db.execute(
                    f"{select} BETWEEN ? AND ? ORDER BY rowid", (first_rowid, last_rowid)
                )
                table = cursor.fetchall()
            except sqlite3.DatabaseError:
                # A broken page fails the whole query: read its rows one by one. A row that is lost
                # keeps its key, the first column; seal and answer come last.
                table = []
                for rowid, key in batch:
                    values = (key, *[None] * (len(COLUMNS) + 2))
                    with suppress(sqlite3.DatabaseError):
                        values = self._db.execute(f"{select} = ?", (rowid,)).fetchone() or values
                    table.append(values)
            for values in table:
                yield _to_row(values, answers)

    def problem(self, sha256: str) -> Problem:
        """Return a problem by its digest.

        Parameters
        ----------
        sha256
            The digest of the problem's canonical text, in hexadecimal digits.

        Raises
        ------
        StoreError
            If there is none, or it is damaged.
        """
        with self._file.errors_by_name():
            query = "SELECT content FROM problems WHERE sha256 = ?"
            record = self._db.execute(query, (sha256,)).fetchone()
        if record is None:
            raise StoreError(f"{self.path}: no problem {sha256}")

        (content,) = record
        try:
            text = zlib.decompress(content)
        except (TypeError, zlib.error) as exc:  # the text where the cell is no blob
            raise StoreError(f"{self.path}: problem {sha256} is damaged: {exc}") from exc
        if digest(text) != sha256:
            raise StoreError(f"{self.path}: problem {sha256} is damaged: its digest differs")
        return problem_from_tree(parse_json(text, self.path))

    def discard(self, key: str) -> None:
        """Remove a row, so that the next sweep runs its task again.

        Parameters
        ----------
        key
            The key of the row; ``rowid 7`` names a row by its number where the key is damaged.
        """
        rowid = None
        if key.startswith(_ROWID_PREFIX):
            rowid = key.removeprefix(_ROWID_PREFIX)
        with self._file.errors_by_name(), self._file.transaction():
            self._db.execute("DELETE FROM results WHERE key = ? OR rowid = ?", (key, rowid))


def _selected_columns(with_answer: bool) -> str:
    """Return the columns of a query whose results `_to_row` takes."""
    columns = _COLUMN_LIST.replace('"key"', _KEY_COLUMN) + ", seal"
    return f"{columns}, answer" if with_answer else columns


def _seal(columns: Sequence[Any], answer_digest: bytes) -> bytes:
    """Return the checksum of a row: a digest of all that it holds, then that of the answer.

    The answer's digest is part of the seal, so that columns can be checked without the answer.
    """
    content = _encode_json(list(columns)).encode() + answer_digest
    return blake2b(content, digest_size=_DIGEST_SIZE).digest() + answer_digest


def _digest(answer: bytes | None) -> bytes:
    return blake2b(answer or b"", digest_size=_DIGEST_SIZE).digest()


def _to_row(values: Sequence[Any], with_answer: bool) -> Row:
    """Turn the values of a query into a row, or into a damaged one if it is not what was written.

    A damaged one has its key, the status `DAMAGED` and nothing else.
    """
    columns = values[: len(COLUMNS)]
    seal = values[len(COLUMNS)]
    answer = values[-1] if with_answer else None
    field_values = dict(zip(COLUMNS, columns, strict=True))

    # It is what was written if its seal has the digests of columns and answer.
    try:
        answer_digest = seal[_DIGEST_SIZE:]
        is_intact = seal == _seal(columns, answer_digest)
        if with_answer:
            is_intact = is_intact and _digest(answer) == answer_digest
    except (TypeError, ValueError):  # a cell of another type than was written
        is_intact = False
    if not is_intact:
        return Row(
            key=field_values["key"],
            name="",
            kind="",
            problem_sha256="",
            method="",
            seed=0,
            options="",
            version="",
            status=DAMAGED,
            error="the row is not what was written",
        )

    # Scores of several levels, and infinities, stand in the table as texts.
    for name in ("objective", "lower_bound", "gap"):
        text = field_values[name]
        if isinstance(text, str):
            is_levels = text.startswith("[")
            field_values[name] = tuple(json.loads(text)) if is_levels else float(text)
    row = Row(**field_values, answer=answer)
    if answer is None or row.objective is None or row.kind != AllToAll.kind:
        return row
    tree = parse_json(zlib.decompress(answer), row.key)
    return replace(row, slots=len(tree["schedule"]["matchings"]))
