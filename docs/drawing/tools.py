"""What all figures are drawn with: sketches in SVG, charts by matplotlib, and tables of pages.

A figure is 390 pixels wide on a phone. A sketch has that width in its own units, and a chart is
five inches wide, so that letters of 10 points have eight there.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parents[1]
FOLDER = DOCS / "figures"
WIDTH = 390.0
LEAST_FONT = 11.0
"""Of sketches, in pixels: eight points are 10.7."""

INK = "#1f2937"
FAINT = "#7b8794"
BLUE = "#266ec3"
GREEN = "#249c74"
RED = "#a51105"
AMBER = "#ca933e"
PALE = "#eef1f5"
PALE_BLUE = "#d6e4f5"
PALE_AMBER = "#ffe3a3"


class Drawn(NamedTuple):
    """A figure: its file, and the function that draws it."""

    file: str
    draw: Callable[[], Any]


FIGURES: dict[str, Drawn] = {}
"""By name, in the order of the pages."""


def sketch(function: Callable[[], Sketch]) -> Callable[[], Sketch]:
    """Enter a function that draws a sketch under its name, with hyphens."""
    name = function.__name__.replace("_", "-")
    FIGURES[name] = Drawn(f"{name}.svg", function)
    return function


def chart(function: Callable[[], Figure]) -> Callable[[], Figure]:
    """Enter a function that draws a chart under its name, with hyphens."""
    name = function.__name__.replace("_", "-")
    FIGURES[name] = Drawn(f"{name}.png", function)
    return function


class Sketch:
    """A small drawing: boxes, lines, arrows and words; y grows downwards."""

    def __init__(self, height: float, title: str):
        self.height = height
        self.title = title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, text: str = "", **style: Any
    ) -> None:
        """Draw a box, with words in its middle; a new line begins at each line break."""
        fill = style.get("fill", PALE)
        line = style.get("line", INK)
        radius = style.get("radius", 4)
        dash = ' stroke-dasharray="4 3"' if style.get("dashed") else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
            f' fill="{fill}" stroke="{line}" stroke-width="{style.get("stroke", 1.2):g}"{dash}/>'
        )
        if text:
            ink = style.get("ink", INK)
            self.words(
                x + width / 2,
                y + height / 2,
                text,
                size=style.get("size", 13),
                ink=ink,
                middle=True,
            )

    def line(self, *points: tuple[float, float], **style: Any) -> None:
        """Draw a line through points; with ``arrow=True`` it ends in an arrow."""
        text = " ".join(f"{x:g},{y:g}" for x, y in points)
        ink = style.get("ink", INK)
        self._parts.append(
            f'<polyline points="{text}" fill="none" stroke="{ink}"'
            f' stroke-width="{style.get("width", 1.6):g}" stroke-linejoin="round"'
            f' stroke-linecap="round"{_dash(style)}/>'
        )
        if style.get("arrow"):
            self._head(points[-2], points[-1], ink, style.get("width", 1.6))

    def curve(self, start: tuple[float, float], end: tuple[float, float], **style: Any) -> None:
        """Draw a curve that leaves and arrives level; `bend` moves its middle up or down."""
        bend = style.get("bend")
        ink = style.get("ink", INK)
        middle = (start[0] + end[0]) / 2
        if bend is None:
            way = f"C{middle:g} {start[1]:g} {middle:g} {end[1]:g} {end[0]:g} {end[1]:g}"
            before = (middle, end[1])
        else:
            handle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + bend)
            way = f"Q{handle[0]:g} {handle[1]:g} {end[0]:g} {end[1]:g}"
            before = handle
        self._parts.append(
            f'<path d="M{start[0]:g} {start[1]:g}{way}" fill="none" stroke="{ink}"'
            f' stroke-width="{style.get("width", 1.6):g}" stroke-linecap="round"{_dash(style)}/>'
        )
        if style.get("arrow"):
            self._head(before, end, ink, style.get("width", 1.6))

    def dot(
        self, x: float, y: float, radius: float = 4, fill: str = INK, line: str = "none"
    ) -> None:
        """Draw a dot."""
        self._parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{line}"/>'
        )

    def words(self, x: float, y: float, text: str, **style: Any) -> None:
        """Write words at a point: from it (``side="start"``), to it, or around it (default)."""
        size = style.get("size", 13)
        lines = text.split("\n")
        first = y - (len(lines) - 1) * 0.6 * size if style.get("middle") else y
        weight = ' font-weight="bold"' if style.get("bold") else ""
        for number, line in enumerate(lines):
            baseline = first + 1.2 * size * number + 0.35 * size
            self._parts.append(
                f'<text x="{x:g}" y="{baseline:.1f}" font-size="{size:g}"'
                f' text-anchor="{style.get("side", "middle")}"'
                f' fill="{style.get("ink", INK)}"{weight}>{html.escape(line)}</text>'
            )

    def cross(self, x: float, y: float, size: float = 9) -> None:
        """Draw a red cross over what has failed."""
        for sign in (1, -1):
            start = (x - size, y - sign * size)
            self.line(start, (x + size, y + sign * size), ink=RED, width=3)

    def _head(
        self, before: tuple[float, float], end: tuple[float, float], ink: str, width: float
    ) -> None:
        """Draw the head of an arrow."""
        angle = math.atan2(end[1] - before[1], end[0] - before[0])
        size = 5 + 1.5 * width
        corners = [end]
        for turn in (2.7, -2.7):
            x = end[0] + size * math.cos(angle + turn)
            corners.append((x, end[1] + size * math.sin(angle + turn)))
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self._parts.append(f'<polygon points="{text}" fill="{ink}"/>')

    def text(self) -> str:
        """Return the file."""
        size = (
            f'viewBox="0 0 {WIDTH:g} {self.height:g}" width="{WIDTH:g}" height="{self.height:g}"'
        )
        parts = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            'font-family="system-ui, -apple-system, sans-serif">\n'
            f"<title>{html.escape(self.title)}</title>\n"
            f'<rect width="{WIDTH:g}" height="{self.height:g}" fill="#ffffff"/>\n{parts}\n</svg>\n'
        )


def _dash(style: dict[str, Any]) -> str:
    """Return the attribute of a dashed line."""
    return ' stroke-dasharray="5 4"' if style.get("dashed") else ""


def new_chart(height: float = 3.0, **grid: Any) -> tuple[Figure, Any]:
    """Return a figure that is five inches wide, and its axes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"font.size": 10, "axes.titlesize": 10, "legend.fontsize": 10})
    figure = Figure(figsize=(5.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**grid)


def at_least(figure: Figure, points: float = 10.0) -> Figure:
    """Raise letters that a picture of the library draws smaller."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if isinstance(text, Text):
            text.set_fontsize(max(points, float(text.get_fontsize())))
    return figure


def encode_chart(figure: Figure) -> bytes:
    """Return a chart as a small PNG file, 800 pixels wide."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=160)
    few_colours = Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    small = io.BytesIO()
    few_colours.save(small, format="png", optimize=True)
    return small.getvalue()


def read_rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the table of a page whose first line begins with `head`."""
    lines = (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(head)]
    if not starts:
        raise ValueError(f"docs/{page}.md has no table that begins with {head!r}")
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def read_number(cell: str) -> float:
    """Return the first number of a cell of a table."""
    found = re.search(r"[-+\u2212]?\d[\d,]*\.?\d*", cell)
    if found is None:
        raise ValueError(f"{cell!r} has no number")
    return float(found[0].replace(",", "").replace("\u2212", "-"))


def read_numbers(cells: Iterable[str]) -> list[float]:
    """Return the first number of each cell."""
    return [read_number(cell) for cell in cells]
