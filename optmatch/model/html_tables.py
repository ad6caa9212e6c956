"""Figures as HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence


def html_summary(title: str, figures: Mapping[str, str], lines: Sequence[str] = ()) -> str:
    """Return a title, a list of lines and a table of figures as HTML, for a notebook.

    Examples
    --------
    >>> html_summary("verified", {"slots": "3"})
    '<p><b>verified</b></p><table><tr><th>slots</th><td>3</td></tr></table>'
    """
    parts = [f"<p><b>{html.escape(title)}</b></p>"]
    if lines:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        parts.append(f"<ul>{items}</ul>")
    if figures:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in figures.items()
        )
        parts.append(f"<table>{rows}</table>")
    return "".join(parts)
