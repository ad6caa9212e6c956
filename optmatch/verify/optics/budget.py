"""The budget: what a circuit may lose, and how far the others must stay below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Value, number
from optmatch.verify.optics.figures import Optics


class Margin(NamedTuple):
    """How far a figure is from its limit.

    Examples
    --------
    >>> print(Margin("insertion loss, dB", 12.9, 15.0, 2.1, "slot 3, from port 0 to port 5"))
    insertion loss, dB: 12.9, limit 15, margin 2.1 (slot 3, from port 0 to port 5)
    """

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

    Examples
    --------
    >>> Budget(insertion_loss_db=15.0).insertion_loss_db
    15.0
    """

    insertion_loss_db: float | None = None
    signal_to_crosstalk_db: float | None = None
    delay_spread_s: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, number(name, value))

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
        if self.insertion_loss_db is not None:
            loss, limit = optics.insertion_loss_db, self.insertion_loss_db
            place = int(np.nanargmax(loss))
            value = float(loss.flat[place])
            found.append(
                Margin("insertion loss, dB", value, limit, limit - value, _where(optics, place))
            )
        if self.signal_to_crosstalk_db is not None:
            ratio, limit = optics.signal_to_crosstalk_db, self.signal_to_crosstalk_db
            place = int(np.nanargmin(ratio))
            value = float(ratio.flat[place])
            found.append(
                Margin(
                    "signal to crosstalk, dB", value, limit, value - limit, _where(optics, place)
                )
            )
        if self.delay_spread_s is not None:
            delay: NDArray[np.float64] = np.where(optics.lit, optics.delay_s, -np.inf)
            place, limit = int(delay.argmax()), self.delay_spread_s
            value = float(np.ptp(optics.delay_s[optics.lit]))
            found.append(
                Margin("delay spread, s", value, limit, limit - value, _where(optics, place))
            )
        return found


def _where(optics: Optics, place: int) -> str:
    slot, source = divmod(place, optics.matchings.shape[1])
    return f"slot {slot}, from port {source} to port {optics.matchings[slot, source]}"
