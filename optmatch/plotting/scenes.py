"""Scenes drawn with matplotlib: rows of bars over time.

`viewer.scene` says what is in a scene; `viewer_scene.js` draws the same ones on a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import scale_of
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    Axes,
    axes_of,
    choose_ticks,
    figure_of,
    readable_font,
    size_in_inches,
)

UPPER_HALF, LOWER_HALF, WHOLE_ROW = range(3)
"""Where bars lie in their row."""
_EXTENT_OF_LANE = ((-0.42, -0.02), (0.02, 0.42), (-0.42, 0.42))
"""From where to where these reach, downwards from the middle of a row that is 1 high."""
_LINE_INCHES = 0.13
"""Rows that are lower than this have colours but no texts."""


class BarLook(NamedTuple):
    """How bars of one kind are drawn: an entry of the legend of rows."""

    name: str
    colour: str
    lane: int = WHOLE_ROW
    pattern: str = ""
    """White lines over the bars, a hatch of matplotlib; pages have none."""
    is_unlisted: bool = False
    """Whether the legend leaves it out."""


def draw_bars(
    ax: Axes,
    start: NDArray[np.floating],
    end: NDArray[np.floating],
    low: NDArray[np.floating],
    high: NDArray[np.floating],
    **style: Any,
) -> None:
    """Draw many rectangles at once, such as bars over time.

    Each reaches across from `start` to `end`, and up from `low` to `high`, arrays of shape
    (bars,). The style has properties of a ``PolyCollection``, such as colours.
    """
    from matplotlib.collections import PolyCollection

    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([low, low, high, high], axis=1)
    ax.add_collection(PolyCollection(list(np.stack([x, y], axis=2)), **style))


def label_time(ax: Axes, span_s: float, rows: int, unit: str = "s") -> None:
    """Set limits and units of a chart over time: time to the right, rows downwards.

    What is drawn is in seconds; ticks are written in a unit that suits the span. The middles of
    the rows are at 0, 1, 2, ... Another `unit`, such as resources, takes the place of seconds.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    scale, name = scale_of(span_s, unit)
    # A label of a tick takes half an inch, and legends may leave axes half of their width.
    most_ticks = int(np.clip(size_in_inches(ax)[0], 3, 8))
    locator = MaxNLocator(most_ticks, steps=[1, 2, 5, 10], integer=unit != "s")
    ticks = locator.tick_values(0.0, span_s / scale or 1.0)
    ax.set(xlim=(0, (span_s or 1.0) * 1.01), ylim=(rows - 0.4, -0.6))
    ax.tick_params(labelsize=8)
    ax.set_xticks([tick * scale for tick in ticks if tick * scale <= 1.01 * (span_s or 1.0)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda amount, _: f"{amount / scale:,.4g}"))
    ax.set_xlabel(f"time in {name}" if unit == "s" else name)


