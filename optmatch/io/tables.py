"""Answers as tables of pandas, if that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from optmatch.io.rails.timeline import Span, spans
from optmatch.model import InputError, Solution, SolverUnavailable
from optmatch.problems import Allocation, Assignment, CollectivePlan, Transition


def to_dataframe(solution: Solution) -> Any:
    """Return the answer of a solution as a table of pandas.

    Parameters
    ----------
    solution
        With an answer.

    Returns
    -------
    pandas.DataFrame
        Of a schedule and of rails a row for each circuit, operation and reconfiguration, with its
        times; of a collective for each send; of a transition for each step, with what it does; of
        a slice for each circuit, with its ports and fibres; of shares for each resource, with its
        job.

    Raises
    ------
    InputError
        If there is no answer.
    SolverUnavailable
        If pandas is not installed.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.Collective("all-gather", 3, 3.0), "ring")
    >>> solution.to_dataframe().columns.tolist()
    ['round', 'source', 'destination', 'chunk', 'kind', 'size_bytes']
    """
    try:
        import pandas as pd
    except ImportError as exc:
        raise SolverUnavailable("tables need pandas: pip install 'optmatch[pandas]'") from exc
    return pd.DataFrame(_columns(solution))


def _columns(solution: Solution) -> dict[str, Any]:
    answer = solution.answer
    if isinstance(answer, CollectivePlan):
        names = "round", "source", "destination", "chunk", "kind"
        columns = dict(zip(names, answer.sends.T, strict=True))
        columns["kind"] = np.where(columns["kind"] == 0, "copy", "reduce")
        return columns | {"size_bytes": answer.chunk_bytes[columns["chunk"]]}
    if isinstance(answer, Assignment):
        return {"resource": np.arange(len(answer.job_of)), "job": answer.job_of}
    if isinstance(answer, Transition):
        kind, which, state = answer.steps.T
        return {"step": answer.describe(), "kind": kind, "which": which, "state": state}
    if isinstance(answer, Allocation):
        sources, destinations = answer.circuits.T
        fibres = [
            answer.fibres[answer.fibres[:, 0] == circuit, 1].tolist()
            for circuit in range(len(sources))
        ]
        return {"source": sources, "destination": destinations, "fibres": fibres}
    if answer is None and solution.schedule is None:
        raise InputError(f"a solution without an answer: {solution.status.value}")
    rows = list(spans(solution))
    return {name: [row[place] for row in rows] for place, name in enumerate(Span._fields)}
