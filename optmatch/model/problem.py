"""What every problem offers to methods, verifier and files."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

from optmatch.model.scores import Score


@runtime_checkable
class Problem(Protocol):
    """A question: a frozen value with a kind and a lower bound on its objective."""

    kind: ClassVar[str]
    """Its name in files."""
    answer_class: ClassVar[type[Any] | None]
    """What answers it where a schedule does not, or not alone."""
    objectives: ClassVar[dict[str, str]]
    """The unit of each of its objectives; of a problem with one objective, under its own kind."""

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
