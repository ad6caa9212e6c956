"""The trace of one rank, as PyTorch's profiler writes it: what it computed and communicated."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from optmatch.io.contents import read_bytes, unzip
from optmatch.io.rails.chakra.traces import MISSING
from optmatch.io.rails.kineto.events import Events, Span
from optmatch.io.text import parse_json
from optmatch.model import FormatError, naming
from optmatch.model.files import path_name

RECORDS = "record_param_comms"
"""The name of events that tell a communication of NCCL with its arguments."""
ANNOTATION = "process_group:"
"""Stands before the name of the group in an annotation around a call of Gloo, which tells none."""
_SILENT = ("", "wait", "init", "coalesced", "end_coalescing")
"""Records that move no bytes."""
_ROOTED = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_TALKS = re.compile(r"nccl|rccl|mscclKernel|.*ncclKernel")


class Activity(NamedTuple):
    """Something that ran, on the device if there is one."""

    start_us: float
    end_us: float
    event: int
    """Its place in ``traceEvents``."""
    memory: bool = False
    """Whether it copies or sets memory only."""


class Call(NamedTuple):
    """One communication at one rank."""

    start_us: float
    end_us: float
    event: int
    kind: str
    """A value of `optmatch.io.rails.kineto.events.KINDS`."""
    group: str
    size_bytes: int
    """As in Chakra: of an all-gather the shard, else the whole buffer."""
    peer: int = MISSING
    """The other rank of a message."""
    root: int = MISSING


@dataclass
class Recording:
    """The trace of one rank; rank and number of ranks are `MISSING` if they are not told."""

    path: str
    rank: int
    world: int
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The ranks of each group that communicates."""
    calls: list[Call] = field(default_factory=list)
    computing: list[Activity] = field(default_factory=list)
    talking: list[Activity] = field(default_factory=list)
    """The kernels of NCCL, or what Gloo did."""


def read_recording(
    path: str | os.PathLike[str],
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    skipped: list[str] | None = None,
) -> Recording:
    """Read the trace of one rank, JSON, perhaps gzipped: what ``torch.profiler`` exports.

    Parameters
    ----------
    path
        The file.
    groups
        The ranks of groups that the trace does not tell, or cuts.
    skipped
        A list: communication of NCCL that does not tell its kind, size or group counts as
        computation, and is added to the list. None: it is an error.

    Raises
    ------
    FormatError
        Naming file, event, value and rule.

    Notes
    -----
    About 5 us for an event, and 1 KB of memory.
    """
    file = path_name(path)
    with naming(file):
        events = Events(parse_json(unzip(read_bytes(path), file), file), groups or {})
        found = Recording(file, events.rank, events.world)
        device, calls, hosted, labels, launches = _sort(events)
        if device or any(events.text(k, "name") == RECORDS for _, _, k in calls):
            _read_device(found, events, device, calls, launches, skipped)
        else:
            _read_host(found, events, hosted, calls, labels)
        found.computing.sort()
        found.calls.sort()
        for call in found.calls:
            if call.group not in found.members:
                found.members[call.group] = events.members(call.event, call.group)
    return found


def _sort(events: Events) -> tuple[list[Span], ...]:
    """Sort events: of devices, calls, of processors, annotations of groups, launches."""
    found: tuple[list[Span], ...] = ([], [], [], [], [])
    device, calls, hosted, labels, launches = found
    for k, event in enumerate(events.events):
        category, name = events.text(k, "cat"), events.text(k, "name")
        if event.get("ph") != "X":
            continue
        if category in _DEVICE:
            device.append(events.span(k))
        elif category == "cuda_runtime":
            launches.append(events.span(k))
        elif name == RECORDS or name.startswith(("c10d::", "gloo:")):
            calls.append(events.span(k))
        elif name.startswith(ANNOTATION):
            labels.append(events.span(k))
        elif category == "cpu_op":
            hosted.append(events.span(k))
    return tuple(sorted(one) for one in found)


def _read_device(
    found: Recording,
    events: Events,
    device: list[Span],
    calls: list[Span],
    launches: list[Span],
    skipped: list[str] | None,
) -> None:
    """Read kernels, and the records of calls with the kernels that they launched.

    A kernel has the external id of its record. Messages that are launched together have records
    without a kernel; theirs is the next one without a record that their thread launches.
    """
    records = [one for one in calls if events.text(one[2], "name") == RECORDS]
    known = {events.number(k, "External id") for _, _, k in records} - {None}
    launched = {events.number(k, "correlation"): (start, k) for start, _, k in launches}
    own = defaultdict[int | None, list[Activity]](list)
    alone = defaultdict[str, list[tuple[float, Activity]]](list)  # by thread, when launched
    for start, end, k in device:
        memory = events.text(k, "cat") != "kernel"
        activity = Activity(start, end, k, memory)
        if memory or not _TALKS.match(events.text(k, "name")):
            found.computing.append(activity)
            continue
        found.talking.append(activity)
        number = events.number(k, "External id")
        if number in known:
            own[number].append(activity)
        elif (launch := launched.get(events.number(k, "correlation"))) is not None:
            alone[events.thread(launch[1])].append((launch[0], activity))
    for each in alone.values():
        each.sort()
    for start, end, k in records:
        kernels = own.get(events.number(k, "External id"), [])
        if not kernels:
            of_thread = alone[events.thread(k)]
            next_one = bisect_left(of_thread, start, key=lambda one: one[0])
            kernels = [one for _, one in of_thread[next_one : next_one + 1]]
        if kernels:
            start, end = kernels[0].start_us, max(one.end_us for one in kernels)
        try:
            found.calls += _read_record(events, start, end, k)
        except FormatError as exc:
            if skipped is None:
                raise
            exc.path = found.path
            skipped.append(f"{exc}: taken as computation")
            found.computing += kernels


