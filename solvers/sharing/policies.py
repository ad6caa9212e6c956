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
    r"""Decide which jobs each class of resources serves, by the rule of Venn.

    A class is all resources that may serve the same jobs, and a group is all jobs that the same
    classes may serve. A group gets classes of its own, which it *owns*; its jobs stand in a queue.
    The *supply* of some classes is how many resources they have. There are two steps:

    1. From the group with the smallest supply to that with the largest, each takes those of its
       classes that no other one has taken.
    2. From the largest to the smallest, each group takes classes over from smaller ones, the
       largest of these first, as long as it has more jobs for its supply than they have.

    The rule of the second step: let :math:`S_g` be the classes that may serve group g, and
    :math:`S'_g` those that it owns; :math:`|S|` is the supply of classes. A job of group g waits
    its demand over :math:`|S_g|`. Group j takes :math:`S_j \cap S'_k` over from group k if
    :math:`m'_j / |S'_j| > m_k / |S'_k|`. Here :math:`m_k` is the number of jobs in the queue of k.
    :math:`m'_j` is the least number of jobs, from the front of the queue of j, that wait longer
    together than all jobs of k. The queue of k is then put behind that of j. A group that lost all
    that it had takes nothing over.

    Parameters
    ----------
    eligible : array, shape (classes, jobs)
        Whether the resources of a class may serve a job.
    supply : array, shape (classes,)
        How many resources of each class there are, or come each second.
    residual : array, shape (jobs,)
        The resources that each job still wants; a job with 0 takes no part.

    Returns
    -------
    GroupPlan
        The jobs of each group, and ``owned[group, class]``: whether a group owns a class. Groups
        are in the order of their first jobs, without those that nobody can serve.

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
        """Begin with what groups of jobs own, before any group takes classes over from another.

        A class is all resources that may serve the same jobs, and a group is all jobs that the
        same classes may serve. The arrays are kept and changed.

        Parameters
        ----------
        supply : array, shape (classes,)
            How many resources each class has.
        reach, owned : arrays, shape (groups, classes)
            Whether a class may serve a group, and whether the group owns it.
        n_owned : list, one number for each group
            The supply of the classes that it owns.
        waits : list of arrays, shape (jobs of the group,)
            For each group its jobs in order: what each wants, over the supply of all classes that
            may serve the group.
        """
        self.supply = supply
        self.reach = reach
        self.owned = owned
        self.n_owned = n_owned
        self.waits = waits
        self.ends = [np.cumsum(waits_of_group) for waits_of_group in waits]
        self.has_lost_all = [False] * len(waits)


def _take_over(state: _Takeover, large: int, smaller_groups: list[int]) -> None:
    """Let a group of jobs take classes of resources over from smaller groups.

    A group is all jobs that the same classes may serve. It owns some of these classes, and its
    jobs stand in a queue. The supply of classes is how many resources they have. The group goes
    on with the next smaller one as long as it has more jobs than that one for its supply.

    Parameters
    ----------
    state
        The classes that groups own, with these fields; all but the first two are changed:

        - ``supply[class]``: the resources of a class;
        - ``reach[group, class]``: whether a class may serve a group;
        - ``owned[group, class]``, ``n_owned[group]``: what a group owns, and its supply;
        - ``waits[group]``: how long each job of the queue takes the group's supply, as its demand
          over the supply; ``ends[group]``: their sums from the front of the queue on;
        - ``has_lost_all[group]``: whether nothing is left of what it owned.
    large
        The number of the group that takes classes over.
    smaller_groups
        The groups of less supply, the largest first.
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

    Sources are those of `plan_groups`.

    Parameters
    ----------
    eligible
        ``eligible[class, job]``.
    supply
        ``supply[class]``: how many resources there are, or come each second.
    residual
        ``residual[job]``: the resources that it still wants; a job with 0 takes no part.

    Returns
    -------
    float array, shape (classes, jobs)
        ``priority[class, job]``: minus infinity for jobs that the class does not serve.
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
    """Put jobs that the same classes of resources may serve into one group.

    Parameters
    ----------
    may_serve : array, shape (classes, jobs)
        Whether the resources of a class may serve a job.
    residuals : array, shape (jobs,)
        How many resources each job still wants; jobs that want none are left out.
    supply : array, shape (classes,)
        How many resources each class has; classes without any are left out.

    Returns
    -------
    groups : list of arrays
        The numbers of the jobs of each group, those that want the least first.
    reach : bool array, shape (groups, classes)
        Whether a class may serve the jobs of a group.
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
