"""How objects show themselves in Jupyter, and their figures.

The nouns know no pictures, so what draws them is given to their classes here, at the front door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optmatch.fabrics import Fabric
from optmatch.model import Solution, SolverUnavailable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _fabric_svg(fabric: Fabric) -> str | None:
    """Draw a fabric; None, which Jupyter takes for no picture, without matplotlib."""
    from optmatch.plotting import fabric_svg

    try:
        return fabric_svg(fabric)
    except SolverUnavailable:
        return None


def _solution_html(solution: Solution) -> str:
    """Show a solution in its viewer."""
    from optmatch.plotting import solution_html

    return solution_html(solution)


def _plot(solution: Solution, *, slot: int | None = None) -> Figure:
    """Draw a solution: one slot, or what suits the kind of answer.

    Examples
    --------
    >>> import optmatch as om
    >>> om.solve(om.Collective("all-gather", 3, 3.0), "ring").plot().axes[0].get_ylabel()
    'rank'
    """
    from optmatch.plotting import solution_figure

    return solution_figure(solution, slot)


def show_objects() -> None:
    """Teach fabrics and solutions to draw themselves, in Jupyter and out of it."""
    setattr(Fabric, "_repr_svg_", _fabric_svg)  # noqa: B010 - a type checker minds the assignment
    setattr(Solution, "_repr_html_", _solution_html)  # noqa: B010
    setattr(Solution, "plot", _plot)  # noqa: B010
