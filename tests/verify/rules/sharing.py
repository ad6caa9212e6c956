"""Resources that jobs share by `om.PortSharing`, and the cuts that say how many they can get."""

import math
from typing import Any

import numpy as np

from tests.helpers.sharing import Assignment, Jobs, Resources, Sharing, SupplyProof
from tests.verify.rules import Row, claim, om

FOUR = Sharing(
    Resources(
        [[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 1.0]],
        arrival_s=[0.0, 1.0, 2.0, 3.0],
        departure_s=[4.0, 9.0, 9.0, 9.0],
        plane=[0, 0, 1, 1],
    ),
    Jobs(
        [2, 1, 2],
        [[1.0, 3.0, 1.0], [0.0, 0.0, 1.0]],
        arrival_s=[0.0, 5.0, 0.0],
        all_or_nothing=[0, 0, 1],
        plane_caps=[[1, 1], [2, 2], [2, 1]],
    ),
)
LATE = Sharing(
    Resources([[1.0, 1.0]], departure_s=[5.0, 6.0]), Jobs([1], [[1.0]], arrival_s=[5.0])
)
SCARCE = Resources([[1.0, 2.0, 2.0]])
TWO = Jobs([2, 2], [[1.0, 2.0]])
FLOW = Sharing(SCARCE, TWO)
"""Three resources, of which two serve the second job; four are wanted."""
ORDER = Sharing(Resources([[2.0, 2.0, 1.0]]), Jobs([2, 2], [[2.0, 2.0]]), "lexicographic")
FAIR = Sharing(Resources([[2.0, 2.0, 1.0]]), Jobs([2, 2], [[2.0, 2.0]]), "max-min")
WAIT = Sharing(
    Resources([[1.0, 1.0]], arrival_s=[1.0, 3.0]),
    Jobs([1, 1], [[1.0, 1.0]], arrival_s=[0.0, 2.0]),
    "min-jct",
)
UNMET = Sharing(Resources([[2.0, 2.0]]), Jobs([1, 2], [[2.0, 2.0]]), "min-jct")
PLANES = Sharing(Resources([[1.0, 2.0, 2.0]], plane=[0, 1, 1]), TWO)
"""Planes that no cap names."""
CAPPED = Sharing(SCARCE, Jobs([2, 2], [[1.0, 2.0]], plane_caps=[[1], [1]]))
"""Caps, and all in one plane."""
PARTIAL = Sharing(
    Resources([[2.0, 2.0]]), Jobs([2, 1], [[2.0, 2.0]], all_or_nothing=[0, 0]), "lexicographic"
)
GONE = Sharing(
    Resources([[1.0, 1.0]], arrival_s=[1.0, 6.0], departure_s=[5.0, 9.0]),
    Jobs([1], [[1.0]], arrival_s=[5.0]),
    "min-jct",
)
"""The first resource leaves when the job asks, the second comes later."""
ONE = Sharing(Resources([[2.0]]), Jobs([1, 1], [[2.0, 2.0]]), "lexicographic")
"""The second job has what the first one could have."""
LOOSE = Sharing(Resources([[1.0] * 3]), Jobs([1, 4], [[1.0, 1.0]]), "lexicographic")
HUGE = Sharing(Resources([[1.0]]), Jobs([10**10], [[1.0]]), "max-min")
"""One resource is so small a part of what the job is due that rounding would hide it."""
WHOLE = Sharing(
    Resources([[2.0] * 3]), Jobs([2, 2], [[2.0, 2.0]], all_or_nothing=[1, 1]), "max-min"
)
HALVES = Sharing(Resources([[2.0] * 3]), Jobs([2, 2], [[2.0, 2.0]]), "max-min")
SHARES = Sharing(SCARCE, Jobs([2, 1], [[2.0, 2.0]], fair_share=[1.0, 3.0]), "max-min")
CROWDED = Sharing(Resources([[2.0, 2, 1, 1, 1]]), Jobs([2, 2, 1], [[2.0, 2, 1]]))
"""Two jobs want the same two resources; the third leaves two that nobody can use."""
IDLE = Sharing(Resources([[2.0, 2.0, 1.0]]), Jobs([2, 2, 0], [[2.0, 2.0, 9.0]]), "max-min")
"""A third job wants nothing, and no resource would serve it."""
EMPTY = Sharing(Resources([[]]), Jobs([0], [[1.0]], plane_caps=[[1]]))
NOBODY = Sharing(Resources([[1.0]], arrival_s=[1.0]), Jobs([], [[]]), "min-jct")
IS_PROOF = "the certificate is a proof"


