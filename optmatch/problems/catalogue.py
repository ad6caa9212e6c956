"""All classes of problems, by the names that files use."""

from __future__ import annotations

from optmatch.model import Problem
from optmatch.problems.all_to_all.problem import AllToAll
from optmatch.problems.collectives.problem import Collective
from optmatch.problems.demands.problem import Demand
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.reroutes.problem import Reroute
from optmatch.problems.routing.problem import Routing
from optmatch.problems.sharing.problem import PortSharing
from optmatch.problems.slices.problem import SliceAllocation
from optmatch.problems.tenancies.problem import Tenancy

PROBLEMS: dict[str, type[Problem]] = {
    problem.kind: problem
    for problem in (
        AllToAll,
        Collective,
        Demand,
        PortSharing,
        RailJob,
        Reroute,
        Routing,
        SliceAllocation,
        Tenancy,
    )
}
"""Problem classes by the ``"kind"`` of files."""
