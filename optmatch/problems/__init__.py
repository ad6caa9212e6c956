"""The questions: one module each, a frozen value with its lower bound."""

from optmatch.problems.alltoall import AllToAll
from optmatch.problems.proof import RoutingProof
from optmatch.problems.routing import Routing

PROBLEMS: dict[str, type[AllToAll | Routing]] = {problem.kind: problem for problem in (AllToAll, Routing)}
"""Problem classes by the ``"kind"`` that files use."""

__all__ = ["PROBLEMS", "AllToAll", "Routing", "RoutingProof"]
