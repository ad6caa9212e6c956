"""A proof that no transition gets over a failure: a cut through a rack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Value, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutProof(Value):
    """Servers that more circuits must leave than live fibres lead out, whichever spare is taken.

    Parameters
    ----------
    servers
        The servers on one side of the cut; int32, ascending.

    Notes
    -----
    The reader counts. Circuits between units that stay and lie on both sides must cross. A lost
    unit with a spare inside must send to all its partners outside, with a spare outside it must be
    sent to by all its partners inside; the cheapest choice, with as many inside as there can be,
    is what must cross at least. Circuits between two lost units are left out.

    Examples
    --------
    >>> CutProof(servers=[3]).servers.tolist()
    [3]
    """

    servers: NDArray[np.int32]

    def __post_init__(self) -> None:
        servers = frozen("servers", self.servers, 1, np.int32)
        if len(servers) == 0 or (np.diff(servers) <= 0).any():
            raise InputError("servers: at least one, ascending", where="servers")
        object.__setattr__(self, "servers", servers)
