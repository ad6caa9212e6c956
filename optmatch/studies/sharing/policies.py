"""The policies of the study by their names, for pools in time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optmatch.model import InputError
from optmatch.simulation.sharing.pool import Pool
from optmatch.simulation.sharing.replay import Moment, Policy
from optmatch.solvers.sharing import policies
from optmatch.solvers.sharing.policies import Priority


def scarce(now: Moment, *, keen: float = 0.85) -> Priority:
    r"""Serve least work on scarce devices first, and no round more than it needs: our own policy.

    A job of r rounds to come with demand D, which devices at a rate S may serve, has priority
    :math:`- r D S^2`: little work first, and of like work what has few devices. Once a round has
    had the part `keen` of its demand, a little more than the results that it needs, it has further
    devices, up to its over-selection, only from what no other job wants.

    The power of S and `keen` were chosen on four seeds that the study does not use.
    """
    supply = now.rates @ now.eligible
    priority = -(now.demand * now.rounds_left * (supply / supply.max()) ** 2)
    served: Priority = np.where(now.had >= keen * now.demand, priority + priority.min(), priority)
    return served


def _irs(pool: Pool) -> Policy:
    """Return `irs`, which need not tell tiers, nor jobs that do not ask."""
    kinds, kind_of = np.unique(pool.eligible.astype(np.bool_), axis=0, return_inverse=True)
    supply = np.bincount(kind_of.reshape(-1), weights=pool.rates)

    def irs(now: Moment) -> Priority:
        asking = np.flatnonzero(now.asks)
        priority = np.full(kinds.shape, -np.inf)
        priority[:, asking] = policies.irs(kinds[:, asking], supply, now.residual[asking])
        return priority[kind_of.reshape(-1)]

    return irs


def _venn(pool: Pool) -> Policy:
    """Return `irs` with tiers of speed for the jobs in front."""
    irs = _irs(pool)
    tier_of = pool.tier[pool.class_of]
    slow_s = np.array(
        [
            np.quantile(pool.response_s[tier_of == tier], 0.95) if (tier_of == tier).any() else 0
            for tier in range(int(pool.tier.max(initial=0)) + 1)
        ]
    )
    typical_s = float(np.quantile(pool.response_s, 0.95))
    ratio = typical_s * (pool.rates @ pool.eligible) / pool.demand

    def venn(now: Moment) -> Priority:
        slowness = slow_s / typical_s
        return policies.match_tiers(irs(now), now.tier, slowness, ratio, now.draws)

    return venn


_POLICIES: dict[str, Callable[[Pool], Policy]] = {
    "random": lambda pool: lambda now: policies.random(now.draws),
    "fifo": lambda pool: lambda now: policies.fifo(now.asked_s),
    "las": lambda pool: lambda now: policies.las(now.given),
    "srsf": lambda pool: lambda now: policies.srsf(now.residual),
    "irs": _irs,
    "venn": _venn,
    "scarce": lambda pool: scarce,
}
POLICIES = tuple(_POLICIES)


def make_policy(name: str, pool: Pool) -> Policy:
    """Return the policy of a name; ``"venn"`` is ``"irs"`` with tiers, ``"scarce"`` our own."""
    if name not in _POLICIES:
        told = f"policy {name!r}: one of {', '.join(POLICIES)}"
        raise InputError(told, where="policies")
    return _POLICIES[name](pool)
