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

from optmatch.io.rails.chakra.demand import add_up
from optmatch.io.rails.chakra.messages import COLLECTIVE, COLLECTIVES, COMPUTE, RECEIVE, SEND
from optmatch.io.rails.chakra.options import TraceOptions
from optmatch.io.rails.chakra.step import step_of
from optmatch.io.rails.chakra.traces import MISSING, Trace
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
    """Collectives that are alike, and messages."""

    operation: str
    group: str
    ranks: tuple[int, ...]
    size_bytes: int
    """As in Chakra: of an all-gather the shard, else the whole buffer."""
    times: int
    """In how many each rank takes part, at most."""
    mean_s: float
    """How long they took, over all ranks, with the wait for the last one."""


def read_kineto_step(
    paths: Paths,
    groups: Members | None = None,
    options: TraceOptions | None = None,
    *,
    skipped: list[str] | None = None,
) -> Step:
    """Read the traces of all ranks as one step of a job, see `read_recording`.

    What was on the device, or on the processor where there is none, is cut where communication
    began or ended. A part waits for what had ended in the recording before it began; so the step
    takes no longer than the recorded one where communication does not. Time in which nothing ran
    is no computation. Communication takes what its circuits need.
    """
    recordings = _read_all(paths, groups, skipped)
    traces, members = make_traces(recordings, skipped)
    step = step_of(traces, members, options or TraceOptions())
    return replace(step, skipped=tuple(skipped)) if skipped else step


def read_kineto_demand(
    paths: Paths, groups: Members | None = None, *, skipped: list[str] | None = None
) -> Matrix:
    """Add up the bytes that ranks sent each other, as `read_chakra` does."""
    return add_up(*make_traces(_read_all(paths, groups, skipped), skipped))


def list_calls(recordings: Iterable[Recording]) -> list[Listed]:
    """List what was communicated, the longest first; equal operations of a group are a row."""
    each = defaultdict[tuple[str, str, tuple[int, ...], int], list[tuple[int, float]]](list)
    for recording in recordings:
        for call in recording.calls:
            ranks = recording.members[call.group]
            key = (call.kind.lower().replace("_", "-"), call.group, ranks, call.size_bytes)
            each[key].append((recording.rank, (call.end_us - call.start_us) * 1e-6))
    rows = []
    for key, calls in each.items():
        most = max(Counter(rank for rank, _ in calls).values())
        rows.append(Listed(*key, most, sum(lasted for _, lasted in calls) / len(calls)))
    return sorted(rows, key=lambda row: (-row.times * row.mean_s, *row[:4]))


def measure(recording: Recording) -> Times:
    """Measure how long a rank communicated, computed, and did both."""
    talking = {one.event for one in recording.talking}
    others = [a for a in recording.computing if not a.memory and a.event not in talking]
    both, first, second = (
        _covered(s) for s in (recording.talking + others, recording.talking, others)
    )
    ran = [*recording.talking, *recording.computing]
    span = max((a.end_us for a in ran), default=0) - min((a.start_us for a in ran), default=0)
    return Times(*(1e-6 * us for us in (first, second, first + second - both, span)))


def _covered(activities: Iterable[Activity]) -> float:
    """Return how long at least one of them ran, in us."""
    return float(sum(_parts(sorted(activities))))


def _parts(ordered: Sequence[Activity]) -> list[float]:
    """Return the time that each adds to what those before it cover."""
    found, over = [], -np.inf
    for one in ordered:
        found.append(max(0.0, one.end_us - max(one.start_us, over)))
        over = max(over, one.end_us)
    return found


def _read_all(paths: Paths, groups: Members | None, skipped: list[str] | None) -> list[Recording]:
    """Read the files of all ranks, in the order of ranks."""
    found = [read_recording(path, groups=groups, skipped=skipped) for path in paths]
    ranks: dict[int, str] = {}
    for one in found:
        where = "/distributedInfo/rank"
        if one.rank == MISSING:
            raise FormatError(
                "is missing: the trace of a job tells it", where=where, path=one.path
            )
        if one.rank in ranks:
            text = f"{one.rank}: {ranks[one.rank]} is of the same rank"
            raise FormatError(text, where=where, path=one.path)
        ranks[one.rank] = one.path
        world = max(len(found), one.world)
        if one.rank >= world or (world > len(found) and skipped is None):
            text = f"{len(found)} files, {world} ranks: a file for each of 0 .. {world - 1}"
            raise FormatError(text, where=where, path=one.path)
    return sorted(found, key=lambda one: one.rank)


