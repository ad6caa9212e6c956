"""The rules of shared ports: no chip gives more than it has, and no level is larger."""

from __future__ import annotations

from fractions import Fraction

from optmatch.model import RTOL
from optmatch.problems import Steering
from optmatch.verify.report import Findings, Report, agree


def check_steering(steering: Steering) -> Report:
    """Check how ports are shared, in exact fractions.

    The figures ``level`` (recomputed from the shares) and ``upper_bound`` (from the prices) agree
    in an optimal answer.

    Examples
    --------
    >>> from optmatch.solvers.slices.steering import steer
    >>> report = check_steering(steer([(0, 1, 3, 2)]))
    >>> report.ok, report.figures["level"], report.figures["upper_bound"]
    (True, 3.0, 3.0)
    """
    findings = Findings()
    half = Fraction(steering.ports, 2)
    demands = [Fraction(float(demand)) for demand in steering.demands]
    _check_shares(steering, findings)
    _check_units(steering, findings)
    levels = [
        half * Fraction(float(steering.shares[chip, r])) / demands[r]
        for r, ring in enumerate(steering.rings)
        for chip in ring
    ]
    limit = None if steering.link_units is None else Fraction(steering.link_units)
    if limit is not None:
        levels += [limit / demand for demand in demands]
    level = float(min(levels, default=Fraction(0)))
    findings.figures["level"] = level
    if not agree(steering.level, level):
        findings.refuse("the level is as recomputed", "level", steering.level, level)
    bound = _bound(steering, demands, half, limit)
    findings.figures["upper_bound"] = float(bound) if bound is not None else float("inf")
    if bound is None or not agree(float(bound), level):
        shown = "none" if bound is None else float(bound)
        findings.refuse("prices show that no level is larger", "chip_prices", shown, level)
    return findings.report()


def _check_shares(steering: Steering, findings: Findings) -> None:
    """Check that shares are of members, and of each chip at most the whole."""
    for chip, row in enumerate(steering.shares.tolist()):
        total = sum(map(Fraction, row))
        if total > 1 + RTOL:
            findings.refuse("a chip shares what it has", f"shares[{chip}]", float(total), "<= 1")
        for r, share in enumerate(row):
            if share < 0 or (share > 0 and chip not in steering.rings[r]):
                findings.refuse("members alone have shares", f"shares[{chip}, {r}]", share, "0")


def _check_units(steering: Steering, findings: Findings) -> None:
    """Check that whole ports suffice, and that no ring could have one more at no other's cost."""
    used = [0] * len(steering.shares)
    most = steering.ports // 2
    if steering.link_units is not None:
        most = min(most, int(steering.link_units))
    for ring, units in zip(steering.rings, steering.units.tolist(), strict=True):
        for chip in ring:
            used[chip] += 2 * units
    for chip, count in enumerate(used):
        if count > steering.ports:
            findings.refuse("a chip has so many ports", f"chip {chip}", count, steering.ports)
    for r, (ring, units) in enumerate(zip(steering.rings, steering.units.tolist(), strict=True)):
        idle = min(steering.ports - used[chip] for chip in ring)
        if not 0 <= units <= most or (idle >= 2 and units < most):
            findings.refuse(
                "a ring has all whole ports it can use", f"units[{r}]", units, f"<= {most}"
            )


def _bound(
    steering: Steering, demands: list[Fraction], half: Fraction, limit: Fraction | None
) -> Fraction | None:
    """Return the bound that the prices show; None if they show none."""
    chips = [Fraction(float(price)) for price in steering.chip_prices]
    links = [Fraction(float(price)) for price in steering.link_prices]
    if any(price < 0 for price in chips + links) or (limit is None and any(links)):
        return None
    if len(chips) != len(steering.shares) or len(links) != len(demands):
        return None
    earned = sum(
        (price * demand for price, demand in zip(links, demands, strict=True)), Fraction()
    )
    for r, ring in enumerate(steering.rings):
        earned += sum(chips[chip] for chip in ring) * demands[r] / half
    paid = sum(chips, Fraction())
    if limit is not None:
        paid += limit * sum(links, Fraction())
    if not steering.rings:
        return Fraction(0)
    return paid / earned if earned > 0 else None
