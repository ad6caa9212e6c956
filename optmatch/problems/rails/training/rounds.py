"""Collectives of a step in rounds: which operations, by which algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.collectives import steps
from optmatch.problems.collectives.steps import Algorithm, Round
from optmatch.problems.rails.training.step import OPERATIONS, Step


def list_rounds(algorithm: Algorithm, kind: int, members: int) -> tuple[Round, ...]:
    """List the rounds of a kind of operation; none if it goes around a ring, as that of two does.

    So do operations that the algorithm does not know.
    """
    around = members <= 2 or algorithm == "ring"
    return () if around else steps.list_rounds(algorithm, OPERATIONS[kind], members)


def find_rounds(
    step: Step, collectives: Mapping[str, Algorithm]
) -> Iterator[tuple[NDArray[np.int64], tuple[Round, ...]]]:
    """List the operations on rails that are done in rounds, those of the same rounds together.

    A dimension without an algorithm goes around a ring.
    """
    kinds: dict[tuple[Algorithm, int], int] = {}
    of_group = [-1] * (len(step.groups) + 1)  # the last one for what is in no group
    for number, group in enumerate(step.groups):
        algorithm = collectives.get(group.dimension, "ring")
        if group.rail >= 0 and algorithm != "ring":
            of_group[number] = kinds.setdefault((algorithm, len(group.ranks)), len(kinds))
    if not kinds:
        return
    which = np.array(of_group)[step.group]
    for (algorithm, members), number in kinds.items():
        own = np.flatnonzero(which == number)
        for kind in np.unique(step.kind[own]).tolist():
            rounds = list_rounds(algorithm, kind, members)
            if rounds:
                yield own[step.kind[own] == kind], rounds