def draw_rows(chart: Mapping[str, Any], ax: Axes | None, row_inches: float = 0.32) -> Axes:
    """Draw the rows of a scene: bars over time, and what is written in them.

    Parameters
    ----------
    chart
        Parts of a scene: `rows`, `bars`, `span_s`, `row_noun` and `legend`, a `BarLook` for each
        kind. There may be `texts`, one for each bar, row after row; times `bounds_s` of a lower
        bound and `changes` of circuits, which become dashed lines; and a `unit` that takes the
        place of seconds.
    ax
        Where to draw; None makes a figure with rows of `row_inches`.
    """
    n_rows = len(chart["rows"])
    looks = chart["legend"]
    ax = axes_of(ax, 10.0, min(30.0, max(2.5, row_inches * n_rows + 1.2)))
    label_time(ax, chart["span_s"], n_rows, chart.get("unit", "s"))

    # Row, kind, start and end of each bar; a scene has millionths of its span.
    n_bars = [len(bars) // 3 for bars in chart["bars"]]
    row: NDArray[np.int64] = np.repeat(np.arange(n_rows), n_bars)
    numbers = np.array(list(chain(*chart["bars"])), dtype=np.int64)
    kind, start, length = numbers.reshape(-1, 3).T
    start_s = start * (chart["span_s"] / 1e6)
    end_s = (start + length) * (chart["span_s"] / 1e6)

    # Bars across a row, over others in its halves, are seen through.
    has_halves = any(look.lane != WHOLE_ROW for look in looks)
    for number, look in enumerate(looks):
        is_kind = kind == number
        if is_kind.any():
            low, high = _EXTENT_OF_LANE[look.lane]
            draw_bars(
                ax,
                start_s[is_kind],
                end_s[is_kind],
                row[is_kind] + low,
                row[is_kind] + high,
                facecolors=look.colour,
                edgecolors="white" if look.pattern else look.colour,
                # A microsecond of a long step is seen.
                linewidths=0.4 if look.lane == LOWER_HALF else 0.0,
                hatch=look.pattern or None,
                alpha=0.35 if has_halves and look.lane == WHOLE_ROW else None,
                label="_" if look.is_unlisted else look.name,
            )

    # A text is written where its bar has room: a letter of 8 points is about 0.075 inches wide.
    # Where axes make room for each other, legend and names of rows leave less than before.
    width_inches, height_inches = size_in_inches(ax)
    most_letters = max(map(len, chart["rows"]), default=0)
    most_letters += max((len(look.name) for look in looks if not look.is_unlisted), default=0)
    width_inches = min(width_inches, 1.29 * width_inches - 0.075 * most_letters - 0.8)
    texts = chart.get("texts", ())
    if height_inches < n_rows * _LINE_INCHES * (1 + has_halves):
        texts = ()
    room_inches = (end_s - start_s) * (width_inches / chart["span_s"]) - 0.03
    for bar, text in enumerate(texts):
        if text and room_inches[bar] > 0.075 * len(text):
            # A pattern would hide the letters: they stand on a plate.
            colour = looks[kind[bar]].colour
            ax.text(
                (start_s[bar] + end_s[bar]) / 2,
                row[bar] + sum(_EXTENT_OF_LANE[looks[kind[bar]].lane]) / 2,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color=palette.ink_on(colour),
                bbox={"boxstyle": "square,pad=0.1", "fc": colour, "ec": "none"},
            )

    # Dashed lines from the bottom to the top.
    style: dict[str, Any] = {"color": palette.INK, "linestyle": "--", "linewidth": 1.0}
    for name, times_s in (
        ("circuits change", chart.get("changes", [])),
        ("lower bound", chart.get("bounds_s", [])),
    ):
        if times_s:
            ax.vlines(times_s, 0, 1, transform=ax.get_xaxis_transform(), label=name, **style)

    # As many rows are named as there is room for.
    most_names = max(1, int(0.8 * figure_of(ax).get_figheight() / 0.14))
    places = choose_ticks(n_rows, most_names)
    ax.set_yticks(places, [chart["rows"][place] for place in places], fontsize=8)
    ax.set_ylabel(chart["row_noun"])
    handles, names = ax.get_legend_handles_labels()
    ax.legend(handles, names, loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return ax


_MOST_TEXTS = 600
"""A map of more boxes has no texts in them."""


def draw_map(chart: Mapping[str, Any], ax: Axes | None, step: int = -1) -> Axes:
    """Draw the map of a scene after a step: boxes with texts, lines between them, and a legend.

    `chart` has the `nodes`, `links`, `bounds`, `legend` and `steps` of a scene, and `is_directed`
    if lines have arrows. A node is [x, y, width, height, text, kind, name], and left out if x is
    NaN; a link is [node, node, kind, width, name], with nodes by number. Kinds are places in the
    legend; a step changes those of some nodes and links. In a new figure a unit of lengths takes
    0.8 inches at most. Step -1 is the last one.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    # The kinds of boxes and lines after all steps up to this one.
    looks = chart["legend"]
    kinds = np.array([node[5] for node in chart["nodes"]], dtype=np.int64)
    kind_of_link = [link[2] for link in chart["links"]]
    for changes in chart["steps"][: step % len(chart["steps"]) + 1]:
        for node, kind in changes.get("nodes", {}).items():
            kinds[int(node)] = kind
        for link, kind in changes.get("links", {}).items():
            kind_of_link[int(link)] = kind

    # On a map y grows downwards.
    left, top, width, height = chart["bounds"]
    inches = min(0.8, 12.0 / max(width, height))
    ax = axes_of(ax, max(5.6, inches * width), max(2.6, inches * height + 1.2))
    ax.set(xlim=(left, left + width), ylim=(top + height, top), aspect="equal")
    ax.set_axis_off()
    width_inches, height_inches = size_in_inches(ax)
    unit_points = 72 * min(width_inches / width, height_inches / height)

    # Boxes without a text, such as plates of servers, lie below the others.
    places = np.array([node[:4] for node in chart["nodes"]], dtype=np.float64).reshape(-1, 4)
    x, y, widths, heights = places.T
    middles = np.stack([x + widths / 2, y + heights / 2], axis=1)
    texts = [node[4] for node in chart["nodes"]]
    is_shown = np.isfinite(x)
    has_text = np.array([text != "" for text in texts], dtype=np.bool_) & is_shown
    colours = np.array([look[1] for look in looks])[kinds]
    for chosen, zorder in ((is_shown & ~has_text, 1), (has_text, 2)):
        draw_bars(
            ax,
            x[chosen],
            (x + widths)[chosen],
            y[chosen],
            (y + heights)[chosen],
            facecolors=colours[chosen],
            edgecolors=palette.INK,
            linewidths=0.5,
            zorder=zorder,
        )
    kinds_of_lines = _draw_links(ax, chart, kind_of_link, middles, has_text, unit_points)

    # Texts of equally wide boxes are written if the longest has room; a letter is 0.62 of its font
    # wide.
    font = readable_font(ax)
    named = np.flatnonzero(has_text).tolist() if has_text.sum() <= _MOST_TEXTS else []
    letters = np.array([max(map(len, text.split("\n"))) for text in texts])
    for node in named:
        most_letters = letters[has_text & (widths == widths[node])].max()
        if unit_points * widths[node] > 0.62 * font * most_letters + 1.0:
            ink = palette.ink_on(str(colours[node]))
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font}
            middle_x, middle_y = middles[node].tolist()
            # Lines would hide the letters: they stand on a plate.
            plate = {"boxstyle": "square,pad=0.1", "fc": colours[node], "ec": "none"}
            ax.text(middle_x, middle_y, texts[node], color=ink, zorder=4, bbox=plate, **style)

    # The legend explains what is drawn; kinds of one name have one entry.
    handles: dict[str, Any] = {}
    for kind in np.unique(kinds[is_shown]):
        name, colour = looks[kind][:2]
        handles[name] = Patch(facecolor=colour, edgecolor=palette.INK, linewidth=0.5, label=name)
    for kind in kinds_of_lines:
        name, colour = looks[kind][:2]
        handles[name] = Line2D([], [], color=colour, label=name)
    inches_of_entry = 0.7 + 0.075 * max(map(len, handles), default=0)
    n_columns = int(np.clip(figure_of(ax).get_figwidth() / inches_of_entry, 1, 4))
    style = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "fontsize": font}
    ax.legend(handles=list(handles.values()), frameon=False, ncols=n_columns, **style)
    return ax


def _draw_links(
    ax: Axes,
    chart: Mapping[str, Any],
    kind_of_link: list[int],
    middles: NDArray[np.float64],
    has_text: NDArray[np.bool_],
    unit_points: float,
) -> list[int]:
    """Draw the lines of a map, bent so that those to and fro lie beside each other.

    A kind of -1, or one whose entry in the legend is "quiet", is not drawn. ``kind_of_link[k]``
    counts in place of the kind in ``chart["links"][k]``. ``middles[node]`` is where lines end,
    ``has_text[node]`` tells boxes that are no plates, and a unit of lengths takes `unit_points`.
    The kinds of drawn lines are returned, ascending.
    """
    from matplotlib.collections import LineCollection

    looks = chart["legend"]
    links = []
    for link, kind in zip(chart["links"], kind_of_link, strict=True):
        if kind >= 0 and tuple(looks[kind][2:]) != ("quiet",):
            links.append((*link[:2], kind, max(0.8, 0.4 * unit_points * link[3])))
    tail, head, kinds, points = np.array(links, dtype=np.float64).reshape(-1, 4).T
    ends = np.stack([tail, head], axis=1).astype(np.int64)
    colours = np.array([look[1] for look in looks])[kinds.astype(np.int64)]

    # A quadratic Bezier curve of eleven points, as on a page.
    start = middles[ends[:, 0]]
    end = middles[ends[:, 1]]
    bend = (start + end) / 2 + 0.12 * (end - start)[:, ::-1] * [-1.0, 1.0]
    t = np.linspace(0, 1, 11)[:, None, None]
    curves = ((1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * end).swapaxes(0, 1)

    # Lines lie over the boxes that they join: those between plates below all other boxes.
    joins_texts = has_text[ends].any(axis=1)
    for chosen, zorder in ((~joins_texts, 1.5), (joins_texts, 3)):
        style: dict[str, Any] = {"colors": colours[chosen], "linewidths": points[chosen]}
        ax.add_collection(LineCollection(list(curves[chosen]), alpha=0.75, zorder=zorder, **style))

    # An arrow stands behind the middle of its line, at point 7 of 0 to 10, and points along it.
    if chart.get("is_directed") and links:
        way = curves[:, 7] - curves[:, 6]
        way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-12)
        style = {"units": "inches", "width": 0.012, "headwidth": 6, "headlength": 7}
        style |= {"scale_units": "inches", "scale": 12.0, "angles": "xy", "pivot": "mid"}
        ax.quiver(*curves[:, 7].T, *way.T, color=colours, zorder=3, **style)
    return sorted({int(kind) for kind in kinds})
