"""Sends as rows of bytes: what chunks are cut into, so that each send takes some pieces whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import KEEP, SUM
from optmatch.verify.report import Findings


class Pieces(NamedTuple):
    """Sends of whole pieces."""

    rows: NDArray[np.int64]
    """Round, source, destination, piece, kind, and the places from and into which it goes."""
    chunk: NDArray[np.int64]
    """``chunk[piece]``: of which chunk it is."""


def check_parts(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that parts lie in their chunks, and that places exist; False if nothing can be cut."""
    sizes, align = plan.chunk_bytes[plan.sends[:, 3]], problem.align_bytes
    if len(plan.parts):
        start, amount = plan.parts.T
        outside = (start < 0) | (amount < 0) | (start + amount > sizes * (1 + RTOL))
        for row in np.flatnonzero(outside)[:1]:
            got, limit = plan.parts[row].tolist(), float(sizes[row])
            findings.refuse("a part lies in its chunk", f"parts[{row}]", got, limit)
            return False
        for row in np.flatnonzero((plan.parts % align != 0).any(axis=1) if align else [])[:1]:
            rule = "a part is a multiple of align_bytes"
            findings.refuse(rule, f"parts[{row}]", plan.parts[row].tolist(), align)
        if plan.among == "whole-blocks":
            findings.refuse("plans of whole blocks send no parts", "parts", len(sizes), 0)
    kind, places = plan.sends[:, 4], plan.places
    if problem.operation not in ("all-reduce", "reduce-scatter"):
        return findings.expect("only sums have places", "places", bool(places.any()), False)
    into = places[:, 1] if len(places) else np.zeros(len(kind), dtype=np.int64)
    for row in np.flatnonzero((kind == KEEP) & (into == SUM))[:1]:
        findings.refuse("what is kept has a place beside the sum", f"places[{row}]", SUM, "> 0")
        return False
    return True


def cut(plan: CollectivePlan) -> Pieces:
    """Cut chunks wherever a part of a send begins or ends."""
    places = plan.places if len(plan.places) else np.zeros((len(plan.sends), 2), dtype=np.int32)
    rows = np.column_stack([plan.sends, places]).astype(np.int64)
    every = np.arange(len(plan.chunk_bytes))
    if not len(plan.parts):
        return Pieces(rows, every)
    chunk, sizes = rows[:, 3], plan.chunk_bytes
    of = np.concatenate([chunk, chunk, every, every])
    at = np.concatenate([plan.parts[:, 0], plan.parts.sum(axis=1), 0 * sizes, sizes])
    order = np.lexsort([at, of])
    apart = np.diff(at[order]) > RTOL * sizes[of[order][1:]]
    point = np.cumsum(np.append(True, apart | (np.diff(of[order]) != 0))) - 1
    number = np.empty(len(of), dtype=np.int64)
    number[order] = point
    number -= of  # the last point of each chunk begins no piece
    low, high = number[: len(chunk)], number[len(chunk) : 2 * len(chunk)]
    first, last = number[-2 * len(sizes) : -len(sizes)], number[-len(sizes) :]
    count = high - low
    long = np.repeat(rows, count, axis=0)
    begin = np.repeat(low - (np.cumsum(count) - count), count)
    long[:, 3] = begin + np.arange(len(long))
    return Pieces(long, np.repeat(every, last - first))
