"""The trace of one rank, as PyTorch's profiler writes it: computation, calls of NCCL or Gloo.

An event is known by its index in ``traceEvents``. `TraceEvents` reads and checks the values of an
event; `EventsByRole` has those that matter here, by what they tell.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from optmatch.io.rails.chakra.traces import MISSING
from optmatch.io.rails.kineto.events import (
    RECORD,
    Activity as Activity,
    Call as Call,
    EventsByRole,
    Recording as Recording,
    Span,
    TraceEvents,
)
from optmatch.io.text import describing, parse_json, read_bytes, unzip
from optmatch.model import FormatError, naming
from optmatch.model.accounts import accounting, take
from optmatch.model.files import path_name

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


class _Kernel(NamedTuple):
    """What ran on the device, and where it was launched."""

    activity: Activity
    has_nccl_name: bool
    """Whether it is a kernel of NCCL by its name, and communicates."""
    external_ids: tuple[int, ...]
    """The numbers that join it to a call: its own, and that of its launch."""
    thread: str
    """The thread of the launch; empty if the trace does not have it."""
    launch_us: float
    """When it was launched, in microseconds."""


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
    # The calls are those of records, if any record has arguments, else those of annotations.
    # ``external_ids[event]`` is the number that joins a call to its kernels.
    all_kernels = _read_kernels(recording, events, by_role)
    kernels = [kernel for kernel in all_kernels if kernel.has_nccl_name]
    has_arguments = any(
        _COLLECTIVE_NAME in events.arguments(record.event) for record in by_role.records
    )
    if has_arguments:
        calls = by_role.records
        external_ids = {
            call.event: events.link_number(call.event, "External id") for call in calls
        }
        read_call = _read_record
        for call in calls:
            take(RECORD, events.arguments(call.event), f"/traceEvents/{call.event}")
        linked_events = {number for number in external_ids.values() if number is not None}
        kernels += [
            kernel
            for kernel in all_kernels
            if not kernel.has_nccl_name and linked_events.intersection(kernel.external_ids)
        ]
    else:
        # In old traces a kernel has its correlation as external id, which joins it to no call.
        calls = by_role.nccl_annotations
        external_ids = {}
        read_call = _read_annotation
        if kernels and not calls:
            # Kernels whose calls the trace does not tell are refused, or taken as computation.
            rule = (
                f"{len(kernels)} kernels of NCCL, and neither records of their calls nor"
                " annotations nccl:...: PyTorch from 2.2 on records each call with its size"
            )
            if skipped is None:
                raise FormatError(rule, where="/traceEvents")
            skipped.append(f"{recording.path}: {rule}: taken as computation")
            recording.computing += [kernel.activity for kernel in kernels]

    # What is no communication by its links or its name is computation.
    talking_events = {kernel.activity.event for kernel in kernels}
    recording.talking += [kernel.activity for kernel in kernels]
    recording.computing += [
        kernel.activity for kernel in all_kernels if kernel.activity.event not in talking_events
    ]

    # A call that cannot be read is an error or, with `skipped`, its kernels count as computation.
    kernels_of_call = _assign_kernels(calls, external_ids, kernels, events)
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


def _read_kernels(
    recording: Recording, events: TraceEvents, by_role: EventsByRole
) -> list[_Kernel]:
    """Return the kernels of the device by begin, each with the place of its launch on the host.

    Copies of memory are added to ``recording.computing`` instead. A kernel whose launch the trace
    lacks has no thread, and 0 as the time of its launch.
    """
    kernels = []
    for span in by_role.device:
        is_memory = events.text(span.event, "cat") != "kernel"
        activity = Activity(span.start_us, span.end_us, span.event, is_memory)
        if is_memory:
            recording.computing.append(activity)
            continue

        # A common correlation joins a kernel to its launch on the host.
        thread = ""
        launch_us = 0.0
        numbers = [events.link_number(span.event, "External id")]
        correlation = events.link_number(span.event, "correlation")
        if correlation in by_role.launches:
            launch = by_role.launches[correlation]
            thread = events.thread(launch)
            launch_us = events.time_us(launch, "ts")
            numbers.append(events.link_number(launch, "External id"))
        external_ids = tuple(number for number in numbers if number is not None)
        has_nccl_name = _NCCL_KERNEL.match(events.text(span.event, "name")) is not None
        kernels.append(_Kernel(activity, has_nccl_name, external_ids, thread, launch_us))
    return kernels


def _assign_kernels(
    calls: Sequence[Span],
    external_id_of_call: Mapping[int, int | None],
    kernels: Iterable[_Kernel],
    events: TraceEvents,
) -> dict[int, list[Activity]]:
    """Find the kernels of each call of NCCL, by the event of the call; empty if none is found.

    ``external_id_of_call[event]`` is the number that PyTorch gives to a call, None for none. A
    kernel belongs to the call with the same external id as it or its launch, else to the call of
    the same thread during which it was launched. A call that then has none takes the next kernel
    of its thread that belongs to no call, or to the record of a batch: messages that are sent
    together share one kernel, which their batch launches after all of them.
    """
    # Calls by external id, and calls by thread, sorted by begin.
    call_of_external_id = {
        number: event for event, number in external_id_of_call.items() if number is not None
    }
    calls_of_thread = defaultdict[str, list[Span]](list)
    for call in calls:
        calls_of_thread[events.thread(call.event)].append(call)

    # Rules 1 and 2. Kernels that belong to no call are kept by thread, with the time of launch.
    kernels_of_call: dict[int, list[Activity]] = {call.event: [] for call in calls}
    free_kernels = defaultdict[str, list[tuple[float, Activity]]](list)
    for kernel in kernels:
        call_event = None
        for number in kernel.external_ids:
            call_event = call_of_external_id.get(number, call_event)
        if call_event is None and kernel.thread:
            # The last call of the thread that has begun at the launch, if it still lasts then.
            calls_around = calls_of_thread[kernel.thread]
            place = (
                bisect_right(calls_around, kernel.launch_us, key=lambda call: call.start_us) - 1
            )
            if place >= 0 and kernel.launch_us <= calls_around[place].end_us:
                call_event = calls_around[place].event

        # A batch of messages has one kernel, which is no one call's.
        is_batch = False
        if call_event is not None:
            is_batch = events.arguments(call_event).get(_COLLECTIVE_NAME) in _BATCHES
        if call_event is not None and not is_batch:
            kernels_of_call[call_event].append(kernel.activity)
        elif kernel.thread:
            free_kernels[kernel.thread].append((kernel.launch_us, kernel.activity))
        elif call_event is not None:
            # Without its launch, a kernel of a batch is launched where its record stands.
            launch_us = events.time_us(call_event, "ts")
            free_kernels[events.thread(call_event)].append((launch_us, kernel.activity))

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


def _read_record(events: TraceEvents, span: Span) -> Call | None:
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
    if kind != "BARRIER":
        size_name = "Out msg nelems" if kind == "RECV" else "In msg nelems"
        size_bytes = events.elements_bytes(
            event, f"args/{size_name}", arguments.get(size_name), arguments.get("dtype")
        )
    if kind == "ALL_TO_ALL":
        size_bytes, sent_bytes = _read_parts(events, event, group, size_bytes)
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
        sequence=sequence,
    )


_EVEN = ("ALL_GATHER", "REDUCE_SCATTER", "GATHER", "SCATTER")
"""Collectives in which one of what goes in and what comes out is as large as all parts together.

