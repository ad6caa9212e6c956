"""Tabu search for k ports that all go together: a clique of a given size.

Adaptive multistart tabu search for cliques of a given size (Wu and Hao 2011,
doi 10.1007/s10732-010-9136-9), without its restarts: a member with most conflicts is exchanged for
a port with fewest, and neither moves back for a while.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.placements.draws import draw_below, seed_draws

_LARGE = 1 << 30


@inner_kernel
def _extremes(
    n_conflicts: NDArray[np.int64],
    is_member: NDArray[np.bool_],
    tabu_until: NDArray[np.int64],
    step: int,
) -> tuple[int, int]:
    """Return most conflicts of a member that may leave, and fewest of a port that may come."""
    most = -1
    fewest = _LARGE
    for port in range(len(n_conflicts)):
        if tabu_until[port] > step:
            continue
        if is_member[port]:
            most = max(most, n_conflicts[port])
        else:
            fewest = min(fewest, n_conflicts[port])
    return most, fewest


@inner_kernel
def _choose_exchange(
    apart: NDArray[np.bool_],
    n_conflicts: NDArray[np.int64],
    is_member: NDArray[np.bool_],
    tabu_until: NDArray[np.int64],
    step: int,
) -> tuple[int, int]:
    """Draw a member and a port for it, among those that leave the fewest conflicts.

    Two that are apart from each other are better by one, as their own conflict disappears. -1 and
    -1 if all are tabu.
    """
    most, fewest = _extremes(n_conflicts, is_member, tabu_until, step)
    leaving = -1
    coming = -1
    n_equal = 0
    are_apart = False
    for member in range(len(n_conflicts)):
        if not is_member[member] or tabu_until[member] > step or n_conflicts[member] != most:
            continue
        for port in range(len(n_conflicts)):
            if is_member[port] or tabu_until[port] > step or n_conflicts[port] != fewest:
                continue
            if apart[member, port] and not are_apart:
                are_apart = True
                n_equal = 0
            if apart[member, port] == are_apart:
                n_equal += 1
                if draw_below(n_equal) == 0:
                    leaving = member
                    coming = port
    return leaving, coming


@kernel
def search_clique(
    apart: NDArray[np.bool_],
    is_member: NDArray[np.bool_],
    tabu_until: NDArray[np.int64],
    n_conflicts: NDArray[np.int64],
    limits: tuple[int, int],
) -> int:
    """Exchange members until no two of them are apart, and return how many pairs still are.

    Parameters
    ----------
    apart
        ``apart[port, port]``: whether two ports cannot be members together; symmetric.
    is_member
        ``is_member[port]``: the set at the start; at the end the set that was found, or the last.
    tabu_until
        ``tabu_until[port]``: 0; or a large number for a port that stays in or out for good.
    n_conflicts
        ``n_conflicts[port]``: scratch; the members that a port is apart from.
    limits
        The number of exchanges, and the seed. An exchange takes as many operations as there are
        ports, and as many as there are pairs of equally good ones.
    """
    n_steps, seed = limits
    seed_draws(seed)
    n_ports = len(is_member)
    n_members = 0
    n_conflicts[:] = 0
    for member in range(n_ports):
        if is_member[member]:
            n_members += 1
            for port in range(n_ports):
                n_conflicts[port] += apart[member, port]
    total = 0
    for member in range(n_ports):
        if is_member[member]:
            total += n_conflicts[member]
    total //= 2

    for step in range(n_steps):
        if total == 0:
            break
        leaving, coming = _choose_exchange(apart, n_conflicts, is_member, tabu_until, step)
        if leaving < 0:
            continue
        total += n_conflicts[coming] - n_conflicts[leaving] - apart[leaving, coming]
        is_member[leaving] = False
        is_member[coming] = True
        for port in range(n_ports):
            n_conflicts[port] += int(apart[coming, port]) - int(apart[leaving, port])

        # Tenures of the paper: longer where more conflicts are left, and random.
        tenure = min(total, 10)
        tabu_until[leaving] = step + 1 + tenure + draw_below(max(n_members // 40, 6))
        tabu_until[coming] = (
            step + 1 + (6 * tenure) // 10 + draw_below(max(n_members // 40 * 6 // 10, 4))
        )
    return total
