"""The circuits that a placement needs, as kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
"""In lists of hosts by port: no host is on the port."""


class Circuits(NamedTuple):
    """The circuits of all hosts, in compressed rows: those of a host stand side by side."""

    first: NDArray[np.int64]
    """``first[host]``, shape (hosts + 1,): where its circuits begin."""
    partner: NDArray[np.int64]
    """``partner[place]``: the host at the other end."""
    is_source: NDArray[np.bool_]
    """``is_source[place]``: whether the host sends on this circuit."""
    n_between: NDArray[np.int64]
    """``n_between[host, other]``: the circuits between two hosts, 0 to 2; symmetric."""

    @classmethod
    def of(cls, pairs: NDArray[np.int32], n_hosts: int) -> Circuits:
        """List each circuit at both of its hosts, sorted by host (compressed rows).

        Parameters
        ----------
        pairs
            ``pairs[circuit]``: the source and the destination host, shape (circuits, 2).
        n_hosts
            The number of hosts.

        Returns
        -------
        Circuits
            Those of host h are at the places ``first[h]`` to ``first[h + 1]`` of ``partner`` and
            ``is_source``, 2 * circuits places in all; ``n_between[host, other]`` is the number of
            circuits between two hosts in both directions.
        """
        # Each circuit is listed twice: the first half by its source, the second by its
        # destination.
        host = np.concatenate([pairs[:, 0], pairs[:, 1]])
        partner = np.concatenate([pairs[:, 1], pairs[:, 0]])
        is_source = np.arange(len(host)) < len(pairs)
        # Sorted by host, the circuits of host h begin where the first entry of h would stand.
        order = np.argsort(host, kind="stable")
        first = np.searchsorted(host[order], np.arange(n_hosts + 1))
        n_between = np.zeros((n_hosts, n_hosts), dtype=np.int64)
        np.add.at(n_between, (host, partner), 1)
        return cls(
            first.astype(np.int64),
            partner[order].astype(np.int64),
            is_source[order].copy(),
            n_between,
        )
