"""Steps of training jobs from Chakra traces: nodes become operations, matched over ranks."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from optmatch.io.rails.chakra.demand import FROM_ROOT, check_root, members_of, roots_of
from optmatch.io.rails.chakra.messages import COLLECTIVE, COLLECTIVES, RECEIVE, SEND
from optmatch.io.rails.chakra.options import TraceOptions
from optmatch.io.rails.chakra.pairs import Members, pair_messages
from optmatch.io.rails.chakra.traces import (
    MISSING,
    Integers,
    Nodes,
    Trace,
    alike,
    read_traces,
    siblings,
)
from optmatch.io.rails.groups import read_groups
from optmatch.model import FormatError, InputError
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.step import OPERATIONS, RECV, Dimension, Group, Step
from optmatch.problems.rails.training.times import ends_s, events, list_circle, streams


def can_start(step: Step) -> bool:
    """Tell whether a step can end if each send waits until its receive is ready."""
    if not (step.kind == RECV).any():
        return True
    try:
        ends_s(events(step, RailNetwork(gpus_per_server=1), {}))
    except InputError:
        return False
    return True


def send_eagerly(step: Step) -> Step:
    """Let messages wait for their senders alone, and pass the dependencies of receives on.

    A message is one operation with two ends, so it cannot arrive before its receive starts. But a
    receive without dependencies delays no send. An operation that depended on the receive takes
    over the last of its dependencies in each stream: earlier ones have ended by then.
    """
    stream, receives = streams(step).tolist(), (step.kind == RECV).tolist()
    start, dep = step.dep_start.tolist(), step.dep.tolist()
    taken_over: dict[int, list[int]] = {}
    found: list[list[int]] = []
    for operation, receive in enumerate(receives):
        last: dict[int, int] = {}
        for one in dep[start[operation] : start[operation + 1]]:
            for each in (one, *taken_over.get(one, ())):
                last[stream[each]] = max(each, last.get(stream[each], each))
        found.append([] if receive else sorted(last.values()))
        if receive:
            taken_over[operation] = list(last.values())
    return replace(
        step,
        dep_start=np.cumsum([0, *map(len, found)]),
        dep=np.array([one for ones in found for one in ones], dtype=np.int64),
    )


_KINDS = {
    "ALL_REDUCE": "all-reduce",
    "ALL_GATHER": "all-gather",
    "REDUCE_SCATTER": "reduce-scatter",
    "REDUCE_SCATTER_BLOCK": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
    "BROADCAST": "broadcast",
    "BARRIER": "all-reduce",  # of nothing
    # On a ring they load the link next to the root, and last, as much as these load each link.
    "REDUCE": "broadcast",
    "GATHER": "all-gather",
    "SCATTER": "reduce-scatter",
}
_KIND_OF = np.array([OPERATIONS.index(_KINDS[name]) for name in COLLECTIVES])
_FROM_ROOT = [COLLECTIVES.index(name) for name in FROM_ROOT]
_ALL_TO_ALL, _SEND, _RECV = map(OPERATIONS.index, ("all-to-all", "send", "recv"))
ALL_RANKS = "all"
"""The name of the group of collectives that name none."""


def read_step(
    prefix: str | os.PathLike[str],
    groups: str | os.PathLike[str] | None = None,
    options: TraceOptions | None = None,
    *,
    skipped: list[str] | None = None,
) -> Step:
    """Read the Chakra traces of all ranks as one step of a job.

    Computations take their duration; communication takes what its circuits need, whatever the
    trace has measured. The k-th collective of a group at one rank belongs to the k-th at the
    others. A send belongs to the receive between the same ranks with the same tag, in order, and
    begins when both are ready. Where ranks would wait for each other in a circle, it does not wait
    for the receive: see `send_eagerly`. Of an all-to-all whose ranks send more or less than each
    other (``all_to_allv``), the largest size counts at all of them. `prefix` is ``folder/name`` of
    ``folder/name.RANK.et``, or the file of one rank. With a list as `skipped`, what a cut trace
    does not tell is left out, and added to the list and to `skipped` of the step, see
    `read_trace`. So are collectives without a part at some rank, and messages without their other
    end, which take the time that they took; and control dependencies, where nodes would wait in a
    circle (Chakra's own feeder follows data dependencies alone). Without a list each of these is
    an error.
    """
    traces = read_traces(siblings(prefix), skipped=skipped)
    members = {} if groups is None else read_groups(groups, n_ranks=len(traces))
    step = step_of(traces, members, options or TraceOptions())
    return replace(step, skipped=tuple(skipped)) if skipped else step


def step_of(traces: Sequence[Trace], groups: Members, options: TraceOptions) -> Step:
    """Make a step of traces; see `read_step`."""
    draft = _Draft(traces, groups, options)
    draft.match_collectives()
    draft.match_messages()
    return draft.step()


class _Draft:
    """Columns of all ranks, one trace after the other, before they are a step."""

    def __init__(self, traces: Sequence[Trace], groups: Members, options: TraceOptions) -> None:
        self.members, self.options = groups, options
        ordered = [_ordered(trace) for trace in traces]
        traces, orders = [one for one, _ in ordered], [order for _, order in ordered]
        self.nodes = nodes = Nodes.of(traces, orders)
        self.deps = _dependencies(traces, orders)
        self.kind = np.zeros(len(nodes.rank), dtype=np.int64)
        self.group, self.peer, self.match = np.full((3, len(nodes.rank)), MISSING)
        self.names: dict[str, int] = {}
        self.ranks: list[tuple[int, ...]] = []
        self.n_matches = 0
        self.untimed = nodes.column("kind") == COLLECTIVE
        self.root, given = roots_of(nodes), nodes.column("collective")
        block, like = map(COLLECTIVES.index, ("REDUCE_SCATTER_BLOCK", "REDUCE_SCATTER"))
        self.collective = np.where(given == block, like, given)  # all have equal parts here
        barrier = self.collective == COLLECTIVES.index("BARRIER")
        self.size = np.where(barrier, 0, nodes.column("size_bytes"))
        at = np.flatnonzero(nodes.column("kind") == COLLECTIVE)
        for same in alike(nodes.rank[at], nodes.column("group")[at]):
            self._read_collectives(at[same], given)

    def number(self, name: str, ranks: Sequence[int]) -> int:
        """Return the number of a group, a new one if it is new."""
        if name not in self.names:
            self.ranks.append(tuple(ranks))
        return self.names.setdefault(name, len(self.names))

    def _read_collectives(self, at: Integers, collective: Integers) -> None:
        """Set kind and group of the collectives of one rank in one group."""
        nodes, first = self.nodes, int(at[0])
        name = nodes.group_name(first) or ALL_RANKS
        if name in self.options.leave_out:
            return
        wrong = (collective[at] < 0) | (collective[at] >= len(COLLECTIVES))
        for k in at[wrong][:1].tolist():
            raise nodes.fail(k, f"comm_type = {collective[k]}: no type of collective")
        ranks = members_of(nodes, first, self.members)
        for k in at[~np.isin(self.root[at], [MISSING, *ranks])][:1].tolist():
            check_root(nodes, k, int(self.root[k]), ranks)
        if len(ranks) > 1:  # some producers write groups of one rank, which sends nothing
            self.kind[at] = _KIND_OF[collective[at]]
            self.group[at] = self.number(name, ranks)

    def match_collectives(self) -> None:
        """Give one number to the k-th collective of a group at each of its ranks."""
        for k in np.flatnonzero((self.group != MISSING) & (self.size < 0))[:1].tolist():
            raise self.nodes.fail(k, "comm_size is missing or negative")
        order = np.argsort(self.group, kind="stable")
        ends = np.searchsorted(self.group[order], np.arange(len(self.names) + 1))
        for name, group in self.names.items():
            at = order[ends[group] : ends[group + 1]]
            parts = [at[self.nodes.rank[at] == rank] for rank in self.ranks[group]]
            parts = self._even(name, group, parts)
            longest, table = parts[0], np.stack(parts)
            # Only the root may say what there is; all_to_allv ends when its largest part does.
            less = (self.size[table] == 0) & np.isin(self.collective[table], _FROM_ROOT)
            less |= self.collective[table] == COLLECTIVES.index("ALL_TO_ALL")
            largest = np.broadcast_to(self.size[table].max(axis=0, initial=0), table.shape)
            self.size[table[less]] = largest[less]
            for part in parts:
                self._compare(name, part, longest)
            self.match[table] = self.n_matches + np.arange(len(longest))
            self.n_matches += len(longest)

    def _even(self, name: str, group: int, parts: list[Integers]) -> list[Integers]:
        """Leave out collectives in which some rank has no part, or refuse them."""
        longest, n = max(parts, key=len), min(map(len, parts))
        for rank, part in zip(self.ranks[group], parts, strict=True):
            for k in longest[len(part) :].tolist():
                text = f"group {name}: rank {rank} has no part in this collective"
                self.nodes.skip(k, text)
        for part in parts:
            self._leave(part[n:])
        return [part[:n] for part in parts]

    def _leave(self, at: Integers) -> None:
        """Let operations be computation that takes as long as they took."""
        self.kind[at], self.group[at], self.peer[at], self.match[at] = 0, *[MISSING] * 3
        self.untimed[at] = False

    def _compare(self, name: str, part: Integers, other: Integers) -> None:
        """Refuse collectives that belong together, but differ."""
        differs = self.collective[part] != self.collective[other]
        differs |= self.size[part] != self.size[other]
        both = (self.root[part] != MISSING) & (self.root[other] != MISSING)
        differs |= both & (self.root[part] != self.root[other])
        for k in np.flatnonzero(differs)[:1]:
            place = f"{self.nodes.place(other[k])} of rank {self.nodes.rank[other[k]]}"
            text = f"group {name}: kind, size or root differs from {place}"
            raise self.nodes.fail(int(part[k]), text)

    def match_messages(self) -> None:
        """Pair sends and receives."""
        at = np.flatnonzero(np.isin(self.nodes.column("kind"), (SEND, RECEIVE)))
        messages = self.nodes.take(at)
        names = [messages.group_name(k) for k in range(len(at))]
        for k, name in enumerate(names):
            if name and name not in self.members:
                raise messages.fail(k, f"group {name}: its members are not known")
        self.peer[at], pairs = pair_messages(messages, self.members)
        self.match[at] = self.n_matches + pairs
        self.kind[at] = np.where(messages.column("kind") == SEND, _SEND, _RECV)
        self._leave(at[pairs == MISSING])
        at, names = at[pairs != MISSING], [names[k] for k in np.flatnonzero(pairs != MISSING)]
        shared = set(self.names)  # with collectives; a pipeline shares no phase with them
        for k, name in zip(at.tolist(), names, strict=True):
            ends = (int(self.nodes.rank[k]), int(self.peer[k]))
            ranks = tuple(self.members.get(name, ends))
            for rank in ends:
                if rank not in ranks:
                    raise self.nodes.fail(k, f"rank {rank} is no member of group {name}")
            if not name or name in shared:
                ranks = (min(ends), max(ends))
                name = f"{name or 'pair'}.{ranks[0]}-{ranks[1]}"
            self.group[k] = self.number(name, ranks)

    def step(self) -> Step:
        """Put the step together."""
        talks = self.group >= 0
        duration = self.nodes.column("duration_us") * 1e-6
        if self.options.flops_per_s is not None:
            counted = self.nodes.column("operations").clip(min=0) / self.options.flops_per_s
            duration = np.where(duration > 0, duration, counted)
        # Collectives are left out, or take as long as their circuits need.
        silent = talks | self.untimed
        dep_start, dep = self.deps
        step = Step(
            groups=tuple(self._groups()),
            rank=self.nodes.rank.astype(np.int32),
            kind=self.kind.astype(np.int8),
            group=self.group.astype(np.int32),
            size_bytes=np.where(talks, self.size, 0).astype(np.float64),
            duration_s=np.where(silent, 0.0, duration),
            peer=self.peer.astype(np.int32),
            match=self.match.astype(np.int32),
            dep_start=dep_start,
            dep=dep,
        )
        return step if can_start(step) else send_eagerly(step)

    def _groups(self) -> list[Group]:
        messages = set(np.unique(self.group[self.peer != MISSING]).tolist())
        experts = set(np.unique(self.group[self.kind == _ALL_TO_ALL]).tolist())
        found: list[Group] = []
        of: dict[tuple[str, int], Group] = {}
        for name, number in self.names.items():
            ranks = self.ranks[number]
            rail = self.options.rail(ranks)
            if rail is None:
                text = f"group {name}: its ranks are on several rails and several servers"
                raise self._fail(number, text)
            guess = "pp" if number in messages else "ep" if number in experts else "dp"
            guess = "tp" if guess == "dp" and rail < 0 else guess
            dimension = self.options.dimensions.get(name, cast(Dimension, guess))
            group = Group(name, dimension, ranks, rail)
            found.append(group)
            for rank in ranks if dimension != "pp" else ():
                other = of.setdefault((dimension, rank), group)
                if set(other.ranks) != set(ranks):  # one of the groups is of another dimension
                    text = f"rank {rank} is in the groups {other.name} and {name}, both"
                    text += f" {dimension}: tell the dimension of one of them"
                    raise self._fail(number, text)
        return found

    def _fail(self, group: int, message: str) -> FormatError:
        """Return an error about the first node of a group."""
        return self.nodes.fail(int(np.flatnonzero(self.group == group)[0]), message)


def _ordered(trace: Trace) -> tuple[Trace, Integers]:
    """Order the nodes of a trace, without control dependencies if they stand in the way."""
    try:
        return trace, _order(trace)
    except FormatError as exc:
        if trace.skipped is None or trace.first_control is None:
            raise
        trace.skipped.append(f"{exc}: no control dependency of this file counts")
    data = trace.first_control - trace.first_parent[:-1]
    place = np.arange(len(trace.parents)) - np.repeat(
        trace.first_parent[:-1], np.diff(trace.first_parent)
    )
    trace = trace.keep_parents(place < np.repeat(data, np.diff(trace.first_parent)))
    return trace, _order(trace)


def _order(trace: Trace) -> Integers:
    """Put nodes behind the nodes that they wait for; otherwise the order of the file stays."""
    n = len(trace.node_id)
    if not n:
        return np.arange(0)
    child = np.repeat(np.arange(n), np.diff(trace.first_parent))
    if (trace.parents < child).all():
        return np.arange(n)
    children: list[list[int]] = [[] for _ in range(n)]
    for one, other in zip(trace.parents.tolist(), child.tolist(), strict=True):
        children[one].append(other)
    waits = np.diff(trace.first_parent).tolist()
    ready = [node for node in range(n) if not waits[node]]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for other in children[node]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, other)
    if len(order) < n:
        held = np.array(waits)[trace.parents] > 0
        circle = list_circle(trace.parents[held].tolist(), child[held].tolist())
        ways = ", ".join(str(trace.node_id[k]) for k in circle[1:9]) or "nothing"
        text = f"waits for itself, in a circle of {len(circle)} nodes by way of {ways}"
        raise trace.fail(circle[0], text)
    return np.array(order, dtype=np.int64)


def _dependencies(
    traces: Sequence[Trace], orders: Sequence[Integers]
) -> tuple[Integers, Integers]:
    """Put dependencies together, by operations."""
    counts, deps, start = [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], 0
    for trace, order in zip(traces, orders, strict=True):
        if not len(order):
            continue
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        count = np.diff(trace.first_parent)[order]
        begin = np.repeat(trace.first_parent[:-1][order], count)
        within = np.arange(len(begin)) - np.repeat(np.cumsum(count) - count, count)
        deps.append(start + place[trace.parents[begin + within]])
        counts.append(count)
        start += len(order)
    return np.cumsum(np.concatenate(counts)), np.concatenate(deps)
