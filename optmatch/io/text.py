"""JSON text: read strictly, naming the place of a flaw, and written for people to read."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from optmatch.model import FormatError

WIDTH = 96
"""Objects that fit into so many characters stay on one line; lists of numbers always do."""


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
"""A string of JSON with its quotes."""
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f]")


class _Flaw:
    """Stands in the tree where the text breaks a rule, until its place is known.

    `instead` is the value that a lenient reader puts there.
    """

    def __init__(self, message: str, instead: Any = None) -> None:
        self.message = message
        self.instead = instead


def parse_json(text: str | bytes, path: str, *, passed_over: list[str] | None = None) -> Any:
    """Parse JSON, and refuse content that other readers would silently change.

    Refused are numbers that are not finite, keys that occur twice in an object, control characters
    in strings, halves of pairs of surrogates, and bytes that are no UTF-8.

    Parameters
    ----------
    text
        The text, or its bytes in UTF-8.
    path
        The name of its file, for messages.
    passed_over
        None: each of these flaws is an error. A list: a flaw is mended instead, and a line that
        names it is added to the list. Then

        - a number that is not finite becomes None;
        - of a key that occurs twice the first value counts;
        - control characters stay in their strings;
        - bytes that are no UTF-8 are replaced.

    Returns
    -------
    object
        Dictionaries, lists, strings, finite numbers, booleans and None.

    Raises
    ------
    FormatError
        With line and column if it is no JSON; with a JSON pointer if a key occurs twice or a
        number is not finite.

    See Also
    --------
    loads : Problems and solutions.

    Examples
    --------
    >>> parse_json('{"ports": [1, 2]}', "a.json")
    {'ports': [1, 2]}
    """
    flaws: list[_Flaw] = []

    # The JSON reader of Python does not say where in the tree a value is. Each value that breaks
    # a rule is therefore replaced by a mark, a `_Flaw`, and marks are looked for afterwards.
    def flaw(message: str, instead: Any = None) -> _Flaw:
        """Return a mark with its message and the value that may take its place."""
        flaws.append(_Flaw(message, instead))
        return flaws[-1]

    def real(digits: str) -> Any:
        """Return a number, or a mark where it is too large to be finite."""
        value = float(digits)
        return value if math.isfinite(value) else flaw(f"{digits}: a number is finite")

    def load(decoded: str, *, strict: bool) -> Any:
        """Parse a text, and note numbers and keys that are not allowed as flaws."""
        flaws.clear()
        return json.loads(
            decoded,
            strict=strict,
            object_pairs_hook=partial(_make_object, flaw),
            parse_float=real,
            parse_constant=lambda name: flaw(f"{name}: a number is finite"),
        )

    # The tree, with marks. A text with control characters is read a second time, less strictly,
    # if flaws are to be mended.
    if isinstance(text, bytes):
        text = _decode(text, path, passed_over)
    try:
        try:
            tree = load(text, strict=True)
        except json.JSONDecodeError as exc:
            if passed_over is None or not exc.msg.startswith("Invalid control character"):
                raise
            passed_over += _list_control_characters(text, path)
            tree = load(text, strict=False)
    except json.JSONDecodeError as exc:
        raise FormatError(f"{exc.msg}: not JSON", path=f"{path}:{exc.lineno}:{exc.colno}") from exc
    except RecursionError as exc:
        raise FormatError("nested too deeply", path=path) from exc
    except ValueError as exc:  # Python refuses integers of thousands of digits
        raise FormatError(f"{exc}: not a number for optmatch", path=path) from exc

    # Half a pair of surrogates, such as the escape \ud800 alone, is no letter.
    if not flaws and re.search(r"\\u[dD][89a-fA-F]", text):
        tree = _mark_halves(tree, flaw)

    # The first mark in the tree is the error; or each is noted and its value put in its place.
    if flaws and passed_over is None:
        where, first = next(_find_flaws(tree, ""))
        raise FormatError(first.message, where=where, path=path)
    if flaws and passed_over is not None:
        passed_over += [
            str(FormatError(one_flaw.message, where=where, path=path))
            for where, one_flaw in _find_flaws(tree, "")
        ]
        tree = _without_flaws(tree)
    return tree


def _make_object(flaw: Callable[..., _Flaw], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its keys and values; a key that occurs twice gets a flaw as its value."""
    value_of_key: dict[str, Any] = {}
    for key, value in pairs:
        if key in value_of_key:
            value_of_key[key] = flaw(f"key {key!r} occurs twice", value_of_key[key])
        else:
            value_of_key[key] = value
    return value_of_key


