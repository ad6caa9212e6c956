"""Every method for placements keeps the contract."""

import numpy as np

import optmatch as om
from optmatch.testing import SolverContract
from tests.helpers.contracts import contracts, methods_of
from tests.solvers.placements.test_methods import best_of_all

LOSS_DB = np.random.default_rng(5).normal(1.5, 0.5, (7, 7)).clip(0.1).round(2)
LOSSY = om.IdealSwitch(7, loss_db=LOSS_DB, budget_db=2.3)
SMALL = om.IdealSwitch(3, loss_db=LOSS_DB[:3, :3])
DEMAND = [[0, 1, 0], [0, 0, 1], [1, 1, 0]]


class PlacementContract(SolverContract):
    """Tests that all methods for placements share."""

    examples = 3
    iterates = False
    problems = (
        om.HostPlacement(LOSSY, 4),
        om.HostPlacement(LOSSY, 4, pattern="ring"),
        om.HostPlacement(LOSSY, 3, pattern="demand", demand_bytes=DEMAND),
        om.HostPlacement(LOSSY, 3, held=(2, -1, -1)),
        om.HostPlacement(om.Faulty(LOSSY, dead_ports=[0]), 3, objective="total-loss-db"),
    )
    tiny_problems = (
        om.HostPlacement(SMALL, 2),
        om.HostPlacement(SMALL, 3, pattern="ring"),
        om.HostPlacement(SMALL, 1),
    )
    oracle = best_of_all


globals().update(contracts(PlacementContract, methods_of("placement")))
