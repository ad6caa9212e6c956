"""Sets of servers that too few circuits can leave for a slice to keep a load."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import SliceShape
from optmatch.problems.slices.shape import Shape, cut_shape
from optmatch.solvers.slices.search import Rack

MOST = 16
"""All subsets of so many servers, and of so many slots, are looked at."""


def find_cut(rack: Rack, plan: SliceShape, server: Shape, largest: int) -> list[int] | None:
    """Find a set of servers that shows that no slice in this rack has a load of at most `largest`.

    Of all sets the one that misses most, servers counted from the first of the rack, then
    switches, which count as servers that are not free; None if no set does, or there are more than
    ``MOST`` of them or of slots.

    What `optmatch.problems.LoadProof` states, for all sets at once: time and memory
    :math:`O(2^n m)` for n servers and m edges.
    """
    count = int(rack.edges.max(initial=-1)) + 1
    if not count or count > MOST or plan.n_slots > MOST or not len(plan.pairs):
        return None
    step = int(np.gcd.reduce(plan.weights))
    room = np.maximum(np.minimum(largest, rack.fibres) - rack.loads, 0) // step * step
    members, leaving = _subsets(count, rack.edges.tobytes())
    out = leaving @ room.astype(np.float32)
    free = np.zeros(count, dtype=np.float32)
    free[rack.servers] = 1
    within = (members @ free).astype(np.int64)
    total, slots = len(rack.servers), plan.n_slots
    least = np.maximum(0, slots - total + within)
    most = np.minimum(slots, within)
    needed = _fewest_between(plan.shape, server)[least, most]
    missing = needed - np.minimum(out, out[::-1])  # the complement of a set: what arrives there
    worst = int(missing.argmax())
    return np.flatnonzero(members[worst]).tolist() if missing[worst] > 0 else None


@lru_cache(maxsize=8)
def _subsets(count: int, edges: bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tell for each set of servers who is in it, and which edges leave it."""
    members = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    ends = np.frombuffer(edges, dtype=np.int64).reshape(-1, 2)
    leaving = members[:, ends[:, 0]] > members[:, ends[:, 1]]
    return members.astype(np.float32), leaving.astype(np.float32)


@lru_cache(maxsize=64)
def _fewest_between(shape: Shape, server: Shape) -> NDArray[np.int64]:
    """Return ``fewest[a, b]``: circuits that leave any set of a to b slots, at least."""
    plan = cut_shape(shape, server)
    sets = np.arange(1 << plan.n_slots)
    leaving = np.zeros(len(sets), dtype=np.int64)
    for (a, b), weight in zip(plan.pairs.tolist(), plan.weights.tolist(), strict=True):
        leaving += weight * ((sets >> a & 1) > (sets >> b & 1))
    sizes = sum(((sets >> slot & 1) for slot in range(plan.n_slots)), np.zeros_like(sets))
    single = [int(leaving[sizes == size].min()) for size in range(plan.n_slots + 1)]
    fewest = np.zeros((len(single), len(single)), dtype=np.int64)
    for a in range(len(single)):
        fewest[a, a:] = np.minimum.accumulate(single[a:])
    return fewest
