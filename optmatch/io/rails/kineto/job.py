"""All ranks of a job that PyTorch's profiler recorded, as traces that Chakra's readers take."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.demand import add_up
from optmatch.io.rails.chakra.step import TraceOptions, step_of
from optmatch.io.rails.chakra.traces import MISSING, NodeRow, Trace
from optmatch.io.rails.kineto.recordings import Activity, Call, Recording, read_recording
from optmatch.model import FormatError
from optmatch.problems.demands.traffic import Matrix
from optmatch.problems.rails.training.step import Step

Paths = Sequence[str | os.PathLike[str]]
Members = Mapping[str, Sequence[int]]


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

    Parameters
    ----------
    groups
        The ranks of groups that the traces do not tell, or cut.
    skipped
        A list: what is passed over is added to it, and to `skipped` of the step. Ranks without a
        file are left out. None: all that cannot be read is an error.
    """
    recordings = _read_all_ranks(paths, groups, skipped)
    traces, members = make_traces(recordings, skipped)
    step = step_of(traces, members, options or TraceOptions())
    return replace(step, skipped=tuple(skipped)) if skipped else step


def read_kineto_demand(
    paths: Paths, groups: Members | None = None, *, skipped: list[str] | None = None
) -> Matrix:
    """Return ``matrix[source, destination]``: the bytes that ranks sent in recordings."""
    return add_up(*make_traces(_read_all_ranks(paths, groups, skipped), skipped))


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


def make_traces(
    recordings: Sequence[Recording], skipped: list[str] | None
) -> tuple[list[Trace], dict[str, tuple[int, ...]]]:
    """Return ``traces[rank]`` of all ranks, and the ranks of each group by its name in them.

    A name may stand for several groups of different ranks, which get their first rank behind it:
    two groups "tp" of the ranks 0, 1 and 2, 3 become "tp.0" and "tp.2". A rank without a file has
    an empty trace. `skipped` receives a line for each thing that is left out; with None such a
    thing is an error.
    """
    n_ranks = max([len(recordings), *(recording.world for recording in recordings)])
    all_ranks = tuple(range(n_ranks))

    _check_sequences(recordings, skipped)

    # Empty members mean the group of all ranks, in a trace that does not tell how many they are.
    members_by_name = defaultdict[str, set[tuple[int, ...]]](set)
    for recording in recordings:
        for name, ranks in recording.members.items():
            members_by_name[name].add(ranks or all_ranks)

    # A rank without a file has an empty trace, so that traces are counted by ranks.
    recording_of_rank = {recording.rank: recording for recording in recordings}
    members: dict[str, tuple[int, ...]] = {}
    traces = []
    for rank in range(n_ranks):
        recording = recording_of_rank.get(rank, Recording("", rank, n_ranks))

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
        traces.append(_trace_of_recording(recording, unique_names, skipped))
    return traces, members


def _check_sequences(recordings: Sequence[Recording], skipped: list[str] | None) -> None:
    """Refuse recordings whose collectives of one group begin at different numbers.

    With a list `skipped` they are noted there instead. Only those are compared whose calls all
    tell their numbers. The k-th collective of a group at one rank belongs to the k-th at the
    others.
    """
    numbers_of_group: dict[tuple[str, tuple[int, ...]], tuple[Recording, list[int]]] = {}
    for recording in recordings:
        numbers: dict[str, list[int]] = defaultdict(list)
        for call in recording.calls:
            if call.kind not in ("SEND", "RECV"):
                numbers[call.group].append(call.sequence)

        # The first recording of a group is compared with all others.
        for name, own_numbers in numbers.items():
            key = (name, recording.members[name])
            first, first_numbers = numbers_of_group.setdefault(key, (recording, own_numbers))
            common = zip(own_numbers, first_numbers, strict=False)
            if MISSING in own_numbers or MISSING in first_numbers:
                continue
            if any(number != first_number for number, first_number in common):
                rule = (
                    f"group {name}: its first collective has the number (Seq) {own_numbers[0]}, at"
                    f" rank {first.rank} {first_numbers[0]}: the recordings cover different parts"
                    " of the run"
                )
                if skipped is None:
                    raise FormatError(rule, where="/traceEvents", path=recording.path)
                skipped.append(f"{recording.path}: {rule}")


class _Part(NamedTuple):
    """Computation between two cuts of a rank's recording."""

    start_us: float
    end_us: float
    event: int
    """The first activity in it."""
    busy_us: float
    """How long something ran."""


def _trace_of_recording(
    recording: Recording, unique_names: Mapping[str, str], skipped: list[str] | None
) -> Trace:
    """Turn the recording of one rank into a trace; ``unique_names[name]`` is a group's name in it.

    Its nodes are calls and parts of the computation (`_cut_computation`), by begin; a part has the
    microseconds for which the device was busy. A node waits, in each stream of the rank, for the
    last node that had ended before it began. ``parents[first_parent[k]:first_parent[k + 1]]`` are
    the nodes that node k waits for. `skipped` goes into the trace, for what is left out later.
    """
    steps: list[_Part | Call] = [*_cut_computation(recording), *recording.calls]
    steps.sort(key=lambda step: (step.start_us, step.end_us, step.event))

    # Computation is a stream, and so are the collectives of a group, and its messages. A step
    # waits for the last one of each stream that had ended; earlier steps of a stream ended
    # before it.
    parents: list[int] = []
    first_parent = [0]
    ended_of_stream = defaultdict[str, list[tuple[float, int]]](list)
    for place, step in enumerate(steps):
        # Ends of a stream are kept in their order: the last one before the begin of this step is
        # what it waits for.
        for ended in ended_of_stream.values():
            n_ended = bisect_right(ended, (step.start_us, place))
            if n_ended:
                parents.append(ended[n_ended - 1][1])
        first_parent.append(len(parents))

        stream = ""
        if isinstance(step, Call):
            is_message = step.kind in ("SEND", "RECV")
            stream = f"{is_message} {step.group}"
        ended = ended_of_stream[stream]
        ended.insert(bisect_right(ended, (step.end_us, place)), (step.end_us, place))

    rows = []
    sent_bytes = {}
    for place, step in enumerate(steps):
        if isinstance(step, _Part):
            rows.append(NodeRow(step.event, "COMPUTE", step.busy_us))
            continue
        if step.sent_bytes:
            sent_bytes[place] = step.sent_bytes
        rows.append(
            NodeRow(
                node_id=step.event,
                operation=step.kind,
                size_bytes=step.size_bytes,
                group=unique_names[step.group],
                peer=step.peer,
                root=step.root,
            )
        )
    return Trace.of_rows(
        rows,
        path=recording.path,
        parents=np.array(parents, dtype=np.int64),
        first_parent=np.array(first_parent),
        sent_bytes=sent_bytes,
        noun="event",
        skipped=skipped,
    )


def _cut_computation(recording: Recording) -> list[_Part]:
    """Join what a rank computed into parts, between the begins and ends of its communication.

    Let activities last from 0 to 1, 1 to 3, 4 to 5 and 5 to 6 us, and a call from 2 to 4.5 us. The
    first, over when the call begins, and the last, which begins after its end, are parts of their
    own. The two between them are a third part.
    """
    computing = recording.computing
    if not computing:
        return []
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
        _Part(
            start_us=float(starts_us[first]),
            end_us=float(latest_end_us[next_place - 1]),
            event=computing[first].event,
            busy_us=float(busy_before_us[next_place] - busy_before_us[first]),
        )
        for first, next_place in pairwise(places)
    ]
