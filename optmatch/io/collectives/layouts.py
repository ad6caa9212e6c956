"""Where ranks have the chunks of a collective, in the buffers of a runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from optmatch.model import InputError, Solution
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import REPLACE, plan_of


class Slot(NamedTuple):
    """A place of a chunk in a buffer."""

    buffer: str
    """``"i"`` input, ``"o"`` output, ``"s"`` scratch."""
    first_unit: int


class LocalCopy(NamedTuple):
    """A copy within a rank, of so many units from one place to another."""

    source: Slot
    target: Slot
    n_units: int


class Send(NamedTuple):
    """A chunk that one rank sends to another in a round."""

    source: int
    """A rank, as is the target."""
    target: int
    chunk: int
    kind: int
    """How the target takes it: ``KEEP``, ``REDUCE`` or copy, see `CollectivePlan.sends`."""


class Layout:
    """Where ranks have chunks, in buffers of equal units.

    Buffers of an uneven all-to-all have its blocks one after another, and no gaps. The unit of its
    blocks is their greatest common divisor; of other collectives a chunk is a unit.

    Parameters
    ----------
    runtime
        The name of the runtime, for messages.
    solution
        A solution of a collective.

    Raises
    ------
    InputError
        For plans that no runtime can hold: of parts of chunks, or of blocks of half a byte.
    """

    def __init__(self, runtime: str, solution: Solution) -> None:
        """Size the chunks of a plan in units, and begin with empty scratch buffers.

        In an all-to-all with blocks of different sizes a unit is the greatest common divisor of
        their bytes; in all else a chunk is a unit.
        """
        # A runtime sends whole chunks, and puts each in its own place.
        self.plan = plan_of(solution)
        problem = solution.problem
        assert isinstance(problem, Collective)
        is_replaced = (self.plan.sends[:, 4] == REPLACE).any()
        if len(self.plan.parts) or len(self.plan.places) or is_replaced:
            raise InputError(
                f"{runtime}: a plan that sends parts, or keeps or replaces what comes, cannot be"
                " written; plans of the methods ring, rewire and bruck can (`solve --method ring`)"
            )
        # Chunks are counted in units: one each, or their bytes over the greatest common divisor.
        # As an example, chunks of 4, 6 and 8 bytes are 2, 3 and 4 units.
        self.problem = problem
        self.n_chunks = len(self.plan.chunk_bytes)
        self.is_all_to_all = problem.operation == "all-to-all"
        self.is_uneven = self.is_all_to_all and problem.demand_bytes is not None

        self.units = np.ones(self.n_chunks, dtype=np.int64)
        """``units[chunk]``: its size. In an all-to-all chunk ``source * n_ranks + target``."""
        if self.is_uneven:
            chunk_bytes = np.rint(self.plan.chunk_bytes).astype(np.int64)
            if (chunk_bytes != self.plan.chunk_bytes).any():
                raise InputError(f"{runtime}: blocks of whole bytes can be written, no other")
            self.units = chunk_bytes // np.gcd.reduce(chunk_bytes)
        self.scratch = [0] * problem.n_ranks
        """``scratch[rank]``: how many units of its scratch buffer are in use."""
        self._slots: dict[tuple[int, int], Slot] = {}

    def find_slot(self, rank: int, chunk: int) -> Slot:
        """Return where a rank has a chunk."""
        if not self.is_all_to_all:
            is_in_output = self.problem.operation in ("all-gather", "broadcast")
            return Slot("o" if is_in_output else "i", chunk)
        if (rank, chunk) not in self._slots:
            self._slots[rank, chunk] = self._new_slot(rank, chunk)
        return self._slots[rank, chunk]

    def _new_slot(self, rank: int, chunk: int) -> Slot:
        """Choose where a rank has a chunk of an all-to-all: in its input, output or scratch."""
        n_ranks = self.problem.n_ranks
        # Blocks lie in the input by destination, and in the output by source.
        blocks = self.units.reshape(n_ranks, n_ranks)
        source, destination = divmod(chunk, n_ranks)
        if rank == source:
            return Slot("i", int(blocks[source, :destination].sum()))
        if rank == destination:
            return Slot("o", int(blocks[:source, destination].sum()))
        return self.reserve_scratch(rank, int(self.units[chunk]))

    def reserve_scratch(self, rank: int, n_units: int) -> Slot:
        """Return a new place in the scratch buffer of a rank."""
        first_unit = self.scratch[rank]
        self.scratch[rank] += n_units
        return Slot("s", first_unit)

    def own_block(self, rank: int) -> LocalCopy | None:
        """Return the copy of a rank's own block of an all-to-all, from its input to its output.

        The result is None if it is empty, or the operation is another one.
        """
        if not self.is_all_to_all:
            return None
        n_ranks = self.problem.n_ranks
        chunk = rank * n_ranks + rank
        n_units = int(self.units[chunk])
        if not n_units:
            return None
        first_unit = int(self.units.reshape(n_ranks, n_ranks)[:rank, rank].sum())
        return LocalCopy(self.find_slot(rank, chunk), Slot("o", first_unit), n_units)

    def buffer_units(self, rank: int) -> tuple[int, int]:
        """Return the sizes of the input and of the output of a rank."""
        n_ranks = self.problem.n_ranks
        if self.is_all_to_all:
            blocks = self.units.reshape(n_ranks, n_ranks)
            return int(blocks[rank].sum()), int(blocks[:, rank].sum())
        if self.problem.operation == "all-gather":
            return self.n_chunks // n_ranks, self.n_chunks
        if self.problem.operation == "reduce-scatter":
            return self.n_chunks, self.n_chunks // n_ranks
        return self.n_chunks, self.n_chunks

    def rounds(self) -> Iterator[list[Send]]:
        """Yield the sends of each round that has some."""
        sends = self.plan.sends
        for rows in np.split(sends, np.flatnonzero(np.diff(sends[:, 0])) + 1):
            yield [Send(*row) for row in rows[:, 1:].tolist()]
