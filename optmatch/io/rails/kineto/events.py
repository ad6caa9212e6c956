"""The events of one trace of PyTorch's profiler, checked as they are read, and their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optmatch.io.fields import check_object, shorten
from optmatch.io.rails.chakra.messages import LARGEST
from optmatch.io.rails.chakra.step import ALL_RANKS
from optmatch.io.rails.chakra.traces import MISSING
from optmatch.io.text import check_content, describe_tree
from optmatch.model import FormatError
from optmatch.model.accounts import Level, take

_UNREAD = "they are not read, as if they were not there"
_ABOUT_RUN = "about the run and its machine, not about its communication"
_ABOUT_SHAPES = "shapes and values of tensors, which records tell by their sizes"

TRACE = Level(
    "key of the trace",
    ("traceEvents", "distributedInfo"),
    {
        **dict.fromkeys(
            ("schemaVersion", "deviceProperties", "traceName", "displayTimeUnit", "trace_id"),
            _ABOUT_RUN,
        ),
        **dict.fromkeys(
            ("with_*", "record_shapes", "profile_memory", "cu*", "hip*", "roc*", "host*", "xpu*"),
            _ABOUT_RUN,
        ),
        "baseTimeNanoseconds": "the zero of all times; only differences count",
        "baseTimeNanosecond": "the zero of all times; only differences count",
        "metadata": _ABOUT_RUN,
    },
    _UNREAD,
)
JOB = Level(
    "key of distributedInfo",
    ("rank", "world_size", "pg_config"),
    {
        "backend": "the events tell their library",
        "pg_count": "the groups are listed",
        "nccl_version": _ABOUT_RUN,
    },
    _UNREAD,
)
GROUP = Level(
    "key of a group",
    ("pg_name", "pg_desc", "ranks"),
    {
        "backend_config": "the events tell their library",
        "pg_size": "the ranks are listed, or are all ranks",
        "group_count": "the groups are listed",
        "nccl_comm": _ABOUT_RUN,
        "uid": "the name tells the group",
    },
    _UNREAD,
)
PHASE = Level(
    "phase of events",
    ("X",),
    {
        "M": "names of processes and threads",
        **dict.fromkeys("stf", "arrows between events"),
        **dict.fromkeys("iI", "moments without duration"),
        **dict.fromkeys("CNDO", "counters and objects"),
        **dict.fromkeys("bne", "spans of asynchronous work, which are no operations"),
    },
    _UNREAD,
)
RECORD = Level(
    "argument of records of communication",
    (
        *("Collective name", "In msg nelems", "Out msg nelems", "dtype", "External id", "Seq"),
        *("Process Group Name", "Process Group ID", "Process Group Ranks", "Group size"),
        *("Global rank start", "Global rank stride", "In split size", "Out split size"),
        *("Src Rank", "Dst Rank", "Rank"),
    ),
    {
        "Process Group Description": "the name tells the group",
        **dict.fromkeys(("Input *", "Output *", "Concrete Inputs"), _ABOUT_SHAPES),
        **dict.fromkeys(("Ev Idx", "Record function id", "Sequence number"), _ABOUT_RUN),
        **dict.fromkeys(("Fwd thread id", "Fwd *", "Call stack", "Python *"), _ABOUT_RUN),
        "Is asynchronized op": "when a call returned does not count, but when its kernel ran",
        "Is Async": "when a call returned does not count, but when its kernel ran",
        "Reduction*": "which numbers are reduced how takes the same bytes",
        "Comms Id": "the name tells the group",
        "commHash": "the name tells the group",
    },
    _UNREAD,
)


class Activity(NamedTuple):
    """Something that ran, on the device if there is one; times in microseconds."""

    start_us: float
    end_us: float
    event: int
    """Its index in ``traceEvents``."""
    memory: bool = False
    """Whether it only copies or sets memory."""


class Call(NamedTuple):
    """One communication at one rank; times in microseconds."""

    start_us: float
    end_us: float
    event: int
    """The index in ``traceEvents`` of the event that tells its arguments."""
    kind: str
    """A value of `optmatch.io.rails.kineto.events.KINDS`."""
    group: str
    size_bytes: int
    """As in Chakra: of an all-gather the shard, of others the whole buffer of a rank."""
    peer: int = MISSING
    """The other rank of a message."""
    root: int = MISSING
    """The rank that has all data before (broadcast, scatter) or after (reduce, gather)."""
    sent_bytes: tuple[int, ...] = ()
    """Of a collective whose parts differ, what this rank sends to each rank of its group, in their
    order, 0 to itself; empty where all parts are alike."""
    sequence: int = MISSING
    """The number of a collective in its group, which all its ranks count alike."""


@dataclass
class Recording:
    """The trace of one rank.

    Parameters
    ----------
    path
        The file.
    rank, world
        The rank, and the number of ranks of the job; `MISSING` if the trace does not tell them.
    members
        The ranks of each group that communicates, in their order. Empty for the group of all ranks
        if their number is not told.
    calls
        The communications, by begin.
    computing
        What else ran, by begin.
    talking
        The kernels of NCCL, or the events of Gloo.
    """

    path: str
    rank: int
    world: int
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    computing: list[Activity] = field(default_factory=list)
    talking: list[Activity] = field(default_factory=list)


KINDS = {
    "allreduce": "ALL_REDUCE",
    "allgather": "ALL_GATHER",
    "alltoall": "ALL_TO_ALL",
    "reducescatter": "REDUCE_SCATTER",
    "broadcast": "BROADCAST",
    "barrier": "BARRIER",
    "reduce": "REDUCE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "send": "SEND",
    "recv": "RECV",
}
"""Chakra's names of communications, by the begin of PyTorch's names.

