"""All-reduces in which ranks pass received data on, beside the sum that they are added to.

Ranks are places of a torus, whose sides are factors of n. A side of q places takes q - 1 rounds
around rings. Over the first sides sums are scattered, and gathered again in the end; over the
others each rank passes on what comes, and adds it up: half as many rounds, of more bytes. So small
buffers are only passed on. Sums, and what is passed on, have places of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import COPY, KEEP, OWN, REDUCE, SUM
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.rounds import Rounds

PASSED = 2
"""The place of data that are passed on."""


class Sides(NamedTuple):
    """Sides of a torus, in the order in which they are gone through."""

    seconds: float
    scattered: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


def choose(problem: Collective) -> Sides:
    """Return the fastest sides, by dynamic programming over the factors of n."""
    n, delay_s = problem.n_ranks, problem.delay_s
    each_s = problem.alpha_s + (problem.hop_s or 0.0)
    whole_s = problem.size_bytes / (problem.rate_bytes_per_s * problem.lanes)

    def factors(left: int) -> list[int]:
        most = 2 if problem.two_way else left
        return [q for q in range(2, most + 1) if left % q == 0]

    @cache
    def passing(left: int, chunks: int) -> Sides:
        if left == 1:
            return Sides(0.0)
        ways = [Sides(float("inf"))]
        for q in factors(left):
            seconds, _, passed = passing(left // q, chunks)
            seconds += delay_s + (q - 1) * (each_s + whole_s / chunks)
            ways.append(Sides(seconds, (), (q, *passed)))
        return min(ways)

    @cache
    def scattering(left: int) -> Sides:
        chunks = n // left
        if left == 1:
            return Sides(-delay_s)  # the last circuits serve both halves
        ways = [passing(left, chunks)]
        for q in factors(left):
            seconds, scattered, passed = scattering(left // q)
            seconds += 2 * (delay_s + (q - 1) * (each_s + whole_s / (chunks * q)))
            ways.append(Sides(seconds, (q, *scattered), passed))
        return min(ways)

    found = scattering(n)
    return found._replace(seconds=found.seconds - delay_s)  # the first circuits are there


def list_rounds(n: int, sides: Sides) -> Rounds:
    """List the rounds of an all-reduce of n ranks over a torus."""
    ranks = np.arange(n)
    count = int(np.prod(sides.scattered, dtype=np.int64))
    chunks = np.arange(count)
    rows: list[NDArray[np.int64]] = []

    def add(step: int, side: int, chosen: NDArray[np.bool_], *told: int) -> None:
        """Append a round in which each rank sends chosen chunks onward around its ring."""
        last = ranks // step % side == side - 1
        onward = np.where(last, ranks - (side - 1) * step, ranks + step)
        at, chunk = np.nonzero(chosen)
        said = np.tile(told, (len(at), 1))
        turn = np.full(len(at), len(rows))
        rows.append(np.column_stack([turn, at, onward[at], chunk, said]))

    step, levels = 1, []
    for side in sides.scattered:
        levels.append((step, side))
        step *= side
    for low, side in levels:
        for turn in range(side - 1):
            which = (ranks // low - 1 - turn) % side
            mine = ranks[:, None] % low == chunks % low
            add(low, side, mine & (which[:, None] == chunks // low % side), REDUCE, SUM, SUM)
    for side in sides.passed:
        for turn in range(side - 1):
            kind = (REDUCE, SUM) if turn == side - 2 else (KEEP, PASSED)
            add(
                step, side, ranks[:, None] % count == chunks, kind[0], PASSED * (turn > 0), kind[1]
            )
        step *= side
    for low, side in levels[::-1]:
        for turn in range(side - 1):
            which = (ranks // low - turn) % side
            mine = ranks[:, None] % low == chunks % low
            add(low, side, mine & (which[:, None] == chunks // low % side), COPY, SUM, SUM)
    sends = np.concatenate(rows)
    return Rounds(sends[:, :5], count, places=sends[:, 5:])


def sum_up(gathered: Laid) -> Laid:
    """Make an all-reduce of an all-gather of whole buffers: each rank adds up what it hears."""
    plan = gathered.plan
    n = plan.circuits.shape[2]
    pieces = len(plan.chunk_bytes) // n
    source, target, chunk = plan.sends[:, 1:4].astype(np.int64).T
    whose, piece = np.divmod(chunk, pieces)
    _, first = np.unique(target * len(plan.chunk_bytes) + chunk, return_index=True)
    sends = plan.sends.copy()
    sends[:, 3], sends[:, 4] = piece, COPY
    sends[first, 4] = KEEP  # data that come again are not added again
    sends[whose == target, 4] = COPY
    places = np.column_stack([OWN + (whose - rank) % n for rank in (source, target)])
    summed = replace(plan, sends=sends, places=places, chunk_bytes=plan.chunk_bytes[:pieces])
    return Laid(summed, gathered.held_s)


def last_circuits(laid: Laid, planes: int) -> Any:
    """``circuits[lane, rank]`` that are there when a plan ends."""
    plan = laid.plan
    if laid.held_s is not None:
        return plan.circuits[-1]
    lanes = plan.circuits.reshape(len(plan.circuits), planes, -1, plan.circuits.shape[2])
    last = np.full(lanes.shape[1:], IDLE, dtype=np.int32)
    for turn, plane in np.argwhere(plan.shares_bytes > 0).tolist():
        last[plane] = lanes[turn, plane]
    return last.reshape(-1, lanes.shape[3])


def join(problem: Collective, first: CollectivePlan, second: CollectivePlan) -> Laid:
    """Let an all-gather follow a reduce-scatter; both have as many chunks, and shares or none."""
    later = second.sends.astype(np.int64)
    later[:, 0] += first.n_rounds
    sends = np.concatenate([first.sends.astype(np.int64), later])
    circuits = np.concatenate([first.circuits, second.circuits]).astype(np.int64)
    if first.shares_bytes.size:
        used = second.shares_bytes > 0
        more: dict[str, Any] = {
            "circuits": circuits,
            "epoch_of_round": np.arange(len(circuits)),
            "shares_bytes": np.concatenate([first.shares_bytes, second.shares_bytes]),
            "time_s": first.time_s + second.time_s,
            "n_rounds_late": first.n_rounds_late + second.n_rounds * bool(problem.late_s),
        }
        for name in ("start_s", "end_s"):
            then_s = getattr(second, name) + first.time_s * used
            more[name] = np.concatenate([getattr(first, name), then_s])
        return Laid(replace(first, sends=sends, **more))
    same = bool((first.circuits[-1] == second.circuits[0]).all())
    kept = np.arange(len(circuits)) != (first.n_epochs if same else -1)
    links = second.links.astype(np.int64)
    links[:, 0] += len(first.sends)
    return assemble(
        problem,
        sends,
        len(first.chunk_bytes),
        circuits[kept],
        np.append(first.epoch_of_round, second.epoch_of_round + first.n_epochs - same).astype(int),
        np.concatenate([first.links, links]).astype(np.int64),
    )
