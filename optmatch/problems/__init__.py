"""The questions: one module each, a frozen value with its lower bound."""

from optmatch.model import Value
from optmatch.problems.alltoall import AllToAll
from optmatch.problems.carried import completion_s, held_ticks
from optmatch.problems.demand import Demand, PlaneSchedules
from optmatch.problems.demand_proof import ConfigurationProof, CountProof, LineProof
from optmatch.problems.proof import RoutingProof
from optmatch.problems.routing import Routing

PROBLEMS: dict[str, type[AllToAll | Demand | Routing]] = {
    problem.kind: problem for problem in (AllToAll, Demand, Routing)
}
"""Problem classes by the ``"kind"`` that files use."""

ANSWERS: dict[str, type[Value]] = {"demand": PlaneSchedules}
"""What answers a problem of a kind where a schedule does not, or not alone."""

PROOFS: dict[str, type[Value]] = {
    "line": LineProof,
    "configuration": ConfigurationProof,
    "count": CountProof,
}
"""Certificates by the name that files use; a `RoutingProof` has a form of its own."""

__all__ = [
    "ANSWERS",
    "PROBLEMS",
    "PROOFS",
    "AllToAll",
    "ConfigurationProof",
    "CountProof",
    "Demand",
    "LineProof",
    "PlaneSchedules",
    "Routing",
    "RoutingProof",
    "completion_s",
    "held_ticks",
]
