"""How objects show themselves in Jupyter.

The nouns know no pictures, so what draws them is given to their classes here, at the front door.
"""

from __future__ import annotations

from optmatch.fabrics import Fabric
from optmatch.model import Solution, SolverUnavailable


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


def show_objects() -> None:
    """Teach fabrics and solutions the display methods that Jupyter looks for."""
    setattr(Fabric, "_repr_svg_", _fabric_svg)  # noqa: B010 - a type checker minds the assignment
    setattr(Solution, "_repr_html_", _solution_html)  # noqa: B010