def _decode(content: bytes, path: str, passed_over: list[str] | None) -> str:
    """Return bytes of UTF-8 as text; wrong ones are noted in `passed_over` and replaced.

    They are refused if it is None, and so is a store of results.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        if exc.object.startswith(b"SQLite"):
            raise FormatError("a store: for `report`, and `verify --all`", path=path) from exc
        rule = f"byte {exc.start} is {exc.object[exc.start]:#04x}: a file is UTF-8 text"
        if passed_over is None:
            raise FormatError(rule, path=path) from exc
        passed_over.append(str(FormatError(rule, path=path)))
        return content.decode(errors="replace")


def _list_control_characters(text: str, path: str) -> list[str]:
    """List the strings of a JSON text that have control characters, which JSON forbids."""
    return [
        f"{path}:{text.count(chr(10), 0, string.start()) + 1}: a string with a control character"
        for string in _STRING.finditer(text)
        if _CONTROL_CHARACTER.search(string[0])
    ]


def _without_flaws(tree: Any) -> Any:
    """Return a tree in which each flaw is replaced by the value that stands for it."""
    if isinstance(tree, _Flaw):
        return _without_flaws(tree.instead)
    if isinstance(tree, dict):
        return {key: _without_flaws(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_without_flaws(value) for value in tree]
    return tree


def _mark_halves(tree: Any, flaw: Callable[[str], _Flaw]) -> Any:
    """Mark texts with half a surrogate pair, which could not be written again, as flaws."""
    if isinstance(tree, dict):
        keys = [key for key in tree if _is_half(key)]
        marked = {key: _mark_halves(value, flaw) for key, value in tree.items()}
        return marked if not keys else flaw(f"key {keys[0]!r}: half of a pair of surrogates")
    if isinstance(tree, list):
        return [_mark_halves(value, flaw) for value in tree]
    return flaw(f"{tree!r}: half of a pair of surrogates") if _is_half(tree) else tree


def _is_half(text: Any) -> bool:
    return isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text)


def _find_flaws(tree: Any, where: str) -> Any:
    """Yield the JSON pointer of each flaw in a tree, which begins at `where`, and the flaw."""
    if isinstance(tree, _Flaw):
        yield where, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _find_flaws(value, pointer(where, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _find_flaws(value, pointer(where, index))


def pointer(where: str, *parts: str | int) -> str:
    """Extend a JSON pointer (RFC 6901)."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join((where, *("/" + part for part in escaped)))


def plain(value: Any) -> Any:
    """Turn numbers, texts, arrays, and mappings and sequences of these into JSON types.

    Numbers that are not finite become strings, and -0.0 becomes 0.0, so that equal content has
    equal text.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "if" and np.isfinite(value).all():
        return (value + 0).tolist()  # -0.0 and 0.0: one content
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else str(value)  # -0.0 and 0.0: one content

    # Collections become those of JSON, entry by entry.
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def as_cell(entry: Any) -> Any:
    """Return an entry of a CSV table; text that a spreadsheet would run as a formula is quoted."""
    risky = isinstance(entry, str) and entry[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{entry}" if risky else entry


def csv_text(rows: Iterable[Iterable[Any]], *, note: str = "", quoted: bool = True) -> str:
    """Write rows, of which the first has the names of columns, as CSV; None is an empty entry.

    `note` is a comment in front. Texts are those of `as_cell`, unless they are not `quoted`.
    """
    text = io.StringIO()
    if note:
        text.write(f"# {note}\n")
    if quoted:
        rows = (map(as_cell, row) for row in rows)
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def digest(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    from hashlib import sha256  # loads OpenSSL, which `optmatch --help` can do without

    return sha256(content).hexdigest()


def canonical(tree: Any) -> bytes:
    """Write the one form of a tree that digests are taken of: sorted keys, no spaces, UTF-8."""
    text = json.dumps(
        tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def layout(tree: Any, indent: str = "") -> str:
    """Write a tree as JSON for readers; its first line has `indent` blanks before it.

    A list of numbers or texts stays on one line, and an object that fits `WIDTH` too.
    """
    if not isinstance(tree, dict | list) or not tree:
        return json.dumps(tree, allow_nan=False)
    if isinstance(tree, list) and set(map(type, tree)).isdisjoint((dict, list)):
        return json.dumps(tree, separators=(",", ":"), allow_nan=False)
    deeper = indent + "  "
    if isinstance(tree, dict):
        entries = [f"{json.dumps(key)}: {layout(value, deeper)}" for key, value in tree.items()]
        start, end = "{}"
    else:
        entries = [layout(value, deeper) for value in tree]
        start, end = "[]"

    # An object below the top stays on one line where it fits.
    flat = isinstance(tree, dict) and not any("\n" in entry for entry in entries)
    if flat and len(indent) + sum(len(entry) + 2 for entry in entries) <= WIDTH and indent:
        return f"{start}{', '.join(entries)}{end}"
    return f"{start}\n{deeper}" + f",\n{deeper}".join(entries) + f"\n{indent}{end}"


def place_in(named: str, message: str, names: frozenset[str], where: str) -> str:
    """Return the JSON pointer of a field that a constructor refused, else that of its object.

    The error names the place, as ``demand[0, 1]``, or its message begins with it.
    """
    match = re.match(r"(\w+)(?:\[([\d, ]+)\])?", named or message)
    if match is None or match[1] not in names:
        return where
    return pointer(where, match[1], *re.findall(r"\d+", match[2] or ""))
