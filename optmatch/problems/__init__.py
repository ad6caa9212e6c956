"""The questions: one module each, a frozen value with its lower bound."""

from optmatch.model import Value
from optmatch.problems.alltoall import AllToAll
from optmatch.problems.blueprint import Blueprint
from optmatch.problems.carried import completion_s, held_ticks
from optmatch.problems.demand import Demand, PlaneSchedules
from optmatch.problems.demand_proof import ConfigurationProof, CountProof, LineProof
from optmatch.problems.load_proof import LoadProof
from optmatch.problems.proof import RoutingProof
from optmatch.problems.rail_job import RailJob
from optmatch.problems.rail_model import TransformerModel
from optmatch.problems.rail_phases import Phase
from optmatch.problems.rail_plan import RailPlan, RailTimeline
from optmatch.problems.rail_step import Group, Step
from optmatch.problems.reroute import Reroute
from optmatch.problems.reroute_proof import CutProof
from optmatch.problems.rings import Steering, slice_rings
from optmatch.problems.routing import Routing
from optmatch.problems.slices import Allocation, SliceAllocation
from optmatch.problems.transition import Transition

PROBLEMS: dict[str, type[AllToAll | Demand | Reroute | Routing | RailJob | SliceAllocation]] = {
    problem.kind: problem
    for problem in (AllToAll, Demand, Reroute, Routing, RailJob, SliceAllocation)
}
"""Problem classes by the ``"kind"`` that files use."""

ANSWERS: dict[str, type[Value]] = {
    "demand": PlaneSchedules,
    "slice-allocation": Allocation,
    "reroute": Transition,
    "rail-job": RailPlan,
}
"""What answers a problem of a kind where a schedule does not, or not alone."""

PROOFS: dict[str, type[Value]] = {
    "line": LineProof,
    "configuration": ConfigurationProof,
    "count": CountProof,
    "load": LoadProof,
    "cut": CutProof,
}
"""Certificates by the name that files use; a `RoutingProof` has a form of its own."""

__all__ = [
    "ANSWERS",
    "PROBLEMS",
    "PROOFS",
    "AllToAll",
    "Allocation",
    "Blueprint",
    "ConfigurationProof",
    "CountProof",
    "CutProof",
    "Demand",
    "Group",
    "LineProof",
    "LoadProof",
    "Phase",
    "PlaneSchedules",
    "RailJob",
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
    "completion_s",
    "held_ticks",
    "slice_rings",
]
