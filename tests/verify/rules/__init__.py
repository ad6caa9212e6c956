"""A table for each question: smallest wrong answers, each of which one rule alone refuses."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

import optmatch

om: Any = optmatch
"""The package; its constructors are given lists here."""

UNPROVED = "what is claimed is proved"
"""Stands for a rule where nothing is refused, and something is unproved."""


class Row(NamedTuple):
    """An answer, and what the verifier says of it."""

    rule: str | None
    """The one rule that refuses it; None if it is right, by a hair."""
    problem: Any
    """Or what verifies a part that is none by itself."""
    subject: Any
    says: str = ""
    """Part of the first violation: ``where: rule: got ..., expected ...``, or of what is unproved.
    Where it is a certificate, why that is no proof."""
    stops: bool = False
    """Whether nothing else can be checked where this rule is broken."""
    figures: Mapping[str, Any] = {}
    """Some of the figures that the report has."""
    told: int | None = None
    """How many violations there are, where that is of interest."""


def schedule(matchings: Any, durations_s: Any = None, **fields: Any) -> Any:
    """Return a schedule; its slots last 1 s where nothing else is said."""
    lasting: Any = np.ones(len(matchings)) if durations_s is None else durations_s
    return om.Schedule(matchings=matchings, durations_s=lasting, **fields)


def forge(value: Any, **changes: Any) -> Any:
    """Copy a frozen value with other fields, past the checks of its constructor."""
    copy = object.__new__(type(value))
    for field in fields(value):
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(value, field.name)))
    return copy


def claim(problem: Any, **said: Any) -> Any:
    """Return a solution that says nothing but this, past the checks of its constructor."""
    silent = om.Solution(
        problem=problem, status=om.Status.UNKNOWN, limit=om.Limit.EXHAUSTED, method="by hand"
    )
    answered = said.get("schedule") is not None or said.get("answer") is not None
    status = om.Status.FEASIBLE if answered else om.Status.UNKNOWN
    return forge(silent, **{"status": status} | said)
