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
    apply_changes,
    list_changes,
    read_memory,
    write_memory,
)
from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_keys, check_object
from optmatch.io.text import canonical, digest, parse_json
from optmatch.model import FormatError, InputError, integer, naming
from optmatch.model.declarations import form_of
from optmatch.model.files import append_bytes, check_target, lock_at_once, sync_folder

Durable = Literal["always", "interval"]
"""When changes are brought to disk: each before its call returns, or once a second."""

REFUSED = "refuse"
ANSWERED = "answer"
ROLLED_BACK = "rollback"
"""Events of the journal that are treated in a way of their own; all others are new states."""

_CHECKSUM_LETTERS = 16
_INTERVAL_S = 1.0
_LOG = logging.getLogger("optmatch")


class Journal:
    """The snapshot ``path``, the journal of its number beside it, and a lock.

    Each line is a checksum, of the line and of the checksum before it, and a JSON object. This
    chain shows a line that was changed, is missing or is there twice. The first line builds on the
    digest of the snapshot.

    Parameters
    ----------
    path
        The snapshot; the journal is ``path.NUMBER.journal``, the lock ``path.lock``.
    durable
        When changes are brought to disk.
    compact_lines
        After how many lines a new snapshot takes the place of the journal.

    Raises
    ------
    InputError
        If another process has the files open, or they cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], durable: Durable, compact_lines: int) -> None:
        """Lock the files, and check the arguments; nothing is read or written yet."""
        self.path = check_target(path, force=True)
        self._durable = form_of(Durable).check("durable", durable)
        self._compact_lines = integer("compact_lines", compact_lines, at_least=1)
        self._lock = _lock_files(self.path)
        self._file: Any = None
        self._number = 0
        self._n_lines = 0
        self._checksum = ""
        """The checksum of the last line; empty as long as there is no snapshot of this format."""
        self._synced_s = 0.0

    @property
    def has_snapshot(self) -> bool:
        """Whether there is a snapshot of this format."""
        return bool(self._checksum)

    def read(self, history: int) -> list[Record]:
        """Read a controller back from its two files: its records, the present one last.

        Each line of the journal is applied to the last record, which gives the next one. A last
        line that ends early, as a crash leaves it, is cut off with a warning in the log; another
        damaged line is a `FormatError` that names it. Empty if there is no file; at most `history`
        former records.
        """
        if not self.path.exists():
            return []
        memory = read_memory(self.path)
        self._begin_journal(memory)
        journal = self._journal_path(memory.journal)
        if not journal.exists():
            raise FormatError("the journal of this snapshot is missing", path=str(journal))

        # A whole line ends with a line feed: behind the last one there is nothing, or a line that
        # a crash has torn off. Each whole line leads from the present record to the next one.
        *lines, torn_line = read_bytes(journal).split(b"\n")
        *past, present = memory.records
        records = deque(past, maxlen=history)
        for number, line in enumerate(lines, 1):
            place = f"{journal}:{number}"
            event, changes = self._read_line(line, place)
            with naming(place):
                after = apply_changes(present, changes, "/changes")
            records = remember(records, event, present, after)
            present = after
        if torn_line:
            self._cut_off(torn_line, journal, len(lines) + 1)
        self._n_lines = len(lines)
        return [*records, present]

    def _read_line(self, line: bytes, place: str) -> tuple[Any, Any]:
        """Return event and changes of a line, if its checksum is right.

        A checksum covers the line and the checksum before it, so that no line can be missing.
        """
        checksum = line[:_CHECKSUM_LETTERS]
        separator = line[_CHECKSUM_LETTERS : _CHECKSUM_LETTERS + 1]
        body = line[_CHECKSUM_LETTERS + 1 :]
        if separator != b" " or _chain_checksum(self._checksum, body) != checksum:
            raise FormatError("the checksum of this line is wrong", path=place)
        self._checksum = checksum.decode()

        entry = parse_json(body, place)
        with naming(place):
            check_object(entry, "")
            keys = ("what", "time_s", "changes")
            check_keys(entry, "", allowed=keys, required=("what", "changes"))
        return entry["what"], entry["changes"]

    def _cut_off(self, torn_line: bytes, journal: Path, number: int) -> None:
        """Cut off a last line without its end; refuse one that is whole but for its end.

        If its checksum is right without its last letter, it is no torn line, but a changed one.
        """
        body = torn_line[_CHECKSUM_LETTERS + 1 : -1]
        if _chain_checksum(self._checksum, body) == torn_line[:_CHECKSUM_LETTERS]:
            raise FormatError("ends with another letter", path=f"{journal}:{number}")
        _LOG.warning("%s:%d: an incomplete line is cut off", journal, number)
        os.truncate(journal, journal.stat().st_size - len(torn_line))

    def write(self, event: str, before: Record, after: Record) -> None:
        """Add a line for a change; it is on disk when this returns, if that is wished.

        A line is a checksum of it and of the line before, a space, and a JSON object. The line of
        a proposal may reach the disk later: its caller has nothing to lose yet. After an `OSError`
        the journal is as it was.
        """
        changes = list_changes(before, after)
        body = canonical({"what": event, "time_s": time.time(), "changes": changes})
        checksum = _chain_checksum(self._checksum, body)
        path = self._journal_path(self._number)
        if self._file is None:
            self._file = path.open("ab", buffering=0)

        is_due = time.monotonic() >= self._synced_s + _INTERVAL_S
        is_urgent = self._durable == "always" and event != ANSWERED
        sync = is_due or is_urgent
        append_bytes(self._file, checksum + b" " + body + b"\n", path, sync=sync)
        if sync:
            self._synced_s = time.monotonic()
        self._checksum = checksum.decode()
        self._n_lines += 1

    def compact(self, records: Sequence[Record], *, always: bool = False) -> None:
        """Begin a new journal with a new snapshot, if the present one is long or that is asked.

        The snapshot names its journal. A reader therefore finds the old pair or the new one.
        """
        if self._n_lines < self._compact_lines and not always:
            return
        old_journal = self._journal_path(self._number)
        old_file = self._file

        # The empty journal is on disk before the snapshot that names it, and the old one goes
        # last.
        with self._journal_path(self._number + 1).open("wb") as file:
            os.fsync(file.fileno())
        memory = write_memory(self.path, records, self._number + 1)
        sync_folder(self.path.parent)

        self._file = None
        self._begin_journal(memory)
        if old_file is not None:
            old_file.close()
        old_journal.unlink(missing_ok=True)

    def figures(self) -> dict[str, float]:
        """Return how many lines the journal has, and how old its snapshot is."""
        age_s = max(0.0, time.time() - self.path.stat().st_mtime)
        return {"journal_lines": self._n_lines, "snapshot_age_s": age_s}

    def close(self) -> None:
        """Write all lines to disk, and release the files."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _begin_journal(self, memory: Memory) -> None:
        """Go on with the journal that a snapshot names, which has no line yet."""
        self._number = memory.journal
        self._checksum = memory.sha256[:_CHECKSUM_LETTERS]
        self._n_lines = 0

    def _journal_path(self, number: int) -> Path:
        """Return the path of the journal of a number, beside the snapshot."""
        return self.path.with_name(f"{self.path.name}.{number}.journal")


