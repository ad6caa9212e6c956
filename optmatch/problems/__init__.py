"""The questions: one module each, a frozen value with its lower bound."""

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

__all__ = [
    "PROBLEMS",
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