def make_traces(
    recordings: Sequence[Recording], skipped: list[str] | None
) -> tuple[list[Trace], dict[str, tuple[int, ...]]]:
    """Make Chakra's traces of all ranks, and the members of their groups.

    Groups of one name and other members, as local synchronisation makes them, get the first rank
    behind their name.
    """
    known = defaultdict[str, set[tuple[int, ...]]](set)
    for one in recordings:
        for name, ranks in one.members.items():
            known[name].add(ranks)
    members: dict[str, tuple[int, ...]] = {}
    of_rank = {one.rank: one for one in recordings}
    n_ranks = max([len(recordings), *(one.world for one in recordings)])
    traces = []
    for rank in range(n_ranks):
        recording = of_rank.get(rank, Recording("", rank, n_ranks))
        names = {
            name: name if len(known[name]) == 1 else f"{name}.{ranks[0]}"
            for name, ranks in recording.members.items()
        }
        for name, ranks in recording.members.items():
            if members.setdefault(names[name], ranks) != ranks:
                text = f"group {name}: its ranks differ from those at another rank of it"
                raise FormatError(text, where="/distributedInfo/pg_config", path=recording.path)
        traces.append(_trace(recording, names, skipped))
    return traces, members


def _trace(recording: Recording, names: Mapping[str, str], skipped: list[str] | None) -> Trace:
    """Make the trace of one rank: its calls, and what ran between their begins and ends."""
    nodes = sorted([*_parts_between(recording), *((*call[:3], call) for call in recording.calls)],
                   key=lambda node: node[:3])  # fmt: skip
    places = {name: place for place, name in enumerate(names)}
    rows, parents, first_parent = [], list[int](), [0]
    ended = defaultdict[str, list[tuple[float, int]]](list)
    for place, (start, end, event, what) in enumerate(nodes):
        for stream in ended.values():  # the last one that had ended; others before are in front
            at = bisect_right(stream, (start, place))
            parents += [stream[at - 1][1]] if at else []
        first_parent.append(len(parents))
        call = what if isinstance(what, Call) else None
        kind, collective, sent, received = COMPUTE, MISSING, MISSING, MISSING
        stream_name = "" if call is None else f"{call.kind in ('SEND', 'RECV')} {call.group}"
        if call is not None and call.kind in ("SEND", "RECV"):
            kind = SEND if call.kind == "SEND" else RECEIVE
            ends = (recording.rank, call.peer)
            sent, received = ends if kind == SEND else ends[::-1]
        elif call is not None:
            kind, collective = COLLECTIVE, COLLECTIVES.index(call.kind)
        group, size_bytes, root = (
            (MISSING, 0, MISSING)
            if call is None
            else (places[call.group], call.size_bytes, call.root)
        )
        rows.append((kind, collective, size_bytes, sent, received, group, root, event))
        stream = ended[stream_name]
        stream.insert(bisect_right(stream, (end, place)), (end, place))
    table = np.array(rows, dtype=np.int64).reshape(-1, 8).T
    lasts = [0.0 if isinstance(node[3], Call) else node[3] for node in nodes]
    unknown = np.full(len(nodes), MISSING)
    return Trace(
        path=recording.path,
        rank=recording.rank,
        node_id=table[7].astype(np.uint64),
        kind=table[0],
        duration_us=np.array(lasts, dtype=np.float64),
        parents=np.array(parents, dtype=np.int64),
        first_parent=np.array(first_parent, dtype=np.int64),
        collective=table[1],
        size_bytes=table[2],
        source=table[3],
        destination=table[4],
        tag=unknown,
        group=table[5],
        operations=unknown,
        root=table[6],
        group_names=tuple(names.values()),
        noun="event",
        skipped=skipped,
    )


def _parts_between(recording: Recording) -> list[tuple[float, float, int, float]]:
    """Put what ran into parts: begin, end, first event, and how long something ran.

    A cut is behind what had ended when a call began, and before what began when one had ended.
    """
    ran = recording.computing
    if not ran:
        return []
    starts = np.array([one.start_us for one in ran])
    ends = np.maximum.accumulate([one.end_us for one in ran])
    lasted = np.concatenate([[0.0], np.cumsum(_parts(ran))])
    calls = np.array([call[:2] for call in recording.calls]).reshape(-1, 2)
    cuts = np.searchsorted(ends, calls[:, 0], side="right"), np.searchsorted(starts, calls[:, 1])
    places = np.unique(np.concatenate([[0], *cuts, [len(ran)]])).astype(np.int64).tolist()
    return [
        (float(starts[a]), float(ends[b - 1]), ran[a].event, float(lasted[b] - lasted[a]))
        for a, b in pairwise(places)
    ]
