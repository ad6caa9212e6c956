"""Calls of Gloo in a trace of PyTorch's profiler, of ranks without a device."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from optmatch.io.rails.chakra.traces import MISSING
from optmatch.io.rails.kineto.events import EventsByRole, Span, TraceEvents
from optmatch.io.rails.kineto.recorded import Activity, Call, Recording
from optmatch.model import FormatError

_PARTNER_PLACE = 2
"""The place of the partner, or of the root, among the arguments of a call of c10d."""


def read_gloo_calls(recording: Recording, events: TraceEvents, by_role: EventsByRole) -> None:
    """Read from the profile of a processor computations and calls of Gloo, into `recording`.

    Each communication has two events, in the same order. The call of c10d, PyTorch's library of
    communication, tells the kind, the other rank of a message and the root of a broadcast; the
    event of Gloo tells the size and the times. Without calls of c10d the names of the events of
    Gloo tell the kind, and ranks are not known. Different numbers of both are refused.
    """
    calls = by_role.c10d or by_role.gloo
    if len(calls) != len(by_role.gloo):
        rule = (
            f"{len(by_role.c10d)} calls of c10d, {len(by_role.gloo)} events of Gloo: one for each"
            " is expected"
        )
        raise FormatError(rule, where="/traceEvents")

    groups = _find_groups(events, calls, by_role.group_labels)
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
    recording.computing += _list_computations(events, by_role)


def _list_computations(events: TraceEvents, by_role: EventsByRole) -> list[Activity]:
    """List the operations of processors that do not contain a call.

    An operation that makes a call may wait for it; its other parts are events of their own.
    """
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
    return computations


def _find_groups(events: TraceEvents, calls: Sequence[Span], labels: Sequence[Span]) -> list[str]:
    """Return the group of each call: of the innermost label around it, else the default one.

    A label is an annotation such as ``process_group:tp.0``. Labels of a thread are nested, so that
    those that have begun and not ended are a stack.
    """
    groups = []
    open_labels = defaultdict[str, list[Span]](list)
    next_label = 0
    for call in calls:
        # Labels that have begun are put on the stack of their thread ...
        while next_label < len(labels) and labels[next_label].start_us <= call.start_us:
            label = labels[next_label]
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
    return groups
