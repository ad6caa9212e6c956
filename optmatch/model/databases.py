"""Files of SQLite: made when they are opened, refused where they are others', errors by name."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from optmatch.model.errors import InputError, OptMatchError
from optmatch.model.files import file_path, path_name

# How long to wait for others that write to the same file, and how often to try.
_LOCK_WAIT_S = 60.0
_LOCK_RETRY_S = 0.01


_FAULTS_OF_FILES = {
    sqlite3.SQLITE_NOTADB: "no {noun}, which is a database of SQLite",
    sqlite3.SQLITE_BUSY: "is in use by another process",
    sqlite3.SQLITE_CORRUPT: "{error}; `sqlite3 FILE .recover` reads what is left",
    sqlite3.SQLITE_ERROR: "{error}",
}
"""Codes of errors that lie in the file, and not in the disk or its rights, and their texts."""


class StoreError(OptMatchError):
    """A database cannot be read or written; its rows stay."""


class UnusableStoreError(StoreError, InputError):
    """A file that is no database of its kind, is damaged, or is open elsewhere."""


class Layout(NamedTuple):
    """The mark, version and tables of a kind of database."""

    noun: str
    """The kind in messages, such as ``store of a sweep``."""
    application_id: int
    """Four bytes in the file that tell its kind from other databases."""
    version: int
    """The version of the tables, >= 1; a file of a newer one is refused, never changed."""
    tables: Sequence[str]
    """The statements of SQL that make the tables of a new file."""


class Database:
    """An open database of one kind.

    Each transaction goes to a write-ahead log first: a process that is killed loses nothing that
    was written. A power cut may lose the last seconds, unless ``PRAGMA synchronous`` is FULL, and
    nothing else.

    Parameters
    ----------
    path
        The file, which is made if it is not there.
    layout
        Its kind; a file of another one is refused.
    read_only
        Whether nothing is changed, which works also in folders where nothing may be written.
    exclusive
        Whether no other process may have it open until it is closed. Without it, several may
        write in turn, though not on network file systems.

    Raises
    ------
    StoreError
        If the file is of another kind, of a newer version, cannot be opened, or with `exclusive`
        is open elsewhere.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout,
        *,
        read_only: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Open the file; the parameters are those of the class.

        A file that is absent is made with its tables, unless it is opened for queries alone.
        """
        self.path: str = path_name(path)
        self._layout = layout
        file = file_path(path)
        if read_only and not file.exists():
            raise StoreError(f"{self.path}: there is no such {layout.noun}")
        if file.exists() and not file.is_file():
            raise StoreError(f"{self.path}: no regular file, which a {layout.noun} is")

        with self.errors_by_name():
            if read_only:
                self.connection = self._connect_to_read()
            else:
                self.connection = sqlite3.connect(
                    self.path,
                    timeout=0.0 if exclusive else _LOCK_WAIT_S,
                    isolation_level=None,
                    check_same_thread=not exclusive,
                )

            # Bytes of a damaged text are shown as replacement characters instead of an error.
            self.connection.text_factory = lambda text: text.decode(errors="replace")
            try:
                if exclusive:
                    self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._prepare_tables(read_only, "EXCLUSIVE" if exclusive else "DEFERRED")
            except BaseException:
                self.connection.close()
                raise

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

    def _prepare_tables(self, read_only: bool, first_lock: str) -> None:
        """Check that the database is of this kind, and write its tables if it is empty.

        `first_lock` is how the transaction of that check begins, as of `transaction`.
        """
        with self.transaction(first_lock):
            version = self._check_version(read_only)
        if read_only:
            return

        # In a write-ahead log readers do not wait for a writer. SQLite does not wait for others
        # that switch to it at the same time, so that is tried again for some time.
        give_up_s = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() > give_up_s:
                    message = f"another program kept it locked for {_LOCK_WAIT_S:g} s"
                    raise StoreError(f"{self.path}: {message}") from exc
                time.sleep(_LOCK_RETRY_S)

        self.connection.execute("PRAGMA synchronous = NORMAL")
        if version != 0:
            return

        # Several processes may open a new file at once, so the transaction that writes the tables
        # looks once more whether another process has just written them.
        with self.transaction():
            if self._check_version(read_only) == 0:
                for statement in self._layout.tables:
                    self.connection.execute(statement)
                self.connection.execute(f"PRAGMA application_id = {self._layout.application_id}")
                self.connection.execute(f"PRAGMA user_version = {self._layout.version}")

    def _check_version(self, read_only: bool) -> int:
        """Return the version of the tables, 0 if there are none yet, which a reader refuses.

        A database of another program, or of a newer version of this one, is a `StoreError`.
        """
        noun = self._layout.noun
        (n_tables,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application_id,) = self.connection.execute("PRAGMA application_id").fetchone()
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()

        # An empty database is new and gets its tables, unless it is opened for reading alone.
        is_new = n_tables == 0 and not read_only
        if application_id != self._layout.application_id and not is_new:
            raise UnusableStoreError(f"a database, but no {noun}", path=self.path)
        if version > self._layout.version:
            message = f"a {noun} of version {version}, and this optmatch knows"
            raise UnusableStoreError(f"{message} {self._layout.version}", path=self.path)
        return int(version)

    @contextmanager
    def errors_by_name(self) -> Iterator[None]:
        """Raise `StoreError`, with the name of the file, where SQLite raises errors of its own."""
        try:
            yield
        except UnicodeDecodeError as exc:  # SQLite quotes damaged bytes in its message
            raise UnusableStoreError(
                "damaged, it holds bytes that are no text", path=self.path
            ) from exc
        except sqlite3.Error as exc:
            code = getattr(exc, "sqlite_errorcode", 0) & 0xFF  # without what exactly failed
            if code in _FAULTS_OF_FILES:
                message = _FAULTS_OF_FILES[code].format(noun=self._layout.noun, error=exc)
                raise UnusableStoreError(message, path=self.path) from exc
            raise StoreError(f"{self.path}: {exc}") from exc

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        """Run the statements of this context as a transaction: all or nothing is written.

        "IMMEDIATE" lets other writers wait from the beginning, "DEFERRED" from the first write.
        """
        self.connection.execute(f"BEGIN {kind}")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file; rows are there already."""
        with self.errors_by_name():
            self.connection.close()
