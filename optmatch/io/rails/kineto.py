"""Traces of PyTorch's profiler: computation, and calls of NCCL or Gloo, of one rank and of all.

An event is known by its index in ``traceEvents``. `TraceEvents` reads and checks the values of an
event; `EventsByRole` has those that matter here, by what they tell.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import check_object, shorten
from optmatch.io.rails.chakra import (
    ALL_RANKS,
    LARGEST,
    MISSING,
    Members,
    Node,
    NodeBuilder,
    Nodes,
    TraceOptions,
    add_up,
    join,
    make_node,
    step_of,
)
from optmatch.io.text import (
    check_content,
    describe_tree,
    describing,
    parse_json,
    read_bytes,
    unzip,
)
from optmatch.model import FormatError, naming
from optmatch.model.accounts import Level, accounting, take
from optmatch.model.files import path_name
from optmatch.problems.demands.traffic import Matrix
from optmatch.problems.rails.training.step import Step

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
    """One communication at one rank, or a part of its computation; times in microseconds."""

    start_us: float
    end_us: float
    event: int
    """The index in ``traceEvents`` of the event that tells its arguments."""
    kind: str
    """A value of `optmatch.io.rails.kineto.KINDS`, or ``"COMPUTE"``."""
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
    received_bytes: tuple[int, ...] = ()
    """What it receives from each of them, as `sent_bytes`; empty where the file lists none."""
    sequence: int = MISSING
    """The number of a collective in its group, which all its ranks count alike."""
    busy_us: float = 0.0
    """How long something ran, of computation."""


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


class EventsByRole(NamedTuple):
    """The events of a trace by what they tell; each list is sorted by begin."""

    device: list[Activity]
    """Kernels, and operations on memory of the device."""
    host: list[Activity]
    """Operations of the processor."""
    records: list[Activity]
    """Calls of NCCL with their arguments, from PyTorch 2.2 on."""
    nccl_annotations: list[Activity]
    """Annotations ``nccl:...`` around calls of NCCL."""
    c10d: list[Activity]
    """Calls of PyTorch's library of communication."""
    gloo: list[Activity]
    """What Gloo did for calls."""
    group_labels: list[Activity]
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
        listed = about_job.get("pg_config")
        groups = (
            [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        )
        self.configured_groups: dict[str, Any] = {
            str(group.get("pg_name")): group.get("ranks") for group in groups
        }
        """The ranks of the groups of the job, by name, as the file has them."""
        take(TRACE, tree)
        take(JOB, about_job, "/distributedInfo")
        for group in groups:
            take(GROUP, group)
        take(PHASE, {str(event.get("ph")) for event in events})
        self.groups_of_all = {
            str(group.get("pg_name")) for group in groups if group.get("pg_desc") == "default_pg"
        }
        """Groups of all ranks, which need not list them."""

    def span(self, event: int) -> Activity:
        """Return begin, end and index of an event; times in microseconds."""
        start_us = self.time_us(event, "ts")
        duration_us = self.time_us(event, "dur")
        if duration_us < 0:
            raise self.flaw(event, "dur", duration_us, "a duration is >= 0")
        is_memory = self.text(event, "cat").startswith("gpu_mem")
        return Activity(start_us, start_us + duration_us, event, is_memory)

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


_COLLECTIVE_NAME = "Collective name"
_SILENT_RECORDS = ("", "wait", "init", "coalesced", "end_coalescing")
"""Names of records that move no bytes."""
_BATCHES = ("coalesced", "end_coalescing")
"""Names of records that launch the one kernel of all messages before them."""
_SILENT_ANNOTATIONS = ("nccl:coalesced", "nccl:end_coalescing")
_ROOTED = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")
_NCCL_KERNEL = re.compile(r"nccl|rccl|mscclKernel|.*ncclKernel")
_MESSAGE = re.compile(r"nccl:(?:send|recv) \d+(?:->|<-)(?P<peer>\d+)")
"""The annotation of a message: places in the group, ``nccl:send 0->1``."""


def read_nccl_calls(
    recording: Recording, events: TraceEvents, by_role: EventsByRole, skipped: list[str] | None
) -> None:
    """Read from the profile of a GPU what it computed, and its calls of NCCL, into `recording`.

    Kernels of NCCL go to ``recording.talking``, all others to ``recording.computing``, and calls
    to ``recording.calls``. `skipped` receives a line for each call that cannot be read; with None
    such a call is an error.

    PyTorch from 2.2 on writes a record with kind, size and group of each call; older traces have
    only annotations, which are read if no record tells this. A call lasts while its kernels on the
    GPU ran; if none is found, while the processor called. One that does not tell its kind, size or
    group counts as computation where it may be skipped.
    """
    # The calls are those of records, if any record has arguments, else those of annotations. A
    # common external id joins a record to its kernels; in old traces a kernel has its correlation
    # as external id, which joins it to no annotation.
    calls = by_role.nccl_annotations
    read_call = _read_annotation
    call_of_external_id: dict[int, int] = {}
    if any(_COLLECTIVE_NAME in events.arguments(record.event) for record in by_role.records):
        calls = by_role.records
        read_call = _read_record
        for call in calls:
            take(RECORD, events.arguments(call.event), f"/traceEvents/{call.event}")
            number = events.link_number(call.event, "External id")
            if number is not None:
                call_of_external_id[number] = call.event

    # Kernels whose calls the trace does not tell are refused, or taken as computation.
    kernels_of_call = _assign_kernels(recording, events, by_role, calls, call_of_external_id)
    if recording.talking and not calls:
        rule = (
            f"{len(recording.talking)} kernels of NCCL, and neither records of their calls nor"
            " annotations nccl:...: PyTorch from 2.2 on records each call with its size"
        )
        if skipped is None:
            raise FormatError(rule, where="/traceEvents")
        skipped.append(f"{recording.path}: {rule}: taken as computation")
        recording.computing += recording.talking

    # A call that cannot be read is an error or, with `skipped`, its kernels count as computation.
    for call in calls:
        own_kernels = kernels_of_call[call.event]
        try:
            communication = read_call(events, call)
        except FormatError as exc:
            if skipped is None:
                raise
            exc.path = recording.path
            skipped.append(f"{exc}: taken as computation")
            recording.computing += own_kernels
            continue
        if communication is None:
            continue

        # A call lasts as long as its kernels; what the host sees of it is only its launch.
        if own_kernels:
            communication = communication._replace(
                start_us=own_kernels[0].start_us,
                end_us=max(kernel.end_us for kernel in own_kernels),
            )
        recording.calls.append(communication)


def _assign_kernels(
    recording: Recording,
    events: TraceEvents,
    by_role: EventsByRole,
    calls: Sequence[Activity],
    call_of_external_id: dict[int, int],
) -> dict[int, list[Activity]]:
    """Split what ran on the device, and find the kernels of each call of NCCL, by its event.

    A kernel that is linked to a call, or has the name of one of NCCL, is added to
    ``recording.talking``, and all else to ``recording.computing``. A call may have no kernel.
    ``call_of_external_id[number]`` is the event of the call to which PyTorch gave this number.

    1. A kernel belongs to the call with the same external id as it or its launch,
    2. else to the call of the same thread during which it was launched.
    3. A call that then has none takes the next kernel of its thread that belongs to no call, or to
       the record of a batch: messages that are sent together share one kernel, which their batch
       launches after all of them.
    """
    calls_of_thread = defaultdict[str, list[Activity]](list)
    for call in calls:
        calls_of_thread[events.thread(call.event)].append(call)

    # Kernels of no call, or of a batch, are kept by thread, with the time of launch.
    kernels_of_call: dict[int, list[Activity]] = {call.event: [] for call in calls}
    free_kernels = defaultdict[str, list[tuple[float, Activity]]](list)
    for span in by_role.device:
        # Rule 1. A common correlation joins a kernel to its launch on the host.
        launch = None
        linked_events = [span.event]
        correlation = events.link_number(span.event, "correlation")
        if correlation in by_role.launches:
            launch = by_role.launches[correlation]
            linked_events.append(launch)
        call_event = None
        for event in linked_events:
            number = events.link_number(event, "External id")
            if number in call_of_external_id:
                call_event = call_of_external_id[number]

        # What is no communication by its links or its name is computation.
        is_of_nccl = _NCCL_KERNEL.match(events.text(span.event, "name")) is not None
        if span.memory or not (is_of_nccl or call_event is not None):
            recording.computing.append(span)
            continue
        recording.talking.append(span)

        # Rule 2. Without its launch, a kernel of a batch is launched where its record stands.
        if launch is None:
            launch = call_event
        elif call_event is None:
            call_event = _find_call_around(calls_of_thread[events.thread(launch)], events, launch)
        is_batch = False
        if call_event is not None:
            is_batch = events.arguments(call_event).get(_COLLECTIVE_NAME) in _BATCHES
        if call_event is not None and not is_batch:
            kernels_of_call[call_event].append(span)
        elif launch is not None:
            launch_us = events.time_us(launch, "ts")
            free_kernels[events.thread(launch)].append((launch_us, span))

    # Rule 3: the first kernel of the thread that was launched after the call began.
    for waiting_kernels in free_kernels.values():
        waiting_kernels.sort()
    for call in calls:
        if kernels_of_call[call.event]:
            continue
        waiting_kernels = free_kernels[events.thread(call.event)]
        place = bisect_left(waiting_kernels, call.start_us, key=lambda waiting: waiting[0])
        if place < len(waiting_kernels):
            kernels_of_call[call.event] = [waiting_kernels[place][1]]
    return kernels_of_call


def _find_call_around(calls: Sequence[Activity], events: TraceEvents, launch: int) -> int | None:
    """Return the last of the calls of a thread, by begin, that has begun at a launch.

    It is None if there is none, or if it has ended by then.
    """
    launch_us = events.time_us(launch, "ts")
    n_begun = bisect_right(calls, launch_us, key=lambda call: call.start_us)
    if n_begun == 0 or calls[n_begun - 1].end_us < launch_us:
        return None
    return calls[n_begun - 1].event


def _read_record(events: TraceEvents, span: Activity) -> Call | None:
    """Read a call of NCCL from the record that PyTorch wrote; None if it moves no bytes.

    `span` is the event of the call, with begin and end. Its arguments are such as "Process Group
    Name", "In msg nelems" (the number of elements that go in), "dtype", and "Dst Rank" of a send
    or "Src Rank" of a receive.
    """
    event = span.event
    arguments = events.arguments(event)
    name = arguments.get(_COLLECTIVE_NAME)
    if name in _SILENT_RECORDS:
        return None
    kind = events.communication_kind(event, name, f"args/{_COLLECTIVE_NAME}")

    group_name = arguments.get("Process Group Name", arguments.get("Process Group ID"))
    if not isinstance(group_name, str | int) or group_name == "":
        where = "args/Process Group Name"
        raise events.flaw(event, where, group_name, "the name of a group")
    group = str(group_name)

    # The size is that of what goes in, of a receive what comes out; a barrier has none.
    size_bytes = 0
    sent_bytes: tuple[int, ...] = ()
    received_bytes: tuple[int, ...] = ()
    if kind != "BARRIER":
        size_name = "Out msg nelems" if kind == "RECV" else "In msg nelems"
        size_bytes = events.elements_bytes(
            event, f"args/{size_name}", arguments.get(size_name), arguments.get("dtype")
        )
    if kind == "ALL_TO_ALL":
        size_bytes, sent_bytes, received_bytes = _read_parts(events, event, group, size_bytes)
    elif kind in _EVEN:
        size_bytes = _check_parts(events, event, kind, group, size_bytes)

    peer = MISSING
    peer_name = {"SEND": "Dst Rank", "RECV": "Src Rank"}.get(kind)
    if peer_name in arguments:
        peer = arguments[peer_name]
        if peer not in events.members(event, group):
            raise events.flaw(event, f"args/{peer_name}", peer, f"a rank of group {group}")

    root = MISSING
    if kind in _ROOTED and arguments.get("Rank", MISSING) != MISSING:
        root = events.member(event, group, arguments["Rank"], "args/Rank")
    sequence = arguments.get("Seq", MISSING)
    if type(sequence) is not int or sequence < 0 or kind in ("SEND", "RECV"):
        sequence = MISSING
    return Call(
        start_us=span.start_us,
        end_us=span.end_us,
        event=event,
        kind=kind,
        group=group,
        size_bytes=size_bytes,
        peer=peer,
        root=root,
        sent_bytes=sent_bytes,
        received_bytes=received_bytes,
        sequence=sequence,
    )


_EVEN = ("ALL_GATHER", "REDUCE_SCATTER", "GATHER", "SCATTER")
"""Collectives in which one of what goes in and what comes out is as large as all parts together.

They are read where all parts are alike.
"""


def _read_parts(
    events: TraceEvents, event: int, group: str, size_bytes: int
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Read what a rank sends to each other one in an all-to-all of uneven parts, 0 to itself.

    `event` is the record of the call, `group` the name of its group, and `size_bytes` what goes
    in. Parts count rows of a tensor: what goes in, divided by their sum, is the size of a row. The
    first result is the size in bytes of an all-to-all of even parts that keeps each port as busy
    as the busier of sending and receiving does here; the second one has the bytes to each rank of
    the group, in its order, and is empty without parts. The third one has the bytes from each
    rank, and is empty where the record does not list them.
    """
    sent_parts = events.split_sizes(event, "In split size")
    received_parts = events.split_sizes(event, "Out split size")
    if not sent_parts and not received_parts:
        return size_bytes, (), ()

    ranks = events.members(event, group)
    if events.rank not in ranks:
        raise events.flaw(event, "args/Process Group Ranks", events.rank, f"a rank of {group}")
    own_place = ranks.index(events.rank)
    out_bytes = events.elements_bytes(
        event,
        "args/Out msg nelems",
        events.arguments(event).get("Out msg nelems"),
        events.arguments(event).get("dtype"),
    )

    # Without split sizes all parts are equal. What a rank sends to itself does not count.
    to_others = {}
    for name, parts, total_bytes in (
        ("In split size", sent_parts, size_bytes),
        ("Out split size", received_parts, out_bytes),
    ):
        listed = parts or [1] * len(ranks)
        n_rows = sum(listed)
        if (
            len(listed) != len(ranks)
            or total_bytes % max(1, n_rows)
            or (total_bytes and not n_rows)
        ):
            raise events.flaw(
                event,
                f"args/{name}",
                listed,
                f"a part for each of {len(ranks)} ranks, which add up to {total_bytes} bytes",
            )
        row_bytes = total_bytes // max(1, n_rows)
        part_bytes = [row_bytes * part for part in listed]
        part_bytes[own_place] = 0
        to_others[name] = part_bytes

    # In an even all-to-all of S bytes a rank sends (n - 1) S / n.
    n = len(ranks)
    busiest_bytes = max(map(sum, to_others.values()))
    even_bytes = -(-busiest_bytes * n // max(1, n - 1))
    received_bytes = tuple(to_others["Out split size"]) if received_parts else ()
    return even_bytes, tuple(to_others["In split size"]), received_bytes


def _check_parts(events: TraceEvents, event: int, kind: str, group: str, in_bytes: int) -> int:
    """Return the size in bytes of a collective of even parts, as Chakra states it.

    That is the part of a rank for gathers, the whole for scatters; versions of PyTorch write one
    or the other as what goes in. `event` is the record of the call, `kind` such as "ALL_GATHER",
    `group` a name, and `in_bytes` what goes in by this record; what comes out is read here. With 1
    kB in and 4 kB out, an all-gather of 4 ranks has the size 1 kB; with 4 kB in and 1 kB out, a
    reduce-scatter has 4 kB.
    """
    arguments = events.arguments(event)
    n_out = arguments.get("Out msg nelems")
    if n_out is None:
        return in_bytes
    out_bytes = events.elements_bytes(event, "args/Out msg nelems", n_out, arguments.get("dtype"))
    n = max(1, len(events.members(event, group)))
    part_bytes = min(in_bytes, out_bytes)
    whole_bytes = max(in_bytes, out_bytes)
    is_gather = kind in ("ALL_GATHER", "GATHER")
    if part_bytes == 0 and kind in ("GATHER", "SCATTER"):
        # Ranks may have nothing on one side: all that goes into a scatter, and all that comes out
        # of a gather, is the whole; the other side has a part.
        has_whole = (in_bytes > 0) != is_gather
        part_bytes = whole_bytes // n if has_whole else whole_bytes
        whole_bytes = whole_bytes if has_whole else n * whole_bytes
    if whole_bytes != n * part_bytes:
        raise events.flaw(
            event,
            "args/In msg nelems",
            arguments.get("In msg nelems"),
            f"{whole_bytes} and {part_bytes} bytes go in and out of {n} ranks: parts that differ"
            " are not read",
        )
    return part_bytes if is_gather else whole_bytes


def _read_annotation(events: TraceEvents, span: Activity) -> Call | None:
    """Read a call from its annotation, as PyTorch before 2.2 writes it; None if it marks a batch.

    `span` is the annotation, such as ``nccl:all_reduce``. Its name tells the kind, and the peer of
    a message; the shapes of the input tell the size, which is 0 for a barrier. The root is not
    told. Annotations such as ``nccl:coalesced`` are no calls: they mark a batch of messages.
    """
    event = span.event
    name = events.text(event, "name")
    if name in _SILENT_ANNOTATIONS:
        return None
    kind = events.communication_kind(event, name.removeprefix("nccl:"), "name")
    group = events.default_group(event)

    size_bytes = 0
    if kind != "BARRIER":
        if not events.list_argument(event, "Input Dims"):
            raise FormatError(
                f"{name} does not tell its size: PyTorch before 2.2 records it with"
                " record_shapes=True, PyTorch from 2.2 on always; --lenient takes it as"
                " computation",
                where=f"/traceEvents/{event}/args/Input Dims",
            )
        size_bytes = events.tensors_bytes(event)

    peer = MISSING
    message = _MESSAGE.fullmatch(name)
    if message is not None:
        peer = events.member(event, group, message["peer"], "name")
    return Call(span.start_us, span.end_us, event, kind, group, size_bytes, peer)


_RECORD_NAME = "record_param_comms"
"""The name of events that tell a call of NCCL with its arguments."""
_GROUP_LABEL = "process_group:"
"""An annotation that begins so names the group of the call of Gloo inside it."""
_ROLE_OF_BEGINNING = {"c10d::": "c10d", "gloo:": "gloo", _GROUP_LABEL: "group_labels"}
"""Lists of `EventsByRole` by the beginnings of names."""
_DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
_OTHER_DEVICES = ("mtia", "hpu", "privateuse1")
"""Beginnings of categories of accelerators whose events are not read."""


def read_recording(
    path: str | os.PathLike[str],
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    skipped: list[str] | None = None,
) -> Recording:
    """Read the trace of one rank: JSON, perhaps gzipped, as ``torch.profiler`` exports it.

    PyTorch from 2.2 on records each call of NCCL with its arguments. Traces of versions before it
    are read by the annotations ``nccl:...`` around calls, whose shapes tell the size if the
    profiler ran with ``record_shapes=True``; they name no group, see `TraceEvents.default_group`.
    Calls of Gloo are read from its own events. It takes about 5 us for an event, and 1 KB of
    memory.

    Parameters
    ----------
    groups
        The ranks of groups that the trace does not tell, or cuts.
    skipped
        A list, to which a line is added for all that is passed over. Communication of NCCL that
        does not tell its kind, size or group counts as computation. Numbers that are not finite,
        and control characters, do not matter where nobody needs the value. None: each of these is
        an error.
    """
    file = path_name(path)
    with naming(file), accounting(file):
        content = unzip(read_bytes(path), file)
        with describing(content if content[:1] != b"{" else b""):  # what is no JSON may be more
            tree = parse_json(content, file, passed_over=skipped)
        events = TraceEvents(tree, groups or {})
        by_role = _sort_by_role(events)
        recording = Recording(file, events.rank, events.world)
        if by_role.device or by_role.records or by_role.nccl_annotations:
            read_nccl_calls(recording, events, by_role, skipped)
        else:
            read_gloo_calls(recording, events, by_role)

        recording.computing.sort()
        recording.calls.sort()
        for call in recording.calls:
            if call.group not in recording.members:
                recording.members[call.group] = events.members(call.event, call.group)
    return recording


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is JSON, perhaps gzipped, with the events of a profiler."""
    name = path_name(path)
    if not name.endswith((".json", ".json.gz")):
        return False
    return b'"traceEvents"' in unzip(read_bytes(path), name)


def _sort_by_role(events: TraceEvents) -> EventsByRole:
    """Sort the events that have a duration (phase ``"X"``) by what they tell, then by begin.

    The launch of each kernel is found by the correlation of both. Kernels of accelerators that are
    not read are refused.
    """
    # All fields but the last one, `launches`, are lists of events.
    spans_of_role: dict[str, list[Activity]] = {role: [] for role in EventsByRole._fields[:-1]}
    launches: dict[int, int] = {}
    n_of_other_device = Counter[str]()
    for index, event in enumerate(events.events):
        if event.get("ph") != "X":
            continue
        category = events.text(index, "cat")
        name = events.text(index, "name")
        role = "host" if category == "cpu_op" else None
        if category in _DEVICE_CATEGORIES:
            role = "device"
        elif name == _RECORD_NAME:
            role = "records"
        elif name.startswith("nccl:") and category == "user_annotation":
            role = "nccl_annotations"
        else:
            for beginning, role_of_name in _ROLE_OF_BEGINNING.items():
                if name.startswith(beginning):
                    role = role_of_name
        if role is not None:
            spans_of_role[role].append(events.span(index))
            continue
        if category.startswith(_OTHER_DEVICES):
            n_of_other_device[category] += 1

        # Kernels are launched by the runtime or the driver of CUDA, of ROCm or of others: a common
        # correlation joins both, whatever the category of the launch.
        correlation = events.link_number(index, "correlation")
        if correlation is not None:
            launches.setdefault(correlation, index)

    if n_of_other_device:
        category, count = n_of_other_device.most_common(1)[0]
        raise FormatError(
            f"{count} events of category {category}: kernels of CUDA and ROCm and calls of Gloo"
            " are read, those of other accelerators are not",
            where="/traceEvents",
        )
    sorted_spans = {role: sorted(spans) for role, spans in spans_of_role.items()}
    return EventsByRole(**sorted_spans, launches=launches)


_PARTNER_PLACE = 2
"""The place of the partner, or of the root, among the arguments of a call of c10d."""


def read_gloo_calls(recording: Recording, events: TraceEvents, by_role: EventsByRole) -> None:
    """Read from the profile of a processor computations and calls of Gloo, into `recording`.

    A call goes to ``recording.calls``, its time to ``recording.talking``, and all other operations
    to ``recording.computing``.

    Each communication has two events, in the same order. The call of c10d, PyTorch's library of
    communication, tells the kind, the other rank of a message and the root of a broadcast; the
    event of Gloo tells the size and the times. Without calls of c10d the names of the events of
    Gloo tell the kind, and ranks are not known. Different numbers of both are refused.
    """
    calls = by_role.c10d or by_role.gloo
    if len(calls) != len(by_role.gloo):
        raise FormatError(
            f"{len(by_role.c10d)} calls of c10d, {len(by_role.gloo)} events of Gloo: one for each"
            " is expected",
            where="/traceEvents",
        )

    # A label is an annotation such as ``process_group:tp.0``. Labels of a thread are nested, so
    # that those that have begun and not ended are a stack; the innermost one around a call names
    # its group.
    open_labels = defaultdict[str, list[Activity]](list)
    coming_labels = deque(by_role.group_labels)
    for call, gloo in zip(calls, by_role.gloo, strict=True):
        # Labels that have begun are put on the stack of their thread ...
        while coming_labels and coming_labels[0].start_us <= call.start_us:
            label = coming_labels.popleft()
            open_labels[events.thread(label.event)].append(label)

        # ... and those that have ended are taken off: the innermost one around the call is left.
        around = open_labels[events.thread(call.event)]
        while around and around[-1].end_us < call.end_us:
            around.pop()
        if around:
            _, _, group = events.text(around[-1].event, "name").partition(":")
        else:
            group = events.default_group(call.event)

        # The call tells the kind, the event of Gloo the shapes of tensors.
        name = events.text(call.event, "name").removeprefix("c10d::").removeprefix("gloo:")
        kind = events.communication_kind(call.event, name, "name")
        size_bytes = 0 if kind == "BARRIER" else events.tensors_bytes(gloo.event)

        # The other rank of a message, and the root of a broadcast, are inputs of the call.
        partner = MISSING
        if kind in ("SEND", "RECV", "BROADCAST") and by_role.c10d:
            inputs = events.list_argument(call.event, "Concrete Inputs")
            place = inputs[_PARTNER_PLACE] if len(inputs) > _PARTNER_PLACE else ""
            where = f"args/Concrete Inputs/{_PARTNER_PLACE}"
            partner = events.member(call.event, group, place, where)
        recording.calls.append(
            Call(
                start_us=gloo.start_us,
                end_us=gloo.end_us,
                event=call.event,
                kind=kind,
                group=group,
                size_bytes=size_bytes,
                peer=MISSING if kind == "BROADCAST" else partner,
                root=partner if kind == "BROADCAST" else MISSING,
            )
        )
        recording.talking.append(gloo)

    # An operation of the processor that makes a call may wait for it; its other parts are events
    # of their own.
    begins_of_thread = defaultdict[str, list[float]](list)
    for call in sorted([*by_role.c10d, *by_role.gloo]):
        begins_of_thread[events.thread(call.event)].append(call.start_us)

    # An operation contains a call if a call of its thread begins between its begin and its end.
    for operation in by_role.host:
        begins = begins_of_thread[events.thread(operation.event)]
        n_before_begin = bisect_left(begins, operation.start_us)
        n_before_end = bisect_left(begins, operation.end_us)
        if n_before_begin == n_before_end:
            recording.computing.append(operation)


Paths = Sequence[str | os.PathLike[str]]


class Times(NamedTuple):
    """How long a rank did what, in s."""

    communication_s: float
    """While kernels of NCCL ran, or calls of Gloo."""
    computation_s: float
    """While others ran, copies in memory left out."""
    overlap_s: float
    """While both did."""
    span_s: float
    """From the first of them to the last."""


class Listed(NamedTuple):
    """A row of `list_calls`: collectives that are alike, or messages."""

    operation: str
    """As ``"all-reduce"``, or ``"send"``."""
    group: str
    ranks: tuple[int, ...]
    """The ranks of the group."""
    size_bytes: int
    """As in Chakra: of an all-gather the shard, else the whole buffer."""
    times: int
    """In how many each rank takes part, at most."""
    mean_s: float
    """How long they took, over all ranks, with the wait for the last one."""


_Collective = tuple[str, str, tuple[int, ...], int]
"""Operation, group, ranks and size of collectives that are alike."""


def read_kineto_step(
    paths: Paths,
    groups: Members | None = None,
    options: TraceOptions | None = None,
    *,
    skipped: list[str] | None = None,
) -> Step:
    """Read the traces that PyTorch's profiler wrote of all ranks as one step of a job.

    The computation of a rank is that on its device, or on the processor where there is none. It
    becomes several operations, which are cut where communication began or ended. An operation
    waits for what had ended in the recording before it began. Time in which nothing ran counts as
    no computation, and communication later lasts as long as its circuits need: where that is no
    longer than in the recording, the step is no longer either.

    `groups` and `skipped` are those of `read_recording`. With a list, ranks without a file are
    left out, and its lines go to `skipped` of the step, too.
    """
    recordings = _read_all_ranks(paths, groups, skipped)
    nodes, members = make_nodes(recordings, skipped)
    return step_of(nodes, members, options or TraceOptions())


def read_kineto_demand(
    paths: Paths, groups: Members | None = None, *, skipped: list[str] | None = None
) -> Matrix:
    """Return ``matrix[source, destination]``: the bytes that ranks sent in recordings."""
    return add_up(*make_nodes(_read_all_ranks(paths, groups, skipped), skipped))


def list_calls(recordings: Iterable[Recording]) -> list[Listed]:
    """Summarise communication: operations of the same kind, group of ranks and size are one row.

    A row has how often the rank that has most of them did it, and how many seconds it lasted on
    average. Rows with the longest time in all come first.
    """
    # By row its calls: the rank, and how long the call lasted in seconds.
    calls_of_row = defaultdict[_Collective, list[tuple[int, float]]](list)
    for recording in recordings:
        for call in recording.calls:
            operation = call.kind.lower().replace("_", "-")
            ranks = recording.members[call.group]
            duration_s = (call.end_us - call.start_us) * 1e-6
            row = (operation, call.group, ranks, call.size_bytes)
            calls_of_row[row].append((recording.rank, duration_s))

    # All ranks of a group do the same operation together, hence the rank with most calls counts.
    rows = []
    for (operation, group, ranks, size_bytes), calls in calls_of_row.items():
        times_of_rank = Counter(rank for rank, _ in calls)
        mean_s = sum(duration_s for _, duration_s in calls) / len(calls)
        times = max(times_of_rank.values())
        rows.append(Listed(operation, group, ranks, size_bytes, times, mean_s))
    return sorted(rows, key=lambda row: (-row.times * row.mean_s, *row[:4]))


def measure(recording: Recording) -> Times:
    """Measure how long a rank communicated, how long it computed, and how long it did both.

    Times in which several activities of a kind ran at once count once; copies in memory are no
    computation.
    """
    # Kernels of NCCL whose calls cannot be read are in both lists, and count as communication
    # alone. The time of both at once is that of communication, plus that of computation, less the
    # time in which at least one of them went on.
    talking_events = {activity.event for activity in recording.talking}
    computing = [
        activity
        for activity in recording.computing
        if not activity.memory and activity.event not in talking_events
    ]
    communication_us = _union_us(recording.talking)
    computation_us = _union_us(computing)
    either_us = _union_us(recording.talking + computing)

    all_activities = [*recording.talking, *recording.computing]
    last_end_us = max((activity.end_us for activity in all_activities), default=0.0)
    first_start_us = min((activity.start_us for activity in all_activities), default=0.0)
    return Times(
        communication_s=1e-6 * communication_us,
        computation_s=1e-6 * computation_us,
        overlap_s=1e-6 * (communication_us + computation_us - either_us),
        span_s=1e-6 * (last_end_us - first_start_us),
    )


def _union_us(activities: Iterable[Activity]) -> float:
    """Return how long at least one of some activities ran, in microseconds."""
    return float(sum(_added_us(sorted(activities))))


def _added_us(ordered: Sequence[Activity]) -> NDArray[np.float64]:
    """Return the time that each activity, by begin, adds to the union of those before it.

    Activities from 0 to 3, 1 to 2 and 2 to 5 us add 3, 0 and 2 us.
    """
    starts_us = np.array([activity.start_us for activity in ordered], dtype=np.float64)
    ends_us = np.array([activity.end_us for activity in ordered], dtype=np.float64)
    covered_until_us = np.maximum.accumulate(np.append(-np.inf, ends_us))[:-1]
    return np.maximum(ends_us - np.maximum(starts_us, covered_until_us), 0.0)


def _read_all_ranks(
    paths: Paths, groups: Members | None, skipped: list[str] | None
) -> list[Recording]:
    """Read the files of all ranks, given in any order, in the order of ranks.

    ``groups[name]`` are ranks of groups that the caller knows, which count before those of the
    files. Ranks may be absent if `skipped` is a list, to which a line for each flaw is added.
    """
    recordings = [read_recording(path, groups=groups, skipped=skipped) for path in paths]
    path_of_rank: dict[int, str] = {}
    for recording in recordings:
        rank = recording.rank
        n_ranks = max(len(recordings), recording.world)
        where = "/distributedInfo/rank"
        if rank == MISSING:
            raise FormatError(
                "is missing: the trace of a job tells it", where=where, path=recording.path
            )
        if rank in path_of_rank:
            raise FormatError(
                f"{rank}: {path_of_rank[rank]} is of the same rank",
                where=where,
                path=recording.path,
            )
        path_of_rank[rank] = recording.path

        # A trace may tell how many ranks the job has; then as many files have to be there.
        is_incomplete = n_ranks > len(recordings) and skipped is None
        if rank >= n_ranks or is_incomplete:
            raise FormatError(
                f"{len(recordings)} files, {n_ranks} ranks: a file for each of 0 .. {n_ranks - 1}",
                where=where,
                path=recording.path,
            )
    return sorted(recordings, key=lambda recording: recording.rank)


def make_nodes(
    recordings: Sequence[Recording], skipped: list[str] | None
) -> tuple[Nodes, dict[str, tuple[int, ...]]]:
    """Return the nodes of all ranks, and the ranks of each group by its name in them.

    A name may stand for several groups of different ranks, which get their first rank behind it:
    two groups "tp" of the ranks 0, 1 and 2, 3 become "tp.0" and "tp.2". A rank without a file has
    no nodes. `skipped` receives a line for each thing that is left out; with None such a
    thing is an error.
    """
    n_ranks = max([len(recordings), *(recording.world for recording in recordings)])
    all_ranks = tuple(range(n_ranks))

    _check_sequences(recordings, skipped)
    _check_parts_of_ranks(recordings, skipped)

    # Empty members mean the group of all ranks, in a trace that does not tell how many they are.
    members_by_name = defaultdict[str, set[tuple[int, ...]]](set)
    for recording in recordings:
        for name, ranks in recording.members.items():
            members_by_name[name].add(ranks or all_ranks)

    members: dict[str, tuple[int, ...]] = {}
    traces = []
    for recording in recordings:
        # Groups of one name with different ranks get the least rank as a part of their names.
        unique_names = {}
        for name, told_ranks in recording.members.items():
            ranks = told_ranks or all_ranks
            is_unique = len(members_by_name[name]) == 1
            unique_names[name] = name if is_unique else f"{name}.{ranks[0]}"
            if members.setdefault(unique_names[name], ranks) != ranks:
                rule = f"group {name}: its ranks differ from those at another rank of it"
                where = "/distributedInfo/pg_config"
                raise FormatError(rule, where=where, path=recording.path)
        traces.append(_nodes_of_recording(recording, unique_names, skipped))
    return join(traces, n_ranks), members


def _check_sequences(recordings: Sequence[Recording], skipped: list[str] | None) -> None:
    """Refuse recordings whose collectives of one group begin at different numbers.

    With a list `skipped` they are noted there instead. Only those are compared whose calls all
    tell their numbers. The k-th collective of a group at one rank belongs to the k-th at the
    others.
    """
    # The first recording of a group is compared with all others.
    first_of_group: dict[tuple[str, tuple[int, ...]], tuple[Recording, list[int]]] = {}
    for recording in recordings:
        for name, ranks in recording.members.items():
            numbers = [
                call.sequence
                for call in recording.calls
                if call.group == name and call.kind not in ("SEND", "RECV")
            ]
            if not numbers or MISSING in numbers:
                continue

            # Both count from the same number, as far as both go.
            first, first_numbers = first_of_group.setdefault((name, ranks), (recording, numbers))
            common = zip(numbers, first_numbers, strict=False)
            if any(number != first_number for number, first_number in common):
                rule = (
                    f"group {name}: its first collective has the number (Seq) {numbers[0]}, at"
                    f" rank {first.rank} {first_numbers[0]}: the recordings cover different parts"
                    " of the run"
                )
                if skipped is None:
                    raise FormatError(rule, where="/traceEvents", path=recording.path)
                skipped.append(f"{recording.path}: {rule}")


def _check_parts_of_ranks(recordings: Sequence[Recording], skipped: list[str] | None) -> None:
    """Refuse all-to-alls in which a rank lists other bytes from a rank than that one sends to it.

    With a list `skipped` the first pair of each is noted there instead, and what is sent counts.
    """
    # By group, its ranks, and which of its collectives an all-to-all is: the call of each rank.
    calls_of_exchange = defaultdict[tuple[Any, ...], dict[int, Call]](dict)
    path_of_rank = {recording.rank: recording.path for recording in recordings}
    for recording in recordings:
        n_calls = Counter[str]()
        for call in recording.calls:
            if call.kind not in ("SEND", "RECV"):
                if call.sent_bytes:
                    ranks = recording.members[call.group]
                    exchange = calls_of_exchange[call.group, ranks, n_calls[call.group]]
                    exchange[recording.rank] = call
                n_calls[call.group] += 1

    for (name, ranks, _), calls in calls_of_exchange.items():
        places = [place for place, rank in enumerate(ranks) if rank in calls]
        sent = np.array([calls[ranks[place]].sent_bytes for place in places])
        for place in places:
            call = calls[ranks[place]]
            if not call.received_bytes:
                continue
            received = np.array(call.received_bytes)[places]
            for source in np.flatnonzero(sent[:, place] != received)[:1].tolist():
                rule = (
                    f"group {name}: an all-to-all lists {received[source]} bytes from rank"
                    f" {ranks[places[source]]}, which sends {sent[source, place]} by its own list"
                )
                path = path_of_rank[ranks[place]]
                if skipped is None:
                    raise FormatError(rule, where=f"/traceEvents/{call.event}", path=path)
                skipped.append(f"{path}: {rule}")


_SORT_OF_KIND = {"COMPUTE": "computation", "SEND": "message", "RECV": "message"}
"""Whether a step is computation or a message; the others are collectives."""


def _nodes_of_recording(
    recording: Recording, unique_names: Mapping[str, str], skipped: list[str] | None
) -> Nodes:
    """Turn the recording of one rank into nodes: its calls and its computation, by begin.

    The computation is cut into parts (`_cut_computation`), each with the microseconds for which
    the device was busy. A node waits, in each stream of the rank, for the last node that had ended
    before it began. ``unique_names[name]`` is the name in the nodes of a group that the recording
    calls `name`. Nodes keep the list `skipped`, which gets what is left out when they are read.
    """
    steps = [*_cut_computation(recording), *recording.calls]
    steps.sort(key=lambda step: (step.start_us, step.end_us, step.event))

    # Computation is a stream, and so are the collectives of a group, and its messages. A step
    # waits for the last one of each stream that had ended; earlier steps of a stream ended
    # before it.
    builder = NodeBuilder()
    ended_of_stream = defaultdict[tuple[str, str], list[tuple[float, int]]](list)
    for place, step in enumerate(steps):
        # Ends of a stream are kept in their order: the last one before the begin of this step is
        # what it waits for.
        parents = []
        for ended in ended_of_stream.values():
            n_ended = bisect_right(ended, (step.start_us, place))
            if n_ended:
                parents.append(ended[n_ended - 1][1])
        sort = _SORT_OF_KIND.get(step.kind, "collective")
        ended = ended_of_stream[sort, step.group]
        ended.insert(bisect_right(ended, (step.end_us, place)), (step.end_us, place))

        node = Node(step.event, duration_us=step.busy_us)
        if step.kind != "COMPUTE":
            group = unique_names[step.group]
            node = make_node(
                step.event, step.kind, step.size_bytes, group, peer=step.peer, root=step.root
            )
        builder.append(node._replace(parents=parents))
        if step.sent_bytes:
            builder.sent_bytes[step.event] = step.sent_bytes
    return builder.build(recording.rank, recording.path, "event", skipped)


def _cut_computation(recording: Recording) -> list[Call]:
    """Join what a rank computed into parts, between the begins and ends of its communication.

    Let activities last from 0 to 1, 1 to 3, 4 to 5 and 5 to 6 us, and a call from 2 to 4.5 us. The
    first, over when the call begins, and the last, which begins after its end, are parts of their
    own. The two between them are a third part.
    """
    # Activities are sorted by begin. ``busy_before_us[k]`` is for how long at least one of the
    # first k went on.
    computing = recording.computing
    starts_us = np.array([activity.start_us for activity in computing])
    latest_end_us = np.maximum.accumulate([activity.end_us for activity in computing])
    busy_before_us = np.concatenate([[0.0], np.cumsum(_added_us(computing))])

    # A cut is the number of activities before it. `latest_end_us` and `starts_us` ascend, so that
    # both kinds of cuts are found by binary search.
    call_starts_us = np.array([call.start_us for call in recording.calls], dtype=np.float64)
    call_ends_us = np.array([call.end_us for call in recording.calls], dtype=np.float64)
    cuts = np.concatenate(
        [
            [0, len(computing)],
            np.searchsorted(latest_end_us, call_starts_us, side="right"),
            np.searchsorted(starts_us, call_ends_us),
        ]
    )
    places = np.unique(cuts).astype(np.int64).tolist()
    return [
        Call(
            start_us=float(starts_us[first]),
            end_us=float(latest_end_us[next_place - 1]),
            event=computing[first].event,
            kind="COMPUTE",
            group="",
            size_bytes=MISSING,
            busy_us=float(busy_before_us[next_place] - busy_before_us[first]),
        )
        for first, next_place in pairwise(places)
    ]
