"""The budget: what a circuit may lose, and how far crosstalk must stay below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Amount, Value
from optmatch.verify.optics.figures import Optics


class Margin(NamedTuple):
    """How far a figure is from its limit."""

    figure: str
    value: float
    limit: float
    margin: float
    """Negative where the budget fails; infinite where nothing disturbs."""
    where: str

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        return self.margin >= 0

    def __str__(self) -> str:
        numbers = f"{self.value:.4g}, limit {self.limit:.4g}, margin {self.margin:.4g}"
        return f"{self.figure}: {numbers} ({self.where})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Budget(Value):
    """Limits on the figures of every circuit; None for no limit.

    Parameters
    ----------
    insertion_loss_db
        At most this from fibre to fibre: launched power less what the receiver needs, in dB.
    signal_to_crosstalk_db
        At least this with all inputs loaded.
    delay_spread_s
        At most this between the slowest and the fastest circuit.

    Raises
    ------
    InputError
        If a limit is negative or not finite.

    See Also
    --------
    measure_optics : Measures the figures.

    Examples
    --------
    >>> Budget(insertion_loss_db=15.0).insertion_loss_db
    15.0
    """

    insertion_loss_db: Amount | None = None
    signal_to_crosstalk_db: Amount | None = None
    delay_spread_s: Amount | None = None

    def margins(self, optics: Optics) -> list[Margin]:
        """Compare the worst circuits with the limits.

        Parameters
        ----------
        optics
            What was measured.

        Returns
        -------
        list of Margin
            One for each limit that is set; none if there are no circuits.
        """
        found: list[Margin] = []
        if not optics.lit.any():
            return found
        ratio = optics.signal_to_crosstalk_db
        delay: NDArray[np.float64] = np.where(optics.lit, optics.delay_s, np.nan)
        for figure, limit, values, sign in (
            ("insertion loss, dB", self.insertion_loss_db, optics.insertion_loss_db, 1),
            ("signal to crosstalk, dB", self.signal_to_crosstalk_db, ratio, -1),
            ("delay spread, s", self.delay_spread_s, delay - np.nanmin(delay), 1),
        ):
            if limit is not None:
                place = int(np.nanargmax(sign * values))
                value = float(values.flat[place])
                margin = sign * (limit - value)
                found.append(Margin(figure, value, limit, margin, _where(optics, place)))
        return found


def _where(optics: Optics, place: int) -> str:
    slot, source = divmod(place, optics.matchings.shape[1])
    return f"slot {slot}, from port {source} to port {optics.matchings[slot, source]}"