PyTorch's names are compared in lower case and without underscores. A name that begins with another
one stands before it: ``reducescatter`` before ``reduce``.
"""

_DTYPES_BY_WIDTH = {
    1: ("byte", "char", "bool", "unsigned char", "signed char"),
    2: ("half", "bfloat16", "short", "short int"),
    4: ("float", "int"),
    8: ("double", "long", "long int", "complexfloat", "complex<float>"),
    16: ("complexdouble", "complex<double>"),
}
_WIDTH_BYTES = {name: width for width, names in _DTYPES_BY_WIDTH.items() for name in names}
"""The bytes of one element, by the name of its type in lower case."""

_MOST_DIGITS = 20
"""A text of fewer digits is read as a number; longer ones exceed 64 bits."""


class Span(NamedTuple):
    """Begin and end of an event in microseconds, and its index in ``traceEvents``."""

    start_us: float
    end_us: float
    event: int


class EventsByRole(NamedTuple):
    """The events of a trace by what they tell; each list is sorted by begin."""

    device: list[Span]
    """Kernels, and operations on memory of the device."""
    host: list[Span]
    """Operations of the processor."""
    records: list[Span]
    """Calls of NCCL with their arguments, from PyTorch 2.2 on."""
    nccl_annotations: list[Span]
    """Annotations ``nccl:...`` around calls of NCCL."""
    c10d: list[Span]
    """Calls of PyTorch's library of communication."""
    gloo: list[Span]
    """What Gloo did for calls."""
    group_labels: list[Span]
    """Annotations that name a group."""
    launches: dict[int, int]
    """The event that launched a kernel, by their common correlation."""


