"""Proof that no slice of a given shape keeps the load of all its edges below a number."""

from __future__ import annotations

from dataclasses import dataclass

from optmatch.model import Index, InputError, Value, check_fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadProof(Value):
    r"""Sets of servers that too few circuits can leave.

    Let S be a set of servers of one rack, of whose free servers f lie in S and F - f do not; if
    racks are joined, S is a set of servers and switches of all of them. A
    slice of n slots has between :math:`\max(0, n - F + f)` and :math:`\min(n, f)` slots in S. If
    for every such number each choice of slots is joined to the others by more circuits than fit on
    the edges out of S, or into S, under a largest load of ``bound - 1``, the rack holds no slice
    with that load.

    Parameters
    ----------
    bound
        No slice has a smaller load. Above the fibres of every edge it says that there is none.
    cuts
        Sets of servers, each within a rack; in joined racks of any servers and switches. A rack
        with enough free servers about which no cut says anything, or joined racks without a cut,
        is where all ways were tried, and are to be tried again.
    """

    bound: Index
    cuts: tuple[tuple[Index, ...], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for k, cut in enumerate(self.cuts):
            if not cut or len(set(cut)) < len(cut):
                raise InputError(f"cuts[{k}]: different servers are expected", where=f"cuts[{k}]")
