# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .contract import SolverContract as SolverContract
from .demands import demand_problems as demand_problems
from .problems import (
    all_to_all_problems as all_to_all_problems,
    brute_force as brute_force,
    collective_problems as collective_problems,
    feed_forward_fabrics as feed_forward_fabrics,
    rail_problems as rail_problems,
    routing_problems as routing_problems,
    slice_problems as slice_problems,
    smallest_problems as smallest_problems,
)
from .reroutes import reroute_problems as reroute_problems
