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
from optmatch.model.files import file_path, path_name
from optmatch.sweeps.tasks import COLUMNS, DAMAGED, Row

_VERSION = 1
"""The version of the layout of tables. A store of a newer version is refused, never changed."""

# "opmt" in ASCII, which tells our files from other databases of SQLite.
_APPLICATION_ID = 0x6F706D74

# The first bytes of every database of SQLite.
_SQLITE_MAGIC = b"SQLite format 3\x00"

# How long to wait for others that write to the same store, and how often to try.
_LOCK_WAIT_S = 60.0
_LOCK_RETRY_S = 0.01

# Rows that one query reads: a broken page makes this many rows be read one by one.
_ROWS_PER_READ = 500

# A damaged row may hold a key that is no text. It gets the key "rowid 17" then, so that `discard`
# can name it.
_ROWID_PREFIX = "rowid "
_KEY_COLUMN = f"CASE typeof(key) WHEN 'text' THEN key ELSE '{_ROWID_PREFIX}' || rowid END AS key"

_COLUMN_LIST = ", ".join(f'"{name}"' for name in COLUMNS)
_LAYOUT = (
    "CREATE TABLE IF NOT EXISTS problems (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS results ({_COLUMN_LIST}, seal BLOB, answer BLOB, "
    "PRIMARY KEY (key))",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
)

# Bytes of a digest in a seal.
_DIGEST_SIZE = 16

_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class StoreError(OptMatchError):
    """A store cannot be read or written; its rows stay."""


class NotAStoreError(StoreError, InputError):
    """A file that is no database of SQLite, as stores are; nothing was changed."""


def is_store(path: str | os.PathLike[str]) -> bool:
    """Tell by its first bytes whether a file is a database of SQLite, as stores are."""
    if not file_path(path).is_file():
        return False
    try:
        with file_path(path).open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError:
        return False


