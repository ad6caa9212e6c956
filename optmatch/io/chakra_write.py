"""Chakra execution traces as files: nodes in, one file for a rank out."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from optmatch.io.chakra_schema import COMPUTE, messages

VERSION = "1.0.0"
"""Of the schema, as it stands in front of each trace."""


class Node(NamedTuple):
    """A node of a trace."""

    id: int
    kind: int = COMPUTE
    """A type of node: `COMPUTE`, `SEND`, `RECEIVE`, `COLLECTIVE` or another number."""
    name: str = ""
    parents: Sequence[int] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: Mapping[str, bool | int | str] = {}


def trace_bytes(
    nodes: Iterable[Node], *, integers: str = "int64", compress: bool = False
) -> bytes:
    """Write nodes as the trace of one rank.

    Parameters
    ----------
    nodes
        In the order of the file.
    integers
        The width of attributes that are whole numbers, ``"int64"`` or ``"uint32"`` for instance;
        producers differ.
    compress
        Whether the result is gzipped.

    Returns
    -------
    bytes
        The content of ``name.RANK.et``.

    Raises
    ------
    ValueError
        If a number does not fit its width.

    Examples
    --------
    >>> trace_bytes([Node(id=1, duration_us=5)]).hex()
    '070a05312e302e3006080118043805'
    """
    from google.protobuf.proto import serialize_length_prefixed

    kinds, out = messages(), io.BytesIO()
    serialize_length_prefixed(kinds.metadata(version=VERSION.encode()), out)
    for node in nodes:
        message = kinds.node(
            id=node.id,
            type=node.kind,
            name=node.name.encode(),
            data_deps=node.parents,
            start_time_micros=node.start_us,
            duration_micros=node.duration_us,
            attr=[_attribute(*item, integers) for item in node.attributes.items()],
        )
        serialize_length_prefixed(message, out)
    content = out.getvalue()
    return gzip.compress(content, mtime=0) if compress else content


def _attribute(name: str, value: bool | int | str, integers: str) -> bytes:
    field: dict[str, Any]
    if isinstance(value, bool):
        field = {"bool_val": value}
    elif isinstance(value, int):
        field = {f"{integers}_val": value}
    else:
        field = {"string_val": value.encode()}
    written: bytes = messages().attribute(name=name.encode(), **field).SerializeToString()
    return written
