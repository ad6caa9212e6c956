"""Performance profiles and curves as pictures without any package: lines in SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from optmatch.plotting.palette import FAINT_INK, INK, circuit_colour

# Sizes in pixels of a phone: of the axes with title and labels; the legend stands below them.
_WIDTH = 390
_HEIGHT = 250
_LEFT = 48
_RIGHT = 376
_TOP = 30
_BOTTOM = 44
_LINE_HEIGHT = 18

_MAX_FACTOR = 10.0
"""Methods that are further from the best are not told apart."""


class ProfileData(NamedTuple):
    """The steps of a performance profile."""

    most: float
    """The last factor on the axis."""
    lines: dict[str, list[tuple[float, float]]]
    """By method: points (factor, share of the tasks within it), rising."""


def profile_data(ratios: Mapping[str, Sequence[float]]) -> ProfileData:
    """Lay out how often each method is within a factor of the best.

    Parameters
    ----------
    ratios
        By method, for each task, how many times the best it is; infinite if it has no answer.

    Examples
    --------
    >>> profile_data({"a": [1.0, 2.0], "b": [math.inf, 1.0]}).lines["a"]
    [(1.0, 0.5), (2.0, 1.0), (2.1, 1.0)]
    """
    finite = [ratio for row in ratios.values() for ratio in row if math.isfinite(ratio)]
    most = min(_MAX_FACTOR, max([*finite, 1.02]) * 1.05)
    lines = {}
    for method, row in ratios.items():
        points = [(1.0, 0.0)]
        for n_tasks, ratio in enumerate(sorted(row), start=1):
            if ratio <= most:
                points.append((ratio, n_tasks / len(row)))
        points.append((most, points[-1][1]))
        share_at = dict(points)  # of equal factors the last share counts
        lines[method] = [(factor, share_at[factor]) for factor in sorted(share_at)]
    return ProfileData(most, lines)


def profile_svg(ratios: Mapping[str, Sequence[float]], label: str, title: str) -> str:
    """Draw a performance profile: factors on a logarithmic axis, shares upwards.

    Parameters
    ----------
    ratios
        As for `profile_data`.
    label
        The label of the axis of factors.
    title
        The text above the axes, which says what the picture shows.
    """
    data = profile_data(ratios)
    parts = _draw_axes(data, label)
    for number, points in enumerate(data.lines.values()):
        colour = circuit_colour(number)
        path = _stairs(data, points)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return _picture(parts, list(data.lines), title)


class Curve(NamedTuple):
    """A figure of a method over sizes, with its spread."""

    sizes: list[float]
    means: list[float]
    lows: list[float]
    highs: list[float]


def curves_svg(curves: Mapping[str, Curve], labels: tuple[str, str], title: str) -> str:
    """Draw how well several methods do over the size of their problems, as a picture in SVG.

    Each method is a line through its means, one for each size. A thin upright line through a mean
    leads from the least to the largest value.

    Parameters
    ----------
    curves
        By name of method four lists of equal length: `sizes`, and for each size the mean, the
        lowest and the highest value (`lows`, `highs`).
    labels
        The labels of the axis of sizes, and of the axis of the figure, with its unit.
    title
        The text above the axes, which says what the picture shows.

    Returns
    -------
    str
        The SVG element.

    Examples
    --------
    >>> svg = curves_svg({"a": Curve([8.0, 16.0], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5])},
    ...                  ("ports", "gap, %"), "gap against size")
    >>> svg.startswith("<svg"), "gap, %" in svg
    (True, True)
    """
    # The sizes of all methods, and the largest value.
    sizes = sorted({size for curve in curves.values() for size in curve.sizes})
    largest = max((high for curve in curves.values() for high in curve.highs), default=0.0) or 1.0

    # Sizes that grow by factors have equal distances on a logarithmic axis.
    is_logarithmic = sizes[0] > 0 and sizes[-1] >= 4 * sizes[0]
    scaled = [math.log(size) if is_logarithmic else size for size in sizes]
    span = scaled[-1] - scaled[0] or 1.0
    x_of_size = {}
    for size, value in zip(sizes, scaled, strict=True):
        x_of_size[size] = _LEFT + 12 + (_RIGHT - _LEFT - 24) * (value - scaled[0]) / span

    def y_of(value: float) -> float:
        """Return the height of a value, in pixels from the top."""
        return _y_of(value / (1.05 * largest))

    # Five lines across, from 0 to the largest value.
    parts = []
    for quarter in range(5):
        value = largest * quarter / 4
        y = round(y_of(value), 1)
        line = f"M{_LEFT},{y} L{_RIGHT},{y}"
        parts.append(f'<path d="{line}" stroke="{FAINT_INK}" stroke-width="0.4"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{value:.3g}</text>')

    # Sizes are written from left to right where they have 34 pixels of room after the last one.
    last_x = -math.inf
    for size in sizes:
        if x_of_size[size] - last_x >= 34:
            last_x = x_of_size[size]
            y_text = _HEIGHT - _BOTTOM + 16
            text = f"{size:g}"
            parts.append(f'<text x="{last_x:.1f}" y="{y_text}" text-anchor="middle">{text}</text>')

    # Points of each method, above the grid.
    for number, curve in enumerate(curves.values()):
        colour = circuit_colour(number)
        points = []
        for size, mean, low, high in zip(*curve, strict=True):
            # Methods stand a little beside each other, so that all their spreads are seen.
            x = x_of_size[size] + 3 * (number - (len(curves) - 1) / 2)
            points.append(f"{x:.1f},{y_of(mean):.1f}")
            spread = f"M{x:.1f},{y_of(low):.1f} L{x:.1f},{y_of(high):.1f}"
            parts.append(f'<path d="{spread}" stroke="{colour}" stroke-width="1"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y_of(mean):.1f}" r="3" fill="{colour}"/>')
        line = " ".join(points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
    parts += _name_axes(*labels)
    return _picture(parts, list(curves), title)


def _picture(parts: Sequence[str], names: Sequence[str], title: str) -> str:
    """Put an escaped title above the parts of a picture, and the names of its lines below."""
    height = _HEIGHT + _LINE_HEIGHT * len(names) + 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}" role="img">'
        f"<title>{html.escape(title)}</title>",
        f'<text x="{_LEFT}" y="16" font-size="13" font-weight="bold">{html.escape(title)}</text>',
        *parts,
    ]
    for number, name in enumerate(names):
        y = _HEIGHT + 8 + _LINE_HEIGHT * number
        colour = circuit_colour(number)
        lines.append(
            f'<path d="M{_LEFT} {y - 4} h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{_LEFT + 26}" y="{y}">{html.escape(name)}</text>'
        )
    return "".join(lines) + "</svg>"


def _name_axes(across: str, upwards: str) -> list[str]:
    """Return the labels below and beside the axes as elements of SVG."""
    middle_x = (_LEFT + _RIGHT) / 2
    middle_y = (_TOP + _HEIGHT - _BOTTOM) / 2
    return [
        f'<text x="{middle_x:.1f}" y="{_HEIGHT - 10}" text-anchor="middle">'
        f"{html.escape(across)}</text>",
        f'<text transform="translate(12 {middle_y:.1f}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(upwards)}</text>",
    ]


def _x_of(data: ProfileData, factor: float) -> float:
    """Return the place of a factor on the logarithmic axis, in pixels."""
    return _LEFT + (_RIGHT - _LEFT) * math.log(factor) / math.log(data.most)


def _y_of(share: float) -> float:
    """Return the height of a share from 0 to 1, in pixels from the top."""
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - share)


def _draw_axes(data: ProfileData, label: str) -> list[str]:
    """Return the elements of grid lines and labels, up to the last factor of the profile."""
    parts = []
    left = _x_of(data, 1.0)
    right = _x_of(data, data.most)

    # Lines across, with shares of the tasks in percent on the left.
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = round(_y_of(share), 1)
        line = f"M{left:.1f},{y:.1f} L{right:.1f},{y:.1f}"
        parts.append(f'<path d="{line}" stroke="{FAINT_INK}" stroke-width="0.4"/>')
        text = f"{100 * share:.0f}"
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    # Five factors below, evenly apart on a logarithmic axis that begins at 1: with a last factor
    # of 16 they are 1, 2, 4, 8 and 16.
    for quarter in range(5):
        factor = data.most ** (quarter / 4)
        x = _x_of(data, factor)
        text = f"{factor:.4g}"
        anchor = "end" if quarter == 4 else "middle"
        y_text = _HEIGHT - _BOTTOM + 16
        parts.append(f'<text x="{x:.1f}" y="{y_text}" text-anchor="{anchor}">{text}</text>')
    return parts + _name_axes(label, "% of the tasks")


def _stairs(data: ProfileData, points: list[tuple[float, float]]) -> str:
    """Return the path of a line that stays at its share until the next factor, in pixels.

    `points` are a factor of the best value and the share of tasks within it, both ascending.
    """
    factor, share = points[0]
    path = f"M{_x_of(data, factor):.1f},{_y_of(share):.1f}"
    for next_factor, next_share in points[1:]:
        x = _x_of(data, next_factor)
        path += f" L{x:.1f},{_y_of(share):.1f} L{x:.1f},{_y_of(next_share):.1f}"
        share = next_share
    return path
