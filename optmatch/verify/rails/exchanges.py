"""The replay of collectives in several rounds: rings, pairs, and everyone with everyone else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.verify.rails.circuits import Rail
from optmatch.verify.rails.context import Context, Transfers, list_in_rounds
from optmatch.verify.rails.work import measure_work


def check_in_rounds(context: Context, rail: Rail, riding: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replay the collectives of a rail that are done in rounds, of the operations that ride it.

    A round begins when the last one has ended and the circuits of all who send are up, and lasts
    as long as its bytes need; the collective ends with its last round. If the rail stops at that
    moment, it may end before the stop or after it. Returns the operations that were replayed.
    """
    found = [np.empty(0, dtype=np.int64)]
    for own, n, transfers in list_in_rounds(context.job, riding):
        _replay(context, rail, own, n, transfers)
        found.append(own)
    return np.concatenate(found)


def _replay(
    context: Context, rail: Rail, own: NDArray[np.int64], n: int, transfers: list[Transfers]
) -> None:
    step, plan, slack = context.step, context.plan, context.slack_s
    _, heads, of = np.unique(step.match[own], return_index=True, return_inverse=True)
    members = np.array([step.groups[group].ranks for group in step.group[own[heads]].tolist()])
    row, _, ports = rail.list_ports(step.rank[own], plan.ports[own])
    n_ports = np.bincount(row, minlength=len(own))[row]
    operation, call_of = own[row], of.reshape(-1)[row]
    seats = (np.arange(len(members))[:, None] * step.n_ranks + members).reshape(-1)
    in_order = np.argsort(seats)
    seat = np.searchsorted(seats[in_order], call_of * step.n_ranks + step.rank[operation])
    place = in_order[seat] % n
    cursor = plan.start_s[own[heads]].copy()
    late = cursor
    spell = rail.spell_at(plan.start_s[operation], ports)
    lost = np.zeros(len(row), dtype=bool)
    for each in transfers:
        target = np.full(n, -1)
        target[[sender for sender, _, _ in each]] = [receiver for _, receiver, _ in each]
        _, _, share = each[0]
        sends = np.flatnonzero(target[place] >= 0)
        call = call_of[sends]
        wanted = members[call, target[place[sends]]]
        rate = n_ports[sends] * context.job.network.port_bytes_per_s
        lasts = share * step.size_bytes[operation[sends]] / rate + context.job.network.latency_s
        at = spell[sends] = _seek(rail, spell[sends], wanted, cursor[call] + lasts - slack)
        missing = rail.reached(at)[0] != wanted
        since = rail.since_s[at] + rail.delay_s
        np.maximum.at(cursor, call, np.where(missing, -np.inf, since))
        length = np.zeros(len(cursor))
        np.maximum.at(length, call, lasts)
        late = _advance(rail, cursor, length, -slack)
        cursor = _advance(rail, cursor, length, slack)
        missing |= rail.until_s[at] < cursor[call] - slack
        lost[sends[missing]] = True
    rule = "in each round of a collective its circuits are there"
    context.refuse(rule, operation, lost, plan.start_s[operation], np.nan)
    ends, after = cursor[call_of], plan.end_s[operation]
    stops = np.clip(after - ends, 0.0, late[call_of] - ends)
    stops = np.rint(stops / (rail.delay_s or 1.0)) * rail.delay_s
    wrong = (np.abs(after - ends - stops) > slack) & ~np.isin(call_of, call_of[lost])
    rule = "a collective ends with the last of its rounds"
    context.refuse(rule, operation, wrong, after, ends)


