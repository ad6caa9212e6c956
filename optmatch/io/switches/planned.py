"""A switch of an answer: its circuits in each state, and the times of its states."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class PlannedSwitch(NamedTuple):
    """One switch, and what it holds over time.

    Times are seconds from the beginning of the plan. A transition has no times: its states follow
    each other as soon as the one before is there.
    """

    name: str
    """Such as ``switch``, ``plane 1``, ``rail 3``, ``server 2``."""
    labels: tuple[str, ...]
    """``labels[port]``: what is at the port."""
    matchings: NDArray[np.int32]
    """``matchings[state, source] = destination``, -1 where idle; shape (states, ports)."""
    starts_s: NDArray[np.float64]
    """``starts_s[state]``: when the switch begins to change to the state."""
    ready_s: NDArray[np.float64]
    """``ready_s[state]``: when its circuits carry data."""
    ends_s: NDArray[np.float64]
    """``ends_s[state]``: when the next state begins, or the plan ends."""

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.matchings)

    @property
    def file_name(self) -> str:
        """The name as a part of file names: letters, digits and hyphens.

        Examples
        --------
        >>> import numpy as np
        >>> none = np.zeros(0)
        >>> PlannedSwitch("rail 3", (), np.zeros((0, 2), np.int32), none, none, none).file_name
        'rail-3'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
