"""Tabu search for k ports that all go together: a clique of a given size.

Adaptive multistart tabu search for cliques of a given size (Wu and Hao 2011,
doi 10.1007/s10732-010-9136-9), without its restarts: a member with most conflicts is exchanged for
a port with fewest, and neither moves back for a while.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.placements.draws import draw_below, new_draws

_LARGE = 1 << 30

STAYS = 1 << 60
"""In `CliqueState.tabu_until`: a port that stays in or out for good."""


class CliqueState(NamedTuple):
    """Where a search for a clique stands; a kernel changes all of it."""

    is_member: NDArray[np.bool_]
    """``is_member[port]``: whether the port is in the set; as many are as ports are wanted."""
    n_conflicts: NDArray[np.int64]
    """``n_conflicts[port]``: the members that a port is apart from."""
    tabu_until: NDArray[np.int64]
    """``tabu_until[port]``: the step from which on a port may be exchanged."""
    draws: NDArray[np.int64]
    """The state of the random numbers, shape (2,)."""

    @classmethod
    def start(
        cls,
        is_excluded: NDArray[np.bool_],
        members: NDArray[np.int64],
        fixed_ports: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> CliqueState:
        """Begin a tabu search for a clique of ports with a set of the wanted size.

        A conflict is a pair of members that cannot be members together; without conflicts the set
        is a clique.

        Parameters
        ----------
        is_excluded
            ``is_excluded[port, port]``: whether two ports cannot be members together; symmetric,
            shape (ports, ports).
        members
            The ports of the set, as many as are wanted together.
        fixed_ports
            Ports that stay in the set if they are members, and else stay out of it.
        rng
            Gives the kernel its random numbers.

        Returns
        -------
        CliqueState
            The members, the number of members that each port is in conflict with, until which step
            each port is tabu (0, or `STAYS` for fixed ones), and the state of the random numbers.
        """
        is_member = np.zeros(len(is_excluded), dtype=bool)
        is_member[members] = True
        tabu_until = np.zeros(len(is_excluded), dtype=np.int64)
        tabu_until[fixed_ports] = STAYS
        n_conflicts = is_excluded[:, members].sum(axis=1)
        return cls(is_member, n_conflicts, tabu_until, new_draws(rng))


@inner_kernel
def _extremes(state: CliqueState, step: int) -> tuple[int, int]:
    """Return the most conflicts of a member that may leave, and the fewest of any new port.

    Two ports are apart if they cannot be members of the set together; a member apart from a port
    is a conflict of it.

    Parameters
    ----------
    state
        The set of ports (``is_member``), ``n_conflicts[port]``, the number of members that a port
        is apart from, and ``tabu_until[port]``, the step from which on it may be exchanged.
    step
        The number of the step; ports that are tabu in it neither leave nor come.

    Returns
    -------
    most, fewest : int
        -1 if no member may leave, and `_LARGE` if no port may come.
    """
    is_member = state.is_member
    n_conflicts = state.n_conflicts
    tabu_until = state.tabu_until
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
    is_excluded: NDArray[np.bool_], state: CliqueState, step: int
) -> tuple[int, int]:
    """Draw a member of the set that leaves and a port that comes for it, among the best pairs.

    The best member has the most conflicts (members that it is apart from), the best port the
    fewest. Two that are apart from each other are better by one, as their own conflict disappears.

    Parameters
    ----------
    is_excluded
        ``is_excluded[port, port]``: whether two ports are apart, so that they cannot be members
        together; symmetric.
    state
        The set of ports (``is_member``), ``n_conflicts[port]``, the number of members that a port
        is apart from, and ``tabu_until[port]``, the step from which on it may be exchanged. Its
        random numbers go on.
    step
        The number of the step, by which ports are tabu or not.

    Returns
    -------
    leaving, coming : int
        The member that leaves and the port that comes; -1 and -1 if all are tabu.
    """
    is_member = state.is_member
    n_conflicts = state.n_conflicts
    tabu_until = state.tabu_until
    most, fewest = _extremes(state, step)
    leaving = -1
    coming = -1
    n_equal = 0
    is_excluded_pair = False
    # The n-th pair that is equally good replaces the choice with probability 1 / n, so that all
    # are drawn with the same probability (reservoir sampling). The first pair of ports that are
    # apart begins the count anew.
    for member in range(len(n_conflicts)):
        if not is_member[member] or tabu_until[member] > step or n_conflicts[member] != most:
            continue
        for port in range(len(n_conflicts)):
            if is_member[port] or tabu_until[port] > step or n_conflicts[port] != fewest:
                continue
            if is_excluded[member, port] and not is_excluded_pair:
                is_excluded_pair = True
                n_equal = 0
            if is_excluded[member, port] == is_excluded_pair:
                n_equal += 1
                if draw_below(state.draws, n_equal) == 0:
                    leaving = member
                    coming = port
    return leaving, coming


@kernel
def search_clique(
    is_excluded: NDArray[np.bool_], state: CliqueState, first_step: int, last_step: int
) -> int:
    """Exchange members of a set of ports until no two of them are apart: tabu search for a clique.

    Two ports are apart if they cannot be members together. An exchange takes as many operations as
    there are ports, and as many as there are pairs of equally good ones. Calls for steps 0 to 9
    and 10 to 19 do what one call for 0 to 19 does.

    Parameters
    ----------
    is_excluded
        ``is_excluded[port, port]``: whether two ports are apart; symmetric.
    state
        The set of ports (``is_member``), ``n_conflicts[port]``, the number of members that a port
        is apart from, and ``tabu_until[port]``, the step from which on it may be exchanged.
    first_step, last_step
        The exchanges to make, numbered from the start of the search; the last one is excluded.

    Returns
    -------
    int
        How many pairs of members are apart; 0 if the set is a clique of ports that go together.
    """
    is_member = state.is_member
    n_conflicts = state.n_conflicts
    n_ports = len(is_member)
    n_members = 0
    total = 0
    for member in range(n_ports):
        if is_member[member]:
            n_members += 1
            total += n_conflicts[member]
    total //= 2  # each pair counts at both of its members

    for step in range(first_step, last_step):
        if total == 0:
            break
        leaving, coming = _choose_exchange(is_excluded, state, step)
        if leaving < 0:
            continue
        # A pair that is apart counts among the conflicts of the coming port, but its member
        # leaves.
        total += n_conflicts[coming] - n_conflicts[leaving] - is_excluded[leaving, coming]
        is_member[leaving] = False
        is_member[coming] = True
        for port in range(n_ports):
            n_conflicts[port] += int(is_excluded[coming, port]) - int(is_excluded[leaving, port])

        # Tenures of the paper: longer where more conflicts are left, and random.
        tenure = min(total, 10)
        leaving_tenure = tenure + draw_below(state.draws, max(n_members // 40, 6))
        coming_tenure = (6 * tenure) // 10 + draw_below(
            state.draws, max(n_members // 40 * 6 // 10, 4)
        )
        state.tabu_until[leaving] = step + 1 + leaving_tenure
        state.tabu_until[coming] = step + 1 + coming_tenure
    return total
