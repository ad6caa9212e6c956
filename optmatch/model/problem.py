"""What every problem offers to methods, verifier and files."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable


@runtime_checkable
class Problem(Protocol):
    """A question: a frozen value with a kind and a lower bound on its objective."""

    kind: ClassVar[str]

    @property
    def fabric(self) -> Any:
        """The switch it is asked of."""

    def lower_bound(self) -> float:
        """Return a value that no answer can beat, in the unit of the objective."""
