"""Policies: which job is served first. Small functions on arrays, for methods and simulations.

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


def las(given: ArrayLike) -> Priority:
    """Serve first the job that has got the least in all its rounds (least attained service)."""
    return 0.0 - np.asarray(given, dtype=np.float64)


class GroupPlan(NamedTuple):
    """What `plan_groups` decides."""

    groups: list[NDArray[np.intp]]
    """Jobs that the same classes may serve, those that want the least first."""
    owned: NDArray[np.bool_]
    """``owned[group, class]``: the group whose jobs a class serves; of one group at most."""


def plan_groups(eligible: ArrayLike, supply: ArrayLike, residual: ArrayLike) -> GroupPlan:
    r"""Share the classes among groups of jobs, as Venn does.

    Returns groups in the order of their first jobs, without those that nobody can serve.

    Let :math:`S_j` be the classes that may serve group j, and :math:`|S_j|` their supply. First,
    from the smallest :math:`|S_j|` to the largest, each group takes what is left of its classes,
    :math:`S'_j`. Then, from the largest to the smallest, a group j looks at the smaller groups k
    that own classes of :math:`S_j`, the largest first. As long as :math:`m'_j / |S'_j| > m_k /
    |S'_k|` it takes :math:`S_j \cap S'_k` over. Here :math:`m_k` is the length of the queue of k,
    and :math:`m'_j` that of the shortest start of the queue of j that waits longer than all of the
    queue of k, where a job of group g waits demand over :math:`|S_g|`. The queue of k then stands
    behind that of j, and both ratios are those after all mergers so far. The ratios are compared
    as products, so a group that got nothing at first is no division by zero. A group that lost all
    that it had takes nothing over.

    Parameters
    ----------
    eligible
        ``eligible[class, job]``.
    supply
        ``supply[class]``: how many resources there are, or come each second.
    residual
        ``residual[job]``: the resources that it still wants; a job with 0 takes no part.

    References
    ----------
    .. [1] Liu, Lai, Ding, Zhang, Chowdhury (2025). Venn: Resource Management for Collaborative
       Learning Jobs. MLSys. arXiv:2312.08298, section 4.
    """
    may = np.asarray(eligible, dtype=np.bool_)
    supplied, wants = np.asarray(supply, dtype=np.float64), np.asarray(residual)
    groups, reach = _group(may, wants, supplied)
    size = reach @ supplied
    ascending = size.argsort(kind="stable").tolist()
    owned = np.zeros_like(reach)
    free = np.ones(len(supplied), dtype=np.bool_)
    for group in ascending:
        owned[group] = reach[group] & free
        free &= ~reach[group]
    has = (owned @ supplied).tolist()
    waits = [wants[jobs] / size[group] for group, jobs in enumerate(groups)]
    until = [np.cumsum(each) for each in waits]  # when each job of the queue has all
    lost = [False] * len(groups)
    descending = ascending[::-1]
    for place, large in enumerate(descending[:-1]):
        if lost[large]:
            continue
        gains = ((owned & reach[large]) @ supplied).tolist()
        for small in descending[place + 1 :]:
            if gains[small] <= 0:
                continue
            before = int(until[large].searchsorted(until[small][-1], side="right"))
            affected = min(before + 1, len(until[large]))
            if affected * has[small] <= len(waits[small]) * has[large]:
                break
            owned[large] |= owned[small] & reach[large]
            owned[small] &= ~reach[large]
            has[large] += gains[small]
            has[small] = float(supplied[owned[small]].sum())
            lost[small] = not owned[small].any()
            waits[large] = np.concatenate((waits[large], waits[small]))
            until[large] = np.cumsum(waits[large])
    return GroupPlan(groups, owned)


def irs(eligible: ArrayLike, supply: ArrayLike, residual: ArrayLike) -> Priority:
    """Serve in each class its owning group, and in the group the job that wants the least (Venn).

    Parameters and sources are those of `plan_groups`. Returns ``priority[class, job]``.
    """
    plan = plan_groups(eligible, supply, residual)
    priority = np.full(np.shape(eligible), -np.inf)
    wanted = -np.asarray(residual, dtype=np.float64)
    for jobs, classes in zip(plan.groups, plan.owned, strict=True):
        priority[classes.nonzero()[0][:, None], jobs] = wanted[jobs]
    return priority


def match_tiers(
    priority: Priority, tier: ArrayLike, slowness: ArrayLike, ratio: ArrayLike, draws: ArrayLike
) -> Priority:
    """Let only one tier of speed serve a job in front, where that is worth the longer wait (Venn).

    Returns the priorities, with minus infinity for the other tiers of a job that is restricted.

    With V tiers, one of which is drawn, gathering takes V times as long; answering takes
    ``slowness`` times as long. A job with ratio c is restricted where V + slowness c < 1 + c. A
    job is in front where a class would serve it.

    Parameters
    ----------
    priority
        ``priority[class, job]``: who would be served.
    tier
        ``tier[class]``: 0 is the fastest.
    slowness
        ``slowness[tier]``: its 95th percentile of response times over that of all devices.
    ratio
        ``ratio[job]``: the response time of its rounds over the time that they gather devices.
    draws
        ``draws[job]``: in [0, 1), picks the tier.
    """
    tiers, factor = np.asarray(tier), np.asarray(slowness, dtype=np.float64)
    c = np.asarray(ratio, dtype=np.float64)
    drawn = (np.asarray(draws) * len(factor)).astype(np.intp)
    found = np.array(priority, dtype=np.float64)
    if not found.size:
        return found
    first = found.argmax(axis=1)
    front = {*first[found[np.arange(len(found)), first] > -np.inf].tolist()}
    for job in front & {*(len(factor) + factor[drawn] * c < 1 + c).nonzero()[0].tolist()}:
        found[tiers != drawn[job], job] = -np.inf
    return found


def _group(
    may: NDArray[np.bool_], wants: NDArray[np.int64], supply: NDArray[np.float64]
) -> tuple[list[NDArray[np.intp]], NDArray[np.bool_]]:
    """Group the jobs that want something by the classes that may serve them."""
    there = may & (supply > 0)[:, None]
    jobs = np.flatnonzero((wants > 0) & there.any(axis=0))
    members: dict[bytes, list[int]] = {}
    keys = np.packbits(there[:, jobs], axis=0).tobytes()  # a row of bytes for eight classes each
    for place, job in enumerate(jobs.tolist()):
        members.setdefault(keys[place :: len(jobs)], []).append(job)
    groups = [np.array(found) for found in members.values()]
    groups = [jobs[wants[jobs].argsort(kind="stable")] for jobs in groups]
    reach = np.array([there[:, jobs[0]] for jobs in groups], dtype=np.bool_)
    return groups, reach.reshape(len(groups), len(supply))
