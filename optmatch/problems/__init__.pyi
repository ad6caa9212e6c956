# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from . import rails as rails
from .all_to_all import AllToAll as AllToAll
from .catalogue import PROBLEMS as PROBLEMS
from .collectives.plan import CollectivePlan as CollectivePlan
from .collectives.problem import Collective as Collective
from .costs import PRICES as PRICES, compare_costs as compare_costs
from .demands.completion import (
    ConfigurationProof as ConfigurationProof,
    CountProof as CountProof,
    completion_s as completion_s,
    held_ticks as held_ticks,
)
from .demands.problem import Demand as Demand, PlaneSchedules as PlaneSchedules
from .rails.calibration import calibrate as calibrate
from .rails.execution.plan import RailPlan as RailPlan, RailTimeline as RailTimeline
from .rails.problem import RailJob as RailJob
from .rails.published import published_job as published_job
from .rails.training.network import RailNetwork as RailNetwork
from .rails.training.parallelism import Parallelism as Parallelism
from .rails.training.phases import Phase as Phase
from .rails.training.step import Group as Group, Step as Step
from .rails.training.workload import TransformerModel as TransformerModel, Workload as Workload
from .reroutes.problem import Reroute as Reroute
from .reroutes.transition import (
    BlockProof as BlockProof,
    CutProof as CutProof,
    Transition as Transition,
)
from .routing import Routing as Routing, RoutingProof as RoutingProof
from .sharing.classes import Classes as Classes, classify as classify
from .sharing.problem import (
    Assignment as Assignment,
    PortSharing as PortSharing,
    SupplyProof as SupplyProof,
)
from .sharing.resources import Jobs as Jobs, Resources as Resources
from .slices.problem import (
    Allocation as Allocation,
    LoadProof as LoadProof,
    SliceAllocation as SliceAllocation,
)
from .slices.shape import (
    SliceShape as SliceShape,
    Steering as Steering,
    slice_rings as slice_rings,
)
