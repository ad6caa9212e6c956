"""For authors of methods: tests to inherit, problems to run them on, and an oracle."""

from optmatch.testing.collectives import collective_problems
from optmatch.testing.contract import SolverContract
from optmatch.testing.demands import demand_problems
from optmatch.testing.oracle import brute_force
from optmatch.testing.problems import (
    all_to_all_problems,
    feed_forward_fabrics,
    routing_problems,
    smallest_problems,
)
from optmatch.testing.rails import rail_problems
from optmatch.testing.reroutes import reroute_problems
from optmatch.testing.slices import slice_problems

__all__ = [
    "SolverContract",
    "all_to_all_problems",
    "brute_force",
    "collective_problems",
    "demand_problems",
    "feed_forward_fabrics",
    "rail_problems",
    "reroute_problems",
    "routing_problems",
    "slice_problems",
    "smallest_problems",
]
