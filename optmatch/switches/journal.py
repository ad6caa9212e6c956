"""The journal of a player: what it was about to do, and what came of it.

Each line is a JSON object. The first says what is played; ``claim`` under which name the switches
are claimed, so that whoever goes on may take over the claim of a run that was killed. ``before``
has the circuits that were there; ``applying`` is on disk before a change is sent; ``tuned`` has
the measured delay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from optmatch.io.text import read_bytes
from optmatch.model import FormatError, InputError
from optmatch.model.declarations import Amount, Index, form_of
from optmatch.model.files import file_path, lock_at_once, path_name

_JOURNAL_FORMAT = "optmatch/play/1"


_PLACE = {"round": form_of(Index), "moment": form_of(Index)}

_FIELDS_OF_EVENT = {
    "before": {"switch": form_of(str), "circuits": form_of(Sequence[str])},
    "claim": {"owner": form_of(str)},
    "applying": _PLACE,
    "tuned": {**_PLACE, "n_changed": form_of(Index), "delay_s": form_of(Amount)},
}
"""The fields that lines of a journal need, by their event; others say nothing that is read."""


class Position(NamedTuple):
    """Where a player stood."""

    round: int
    """Which time the plan was played, from 0."""
    moment: int
    """Which of its moments came last, from 0."""


class PlayJournal:
    """A journal that a player writes.

    Parameters
    ----------
    path
        The file; it is begun anew, or with `resume` continued.
    header
        What is played: the digest of the plan, the names of the switches.
    resume
        Whether a former run goes on. The file then has to be about the same plan.

    Raises
    ------
    InputError
        If the file is there already, without `resume`, or is of another plan.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: Mapping[str, Any], *, resume: bool
    ) -> None:
        """Open the journal of a player: a file with a line of JSON for each thing that it does.

        A new journal begins with a line that says what is played: the digest of the plan and the
        names of the switches. With `resume`, the lines of a former run, which must have had the
        same header, are read first, and new ones are added behind them. A file that is there
        already without `resume`, is of another plan, or is being written by another player is
        refused.
        """
        self.path = file_path(path)
        self.before: dict[str, list[str]] = {}
        """Names of the circuits that each switch had before the first change."""
        self.position: Position | None = None
        """Where the former run stood; None for a new journal."""
        self.owner: str = ""
        """Under which name the former run claimed its switches; empty for a new journal."""

        name = path_name(path)
        if not name:
            raise InputError("journal = '': the name of a file is expected", where="journal")
        self._file = self._open(name, resume=resume)
        try:
            # The lock is held as long as the file is open, so that only one player writes it.
            # Nothing is read before: another player might write the file after that and end.
            if not lock_at_once(self._file):
                raise InputError("another player is writing this journal", path=name)
            if resume:
                self._read_former(header, name)

                # A last line that a crash has cut off is removed: the next one would continue
                # it, and nobody could read the two.
                end_of_lines = read_bytes(self.path).rfind(b"\n") + 1
                self._file.seek(end_of_lines)
                self._file.truncate()
            else:
                self.write(sync=True, format=_JOURNAL_FORMAT, **header)
        except BaseException:
            self._file.close()
            raise

    def _open(self, name: str, *, resume: bool) -> IO[str]:
        """Open the file of a former run, or create a new one, for writing.

        `name` is the file's name in messages.
        """
        if resume:
            try:
                return self.path.open("r+", encoding="utf-8")
            except OSError as error:
                raise FormatError(f"cannot be read: {error.strerror}", path=name) from error
        try:
            return self.path.open("x", encoding="utf-8")
        except FileExistsError:
            raise InputError(
                "is there already: --resume goes on with it, another name begins anew", path=name
            ) from None
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=name) from error

    def _read_former(self, header: Mapping[str, Any], name: str) -> None:
        """Take over what a former run has noted, and refuse a journal of another plan.

        The name under which it claimed switches goes to `owner`, the circuits that switches held
        before its first change to `before`, and the last moment that it has played to `position`.
        """
        entries = list(read_entries(self.path))
        if not entries:
            raise InputError("is empty: there is nothing to go on with", path=name)
        for key, value in header.items():
            if entries[0].get(key) != value:
                raise InputError(
                    f"{key} = {str(entries[0].get(key))[:80]!r}: the journal is of another plan or"
                    f" another switch, not {str(value)[:80]!r}",
                    path=name,
                )
        # The last entry of a kind counts: a moment is noted as ``applying`` before it is sent, and
        # as ``tuned`` once all of its circuits carry light.
        for entry in entries:
            if entry.get("event") == "claim":
                self.owner = str(entry["owner"])
            elif entry.get("event") == "before":
                self.before[str(entry["switch"])] = [str(circuit) for circuit in entry["circuits"]]
            elif entry.get("event") in ("applying", "tuned"):
                self.position = Position(int(entry["round"]), int(entry["moment"]))

    def write(self, *, sync: bool = False, **entry: Any) -> None:
        """Add a line with the fields of an event.

        With `sync` it is on disk when this returns, otherwise a crash of the machine may lose it.
        """
        self._file.write(json.dumps(entry, allow_nan=False) + "\n")
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_entries(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal; a last line that was cut off by a crash is left out.

    Parameters
    ----------
    path
        The file of a journal: a JSON object on each line.

    Yields
    ------
    dict
        The fields of a line, checked by its ``event`` (`_FIELDS_OF_EVENT`); the first line has the
        ``format``.

    Raises
    ------
    FormatError
        Naming the line that is broken or lacks a field of its event, or if the file is no journal
        of a player.
    """
    name = path_name(path)

    # A crash can cut off the last line alone: each line is written at once, with its line feed.
    lines = read_bytes(path).decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:-1], 1):
        if not line:
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # the latter of lists in lists in lists ...
            raise FormatError("not JSON", path=name, where=f"line {number}") from None

        if not isinstance(entry, dict) or (number == 1 and entry.get("format") != _JOURNAL_FORMAT):
            raise FormatError(
                f"a journal of `optmatch play` begins with its format, {_JOURNAL_FORMAT}",
                path=name,
                where=f"line {number}",
            )

        # Fields of the event are there, and of their types; events that nothing reads need none.
        event = entry.get("event")
        fields = _FIELDS_OF_EVENT.get(event, {}) if isinstance(event, str) else {}
        for field, form in fields.items():
            try:
                form.check(field, entry.get(field))
            except InputError as error:
                raise FormatError(str(error), path=name, where=f"line {number}") from None

        yield entry


class MeasuredDelays(NamedTuple):
    """How long reconfigurations of a switch took, from the change to the last tuned circuit."""

    n_changes: int
    p50_s: float
    p99_s: float
    longest_s: float


def measured_delays(path: str | os.PathLike[str]) -> MeasuredDelays:
    """Return percentiles of the delays that a journal has.

    A delay goes from the first change of a moment that is sent to its last tuned circuit. Moments
    at which no circuit changed do not count.

    Parameters
    ----------
    path
        The journal of a player.

    Returns
    -------
    MeasuredDelays
        The number of changes, and the 50th and 99th percentile and the longest of their delays, in
        seconds.

    Raises
    ------
    FormatError
        If the file is no journal.
    InputError
        If it has no measured delay.
    """
    # A moment without a changed circuit has no delay to measure.
    delays_s = [
        float(entry["delay_s"])
        for entry in read_entries(path)
        if entry.get("event") == "tuned" and entry["n_changed"] > 0
    ]
    if not delays_s:
        raise InputError("no change of circuits was measured", path=path_name(path))
    return MeasuredDelays(
        n_changes=len(delays_s),
        p50_s=float(np.percentile(delays_s, 50)),
        p99_s=float(np.percentile(delays_s, 99)),
        longest_s=max(delays_s),
    )
