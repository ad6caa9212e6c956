"""The questions: one module each, a frozen value with its lower bound."""

from typing import TYPE_CHECKING

from optmatch.model import Problem, Value
from optmatch.model.later import LaterTable, import_later

if TYPE_CHECKING:
    from optmatch.problems.alltoall import AllToAll
    from optmatch.problems.blueprint import Blueprint
    from optmatch.problems.carried import completion_s, held_ticks
    from optmatch.problems.demand import Demand, PlaneSchedules
    from optmatch.problems.demand_proof import (
        ConfigurationProof,
        CountProof,
        LineProof,
        OddSetProof,
    )
    from optmatch.problems.load_proof import LoadProof
    from optmatch.problems.proof import RoutingProof
    from optmatch.problems.rail_job import RailJob
    from optmatch.problems.rail_model import TransformerModel
    from optmatch.problems.rail_phases import Phase
    from optmatch.problems.rail_plan import RailPlan, RailTimeline
    from optmatch.problems.rail_step import Group, Step
    from optmatch.problems.reroute import Reroute
    from optmatch.problems.reroute_proof import BlockProof, CutProof
    from optmatch.problems.rings import Steering, slice_rings
    from optmatch.problems.routing import Routing
    from optmatch.problems.slices import Allocation, SliceAllocation
    from optmatch.problems.transition import Transition

PROBLEMS: LaterTable[type[Problem]] = LaterTable(
    {
        "all-to-all": "optmatch.problems.alltoall:AllToAll",
        "demand": "optmatch.problems.demand:Demand",
        "rail-job": "optmatch.problems.rail_job:RailJob",
        "reroute": "optmatch.problems.reroute:Reroute",
        "routing": "optmatch.problems.routing:Routing",
        "slice-allocation": "optmatch.problems.slices:SliceAllocation",
    }
)
"""Problem classes by the ``"kind"`` that files use."""

ANSWERS: LaterTable[type[Value]] = LaterTable(
    {
        "demand": "optmatch.problems.demand:PlaneSchedules",
        "rail-job": "optmatch.problems.rail_plan:RailPlan",
        "reroute": "optmatch.problems.transition:Transition",
        "slice-allocation": "optmatch.problems.slices:Allocation",
    }
)
"""What answers a problem of a kind where a schedule does not, or not alone."""

PROOFS: LaterTable[type[Value]] = LaterTable(
    {
        "block": "optmatch.problems.reroute_proof:BlockProof",
        "configuration": "optmatch.problems.demand_proof:ConfigurationProof",
        "count": "optmatch.problems.demand_proof:CountProof",
        "cut": "optmatch.problems.reroute_proof:CutProof",
        "line": "optmatch.problems.demand_proof:LineProof",
        "load": "optmatch.problems.load_proof:LoadProof",
        "odd-set": "optmatch.problems.demand_proof:OddSetProof",
    }
)
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

__getattr__ = import_later(
    __name__,
    {
        "AllToAll": "alltoall",
        "Allocation": "slices",
        "BlockProof": "reroute_proof",
        "Blueprint": "blueprint",
        "ConfigurationProof": "demand_proof",
        "CountProof": "demand_proof",
        "CutProof": "reroute_proof",
        "Demand": "demand",
        "Group": "rail_step",
        "LineProof": "demand_proof",
        "LoadProof": "load_proof",
        "OddSetProof": "demand_proof",
        "Phase": "rail_phases",
        "PlaneSchedules": "demand",
        "RailJob": "rail_job",
        "RailPlan": "rail_plan",
        "RailTimeline": "rail_plan",
        "Reroute": "reroute",
        "Routing": "routing",
        "RoutingProof": "proof",
        "SliceAllocation": "slices",
        "Steering": "rings",
        "Step": "rail_step",
        "TransformerModel": "rail_model",
        "Transition": "transition",
        "completion_s": "carried",
        "held_ticks": "carried",
        "slice_rings": "rings",
    },
)
