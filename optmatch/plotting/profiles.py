"""Performance profiles as pictures without any package: steps in SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from optmatch.plotting.palette import FAINT_INK, INK, circuit_colour

# Sizes in pixels: of the axes with their labels, of the labels, and of the legend beside them.
_WIDTH = 560
_HEIGHT = 260
_LEFT = 44
_TOP = 10
_BOTTOM = 34
_LEGEND = 200
_LINE_HEIGHT = 15

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


def profile_svg(ratios: Mapping[str, Sequence[float]], label: str) -> str:
    """Draw a performance profile: factors on a logarithmic axis, shares upwards.

    Parameters
    ----------
    ratios
        As for `profile_data`.
    label
        The label of the axis of factors.
    """
    data = profile_data(ratios)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEGEND} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}" role="img">'
        f"<title>{html.escape(label)}</title>"
    ]
    parts += _draw_axes(data, label)
    for number, (method, points) in enumerate(data.lines.items()):
        colour = circuit_colour(number)
        path = _stairs(data, points)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = 18 + _LINE_HEIGHT * number
        parts.append(
            f'<path d="M{_WIDTH + 12} {y - 4} h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{_WIDTH + 36}" y="{y}">{html.escape(method)}</text>'
        )
    return "".join(parts) + "</svg>"


def _x_of(data: ProfileData, factor: float) -> float:
    """Return the place of a factor on the logarithmic axis, in pixels."""
    return _LEFT + (_WIDTH - _LEFT) * math.log(factor) / math.log(data.most)


def _y_of(share: float) -> float:
    """Return the height of a share from 0 to 1, in pixels from the top."""
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - share)


def _draw_axes(data: ProfileData, label: str) -> list[str]:
    """Return the elements of grid lines and labels."""
    parts = []
    left = _x_of(data, 1.0)
    right = _x_of(data, data.most)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = round(_y_of(share), 1)
        line = f"M{left:.1f},{y:.1f} L{right:.1f},{y:.1f}"
        parts.append(f'<path d="{line}" stroke="{FAINT_INK}" stroke-width="0.4"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for quarter in range(5):
        factor = data.most ** (quarter / 4)
        x = _x_of(data, factor)
        text = f"{factor:.4g}"
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{text}</text>')
    middle = (_LEFT + _WIDTH) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">{html.escape(label)}</text>'
    )
    return parts


def _stairs(data: ProfileData, points: list[tuple[float, float]]) -> str:
    """Return the path of a line that stays at its share until the next factor."""
    factor, share = points[0]
    path = f"M{_x_of(data, factor):.1f},{_y_of(share):.1f}"
    for next_factor, next_share in points[1:]:
        x = _x_of(data, next_factor)
        path += f" L{x:.1f},{_y_of(share):.1f} L{x:.1f},{_y_of(next_share):.1f}"
        share = next_share
    return path
