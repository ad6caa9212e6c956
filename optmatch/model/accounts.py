"""What a reader uses of what it reads, and what it passes over: every name is accounted for.

A reader declares a `Level` for each sort of names that it meets: keys, columns, tags, settings.
The level says which names are used, and which are passed over and why that is harmless. Any other
name is refused, or it is named in one warning that says what is assumed in its place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from optmatch.model.errors import FormatError
from optmatch.model.files import path_name

_log = logging.getLogger("optmatch")

_MOST_NAMES = 8
"""How many unknown names of a level a warning lists."""


@dataclass(frozen=True, slots=True)
class Level:
    """The names of one sort that a reader may meet, and what it does with them.

    Parameters
    ----------
    what
        What such a name is, in the singular, such as ``setting of couplers``.
    used
        The names that the reader uses.
    harmless
        Why a name may be passed over, by the name; ``*`` in a name stands for any letters.
    assumed
        What is assumed where another name stands; empty: another name is refused.

    Examples
    --------
    >>> columns = Level("column", ("cell", "loss_db"), {"note*": "said to people"})
    >>> with accounting("cells.csv") as account:
    ...     account.take(columns, ["cell", "notes"], "line 1")
    >>> account.rows()
    [('column', 'cell', 'used'), ('column', 'notes', 'passed over: said to people')]
    """

    what: str
    used: tuple[str, ...]
    harmless: Mapping[str, str] = field(default_factory=dict)
    assumed: str = ""

    def reason_to_pass(self, name: str) -> str | None:
        """Return why a name may be passed over; None if it is not known to be harmless."""
        fitting = (
            reason for pattern, reason in self.harmless.items() if fnmatchcase(name, pattern)
        )
        return self.harmless.get(name) or next(fitting, None)


@dataclass(slots=True)
class _Account:
    """The names that a reader has used, passed over and assumed."""

    path: str
    fates: dict[tuple[str, str], str] = field(default_factory=dict)
    """The fate of each name, by its level and the name, in the order in which they were met."""
    warnings: list[str] = field(default_factory=list)
    """Sentences on what is not understood, with what is assumed in its place."""
    _unknown: dict[str, tuple[Level, dict[str, str]]] = field(default_factory=dict)

    def take(self, level: Level, names: Iterable[str], where: str = "") -> None:
        """Account for the names that stand at one place; those met before cost next to nothing.

        Parameters
        ----------
        level
            The declaration of the reader.
        names
            The names that stand there.
        where
            The place, for messages.

        Raises
        ------
        FormatError
            If a name is unknown, and the level assumes nothing in its place.
        """
        for name in names:
            if (level.what, name) in self.fates:
                continue

            # A name is used, passed over for a reason, assumed to say nothing, or refused.
            reason = level.reason_to_pass(name)
            if name in level.used:
                self.fates[level.what, name] = "used"
            elif reason is not None:
                self.fates[level.what, name] = f"passed over: {reason}"
            elif level.assumed:
                self.fates[level.what, name] = f"unknown: {level.assumed}"
                self._unknown.setdefault(level.what, (level, {}))[1][name] = where
            else:
                listed = ", ".join(level.used)
                raise FormatError(
                    f"unknown {level.what} {name!r}: known are {listed}", where=where
                )

    def assume(self, sentence: str) -> None:
        """Say what is not understood, and what is assumed in its place; once for each sentence."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def sentences(self) -> list[str]:
        """Return all that is not understood: a sentence for each level, then what was assumed."""
        sentences = []
        for level, where_of_name in self._unknown.values():
            listed = [
                f"{name} ({where})" if where else name
                for name, where in list(where_of_name.items())[:_MOST_NAMES]
            ]
            n_more = len(where_of_name) - len(listed)
            more = f" and {n_more} more" if n_more else ""
            sentences.append(f"unknown {level.what}: {', '.join(listed)}{more}; {level.assumed}")
        return sentences + self.warnings

    def lines(self) -> list[str]:
        """Return a line for each level and fate, with the names that have it."""
        names_of: dict[tuple[str, str], list[str]] = {}
        for what, name, fate in self.rows():
            names_of.setdefault((what, fate), []).append(name)
        lines = [f"{what} {', '.join(names)}: {fate}" for (what, fate), names in names_of.items()]
        return lines + [f"assumed: {sentence}" for sentence in self.warnings]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return level, name and fate of each name that was met."""
        return [(what, name, fate) for (what, name), fate in self.fates.items()]


_OPEN: ContextVar[_Account | None] = ContextVar("_OPEN", default=None)


@contextmanager
def accounting(path: str | os.PathLike[str] = "") -> Iterator[_Account]:
    """Keep one account of all that is read in this block, and end with one warning at most.

    A block within another one adds to its account: a command that shows an account opens it, and
    the readers that it calls fill it.

    Parameters
    ----------
    path
        What is read, for the warning.
    """
    account = _OPEN.get()
    if account is not None:
        yield account
        return
    account = _Account(path_name(path) if path else "")
    token = _OPEN.set(account)
    try:
        yield account
    finally:
        _OPEN.reset(token)

    # All names that were not understood are one line in the log.
    sentences = account.sentences()
    if sentences:
        name = f"{account.path}: " if account.path else ""
        _log.warning("%s%s", name, "; ".join(sentences))


def take(level: Level, names: Iterable[str], where: str = "", path: str = "") -> None:
    """Account for names in the open account, or in one of their own; see `_Account.take`."""
    with accounting(path) as account:
        account.take(level, names, where)


def assume(sentence: str) -> None:
    """Add a sentence to the account on what is not understood, and what is assumed for it."""
    with accounting() as account:
        account.assume(sentence)
