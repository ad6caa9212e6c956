"""The questions: a folder each, in it a frozen value with its lower bound."""

from optmatch.model import Problem, Value
from optmatch.problems.all_to_all.problem import AllToAll
from optmatch.problems.demands.completion import completion_s, held_ticks
from optmatch.problems.demands.problem import Demand, PlaneSchedules
from optmatch.problems.demands.proofs import (
    ConfigurationProof,
    CountProof,
    LineProof,
    OddSetProof,
)
from optmatch.problems.rails.network import RailNetwork
from optmatch.problems.rails.parallelism import Parallelism
from optmatch.problems.rails.phases import Phase
from optmatch.problems.rails.plan import RailPlan, RailTimeline
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.step import Group, Step
from optmatch.problems.rails.workload import TransformerModel, Workload
from optmatch.problems.reroutes.problem import Reroute
from optmatch.problems.reroutes.proofs import BlockProof, CutProof
from optmatch.problems.reroutes.transition import Transition
from optmatch.problems.routing.problem import Routing
from optmatch.problems.routing.proof import RoutingProof
from optmatch.problems.slices.load_proof import LoadProof
from optmatch.problems.slices.problem import Allocation, SliceAllocation
from optmatch.problems.slices.rings import Steering, slice_rings
from optmatch.problems.slices.shape import Blueprint

PROBLEMS: dict[str, type[Problem]] = {
    "all-to-all": AllToAll,
    "demand": Demand,
    "rail-job": RailJob,
    "reroute": Reroute,
    "routing": Routing,
    "slice-allocation": SliceAllocation,
}
"""Problem classes by the ``"kind"`` that files use."""

ANSWERS: dict[str, type[Value]] = {
    "demand": PlaneSchedules,
    "rail-job": RailPlan,
    "reroute": Transition,
    "slice-allocation": Allocation,
}
"""What answers a problem of a kind where a schedule does not, or not alone."""

PROOFS: dict[str, type[Value]] = {
    "block": BlockProof,
    "configuration": ConfigurationProof,
    "count": CountProof,
    "cut": CutProof,
    "line": LineProof,
    "load": LoadProof,
    "odd-set": OddSetProof,
}
"""Certificates by the name that files use; a `RoutingProof` has a form of its own."""

__all__ = [
    "ANSWERS",
    "PROBLEMS",
    "PROOFS",
    "AllToAll",
    "Allocation",
    "BlockProof",
    "Blueprint",
    "ConfigurationProof",
    "CountProof",
    "CutProof",
    "Demand",
    "Group",
    "LineProof",
    "LoadProof",
    "OddSetProof",
    "Parallelism",
    "Phase",
    "PlaneSchedules",
    "RailJob",
    "RailNetwork",
    "RailPlan",
    "RailTimeline",
    "Reroute",
    "Routing",
    "RoutingProof",
    "SliceAllocation",
    "Steering",
    "Step",
    "TransformerModel",
    "Transition",
    "Workload",
    "completion_s",
    "held_ticks",
    "slice_rings",
]
