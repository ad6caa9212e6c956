"""The answer to a collective: rounds of sends, and the circuits that carry them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Value, frozen, integer, number

COPY, REDUCE = 0, 1
"""Kinds of sends: the receiver has what the sender had, or adds it to what it has itself."""

SEND_COLUMNS = ("round", "source", "destination", "chunk", "kind")


_ONE: Any = ()
_TWO: Any = ((),)
_THREE: Any = (((),),)
"""Empty arrays of so many dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectivePlan(Value):
    """Rounds of sends over epochs of circuits.

    Chunks of an all-to-all are ``source * n + destination``. Those of an all-gather and a
    reduce-scatter are ``rank * pieces + piece`` of the block of a rank, those of an all-reduce and
    a broadcast pieces of the whole buffer.

    Parameters
    ----------
    sends
        Rows of round, source, destination, chunk and kind (0 copy, 1 reduce), ascending by round;
        int32, shape (sends, 5). A send has what its source had at the start of the round.
    chunk_bytes
        ``chunk_bytes[chunk]``; float64.
    circuits
        ``circuits[epoch, lane, rank]``: to whom the rank transmits, -1 for nobody; int32. Lanes
        are ``plane * ports + port``.
    epoch_of_round
        ``epoch_of_round[round]``, ascending from 0 without gaps; int32.
    links
        Rows of send, from and to: what a forwarded send passes in order, ascending by send; int32,
        shape (links, 3). A send without rows goes over one circuit.
    shares_bytes, start_s, end_s
        Of plans whose planes change circuits by themselves: what each plane carries in each round
        of a busiest circuit, and when; float64, shape (rounds, planes). Each round has an epoch
        of its own then, in which a plane without a share has no circuits.
    time_s
        When the last round ends, in seconds since the first rank was ready.
    n_rounds_late
        Rounds that start when the last late rank is ready, or later; 0 if none is late.

    Raises
    ------
    InputError
        If shapes disagree, or rounds, epochs or links do not ascend.

    See Also
    --------
    Collective : The problem that it answers.

    Examples
    --------
    >>> import optmatch as om
    >>> plan = om.solve(om.Collective("all-gather", 3, 3.0), "ring").answer
    >>> plan.n_rounds, plan.circuits.tolist()
    (2, [[[1, 2, 0]]])
    >>> plan.sends[:3].tolist()
    [[0, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0, 2, 0, 2, 0]]
    """

    sends: NDArray[np.int32] = _TWO
    chunk_bytes: NDArray[np.float64] = _ONE
    circuits: NDArray[np.int32] = _THREE
    epoch_of_round: NDArray[np.int32] = _ONE
    links: NDArray[np.int32] = _TWO
    shares_bytes: NDArray[np.float64] = _TWO
    start_s: NDArray[np.float64] = _TWO
    end_s: NDArray[np.float64] = _TWO
    time_s: float = 0.0
    n_rounds_late: int = 0

    def __post_init__(self) -> None:
        for name, ndim, dtype, columns in (
            ("sends", 2, np.int32, 5),
            ("chunk_bytes", 1, np.float64, 0),
            ("circuits", 3, np.int32, 0),
            ("epoch_of_round", 1, np.int32, 0),
            ("links", 2, np.int32, 3),
            ("shares_bytes", 2, np.float64, 0),
            ("start_s", 2, np.float64, 0),
            ("end_s", 2, np.float64, 0),
        ):
            array = frozen(name, getattr(self, name), ndim, dtype)
            if not array.size:  # text does not tell how many columns no rows have
                empty = (0, columns) if columns else (0,) * ndim
                array = frozen(name, np.empty(empty), ndim, dtype)
            if columns and array.shape[1] != columns:
                _refuse(name, f"rows of {array.shape[1]}", f"rows of {columns} numbers")
            object.__setattr__(self, name, array)
        object.__setattr__(self, "time_s", number("time_s", self.time_s))
        late = integer("n_rounds_late", self.n_rounds_late, at_least=0)
        object.__setattr__(self, "n_rounds_late", late)
        for name in ("start_s", "end_s"):
            if getattr(self, name).shape != self.shares_bytes.shape:
                _refuse(name, getattr(self, name).shape, f"shape {self.shares_bytes.shape}")
        for name, column in (("sends", self.sends[:, 0]), ("links", self.links[:, 0])):
            if len(column) and ((np.diff(column) < 0).any() or column[0] < 0):
                _refuse(name, "other rows", f"rows that ascend by {name[:-1]}, from 0")

    @property
    def n_rounds(self) -> int:
        """How many rounds there are."""
        return max(len(self.epoch_of_round), len(self.shares_bytes))

    @property
    def n_epochs(self) -> int:
        """How many times circuits were set up, the first included."""
        return len(self.circuits)


def _refuse(name: str, got: Any, rule: str) -> None:
    raise InputError(f"{name}: {got} given, {rule} expected", where=name)