def _seek(
    rail: Rail,
    spell: NDArray[np.int64],
    wanted: NDArray[np.int64],
    least_s: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Find the first spell of a port, from one on, that leads to a rank and lasts so long.

    Returns the last spell of the port, if there is none.
    """
    spell, going = spell.copy(), np.arange(len(spell))
    while len(going):
        here = spell[going]
        until = rail.until_s[here]
        fits = (rail.reached(here)[0] == wanted[going]) & (until >= least_s[going])
        going = going[~fits & (until < np.inf)]
        spell[going] += 1
    return spell


def _advance(
    rail: Rail, begin: NDArray[np.float64], lasts: NDArray[np.float64], slack: float
) -> NDArray[np.float64]:
    """Return when an operation that begins then ends, if the rail may be dark meanwhile."""
    stops, delay = rail.stops_s, rail.delay_s
    if not len(stops):
        return begin + lasts
    number = np.searchsorted(stops, begin, side="right")
    inside = np.minimum(begin - stops[np.maximum(number - 1, 0)], delay)
    dark = np.where(number > 0, (number - 1) * delay + inside, 0.0)
    light = begin - dark + lasts  # how long the rail is up before the end
    before = np.searchsorted(stops - np.arange(len(stops)) * delay, light - slack, side="left")
    return np.maximum(begin, light + before * delay)


def check_exchanges(
    context: Context, rail: Rail, operations: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Check all-to-alls of more than two that are done in rounds; others go around a ring.

    Each pair needs a circuit for as long as its part needs; the operation lasts as many rounds as
    its ports need for all others, and a reconfiguration between each two, or as long as the rail
    is dark meanwhile; the latency of messages is spread evenly over the rounds.

    Returns the operations that are done in rounds, since circuits change or there is a port for
    everyone; and apart from them those in stages (`check_stages`): they have fewer circuits than
    there are others, or all ports of each to one rank.
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
    reached, _ = rail.reached(spell)
    most, least = np.full(len(operations), -1), np.full(len(operations), step.n_ranks)
    np.maximum.at(most, row, reached)
    np.minimum.at(least, row, reached)
    in_rounds &= most != least  # all ports to one rank are a ring
    in_rounds[row[rail.until_s[spell] < end[row] - slack]] = True
    if not in_rounds.any():
        return operations[:0], operations[:0]
    circuits = np.zeros(len(operations), np.int64)
    np.maximum.at(circuits, row, 1 + rail.spell_at(end[row] - slack, port) - spell)
    staged = in_rounds & np.where(n_ports > 1, most == least, circuits < others)
    in_rounds &= ~staged
    served: list[NDArray[np.int64]] = []
    wide = step.n_ranks + 1
    here = in_rounds[row]
    of, spell = row[here], spell[here]
    while len(of):  # all ports go on from spell to spell at once
        since = np.maximum(start[of], rail.since_s[spell] + rail.delay_s)
        until = np.minimum(end[of], rail.until_s[spell])
        held = until - since - rail.dark_s(since, np.maximum(since, until))
        enough = held >= part_s[of] - slack
        served.append(of[enough] * wide + rail.reached(spell[enough])[0] + 1)
        more = rail.until_s[spell] < end[of]
        of, spell = of[more], spell[more] + 1
    every = np.sort(np.concatenate([*served, of]))  # `np.unique` is slow on such keys
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
    return operations[in_rounds], operations[staged]


def check_stages(context: Context, rail: Rail, operations: NDArray[np.int64]) -> None:
    """Check all-to-alls in stages.

    In a stage the circuit of each member leads the same number of places further on in its group,
    over all ports, and a part may go several hops. Each part takes a way of fewest hops. A stage
    lasts as long as what a circuit carries, each hop with the latency of a message; then comes a
    reconfiguration.
    """
    step, plan, slack = context.step, context.plan, context.slack_s
    row, _, port = rail.list_ports(step.rank[operations], plan.ports[operations])
    if not len(row):
        return
    wide, group = step.n_ranks + 1, step.group[operations[row]].astype(np.int64)
    named = np.unique(group).tolist()
    keys = np.concatenate([k * wide + np.array(step.groups[k].ranks) for k in named])
    places = np.concatenate([np.arange(len(step.groups[k].ranks)) for k in named])
    order = np.argsort(keys)

    def place(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted = group * wide + ranks
        at = order[np.searchsorted(keys[order][:-1], wanted)]
        return np.where(keys[at] == wanted, places[at], -1)

    n = context.group_size[group]
    start, end = plan.start_s[operations[row]], plan.end_s[operations[row]]
    spell, last = rail.spell_at(start + slack, port), rail.spell_at(end - slack, port)
    strides = np.zeros((len(row), 1 + int((last - spell).max())), np.int64)
    own = place(step.rank[operations[row]].astype(np.int64))
    for k in range(strides.shape[1]):
        to = place(rail.reached(np.minimum(spell + k, last))[0])
        strides[:, k] = np.where(spell + k > last, 0, np.where(to < 0, -1, (to - own) % n))
    _, lead, of = np.unique(step.match[operations[row]], return_index=True, return_inverse=True)
    wrong = (strides != strides[lead][of.reshape(-1)]).any(axis=1)
    ways, which = np.unique(np.column_stack([n, strides]), axis=0, return_inverse=True)
    hops = np.array([count_hops(int(way[0]), way[1:]) for way in ways])[which.reshape(-1)]
    wrong |= hops[:, 0] < 0

    work = measure_work(context.job, operations)
    rate = np.bincount(row)[row] * context.job.network.port_bytes_per_s
    part_s = (work.sent_bytes[row] / rate + work.latency_s[row]) / (n - 1)
    at_s = start - rail.delay_s
    for k in range(strides.shape[1]):
        here = np.minimum(spell + k, last)
        begin_s = at_s + rail.delay_s
        done_s = begin_s + hops[:, k] * part_s
        held = rail.since_s[here] + rail.delay_s <= begin_s + slack
        held &= rail.until_s[here] >= done_s - slack
        wrong |= (spell + k <= last) & ~held
        at_s = np.where(spell + k <= last, done_s, at_s)
    rule = "in an all-to-all everyone sends to everyone else"
    context.refuse(rule, operations[row], wrong, strides[:, 0], np.nan)
    late = ~wrong & (np.abs(end - at_s) > slack)
    rule = "an operation lasts as long as its bytes need on its ports"
    context.refuse(rule, operations[row], late, end - start, at_s - start)


def count_hops(n: int, strides: NDArray[np.int64]) -> list[int]:
    """Count the parts that a circuit carries in each stage; all -1 if some get nowhere.

    Of the ways with fewest hops a part takes the one with fewest in the last stage, then in the
    stage before, and so on.
    """
    fewest: list[dict[int, int]] = [{0: 0}]
    for stride in strides.tolist():
        best: dict[int, int] = {}
        for distance, hops in fewest[-1].items():
            for more in range(n):
                to, total = (distance + more * stride) % n, hops + more
                best[to] = min(best.get(to, total), total)
        fewest.append(best)
    counts = [0] * len(strides)
    if (strides < 0).any() or len(fewest[-1]) < n:
        return [-1] * len(strides)
    for distance in range(n):
        at = distance
        for k in reversed(range(len(strides))):
            total = fewest[k + 1][at]
            more = next(
                j for j in range(n) if fewest[k].get((at - j * int(strides[k])) % n) == total - j
            )
            counts[k] += more
            at = (at - more * int(strides[k])) % n
    return counts
