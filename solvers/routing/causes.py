"""Which faults cause that something cannot be done: a set of which each one is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from optmatch.fabrics import UNREACHED, Fabric, Fault, Faulty
from optmatch.model import Clock, Problem, Solution, Status, TimeUp
from optmatch.solvers.frame import conclude

Refuted = Callable[[Fabric], bool | None]
"""Tells whether the question has no answer on a fabric; None where that stays open."""


_MOST_NAMED = 20  # pairs, in a message


def name_causes(solution: Solution, refuted: Refuted, clock: Clock | None = None) -> Solution:
    """Add the faults that cause it to the answer that something cannot be done.

    `refuted` is an exact test whether the same question has no answer on another fabric, and
    `clock` ends the tests. ``stats["causes"]`` lists faults that alone forbid the answer, and the
    reason ends with them. With ``stats["causes_minimal"]`` none of them could be repaired without
    making an answer possible. The list is empty if there is no answer without faults either.
    """
    fabric = solution.problem.fabric
    if solution.status is not Status.INFEASIBLE or not isinstance(fabric, Faulty):
        return solution
    return add_causes(solution, "reason", *find_causes(fabric, refuted, clock))


def find_causes(
    fabric: Faulty, refuted: Refuted, clock: Clock | None = None
) -> tuple[list[Fault], bool]:
    """Find a set of faulty cells of a fabric that forbids the answer, and of which all are needed.

    `refuted` is called with the fabric under some of its faults: True if there is no answer, False
    if there is one, None if that stays open. Once the time of `clock` is over no more faults are
    tried. A deletion filter (Chinneck and Dravnieks 1991, doi 10.1287/ijoc.3.2.157): faults are
    repaired one by one, and one whose repair does not help stays repaired. Dead ports are never
    repaired. The second result tells whether each fault of the first one is proved to be needed;
    no faults are returned if there is no answer without them either.
    """
    # `causes` are enough to forbid the answer at any time: a fault is taken out of them if it is
    # proved that there is no answer without it either. ``fabric.repaired(left)`` has no faulty
    # cells but those that are left, in the first call none.
    causes = [fault for fault in fabric.faults if fault.kind != "dead-port"]
    minimal = True
    try:
        if refuted(fabric.repaired([])):
            causes = []
        for fault in list(causes):
            if clock is not None and clock.remaining_s <= 0:
                minimal = False
                break

            # A fault that is not needed for the refutation stays repaired.
            other_causes = [other for other in causes if other != fault]
            verdict = refuted(fabric.repaired(other_causes))
            if verdict:
                causes = other_causes
            minimal &= verdict is not None
    except (KeyboardInterrupt, TimeUp):
        minimal = False
    return causes, minimal


def add_causes(solution: Solution, text_key: str, causes: list[Fault], minimal: bool) -> Solution:
    """Write the causes into the statistics, and append them to the text under the key `text_key`.

    `causes` are faults that together forbid an answer, none if there is no answer without faults
    either; `minimal` says whether each is proved to be needed. The result is a new solution, with
    the text, the ``causes`` as strings and ``causes_minimal``.
    """
    stats = dict(solution.stats)
    names = [fault.named_on(solution.problem.fabric) for fault in causes]
    sentence = "without faults it cannot be done either"
    if causes:
        sentence = f"caused by: {', '.join(names)}"
        sentence += "" if minimal else " (perhaps not all of them)"
    return replace(
        solution,
        stats=stats
        | {
            text_key: f"{stats.get(text_key, 'proved')}; {sentence}",
            "causes": names,
            "causes_minimal": minimal,
        },
    )


def refuse_dead_pairs(
    problem: Problem,
    dead: list[tuple[int, int]],
    method: str,
    refuted: Refuted | None = None,
    clock: Clock | None = None,
) -> Solution | None:
    """Conclude that a problem is infeasible because two ports must meet that nothing connects.

    `dead` lists these pairs of ports, (source, destination). No state of the cells connects them
    or, on a fabric without cells, their circuit is over its link budget. `method` is named in the
    solution, which is None if there is no dead pair.

    On a fabric with faults the solution names those to blame, in two steps. First come faults of
    which each one is needed to keep some pair dead. Then, if the exact test `refuted` is given,
    those of them with which the problem still has no answer. After the time of `clock` no test is
    begun: then some of the faults may not be needed.
    """
    if not dead:
        return None
    reasons = "; ".join(problem.fabric.explain_dead_pair(i, j) for i, j in dead[:_MOST_NAMED])
    if len(dead) > _MOST_NAMED:
        reasons += f"; and {len(dead) - _MOST_NAMED} more"
    rule = "no state of the cells connects"
    if problem.fabric.graph is None:
        rule = "over the link budget:"
    stats = {
        "reason": f"{rule} {reasons}",
        "dead_pairs": [list(pair) for pair in dead],
    }
    solution = conclude(problem, method, None, float("inf"), stats=stats)
    fabric = problem.fabric
    if not isinstance(fabric, Faulty):
        return solution

    # The quick test, without the clock, leaves few faults, all that the exact one has to try.
    causes, minimal = find_causes(fabric, partial(_some_pair_is_dead, dead))
    if refuted is not None:
        causes, minimal = find_causes(fabric.repaired(causes), refuted, clock)
    return add_causes(solution, "reason", causes, minimal)


def _some_pair_is_dead(pairs: list[tuple[int, int]], fabric: Fabric) -> bool:
    """Tell whether, on a fabric with fewer faults, nothing connects some of the given pairs."""
    table = fabric.route_cells()
    return any(table[i, j] == UNREACHED for i, j in pairs)