def cut(*tight: Any) -> Any:
    """Return a cut: for each job and plane whether it is the job that holds it up."""
    return SupplyProof(tight=np.array(tight, dtype=np.int8))


def flow(job_of: Any = (0, 1, 1), **said: Any) -> Any:
    """Return the best that two jobs can get, by a certificate."""
    known = {"objective": 1.0, "lower_bound": 1.0, "answer": Assignment(job_of)}
    return claim(FLOW, **known | said)


def order(**said: Any) -> Any:
    """Return an answer in which the second of two jobs gets nothing."""
    known = {"objective": (0, 2), "lower_bound": (0, 0), "answer": Assignment([0, 0, -1])}
    return claim(ORDER, **known | said)


def fair(**said: Any) -> Any:
    """Return an answer in which both get half of what they want."""
    known = {"objective": 0.5, "lower_bound": 0.0, "answer": Assignment([0, 1, -1])}
    return claim(FAIR, **known | said)


def torn(problem: Any) -> Any:
    """Return an answer in which the first job has all, and claim that no other is better."""
    return claim(
        problem,
        answer=Assignment([0, 0, -1]),
        objective=1.0,
        lower_bound=1.0,
        certificate=cut([0], [0]),
    )


def hopeless(problem: Any) -> Any:
    """Claim that there is no answer, as there are too few resources."""
    return claim(
        problem,
        certificate=cut([0], [0]),
        status=om.Status.INFEASIBLE,
        limit=None,
        lower_bound=math.inf,
    )


