"""A record on disk: a snapshot, and a journal of all changes since, of which no line is lost."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from optmatch.control.reroutes.failed_parts import Record
from optmatch.control.reroutes.memory import (
    Memory,
    append,
    change,
    list_changes,
    read_memory,
    write_memory,
)
from optmatch.io.fields import check_keys, check_object
from optmatch.io.text import canonical, digest, parse
from optmatch.model import FormatError, InputError, integer
from optmatch.model.declarations import form_of
from optmatch.model.files import check_target

Durable = Literal["always", "interval"]
NOTES = ("refuse", "answer")
"""The line about failures that change no state."""
_SUM = 16  # letters of a checksum
_INTERVAL_S = 1.0
_LOG = logging.getLogger("optmatch")


class Journal:
    """The snapshot ``path``, the journal of its number beside it, and a lock.

    Each line is a checksum, of the line and of the checksum before it, and a JSON object. So a
    line that is changed, missing or doubled is noticed. The first one builds on the snapshot.
    """

    def __init__(self, path: str | os.PathLike[str], durable: Durable, most_lines: int) -> None:
        self.path = check_target(path, force=True)
        self._durable = form_of(Durable).check("durable", durable)
        self._most = integer("compact_lines", most_lines, at_least=1)
        self._lock = _lock(self.path)
        self._file: Any = None
        self._sum, self._lines, self._number, self._synced_s = "", 0, 0, 0.0

    @property
    def started(self) -> bool:
        """Whether there is a snapshot of this version."""
        return bool(self._sum)

    def read(self, history: int) -> list[Record]:
        """Return the records that are remembered, the present last; nothing if there is no file.

        A last line that ends early is cut off with a warning in the log; all else that is wrong
        raises a `FormatError` with its line.
        """
        if not self.path.exists():
            return []
        memory = read_memory(self.path)
        self._start(memory)
        path = self._path(memory.journal)
        if not memory.sha256:
            return memory.records  # of the version before, which had no journal
        if not path.exists():
            raise FormatError("the journal of this snapshot is missing", path=os.fspath(path))
        *whole, torn = path.read_bytes().split(b"\n")
        *past, present = memory.records
        records = deque(past, maxlen=history)
        for number, line in enumerate(whole, 1):
            place = f"{path}:{number}"
            entry = self._check(line, place)
            try:
                after = change(present, entry["changes"], "/changes")
            except InputError as exc:
                exc.path = place
                raise
            except (KeyError, TypeError, ValueError, IndexError) as exc:
                raise FormatError(f"is no change: {exc!r}", path=place) from exc
            if entry["what"] == "rollback":
                with suppress(IndexError):
                    records.pop()
            elif entry["what"] not in NOTES:
                records.append(present.before(after))
            elif own := {*present.cut_off}.difference(after.cut_off):
                records = deque((past.reported(own) for past in records), maxlen=history)
            present = after
        if torn:
            if _sum_of(self._sum, torn[_SUM + 1 : -1]) == torn[:_SUM]:
                raise FormatError("ends with another letter", path=f"{path}:{len(whole) + 1}")
            _LOG.warning("%s:%d: an incomplete line is cut off", path, len(whole) + 1)
            os.truncate(path, path.stat().st_size - len(torn))
        self._lines = len(whole)
        return [*records, present]

    def _check(self, line: bytes, place: str) -> dict[str, Any]:
        """Return the record of a line, if its checksum is right."""
        said, body = line[:_SUM], line[_SUM + 1 :]
        if line[_SUM : _SUM + 1] != b" " or _sum_of(self._sum, body) != said:
            raise FormatError("the checksum of this line is wrong", path=place)
        entry = parse(body, place)
        check_object(entry, "")
        check_keys(entry, "", known=("what", "time_s", "changes"), needed=("what", "changes"))
        self._sum = said.decode()
        return entry  # type: ignore[no-any-return]

    def write(self, what: str, before: Record, after: Record) -> None:
        """Add a line for a change; it is on disk when this returns, if that is wished.

        Where there is but a proposal the caller has nothing to lose, so that line may come later.
        """
        entry = {"what": what, "time_s": time.time(), "changes": list_changes(before, after)}
        body = canonical(entry)
        found = _sum_of(self._sum, body)
        if self._file is None:
            self._file = self._path(self._number).open("ab", buffering=0)
        late = time.monotonic() >= self._synced_s + _INTERVAL_S
        sync = late if what == "answer" else self._durable == "always" or late
        path = self._path(self._number)
        append(self._file, found + b" " + body + b"\n", path, sync=sync)
        self._synced_s = time.monotonic() if sync else self._synced_s
        self._sum, self._lines = found.decode(), self._lines + 1

    def compact(self, records: Sequence[Record], *, anyway: bool = False) -> None:
        """Begin a new journal with a new snapshot, if this one is long.

        The snapshot names its journal, so whoever reads finds the old pair or the new one.
        """
        if self._lines < self._most and not anyway:
            return
        with self._path(self._number + 1).open("wb") as file:
            os.fsync(file.fileno())
        memory = write_memory(self.path, records, self._number + 1)
        _sync_folder(self.path.parent)
        old, self._file, file = self._path(self._number), None, self._file
        self._start(memory)
        if file is not None:
            file.close()
        old.unlink(missing_ok=True)

    def figures(self) -> dict[str, float]:
        """Return how long the journal is, and how old its snapshot."""
        age_s = max(0.0, time.time() - self.path.stat().st_mtime)
        return {"journal_lines": self._lines, "snapshot_age_s": age_s}

    def close(self) -> None:
        """Write all lines to disk, and release the files."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _start(self, memory: Memory) -> None:
        self._number, self._sum, self._lines = memory.journal, memory.sha256[:_SUM], 0

    def _path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}.journal")


def _sum_of(before: str, body: bytes) -> bytes:
    return digest(before.encode() + body)[:_SUM].encode()


def _sync_folder(folder: Path) -> None:
    """Bring names of files to disk, where a folder can be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(path: Path) -> Any:
    """Lock a controller's files for this process; None where files cannot be locked."""
    try:
        import fcntl
    except ImportError:
        return None
    file = path.with_name(f"{path.name}.lock").open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        file.seek(0)
        owner = file.read().strip()
        file.close()
        raise InputError(f"is in use by process {owner}", path=os.fspath(path)) from exc
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
