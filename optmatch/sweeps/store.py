"""The durable store of sweeps: an SQLite file with a row for each task, and its problems."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from optmatch.io.problems import problem_from_tree, problem_to_tree
from optmatch.io.text import canonical, digest, parse_json
from optmatch.model import InputError, OptMatchError, Problem
from optmatch.model.files import path_name
from optmatch.sweeps.tasks import COLUMNS, DAMAGED, Row

VERSION = 1
"""The version of the layout of tables. A store of a newer version is refused, never changed."""

_APPLICATION = 0x6F706D74  # "opmt", which tells our files from other databases
_WAIT_S = 60.0  # seconds to wait for others that write to the same store
_RETRY_S = 0.01
_MAGIC = b"SQLite format 3\x00"
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_NO_KEY = "rowid "  # and its number: the key of a row whose key is no text
_KEY = f"CASE typeof(key) WHEN 'text' THEN key ELSE '{_NO_KEY}' || rowid END AS key"
_LAYOUT = (
    "CREATE TABLE IF NOT EXISTS problems (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS results ({_NAMES}, seal BLOB, answer BLOB, PRIMARY KEY (key))",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
_BATCH = 500
_write = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class StoreError(OptMatchError):
    """A store cannot be read or written; its rows stay."""


class NotAStoreError(StoreError, InputError):
    """A file that is no database of SQLite, as stores are; nothing was changed."""


def is_store(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is a database of SQLite, as stores are."""
    if not Path(path).is_file():
        return False
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class Store:
    """Rows of sweeps in a file, to which several processes of one machine may write.

    The file is made if it is not there; with `read_only` nothing is changed, so that works also
    where nothing may be written. `StoreError` says that it is no store, of a newer version, or
    cannot be opened.

    Each row is a transaction of a write-ahead log: a process that is killed loses nothing that was
    written. A power cut may lose the last seconds, and nothing else. Write-ahead logs do not work
    on network file systems.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path: str = path_name(path)
        if read_only and not Path(path).exists():
            raise StoreError(f"{self.path}: there is no such store")
        if Path(path).exists() and not Path(path).is_file():
            raise StoreError(f"{self.path}: no regular file, which a store is")
        if Path(path).exists() and Path(path).stat().st_size and not is_store(path):
            raise NotAStoreError(
                "no store of a sweep, which is a database of SQLite", path=self.path
            )
        with self._told():
            self._db = self._open(read_only)
            self._db.text_factory = lambda text: text.decode(errors="replace")
            try:
                self._prepare(read_only)
            except BaseException:
                self._db.close()
                raise

    def _open(self, read_only: bool) -> sqlite3.Connection:
        if not read_only:
            return sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
        uri = Path(self.path).resolve().as_uri()
        # The first removes the log that it lays beside the file, unless a log is there already;
        # the last is for folders in which no log can be laid.
        modes = ("mode=rw", "mode=ro", "immutable=1")
        for mode in modes[Path(f"{self.path}-wal").exists() :]:
            db = sqlite3.connect(f"{uri}?{mode}", uri=True, timeout=_WAIT_S, isolation_level=None)
            try:
                db.execute("SELECT count(*) FROM sqlite_master")
                db.execute("PRAGMA query_only = ON")
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                db.close()
                if mode == modes[-1] or not isinstance(exc, sqlite3.OperationalError):
                    raise
            else:
                break
        return db

    def _prepare(self, read_only: bool) -> None:
        # Several processes may open a new store at once, so the file is looked at in one
        # transaction, and once more in the one that writes the tables.
        with self._transaction("DEFERRED"):
            version = self._check(read_only)
        if not read_only:
            self._keep_log()
            self._db.execute("PRAGMA synchronous = NORMAL")
            if not version:
                with self._transaction():
                    if not self._check(read_only):
                        for statement in _LAYOUT:
                            self._db.execute(statement)

    def _keep_log(self) -> None:
        """Switch to a write-ahead log; SQLite itself does not wait here for others that do."""
        for _ in range(int(_WAIT_S / _RETRY_S)):
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                time.sleep(_RETRY_S)
            else:
                return
        raise StoreError(f"{self.path}: another program kept it locked for {_WAIT_S:g} s")

    def _check(self, read_only: bool) -> int:
        """Return the version of the tables, 0 if there are none yet."""
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION and (tables or read_only):
            raise StoreError(f"{self.path}: a database, but no store of optmatch")
        if version > VERSION:
            raise StoreError(
                f"{self.path}: a store of version {version}, and this optmatch knows {VERSION}"
            )
        return int(version)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Name the store in errors of SQLite."""
        try:
            yield
        except UnicodeDecodeError as exc:  # SQLite quotes damaged bytes in its message
            raise StoreError(f"{self.path}: damaged, it holds bytes that are no text") from exc
        except sqlite3.Error as exc:
            text = str(exc)
            if "malformed" in text or "not a database" in text:
                text += "; `sqlite3 FILE .recover` reads what is left"
            raise StoreError(f"{self.path}: {text}") from exc

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        """Write all or nothing; other writers wait."""
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; rows are there already."""
        with self._told():
            self._db.close()

    def add(self, row: Row, problem: Problem) -> None:
        """Write a row and, if it is new, its problem.

        A row with an answer is never replaced, one that was refused, failed or damaged is.
        """
        values = _to_values(row)
        with self._told(), self._transaction():
            former = self._find(row.key)
            if former is not None and former.done:
                return
            known = self._db.execute(
                "SELECT 1 FROM problems WHERE sha256 = ?", (row.problem_sha256,)
            ).fetchone()
            if known is None:
                content = zlib.compress(canonical(problem_to_tree(problem)))
                self._db.execute(
                    "INSERT INTO problems VALUES (?, ?)", (row.problem_sha256, content)
                )
            marks = ", ".join("?" * (len(values) + 2))
            self._db.execute(
                f"INSERT OR REPLACE INTO results VALUES ({marks})",
                (*values, _seal(values, _digest(row.answer)), row.answer),
            )

    def has(self, key: str) -> bool:
        """Tell whether there is a whole row of this key that is done."""
        with self._told():
            row = self._find(key)
        return row is not None and row.done

    def row(self, key: str) -> Row:
        """Return a row with its answer; raise `StoreError` if there is none."""
        with self._told():
            row = self._find(key, answer=True)
        if row is None:
            raise StoreError(f"{self.path}: no row {key}")
        return row

    def _find(self, key: str, *, answer: bool = False) -> Row | None:
        found = self._db.execute(f"SELECT {_what(answer)} FROM results WHERE key = ?", (key,))
        values = found.fetchone()
        return None if values is None else _to_row(values, answer)

    def rows(self, *, answers: bool = False) -> Iterator[Row]:
        """Yield all rows that are there now, in the order they were written.

        A row that is not what was written, or lies on a broken page of the file, has the status
        ``"damaged"``; the others are not touched by it. Reading them with their `answers` takes
        longer.
        """
        with self._told():
            keys = sorted(self._db.execute(f"SELECT rowid, {_KEY} FROM results").fetchall())
        read = f"SELECT {_what(answers)} FROM results WHERE rowid"
        for at in range(0, len(keys), _BATCH):
            some = keys[at : at + _BATCH]
            ends = some[0][0], some[-1][0]
            try:
                found = self._db.execute(f"{read} BETWEEN ? AND ? ORDER BY rowid", ends).fetchall()
            except sqlite3.DatabaseError:
                found = [self._salvage(read, *pair) for pair in some]
            for values in found:
                yield _to_row(values, answers)

    def _salvage(self, read: str, number: int, key: str) -> tuple[Any, ...]:
        """Read one row beside a broken page, or say that it cannot be read."""
        try:
            found = self._db.execute(f"{read} = ?", (number,)).fetchone()
        except sqlite3.DatabaseError:
            found = None
        return found or (key, *[None] * (len(COLUMNS) + 2))

    def problem(self, sha256: str) -> Problem:
        """Return a problem by its digest."""
        with self._told():
            found = self._db.execute("SELECT content FROM problems WHERE sha256 = ?", (sha256,))
            content = found.fetchone()
        if content is None:
            raise StoreError(f"{self.path}: no problem {sha256}")
        try:
            text = zlib.decompress(content[0])
        except (TypeError, zlib.error) as exc:  # the text where the cell is no blob
            raise StoreError(f"{self.path}: problem {sha256} is damaged: {exc}") from exc
        if digest(text) != sha256:
            raise StoreError(f"{self.path}: problem {sha256} is damaged: its digest differs")
        return problem_from_tree(parse_json(text, self.path))

    def discard(self, key: str) -> None:
        """Remove a row, so that the next sweep runs its task again."""
        with self._told(), self._transaction():
            number = key.removeprefix(_NO_KEY) if key.startswith(_NO_KEY) else None
            self._db.execute("DELETE FROM results WHERE key = ? OR rowid = ?", (key, number))


def _what(answer: bool) -> str:
    return _NAMES.replace('"key"', _KEY) + ", seal" + ", answer" * answer


def _seal(values: Sequence[Any], answer: bytes) -> bytes:
    """Return the proof that a row is as it was written: a digest of figures and answer."""
    return blake2b(_write(list(values)).encode() + answer, digest_size=16).digest() + answer


def _digest(answer: bytes | None) -> bytes:
    return blake2b(answer or b"", digest_size=16).digest()


def _to_values(row: Row) -> list[Any]:
    """Return the figures of a row as the table has them: levels and infinities as texts."""
    values = row.figures().values()
    return [json.dumps(value) if isinstance(value, list) else value for value in values]


def _to_row(values: Sequence[Any], answered: bool) -> Row:
    """Return a row of the table, or a damaged one if it is not what was written."""
    figures = values[: len(COLUMNS)]
    seal = values[len(COLUMNS)]
    answer = values[-1] if answered else None
    found = dict(zip(COLUMNS, figures, strict=True))
    try:
        whole = seal == _seal(figures, seal[16:])
        whole = whole and not (answered and _digest(answer) != seal[16:])
    except (TypeError, ValueError):
        whole = False
    if not whole:
        empty: dict[str, Any] = dict.fromkeys(COLUMNS[:8], "")
        empty |= {"key": found["key"], "seed": 0, "error": "the row is not what was written"}
        return Row(**empty, status=DAMAGED)
    for name in ("objective", "lower_bound", "gap"):
        if isinstance(found[name], str):
            text = found[name]
            found[name] = tuple(json.loads(text)) if text.startswith("[") else float(text)
    return Row(**found, answer=answer)
