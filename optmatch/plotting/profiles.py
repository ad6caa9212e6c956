"""Performance profiles: how often each method is within a factor of the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_MAX_FACTOR = 10.0
"""Methods that are further from the best are not told apart."""


class ProfileData(NamedTuple):
    """The steps of a performance profile."""

    most: float
    """The last factor on the axis."""
    lines: dict[str, list[tuple[float, float]]]
    """By method: points (factor, share of the tasks within it), rising."""


def profile_data(ratios: Mapping[str, Sequence[float]]) -> ProfileData:
    """Lay out how often each method is within a factor of the best.

    Parameters
    ----------
    ratios
        By method, for each task, how many times the best it is; infinite if it has no answer.

    Examples
    --------
    >>> profile_data({"a": [1.0, 2.0], "b": [math.inf, 1.0]}).lines["a"]
    [(1.0, 0.5), (2.0, 1.0), (2.1, 1.0)]
    """
    finite = [ratio for row in ratios.values() for ratio in row if math.isfinite(ratio)]
    most = min(_MAX_FACTOR, max([*finite, 1.02]) * 1.05)
    lines = {}
    for method, row in ratios.items():
        points = [(1.0, 0.0)]
        for n_tasks, ratio in enumerate(sorted(row), start=1):
            if ratio <= most:
                points.append((ratio, n_tasks / len(row)))
        points.append((most, points[-1][1]))
        share_at = dict(points)  # of equal factors the last share counts
        lines[method] = [(factor, share_at[factor]) for factor in sorted(share_at)]
    return ProfileData(most, lines)
