"""Figures of the pages: each is drawn by code, and has letters that can be read.

A figure is 390 pixels wide on a phone. Letters are measured at that width; 8 points are 10.7
pixels.
"""

import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from PIL import Image

from tests.plotting.test_every_kind import crossing, shown_texts

DOCS = Path(__file__).resolve().parent.parent / "docs"
FIGURE = re.compile(
    r"^!\[([^\]]+)\]\(figures/([\w-]+)\.(svg|png)\)\n\n\*([^\n]+)\*\n", re.MULTILINE
)
LEAST_PIXELS = 10.7
PHONE = 390.0


@pytest.fixture(autouse=True)
def own_style() -> Iterator[None]:
    """Give back the style of matplotlib: the code that draws figures of pages sets text sizes."""
    with matplotlib.rc_context():
        yield


# The code that draws puts `docs` in front of the path, where `docs/sphinx` would hide Sphinx.
PATH = list(sys.path)
FIGURES: dict[str, Any] = runpy.run_path(str(DOCS / "figures.py"))["FIGURES"]
sys.path[:] = PATH


def test_every_figure_is_on_a_page_and_drawn_by_code() -> None:
    shown = {
        name
        for page in DOCS.glob("*.md")
        for _, name, _, _ in FIGURE.findall(page.read_text(encoding="utf-8"))
    }
    files = {path.name for path in (DOCS / "figures").iterdir()}
    assert shown == set(FIGURES)
    assert files == {figure.file for figure in FIGURES.values()}


def boxes_of(path: Path) -> list[tuple[str, float, float, float, float, float]]:
    """Return text, size, and estimated left, right, top and bottom of the words of a sketch."""
    boxes = []
    for node in ElementTree.parse(path).getroot().iter():
        if not node.tag.endswith("text"):
            continue
        words = node.text or ""
        size = float(node.attrib["font-size"])
        width = 0.56 * size * len(words)
        anchor = node.attrib["text-anchor"]
        left = float(node.attrib["x"]) - {"start": 0, "middle": width / 2, "end": width}[anchor]
        y = float(node.attrib["y"])
        boxes.append((words, size, left, left + width, y - 0.75 * size, y + 0.2 * size))
    return boxes


@pytest.mark.parametrize(
    "name", [n for n, figure in FIGURES.items() if figure.file.endswith("svg")]
)
def test_a_sketch_can_be_read(name: str) -> None:
    """At 390 pixels: letters of eight points, none over another, none beyond the edge."""
    path = DOCS / "figures" / FIGURES[name].file
    root = ElementTree.parse(path).getroot()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width == PHONE
    assert FIGURES[name].draw().text() == path.read_text(encoding="utf-8"), "draw it anew"
    boxes = boxes_of(path)
    for words, size, left, right, top, bottom in boxes:
        assert size >= LEAST_PIXELS, words
        assert left >= 0 and right <= width and top >= 0 and bottom <= height, words
    for number, (words, _, left, right, top, bottom) in enumerate(boxes):
        for other in boxes[number + 1 :]:
            across = min(right, other[3]) - max(left, other[2])
            down = min(bottom, other[5]) - max(top, other[4])
            assert min(across, down) <= 3, (words, other[0])


@pytest.mark.parametrize(
    "name", [n for n, figure in FIGURES.items() if figure.file.endswith("png")]
)
def test_a_chart_is_small(name: str) -> None:
    path = DOCS / "figures" / FIGURES[name].file
    assert path.stat().st_size < 60_000
    with Image.open(path) as picture:
        assert picture.width == 800


QUICK = (
    "optics-phase", "optics-band", "optics-delays", "rails-figures-gaps", "slices-unusable",
    "rails-figures-published", "rails-figures-artifact", "collectives-reach", "racks-steps",
    "rails-step", "collectives-rounds", "feed-forward-looping",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_chart_can_be_read(name: str) -> None:
    """Letters of ten points on five inches, which are eight on a phone; no overlaps, no cuts."""
    at_least = importlib.import_module("drawing.tools").at_least
    figure = at_least(FIGURES[name].draw())
    assert figure.get_figwidth() == 5.0
    texts = shown_texts(figure)
    assert min(text.get_fontsize() for text in texts) >= 10.0
    assert crossing(texts) == []
    page = figure.bbox.padded(1.5)
    for text in texts:
        corners = text.get_window_extent().corners()
        assert all(page.contains(*corner) for corner in corners), text.get_text()
