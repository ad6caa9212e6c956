"""Hosts on ports of a switch that states its losses."""

from typing import Any

import numpy as np

from optmatch.problems import HostPlacement, HostPorts, ShavingProof, SpectralProof
from tests.verify.rules import Row, claim, forge, om

LOSSY = om.IdealSwitch(4, loss_db=[[1, 2, 1, 3], [2, 1, 2, 4], [1, 2, 1, 2], [3, 4, 2, 1]])
TWO = HostPlacement(LOSSY, 2)
HELD = HostPlacement(LOSSY, 2, held=(3, -1))
HELD_ZERO = HostPlacement(LOSSY, 2, held=(0, -1))
TIGHT = HostPlacement(om.IdealSwitch(4, loss_db=LOSSY.loss_db, budget_db=2.0), 2)
QUIET = HostPlacement(LOSSY, 2, pattern="demand", demand_bytes=[[0, 0], [0, 0]])
QUIET_DEAD = HostPlacement(
    om.Faulty(LOSSY, dead_ports=[1]), 2, pattern="demand", demand_bytes=[[0, 0], [0, 0]]
)
"""Hosts without circuits."""
SUM = HostPlacement(LOSSY, 2, objective="total-loss-db")
RING = HostPlacement(LOSSY, 3, pattern="ring")
ALONE = HostPlacement(LOSSY, 1, pattern="ring")
"""A ring of one host has no circuit."""
THREE = HostPlacement(LOSSY, 3)
SENDS = HostPlacement(LOSSY, 2, pattern="demand", demand_bytes=[[0, 1], [0, 0]])
MUTUAL = [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
STAR = HostPlacement(
    om.IdealSwitch(4, loss_db=[[4, 1, 5, 1], [2, 2, 5, 4], [1, 4, 2, 4], [3, 4, 5, 1]]),
    3,
    pattern="demand",
    demand_bytes=MUTUAL,
)
"""Hosts 0 and 2 talk with each other: the second best of two ports for such a host loses 2 dB."""
IS_PROOF = "the certificate is a proof"


def on(*ports: int) -> Any:
    """Return hosts on these ports, past the checks of the constructor."""
    return forge(HostPorts(port_of_host=[0]), port_of_host=np.array(ports, dtype=np.int32))


def proved(problem: Any, certificate: Any, bound_db: float, *ports: int) -> Any:
    """Return an answer with a certificate for its bound."""
    objective_db = problem.objective_of(np.array(ports))
    return claim(
        problem,
        answer=on(*ports),
        objective=objective_db,
        lower_bound=bound_db,
        certificate=certificate,
    )


# Three ports that all lose less than 2 dB do not exist: only 0 and 2 do.
APART = SpectralProof(threshold_db=2.0, entries=np.zeros((4, 4)))

CHAIN = HostPlacement(
    om.IdealSwitch(4, loss_db=[[9, 1, 9, 9], [9, 9, 1, 9], [9, 9, 9, 1], [1, 9, 9, 9]]),
    3,
    pattern="ring",
)
"""Ports that only reach the next one of four: three hosts have no ring below 9 dB."""
EACH_PORT = ShavingProof(threshold_db=9.0, removed=[[0, port] for port in range(4)])

ROWS = [
    Row(None, TWO, on(2, 0), figures={"worst_circuit_loss_db": 1.0, "objective": 1.0}),
    Row(
        None,
        SUM,
        on(0, 3),
        figures={
            "total_circuit_loss_db": 6.0,
            "objective": 6.0,
            "lower_bound_recomputed": 2.0,  # ports 0 and 2
        },
    ),
    Row(None, ALONE, on(1), figures={"circuits": 0, "objective": 0.0}),
    Row(None, RING, on(0, 1, 2), figures={"circuits": 3, "total_circuit_loss_db": 5.0}),
    Row(None, SENDS, on(1, 0), figures={"circuits": 1, "objective": 2.0}),
    Row(None, STAR, on(1, 3, 0), figures={"lower_bound_recomputed": 2.0, "objective": 2.0}),
    Row(None, HELD, on(3, 2), figures={"lower_bound_recomputed": 2.0, "objective": 2.0}),
    Row("the answer has a port for each host", TWO, on(0)),
    Row("a host is on a live port", TWO, on(0, 4), stops=True),
    Row("a host is on a live port", QUIET_DEAD, on(0, 1), stops=True),
    Row("a port has one host", QUIET, on(2, 2), stops=True),
    Row("a host keeps the port that it has", HELD, on(0, 1), stops=True),
    Row("a host keeps the port that it has", HELD_ZERO, on(1, 2), stops=True),
    Row("a circuit that is needed keeps to its link budget", TIGHT, on(0, 3)),
    Row(None, THREE, proved(THREE, APART, 2.0, 0, 1, 2), figures={"lower_bound_checked": 2.0}),
    Row(
        IS_PROOF,
        THREE,
        proved(THREE, forge(APART, entries=np.ones((4, 4))), 1.0, 0, 1, 2),
        "the largest eigenvalue is 4, which is not below 3 hosts",
    ),
    Row(
        IS_PROOF,
        THREE,
        proved(THREE, forge(APART, entries=np.ones((3, 3))), 1.0, 0, 1, 2),
        "entries of shape (3, 3) for 4 ports",
    ),
    Row(
        IS_PROOF,
        RING,
        proved(RING, APART, 1.0, 0, 1, 2),
        "eigenvalues bound the worst loss of an all-to-all",
    ),
    Row(
        IS_PROOF,
        SUM,
        proved(SUM, APART, 1.0, 0, 1),
        "a proof about the worst circuit says nothing about a sum",
    ),
    Row(None, CHAIN, proved(CHAIN, EACH_PORT, 9.0, 0, 1, 2), figures={"lower_bound_checked": 9.0}),
    Row(
        IS_PROOF,
        CHAIN,
        proved(CHAIN, forge(EACH_PORT, threshold_db=10.0), 1.0, 0, 1, 2),
        "host 0 can be on port 0 as far as is shown",
    ),
    Row(
        IS_PROOF,
        CHAIN,
        proved(CHAIN, forge(EACH_PORT, removed=np.zeros((0, 2), dtype=int)), 1.0, 0, 1, 2),
        "each host has a port behind the last trial",
    ),
    Row(
        IS_PROOF,
        CHAIN,
        proved(CHAIN, forge(EACH_PORT, removed=np.array([[0, 4]])), 1.0, 0, 1, 2),
        "no host 0, or no port 4",
    ),
    Row(
        IS_PROOF,
        THREE,
        proved(THREE, om.problems.LoadProof, 1.0, 0, 1, 2),
        "no proof about a placement",
    ),
]
