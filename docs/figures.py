"""Draw the figures of the pages: ``python docs/figures.py``, or with names for some of them.

Each is made by a function of `docs/drawing` that has its name, and lies in `docs/figures`. They
are kept with the pages, so that the site is built quickly and a viewer of the repository shows
them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drawing import chips, rooms, traffic, training
from drawing.tools import FIGURES, FOLDER, Sketch, at_least, encode_chart

__all__ = ["FIGURES", "chips", "rooms", "traffic", "training"]


def main() -> None:
    """Draw all figures, or those that are named."""
    names = sys.argv[1:] or list(FIGURES)
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        file, draw = FIGURES[name]
        drawn = draw()
        if isinstance(drawn, Sketch):
            content = drawn.text().encode()
        else:
            content = encode_chart(at_least(drawn))
        (FOLDER / file).write_bytes(content)
        print(f"docs/figures/{file}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
