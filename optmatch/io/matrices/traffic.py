"""The demand that a file holds: what its columns mean, how numbers are read, and put together.

A header such as ``size_gbytes`` or ``traffic (Mbit/s)`` is taken apart into words. A unit that is
named is used or refused; nothing is taken for bytes because its unit is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.io.fields import shorten
from optmatch.io.text import check_content
from optmatch.model import FormatError, InputError
from optmatch.model.accounts import assume
from optmatch.problems.demands.matrices import add_places, names_of_ports

# fmt: off
SOURCE_WORDS = frozenset({
    "source", "src", "from", "sender", "origin", "tail", "start", "u", "i", "row",
})
DESTINATION_WORDS = frozenset({
    "destination", "dest", "dst", "to", "receiver", "target", "tgt", "head", "end", "v", "j",
    "col", "column",
})
_AMOUNT_WORDS = frozenset({
    "size", "demand", "weight", "value", "volume", "traffic", "amount", "count", "w", "data",
    "load", "total", "sum", "transferred", "sent",
})
TIME_WORDS = frozenset({"time", "timestamp", "t", "arrival", "start", "at"})
UNUSED_BESIDE_BYTES = frozenset({"packets", "packet", "pkts", "pkt", "flows", "connections"})
"""Counts that say nothing more where a column of bytes stands beside them."""
# fmt: on

_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_LONG_PREFIXES = {"kilo": "k", "mega": "m", "giga": "g", "tera": "t", "peta": "p"}
_SIZE = re.compile(
    r"(?P<prefix>kilo|mega|giga|tera|peta|[kmgtp]?)(?P<binary>i|bi)?"
    r"(?P<unit>bits?|bytes?|octets?|b)"
    r"(?P<rate>/s|/sec|/second|ps|persec|persecond)?",
    re.IGNORECASE,
)


class Unit(NamedTuple):
    """The unit of a column of traffic."""

    text: str
    """As the file writes it."""
    bytes_each: float
    """The bytes of one; of a rate 1, since its numbers are kept."""
    is_rate: bool


BYTES = Unit("bytes", 1.0, False)


def _words_of(header: str) -> list[str]:
    """Take a header apart: ``"size_gbytes"`` becomes size, gbytes; case is kept."""
    spaced = re.sub(r"\s*/\s*", "/", header.strip())
    return [word for word in re.split(r"[\s_\-()\[\]{}:,.]+", spaced) if word]


def size_unit(word: str, place: str) -> Unit | None:
    """Return the unit that a word is: bytes, bits, or one of them a second; None if it is none.

    ``gb`` and ``b`` could be bits or bytes, and are refused with both readings. In a rate that is
    written ``mbps``, b has one usual meaning, bits.
    """
    match = _SIZE.fullmatch(word)
    if match is None:
        return None
    prefix = match["prefix"].lower()
    prefix = _LONG_PREFIXES.get(prefix, prefix)
    factor = float((1024 if match["binary"] else 1000) ** _PREFIXES[prefix])
    unit = match["unit"]
    is_rate = match["rate"] is not None

    # One letter: b is bits and B is bytes, where capitals are used at all.
    is_bits = unit.lower().startswith("bit")
    if unit == "b":
        has_capitals = match["prefix"][:1].isupper() or match["binary"] is not None
        if not has_capitals and match["rate"] != "ps":
            raise FormatError(
                f"{shorten(word)} could be bits or bytes: write {prefix}bits or {prefix}bytes",
                path=place,
            )
        is_bits = True
    if is_rate:
        return Unit(word, 1.0, True)
    return Unit(word, factor / 8 if is_bits else factor, False)


def traffic_unit(header: str, place: str) -> Unit | None:
    """Return the unit of a column whose header says that it has traffic; None if it does not.

    A header without a unit, such as ``demand``, means bytes.
    """
    unit = None
    for word in _words_of(header):
        named = size_unit(word, place)
        if named is not None and unit is not None:
            raise FormatError(f"{shorten(header)} names two units", path=place)
        if named is not None:
            unit = named
        elif word.lower() not in _AMOUNT_WORDS:
            return None
    if unit is None and not _words_of(header):
        return None
    return unit or BYTES


def unit_in_words(text: str, place: str) -> Unit | None:
    """Return the unit that a text names among other words, as the corner of a table does.

    A unit of something else than traffic is refused.
    """
    unit = None
    for word in _words_of(text):
        if len(word) > 1 or word == "B":
            unit = size_unit(word, place) or unit
        if word.lower() in _NO_TRAFFIC:
            raise FormatError(f"{shorten(text)} names {word}, which is no traffic", path=place)
    return unit


# fmt: off
_NO_TRAFFIC = frozenset({
    "km", "miles", "distance", "length", "latency", "delay", "rtt", "ms", "us", "usd", "cost",
    "price", "hops", "packets", "pkts", "flows", "capacity", "probability", "loss", "db",
})
# fmt: on


def seconds_each(header: str, known_words: frozenset[str]) -> float | None:
    """Return the seconds of one unit of a column of times; None if its words are others.

    ``time`` and ``time_s`` are in seconds, ``arrival_ms`` in milliseconds.
    """
    factor = None
    is_time = False
    for word in _words_of(header):
        if word.lower() in known_words:
            is_time = True
        elif word.lower() in _SECONDS and factor is None:
            factor = _SECONDS[word.lower()]
        else:
            return None
    if not is_time:
        return None
    return 1.0 if factor is None else factor


def warn_of_rate(unit: Unit) -> None:
    """Say that numbers of a rate are read as bytes, which keeps their proportions."""
    if unit.is_rate:
        assume(
            f"the demands are rates in {unit.text}; their numbers are read as bytes, so that only"
            " their proportions are right"
        )


EXACT = 2**53
"""Whole numbers beyond this are refused: float64 would round them."""

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([ed][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


def is_number(text: str) -> bool:
    """Tell whether a text is a number, as other programs write them."""
    return _NUMBER.fullmatch(text) is not None


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number >= 0 without a sign, as labels and indices are."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def read_number(text: str, path: str) -> float:
    """Return the number that a text is, as ``3``, ``-0.5e3``, or Fortran's ``1d6``.

    A whole number that float64 would round is refused.
    """
    if text == "":
        raise FormatError(
            "'': a number is expected here; an empty field could be 0 or a value that is missing",
            path=path,
        )
    if not is_number(text):
        raise FormatError(f"{shorten(text)}: a number is expected here", path=path)

    digits = text.lstrip("+-").lstrip("0")
    if digits.isdecimal() and (len(digits) > 16 or int(digits) > EXACT):
        shown_text = shorten(text).strip("'")
        raise FormatError(f"{shown_text}: whole numbers above 2**53 are not exact here", path=path)

    # Fortran writes the exponent of a double after a d.
    return float(text.lower().replace("d", "e"))


class Traffic(NamedTuple):
    """The demand of a file, and what its ports are called.

    Examples
    --------
    >>> import numpy as np, optmatch as om
    >>> traffic = Traffic(np.array([[0.0, 3.0], [2.0, 0.0]]), ("Berlin", "Paris"))
    >>> om.Demand.from_matrix(traffic.demand_bytes, names=traffic.names, delay_s=0.5).lower_bound()
    3.5
    """

    demand_bytes: Any
    """``demand_bytes[source, destination]``: an array of float64, or a sparse array of SciPy where
    the file lists entries. Shape (sources, destinations), not necessarily square."""
    names: tuple[str, ...] | None = None
    """The names of the ports; None if the file has none, or they only count from 0."""


def traffic_of_labels(
    sources: Sequence[str],
    destinations: Sequence[str],
    demand_bytes: Sequence[float],
    path: str,
) -> Traffic:
    """Make the sparse matrix of a list of demands between labels (see `number_ports`).

    Demands of one pair add up.
    """
    source_ports, destination_ports, names = number_ports(sources, destinations, path)
    shape = (len(names), len(names))
    matrix = sparse_matrix(source_ports, destination_ports, demand_bytes, shape, path)
    return Traffic(matrix, names_of_ports(names))


def number_ports(
    sources: Sequence[str], destinations: Sequence[str], path: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return the numbers of ports of two lists of labels, and the label of each port.

    Labels that are all whole numbers are the numbers of ports, counted from 0. Otherwise ports
    come in the order in which their labels occur first: of the pairs b-a and a-c, b is port 0.
    """
    pairs = zip(sources, destinations, strict=True)
    labels = dict.fromkeys(label for pair in pairs for label in pair)
    if all(is_whole(label) for label in labels):
        n_ports = 1 + max((int(label) for label in labels), default=-1)
        check_content("ports", n_ports, path)
        port_of = {label: int(label) for label in labels}
        names = tuple(map(str, range(n_ports)))
    else:
        check_content("ports", len(labels), path)
        port_of = {label: port for port, label in enumerate(labels)}
        names = tuple(labels)

    # Both lists by numbers of ports.
    source_ports = np.array([port_of[label] for label in sources], dtype=np.int64)
    destination_ports = np.array([port_of[label] for label in destinations], dtype=np.int64)
    return source_ports, destination_ports, names


