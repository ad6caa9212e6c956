"""Which faults are to blame: a smallest set, in the sense that each one is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optmatch.fabrics import Fabric, Fault, Faulty
from optmatch.model import Clock, Solution, Status

Refuted = Callable[[Fabric], bool | None]
"""Tells of a fabric whether the question has no answer there; None where that stays open."""


def name_culprits(solution: Solution, refuted: Refuted, clock: Clock | None = None) -> Solution:
    """Add the faults that are to blame to the answer that something cannot be done.

    Parameters
    ----------
    solution
        Whatever was found; changed only if it is infeasible and its fabric has faults.
    refuted
        An exact test of the same question on another fabric.
    clock
        When to stop taking faults away.

    Returns
    -------
    Solution
        ``stats["culprits"]`` lists faults that alone forbid the answer, and the reason ends with
        them. With ``stats["culprits_minimal"]`` none of them could be repaired without making an
        answer possible. The list is empty if there is no answer without faults either.

    Notes
    -----
    A deletion filter (Chinneck and Dravnieks 1991, doi 10.1287/ijoc.3.2.157): faults are repaired
    one by one, and one whose repair does not help stays repaired. One exact test for each fault.
    """
    fabric = solution.problem.fabric
    if solution.status is not Status.INFEASIBLE or not isinstance(fabric, Faulty):
        return solution
    culprits = [fault for fault in fabric.faults if fault.kind != "dead-port"]
    minimal = True
    try:
        if refuted(fabric.fabric):
            culprits = []
        for fault in list(culprits):
            if clock is not None and clock.remaining_s <= 0:
                minimal = False
                break
            others = [other for other in culprits if other != fault]
            verdict = refuted(Faulty.of(fabric.fabric, others))
            if verdict:
                culprits = others
            minimal &= verdict is not None
    except KeyboardInterrupt:
        minimal = False
    return replace(
        solution,
        stats=dict(solution.stats)
        | {
            "reason": f"{solution.stats.get('reason', 'proved')}; {_sentence(culprits, minimal)}",
            "culprits": [str(fault) for fault in culprits],
            "culprits_minimal": minimal,
        },
    )


def _sentence(culprits: list[Fault], minimal: bool) -> str:
    if not culprits:
        return "without faults it cannot be done either"
    names = ", ".join(str(fault) for fault in culprits)
    return f"at fault: {names}" + ("" if minimal else " (perhaps not all of them)")
