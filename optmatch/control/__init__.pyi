# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .demands.arrivals import FlowReplay as FlowReplay, replay_flows as replay_flows
from .demands.rolling import RollingSchedule as RollingSchedule, Slot as Slot
from .demands.schedules import (
    Permutations as Permutations,
    Slots as Slots,
    decompose as decompose,
)
from .figures import Call as Call, Tally as Tally
from .reroutes.answering import Proposal as Proposal
from .reroutes.rerouter import Rerouter as Rerouter
from .routing.router import (
    Routed as Routed,
    RoutedBatch as RoutedBatch,
    Router as Router,
    settle_free_cells as settle_free_cells,
)
from .warming import warm_up as warm_up
