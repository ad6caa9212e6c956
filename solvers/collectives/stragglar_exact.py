"""All-reduce around a late rank, exactly: a model of who faces whom and what they have."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import Clock, OnEvent
from optmatch.problems.collectives.bounds import fewest_late_rounds
from optmatch.solvers.collectives.stragglar import (
    COPY,
    REDUCE,
    Sends,
    schedule,
)
from optmatch.solvers.cpsat import Literal, Outcome, minimise


def solve_exact(n: int, clock: Clock, on_event: OnEvent, seed: int = 0) -> tuple[Sends, int]:
    """Return sends of as few rounds as can be found, and a bound of the rounds.

    Parameters
    ----------
    n
        Number of ranks, the late one too.
    clock
        Its time limits CP-SAT, which runs only where `schedule` misses the bound.
    on_event
        Called with the progress of CP-SAT.
    seed
        Of `schedule` and of CP-SAT.

    Returns
    -------
    Sends
        As of `schedule`.
    int
        No schedule has fewer rounds; equal to theirs if they are proved to be the fewest.

    Examples
    --------
    >>> from optmatch.model import Limits
    >>> sends, bound = solve_exact(12, Limits().start(), lambda event: None)
    >>> int(sends[-1, 0]) + 1, bound
    (14, 14)
    """
    best, bound = schedule(n, seed), fewest_late_rounds(n)
    while bound <= best[-1, 0] and clock.exceeded(0) is None:
        found, refuted = fit_rounds(n, bound, clock, on_event, seed)
        if found is not None:
            return found, bound
        if not refuted:
            break
        bound += 1
    return best, bound


def fit_rounds(
    n: int, n_rounds: int, clock: Clock, on_event: OnEvent, seed: int = 0
) -> tuple[Sends | None, bool]:
    """Return sends of so many rounds in which the late rank meets rank t in round t, or None.

    Parameters
    ----------
    n, clock, on_event, seed
        As for `solve_exact`.
    n_rounds
        How many rounds.

    Returns
    -------
    Sends or None
        None if there are none, or a limit was reached.
    bool
        Whether no schedule at all has so few rounds. With n + ceil(log2 n) - 2 the late rank has
        to meet a new one in each of the first, and ranks are named by that; with more it could
        also wait, so there a model without solution proves nothing.
    """
    least = n + (n - 1).bit_length() - 2
    if n_rounds < least:
        return None, True
    model = _Model(n, n_rounds)
    outcome = minimise(model.model, clock, on_event, seed=seed, linear=False)
    if outcome.found:
        return model.sends(outcome), False
    return None, outcome.infeasible and n_rounds == least


class _Model:
    """Schedules of so many rounds, in which the late rank meets rank t in round t."""

    def __init__(self, n: int, n_rounds: int) -> None:
        self.n, self.n_rounds = n, n_rounds
        self.model = model = cp_model.CpModel()
        late = n - 1
        new = model.new_bool_var
        # has[t][rank][chunk], at the start of round t.
        self.has: list[list[list[Literal]]] = [
            [[self._had(t, r, c) for c in range(late)] for r in range(n)]
            for t in range(n_rounds + 1)
        ]
        self.faces: list[dict[tuple[int, int], Literal]] = []
        for t in range(n_rounds):
            busy = {t, late} if t < late else set()
            pairs = {(a, b): new("") for b in range(n) for a in range(b) if not {a, b} & busy}
            self.faces.append(pairs)
            before, after = self.has[t], self.has[t + 1]
            for r in sorted(set(range(n)) - busy):
                mine = [pair for ends, pair in pairs.items() if r in ends]
                model.add_at_most_one(mine)
                gets = []
                for c in range(late):
                    if t <= c or r in (c, late):  # it cannot have it yet, or has it by an exchange
                        continue
                    model.add_implication(before[r][c], after[r][c])
                    got = new("")
                    model.add_bool_or(before[r][c], got).only_enforce_if(after[r][c])
                    gets.append(got)
                    for (a, b), pair in pairs.items():
                        if r in (a, b):
                            model.add_bool_or(~got, ~pair, before[a + b - r][c])
                    model.add_bool_or(~got, *mine)
                model.add_at_most_one(gets)
            for c in range(t) if busy else ():
                model.add(before[t][c] == after[t][c])

    def _had(self, t: int, rank: int, chunk: int) -> Literal:
        if t <= chunk:
            return 0
        if rank in (chunk, self.n - 1) or t == self.n_rounds:
            return 1
        return 0 if t == chunk + 1 else self.model.new_bool_var("")

    def sends(self, outcome: Outcome) -> Sends:
        """Return what is sent in the solution."""
        rows = []
        for t in range(self.n_rounds):
            if t < self.n - 1:
                rows += [(t, t, self.n - 1, t, REDUCE), (t, self.n - 1, t, t, REDUCE)]
            for ends, pair in self.faces[t].items():
                for a, b in (ends, ends[::-1]) if outcome.holds(pair) else ():
                    for c in range(self.n - 1):
                        had, has = (outcome.holds(self.has[k][b][c]) for k in (t, t + 1))
                        if has and not had:
                            rows.append((t, a, b, c, COPY))
        return np.array(rows, dtype=np.int32)
