"""Bandwidth steering: the ports of chips, shared among rings such that the least gets the most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    r"""Share the ports of each chip among the rings of communication that pass it.

    In a ring each chip sends to the next one, the last to the first. For each unit of bandwidth a
    ring takes two ports of each of its chips, one to either neighbour. Each ring has a demand. The
    least ratio of bandwidth to demand over all rings, the level, is maximised.

    Parameters
    ----------
    rings
        The numbers of the chips of each ring, in order; `optmatch.problems.slice_rings` makes
        those of a slice.
    demands : shape (rings,)
        The demand of each ring, > 0, in any unit; None for equal ones.
    ports
        The number of ports of a chip.
    link_units
        The most ports that a ring can use on one side of a chip; None for no limit.

    Returns
    -------
    Steering
        Two answers, one for ports that can be divided and one for whole ports:

        - ``shares[chip, ring]``: the part of the ports of a chip that a ring gets; `level`: the
          least bandwidth over demand, in ports; `chip_prices` and `link_prices`, the proof of
          optimality, which `optmatch.verify.check_steering` checks;
        - ``units[ring]``: the whole ports that each chip gives to either side.

    Raises
    ------
    InputError
        Naming the ring or demand that is wrong.

    Notes
    -----
    The bandwidths of all rings rise together, each in proportion to its demand, until the first
    chip or link is full (progressive filling). Whole ports are dealt out one by one, each to the
    ring with the least units over demand. Until the best least ratio is reached no ring has got
    more than it needs for that ratio, so none is left without: whole ports allow no larger one.

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
    # At the level all rings have the same bandwidth over demand. A ring of bandwidth b takes 2 b
    # ports of each of its chips.
    checked_rings, checked_demands = check_rings(rings, demands, ports, link_units)
    task = _Task(checked_rings, checked_demands, ports, link_units)
    level, chip_prices, link_prices = _fill_level(task)
    shares = np.zeros((task.n_chips, len(checked_rings)))
    for number, ring in enumerate(checked_rings):
        shares[list(ring), number] = 2 * level * checked_demands[number] / ports
    return Steering(
        rings=checked_rings,
        demands=checked_demands,
        ports=ports,
        link_units=link_units,
        shares=shares,
        level=level,
        units=_deal_whole_ports(task),
        chip_prices=chip_prices,
        link_prices=link_prices,
    )


class _Task(NamedTuple):
    """The question, checked."""

    rings: tuple[Ring, ...]
    """The numbers of the chips of each ring, in order."""
    demands: NDArray[np.float64]
    """``demands[ring]``, above 0."""
    ports: int
    """The ports of a chip."""
    link_units: float | None
    """The most ports of a ring on one side of a chip; None for no limit."""

    @property
    def n_chips(self) -> int:
        """One more than the largest number of a chip."""
        return 1 + max((chip for ring in self.rings for chip in ring), default=-1)


def _fill_level(task: _Task) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the best least ratio of units to demand, and the dual's prices of chips and of links.

    One chip or one link holds the ratio down. That part alone has a price. Prices are by chip, and
    by ring for the links of a ring.
    """
    chip_prices = np.zeros(task.n_chips)
    link_prices = np.zeros(len(task.rings))
    if not len(task.demands):
        return 0.0, chip_prices, link_prices

    # A ring takes two ports of each of its chips for a unit.
    demand_of_chip = np.zeros(task.n_chips)
    for ring, demand in zip(task.rings, task.demands.tolist(), strict=True):
        demand_of_chip[list(ring)] += demand
    busiest_chip = int(demand_of_chip.argmax())
    level = task.ports / (2 * float(demand_of_chip[busiest_chip]))

    # All links are alike, so the ring with the largest demand meets that limit first.
    largest_ring = int(task.demands.argmax())
    largest_demand = float(task.demands[largest_ring])
    if task.link_units is not None and task.link_units / largest_demand < level:
        link_prices[largest_ring] = 1 / largest_demand
        return task.link_units / largest_demand, chip_prices, link_prices
    chip_prices[busiest_chip] = level
    return level, chip_prices, link_prices


def _deal_whole_ports(task: _Task) -> NDArray[np.int64]:
    """Deal whole ports out, a unit at a time: two ports of each chip of a ring.

    The ring with the least units over demand is served first. A ring that has reached the link, or
    one of whose chips is full, gets no more. The result is ``units[ring]``.
    """
    most_units = task.ports // 2
    if task.link_units is not None:
        most_units = int(min(task.link_units, most_units))
    units_left = np.full(task.n_chips, task.ports // 2)
    units = np.zeros(len(task.rings), dtype=np.int64)
    open_rings = set(range(len(task.rings)))

    # The ring with the least for its demand gets a unit at all of its chips, until none can.
    while open_rings:
        ring = min(open_rings, key=lambda ring: (units[ring] / task.demands[ring], ring))
        chips = list(task.rings[ring])
        if units[ring] < most_units and (units_left[chips] > 0).all():
            units_left[chips] -= 1
            units[ring] += 1
        else:
            open_rings.remove(ring)
    return units
