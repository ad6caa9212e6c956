"""Pictures as files: the suffix says which kind, and nothing is overwritten silently."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from optmatch.fabrics import Fabric
from optmatch.model import InputError, Solution
from optmatch.plotting.demands.gantt import plot_gantt
from optmatch.plotting.figures import draw_fabric, new_figure, plot_contact_sheet, plot_slot
from optmatch.plotting.rails.gantt import plot_rails
from optmatch.plotting.reroutes.transitions import plot_transition
from optmatch.plotting.slices.racks import plot_slice
from optmatch.plotting.slots import Drawable, parts
from optmatch.plotting.viewer import viewer_page
from optmatch.problems import Allocation, Demand, RailJob, Transition
from optmatch.problems.rails.plan import RailPlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf", ".html")
DPI = 160
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
        The file. It is written in one step: a crash leaves what was there.

    Raises
    ------
    InputError
        If the suffix is unknown, the file exists, its folder does not, or nothing is to be
        drawn.
    SolverUnavailable
        If matplotlib is not installed.
    """
    target = _checked(path, SUFFIXES, force)
    suffix = target.suffix.lower()
    if suffix == ".html":
        if slot is not None:
            raise InputError("the viewer has all slots; slot is for drawings", where="slot")
        content = viewer_page(shown).encode()
    else:
        content = _drawn(shown, suffix[1:], slot)
    _replace(target, content)
    return target


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
    target = _checked(path, SUFFIXES[:3], force)
    _replace(target, _encoded(draw(), target.suffix.lower()[1:]))
    return target


def fabric_svg(fabric: Fabric) -> str:
    """Draw a fabric without light as SVG text, for notebooks.

    Parameters
    ----------
    fabric
        The switch.
    """
    figure = new_figure(fabric)
    draw_fabric(figure.add_subplot(), fabric)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _checked(path: str | os.PathLike[str], suffixes: tuple[str, ...], force: bool) -> Path:
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        raise InputError(
            f"suffix {target.suffix!r}: pictures end in {', '.join(suffixes)}", path=str(target)
        )
    if target.is_dir():
        raise InputError("is a directory", path=str(target))
    if target.exists() and not force:
        raise InputError("exists already; force replaces it", path=str(target))
    return target


def _drawn(shown: Drawable, kind: str, slot: int | None) -> bytes:
    if isinstance(shown, Solution) and isinstance(shown.answer, RailPlan):
        if slot is not None:
            raise InputError("a plan of rails has no slots", where="slot")
        job = cast(RailJob, shown.problem)
        return _encoded(cast("Figure", plot_rails(job, shown.answer).figure), kind)
    if slot is None and isinstance(shown, Solution) and isinstance(shown.problem, Demand):
        return _encoded(cast("Figure", plot_gantt(shown).figure), kind)
    if isinstance(shown, Solution) and isinstance(shown.answer, Transition):
        return _encoded(plot_transition(shown), kind)
    if slot is None and isinstance(shown, Solution) and isinstance(shown.answer, Allocation):
        return _encoded(cast("Figure", plot_slice(shown).figure), kind)
    fabric, schedule = parts(shown)
    if slot is None and schedule.n_slots == 1:
        slot = 0
    if slot is None:
        figure = plot_contact_sheet(shown)
    else:
        figure = new_figure(fabric)
        plot_slot(shown, slot, ax=figure.add_subplot())
    return _encoded(figure, kind)


def _encoded(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(
        kind
    )  # same input, same bytes
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=stamp)
    return buffer.getvalue()


def _replace(target: Path, content: bytes) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as exc:
        raise InputError(f"cannot write: {exc.strerror}", path=str(target)) from exc
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # temporary files are private, pictures are as usual
        Path(name).replace(target)
    except OSError as exc:
        raise InputError(f"cannot write: {exc.strerror}", path=str(target)) from exc
    finally:
        Path(name).unlink(missing_ok=True)
