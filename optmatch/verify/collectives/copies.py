"""The data of every rank in operations that add nothing up: who has a chunk, and when it came."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import COPY
from optmatch.verify.collectives.parts import cut_into_pieces
from optmatch.verify.report import Findings

_BEFORE_ALL_ROUNDS = -1


def check_copies(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Check that ranks only send what they have, and in the end have what they want.

    This replays a plan of an all-gather, an all-to-all or a broadcast. These operations add
    nothing up and lose nothing, so it is enough to know in which round each *piece* of the data
    first comes to each rank. A piece is a part of a chunk that no send cuts.
    """
    for send in np.flatnonzero(plan.sends[:, 4] != COPY)[:1]:
        kind = int(plan.sends[send, 4])
        findings.refuse(f"{problem.operation} adds nothing up", f"sends[{send}, 4]", kind, COPY)

    pieces = cut_into_pieces(plan)
    sends = pieces.sends
    n_pieces = len(pieces.chunk)
    owner = _first_owners(problem, len(plan.chunk_bytes))[pieces.chunk]

    # A key is a piece at a rank, rank * n_pieces + piece. The round of a key is the first one in
    # which the piece comes to the rank; owners have theirs before all rounds.
    first_keys = owner * n_pieces + np.arange(n_pieces)
    arrived_keys = sends.destination * n_pieces + sends.piece
    keys = np.concatenate([first_keys, arrived_keys])
    rounds = np.concatenate([np.full(n_pieces, _BEFORE_ALL_ROUNDS), sends.round_])
    order = np.lexsort([rounds, keys])
    known_keys, first_place = np.unique(keys[order], return_index=True)
    first_round = rounds[order][first_place]

    # A sender has the piece if it came in an earlier round.
    sent_keys = sends.source * n_pieces + sends.piece
    place = _find_nearest(known_keys, sent_keys)
    has_piece = (known_keys[place] == sent_keys) & (first_round[place] < sends.round_)
    for send in np.flatnonzero(~has_piece)[:1]:
        chunk = pieces.chunk[sends.piece[send]]
        where = f"round {sends.round_[send]}, rank {sends.source[send]}"
        findings.refuse("who sends a chunk has it", where, f"no chunk {chunk}", "the chunk")

    # In the end each rank has all that it wants, in whichever round it came.
    wanted_keys = _wanted_keys(problem, pieces.chunk)
    is_missing = known_keys[_find_nearest(known_keys, wanted_keys)] != wanted_keys
    for key in np.sort(wanted_keys[is_missing])[:1].tolist():
        rank, piece = divmod(key, n_pieces)
        rule = "in the end every rank has what it wants"
        got = f"no chunk {pieces.chunk[piece]}"
        findings.refuse(rule, f"rank {rank}", got, "the chunk")


def _find_nearest(
    sorted_keys: NDArray[np.int64], searched_keys: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the place of each key in an ascending array, where it stands there at all."""
    place: NDArray[np.int64] = np.searchsorted(sorted_keys[:-1], searched_keys)
    return place


def _first_owners(problem: Collective, n_chunks: int) -> NDArray[np.int64]:
    """Return ``owner[chunk]``, the rank that has a chunk at the beginning."""
    if problem.operation == "broadcast":
        return np.full(n_chunks, problem.root)
    return np.arange(n_chunks) // max(n_chunks // problem.n_ranks, 1)


def _wanted_keys(problem: Collective, chunk: NDArray[np.int64]) -> NDArray[np.int64]:
    """List what has to be at which rank in the end, as keys ``rank * n_pieces + piece``.

    ``chunk[piece]`` is the chunk of each piece.
    """
    n_ranks = problem.n_ranks
    n_pieces = len(chunk)
    if problem.operation != "all-to-all":
        return np.arange(n_ranks * n_pieces)
    destination = chunk % n_ranks
    is_wanted = problem.demand.reshape(-1)[chunk] > 0
    return np.asarray((destination * n_pieces + np.arange(n_pieces))[is_wanted])
