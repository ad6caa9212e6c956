"""The rules of shared ports: no chip gives more than it has, and no level is larger."""

from __future__ import annotations

from fractions import Fraction

from optmatch.model import RTOL
from optmatch.model.declarations import form_of
from optmatch.problems import Steering
from optmatch.verify.report import Findings, Report, Rule, agree

LEVEL_IS_RECOMPUTED = Rule("the level is as recomputed")
NO_LEVEL_IS_LARGER = Rule("prices show that no level is larger")
CHIP_SHARES_WHAT_IT_HAS = Rule("a chip shares what it has")
MEMBERS_ALONE = Rule("members alone have shares")
CHIP_HAS_PORTS = Rule("a chip has so many ports")
RING_HAS_ALL_IT_CAN_USE = Rule("a ring has all whole ports it can use")


def check_steering(steering: Steering) -> Report:
    """Check how the chips of a slice share their ports among rings, in exact fractions.

    A ring is a cycle of chips around which data pass, and each of its chips, the members, gives it
    a share of its ports. Half of these ports send. The bandwidth of a ring, in ports that send, is
    that of its slowest member, and is at most `link_units`. The *level* is the least bandwidth
    over demand of all rings; a good answer has the largest one. Prices of chips and links are a
    solution of the dual linear program, and prove that no level is larger.

    Parameters
    ----------
    steering
        The answer: ``shares[chip, ring]`` as parts of 1, whole ports ``units[ring]``, the level,
        and the prices ``chip_prices[chip]`` and ``link_prices[ring]``, which are 0 or more.
        Only the ratios of prices count.

    Returns
    -------
    Report
        Broken rules, and the figures ``level``, recomputed from the shares, and ``upper_bound``,
        from the prices: infinite if they prove nothing. Both agree in an optimal answer.

    Examples
    --------
    >>> from optmatch.solvers.slices.steering import steer
    >>> report = check_steering(steer([(0, 1, 3, 2)]))
    >>> report.ok, report.figures["level"], report.figures["upper_bound"]
    (True, 3.0, 3.0)
    """
    form_of(Steering).check("steering", steering)
    findings = Findings()
    _check_shares(steering, findings)
    _check_units(steering, findings)

    # The claimed level is that of the shares, and the dual prices bound it by the same value.
    level = float(_recompute_level(steering))
    findings.figures["level"] = level
    if not agree(steering.level, level):
        findings.refuse(LEVEL_IS_RECOMPUTED, "level", steering.level, level)

    bound = _bound_level(steering)
    findings.figures["upper_bound"] = float("inf") if bound is None else float(bound)
    if bound is None or not agree(float(bound), level):
        shown = "none" if bound is None else float(bound)
        findings.refuse(NO_LEVEL_IS_LARGER, "chip_prices", shown, level)
    return findings.report()


def _recompute_level(steering: Steering) -> Fraction:
    """Compute the least ratio of bandwidth to demand, over all members of all rings.

    Half of the ports of a chip send. Without rounding, in ports for a unit of demand; 0 without
    rings.
    """
    sending_ports = Fraction(steering.ports, 2)
    levels = []
    for ring, members in enumerate(steering.rings):
        demand = Fraction(float(steering.demands[ring]))
        for chip in members:
            levels.append(sending_ports * Fraction(float(steering.shares[chip, ring])) / demand)
        if steering.link_units is not None:
            levels.append(Fraction(steering.link_units) / demand)
    return min(levels, default=Fraction(0))


def _check_shares(steering: Steering, findings: Findings) -> None:
    """Check that members alone have shares, and that those of a chip are at most the whole."""
    for chip, shares in enumerate(steering.shares.tolist()):
        total = sum(map(Fraction, shares))
        if total > 1 + RTOL:
            findings.refuse(CHIP_SHARES_WHAT_IT_HAS, f"shares[{chip}]", float(total), "<= 1")
        for ring, share in enumerate(shares):
            is_member = chip in steering.rings[ring]
            if share < 0 or (share > 0 and not is_member):
                findings.refuse(MEMBERS_ALONE, f"shares[{chip}, {ring}]", share, "0")


def _check_units(steering: Steering, findings: Findings) -> None:
    """Check that whole ports suffice, and that no ring could have one more at no other's cost.

    A ring of u units takes u ports to send and u ports to receive of each of its chips.
    """
    most_units = steering.ports // 2
    if steering.link_units is not None:
        most_units = min(most_units, int(steering.link_units))
    units_of_ring = steering.units.tolist()
    used_ports = [0] * len(steering.shares)
    for ring, units in zip(steering.rings, units_of_ring, strict=True):
        for chip in ring:
            used_ports[chip] += 2 * units
    for chip, count in enumerate(used_ports):
        if count > steering.ports:
            findings.refuse(CHIP_HAS_PORTS, f"chip {chip}", count, steering.ports)

    # A ring can grow by one unit if each of its chips has two idle ports.
    for number, (ring, units) in enumerate(zip(steering.rings, units_of_ring, strict=True)):
        idle_ports = min(steering.ports - used_ports[chip] for chip in ring)
        could_have_more = idle_ports >= 2 and units < most_units
        if not 0 <= units <= most_units or could_have_more:
            where = f"units[{number}]"
            findings.refuse(RING_HAS_ALL_IT_CAN_USE, where, units, f"<= {most_units}")


def _bound_level(steering: Steering) -> Fraction | None:
    """Return the upper bound of the level that the prices show, by duality of linear programmes.

    Chips have a price for all of their ports, links of rings one for a port. The level is at most
    the worth of all that there is over the cost of level 1. None if the prices show nothing: one
    is below 0, they are of other chips or rings, all are 0, or links have prices but no limit.
    """
    limit = None if steering.link_units is None else Fraction(steering.link_units)
    demands = [Fraction(float(demand)) for demand in steering.demands]
    chip_prices = [Fraction(float(price)) for price in steering.chip_prices]
    link_prices = [Fraction(float(price)) for price in steering.link_prices]
    if any(price < 0 for price in chip_prices + link_prices):
        return None
    if limit is None and any(link_prices):
        return None
    if len(chip_prices) != len(steering.shares) or len(link_prices) != len(demands):
        return None

    # Weak duality: a level costs its multiple of `cost_of_level`, which cannot exceed the worth.
    sending_ports = Fraction(steering.ports, 2)
    cost_of_level = Fraction()
    for ring, demand, link_price in zip(steering.rings, demands, link_prices, strict=True):
        chips_price = sum((chip_prices[chip] for chip in ring), Fraction())
        cost_of_level += demand * (chips_price / sending_ports + link_price)
    worth = sum(chip_prices, Fraction())
    if limit is not None:
        worth += limit * sum(link_prices, Fraction())
    if not steering.rings:
        return Fraction(0)
    return worth / cost_of_level if cost_of_level > 0 else None
