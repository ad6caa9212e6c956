"""The replay of all-to-alls in several rounds: everyone gets circuits to everyone else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.verify.rails.circuits import Rail
from optmatch.verify.rails.context import Context

_MOST_ROWS = 1_000_000
"""So many pairs of operations and states are looked at together."""


def check_exchanges(
    context: Context, rail: Rail, operations: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Check all-to-alls of more than two that are done in rounds; others go around a ring.

    Each pair needs a circuit for as long as its part needs; the operation lasts as many rounds as
    its ports need for all others, and a reconfiguration between each two, or as long as the rail
    is dark meanwhile; rounds share evenly what messages take longer than their bytes.

    Returns
    -------
    NDArray[np.int64]
        Those that are done in rounds: their circuits change, or there is a port for everyone.
    """
    step, plan, slack = context.step, context.plan, context.slack_s
    row, _, port = rail.list_ports(step.rank[operations], plan.ports[operations])
    start, end = plan.start_s[operations], plan.end_s[operations]
    others = context.group_size[step.group[operations]] - 1
    n_ports = np.bincount(row, minlength=len(operations))
    rounds = -(-others // np.maximum(n_ports, 1))
    part_s = context.work.sent_bytes[operations] / others / context.job.network.port_bytes_per_s
    part_s += others * context.job.network.latency_s / rounds
    dark = rail.dark_s(start, end)
    in_rounds = (rounds == 1) & (np.abs(end - start - dark - part_s) <= slack)
    first = rail.state_at(start + slack)[row]
    in_rounds[row[rail.until_s[first, port] < end[row] - slack]] = True
    if not in_rounds.any():
        return operations[:0]
    served = [np.empty(0, np.int64)]
    wide = step.n_ranks + 1
    for of, at, state in _list_states(context, rail, operations, row, port, in_rounds):
        since = np.maximum(start[of], rail.since_s[state, at] + rail.delay_s)
        until = np.minimum(end[of], rail.until_s[state, at])
        held = until - since - rail.dark_s(since, np.maximum(since, until))
        enough = held >= part_s[of] - slack
        reached, _ = rail.reached(state[enough], at[enough])
        served.append(of[enough] * wide + reached + 1)
    every = np.sort(np.concatenate(served))  # `np.unique` is slow on such keys
    of, rank = np.divmod(every[np.diff(every, prepend=-1) > 0], wide)
    rank -= 1
    groups = step.group[operations].astype(np.int64)
    members = [group * wide + k for group in np.unique(groups) for k in step.groups[group].ranks]
    counts = np.isin(groups[of] * wide + rank, members) & (rank != step.rank[operations[of]])
    count = np.bincount(of[counts], minlength=len(operations))
    rule = "in an all-to-all everyone sends to everyone else"
    context.refuse(rule, operations, in_rounds & (count != others), count, others)
    between = dark if len(rail.stops_s) else (rounds - 1) * rail.delay_s
    needed = rounds * part_s + between
    wrong = in_rounds & (np.abs(end - start - needed) > slack)
    rule = "an operation lasts as long as its bytes need on its ports"
    context.refuse(rule, operations, wrong, end - start, needed)
    changing: NDArray[np.int64] = operations[in_rounds]
    return changing


def _list_states(
    context: Context,
    rail: Rail,
    operations: NDArray[np.int64],
    row: NDArray[np.int64],
    port: NDArray[np.int64],
    chosen: NDArray[np.bool_],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """List the states that chosen operations see, some at a time: rows, their ports, states."""
    row, port = row[chosen[row]], port[chosen[row]]
    start, end = context.plan.start_s[operations[row]], context.plan.end_s[operations[row]]
    begins = rail.timeline.starts_s
    first = np.searchsorted(begins[1:], start - context.slack_s, side="right")
    many = np.searchsorted(begins, end + context.slack_s) - first
    for part in np.array_split(np.arange(len(row)), 1 + many.sum() // _MOST_ROWS):
        counts = many[part]
        skipped = np.cumsum(counts) - counts
        state = np.arange(counts.sum()) + np.repeat(first[part] - skipped, counts)
        yield np.repeat(row[part], counts), np.repeat(port[part], counts), state
