"""Pictures as files, nothing overwritten silently, and solutions as HTML for notebooks."""

from __future__ import annotations

import html
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from optmatch.fabrics import Fabric
from optmatch.model import InputError, Solution, SolverUnavailable
from optmatch.model.files import PICTURES, check_target, file_path, replace_file
from optmatch.plotting.drawing import Figure
from optmatch.plotting.figures import draw_schedule, plot_fabric
from optmatch.plotting.slots import Drawable
from optmatch.plotting.viewer import viewer_page

SUFFIXES = (*PICTURES, ".html")
MOST_PIXELS, MOST_BYTES = 3200.0, 600_000
"""Along one side of a PNG file; and beyond so many bytes it has no more than 255 colours."""
_DPI = 160
"""Dots per inch of PNG files."""


def save_picture(
    shown: Drawable, path: str | os.PathLike[str], *, slot: int | None = None, force: bool = False
) -> Path:
    """Write a picture of a schedule to a file.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    path
        Ends in .png, .svg or .pdf for a drawing, in .html for the viewer.
    slot
        Draw this slot alone; None draws all on one sheet; of a demand, and of a plan of rails, as
        bars over time. The viewer always has all slots.
    force
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file. The file is written in one step: a crash leaves the old file.

    Raises
    ------
    InputError
        If the suffix is unknown, the file exists, its folder does not, or nothing is to be
        drawn.
    SolverUnavailable
        If matplotlib is not installed.

    See Also
    --------
    plot_slot, plot_contact_sheet, plot_gantt, plot_rails : The picture that is drawn.
    viewer_page : What is in an HTML file.
    """
    target = check_target(path, force=force, endings=SUFFIXES)
    suffix = target.suffix.lower()
    if suffix == ".html":
        if slot is not None:
            raise InputError("the viewer has all slots; slot is for drawings", where="slot")
        content = viewer_page(shown).encode()
    else:
        content = _encoded(solution_figure(shown, slot), suffix[1:])
    replace_file(target, content)
    return file_path(path)


def save_figure(
    draw: Callable[[], Figure], path: str | os.PathLike[str], *, force: bool = False
) -> Path:
    """Write a figure to a file; it is drawn when the file is known to be writeable.

    Parameters
    ----------
    draw
        Draws it.
    path
        Ends in .png, .svg or .pdf.
    force
        Whether an existing file may be replaced.

    Raises
    ------
    InputError
        If the suffix is unknown, the file exists, or its folder does not.
    """
    target = check_target(path, force=force, endings=PICTURES)
    replace_file(target, _encoded(draw(), target.suffix.lower()[1:]))
    return target


def fabric_svg(fabric: Fabric) -> str:
    """Draw a fabric without light as SVG text, for notebooks.

    Parameters
    ----------
    fabric
        The switch.
    """
    return figure_svg(plot_fabric(fabric))


def figure_svg(figure: Figure) -> str:
    """Return a figure as SVG text, as a part of a page."""
    text = _encoded(figure, "svg").decode()
    return text[text.index("<svg") :]


def solution_figure(shown: Drawable, slot: int | None = None) -> Figure:
    """Draw what suits the kind of answer, as `save_picture` does.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    slot
        Draw this slot alone; None draws all.

    Raises
    ------
    InputError
        If nothing is to be drawn.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.Collective("all-gather", 3, 3.0), "ring")
    >>> type(solution_figure(solution)).__name__
    'Figure'
    """
    if isinstance(shown, Solution):
        return cast("Figure", shown.plot(slot=slot))
    return draw_schedule(shown, slot)


def _encoded(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a "png", "svg" or "pdf"; equal figures give equal bytes.

    A large one gets fewer dots per inch, and a PNG of too many bytes 255 colours. Texts of the
    figure are changed where they have control characters or formulas.
    """
    import matplotlib
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter, NullFormatter

    # Names from files are text: no formulas, and control characters are seen. The numbers of axes
    # are ours, powers of ten among them.
    counted = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if not isinstance(axis.get_major_formatter(), FixedFormatter | NullFormatter):
                ticks = [*axis.get_ticklabels(which="both"), axis.get_offset_text()]
                counted |= {id(text) for text in ticks}
    for text in figure.findobj(Text):
        if isinstance(text, Text) and id(text) not in counted:
            text.set_parse_math(False)
            text.set_text(
                re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", text.get_text())
            )
    buffer = io.BytesIO()
    dpi = min(_DPI, MOST_PIXELS / max(figure.get_size_inches()))

    # Without a date the same figure always gives the same bytes. Text stays text, in fonts that
    # journals take and programs edit.
    dates_of_kind: dict[str, dict[str, None]]
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    dates_of_kind = {"svg": no_metadata, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=dates_of_kind.get(kind))
    if kind == "png" and len(buffer.getvalue()) > MOST_BYTES:
        from PIL import Image  # matplotlib needs it for PNG

        few = io.BytesIO()
        Image.open(buffer).convert("RGB").quantize(255).save(few, format="png", optimize=True)
        return few.getvalue()
    return buffer.getvalue()


def problem_html(problem: Any) -> str:
    """Show a problem in a notebook: its summary, and its figure where matplotlib is there."""
    text = f"<p>{html.escape(problem.summary()).replace(chr(10), '<br>')}</p>"
    try:
        return f"{text}<div>{figure_svg(problem.plot())}</div>"
    except (InputError, SolverUnavailable):
        return text


def solution_html(solution: Solution, *, height_px: int = 720) -> str:
    """Show a solution in a notebook.

    Parameters
    ----------
    solution
        The outcome of a solve: its viewer in a frame, or without an answer the reason.
    height_px
        Height of the frame, in pixels.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    >>> solution_html(solution)[:20]
    '<div><iframe srcdoc='
    """
    if solution.schedule is not None or solution.answer is not None:
        try:
            page = html.escape(viewer_page(solution))
        except InputError as exc:
            return f"<p>{html.escape(str(exc))}</p>"
        return (
            f'<div><iframe srcdoc="{page}" sandbox="allow-scripts" title="schedule"'
            f' style="width: 100%; height: {height_px}px; border: 0"></iframe></div>'
        )
    reason = html.escape(str(solution.stats.get("reason", "")))
    return f"<p><b>{solution.status.value}</b> {reason}</p>"


def explore(solution: Solution, *, height_px: int = 720) -> None:
    """Show the page of a solution: below the cell in Jupyter, in a browser elsewhere.

    In a browser the page is a file in a folder of temporary files, and stays there.

    Parameters
    ----------
    solution
        The outcome of a solve.
    height_px
        Height of the frame in Jupyter, in pixels.

    Raises
    ------
    InputError
        Outside Jupyter, if there is nothing to draw.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    >>> om.explore(solution)  # doctest: +SKIP
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        from IPython.display import HTML, display

        display(HTML(solution_html(solution, height_px=height_px)))
        return
    import tempfile
    import webbrowser

    page = viewer_page(solution)
    path = Path(tempfile.mkdtemp(prefix="optmatch-")) / "solution.html"
    path.write_text(page, encoding="utf-8")
    webbrowser.open(path.as_uri())
