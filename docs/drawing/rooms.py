"""The picture of the architecture: layers, what each imports, and the way of a problem.

Everything in it is read: the layers from the contracts in `pyproject.toml`, and the imports from
the modules.
"""

from __future__ import annotations

import ast
import tomllib
from itertools import pairwise
from pathlib import Path

from drawing.tools import BLUE, FAINT, GREEN, PALE, PALE_BLUE, WIDTH, Sketch, sketch

ROOT = Path(__file__).resolve().parents[2]

ROW_HEIGHT = 25.0
MATRIX_LEFT = 160.0
"""Where the dots begin, in pixels."""

WAY = ("io", "problems", "solvers", "verify", "plotting")
"""What a problem passes: it is read, stated, solved, verified, and drawn."""


def list_layers() -> list[list[str]]:
    """Return the layers from the top down, each with the rooms that stand side by side."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract for contract in contracts if contract["id"] == "rooms"]
    layers = [
        [name.strip().removeprefix("optmatch.") for name in layer.split("|")]
        for layer in rooms["layers"]
    ]
    return [layer for layer in layers if layer != ["__main__"]]


def list_imports(room: str) -> set[str]:
    """Return the other rooms that modules of a room import, in functions too."""
    place = ROOT / "optmatch" / room
    modules = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    imported = set()
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optmatch."):
                imported.add(str(node.module).split(".")[1])
    return imported - {room}


@sketch
def architecture() -> Sketch:
    """Draw the layers as a stack, and beside it a dot for each room that a room imports.

    Dots are right of the diagonal, since whoever is above may import whoever is below; those to
    the left of it are pictures that solutions and fabrics draw of themselves when asked to.
    """
    layers = list_layers()
    rooms = [room for layer in layers for room in layer]
    side_by_side = {room for layer in layers if len(layer) > 1 for room in layer}
    step = (WIDTH - MATRIX_LEFT - 6) / len(rooms)
    top = 40
    drawing = Sketch(
        top + ROW_HEIGHT * len(rooms) + 34, "The rooms of optmatch, and their imports"
    )
    y_of = {room: top + ROW_HEIGHT * (number + 0.5) for number, room in enumerate(rooms)}
    x_of = {room: MATRIX_LEFT + step * (number + 0.5) for number, room in enumerate(rooms)}
    for number, room in enumerate(rooms, start=1):
        # Rooms of one layer do not know each other; they have one colour.
        fill = PALE_BLUE if room in side_by_side else PALE
        drawing.box(52, y_of[room] - 11, 100, 22, f"{number} {room}", fill=fill, size=11)
        drawing.words(x_of[room], top - 10, str(number), size=11, ink=FAINT)
        for other in sorted(list_imports(room) & set(rooms)):
            drawing.dot(x_of[other], y_of[room], 3, fill=BLUE)
        drawing.dot(x_of[room], y_of[room], 1.5, fill=FAINT)

    # The way of a problem, at the left edge.
    for number, (before, after) in enumerate(pairwise(WAY)):
        x = 42 - 9 * number
        start = (52, y_of[before])
        end = (52, y_of[after])
        drawing.line(start, (x, start[1]), (x, end[1]), end, arrow=True, ink=GREEN)
    drawing.words(6, 12, "green: the way of a problem", size=11, side="start", ink=GREEN)
    y_end = top + ROW_HEIGHT * len(rooms) + 16
    drawing.words(
        6, y_end, "blue dot: the room of the row imports that of the column", size=11, side="start"
    )
    return drawing
