"""The replay of all-to-alls in several rounds: everyone gets circuits to everyone else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.verify.rails.circuits import Rail
from optmatch.verify.rails.context import Context
from optmatch.verify.rails.work import measure_work


def check_exchanges(
    context: Context, rail: Rail, operations: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Check all-to-alls of more than two that are done in rounds; others go around a ring.

    Each pair needs a circuit for as long as its part needs; the operation lasts as many rounds as
    its ports need for all others, and a reconfiguration between each two, or as long as the rail
    is dark meanwhile; rounds share evenly what messages take longer than their bytes. Returns the
    operations that are done in rounds: their circuits change, or there is a port for everyone.
    """
    step, plan, slack = context.step, context.plan, context.slack_s
    row, _, port = rail.list_ports(step.rank[operations], plan.ports[operations])
    start, end = plan.start_s[operations], plan.end_s[operations]
    others = context.group_size[step.group[operations]] - 1
    n_ports = np.bincount(row, minlength=len(operations))
    rounds = -(-others // np.maximum(n_ports, 1))
    sent = measure_work(context.job, operations).sent_bytes
    part_s = sent / others / context.job.network.port_bytes_per_s
    part_s += others * context.job.network.latency_s / rounds
    dark = rail.dark_s(start, end)
    in_rounds = (rounds == 1) & (np.abs(end - start - dark - part_s) <= slack)
    spell = rail.spell_at(start[row] + slack, port)
    in_rounds[row[rail.until_s[spell] < end[row] - slack]] = True
    if not in_rounds.any():
        return operations[:0]
    served = [np.empty(0, np.int64)]
    wide = step.n_ranks + 1
    here = in_rounds[row]
    of, spell = row[here], rail.spell_at(start[row[here]] - slack, port[here])
    while len(of):  # from spell to spell, all at once
        since = np.maximum(start[of], rail.since_s[spell] + rail.delay_s)
        until = np.minimum(end[of], rail.until_s[spell])
        held = until - since - rail.dark_s(since, np.maximum(since, until))
        enough = held >= part_s[of] - slack
        served.append(of[enough] * wide + rail.reached(spell[enough])[0] + 1)
        more = rail.until_s[spell] < end[of] + slack
        of, spell = of[more], spell[more] + 1
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
