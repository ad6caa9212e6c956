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

    # ``n_owned[group]`` is the supply of the classes that it owns; ``waits[group]`` says how long
    # each job of its queue takes the group's supply, and ``ends[group]`` when each has all that it
    # wants, both in the unit of demand over supply.
    n_owned: list[float] = (owned @ supply_of_class).tolist()
    waits = [residuals[jobs] / n_reached[group] for group, jobs in enumerate(groups)]
    ends = [np.cumsum(waits_of_group) for waits_of_group in waits]
    has_lost_all = [False] * len(groups)

    # From the largest to the smallest, groups take classes over from smaller ones, the largest of
    # these first: ``gains[small]`` is the supply of what a group can take over.
    for place in range(len(groups) - 1, 0, -1):
        large = from_scarcest[place]
        if has_lost_all[large]:
            continue
        gains = ((owned & reach[large]) @ supply_of_class).tolist()
        for small in reversed(from_scarcest[:place]):
            if gains[small] <= 0:
                continue

            # How many jobs, from the front of the large group's queue, wait longer together than
            # all jobs of the small group: 6 of them for a supply of 10 are more than 2 jobs for a
            # supply of 5, and take classes over. Ratios of jobs to supply are compared as
            # products, so that a group without supply is no division by zero.
            n_earlier = int(ends[large].searchsorted(ends[small][-1], side="right"))
            n_affected = min(n_earlier + 1, len(ends[large]))
            if n_affected * n_owned[small] <= len(waits[small]) * n_owned[large]:
                break

            # The large group gets the classes that may serve it, and the queue of the small group
            # behind its own.
            owned[large] |= owned[small] & reach[large]
            owned[small] &= ~reach[large]
            n_owned[large] += gains[small]
            n_owned[small] = float(supply_of_class[owned[small]].sum())
            has_lost_all[small] = not owned[small].any()
            waits[large] = np.concatenate((waits[large], waits[small]))
            ends[large] = np.cumsum(waits[large])
    return GroupPlan(groups, owned)


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
