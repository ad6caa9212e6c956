"""Steps of training jobs from Chakra traces: nodes become operations, matched over ranks."""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra.columns import MISSING, Integers
from optmatch.io.chakra.demand import FROM_ROOT, check_root, members_of, roots_of
from optmatch.io.chakra.messages import COLLECTIVE, COLLECTIVES, RECEIVE, SEND
from optmatch.io.chakra.options import TraceOptions
from optmatch.io.chakra.pairs import Messages, pair_messages
from optmatch.io.chakra.traces import Trace, read_traces, siblings
from optmatch.io.rails.groups import read_groups
from optmatch.model import FormatError
from optmatch.problems.rails.step import OPERATIONS, Dimension, Group, Step

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
_BLOCK = COLLECTIVES.index("REDUCE_SCATTER_BLOCK")  # with equal parts, as all have here
_FROM_ROOT = [COLLECTIVES.index(name) for name in FROM_ROOT]
_ALL_TO_ALL, _SEND, _RECV = map(OPERATIONS.index, ("all-to-all", "send", "recv"))
ALL_RANKS = "all"
"""The name of the group of collectives that name none."""


def read_step(
    prefix: str | os.PathLike[str],
    groups: str | os.PathLike[str] | None = None,
    options: TraceOptions | None = None,
) -> Step:
    """Read the Chakra traces of all ranks as one step of a job.

    Parameters
    ----------
    prefix
        ``folder/name`` of ``folder/name.RANK.et``, or the file of one rank.
    groups
        The file of communicator groups; None if no node names one.
    options
        What traces do not tell.

    Returns
    -------
    Step
        Computations take their duration; communication takes what its circuits need, whatever the
        trace has measured. The k-th collective of a group at one rank belongs to the k-th at the
        others. A send belongs to the receive between the same ranks with the same tag, in order.

    Raises
    ------
    FormatError
        Naming file and node, and group and rank: whatever `read_trace` refuses, a rank that is
        not in the group of its collective, members whose collectives differ, a message without
        its other end, or with several that are possible; dependencies in a circle; a group on
        several rails; different groups of one dimension that overlap.
    """
    traces = read_traces(siblings(prefix))
    members = {} if groups is None else read_groups(groups, n_ranks=len(traces))
    return step_of(traces, members, options or TraceOptions())


def step_of(
    traces: Sequence[Trace], groups: Mapping[str, Sequence[int]], options: TraceOptions
) -> Step:
    """Make a step of traces; see `read_step`."""
    draft = _Draft(traces, groups, options)
    draft.match_collectives()
    draft.match_messages()
    return draft.step()


