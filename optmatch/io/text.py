"""The bytes and the texts of files: read within bounds and strictly, and written for people.

Readers add the sentence of `describe_content` or `describe_tree`, what a file looks like, to the
error with which they refuse one that was given by mistake. Nothing of that decides how a file is
read. JSON is refused with the place of its flaw.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import logging
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FormatError, InputError, check_size, largest
from optmatch.model.errors import pointer as pointer
from optmatch.model.files import path_name

_log = logging.getLogger("optmatch")

_PATIENCE_S = 1.0
_GZIP_MAGIC = b"\x1f\x8b"
_NPY_MAGIC = b"\x93NUMPY"
_MEMBER = b"PK\1\2"
"""Begins each entry of the directory of an archive."""
_MOST_PACKED = 1040
"""Gzip packs at most 1032 bytes into one."""
_ENTRY_BYTES = 8
_PIECE_BYTES = 1 << 20


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file, or a pipe to its end.

    More than `optmatch.model.SIZES` allows is refused.
    """
    name = path_name(path)
    try:
        with _open(Path(name)) as file:
            content = _read_up_to(file, largest("bytes") + 1)
    except (OSError, ValueError) as exc:  # a name with a null byte is a ValueError
        reason = getattr(exc, "strerror", None) or exc
        raise FormatError(f"cannot be read: {reason}", path=name) from exc
    check_content("bytes", len(content), name)
    return content


def _read_up_to(file: BinaryIO, most_bytes: int) -> bytes:
    """Read at most so many bytes, in pieces: one large read allocates all of its buffer first."""
    pieces = list[bytes]()
    n_bytes = 0
    while n_bytes < most_bytes:
        piece = file.read(min(_PIECE_BYTES, most_bytes - n_bytes))
        if not piece:
            break
        pieces.append(piece)
        n_bytes += len(piece)
    return b"".join(pieces)


def _open(path: Path) -> BinaryIO:
    """Open a file to read its bytes.

    Where that has to wait until a writer opens a pipe, a message says so.
    """
    hint = Timer(_PATIENCE_S, _log.warning, ("%s: a pipe, waiting for a writer", path))
    try:
        if path.is_fifo():
            hint.start()
        return path.open("rb")
    finally:
        hint.cancel()


def decode(content: bytes, name: str, passed_over: list[str] | None = None) -> str:
    """Return bytes of UTF-8 as text; others are refused, or with a list noted in it and replaced.

    `name` is the file, for messages. A byte order mark in front is left out.
    """
    # Python's codec "utf-8-sig" would be loaded when it is first used, while time counts.
    characters = content.removeprefix(codecs.BOM_UTF8)
    try:
        return characters.decode()
    except UnicodeDecodeError as exc:
        place = exc.start + len(content) - len(characters)
        rule = f"byte {place} is {content[place]:#04x}: a file is UTF-8 text"
        error = FormatError(f"{rule}{describe_content(content)}", path=name)
        if passed_over is None:
            raise error from exc
        passed_over.append(str(error))
        return characters.decode(errors="replace")


def unzip(content: bytes, name: str) -> bytes:
    """Unpack what gzip has packed, up to the largest size; other bytes stay what they are."""
    if content[:2] != _GZIP_MAGIC:
        return content
    # A large file states its size modulo 2**32 at its end; most of those too large are refused
    # here.
    if len(content) > largest("bytes") // _MOST_PACKED:
        check_content("bytes", int.from_bytes(content[-4:], "little"), name)  # the stated size
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = _read_up_to(file, largest("bytes") + 1)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as exc:
        raise FormatError(f"cannot be read: {exc}", path=name) from exc
    check_content("bytes", len(unpacked), name)
    return unpacked


