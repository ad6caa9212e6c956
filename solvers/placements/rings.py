"""Rings of ports: a cycle of k ports whose worst circuit loses least, by CP-SAT.

The circuit constraint of CP-SAT passes each of its nodes once, or leaves it out by a loop to
itself. At a threshold of the loss only few circuits are allowed, so that thousands of ports take
milliseconds; whether there is a cycle is asked for one threshold after another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, ignore
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel


class RingVerdict:
    """What is known of rings at a threshold.

    Attributes
    ----------
    ports
        ``ports[k]``: the k-th port of a ring, int64; None if none was found.
    impossible
        Whether there is none.
    """

    def __init__(self, ports: NDArray[np.int64] | None, *, impossible: bool) -> None:
        self.ports = ports
        self.impossible = impossible


def find_ring(
    allowed: NDArray[np.bool_], n_hosts: int, clock: Clock, work_s: float, seed: int
) -> RingVerdict:
    """Look for a ring of so many ports.

    Parameters
    ----------
    allowed
        ``allowed[source, destination]``: the circuits that may be used.
    n_hosts
        The number of ports on the ring, at least 2.
    clock
        Ends the search early.
    work_s
        The most work, in seconds as CP-SAT counts them.
    seed
        The seed of the random numbers of CP-SAT.

    Returns
    -------
    RingVerdict
        The ports of a ring in their order, or that there is none, or neither if the work or the
        time was too little.
    """
    model = RingModel(allowed, n_hosts)
    outcome = model.solve(clock, ignore, seed=seed, work=work_s)
    if not outcome.found:
        return RingVerdict(None, impossible=outcome.infeasible)
    return RingVerdict(model.read(outcome), impossible=False)


class RingModel(ExactModel[NDArray[np.int64]]):
    """The CP-SAT model of a ring of so many ports; it minimises nothing.

    Parameters
    ----------
    allowed
        ``allowed[source, destination]``: the circuits that may be used.
    n_hosts
        The number of ports on the ring, at least 2.
    """

    def __init__(self, allowed: NDArray[np.bool_], n_hosts: int) -> None:
        """Write a model for CP-SAT: one cycle over as many ports as there are hosts.

        A ring of hosts is a cycle of circuits between their ports. CP-SAT's circuit constraint
        wants one cycle over all nodes, except for those that have a loop to themselves: the ports
        left out.

        Parameters
        ----------
        allowed
            ``allowed[source port, destination port]``: whether a circuit may be used; bool, shape
            (ports, ports).
        n_hosts
            The number of hosts of the ring.
        """
        super().__init__()
        self.n_hosts = n_hosts
        self.circuits = [
            (source, destination, self.model.new_bool_var(""))
            for source, destination in np.argwhere(allowed).tolist()
            if source != destination
        ]

        # Each port has one circuit out and one in, all of them on one cycle, or a loop to itself;
        # as many ports have a loop as are left over.
        n_ports = len(allowed)
        left_out = [(port, port, self.model.new_bool_var("")) for port in range(n_ports)]
        self.model.add_circuit([*self.circuits, *left_out])
        self.model.add(sum(literal for _, _, literal in left_out) == n_ports - n_hosts)

    def read(self, outcome: Outcome) -> NDArray[np.int64]:
        """Return the ports of the ring in their order, from any port that is on it.

        Parameters
        ----------
        outcome
            The solution of CP-SAT: which circuits are used.

        Returns
        -------
        NDArray
            ``ports[k]``: a circuit goes from each port to the next one, and from the last to the
            first; int64, shape (hosts,).
        """
        next_port = {
            source: destination
            for source, destination, literal in self.circuits
            if outcome.holds(literal)
        }
        ports = [next(iter(next_port))]
        while len(ports) < self.n_hosts:
            ports.append(next_port[ports[-1]])
        return np.array(ports, dtype=np.int64)
