"""The base of all problems: what methods, verifier and files ask; objectives and their bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Answer = TypeVar("Answer", covariant=True, default=Any)
else:
    from typing import TypeVar

    Answer = TypeVar("Answer", covariant=True)

from optmatch.model.declarations import Index, Range

if TYPE_CHECKING:  # each kind of problem has one of both, so callers need not rule the other out
    Score: TypeAlias = Any
    ScoreBound: TypeAlias = Any
else:
    Score = float | tuple[Index, ...]
    ScoreBound = Annotated[float, Range(infinite=True)] | tuple[Index, ...]


def is_known(score: Score | None) -> bool:
    """Tell whether a score is there and finite.

    Examples
    --------
    >>> is_known((0, 3)), is_known(2.5), is_known(float("inf")), is_known(None)
    (True, True, False, False)
    """
    return isinstance(score, tuple) or (score is not None and math.isfinite(score))


def is_levels(value: Any) -> bool:
    """Tell whether a value is a tuple of whole numbers."""
    return isinstance(value, tuple) and all(type(level) is int for level in value)


def gap_between(objective: Score, bound: Score) -> float:
    """Return (objective - bound) / objective, of levels that of the first one that differs.

    Examples
    --------
    >>> gap_between(4.0, 3.0), gap_between((0, 4, 9), (0, 3, 2)), gap_between((0, 2), (0, 2))
    (0.25, 0.25, 0.0)
    """
    if isinstance(objective, tuple) and isinstance(bound, tuple):
        pairs = zip(objective, bound, strict=True)
        objective, bound = next(((a, b) for a, b in pairs if a != b), (0, 0))
    if isinstance(objective, tuple) or isinstance(bound, tuple):
        return math.inf
    if objective <= bound:
        return 0.0
    return (objective - bound) / abs(objective) if objective else math.inf


def write_score(score: Score, unit: str = "") -> str:
    """Write a score with its unit.

    Examples
    --------
    >>> write_score(2.5, "s"), write_score((0, 3, 12))
    ('2.5 s', '0, 3, 12')
    """
    text = ", ".join(map(str, score)) if isinstance(score, tuple) else f"{score:g}"
    return f"{text} {unit}".rstrip()


@runtime_checkable
class Problem(Protocol[Answer]):
    """A question: a frozen value with a kind and a lower bound on its objective."""

    kind: ClassVar[str]
    """The name of the kind in files."""
    objectives: ClassVar[dict[str, str]]
    """The unit of each of its objectives; of a problem with one objective, under its own kind."""

    @property
    def answer_class(self) -> type[Answer] | None:
        """The class of an answer that is no schedule, or not only one."""

    @property
    def fabric(self) -> Any:
        """The switch it is asked of."""

    def lower_bound(self) -> Score:
        """Return a value that no answer can beat, in the unit of the objective."""


def unit_of(problem: Problem) -> str:
    """Return the unit of the objective of a problem, empty for levels that have none.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.problems import Routing
    >>> unit_of(Routing(IdealSwitch(2), [1, 0], objective="loss-db"))
    'dB'
    """
    return problem.objectives[getattr(problem, "objective", problem.kind)]
