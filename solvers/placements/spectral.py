"""The Lovász number of ports: an eigenvalue that bounds how many of them can be joined at once.

The semidefinite programme of the Lovász number is solved by the boundary point method (Povh, Rendl
and Wiegele 2006, doi 10.1007/s00607-006-0182-2): its linear constraints are single entries and a
trace, so a step is one eigenvalue decomposition. Any step gives a valid bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock

_CHECK_EVERY = 10
"""Steps between two looks at the bound; one look costs as much as half a step."""

_PENALTY = 0.05
"""The weight of the constraints, times the number of ports.

On 128 and 320 ports with normally distributed losses 0.01 to 0.1 take about equally many steps; 1
takes twice as many on 320 ports, and 10 never arrives.
"""

_MARGIN = 1e-5
"""By this share the eigenvalue has to be below the number of hosts; the verifier takes 1e-6."""


def bound_joint_ports(
    apart: NDArray[np.bool_], n_hosts: int, clock: Clock, n_steps: int
) -> NDArray[np.float64] | None:
    """Look for a matrix whose largest eigenvalue shows that `n_hosts` ports never go together.

    Parameters
    ----------
    apart
        ``apart[port, port]``: whether two ports cannot go together; symmetric.
    n_hosts
        The number of ports that are wanted together.
    clock
        Ends the search early.
    n_steps
        The number of eigenvalue decompositions.

    Returns
    -------
    float64 array, shape (ports, ports), or None
        A symmetric matrix that is 1 where two ports are not apart, and whose largest eigenvalue is
        below `n_hosts`; None if none was found.
    """
    n_ports = len(apart)
    ones = np.ones((n_ports, n_ports))
    primal = np.zeros((n_ports, n_ports))  # X: positive semidefinite, 0 where ports are apart
    dual = np.zeros((n_ports, n_ports))  # Z = t I + Y - J: positive semidefinite
    penalty = _PENALTY / n_ports

    for step in range(n_steps):
        # The multipliers of the trace (t) and of the entries where ports are apart (Y).
        target = ones + dual + primal / penalty
        trace = (np.trace(target) - 1.0 / penalty) / n_ports
        multipliers = np.where(apart, target, 0.0)

        # Project: the positive part becomes the dual matrix, the negative one the primal.
        slack = multipliers + trace * np.eye(n_ports) - ones - primal / penalty
        values, vectors = np.linalg.eigh(slack)
        is_positive = values > 0
        dual = (vectors[:, is_positive] * values[is_positive]) @ vectors[:, is_positive].T
        primal = penalty * (dual - slack)

        if step % _CHECK_EVERY == _CHECK_EVERY - 1:
            matrix = ones - multipliers
            if float(np.linalg.eigvalsh(matrix)[-1]) < n_hosts * (1 - _MARGIN):
                return matrix
        if clock.remaining_s <= 0:
            return None
    return None