def read_arrays(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """Read an ``.npz`` archive, or one ``.npy`` array under the empty name.

    `content` is the file, `name` its name in errors. All sizes that the headers state are checked
    before any array is allocated; objects of Python are refused.
    """
    from zipfile import ZipFile

    try:
        if content[:6] == _NPY_MAGIC:
            _check_header(io.BytesIO(content), len(content), name)
            return {"": np.load(io.BytesIO(content), allow_pickle=False)}

        # An archive is checked as a whole before anything in it is unpacked. The number of members
        # is counted in the bytes, because ZipFile makes an object for each.
        check_content("arrays", content.count(_MEMBER), name)
        with ZipFile(io.BytesIO(content)) as directory:
            members = directory.infolist()

            # Packed zeros take a thousandth of their size: a small archive may state a huge array.
            size_bytes = sum(member.file_size for member in members)
            check_content("entries", size_bytes // _ENTRY_BYTES, name)
            check_content("bytes", size_bytes, name)

            most_common = Counter(member.filename for member in members).most_common(1)
            for filename, count in most_common:
                if count > 1:
                    raise FormatError(f"{filename!r} is in it {count} times", path=name)

            for member in members:
                with directory.open(member) as stream:
                    _check_header(stream, member.file_size, name)

        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except FormatError:
        raise
    except MemoryError as exc:
        raise FormatError("its arrays need more memory than there is", path=name) from exc
    except Exception as exc:  # NumPy and zipfile raise nearly anything for damaged headers
        raise FormatError(f"is no file of arrays: {exc}", path=name) from exc


@contextmanager
def refused_at(where: str = "", path: str = "") -> Iterator[None]:
    """Raise what is wrong with a value as an error of its file, at its place there."""
    try:
        yield
    except InputError as exc:
        raise FormatError(exc.message, where=where, path=path) from None


def check_content(kind: str, count: int, name: str) -> None:
    """Raise `FormatError` if a file states or holds more than `check_size` allows."""
    with refused_at(path=name):
        check_size(kind, count, "")


def _check_header(stream: Any, size_bytes: int, name: str) -> None:
    """Check the shape that the header of an ``.npy`` array states, before the array is read.

    Objects of Python, and arrays of more than `size_bytes`, are refused; and so is an array
    without entries with a side longer than any real array, since readers make other arrays as
    long.
    """
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)

    if dtype.hasobject or math.prod(shape) * dtype.itemsize > size_bytes:
        raise FormatError(f"an array of shape {shape} and type {dtype} in it", path=name)
    check_content("entries", math.prod(max(side, 1) for side in shape), name)


_HEAD_BYTES = 4096
"""The part at the begin of a file that tells formats of text apart."""

_CHAKRA_MESSAGES = re.compile(rb"[\x04-\x7f]\x0a[\x02-\x20]\d+\.[\d.]+")
"""The message in front of a Chakra trace: its length, then the version of the schema."""
_CHAKRA_NODE_KEYS = ("NodeType", "ctrl_deps", "ctrlDeps", "dataDeps")
_SIMAI_FIRST_LINE = re.compile(
    r"\s*(?:HYBRID_\w+|MICRO|DATA|MODEL|DLRM)\b.*(?:\n|model_parallel_NPU_group)"
)
_SERVING_COLUMNS = re.compile(r"(?=.*latency)(?=.*(?:ttft|queuing_delay|tpot))", re.IGNORECASE)

_PROFILER_TRACE = "a trace of PyTorch's profiler, which rail-trace and demand read by --kineto"
_CHAKRA_TRACE = "a Chakra trace, which rail-trace reads by --chakra and demand by --matrix"
_EXECUTION_TRACE = (
    "an execution trace of PyTorch: Chakra's chakra_trace_link and chakra_converter make of it,"
    " and of the profiler's trace of the same step, one that --chakra reads"
)
_SIMAI_WORKLOAD = (
    "a workload of SimAI or of astra-sim 1: its layers are no trace; generate rail-job states the"
    " same job by its degrees, and a list of its operations is read by --phases"
)
_SERVING_RESULTS = (
    "a table of requests by LLMServingSim, which has no traffic: its Chakra traces (*.et), made"
    " for astra-sim, are read by --chakra"
)


def describe_content(content: bytes) -> str:
    """Say what content looks like, and what reads it, as the end of a sentence; perhaps empty.

    Examples
    --------
    >>> from optmatch.io.text import describe_content
    >>> describe_content(b'{"schema": "1.1.1", "nodes": []}')[:45]
    ': it looks like an execution trace of PyTorch'
    """
    if content.startswith(b"SQLite format 3"):
        return _sentence("a database of SQLite: a store is read by report and verify --all")
    if b"ustar" in content[257:265]:
        return _sentence("a tar archive: unpack it, and name the files in it")
    if content[:2] == b"PK":
        return _sentence("a zip archive: unpack it, and name the files in it")

    # Binary formats have been told by their first bytes; texts follow by their beginnings.
    if _CHAKRA_MESSAGES.match(content):
        return _sentence(_CHAKRA_TRACE)

    head = content[:_HEAD_BYTES].decode(errors="replace")
    if head.lstrip()[:1] in ("{", "["):
        try:
            return describe_tree(json.loads(content, strict=False))
        except (ValueError, RecursionError):  # damaged, or no single value
            if '"traceEvents"' in head:
                return _sentence(_PROFILER_TRACE)
            is_chakra = re.search(r'"type"\s*:\s*"\w+_NODE"|"workload_graph"', head)
            return _sentence(_CHAKRA_TRACE) if is_chakra else ""

    # Text is known by its first line.
    first_line = head.partition("\n")[0]
    if first_line.startswith("?SNDlib native"):
        return _sentence("SNDlib's native format: its XML has the same demands and is read")
    if "<algo" in head:
        return _sentence(
            "a program of MSCCL: export writes such programs, and no command reads one"
        )
    if _SIMAI_FIRST_LINE.match(head):
        return _sentence(_SIMAI_WORKLOAD)
    if _SERVING_COLUMNS.match(first_line):
        return _sentence(_SERVING_RESULTS)
    if first_line.startswith("%%MatrixMarket"):
        return _sentence("a matrix, which generate demand reads by --matrix")
    return ""


@contextmanager
def describing(content: bytes) -> Iterator[None]:
    """Add what the content of a file looks like to each `FormatError` of this context."""
    try:
        yield
    except FormatError as exc:
        description = describe_content(content)
        if not description or exc.message.endswith(description):
            raise
        raise FormatError(f"{exc.message}{description}", where=exc.where, path=exc.path) from exc


def describe_tree(tree: Any) -> str:
    """Say what a tree of JSON looks like, as `describe_content` does.

    A list is known by its first entry, an object by its keys; the text is empty for others.
    """
    if isinstance(tree, list):
        first = tree[0] if tree else None
        if isinstance(first, dict) and "rank" in first and "operation" in first:
            return _sentence("a list of phases, which rail-trace reads by --phases")
        if isinstance(first, dict) and any(key in first for key in _CHAKRA_NODE_KEYS):
            return _sentence(
                'the nodes of a Chakra trace without {"workload_graph": ...} around them'
            )
        if isinstance(first, dict) and "ph" in first and "name" in first:
            return _sentence('trace events without {"traceEvents": ...} around them')
        if isinstance(first, list) and len(first) == 4 and isinstance(first[0], int):
            return _sentence(
                "a timeline of memory by PyTorch's profiler, which has no communication"
            )
        return ""

    # Files of ours have a format.
    if not isinstance(tree, dict):
        return ""
    tag = tree.get("format")
    if isinstance(tag, str) and tag.startswith("optmatch/"):
        return _sentence(f"a file of optmatch ({tag[:60]}), which solve, verify and info read")

    # Traces and plans of other tools, by their keys.
    if "traceEvents" in tree:
        return _sentence(_PROFILER_TRACE)
    if "workload_graph" in tree:
        return _sentence(_CHAKRA_TRACE)
    if "nodes" in tree and ("schema" in tree or "pid" in tree):
        return _sentence(_EXECUTION_TRACE)
    if "threadblocks" in str(tree.get("gpus"))[:_HEAD_BYTES]:
        return _sentence("a plan of MSCCL++: export writes such plans, and no command reads one")
    values = list(tree.values())
    if values and all(
        isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks)
        for ranks in values
    ):
        return _sentence("a file of communicator groups, which --groups reads")
    return ""


