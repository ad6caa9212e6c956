"""All-reduces over a torus, in which ranks pass received data on, beside the sums they add up.

Ranks are places of a torus, whose sides are factors of n, each a ring over circuits of its own.

- Over a *scattered* side sums are scattered, and gathered again in the end.
- Over a *windowed* side of q places and m windows, m a divisor of q, sums are scattered over m
  neighbours each, then the sums of windows go round from root to root, m hops at a time, and in
  the end each root gathers its window: q + m - 2 rounds of one in m parts.
- Over a *passed* side each rank passes on what comes, and adds it up: one window, so q - 1 rounds,
  half as many as a scattered side takes, of more bytes.

Small buffers are only passed on. Sums, and what is passed on, have places of their own.
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
    windowed: tuple[int, int] = (1, 1)
    """Places and windows; (1, 1) if there is no such side."""
    passed: tuple[int, ...] = ()


def choose(problem: Collective) -> Sides:
    """Return the fastest torus for an all-reduce, by dynamic programming over the factors of n.

    The sides are chosen from the outside: scattered ones first, then one windowed side at most,
    then passed ones. The places that are left over and the parts into which the buffer is cut
    until then decide all that follows, hence the recursion over them.

    Parameters
    ----------
    problem
        The all-reduce.

    Returns
    -------
    Sides
        The sides, and the seconds that rounds and changes of circuits take by this count.
    """
    # A round of a buffer in c parts takes round_s + whole_s / c.
    n, delay_s = problem.n_ranks, problem.delay_s
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    whole_s = problem.size_bytes / (problem.rate_bytes_per_s * problem.lanes)

    def list_factors(places: int) -> list[int]:
        most = 2 if problem.two_way else places  # two-way circuits of one port make no rings
        return [side for side in range(2, most + 1) if places % side == 0]

    @cache
    def choose_passed(places: int, chunks: int) -> Sides:
        """Return the fastest passed sides for so many places, with parts of one in `chunks`."""
        if places == 1:
            return Sides(0.0)
        options = []
        for side in list_factors(places):
            inner = choose_passed(places // side, chunks)
            seconds = inner.seconds + delay_s + (side - 1) * (round_s + whole_s / chunks)
            options.append(Sides(seconds, passed=(side, *inner.passed)))
        return min(options)

    @cache
    def choose_all(places: int) -> Sides:
        """Return the fastest sides for the places that the sides scattered before leave over."""
        chunks = n // places
        if places == 1:
            return Sides(-delay_s)  # the last circuits serve both halves
        options = [choose_passed(places, chunks)]
        for side in list_factors(places):
            inner = choose_all(places // side)
            turns_s = (side - 1) * (round_s + whole_s / (chunks * side))
            seconds = inner.seconds + 2 * (delay_s + turns_s)
            options.append(inner._replace(seconds=seconds, scattered=(side, *inner.scattered)))
            for windows in range(2, side):
                if side % windows:
                    continue
                inner = choose_passed(places // side, chunks * windows)
                # The circuits come back for the gather, unless no passed sides are in between.
                changes_s = (1 if places == side else 2) * delay_s
                turns_s = (side + windows - 2) * (round_s + whole_s / (chunks * windows))
                seconds = inner.seconds + changes_s + turns_s
                options.append(inner._replace(seconds=seconds, windowed=(side, windows)))
        return min(options)

    chosen = choose_all(n)
    return chosen._replace(seconds=chosen.seconds - delay_s)  # the first circuits are there


class _TorusRounds:
    """The sends of an all-reduce over a torus, round by round."""

    def __init__(self, n: int, chunk_count: int) -> None:
        self.ranks = np.arange(n)
        self.chunks = np.arange(chunk_count)
        self.rows: list[NDArray[np.int64]] = []

    def add_round(
        self,
        step: int,
        side: int,
        chosen: NDArray[np.bool_],
        kind: int,
        places: tuple[int, int] = (SUM, SUM),
    ) -> None:
        """Append a round in which each rank sends its chosen chunks one place on around its ring.

        Parameters
        ----------
        step, side
            Neighbours on the ring are `step` ranks apart, and it has `side` places.
        chosen
            ``chosen[rank, chunk]``.
        kind
            Copy, reduce or keep.
        places
            From and into which place of the chunk the data go.
        """
        last = self.ranks // step % side == side - 1
        successor = np.where(last, self.ranks - (side - 1) * step, self.ranks + step)
        rank, chunk = np.nonzero(chosen)
        told = np.tile((kind, *places), (len(rank), 1))
        turn = np.full(len(rank), len(self.rows))
        self.rows.append(np.column_stack([turn, rank, successor[rank], chunk, told]))

    def holds(self, step: int, width: int, window: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return ``[rank, chunk]``: the chunk is one of the rank, and of this window of a side.

        The sides before leave a rank the chunks that are equal to it modulo `step`; the digit of
        a chunk above that, modulo `width`, is its window.
        """
        mine = self.ranks[:, None] % step == self.chunks % step
        chosen: NDArray[np.bool_] = mine & (window[:, None] == self.chunks // step % width)
        return chosen

    def scatter(self, step: int, side: int, windows: int) -> None:
        """Add the rounds after which each place has the sum of a window, over `windows` places."""
        for turn in range(windows - 1):
            window = (self.ranks // step - 1 - turn) % side % windows
            self.add_round(step, side, self.holds(step, windows, window), REDUCE)

    def gather(self, step: int, side: int, windows: int) -> None:
        """Add the rounds in which whole sums are copied on, to `windows` places."""
        for turn in range(windows - 1):
            window = (self.ranks // step - turn) % side % windows
            self.add_round(step, side, self.holds(step, windows, window), COPY)

    def pass_on(self, step: int, side: int, windows: int) -> None:
        """Add the rounds in which sums of windows go round, from each root to the next.

        A root adds what comes to its sum, and keeps it beside the sum to send it on; on its last
        trip it is only added.
        """
        trips = side // windows - 1
        for trip in range(trips):
            for hop in range(windows):
                window = (self.ranks // step - hop) % side % windows
                origin = SUM if trip == 0 and hop == 0 else PASSED
                kind, target = COPY, PASSED
                if hop == windows - 1:
                    kind = KEEP
                    if trip == trips - 1:
                        kind, target = REDUCE, SUM
                chosen = self.holds(step, windows, window)
                self.add_round(step, side, chosen, kind, (origin, target))


def list_rounds(n: int, sides: Sides) -> Rounds:
    """List the rounds of an all-reduce of n ranks over a torus.

    Parameters
    ----------
    n
        The number of ranks, the product of all sides.
    sides
        The sides of the torus, by the way in which data travel over them; see the module.

    Returns
    -------
    Rounds
        The sends, and the places of chunks from which and into which they go.
    """
    side, windows = sides.windowed
    count = int(np.prod(sides.scattered, dtype=np.int64)) * windows
    rounds = _TorusRounds(n, count)
    scattered: list[tuple[int, int]] = []
    step = 1
    for scattered_side in sides.scattered:
        scattered.append((step, scattered_side))
        rounds.scatter(step, scattered_side, scattered_side)
        step *= scattered_side
    windowed_step = step
    rounds.scatter(step, side, windows)
    rounds.pass_on(step, side, windows)
    step *= side

    # Passed sides: each rank sends on the whole part that all its ring has, one window of it.
    for passed_side in sides.passed:
        held = rounds.ranks % windowed_step + windowed_step * (
            rounds.ranks // windowed_step % side % windows
        )
        _pass_whole(rounds, step, passed_side, held)
        step *= passed_side
    rounds.gather(windowed_step, side, windows)
    for low, scattered_side in reversed(scattered):
        rounds.gather(low, scattered_side, scattered_side)
    sends = np.concatenate(rounds.rows)
    return Rounds(sends[:, :5], count, places=sends[:, 5:])


def _pass_whole(
    rounds: _TorusRounds, step: int, side: int, chunk_of_rank: NDArray[np.int64]
) -> None:
    """Add the rounds in which the one chunk that a rank is the root of goes round its ring."""
    chosen = chunk_of_rank[:, None] == rounds.chunks
    for turn in range(side - 1):
        origin = SUM if turn == 0 else PASSED
        if turn == side - 2:
            rounds.add_round(step, side, chosen, REDUCE, (origin, SUM))
        else:
            rounds.add_round(step, side, chosen, KEEP, (origin, PASSED))


def sum_up(gathered: Laid) -> Laid:
    """Make an all-reduce of an all-gather of whole buffers: each rank adds up what it hears.

    Parameters
    ----------
    gathered
        An all-gather in which the block of each rank is its whole buffer, in pieces: chunk
        ``rank * pieces + piece``.

    Returns
    -------
    Laid
        The same sends over the same circuits. Chunks are the pieces of one buffer; a rank keeps
        the buffers of different ranks at different places, and adds each to its sum once.
    """
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
    """Make an all-reduce of a reduce-scatter and the all-gather that follows it.

    Parameters
    ----------
    problem
        The all-reduce.
    first, second
        The two plans. Both have the same number of chunks; either both have shares of planes, or
        none has.

    Returns
    -------
    Laid
        Rounds of the second plan come after all those of the first one. Circuits that stay the
        same in between are not set up again.
    """
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
        links=np.concatenate([first.links, links]).astype(np.int64),
    )