class TraceEvents:
    """The events of a file, with a method for each kind of value.

    Methods take the index of an event in ``traceEvents``. A value that breaks a rule raises
    `FormatError` with the place of the event.

    Parameters
    ----------
    tree
        The content of the file: an object with ``traceEvents`` and mostly ``distributedInfo``.
    given_groups
        The ranks of groups that the caller knows. They count before what the file tells.
    """

    def __init__(self, tree: Any, given_groups: Mapping[str, Sequence[int]]) -> None:
        """Check that JSON is a trace, and read what it says of the whole job.

        Of each event only that it is an object is checked now; its values are checked when a
        method reads them. `rank` and `world` come from ``distributedInfo``, and so do the ranks of
        groups, where the version of PyTorch lists them. Names of fields that the reader does not
        know are refused, or named in one warning (`optmatch.model.accounts`).
        """
        events = tree.get("traceEvents") if isinstance(tree, dict) else None
        if events is None:
            raise FormatError(
                f"no trace of PyTorch's profiler, which has traceEvents{describe_tree(tree)}",
                where="/traceEvents",
            )
        if not isinstance(events, list):
            raise FormatError(
                f"{shorten(events)}: a trace of PyTorch's profiler has a list of events",
                where="/traceEvents",
            )
        for index, event in enumerate(events):
            check_object(event, f"/traceEvents/{index}")
        self.events: list[dict[str, Any]] = events
        self.given_groups = given_groups

        about_job = tree.get("distributedInfo", {})
        check_object(about_job, "/distributedInfo")
        self.rank = _read_rank(about_job, "rank")
        self.world = _read_rank(about_job, "world_size")

        # PyTorch before 2.1 does not list the groups.
        groups = about_job.get("pg_config", [])
        if not isinstance(groups, list):
            groups = []
        self.configured_groups: dict[str, Any] = {
            str(group.get("pg_name")): group.get("ranks")
            for group in groups
            if isinstance(group, dict)
        }
        """The ranks of the groups of the job, by name, as the file has them."""
        take(TRACE, tree)
        take(JOB, about_job, "/distributedInfo")
        for group in groups:
            take(GROUP, group if isinstance(group, dict) else ())
        take(PHASE, {str(event.get("ph")) for event in events})
        self.groups_of_all = {
            str(group.get("pg_name"))
            for group in groups
            if isinstance(group, dict) and group.get("pg_desc") == "default_pg"
        }
        """Groups of all ranks, which need not list them."""

    def span(self, event: int) -> Span:
        """Return begin, end and index of an event; times in microseconds."""
        start_us = self.time_us(event, "ts")
        duration_us = self.time_us(event, "dur")
        if duration_us < 0:
            raise self.flaw(event, "dur", duration_us, "a duration is >= 0")
        return Span(start_us, start_us + duration_us, event)

    def time_us(self, event: int, key: str) -> float:
        """Return the value of ``ts`` or ``dur``."""
        value: Any = self.events[event].get(key)
        if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
            raise self.flaw(event, key, value, "a number below 2**63")
        return float(value)

    def text(self, event: int, key: str) -> str:
        """Return a name or category; an empty text if the value is none."""
        value = self.events[event].get(key)
        return value if isinstance(value, str) else ""

    def thread(self, event: int) -> str:
        """Return process and thread as one text."""
        return f"{self.events[event].get('pid')} {self.events[event].get('tid')}"

    def arguments(self, event: int) -> dict[str, Any]:
        """Return the object ``args``; an empty one if the event has none."""
        arguments = self.events[event].get("args", {})
        check_object(arguments, f"/traceEvents/{event}/args")
        return arguments  # type: ignore[no-any-return]

    def link_number(self, event: int, name: str) -> int | None:
        """Return an argument that joins events, such as ``correlation``; None if it is none."""
        value = self.arguments(event).get(name)
        return value if isinstance(value, int) else None

    def list_argument(self, event: int, name: str) -> list[Any]:
        """Return an argument that is a list; an empty one if the event does not have it."""
        value = self.arguments(event).get(name, [])
        if not isinstance(value, list):
            raise self.flaw(event, f"args/{name}", value, "a list")
        return value

    def communication_kind(self, event: int, name: object, where: str) -> str:
        """Return the kind of communication, a value of `KINDS`, that a name of PyTorch means.

        The name ``"_allgather_base"`` means ``"ALL_GATHER"``. Case and underscores do not matter;
        event and `where` are for messages.
        """
        short_name = name.replace("_", "").lower() if isinstance(name, str) else ""
        for beginning, kind in KINDS.items():
            if short_name.startswith(beginning):
                return kind
        raise self.flaw(event, where, name, f"begins with one of {', '.join(KINDS)}")

    def elements_bytes(self, event: int, where: str, n_elements: object, dtype: object) -> int:
        """Return the bytes of elements of a type such as ``"BFloat16"`` or ``"c10::Half"``."""
        type_name = dtype.lower().removeprefix("c10::") if isinstance(dtype, str) else ""
        width_bytes = 1 if type_name.startswith("float8") else _WIDTH_BYTES.get(type_name)
        if width_bytes is None:
            raise self.flaw(event, "args/dtype", dtype, f"one of {', '.join(_WIDTH_BYTES)}")
        if type(n_elements) is not int or not 0 <= n_elements * width_bytes < LARGEST:
            raise self.flaw(
                event, where, n_elements, "a whole number >= 0 of less than 2**63 bytes"
            )
        return n_elements * width_bytes

    def split_sizes(self, event: int, name: str) -> list[int]:
        """Return the parts in which a rank sends or receives; empty where all are alike."""
        sizes = _split_ranks(self.arguments(event).get(name, []))
        if not isinstance(sizes, list) or any(type(size) is not int or size < 0 for size in sizes):
            raise self.flaw(event, f"args/{name}", sizes, "all parts, whole numbers >= 0")
        return sizes

    def tensors_bytes(self, event: int) -> int:
        """Return the bytes of all tensors of an event, 0 without them.

        ``Input Dims`` has a list of sides for each tensor, and ``Input type`` the type of its
        elements.
        """
        shapes = self.list_argument(event, "Input Dims")
        dtypes = self.list_argument(event, "Input type")
        total_bytes = 0
        for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False)):
            where = f"args/Input Dims/{index}"
            sides = shape if isinstance(shape, list) else [shape]

            # The elements of a tensor are the product of its sides.
            n_elements = 1
            for side in sides:
                if type(side) is not int or not 0 <= n_elements * side < LARGEST:
                    raise self.flaw(event, where, shape, "whole numbers >= 0, of less than 2**63")
                n_elements *= side
            total_bytes += self.elements_bytes(event, where, n_elements, dtype)
        return total_bytes

    def default_group(self, event: int) -> str:
        """Return the group of a call that tells none.

        It is the only group that the caller gives or the file lists. Without any list it is the
        group of all ranks, as for collectives of Chakra that name no group.
        """
        if ALL_RANKS in self.given_groups:
            return ALL_RANKS
        for known_groups in (self.given_groups, self.configured_groups):
            if len(known_groups) == 1:
                return next(iter(known_groups))
        if not self.given_groups and not self.configured_groups:
            return ALL_RANKS
        n_groups = len(self.given_groups) or len(self.configured_groups)
        raise FormatError(
            f"{self.text(event, 'name')} does not tell which of {n_groups} groups it is of:"
            " annotate the call with 'process_group:NAME', or give one group alone with --groups",
            where=f"/traceEvents/{event}",
        )

    def members(self, event: int, group: str) -> tuple[int, ...]:
        """Return the ranks of the group of a call, in the order of the group.

        The first of these that has all of them counts: what the caller has given; the arguments of
        the call (a list, or first rank, stride and number); the list of groups in the file. A long
        list that PyTorch has cut with ``...`` does not count. The result is empty for the group of
        all ranks if the file does not tell how many they are.
        """
        # `candidates` are the lists of ranks in this order; None where there is no list.
        arguments = self.arguments(event)
        size, start, stride = (
            arguments[name] if type(arguments.get(name)) is int else MISSING
            for name in ("Group size", "Global rank start", "Global rank stride")
        )
        candidates: list[Any] = [
            self.given_groups.get(group),
            _split_ranks(arguments.get("Process Group Ranks")),
        ]
        if stride > 0:
            check_content("ranks", size, "")
            candidates.append([start + stride * place for place in range(size)])
        candidates.append(self.configured_groups.get(group))

        where = f"/traceEvents/{event}/args/Process Group Ranks"
        for ranks in candidates:
            if isinstance(ranks, list | tuple) and ranks and "..." not in ranks:
                for rank in ranks:
                    if type(rank) is not int or rank < 0:
                        raise FormatError(
                            f"group {group}: rank {shorten(rank)}: ranks are whole numbers >= 0",
                            where=where,
                        )
                    check_content("ranks", rank + 1, "")
                if len(set(ranks)) != len(ranks) or size not in (MISSING, len(ranks)):
                    raise FormatError(
                        f"group {group}: ranks {shorten(ranks)}: {size} different ones are"
                        " expected",
                        where=where,
                    )
                return tuple(ranks)
        # The group of all ranks need not list them.
        is_default = group in self.groups_of_all and size in (MISSING, self.world)
        if group == ALL_RANKS or is_default or (size == self.world and self.world > 0):
            return tuple(range(max(0, self.world)))
        raise FormatError(f"group {group}: its ranks are not told; tell --groups", where=where)

    def member(self, event: int, group: str, place: object, where: str) -> int:
        """Return the rank of a member by its place from 0, a number or a text of digits."""
        place = _as_number(place)
        ranks = self.members(event, group)
        if type(place) is not int or not 0 <= place < len(ranks):
            raise self.flaw(event, where, place, f"a place in group {group} of {len(ranks)}")
        return ranks[place]

    def flaw(self, event: int, where: str, value: object, rule: str) -> FormatError:
        """Return an error about a value of an event."""
        return FormatError(f"{shorten(value)}: {rule}", where=f"/traceEvents/{event}/{where}")


def _split_ranks(text: object) -> object:
    """Return the ranks in a text such as ``[0, 1, ..., 7]`` as a list, other values unchanged."""
    if not isinstance(text, str):
        return text
    parts = [part.strip() for part in text.strip("[]").split(",")]
    return [_as_number(part) for part in parts if part]


def _as_number(value: object) -> object:
    """Return the number of 64 bits that a text of digits means; other values as they are."""
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) < _MOST_DIGITS
    ):
        return int(value)
    return value


def _read_rank(about_job: Mapping[str, Any], name: str) -> int:
    """Return ``"rank"`` or ``"world_size"`` of ``distributedInfo``; `MISSING` if absent."""
    value = about_job.get(name, MISSING)
    if type(value) is not int or value < MISSING:
        raise FormatError(
            f"{shorten(value)}: a whole number >= 0 is expected", where=f"/distributedInfo/{name}"
        )
    check_content("ranks", value, "")
    return value