def remember(records: deque[Record], event: Any, before: Record, after: Record) -> deque[Record]:
    """Return the records before the present one, after one more event of the journal.

    One is added by each change of the state, and taken by each rollback.
    """
    if event == ROLLED_BACK:
        with suppress(IndexError):  # the history that is remembered now may be shorter than then
            records.pop()
    elif event not in (REFUSED, ANSWERED):
        records.append(before.with_answered_of(after))
    else:
        # Chips that were cut off and are reported by themselves have failed in the past as well.
        reported = {*before.cut_off}.difference(after.cut_off)
        if reported:
            past = (record.with_reported_chips(reported) for record in records)
            return deque(past, maxlen=records.maxlen)
    return records


def _chain_checksum(before: str, body: bytes) -> bytes:
    """Return the checksum of a line that follows the line with the checksum `before`."""
    return digest(before.encode() + body)[:_CHECKSUM_LETTERS].encode()


def _lock_files(path: Path) -> Any:
    """Lock a controller's files for this process, where files can be locked.

    The lock is held by the open file beside the snapshot until that is closed.
    """
    file = path.with_name(f"{path.name}.lock").open("a+", encoding="ascii")
    if not lock_at_once(file):
        file.seek(0)
        owner = file.read().strip()
        file.close()
        raise InputError(f"is in use by process {owner}", path=str(path))

    # The number of this process is for the message of the next one.
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
