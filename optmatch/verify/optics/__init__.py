"""Optics of real devices: losses, leaks and light that goes round."""

from optmatch.verify.optics.figures import Budget, Margin, Optics
from optmatch.verify.optics.measurement import measure_optics

__all__ = ["Budget", "Margin", "Optics", "measure_optics"]