def _read_record(events: Events, start: float, end: float, k: int) -> list[Call]:
    """Read the arguments of a record; none if it moves no bytes."""
    args = events.args(k)
    if args.get("Collective name") in _SILENT:
        return []
    kind = events.kind(k, args.get("Collective name"), "args/Collective name")
    group = args.get("Process Group Name", args.get("Process Group ID"))
    if not isinstance(group, str | int) or group == "":
        raise events.flaw(k, "args/Process Group Name", group, "the name of a group")
    group, size_bytes, peer, root = str(group), 0, MISSING, MISSING
    if kind != "BARRIER":
        where = f"args/{'Out' if kind == 'RECV' else 'In'} msg nelems"
        size_bytes = events.size_bytes(k, where, args.get(where[5:]), args.get("dtype"))
    ends = {"SEND": "Dst Rank", "RECV": "Src Rank"}
    if kind in ends and ends[kind] in args:
        ranks, peer = events.members(k, group), args[ends[kind]]
        if peer not in ranks:
            raise events.flaw(k, f"args/{ends[kind]}", peer, f"a rank of group {group}")
    if kind in _ROOTED and args.get("Rank", MISSING) != MISSING:
        root = events.member(k, group, args["Rank"], "args/Rank")
    return [Call(start, end, k, kind, group, size_bytes, peer, root)]


def _read_host(
    found: Recording, events: Events, hosted: list[Span], calls: list[Span], labels: list[Span]
) -> None:
    """Read operations of processors, and what Gloo did for calls of c10d, in their order.

    The call tells kind, partner and root, the event of Gloo the size and how long it took.
    """
    asked = [one for one in calls if events.text(one[2], "name").startswith("c10d::")]
    done = [one for one in calls if events.text(one[2], "name").startswith("gloo:")]
    if len(asked) != len(done):
        text = f"{len(asked)} calls of c10d, {len(done)} events of Gloo: one for each is expected"
        raise FormatError(text, where="/traceEvents")
    groups = _annotated(events, asked, labels)
    for (*_, k), (start, end, gloo), group in zip(asked, done, groups, strict=True):
        kind = events.kind(k, events.text(k, "name").removeprefix("c10d::"), "name")
        told = (*events.items(k, "Concrete Inputs"), "", "", "")[2]
        size_bytes, peer, root = 0, MISSING, MISSING
        if kind != "BARRIER":
            size_bytes = events.tensors_bytes(gloo)
        if kind in ("SEND", "RECV"):
            peer = events.member(k, group, told, "args/Concrete Inputs/2")
        elif kind == "BROADCAST":
            root = events.member(k, group, told, "args/Concrete Inputs/2")
        found.calls.append(Call(start, end, k, kind, group, size_bytes, peer, root))
        found.talking.append(Activity(start, end, gloo))
    # What makes a call may wait for it. Its other parts are events of their own.
    begins = defaultdict[str, list[float]](list)
    for start, _, k in calls:
        begins[events.thread(k)].append(start)
    for start, end, k in hosted:
        inside = begins[events.thread(k)]
        if bisect_left(inside, start) == bisect_left(inside, end):
            found.computing.append(Activity(start, end, k))


def _annotated(events: Events, calls: list[Span], labels: list[Span]) -> list[str]:
    """Return the group in the annotation around each call, or the only group of the trace."""
    found, begun = [], defaultdict[str, list[Span]](list)
    waiting = labels[::-1]
    for start, end, k in calls:
        while waiting and waiting[-1][0] <= start:
            label = waiting.pop()
            begun[events.thread(label[2])].append(label)
        around = begun[events.thread(k)]
        while around and around[-1][1] < end:
            around.pop()
        if around:
            found.append(events.text(around[-1][2], "name").removeprefix(ANNOTATION))
        elif len(events.told) == 1:
            found += events.told
        else:
            text = f"Gloo tells no group: annotate the call with {ANNOTATION + 'NAME'!r}"
            raise FormatError(text, where=f"/traceEvents/{k}")
    return found
