"""Lower bounds of demands: by lines, counted anew, and by the proofs that come with solutions."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import IDLE, RTOL
from optmatch.problems import ConfigurationProof, CountProof, Demand, LineProof
from optmatch.verify.budgets import find_over_budget
from optmatch.verify.demands.held import MOST_CELLS, MOST_PORTS, HeldCircuits
from optmatch.verify.report import ProofError

LARGEST = 2**60
"""Sums of prices times ticks stay below this in int64."""

MOST_NUMBERS = 20
"""All sets of so many numbers are looked at."""

MOST_SUMS = 4000
"""So many sets with sum zero are put together."""


def bound_line(problem: Demand, line: NDArray[np.int64]) -> float:
    """Bound the objective by the demand of one port in one direction."""
    entries = np.sort(line[line > 0])[::-1]
    if problem.objective == "matchings" or not len(entries):
        return float(len(entries))
    planes, delay, share = problem.planes, problem.delay_ticks, problem.packet_share
    if share == 0:
        busy = int(np.maximum(entries, problem.min_slot_ticks).sum())
        busy += delay * max(planes, len(entries))
        return float(-(-busy // planes)) * problem.tick_s
    total = int(entries.sum())
    rest = total - np.concatenate([[0], np.cumsum(entries)])
    partners = np.arange(len(entries) + 1)
    needed = np.full(len(partners), math.inf)
    for used in range(planes + 1):  # planes on which this port has circuits at all
        circuits = (total + np.maximum(partners, used) * delay) / (used + share)
        needed = np.minimum(needed, circuits)
    return float(np.maximum(needed, rest / share).min()) * problem.tick_s


def bound_demand(problem: Demand) -> float:
    """Take the busiest line, or all ports together; of groups what they cost at least.

    Infinite where a demand needs a circuit that is over its link budget.
    """
    if (
        problem.packet_share == 0
        and (find_over_budget(problem.fabric) & _is_wanted(problem)).any()
    ):
        return math.inf
    if problem.objective == "weighted-completion-s":
        return bound_weighted(problem)
    ticks = _ticks(problem)
    lines = [bound_line(problem, line) for line in np.concatenate([ticks, ticks.T])]
    return max(_bound_together(problem), *lines)


def _is_wanted(problem: Demand) -> NDArray[np.bool_]:
    """Return ``is_wanted[source, destination]``: whether there is a demand."""
    return problem.directed_ticks > 0


def _bound_together(problem: Demand) -> float:
    """Take what one line sends and the delays of another; or divide what all pairs need.

    The sum is divided by how many of these pairs have circuits side by side.
    """
    if problem.packet_share > 0:
        return 0.0
    asked = problem.ticks > 0
    if not asked.any():
        return 0.0
    needs = np.where(asked, np.maximum(problem.ticks, problem.min_slot_ticks), 0)
    sent, met = ([*a.sum(axis=1).tolist(), *a.sum(axis=0).tolist()] for a in (needs, asked))
    busy, slots = max(sent), max(met)
    needed = busy
    if problem.fabric.bidirectional:  # each pair stands in four lines, each port in two
        side_by_side = np.count_nonzero(met) // 4
        pairs, ticks = sum(met) // 4, sum(sent) // 4
        busy, slots = (max(busy, -(-ticks // side_by_side)), max(slots, -(-pairs // side_by_side)))
        needed = -(-(ticks + pairs * problem.delay_ticks) // side_by_side)
    if problem.objective == "matchings":
        return float(slots)
    if problem.switching == "all-stop":
        needed = busy + slots * problem.delay_ticks
    return float(-(-needed // problem.planes)) * problem.tick_s


def check_proof(problem: Demand, proof: Any) -> float:
    """Return the bound that a proof shows, in the unit of the objective; or raise `ProofError`."""
    if problem.objective == "weighted-completion-s":
        raise ProofError("no proof is about groups")
    if isinstance(proof, LineProof):
        return bound_line(problem, _line(problem, proof.axis, proof.port))
    if isinstance(proof, ConfigurationProof):
        return _by_prices(problem, proof)
    if isinstance(proof, CountProof):
        return _by_counting(problem, proof)
    raise ProofError(f"a {type(proof).__name__}, which is no proof about a demand")


def _ticks(problem: Demand) -> NDArray[np.int64]:
    """Return the demand in ticks; packets of the two directions of a port are not one circuit."""
    return problem.directed_ticks if problem.packet_share > 0 else problem.ticks


def _line(problem: Demand, axis: str, port: int) -> NDArray[np.int64]:
    n_ports = problem.fabric.n_ports
    if port >= n_ports:
        raise ProofError(f"names port {port} of {n_ports}")
    ticks = _ticks(problem)
    line: NDArray[np.int64] = ticks[port] if axis == "source" else ticks[:, port]
    return line


def _by_prices(problem: Demand, proof: ConfigurationProof) -> float:
    """Check that no slot earns more than it takes, and add up what all demands earn."""
    if problem.objective != "completion-s" or problem.switching != "all-stop":
        raise ProofError("prices bound the completion time of slots that begin together")
    if problem.planes > 1 or problem.packet_share > 0:
        raise ProofError("prices bound what one plane carries alone")
    n_ports = problem.fabric.n_ports
    duals, units = proof.duals, proof.units
    if duals.shape != (n_ports, n_ports):
        raise ProofError(f"prices of shape {duals.shape} for {n_ports} ports")
    ticks, delay, shortest = problem.ticks, problem.delay_ticks, problem.min_slot_ticks
    largest = int(ticks.max()) + delay + shortest
    if max(int(duals.max()) * n_ports**2, units) * largest >= LARGEST:
        raise ProofError("prices times ticks overflow")
    held = _list_held(problem.fabric)
    # between these durations the worth of a matching is linear, so no other one fails first
    for duration in np.unique(np.maximum(ticks, shortest)).tolist():
        worth, most = duals * np.minimum(ticks, duration), units * (duration + delay)
        if weigh_heaviest(worth) > most and (held is None or held.earn_more(worth, most)):
            raise ProofError(f"a slot of {duration} ticks earns more than it takes")
    return float(-(-int((duals * ticks).sum()) // units)) * problem.tick_s


def _list_held(fabric: Fabric) -> HeldCircuits | None:
    """Return what a small mesh holds; None where more is counted as held: all matchings."""
    small = fabric.n_ports <= MOST_PORTS and fabric.n_cells <= MOST_CELLS
    if fabric.graph is None or not fabric.bidirectional or not small:
        return None
    return HeldCircuits(fabric, fabric.graph)


def _by_counting(problem: Demand, proof: CountProof) -> float:
    """Count the entries of a line; or of two, less the most groups in which their sums agree.

    Matchings join the entries of two lines: a component of v entries has v - 1 matchings or more.
    """
    if problem.objective != "matchings":
        raise ProofError("a count bounds the number of matchings, not the completion time")
    line = _line(problem, proof.axis, proof.port)
    entries = Counter(line[line > 0].tolist())
    if proof.against_axis is None or proof.against_port is None:
        return float(entries.total())
    other = _line(problem, proof.against_axis, proof.against_port)
    others = Counter(other[other > 0].tolist())
    equal = entries & others  # groups of two; exchanging entries makes them part of a best choice
    numbers = [*(entries - equal).elements(), *(-k for k in (others - equal).elements())]
    groups = equal.total() + count_groups(numbers)
    return float(entries.total() + others.total() - groups)


def count_groups(numbers: list[int]) -> int:
    """Count into how many groups of sum zero numbers can be put, of which no two are opposite.

    Of more than `MOST_NUMBERS` numbers an upper bound: a group has three, and both signs.
    """
    positive = sum(number > 0 for number in numbers)
    bound = min(positive, len(numbers) - positive, len(numbers) // 3)
    if len(numbers) > MOST_NUMBERS:
        return bound
    sums = np.zeros(1 << len(numbers), dtype=np.int64)
    for k, number in enumerate(numbers):
        sums[1 << k : 2 << k] = sums[: 1 << k] + number
    zeros = np.flatnonzero(sums == 0)[1:]
    if len(zeros) > MOST_SUMS:
        return bound
    lowest = zeros & -zeros

    @cache
    def split(rest: int) -> int:
        """Put a set with sum zero into groups: the first of them has its lowest number."""
        fitting = zeros[(lowest == rest & -rest) & (zeros & ~rest == 0)]
        return max((1 + split(rest ^ group) for group in fitting.tolist()), default=0)

    return split(len(sums) - 1)


def weigh_heaviest(weights: NDArray[np.int64]) -> int:
    """Find the weight of the heaviest matching, by shortest augmenting paths.

    Weights are integers >= 0, shape (n, n); O(n^3). Their sums are exact below 2^61.
    """
    n = len(weights)
    cost = -weights.astype(np.int64)
    u, v = np.zeros(n, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    row_of = np.full(n + 1, -1)  # column n is where each search begins
    far = np.iinfo(np.int64).max // 2
    for row in range(n):
        row_of[n] = row
        column = n
        slack, came_from = np.full(n, far), np.full(n, n)
        done = np.zeros(n + 1, dtype=bool)
        while row_of[column] >= 0:
            done[column] = True
            at = row_of[column]
            reached = cost[at] - u[at] - v[:n]
            shorter = reached < slack
            slack[shorter], came_from[shorter] = reached[shorter], column
            nearest = int(np.where(done[:n], far, slack).argmin())
            step = slack[nearest]
            u[row_of[done]] += step
            v[done] -= step
            slack -= step
            column = nearest
        while column != n:
            before = int(came_from[column])
            row_of[column] = row_of[before]
            column = before
    return int(weights[row_of[:n], np.arange(n)].sum())


EXACT = 12
"""The most groups of which all orders are compared, set by set."""


def end_groups(
    problem: Demand, matchings: NDArray[np.int32], ticks: NDArray[np.int64]
) -> list[float]:
    """Return when each group is complete, in ticks; infinite if something of it is left."""
    assert problem.groups is not None
    ends = [0.0] * (int(problem.groups.max()) + 1)
    left = problem.directed_ticks.copy()
    clock = 0
    for matching, length in zip(matchings.tolist(), ticks.tolist(), strict=True):
        clock += problem.delay_ticks
        for source, destination in enumerate(matching):
            if destination != IDLE and left[source, destination] > 0:
                needed = int(left[source, destination])
                left[source, destination] -= length
                if needed <= length:
                    group = int(problem.groups[source, destination])
                    ends[group] = max(ends[group], clock + needed)
        clock += length
    for source, destination in np.argwhere(left > 0):
        ends[int(problem.groups[source, destination])] = math.inf
    return ends


def weigh_ends(problem: Demand, ends: list[float]) -> float:
    """Add up what all groups cost, given their ends in ticks."""
    weights = problem.weights or (1.0,) * len(ends)
    due_s = problem.deadlines_s or (0.0,) * len(ends)
    return math.fsum(
        weight * max(0.0, end * problem.tick_s - due)
        for weight, end, due in zip(weights, ends, due_s, strict=True)
        if weight > 0
    )


def count_late(problem: Demand, ends: list[float]) -> int:
    """Count the groups that are complete after their deadlines, given their ends in ticks."""
    earliest_s = [end * problem.tick_s * (1 - RTOL) for end in ends]
    return sum(end > due for end, due in zip(earliest_s, problem.deadlines_s, strict=True))


def bound_weighted(problem: Demand) -> float:
    """Bound the cost by prices, and of the last `EXACT` groups by trying all orders.

    Groups are complete no sooner than all that one line has of them can be sent, after as many
    delays as another one has entries of them.
    """
    assert problem.groups is not None
    count, lines = int(problem.groups.max()) + 1, 2 * problem.fabric.n_ports
    sent, met = np.zeros((count, lines), dtype=np.int64), np.zeros((count, lines), dtype=np.int64)
    for source, destination in np.argwhere(problem.directed_ticks > 0).tolist():
        group = int(problem.groups[source, destination])
        for line in (source, problem.fabric.n_ports + destination):
            sent[group, line] += problem.directed_ticks[source, destination]
            met[group, line] += problem.delay_ticks
    due = [due_s / problem.tick_s for due_s in problem.deadlines_s] or [0.0] * count
    budgets, rest = list(problem.weights or (1.0,) * count), list(range(count))
    earned = 0.0
    while len(rest) > EXACT:
        sender = max(range(lines), key=lambda line: int(sent[rest, line].sum()))
        meeter = max(range(lines), key=lambda line: int(met[rest, line].sum()))
        times = {group: int(sent[group, sender] + met[group, meeter]) for group in rest}
        price, leaver = min(
            ((budgets[group] / time, group) for group, time in times.items() if time),
            default=(0.0, rest[0]),
        )
        # For groups one by one, the sum of time times end is at least half of the square of all
        # time and the squares of the times.
        squares = sum(times.values()) ** 2 + sum(time**2 for time in times.values())
        paid = price * (squares / 2 - math.fsum(times[group] * due[group] for group in rest))
        alone = int(sent[leaver].max() + met[leaver].max())
        alone_cost = budgets[leaver] * max(0.0, alone - due[leaver])
        if paid >= alone_cost:
            for group in rest:
                budgets[group] = max(0.0, budgets[group] - price * times[group])
        earned += max(paid, alone_cost)
        rest.remove(leaver)
    return (earned + _try_orders(sent[rest], met[rest], budgets, due, rest)) * problem.tick_s


def _try_orders(
    sent: NDArray[np.int64],
    met: NDArray[np.int64],
    budgets: list[float],
    due: list[float],
    groups: list[int],
) -> float:
    """Return the least cost of groups one after another, by sets of them and who is last."""
    costs, sent_of, met_of = [0.0], [np.zeros_like(sent.sum(0))], [np.zeros_like(met.sum(0))]
    for chosen in range(1, 1 << len(groups)):
        top = chosen.bit_length() - 1
        sent_of.append(sent_of[chosen - (1 << top)] + sent[top])
        met_of.append(met_of[chosen - (1 << top)] + met[top])
        end = int(sent_of[-1].max() + met_of[-1].max())
        costs.append(
            min(
                costs[chosen - (1 << k)] + budgets[group] * max(0.0, end - due[group])
                for k, group in enumerate(groups)
                if chosen >> k & 1
            )
        )
    return costs[-1]
