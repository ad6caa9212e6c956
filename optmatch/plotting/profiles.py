"""Performance profiles as pictures without any package: steps in SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from optmatch.plotting.palette import FAINT_INK, INK, circuit_colour

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _LEGEND = 560, 260, 44, 34, 200
_MOST = 10.0


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
    finite = [r for found in ratios.values() for r in found if math.isfinite(r)]
    most = min(_MOST, max([*finite, 1.02]) * 1.05)
    lines = {}
    for method, found in ratios.items():
        points = [(1.0, 0.0)]
        for k, ratio in enumerate(sorted(found), start=1):
            if ratio <= most:
                points.append((ratio, k / len(found)))
        points.append((most, points[-1][1]))
        last = dict(points)  # the last share of equal factors counts
        lines[method] = [(factor, last[factor]) for factor in sorted(last)]
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
    span = math.log(data.most)

    def place(factor: float, share: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT) * math.log(factor) / span
        return f"{x:.1f},{10 + (_HEIGHT - _BOTTOM - 10) * (1 - share):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEGEND} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}" role="img">'
        f"<title>{html.escape(label)}</title>"
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        start, end = place(1.0, share), place(data.most, share)
        y = float(start.partition(",")[2])
        parts.append(f'<path d="M{start} L{end}" stroke="{FAINT_INK}" stroke-width="0.4"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for k in range(5):
        factor = data.most ** (k / 4)
        x = place(factor, 0.0).partition(",")[0]
        text = f"{factor:.4g}"
        parts.append(f'<text x="{x}" y="{_HEIGHT - 18}" text-anchor="middle">{text}</text>')
    middle = (_LEFT + _WIDTH) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">{html.escape(label)}</text>'
    )
    for k, (method, points) in enumerate(data.lines.items()):
        way, share = f"M{place(*points[0])}", points[0][1]
        for factor, higher in points[1:]:
            way += f" L{place(factor, share)} L{place(factor, higher)}"
            share = higher
        colour, y = circuit_colour(k), 18 + 15 * k
        parts.append(f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<path d="M{_WIDTH + 12} {y - 4} h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{_WIDTH + 36}" y="{y}">{html.escape(method)}</text>'
        )
    return "".join(parts) + "</svg>"
