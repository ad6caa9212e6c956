"""Bandwidth steering: the ports of chips, shared among rings such that the least gets the most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.slices.shape import Ring, Steering, check_rings


def steer(
    rings: Sequence[Sequence[int]],
    demands: Sequence[float] | None = None,
    *,
    ports: int = 6,
    link_units: float | None = None,
) -> Steering:
    r"""Share the ports of each chip among the rings through it.

    Parameters
    ----------
    rings
        The chips of each ring, in order; `optmatch.problems.slice_rings` has those of a slice.
    demands
        ``demands[ring]`` > 0; None for equal ones.
    ports
        Ports of a chip.
    link_units
        The most ports that a ring can use; None for no limit.

    Returns
    -------
    Steering
        With the exact optimum of the linear program and the prices of its dual, which
        `optmatch.verify.check_steering` checks; and with whole ports.

    Raises
    ------
    InputError
        Naming the ring or demand that is wrong.

    Notes
    -----
    All ratios of the program of `Steering` rise together until the first chip, or link, is full.
    Whole ports are dealt out one by one, each to the ring
    with the least units over demand. Until the best least ratio is reached no ring has got more
    than it needs for that ratio, so none is left without: whole ports allow no larger one.

    References
    ----------
    .. [1] Vijaya Kumar et al. (2025). Reconfigurable Torus Fabrics for Multi-tenant ML.
       arXiv:2508.03674

    Examples
    --------
    >>> from optmatch.problems import slice_rings
    >>> steering = steer(slice_rings((2, 2, 1)))
    >>> steering.level, steering.units.tolist()
    (3.0, [3])
    >>> steer(slice_rings((2, 2, 4)), [2] * 4 + [1] * 4).units.tolist()
    [2, 2, 2, 2, 1, 1, 1, 1]
    """
    checked, asked = check_rings(rings, demands, ports, link_units)
    chips = 1 + max((chip for ring in checked for chip in ring), default=-1)
    level, chip_prices, link_prices = _level(checked, asked, chips, ports, link_units)
    shares = np.zeros((chips, len(checked)))
    for r, ring in enumerate(checked):
        shares[list(ring), r] = 2 * level * asked[r] / ports
    return Steering(
        rings=checked,
        demands=asked,
        ports=ports,
        link_units=link_units,
        shares=shares,
        level=level,
        units=_deal(checked, asked, chips, ports, link_units),
        chip_prices=chip_prices,
        link_prices=link_prices,
    )


def _level(
    rings: tuple[Ring, ...],
    demands: NDArray[np.float64],
    chips: int,
    ports: int,
    link_units: float | None,
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the best level, which one chip or one link holds down, and the price of that part."""
    chip_prices, link_prices = np.zeros(chips), np.zeros(len(rings))
    if not len(demands):
        return 0.0, chip_prices, link_prices
    asked = np.zeros(chips)
    for ring, demand in zip(rings, demands.tolist(), strict=True):
        asked[list(ring)] += demand
    busiest, largest = int(asked.argmax()), int(demands.argmax())
    level = ports / (2 * float(asked[busiest]))
    if link_units is not None and link_units / demands[largest] < level:
        link_prices[largest] = 1 / demands[largest]
        return float(link_units / demands[largest]), chip_prices, link_prices
    chip_prices[busiest] = level
    return level, chip_prices, link_prices


def _deal(
    rings: tuple[Ring, ...],
    demands: NDArray[np.float64],
    chips: int,
    ports: int,
    link_units: float | None,
) -> NDArray[np.int64]:
    """Deal whole ports out, one pair at a time."""
    left = np.full(chips, ports // 2)
    units = np.zeros(len(rings), dtype=np.int64)
    most = ports // 2 if link_units is None else int(min(link_units, ports // 2))
    open_ = set(range(len(rings)))
    while open_:
        r = min(open_, key=lambda r: (units[r] / demands[r], r))
        ring = list(rings[r])
        if units[r] < most and (left[ring] > 0).all():
            left[ring] -= 1
            units[r] += 1
        else:
            open_.remove(r)
    return units
