"""Proof that jobs cannot be served more: a cut through the flow from resources to jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Axes, Range, Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SupplyProof(Value):
    r"""A cut: whether what a job gets is counted at the job or at the resources.

    Let job j want at most :math:`r_j` resources, and at most :math:`c_{jk}` of plane k. Where
    ``tight[j, k]`` is 1, what job j gets of plane k is counted at the job: all of that is at most
    :math:`\min(r_j, \sum_k c_{jk})`. All else is counted at the resources: it is at most the
    number of those on plane k that may serve a job j with ``tight[j, k]`` 0. The sum of both
    bounds what all jobs get together.

    Parameters
    ----------
    tight
        ``tight[job, plane]``, 0 or 1; without plane caps there is one column for all planes.
    """

    tight: Annotated[NDArray[np.int8], Axes(2), Range(0, 1)]
