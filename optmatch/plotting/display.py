"""Solutions as HTML for notebooks: the viewer of a schedule, a figure of any other answer."""

from __future__ import annotations

import html

from optmatch.model import InputError, Solution, SolverUnavailable
from optmatch.plotting.files import figure_svg, solution_figure
from optmatch.plotting.viewer import viewer_page


def solution_html(solution: Solution, *, height_px: int = 720) -> str:
    """Show a solution in a notebook.

    Parameters
    ----------
    solution
        The outcome of a solve: of a schedule its viewer in a frame; of another answer a line and,
        with matplotlib, the figure; without an answer the reason.
    height_px
        Height of the frame, in pixels.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    >>> solution_html(solution)[:20]
    '<div><iframe srcdoc='
    """
    if solution.schedule is not None:
        try:
            page = html.escape(viewer_page(solution))
        except InputError as exc:
            return f"<p>{html.escape(str(exc))}</p>"
        return (
            f'<div><iframe srcdoc="{page}" sandbox="allow-scripts" title="schedule"'
            f' style="width: 100%; height: {height_px}px; border: 0"></iframe></div>'
        )
    said = getattr(solution.answer, "summary", lambda: "")()
    reason = html.escape(str(solution.stats.get("reason", said)))
    text = f"<p><b>{solution.status.value}</b> {reason}</p>"
    if solution.answer is None:
        return text
    try:
        return f"{text}<div>{figure_svg(solution_figure(solution))}</div>"
    except (InputError, SolverUnavailable):
        return text
