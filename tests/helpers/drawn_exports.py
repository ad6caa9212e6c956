"""Drawn answers of all kinds with circuits, exported for switches and replayed.

    python -m tests.helpers.drawn_exports [NUMBER]

Configurations and patches of each state are replayed by a reader of the tests' own and by
jsonpatch: no side is in two circuits at any moment, and all states are those of the answer.
"""

import sys
from collections import Counter

import optmatch as om
from optmatch.model import InputError, Limits
from tests.helpers import recorded
from tests.io.switches.test_exports import replay_exports

LIMITS = Limits(time_s=1.0, iterations=50)


def main() -> None:
    """Replay so many answers, as evenly as the kinds allow."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    strategies = recorded._strategies()
    strategies.pop("port-sharing")
    each = -(-wanted // len(strategies))
    replayed = Counter[str]()
    circuits = 0
    for kind, (_, strategy) in strategies.items():
        for problem in recorded._draw(strategy, 3 * each):
            if replayed[kind] == each:
                break
            solution = om.solve(problem, seed=0, limits=LIMITS)
            if solution.objective is None:
                continue
            try:
                circuits += replay_exports(solution)
            except InputError:
                continue  # an answer that has no circuits
            replayed[kind] += 1
    print(f"{replayed.total()} answers with {circuits} circuits replayed: {dict(replayed)}")


if __name__ == "__main__":
    main()
