"""What the header of a column says: its meaning, and the unit of its numbers.

A header such as ``size_gbytes`` or ``traffic (Mbit/s)`` is taken apart into words. A unit that is
named is used or refused; nothing is taken for bytes because its unit is not understood.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from optmatch.io.fields import shorten
from optmatch.model import FormatError
from optmatch.model.accounts import accounting

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
        with accounting() as account:
            account.assume(
                f"the demands are rates in {unit.text}; their numbers are read as bytes, so that"
                " only their proportions are right"
            )
