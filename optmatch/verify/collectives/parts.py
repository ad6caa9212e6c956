"""Parts of chunks: what chunks are cut into, so that each send takes some pieces whole.

A *part* is a range of bytes of a chunk that one send carries, and a *piece* a range that no part
cuts. A *place* is a memory of a rank for a chunk: its sum, its own data, or data on their way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import KEEP, SUM
from optmatch.verify.report import Findings

IntArray = NDArray[np.int64]


class PieceSends(NamedTuple):
    """Sends of whole pieces; columns have shape (sends,)."""

    round_: IntArray
    """The round of each send."""
    source: IntArray
    """The rank that sends."""
    destination: IntArray
    """The rank that receives."""
    piece: IntArray
    """The number of the piece, over all chunks."""
    kind: IntArray
    """``COPY``, ``REDUCE``, ``KEEP`` or ``REPLACE``."""
    source_place: IntArray
    """The place from which it goes at the sender; `SUM` is that of the sum."""
    target_place: IntArray
    """The place into which it goes at the receiver."""

    def take(self, is_taken: NDArray[np.bool_]) -> PieceSends:
        """Return some of the sends in the same order: those with True in a mask by send."""
        return PieceSends(*(column[is_taken] for column in self))


class Pieces(NamedTuple):
    """The pieces of all chunks, and the sends of them."""

    sends: PieceSends
    """All sends, each of one piece; a send of a part of several pieces is several ones."""
    chunk: IntArray
    """``chunk[piece]``: of which chunk it is; pieces of a chunk are in the order of its bytes."""


def check_parts(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check which parts of chunks a plan sends, and in which memories of ranks it puts them.

    Sends of the kind `KEEP` are added to the sum, and kept at another place.
    """
    if len(plan.parts) and not _check_bytes_of_parts(problem, plan, findings):
        return False
    if problem.operation not in ("all-reduce", "reduce-scatter"):
        has_places = bool(plan.places.any())
        return findings.expect("only sums have places", "places", has_places, False)

    # Without places everything goes into the sum.
    kind = plan.sends[:, 4]
    target_place = np.full(len(kind), SUM)
    if len(plan.places):
        target_place = plan.places[:, 1]
    for send in np.flatnonzero((kind == KEEP) & (target_place == SUM))[:1]:
        rule = "what is kept has a place beside the sum"
        findings.refuse(rule, f"places[{send}]", SUM, "> 0")
        return False
    return True


def _check_bytes_of_parts(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that each part of a chunk that is sent lies inside it and is aligned.

    A part is a range of bytes. Plans that claim to be the best among those of whole blocks must
    have no parts.
    """
    chunk_bytes = plan.chunk_bytes[plan.sends[:, 3]]
    first_byte, n_bytes = plan.parts.T
    is_outside = (first_byte < 0) | (n_bytes < 0)
    is_outside |= first_byte + n_bytes > chunk_bytes * (1 + RTOL)
    for send in np.flatnonzero(is_outside)[:1]:
        got = plan.parts[send].tolist()
        findings.refuse(
            "a part lies in its chunk", f"parts[{send}]", got, float(chunk_bytes[send])
        )
        return False

    # Violations that do not hinder a replay: bytes that are not aligned, and parts in a plan of
    # whole blocks.
    if problem.align_bytes:
        is_uneven = (plan.parts % problem.align_bytes != 0).any(axis=1)
        for send in np.flatnonzero(is_uneven)[:1]:
            rule = "a part is a multiple of align_bytes"
            got = plan.parts[send].tolist()
            findings.refuse(rule, f"parts[{send}]", got, problem.align_bytes)
    if plan.among == "whole-blocks":
        rule = "plans of whole blocks send no parts"
        findings.refuse(rule, "parts", len(plan.parts), 0)
    return True


def cut_into_pieces(plan: CollectivePlan) -> Pieces:
    """Cut the chunks of a plan into pieces, so that each send carries whole pieces.

    A send may carry only a part of a chunk, a range of its bytes. Chunks are cut wherever such a
    part begins or ends.

    Example: of a chunk of 10 bytes one send carries bytes 0 to 6, and another one bytes 4 to 10.
    The chunk is cut at 4 and 6 into three pieces, and each of the two sends becomes two sends of a
    piece.
    """
    n_chunks = len(plan.chunk_bytes)
    all_chunks = np.arange(n_chunks)
    places = plan.places if len(plan.places) else np.zeros((len(plan.sends), 2), dtype=np.int32)
    if not len(plan.parts):
        columns = [column.astype(np.int64) for column in (*plan.sends.T, *places.T)]
        return Pieces(PieceSends(*columns), all_chunks)

    # Every part has a cut at its begin and one at its end, and so has every chunk.
    rows = np.column_stack([plan.sends, places]).astype(np.int64)
    chunk_of_send = rows[:, 3]
    n_sends = len(chunk_of_send)
    chunk_of_cut = np.concatenate([chunk_of_send, chunk_of_send, all_chunks, all_chunks])
    begins = plan.parts[:, 0]
    ends = plan.parts.sum(axis=1)
    byte_of_cut = np.concatenate([begins, ends, np.zeros(n_chunks), plan.chunk_bytes])

    # Number the cuts by chunk and byte; equal ones get one number.
    order = np.lexsort([byte_of_cut, chunk_of_cut])
    is_other_byte = np.diff(byte_of_cut[order]) > (
        RTOL * plan.chunk_bytes[chunk_of_cut[order][1:]]
    )
    is_other_chunk = np.diff(chunk_of_cut[order]) != 0
    is_new = np.append(True, is_other_byte | is_other_chunk)
    number_of_cut = np.empty(len(chunk_of_cut), dtype=np.int64)
    number_of_cut[order] = np.cumsum(is_new) - 1

    # A piece is between two cuts and has the number of the first one, less the last cuts of the
    # chunks before it, which begin no piece. With cuts 0, 4, 6 and 10 of chunk 0 the pieces are 0,
    # 1 and 2; the first cut of chunk 1 has number 4, and begins piece 4 - 1 = 3. Cuts are listed
    # as begins of sends, ends of sends, begins of chunks and ends of chunks.
    piece_of_cut = number_of_cut - chunk_of_cut
    first_piece = piece_of_cut[:n_sends]
    n_pieces_of_send = piece_of_cut[n_sends : 2 * n_sends] - first_piece
    n_pieces_of_chunk = piece_of_cut[-n_chunks:] - piece_of_cut[-2 * n_chunks : -n_chunks]

    # A send of several pieces becomes a row for each of them.
    rows_of_pieces = np.repeat(rows, n_pieces_of_send, axis=0)
    n_rows_before = np.cumsum(n_pieces_of_send) - n_pieces_of_send
    offset = np.repeat(first_piece - n_rows_before, n_pieces_of_send)
    rows_of_pieces[:, 3] = offset + np.arange(len(rows_of_pieces))
    chunk_of_piece = np.repeat(all_chunks, n_pieces_of_chunk)
    return Pieces(PieceSends(*rows_of_pieces.T), chunk_of_piece)
