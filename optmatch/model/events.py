"""What methods report while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optmatch.model.scores import Score


@dataclass(frozen=True, slots=True)
class Tick:
    """Still at work: a phase and how far it is (``done`` of ``total``, total 0 if unknown)."""

    phase: str
    done: int
    total: int = 0


@dataclass(frozen=True, slots=True)
class NewBest:
    """A better answer, by its objective."""

    objective: Score


@dataclass(frozen=True, slots=True)
class Bound:
    """A better lower bound."""

    lower_bound: Score


Event = Tick | NewBest | Bound
OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