def _sentence(description: str) -> str:
    return f": it looks like {description}"


WIDTH = 96
"""Objects that fit into so many characters stay on one line; lists of numbers always do."""


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
"""A string of JSON with its quotes."""
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f]")


@dataclass
class _Flaw:
    """Stands in the tree where the text breaks a rule, until its place is known.

    `instead` is the value that a lenient reader puts there.
    """

    message: str
    instead: Any = None


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
        text = decode(text, path, passed_over)
    try:
        try:
            tree = load(text, strict=True)
        except json.JSONDecodeError as exc:
            if passed_over is None or not exc.msg.startswith("Invalid control character"):
                raise
            passed_over += [
                f"{path}:{text.count(chr(10), 0, string.start()) + 1}: a string with a control"
                " character"
                for string in _STRING.finditer(text)
                if _CONTROL_CHARACTER.search(string[0])
            ]
            tree = load(text, strict=False)
    except json.JSONDecodeError as exc:
        raise FormatError(f"{exc.msg}: not JSON", path=f"{path}:{exc.lineno}:{exc.colno}") from exc
    except RecursionError as exc:
        raise FormatError("nested too deeply", path=path) from exc
    except ValueError as exc:  # Python refuses integers of thousands of digits
        raise FormatError(f"{exc}: not a number for optmatch", path=path) from exc

    # Marks are looked for, and half a pair of surrogates, such as the escape \ud800 alone, which
    # is no letter. The first of them is the error; or each is noted and its value put in its
    # place.
    errors: list[FormatError] = []

    def mend(entry: Any, where: str) -> Any:
        """Note what is wrong with an entry, and return the value that may take its place."""
        texts = entry if isinstance(entry, dict) else (entry,)
        halves = [text for text in texts if _is_half(text)]
        if halves:
            entry = _Flaw(f"{halves[0]!r}: half of a pair of surrogates")
        if isinstance(entry, _Flaw):
            errors.append(FormatError(entry.message, where=where, path=path))
        while isinstance(entry, _Flaw):
            entry = entry.instead
        return entry

    if flaws or re.search(r"\\u[dD][89a-fA-F]", text):
        tree = replace_entries(tree, mend)
    if errors and passed_over is None:
        raise errors[0]
    if passed_over is not None:
        passed_over += map(str, errors)
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