class _Draft:
    """Columns of all ranks, one trace after the other, before they are a step."""

    def __init__(
        self, traces: Sequence[Trace], groups: Mapping[str, Sequence[int]], options: TraceOptions
    ) -> None:
        self.traces, self.members, self.options = traces, groups, options
        orders = [_order(trace) for trace in traces]
        self.first = np.concatenate([[0], np.cumsum([len(order) for order in orders])])
        self.node = np.concatenate([*orders, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        self.rank = np.repeat(np.arange(len(traces)), np.diff(self.first))
        self.kind = np.zeros(len(self.node), dtype=np.int64)
        self.group = np.full(len(self.node), MISSING)
        self.peer = np.full(len(self.node), MISSING)
        self.match = np.full(len(self.node), MISSING)
        self.names: dict[str, int] = {}
        self.ranks: list[tuple[int, ...]] = []
        self.n_matches = 0
        self.deps = _dependencies(traces, orders, self.first)
        roots = np.concatenate([*map(roots_of, traces), np.zeros(0, dtype=np.int64)])
        self.root = roots[self.node + self._offsets()]
        given = self.column("collective")
        self.collective = np.where(given == _BLOCK, COLLECTIVES.index("REDUCE_SCATTER"), given)
        barrier = self.collective == COLLECTIVES.index("BARRIER")
        self.size = np.where(barrier, 0, self.column("size_bytes"))
        for trace, start, end in zip(traces, self.first[:-1], self.first[1:], strict=True):
            self._collectives(trace, int(start), int(end))

    def place(self, operation: int) -> tuple[Trace, int]:
        """Return trace and node of an operation."""
        return self.traces[self.rank[operation]], int(self.node[operation])

    def number(self, name: str, ranks: Sequence[int]) -> int:
        """Return the number of a group, a new one if it is new."""
        if name not in self.names:
            self.ranks.append(tuple(ranks))
        return self.names.setdefault(name, len(self.names))

    def column(self, name: str) -> Integers:
        """Put a column of whole numbers of all traces together, in the order of operations."""
        chosen: Integers = self._joined(name, np.int64)
        return chosen

    def _joined(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        parts = [getattr(trace, name) for trace in self.traces]
        joined: NDArray[Any] = np.concatenate([*parts, np.zeros(0, dtype)]).astype(dtype)
        chosen: NDArray[Any] = joined[self.node + self._offsets()]
        return chosen

    def _offsets(self) -> Integers:
        """Return for each operation how many nodes the ranks before have."""
        found: Integers = np.repeat(self.first[:-1], np.diff(self.first))
        return found

    def _collectives(self, trace: Trace, start: int, end: int) -> None:
        """Set kind and group of the collectives of a rank."""
        nodes = self.node[start:end]
        at = np.flatnonzero(trace.kind[nodes] == COLLECTIVE)
        for group in np.unique(trace.group[nodes[at]]).tolist():
            ours = at[trace.group[nodes[at]] == group]
            name = trace.group_names[group] if group != MISSING else ALL_RANKS
            if name in self.options.leave_out:
                continue
            collective = trace.collective[nodes[ours]].astype(np.int64)
            wrong = (collective < 0) | (collective >= len(COLLECTIVES))
            for k in np.flatnonzero(wrong)[:1]:
                message = f"comm_type = {collective[k]}: no type of collective"
                raise trace.fail(int(nodes[ours[k]]), message)
            node = int(nodes[ours[0]])
            ranks = members_of(trace, node, group, self.members, len(self.traces))
            roots = self.root[start:end][ours]
            for k in np.flatnonzero(~np.isin(roots, [MISSING, *ranks]))[:1]:
                check_root(trace, int(nodes[ours[k]]), int(roots[k]), ranks)
            if len(ranks) < 2:  # some producers write them; there is nobody to talk to
                continue
            self.kind[start + ours] = _KIND_OF[collective]
            self.group[start + ours] = self.number(name, ranks)

    def fail(self, operation: int, message: str) -> FormatError:
        """Return an error about the node of an operation."""
        trace, node = self.place(operation)
        return trace.fail(node, message)

    def match_collectives(self) -> None:
        """Give one number to the k-th collective of a group at each of its ranks."""
        for k in np.flatnonzero((self.group != MISSING) & (self.size < 0))[:1]:
            raise self.fail(int(k), "comm_size is missing or negative")
        order = np.argsort(self.group, kind="stable")
        ends = np.searchsorted(self.group[order], np.arange(len(self.names) + 1))
        for name, group in self.names.items():
            at = order[ends[group] : ends[group + 1]]
            parts = [at[self.rank[at] == rank] for rank in self.ranks[group]]
            longest = max(parts, key=len)
            for rank, part in zip(self.ranks[group], parts, strict=True):
                if len(part) < len(longest):
                    raise self.fail(
                        int(longest[len(part)]),
                        f"group {name}: rank {rank} has no part in this collective",
                    )
            self._fill_in(np.stack(parts))
            for part in parts:
                self._compare(name, part, longest)
                self.match[part] = self.n_matches + np.arange(len(part))
            self.n_matches += len(longest)

    def _fill_in(self, parts: Integers) -> None:
        """Where only the root has data, the others may say 0."""
        silent = (self.size[parts] == 0) & np.isin(self.collective[parts], _FROM_ROOT)
        largest = np.broadcast_to(self.size[parts].max(axis=0), parts.shape)
        self.size[parts[silent]] = largest[silent]

    def _compare(self, name: str, part: Integers, other: Integers) -> None:
        """Refuse collectives that belong together, but differ."""
        differs = self.collective[part] != self.collective[other]
        differs |= self.size[part] != self.size[other]
        both = (self.root[part] != MISSING) & (self.root[other] != MISSING)
        differs |= both & (self.root[part] != self.root[other])
        for k in np.flatnonzero(differs)[:1]:
            trace, node = self.place(int(other[k]))
            raise self.fail(
                int(part[k]),
                f"group {name}: kind, size or root differs from {trace.place(node)} of rank"
                f" {trace.rank}",
            )

    def match_messages(self) -> None:
        """Pair sends and receives."""
        kinds = self.column("kind")
        at = np.flatnonzero((kinds == SEND) | (kinds == RECEIVE))
        names = [self._group_of_message(int(k)) for k in at]
        messages = Messages(
            sends=kinds[at] == SEND,
            rank=self.rank[at],
            source=self.column("source")[at],
            destination=self.column("destination")[at],
            tag=self.column("tag")[at],
            size_bytes=self.size[at],
            group=tuple(names),
            members=self.members,
            n_ranks=len(self.traces),
            fail=lambda k, text: self.fail(int(at[k]), text),
        )
        self.peer[at], pairs = pair_messages(messages)
        self.match[at] = self.n_matches + pairs
        self.kind[at] = np.where(messages.sends, _SEND, _RECV)
        shared = set(self.names)  # with collectives; a pipeline shares no phase with them
        for k, name in zip(at.tolist(), names, strict=True):
            ends = (int(self.rank[k]), int(self.peer[k]))
            ranks = tuple(self.members.get(name, ends))
            for rank in ends:
                if rank not in ranks:
                    raise self.fail(k, f"rank {rank} is no member of group {name}")
            if not name or name in shared:
                ranks = (min(ends), max(ends))
                name = f"{name or 'pair'}.{ranks[0]}-{ranks[1]}"
            self.group[k] = self.number(name, ranks)

    def _group_of_message(self, operation: int) -> str:
        """Return the name of the group of a send or receive, nothing if it has none."""
        trace, node = self.place(operation)
        if trace.group[node] == MISSING:
            return ""
        name: str = trace.group_names[trace.group[node]]
        if name not in self.members:
            raise trace.fail(node, f"group {name}: its members are not known")
        return name

    def step(self) -> Step:
        """Put the step together."""
        talks = self.group >= 0
        size = np.where(talks, self.size, 0)
        duration = self._joined("duration_us", np.float64) * 1e-6
        if self.options.flops_per_s is not None:
            counted = self.column("operations").clip(min=0) / self.options.flops_per_s
            duration = np.where(duration > 0, duration, counted)
        kinds = self.column("kind")
        silent = talks | (kinds == COLLECTIVE)  # left out, or as long as its circuits need
        dep_start, dep = self.deps
        return Step(
            groups=tuple(self._groups()),
            rank=self.rank.astype(np.int32),
            kind=self.kind.astype(np.int8),
            group=self.group.astype(np.int32),
            size_bytes=size.astype(np.float64),
            duration_s=np.where(silent, 0.0, duration),
            peer=self.peer.astype(np.int32),
            match=self.match.astype(np.int32),
            dep_start=dep_start,
            dep=dep,
        )

    def _groups(self) -> list[Group]:
        messages = set(np.unique(self.group[self.peer != MISSING]).tolist())
        experts = set(np.unique(self.group[self.kind == _ALL_TO_ALL]).tolist())
        found = []
        for name, number in self.names.items():
            ranks = self.ranks[number]
            rail = self.options.rail(ranks)
            if rail is None:
                raise self.fail(
                    int(np.flatnonzero(self.group == number)[0]),
                    f"group {name}: its ranks are on several rails and several servers",
                )
            guess = "pp" if number in messages else "ep" if number in experts else "dp"
            guess = "tp" if guess == "dp" and rail < 0 else guess
            dimension = cast(Dimension, guess)
            found.append(Group(name, self.options.dimensions.get(name, dimension), ranks, rail))
        self._check_overlaps(found)
        return found

    def _check_overlaps(self, groups: list[Group]) -> None:
        """Refuse a rank in two different groups of one dimension: one of them is another one."""
        of: dict[tuple[str, int], int] = {}
        for number, group in enumerate(groups):
            for rank in group.ranks if group.dimension != "pp" else ():
                other = groups[of.setdefault((group.dimension, rank), number)]
                if set(other.ranks) != set(group.ranks):
                    raise self.fail(
                        int(np.flatnonzero(self.group == number)[0]),
                        f"rank {rank} is in the groups {other.name} and {group.name}, both"
                        f" {group.dimension}: tell the dimension of one of them",
                    )


def _order(trace: Trace) -> Integers:
    """Order nodes after what they wait for: as in the file, but where that is too early."""
    n = len(trace.node_id)
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
        raise trace.fail(next(k for k in range(n) if waits[k]), "waits for itself, in a circle")
    return np.array(order, dtype=np.int64)


def _dependencies(
    traces: Sequence[Trace], orders: Sequence[Integers], first: NDArray[np.int64]
) -> tuple[Integers, Integers]:
    """Put dependencies together, by operations."""
    counts, deps = [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for trace, order, start in zip(traces, orders, first[:-1], strict=True):
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        count = np.diff(trace.first_parent)[order]
        begin = np.repeat(trace.first_parent[:-1][order], count)
        within = np.arange(len(begin)) - np.repeat(np.cumsum(count) - count, count)
        deps.append(int(start) + place[trace.parents[begin + within]])
        counts.append(count)
    return np.cumsum(np.concatenate(counts)), np.concatenate(deps)