ROWS = [
    Row(None, FOUR, Assignment([0, 2, 2, 1]), figures={"used": 4, "jobs_served": 2}),
    Row(
        "the answer is an assignment",
        FLOW,
        claim(FLOW, answer="mine", objective=1.0, lower_bound=1.0),
        "answer: the answer is an assignment: got str, expected Assignment",
        stops=True,
    ),
    Row("each resource has an entry", FOUR, Assignment([0, 2, 2]), "got 3, expected 4"),
    Row(
        "the job exists",
        FOUR,
        claim(FOUR, answer=Assignment([0, 2, 2, 3]), objective=1.0, lower_bound=1.0),
        "job_of[3]: the job exists: got 3, expected < 3",
        stops=True,
    ),
    Row(
        "no attribute is below the bound",
        FOUR,
        Assignment([-1, 1, -1, -1]),
        "resource 1, attribute 0, job 1: no attribute is below the bound: got 2.0, expected >= 3",
    ),
    Row("no attribute is below the bound", FOUR, Assignment([2, 2, -1, -1]), "attribute 1, job 2"),
    Row(
        "no job gets more than it wants",
        FOUR,
        Assignment([-1, -1, 1, 1]),
        "job 1: no job gets more than it wants: got 2, expected 1",
    ),
    Row(
        "the job gets all or nothing",
        FOUR,
        Assignment([-1, 2, -1, -1]),
        "job 2: the job gets all or nothing: got 1, expected 0 or 2",
    ),
    Row(
        "no job exceeds its cap",
        FOUR,
        Assignment([0, 0, -1, -1]),
        "job 0, plane 0: no job exceeds its cap: got 2, expected 1",
    ),
    Row("no job exceeds its cap", FOUR, Assignment([-1, -1, 2, 2]), "job 2, plane 1"),
    Row(
        "a resource leaves after its job has asked",
        LATE,
        Assignment([0, -1]),
        "resource 0, job 0: a resource leaves after its job has asked: got 5.0, expected > 5",
    ),
    Row(None, LATE, Assignment([-1, 0])),
    Row(
        None,
        Sharing(LATE.resources, Jobs([2], [[1.0]], arrival_s=[5.0])),
        Assignment([-1, 0]),
        figures={"objective": 1.0, "lower_bound_recomputed": 1.0},
    ),
    Row(None, Sharing(LATE.resources, Jobs([1], [[1.0]])), Assignment([0, -1])),
    Row(None, Sharing(SCARCE, LATE.jobs), Assignment([-1, 0, -1])),
    Row(None, GONE, Assignment([-1, 0]), figures={"objective": 1.0}),
    Row(None, GONE, Assignment([-1, 0]), figures={"lower_bound_recomputed": 1.0}),
    Row("the objective is as recomputed", FLOW, flow(objective=1.0 + 1e-12)),
    Row(None, NOBODY, Assignment([-1]), figures={"objective": 0.0, "lower_bound_recomputed": 0.0}),
    Row(None, EMPTY, Assignment([]), figures={"objective": 0.0}),
    Row(
        "every demand is met",
        UNMET,
        Assignment([1, 1]),
        "job 0: every demand is met: got 0, expected 1",
    ),
    # objectives
    Row(None, WAIT, Assignment([0, 1]), figures={"objective": 1.0, "lower_bound_recomputed": 0.5}),
    Row(None, WAIT, Assignment([1, 0]), figures={"objective": 1.5}),
    Row(None, FLOW, Assignment([0, -1, 1]), figures={"objective": 2.0, "jobs_served": 0}),
    Row(None, ORDER, Assignment([1, 1, -1]), figures={"objective": (2, 0)}),
    Row(None, FAIR, Assignment([0, 1, -1]), figures={"objective": 0.5}),
    # cuts
    Row(None, FLOW, flow(), figures={"lower_bound_checked": 1.0}),
    Row("the lower bound is supported", ORDER, order(lower_bound=(0, 1))),
    Row(None, ORDER, order(lower_bound=(0, 2), certificate=(None, cut([0], [0])))),
    Row(
        "the lower bound is supported",
        ORDER,
        order(lower_bound=(0, 2), certificate=(None, cut([1], [0]))),
        "lower_bound: the lower bound is supported: got (0, 2), expected (0, 0)",
    ),
    Row(
        "the lower bound is supported", ORDER, order(lower_bound=(0, 2), certificate=(None, None))
    ),
    Row(
        None,
        CROWDED,
        claim(
            CROWDED,
            answer=Assignment([0, 1, 2, -1, -1]),
            objective=2.0,
            lower_bound=2.0,
            certificate=cut([0], [0], [1]),
        ),
        figures={"lower_bound_recomputed": 0.0, "lower_bound_checked": 2.0},
    ),
    Row("the lower bound is supported", WAIT, hopeless(WAIT)),
    Row(None, WHOLE, torn(WHOLE)),
    Row("the lower bound is supported", HALVES, torn(HALVES)),
    Row(None, SHARES, Assignment([-1, 0, 1]), figures={"objective": 0.0}),
    Row(
        "the lower bound is supported",
        ONE,
        claim(
            ONE,
            answer=Assignment([1]),
            objective=(1, 0),
            lower_bound=(1, 0),
            certificate=(None, None),
        ),
        "expected (0, 0)",
    ),
    Row(
        None,
        LOOSE,
        claim(
            LOOSE,
            answer=Assignment([0, 1, 1]),
            objective=(0, 2),
            lower_bound=(0, 2),
            certificate=(cut([0], [0]), cut([0], [0])),
        ),
    ),
    Row(
        "the lower bound is supported",
        IDLE,
        claim(
            IDLE,
            answer=Assignment([0, 1, -1]),
            objective=0.5,
            lower_bound=0.5,
            certificate=cut([1], [1], [0]),
        ),
    ),
    Row(
        "the lower bound is supported",
        PARTIAL,
        claim(
            PARTIAL,
            answer=Assignment([0, -1]),
            objective=(1, 1),
            lower_bound=(1, 0),
            certificate=(cut([0], [0]), None),
        ),
        "got (1, 0), expected (0, 0)",
    ),
    Row(None, CAPPED, Assignment([0, 1, -1]), figures={"lower_bound_recomputed": 2.0}),
    Row(
        None,
        PLANES,
        claim(
            PLANES,
            answer=Assignment([0, 1, 1]),
            objective=1.0,
            lower_bound=1.0,
            certificate=cut([0], [0]),
        ),
    ),
    Row("the lower bound is supported", FAIR, fair(lower_bound=0.5)),
    Row(
        "the lower bound is supported",
        HUGE,
        claim(HUGE, answer=Assignment([-1]), objective=1.0, lower_bound=1.0),
    ),
    Row(None, HUGE, claim(HUGE, answer=Assignment([0]), objective=1 - 1e-10, lower_bound=0.0)),
    Row(None, FAIR, fair(lower_bound=0.5, certificate=cut([0], [0]))),
    Row("the lower bound is supported", FAIR, fair(lower_bound=0.5, certificate=cut([1], [1]))),
    Row(None, UNMET, hopeless(UNMET)),
    Row(
        IS_PROOF,
        FLOW,
        flow(certificate=cut([1])),
        "a cut says something of 2 jobs and 1 planes",
    ),
    Row(IS_PROOF, FLOW, flow(certificate="all of it"), "a cut says something of 2 jobs"),
    Row(
        IS_PROOF,
        ORDER,
        order(certificate=cut([1], [0])),
        "a cut or None for each of 2 jobs is expected",
    ),
    Row(IS_PROOF, ORDER, order(certificate=(None,)), "a cut or None for each of 2 jobs"),
    Row(
        IS_PROOF,
        FAIR,
        claim(FAIR, certificate=cut([0], [0]), lower_bound=0.0),
        "it bounds an answer, and there is none",
    ),
]