def replace_entries(tree: Any, change: Callable[[Any, str], Any], where: str = "") -> Any:
    """Return a tree of JSON with each entry replaced by what `change` makes of it, top down.

    `change` gets an entry and its JSON pointer; what stands in the dictionary or the list that it
    returns is replaced next.

    Examples
    --------
    >>> replace_entries([1, {"a": 2}], lambda entry, where: where if entry == 2 else entry)
    [1, {'a': '/1/a'}]
    """
    tree = change(tree, where)
    if isinstance(tree, dict):
        return {
            key: replace_entries(value, change, pointer(where, key)) for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [
            replace_entries(value, change, pointer(where, index))
            for index, value in enumerate(tree)
        ]
    return tree


def _is_half(text: Any) -> bool:
    return isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text)


def plain(value: Any, write: Callable[[Any], Any] | None = None) -> Any:
    """Turn numbers, texts, arrays, and mappings and sequences of these into JSON types.

    Numbers that are not finite become strings, and -0.0 becomes 0.0, so that equal content has
    equal text. Entries of mappings and sequences are those of `write`; plain ones if it is None.
    """
    write = write or plain
    if isinstance(value, np.ndarray) and value.dtype.kind in "if" and np.isfinite(value).all():
        return (value + 0).tolist()  # -0.0 and 0.0: one content
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else str(value)  # -0.0 and 0.0: one content

    # Collections become those of JSON, entry by entry.
    if isinstance(value, Mapping):
        return {str(key): write(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return list(map(write, value))
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
