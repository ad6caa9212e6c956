"""Policies: which job is served first. Small functions on arrays.

Each returns ``priority[job]``, or ``priority[class, job]`` where it depends on the resource: a
resource serves the job of the highest priority that asks and that it may serve, of equals the
first, and never one with minus infinity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Priority = NDArray[np.float64]


def fifo(asked_s: ArrayLike) -> Priority:
    """Serve the job that asked first (Propius, `fifo_scheduler`)."""
    return 0.0 - np.asarray(asked_s, dtype=np.float64)


def random(draws: ArrayLike) -> Priority:
    """Serve in the order of numbers drawn once for each request (Propius, `random_scheduler`)."""
    return np.array(draws, dtype=np.float64)


def srsf(residual: ArrayLike) -> Priority:
    """Serve first the job that wants the least in its round (Propius, `srsf_scheduler`)."""
    return 0.0 - np.asarray(residual, dtype=np.float64)


class GroupPlan(NamedTuple):
    """Groups of jobs, and which of them owns which class."""

    groups: list[NDArray[np.intp]]
    """Jobs that the same classes may serve, those that want the least first."""
    owned: NDArray[np.bool_]
    """``owned[group, class]``: the group whose jobs a class serves; of one group at most."""


def plan_groups(eligible: ArrayLike, supply: ArrayLike, residual: ArrayLike) -> GroupPlan:
    r"""Decide which jobs each class of resources serves, by the rule of Venn [1]_.

    ``eligible[class, job]`` tells whether a class may serve a job, ``supply[class]`` is how many
    resources it has, and ``residual[job]`` how many the job still wants. A group is all jobs that
    the same classes may serve; its jobs stand in a queue, those that want the least first.
    There are two steps:

    1. From the group with the smallest supply to that with the largest, each takes those of its
       classes that no other one has taken.
    2. From the largest to the smallest, each group takes classes over from smaller ones, the
       largest of these first, as long as it has more jobs for its supply than they have.

    In the second step, let :math:`S_g` be the classes that may serve group g, and :math:`S'_g`
    those that it owns. A job of group g waits its demand over :math:`|S_g|`. Group j takes
    :math:`S_j \cap S'_k` over from group k if :math:`m'_j / |S'_j| > m_k / |S'_k|`, where
    :math:`m_k` is the length of the queue of k, and :math:`m'_j` the least number of jobs, from
    the front of the queue of j, that wait longer together than all jobs of k. The queue of k is
    then put behind that of j. A group that lost all that it had takes nothing over.

    References
    ----------
    .. [1] Liu, Lai, Ding, Zhang, Chowdhury (2025). Venn: Resource Management for Collaborative
       Learning Jobs. MLSys. arXiv:2312.08298, section 4.
    """
    # ``groups[group]`` are its jobs, those that want the least first; ``reach[group, class]`` is
    # whether a class may serve them.
    may_serve = np.asarray(eligible, dtype=np.bool_)
    supply_of_class = np.asarray(supply, dtype=np.float64)
    residuals = np.asarray(residual)
    groups, reach = _group_jobs(may_serve, residuals, supply_of_class)
    n_reached = reach @ supply_of_class  # by group: its supply if it were alone

    # From the smallest supply to the largest, each group takes what is left of its classes.
    from_scarcest = n_reached.argsort(kind="stable").tolist()
    owned = np.zeros_like(reach)
    is_free = np.ones(len(supply_of_class), dtype=np.bool_)
    for group in from_scarcest:
        owned[group] = reach[group] & is_free
        is_free &= ~reach[group]

    # From the largest to the smallest, groups take classes over from smaller ones.
    state = _Takeover(
        supply=supply_of_class,
        reach=reach,
        owned=owned,
        n_owned=(owned @ supply_of_class).tolist(),
        waits=[residuals[jobs] / n_reached[group] for group, jobs in enumerate(groups)],
    )
    for place, large in enumerate(reversed(from_scarcest)):
        smaller = from_scarcest[: len(from_scarcest) - 1 - place]
        _take_over(state, large, smaller[::-1])
    return GroupPlan(groups, owned)


class _Takeover:
    """Which group owns which classes, and how long its queue is, while groups take classes over.

    The attributes are the arguments, and two that follow from them.

    Attributes
    ----------
    supply
        ``supply[class]``.
    reach
        ``reach[group, class]``: whether a class may serve the jobs of a group.
    owned
        ``owned[group, class]``, changed.
    n_owned
        ``n_owned[group]``: the supply of its classes, changed.
    waits
        ``waits[group]``: how long each job of its queue takes the group's supply, in the unit of
        demand over supply; changed.
    ends
        ``ends[group]``: when each job of its queue has all that it wants, in the same unit;
        changed.
    has_lost_all
        ``has_lost_all[group]``: whether other groups have taken over all classes of a group;
        changed.
    """

    def __init__(
        self,
        *,
        supply: NDArray[np.float64],
        reach: NDArray[np.bool_],
        owned: NDArray[np.bool_],
        n_owned: list[float],
        waits: list[NDArray[np.float64]],
    ) -> None:
        self.supply = supply
        self.reach = reach
        self.owned = owned
        self.n_owned = n_owned
        self.waits = waits
        self.ends = [np.cumsum(waits_of_group) for waits_of_group in waits]
        self.has_lost_all = [False] * len(waits)


def _take_over(state: _Takeover, large: int, smaller_groups: list[int]) -> None:
    """Let group `large` take classes over from groups of less supply, the largest of these first.

    Changes what `state` says of both groups: classes, supply and queues. It goes on as long as it
    has more jobs for its supply than the next smaller group.
    """
    # ``gains[group]``: the supply of what this group could take over from another one.
    if state.has_lost_all[large]:
        return
    gains = ((state.owned & state.reach[large]) @ state.supply).tolist()
    for small in smaller_groups:
        if gains[small] <= 0:
            continue

        # How many jobs, from the front of the large group's queue, wait longer together than all
        # jobs of the small group. Ratios of jobs to supply are compared as products, so that a
        # group without supply is no division by zero.
        last_end = state.ends[small][-1]
        n_earlier = int(state.ends[large].searchsorted(last_end, side="right"))
        n_affected = min(n_earlier + 1, len(state.ends[large]))
        n_small = len(state.waits[small])
        if n_affected * state.n_owned[small] <= n_small * state.n_owned[large]:
            break

        # The large group gets the classes that may serve it, and the queue of the small group
        # behind its own.
        state.owned[large] |= state.owned[small] & state.reach[large]
        state.owned[small] &= ~state.reach[large]
        state.n_owned[large] += gains[small]
        state.n_owned[small] = float(state.supply[state.owned[small]].sum())
        state.has_lost_all[small] = not state.owned[small].any()
        state.waits[large] = np.concatenate((state.waits[large], state.waits[small]))
        state.ends[large] = np.cumsum(state.waits[large])


def irs(eligible: ArrayLike, supply: ArrayLike, residual: ArrayLike) -> Priority:
    """Serve in each class its owning group, and in the group the job that wants the least (Venn).

    ``priority[class, job]`` is minus infinity for jobs that the class does not serve. The
    arguments are those of `plan_groups`.
    """
    plan = plan_groups(eligible, supply, residual)
    priority = np.full(np.shape(eligible), -np.inf)
    shortest_first = -np.asarray(residual, dtype=np.float64)
    for jobs, is_owned in zip(plan.groups, plan.owned, strict=True):
        classes = is_owned.nonzero()[0]
        priority[classes[:, None], jobs] = shortest_first[jobs]
    return priority


def _group_jobs(
    may_serve: NDArray[np.bool_], residuals: NDArray[np.int64], supply: NDArray[np.float64]
) -> tuple[list[NDArray[np.intp]], NDArray[np.bool_]]:
    """Put jobs that the same classes may serve into one group, those that want the least first.

    ``may_serve[class, job]``; ``residuals[job]`` is how many ports a job still wants,
    ``supply[class]`` how many a class has. Jobs that want nothing and classes without supply are
    left out. The second result is ``reach[group, class]``: whether a class may serve the jobs of a
    group.
    """
    serves = may_serve & (supply > 0)[:, None]
    jobs = np.flatnonzero((residuals > 0) & serves.any(axis=0))

    # The column of a job, packed to bits, is its key. `packbits` packs eight classes to a row of
    # bytes, so the bytes of a job stand as far apart as there are jobs.
    jobs_of_key: dict[bytes, list[int]] = {}
    packed = np.packbits(serves[:, jobs], axis=0).tobytes()
    for place, job in enumerate(jobs.tolist()):
        key = packed[place :: len(jobs)]
        jobs_of_key.setdefault(key, []).append(job)

    groups = []
    for members in jobs_of_key.values():
        jobs_of_group = np.array(members)
        shortest_first = residuals[jobs_of_group].argsort(kind="stable")
        groups.append(jobs_of_group[shortest_first])
    reach = np.array([serves[:, jobs_of_group[0]] for jobs_of_group in groups], dtype=np.bool_)
    return groups, reach.reshape(len(groups), len(supply))