def sparse_matrix(
    sources: ArrayLike,
    destinations: ArrayLike,
    demand_bytes: ArrayLike,
    shape: tuple[int, int],
    path: str,
) -> Any:
    """Add up a list of demands as a sparse array of SciPy, without room for the zeros.

    The lists have an entry for each demand. Whole numbers that add up to more than float64 holds
    exactly are refused.
    """
    from scipy.sparse import csr_array  # an import of 0.1 s, which full matrices do without

    try:
        entries = add_places(
            shape,
            np.asarray(sources, dtype=np.int64),
            np.asarray(destinations, dtype=np.int64),
            np.asarray(demand_bytes, dtype=np.float64),
            "matrix",
        )
    except InputError as exc:
        raise FormatError(exc.message, path=path) from exc
    return csr_array((entries.amounts, (entries.sources, entries.destinations)), shape=shape)


def check_order(row_labels: Sequence[str], column_labels: Sequence[str], path: str) -> None:
    """Refuse labels of rows and columns that are not the same in the same order."""
    for row, column in zip(row_labels, column_labels, strict=True):
        if row != column:
            raise FormatError(
                f"row {shorten(row)} stands where column {shorten(column)} does: one order for"
                " both is needed",
                path=path,
            )


def check_matrix(matrix: Any) -> NDArray[np.float64]:
    """Return an array as a finite matrix of float64; it may lose no digits."""
    array = np.asarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        shape = "x".join(map(str, array.shape))
        raise FormatError(
            f"an array of {array.dtype}, shape {shape}: a matrix of numbers is needed"
        )
    for i, j in np.argwhere(~np.isfinite(array))[:1]:
        raise FormatError(f"matrix[{i}, {j}] = {array[i, j]}: a number is finite")
    _refuse_large(array)
    return np.ascontiguousarray(array, dtype=np.float64)


def check_sparse(matrix: Any) -> Any:
    """Return a sparse array with finite entries of float64, which may lose no digits."""
    entries = matrix.tocoo()
    wrong = ~np.isfinite(entries.data)
    for k in np.flatnonzero(wrong)[:1]:
        row, column = int(entries.coords[0][k]), int(entries.coords[1][k])
        raise FormatError(f"matrix[{row}, {column}] = {entries.data[k]}: a number is finite")
    _refuse_large(entries.data)
    return matrix.astype(np.float64).tocsr()


def _refuse_large(array: NDArray[Any]) -> None:
    """Refuse whole numbers that float64 would round."""
    if array.dtype.kind in "iu" and array.size and int(array.max()) > EXACT:
        raise FormatError(f"{int(array.max())}: whole numbers above 2**53 are not exact here")
