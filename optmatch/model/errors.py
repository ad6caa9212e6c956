"""The errors of optmatch: one tree, split by what the reader can do about them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial

_MOST_LETTERS = 3900  # of a message, so that with its end it stays below 4,000


class OptMatchError(Exception):
    """Base of all errors that optmatch raises on purpose.

    Examples
    --------
    >>> import optmatch as om
    >>> issubclass(om.InputError, om.OptMatchError)
    True
    """


class InputError(OptMatchError, ValueError):
    """Data that breaks a rule.

    Parameters
    ----------
    message
        The error in one sentence: place, value and rule.
    where
        The place inside the data (``"matching[3]"`` or a JSON pointer), if there is one.
    path
        The file the data came from, if any; readers fill it in.

    Examples
    --------
    >>> import optmatch as om
    >>> om.HexMesh(0, 4)
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: rows = 0: must be >= 1
    """

    def __init__(self, message: str, *, where: str = "", path: str = "") -> None:
        """Make an error about something that a user has given.

        Parameters
        ----------
        message
            The text that says what is wrong; a long one is cut.
        where
            The argument, field or place in a file that is wrong; empty if the message says it.
        path
            The file that is wrong; empty for none.
        """
        message = _printable(message)
        super().__init__(message)
        self.message = message
        self.where = where
        self.path = path

    def __str__(self) -> str:
        """Return the file, the place and the message, without a place that the message names."""
        parts = [self.path, self.where, self.message]
        if self.where in self.message:  # which many messages name
            parts = [self.path, self.message]
        return _printable(": ".join(part for part in parts if part))

    def __reduce__(self) -> tuple[object, ...]:  # keyword-only arguments survive a process pool
        return partial(type(self), self.message, where=self.where, path=self.path), ()


def _printable(text: str) -> str:
    """Return a text that is at most `_MOST_LETTERS` long, but for its end, and can be encoded.

    Half a pair of surrogates, which a file or the name of a file may hold, is written as an
    escape.
    """
    if len(text) > _MOST_LETTERS:
        n_omitted = len(text) - _MOST_LETTERS
        text = f"{text[:_MOST_LETTERS]} ... and {n_omitted} more letters"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name a file in each `InputError` of this block that names none.

    Parameters
    ----------
    path
        The file that the block reads; errors that name another one stay as they are.
    """
    try:
        yield
    except InputError as exc:
        exc.path = exc.path or str(path)
        raise


class FormatError(InputError):
    """A file that cannot be read as the format it claims to be.

    Examples
    --------
    >>> from optmatch.io import loads
    >>> loads('{}')
    Traceback (most recent call last):
        ...
    optmatch.model.errors.FormatError: <text>: /: key 'format' is missing
    """


class InfeasibleError(OptMatchError):
    """Proved to have no solution; raised only where a caller insists on a schedule."""


class LimitReached(OptMatchError):
    """No answer was found within the limits; raised only where a caller insists on a schedule."""


class TimeUp(LimitReached):
    """The time is up in the middle of something; `optmatch.solve` makes an outcome of it."""


class VerificationError(OptMatchError, ValueError):
    """A replay failed: a defect in a method, or a foreign file.

    Examples
    --------
    >>> import optmatch as om
    >>> issubclass(om.VerificationError, om.OptMatchError)
    True
    """


class SolverUnavailable(OptMatchError, ImportError):
    """A method needs a package that is not installed; the message says how to get it.

    Examples
    --------
    >>> import optmatch as om
    >>> issubclass(om.SolverUnavailable, ImportError)
    True
    """


class SolverError(OptMatchError, RuntimeError):
    """A back end broke its contract.

    Examples
    --------
    >>> import optmatch as om
    >>> issubclass(om.SolverError, om.OptMatchError)
    True
    """


def pointer(where: str, *parts: str | int) -> str:
    """Extend a JSON pointer (RFC 6901)."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join((where, *("/" + part for part in escaped)))


def nearest_name(name: str, known_names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint at what was meant by an unknown name.

    Names that begin with it come first, as ``sonic-ocs`` and ``sonic-cli`` with ``sonic``; else
    the one that is spelt most alike. Without any, it is `otherwise`, or all known names.
    """
    known_names = list(known_names)
    close_names = [known for known in known_names if name and known.startswith(name)]
    close_names = close_names[:3] or get_close_matches(name, known_names, n=1)
    if close_names:
        return f"perhaps {' or '.join(map(repr, close_names))}"
    return otherwise or f"known are {', '.join(known_names)}"


def place_in(named: str, message: str, names: frozenset[str], where: str) -> str:
    """Return the JSON pointer of a field that a constructor refused, else that of its object.

    The error names the place, as ``demand[0, 1]``, or its message begins with it.
    """
    match = re.match(r"(\w+)(?:\[([\d, ]+)\])?", named or message)
    if match is None or match[1] not in names:
        return where
    return pointer(where, match[1], *re.findall(r"\d+", match[2] or ""))
