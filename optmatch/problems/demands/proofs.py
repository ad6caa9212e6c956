"""Proofs of lower bounds for demands, each short enough to be checked without search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Axes, Count, Index, InputError, Range, Value, check_fields

Axis = Literal["source", "destination"]


@dataclass(frozen=True, slots=True, eq=False)
class LineProof(Value):
    """The line that bounds the objective, after `bound_lines`.

    Parameters
    ----------
    axis
        Whether the line is what a ``"source"`` sends or a ``"destination"`` receives.
    port
        Which one.
    """

    axis: Axis
    port: Index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigurationProof(Value):
    r"""Prices of demands that no slot can earn faster than time passes.

    Let serving one tick of the demand :math:`d_{ij}` earn :math:`y_{ij} \ge 0`. If no matching
    :math:`P` and no duration :math:`w` earn more than they take,
    :math:`\sum_{ij \in P} y_{ij} \min(w, d_{ij}) \le w + \delta`, then all demands,
    :math:`\sum y_{ij} d_{ij}`, cannot be earned earlier: the bound of the configuration LP. It
    needs to be checked only at the durations :math:`w` that are entries of the demand.

    Parameters
    ----------
    duals
        ``duals[source, destination]``: prices in units of 1 / `units`, >= 0; int64, shape (ports,
        ports). Integers, so that checking involves no rounding.
    units
        The price of one in these units, > 0.
    """

    duals: Annotated[NDArray[np.int64], Axes(2), Range(0)]
    units: Count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountProof(Value):
    """A reason why an exact decomposition needs so many matchings.

    A line of k entries needs k matchings. If there were no more, the entries of this line would be
    the weights of the matchings, and each entry of any other line a sum of some of them, each used
    once. Where a second line cannot be made so, k + 1 matchings are needed.

    Parameters
    ----------
    axis, port
        The line with k entries.
    against_axis, against_port
        The second line; None if k itself is the bound.
    """

    axis: Axis
    port: Index
    against_axis: Axis | None = None
    against_port: Index | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.against_axis is None) != (self.against_port is None):
            raise InputError("against_axis and against_port belong together", where="against_axis")
