"""Writes the file that `optmatch.solvers.collectives.stragglar` reads.

``python -m tests.helpers.late_ranks`` takes two minutes.
"""

import json
from typing import Any

from ortools.sat.python import cp_model

from optmatch.model import SolverError
from optmatch.problems.collectives.bounds import fewest_late_rounds
from optmatch.solvers.collectives.stragglar import (
    STORED,
    list_late_sends,
    new_search,
    searches,
    stored,
)

BY_MODEL = (3, 5, 9, 11)
"""Numbers of ranks for which plans take a round more than the bound."""
BY_SEARCH, SEEDS = range(33, 64), 5
MANY = 300
"""Rounds that the first searches plan in vain: from so many on, the search that ends is stored."""


def find_search(n: int) -> tuple[int, int] | None:
    """Return the number of doubles and the seed that plan the fewest rounds; None if few do."""
    spent, found = 0, list[tuple[int, int, int]]()
    for n_doubles, seed in searches(n, SEEDS):
        search = new_search(n, n_doubles, seed)
        if search.surplus == 0:
            return None
        if search.plan() is not None:
            if not found and spent + len(search.failed) < MANY:
                return None
            found.append((len(search.failed), n_doubles, seed))
        spent += len(search.failed)
    for _, n_doubles, seed in sorted(found):
        if (n_doubles, seed) == searches(n, 1)[0]:
            return None
        stored()["searches"][str(n)] = n_doubles, seed
        try:
            if int(list_late_sends(n)[-1, 0]) + 1 <= fewest_late_rounds(n) + n % 2:
                return n_doubles, seed
        except SolverError:  # the plan cannot be laid on the ranks
            continue
    return None


def find_copies(n: int) -> list[list[int]]:
    """Return rows of round, source, destination, chunk of all copies.

    Rank t meets the late rank n - 1 in round t, and both then hold chunk t over all. A round is
    a matching in which each end of a pair sends at most one chunk that it held when the round
    began, and nobody gets a chunk twice.
    """
    late, n_rounds = n - 1, fewest_late_rounds(n)
    model = cp_model.CpModel()
    copies = {
        (t, a, b, c): model.new_bool_var("")
        for t in range(n_rounds)
        for a in range(n)
        for b in range(n)
        for c in range(min(t, late))
        if a != b and (t >= late or late not in (a, b)) and c != b and b != late
        if t >= late or t not in (a, b)
    }
    into: dict[tuple[int, int, int], list[cp_model.IntVar]] = {}
    sent: dict[tuple[int, int, int], list[cp_model.IntVar]] = {}
    for (t, a, b, c), copy in copies.items():
        into.setdefault((t, b, c), []).append(copy)
        sent.setdefault((t, a, b), []).append(copy)
    held: dict[tuple[int, int, int], Any] = {(0, a, c): 0 for a in range(n) for c in range(late)}
    for t in range(n_rounds):
        for c in range(late):
            for b in range(n):
                meets = t == c and b in (c, late)
                held[t + 1, b, c] = 1 if meets else held[t, b, c] + sum(into.get((t, b, c), ()))
    for c in range(late):
        for b in range(n):
            if not isinstance(held[n_rounds, b, c], int):
                model.add(held[n_rounds, b, c] == 1)
    for (t, a, _, c), copy in copies.items():
        if not isinstance(held[t, a, c], int):
            model.add(copy <= held[t, a, c])
        elif held[t, a, c] == 0:
            model.add(copy == 0)
    for t in range(n_rounds):
        pair = {}
        for a in range(n):
            for b in range(a):
                chosen = model.new_bool_var("")
                pair[a, b] = pair[b, a] = chosen
        for a in range(n):
            model.add_at_most_one(pair[a, b] for b in range(n) if b != a)
            for b in range(n):
                if (t, a, b) in sent:
                    model.add(sum(sent[t, a, b]) <= pair[a, b])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError(f"no schedule of {n_rounds} rounds for {n} ranks")
    return [list(key) for key, copy in copies.items() if solver.value(copy)]


def main() -> None:
    """Write the file anew."""
    copies = {str(n): find_copies(n) for n in BY_MODEL}
    kept = {str(n): found for n in BY_SEARCH if (found := find_search(n)) is not None}
    text = json.dumps({"copies": copies, "searches": kept}, separators=(",", ":"))
    STORED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
