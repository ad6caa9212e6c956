"""The trace of one rank, as PyTorch's profiler writes it: what it computed and communicated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from optmatch.io.contents import read_bytes, unzip
from optmatch.io.rails.kineto.events import EventsByRole, TraceEvents
from optmatch.io.rails.kineto.gloo import read_gloo_calls
from optmatch.io.rails.kineto.nccl import read_nccl_calls
from optmatch.io.rails.kineto.recorded import (
    Activity as Activity,
    Call as Call,
    Recording as Recording,
)
from optmatch.io.recognition import describing
from optmatch.io.text import parse_json
from optmatch.model import FormatError, naming
from optmatch.model.accounts import accounting
from optmatch.model.files import path_name

_RECORD_NAME = "record_param_comms"
"""The name of events that tell a call of NCCL with its arguments."""
_GROUP_LABEL = "process_group:"
"""An annotation that begins so names the group of the call of Gloo inside it."""
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
    by_role = EventsByRole()
    n_of_other_device = Counter[str]()
    for index, event in enumerate(events.events):
        if event.get("ph") != "X":
            continue
        category = events.text(index, "cat")
        role = _role_of(category, events.text(index, "name"))
        if role is not None:
            getattr(by_role, role).append(events.span(index))
            continue
        if category.startswith(_OTHER_DEVICES):
            n_of_other_device[category] += 1

        # Kernels are launched by the runtime or the driver of CUDA, of ROCm or of others: a common
        # correlation joins both, whatever the category of the launch.
        correlation = events.link_number(index, "correlation")
        if correlation is not None:
            by_role.launches.setdefault(correlation, index)

    if n_of_other_device:
        category, count = n_of_other_device.most_common(1)[0]
        rule = (
            f"{count} events of category {category}: kernels of CUDA and ROCm and calls of Gloo"
            " are read, those of other accelerators are not"
        )
        raise FormatError(rule, where="/traceEvents")
    by_role.sort()
    return by_role


def _role_of(category: str, name: str) -> str | None:
    """Return the list of `EventsByRole` of an event with these ``cat`` and ``name``, or None."""
    if category in _DEVICE_CATEGORIES:
        return "device"
    if name == _RECORD_NAME:
        return "records"
    if name.startswith("nccl:") and category == "user_annotation":
        return "nccl_annotations"
    if name.startswith("c10d::"):
        return "c10d"
    if name.startswith("gloo:"):
        return "gloo"
    if name.startswith(_GROUP_LABEL):
        return "group_labels"
    if category == "cpu_op":
        return "host"
    return None