They are read where all parts are alike.
"""


def _read_parts(
    events: TraceEvents, event: int, group: str, size_bytes: int
) -> tuple[int, tuple[int, ...]]:
    """Read what a rank sends to each other one in an all-to-all of uneven parts, 0 to itself.

    `event` is the record of the call, `group` the name of its group, and `size_bytes` what goes
    in. Parts count rows of a tensor: what goes in, divided by their sum, is the size of a row. The
    first result is the size in bytes of an all-to-all of even parts that keeps each port as busy
    as the busier of sending and receiving does here; the second one has the bytes to each rank of
    the group, in its order, and is empty without parts.
    """
    sent_parts = events.split_sizes(event, "In split size")
    received_parts = events.split_sizes(event, "Out split size")
    if not sent_parts and not received_parts:
        return size_bytes, ()

    # Without a list all parts of one direction are alike.
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
    return even_bytes, tuple(to_others["In split size"])


def _check_parts(events: TraceEvents, event: int, kind: str, group: str, in_bytes: int) -> int:
    """Return the size in bytes of a collective of even parts, as Chakra states it.

    That is the part of a rank for gathers, the whole for scatters; versions of PyTorch write one
    or the other as what goes in. `event` is the record of the call, `kind` such as "ALL_GATHER",
    and `in_bytes` what goes in by this record; what comes out is read here. With 1 kB in and 4 kB
    out, an all-gather of 4 ranks has the size 1 kB; with 4 kB in and 1 kB out, a reduce-scatter
    has 4 kB.
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