class Store:
    """Rows of sweeps in a file, to which several processes of one machine may write.

    Each row is a transaction of a write-ahead log: a process that is killed loses nothing that was
    written. A power cut may lose the last seconds, and nothing else. Write-ahead logs do not work
    on network file systems.

    Parameters
    ----------
    path
        The file, which is made if it is not there.
    read_only
        Whether nothing is changed, which works also in folders where nothing may be written.

    Raises
    ------
    StoreError
        If the file is no store, is of a newer version, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """Open a store of results, a database of SQLite, and make it if there is none.

        Parameters
        ----------
        path
            The file.
        read_only
            Whether it is opened for queries alone; then it must be there.

        Raises
        ------
        StoreError
            If it is absent, damaged, of a newer version, or another file.
        """
        self.path: str = path_name(path)
        file = file_path(path)
        if read_only and not file.exists():
            raise StoreError(f"{self.path}: there is no such store")
        if file.exists() and not file.is_file():
            raise StoreError(f"{self.path}: no regular file, which a store is")
        if file.exists() and file.stat().st_size and not is_store(path):
            raise NotAStoreError(
                "no store of a sweep, which is a database of SQLite", path=self.path
            )

        with self._sqlite_errors_as_store_errors():
            self._db = self._connect_to_read() if read_only else self._connect_to_write()

            # Bytes of a damaged text are shown as replacement characters instead of an error.
            self._db.text_factory = lambda text: text.decode(errors="replace")
            try:
                self._prepare_tables(read_only)
            except BaseException:
                self._db.close()
                raise

    def _connect_to_write(self) -> sqlite3.Connection:
        """Open the database, or make it."""
        return sqlite3.connect(self.path, timeout=_LOCK_WAIT_S, isolation_level=None)

    def _connect_to_read(self) -> sqlite3.Connection:
        """Open the database for queries alone, in the first mode of access that works here.

        Even a reader of a write-ahead log needs to write beside the file. ``mode=rw`` removes such
        files at its end, ``mode=ro`` leaves them, ``immutable=1`` does without in folders where
        nothing can be written.
        """
        modes = ["mode=rw", "mode=ro", "immutable=1"]

        # The log of a writer, which is there already, must not be removed.
        if Path(f"{self.path}-wal").exists():
            modes.remove("mode=rw")

        uri = Path(self.path).resolve().as_uri()
        for mode in modes:
            db = sqlite3.connect(
                f"{uri}?{mode}", uri=True, timeout=_LOCK_WAIT_S, isolation_level=None
            )
            try:
                db.execute("SELECT count(*) FROM sqlite_master")
                db.execute("PRAGMA query_only = ON")
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                db.close()
                is_last = mode == modes[-1]
                if is_last or not isinstance(exc, sqlite3.OperationalError):
                    raise
            else:
                break
        return db

    def _prepare_tables(self, read_only: bool) -> None:
        """Check that the database is a store, and write its tables if it is empty."""
        with self._transaction("DEFERRED"):
            version = self._check_version(read_only)
        if read_only:
            return

        self._use_write_ahead_log()
        self._db.execute("PRAGMA synchronous = NORMAL")
        if version != 0:
            return

        # Several processes may open a new store at once, so the transaction that writes the tables
        # looks once more whether another process has just written them.
        with self._transaction():
            if self._check_version(read_only) == 0:
                for statement in _LAYOUT:
                    self._db.execute(statement)

    def _use_write_ahead_log(self) -> None:
        """Switch to a write-ahead log, in which readers do not wait for a writer.

        SQLite itself does not wait here for others that do the same, so it is tried again for
        `_LOCK_WAIT_S` seconds.
        """
        for _ in range(int(_LOCK_WAIT_S / _LOCK_RETRY_S)):
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                time.sleep(_LOCK_RETRY_S)
            else:
                return
        raise StoreError(f"{self.path}: another program kept it locked for {_LOCK_WAIT_S:g} s")

    def _check_version(self, read_only: bool) -> int:
        """Return the version of the tables, 0 if there are none yet, which a reader refuses.

        A database of another program, or of a newer version of this one, is a `StoreError`.
        """
        (n_tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application_id,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()

        # An empty database is new and becomes a store, unless it is opened for reading alone.
        is_new = n_tables == 0 and not read_only
        if application_id != _APPLICATION_ID and not is_new:
            raise StoreError(f"{self.path}: a database, but no store of optmatch")
        if version > _VERSION:
            raise StoreError(
                f"{self.path}: a store of version {version}, and this optmatch knows {_VERSION}"
            )
        return int(version)

    @contextmanager
    def _sqlite_errors_as_store_errors(self) -> Iterator[None]:
        """Raise `StoreError`, with the name of the file, where SQLite raises errors of its own."""
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
        """Run the statements of this context as a transaction: all or nothing is written.

        "IMMEDIATE" lets other writers wait from the beginning, "DEFERRED" from the first write.
        """
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
        with self._sqlite_errors_as_store_errors():
            self._db.close()

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
        columns = _to_columns(row)
        with self._sqlite_errors_as_store_errors(), self._transaction():
            former = self._find_row(row.key)
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
        with self._sqlite_errors_as_store_errors():
            row = self._find_row(key)
        return row is not None and row.done

    def row(self, key: str) -> Row:
        """Return the row of a task with its answer.

        Parameters
        ----------
        key
            The key of the task. One that is not there is a `StoreError`.
        """
        with self._sqlite_errors_as_store_errors():
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
        with self._sqlite_errors_as_store_errors():
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
                # A broken page fails the whole query: read its rows one by one.
                table = [self._read_or_blank(select, rowid, key) for rowid, key in batch]
            for values in table:
                yield _to_row(values, answers)

    def _read_or_blank(self, select: str, rowid: int, key: str) -> tuple[Any, ...]:
        """Return the columns of one row, and None for all but the key where damage hides them."""
        try:
            values = self._db.execute(f"{select} = ?", (rowid,)).fetchone()
        except sqlite3.DatabaseError:
            values = None
        if values is not None:
            return tuple(values)

        # The key is the first column; seal and answer come after all of them.
        return (key, *[None] * (len(COLUMNS) + 2))

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
        with self._sqlite_errors_as_store_errors():
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
        with self._sqlite_errors_as_store_errors(), self._transaction():
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


def _is_intact(columns: Sequence[Any], seal: Any, answer: bytes | None, with_answer: bool) -> bool:
    """Tell whether a row is what was written, by its seal: digests of columns and answer."""
    try:
        answer_digest = seal[_DIGEST_SIZE:]
        if seal != _seal(columns, answer_digest):
            return False
        return not with_answer or _digest(answer) == answer_digest
    except (TypeError, ValueError):  # a cell of another type than was written
        return False


def _to_columns(row: Row) -> list[Any]:
    """Return the columns of a row as the table has them: levels and infinities as texts."""
    values = row.figures().values()
    return [json.dumps(value) if isinstance(value, list) else value for value in values]


def _to_row(values: Sequence[Any], with_answer: bool) -> Row:
    """Turn the values of a query into a row, or into a damaged one if it is not what was written.

    A damaged one has its key, the status `DAMAGED` and nothing else.
    """
    columns = values[: len(COLUMNS)]
    seal = values[len(COLUMNS)]
    answer = values[-1] if with_answer else None
    field_values = dict(zip(COLUMNS, columns, strict=True))

    if not _is_intact(columns, seal, answer, with_answer):
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
    return Row(**field_values, answer=answer)
