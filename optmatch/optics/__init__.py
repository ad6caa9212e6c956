"""The light of a schedule on a real device: losses, leaks, delays, heat and budgets."""

from optmatch.optics.figures import Budget, Margin, Optics
from optmatch.optics.measurement import measure_optics

__all__ = ["Budget", "Margin", "Optics", "measure_optics"]
