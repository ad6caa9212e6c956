"""What the chips of a slice can send: over fixed torus links, and with steered bandwidth."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from optmatch.model import VerificationError
from optmatch.problems.slices.rings import slice_rings
from optmatch.problems.slices.shape import Shape
from optmatch.solvers.slices.steering import steer
from optmatch.verify.slices.steering import check_steering

PORTS = 6


class Tenant(NamedTuple):
    """The ports of a chip that carry rings of its slice, as a part of all its ports."""

    shape: Shape
    rings: int
    fixed: float
    """Over fixed torus links: a ring has one port to either side."""
    steered: float
    """With whole ports shared among the rings."""
    level: float
    """The least bandwidth of all rings in ports, as the linear program has it."""

    @property
    def gain(self) -> float:
        """How much more of all its ports a chip uses with steering."""
        return self.steered - self.fixed

    @property
    def ratio(self) -> float:
        """Steered over fixed bandwidth; 1 where there are no rings."""
        return self.steered / self.fixed if self.fixed else 1.0


@lru_cache(maxsize=256)
def tenant(shape: Shape) -> Tenant:
    """Compare both for a slice of so many chips along x, y and z."""
    rings = slice_rings(shape)
    if not rings:
        return Tenant(shape, 0, 0.0, 0.0, 0.0)
    steering = steer(rings, ports=PORTS)
    report = check_steering(steering)
    if not report.ok:
        raise VerificationError(f"steering: {report.violations[0]}")
    through = [k for k, ring in enumerate(rings) if 0 in ring]
    units = int(steering.units[through].sum())
    return Tenant(shape, len(rings), 2 * len(through) / PORTS, 2 * units / PORTS, steering.level)
