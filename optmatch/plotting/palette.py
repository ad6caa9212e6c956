"""Colours of circuits: told apart at 16 and more, also by readers who do not see red or green."""

from __future__ import annotations

from typing import Any

CIRCUIT_COLOURS = (
    *("#266ec3", "#77d32f", "#a51105", "#c0abe9", "#249c74", "#623b6b", "#e94211", "#7584fe"),
    *("#3738ac", "#87ba88", "#037465", "#a383bc", "#cb0f45", "#635a93", "#ca933e", "#6861f1"),
    *("#8a1842", "#8e6a9f", "#4ad0ba", "#df676b", "#7a9ce9", "#54b1a6", "#751888", "#2653d8"),
)
"""Each is as far as possible from all before it, in the least favourable of normal, protan and
deutan sight, measured in the OKLab space; so neighbours contrast in hue and in lightness."""

STATE_COLOURS = {"bar": "#4b5563", "cross": "#111827", "free": "#c3ccd6"}
CELL_FILL = "#eef1f5"
TOGGLED_FILL = "#ffe3a3"
BROKEN = "#d00000"
INK = "#1f2937"
FAINT_INK = "#8a94a3"


def circuit_colour(place: int) -> str:
    """Return the colour of the circuit at this place of its slot; colours repeat after 24."""
    return CIRCUIT_COLOURS[place % len(CIRCUIT_COLOURS)]


def mix_with_white(colour: str) -> str:
    """Return a pale shade of a colour ``"#rrggbb"``: three quarters are white."""
    parts = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return "#" + "".join(f"{(part + 3 * 255) // 4:02x}" for part in parts)


def ink_on(colour: Any) -> str:
    """Return the ink that is read best on a colour: ``"#rrggbb"``, or parts from 0 to 1."""
    if isinstance(colour, str):
        colour = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (part**2.2 for part in colour[:3])
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.36 else INK
