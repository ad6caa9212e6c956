"""Options for what traces leave open: servers, rails, and the dimensions of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optmatch.model import Count, FrozenMap, Positive, Value
from optmatch.problems.rails.training.step import Dimension


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceOptions(Value):
    """Options for what traces leave open.

    Parameters
    ----------
    gpus_per_server, stride
        How many GPUs a server has, and how far apart their ranks are: 1 if they are neighbours,
        the degree of data parallelism if its ranks come first.
    dimensions
        The dimensions of groups by name. Of the others, one that sends and receives is a
        pipeline, one with an all-to-all has experts, one inside a server is tensor parallel, and
        the rest is data parallel.
    leave_out
        Names of groups whose collectives take no time, such as the one of all ranks.
    flops_per_s
        What a GPU reaches: the time of computations that have operations but no duration; None
        if they take none.
    """

    gpus_per_server: Count = 1
    stride: Count = 1
    dimensions: Mapping[str, Dimension] = FrozenMap()
    leave_out: tuple[str, ...] = ()
    flops_per_s: Positive | None = None

    def rail(self, ranks: Sequence[int]) -> int | None:
        """Return the rail of a group, -1 inside a server, None if there are several.

        A rail joins the GPUs of one number in all servers.
        """
        # A rank is (block * gpus_per_server + rail) * stride + place: servers of a block are
        # interleaved, `stride` of them, and `place` says which one it is.
        block, place = np.divmod(np.asarray(ranks), self.stride)
        server, rail = np.divmod(block, self.gpus_per_server)
        if len(set(zip(server.tolist(), place.tolist(), strict=True))) == 1:
            return -1
        return int(rail[0]) if (rail == rail[0]).all() else None

    def rank(self, server: int, place: int) -> int:
        """Return the rank of the GPU of a server at a place, its rail; both count from 0."""
        block, offset = divmod(server, self.stride)
        return (block * self.gpus_per_server + place) * self.stride + offset
