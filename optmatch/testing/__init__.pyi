# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .collectives import collective_problems as collective_problems
from .contract import SolverContract as SolverContract
from .demands import demand_problems as demand_problems
from .problems import (
    all_to_all_problems as all_to_all_problems,
    brute_force as brute_force,
    feed_forward_fabrics as feed_forward_fabrics,
    routing_problems as routing_problems,
    smallest_problems as smallest_problems,
)
from .rails import rail_problems as rail_problems
from .reroutes import reroute_problems as reroute_problems
from .slices import slice_problems as slice_problems
