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
    is_excluded: NDArray[np.bool_], n_hosts: int, clock: Clock, n_steps: int
) -> NDArray[np.float64] | None:
    """Look for a matrix whose largest eigenvalue shows that `n_hosts` ports never go together.

    The Lovász number theta bounds the size of a set of ports no two of which are apart. Let J be
    the matrix of ones, and let Y be symmetric, with entries other than 0 only where two ports are
    apart. If u is the indicator vector of k ports that go together, then u'(J - Y)u = k^2 and u'u
    = k, so k is at most the largest eigenvalue of J - Y; theta is the least such eigenvalue over
    all Y. It is the value of two semidefinite programmes:

    - primal: maximise the sum of the entries of X, positive semidefinite, with trace 1, and 0
      where two ports are apart;
    - dual: minimise t such that Z = t I + Y - J is positive semidefinite.

    The boundary point method is an augmented Lagrangian method on the dual programme: with X as
    its multiplier and the penalty s, it minimises t - <X, t I + Y - J - Z> + (s / 2) |t I + Y - J
    - Z|^2, first over t and Y (both in closed form), then over Z (a projection onto the cone of
    positive semidefinite matrices), and then updates X. A step costs one eigenvalue decomposition,
    O(ports^3).

    Parameters
    ----------
    is_excluded
        ``is_excluded[port, port]``: whether two ports cannot go together; symmetric.
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
    n_ports = len(is_excluded)
    ones = np.ones((n_ports, n_ports))
    primal = np.zeros((n_ports, n_ports))  # X: positive semidefinite, 0 where ports are apart
    dual = np.zeros((n_ports, n_ports))  # Z = t I + Y - J: positive semidefinite
    penalty = _PENALTY / n_ports

    for step in range(n_steps):
        # Minimise over t and Y. The gradient is 0 for Y = J + Z + X / s on the entries where ports
        # are apart, and, with n ports, for n t = trace(J + Z + X / s) - 1 / s.
        target = ones + dual + primal / penalty
        trace = (np.trace(target) - 1.0 / penalty) / n_ports
        multipliers = np.where(is_excluded, target, 0.0)

        # Minimise over Z: the projection of W = t I + Y - J - X / s is its positive part. The new
        # multiplier X - s (t I + Y - J - Z) is s (Z - W), which is -s times the negative part.
        slack = multipliers + trace * np.eye(n_ports) - ones - primal / penalty
        values, vectors = np.linalg.eigh(slack)
        is_positive = values > 0
        dual = (vectors[:, is_positive] * values[is_positive]) @ vectors[:, is_positive].T
        primal = penalty * (dual - slack)

        # J - Y is 1 wherever two ports go together, in every step, so it is a proof as soon as its
        # largest eigenvalue is small enough, however far the method is from its end.
        if step % _CHECK_EVERY == _CHECK_EVERY - 1:
            matrix = ones - multipliers
            if float(np.linalg.eigvalsh(matrix)[-1]) < n_hosts * (1 - _MARGIN):
                return matrix
        if clock.remaining_s <= 0:
            return None
    return None
