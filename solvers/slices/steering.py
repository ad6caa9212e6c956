"""Bandwidth steering: the ports of chips, shared among rings such that the least gets the most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optmatch.problems.slices.shape import Steering, check_rings


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
        The demand of each ring, 1e-100 to 1e100, in any unit; None for equal ones.
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
    checked_rings, checked_demands = check_rings(rings, demands, ports, link_units)
    n_chips = 1 + max((chip for ring in checked_rings for chip in ring), default=-1)

    # The level: the bandwidths of all rings over their demands, until one chip or one link holds
    # them down. That part alone has a price. A ring takes two ports of each of its chips for a
    # unit. All links are alike, so the ring with the largest demand meets their limit first.
    level = 0.0
    chip_prices = np.zeros(n_chips)
    link_prices = np.zeros(len(checked_rings))
    if checked_rings:
        demand_of_chip = np.zeros(n_chips)
        for ring, demand in zip(checked_rings, checked_demands.tolist(), strict=True):
            demand_of_chip[list(ring)] += demand
        busiest_chip = int(demand_of_chip.argmax())
        level = ports / (2 * float(demand_of_chip[busiest_chip]))
        largest_ring = int(checked_demands.argmax())
        largest_demand = float(checked_demands[largest_ring])
        if link_units is not None and link_units / largest_demand < level:
            level = link_units / largest_demand
            link_prices[largest_ring] = 1 / largest_demand
        else:
            chip_prices[busiest_chip] = level

    # A ring of bandwidth b takes 2 b ports of each of its chips.
    shares = np.zeros((n_chips, len(checked_rings)))
    for ring_number, ring in enumerate(checked_rings):
        shares[list(ring), ring_number] = 2 * level * checked_demands[ring_number] / ports

    # Whole ports are dealt out a unit at a time: two ports of each chip of a ring, to the ring
    # with the least units over demand. A ring that has reached the link, or one of whose chips is
    # full, gets no more.
    most_units = ports // 2
    if link_units is not None:
        most_units = int(min(link_units, most_units))
    units_left = np.full(n_chips, ports // 2)
    units = np.zeros(len(checked_rings), dtype=np.int64)
    open_rings = set(range(len(checked_rings)))
    while open_rings:
        ring_number = min(open_rings, key=lambda ring: (units[ring] / checked_demands[ring], ring))
        chips = list(checked_rings[ring_number])
        if units[ring_number] < most_units and (units_left[chips] > 0).all():
            units_left[chips] -= 1
            units[ring_number] += 1
        else:
            open_rings.remove(ring_number)
    return Steering(
        rings=checked_rings,
        demands=checked_demands,
        ports=ports,
        link_units=link_units,
        shares=shares,
        level=level,
        units=units,
        chip_prices=chip_prices,
        link_prices=link_prices,
    )