def _read_annotation(events: TraceEvents, span: Span) -> Call | None:
    """Read a call from its annotation, as PyTorch before 2.2 writes it; None if it moves no bytes.

    `span` is the annotation, such as ``nccl:all_reduce``. Its name tells the kind, and the peer of
    a message; the shapes of the input tell the size. The root is not told.
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
    spans_of_role: dict[str, list[Span]] = {role: [] for role in EventsByRole._fields[:-1]}
    launches: dict[int, int] = {}
    n_of_other_device = Counter[str]()
    for index, event in enumerate(events.events):
        if event.get("ph") != "X":
            continue
        category = events.text(index, "cat")
        role = _role_of(category, events.text(index, "name"))
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


def _role_of(category: str, name: str) -> str | None:
    """Return the list of `EventsByRole` of an event with these ``cat`` and ``name``, or None."""
    if category in _DEVICE_CATEGORIES:
        return "device"
    if name == _RECORD_NAME:
        return "records"
    if name.startswith("nccl:") and category == "user_annotation":
        return "nccl_annotations"
    for beginning, role in _ROLE_OF_BEGINNING.items():
        if name.startswith(beginning):
            return role
    return "host" if category == "cpu_op" else None


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
    groups = []
    open_labels = defaultdict[str, list[Span]](list)
    next_label = 0
    for call in calls:
        # Labels that have begun are put on the stack of their thread ...
        while (
            next_label < len(by_role.group_labels)
            and by_role.group_labels[next_label].start_us <= call.start_us
        ):
            label = by_role.group_labels[next_label]
            open_labels[events.thread(label.event)].append(label)
            next_label += 1

        # ... and those that have ended are taken off: the innermost one around the call is left.
        around = open_labels[events.thread(call.event)]
        while around and around[-1].end_us < call.end_us:
            around.pop()
        if around:
            _, _, group = events.text(around[-1].event, "name").partition(":")
        else:
            group = events.default_group(call.event)
        groups.append(group)

    for call, gloo, group in zip(calls, by_role.gloo, groups, strict=True):
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
        recording.talking.append(Activity(gloo.start_us, gloo.end_us, gloo.event))

    # An operation of the processor that makes a call may wait for it; its other parts are events
    # of their own.
    begins_of_thread = defaultdict[str, list[float]](list)
    for call in sorted([*by_role.c10d, *by_role.gloo]):
        begins_of_thread[events.thread(call.event)].append(call.start_us)

    # An operation contains a call if a call of its thread begins between its begin and its end.
    computations = []
    for operation in by_role.host:
        begins = begins_of_thread[events.thread(operation.event)]
        n_before_begin = bisect_left(begins, operation.start_us)
        n_before_end = bisect_left(begins, operation.end_us)
        if n_before_begin == n_before_end:
            computations.append(Activity(*operation))
    recording.computing += computations
