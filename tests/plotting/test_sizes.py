"""Pictures of small, large and very large problems: each can be read, and says what it leaves out.

What can be counted is counted here: letters, their overlaps and sizes, shapes, colours, and how
high a picture is for its width.
"""

from itertools import product
from typing import Any

import pytest
from matplotlib.collections import Collection, LineCollection, PathCollection
from matplotlib.colors import to_hex

import optmatch as om
from optmatch.model import Schedule
from optmatch.plotting import viewer_page
from optmatch.plotting.figures import draw_schedule
from tests.helpers.modes import nightly_only, some
from tests.helpers.pictures import SIZED, SIZES, sized_answer, sized_problem
from tests.plotting.test_every_kind import check_texts, embedded, shown_texts

PICTURES = [
    pytest.param(kind, size, what, marks=() if size == "100" else nightly_only)
    for kind in SIZED
    for size in SIZES
    for what in ("problem", "answer")
]
# Routes of light through cells are many lines by nature, and a matrix is one image.
MOST_COLOURS = 40
MOST_TEXTS = 600
MOST_SHAPES = 6000


def picture(kind: str, size: str, what: str) -> Any:
    """Draw a problem or its answer."""
    if what == "problem":
        return sized_problem(kind, size).plot()
    return sized_answer(kind, size).plot()


def count_shapes(figure: Any) -> tuple[int, int]:
    """Count the shapes of a figure, and the colours that they are filled with."""
    n_shapes = 0
    colours = set()
    for collection in figure.findobj(Collection):
        if collection.get_array() is not None:
            continue  # an even scale, which has a bar of colours
        n_paths = max(len(collection.get_paths()), len(collection.get_offsets()))
        n_shapes += n_paths
        if not isinstance(collection, LineCollection | PathCollection):
            colours |= {to_hex(colour) for colour in collection.get_facecolor()}
    return n_shapes, len(colours)


LEAVES_OUT = {
    ("all-to-all", "problem"): "1,988 more",
    ("all-to-all", "answer"): "single circuits are left out",
    ("routing", "problem"): "16 chosen circuits of 2,048",
    ("routing", "answer"): "16 chosen circuits of 2,048",
    ("demand", "problem"): "a square: 16 x 16 pairs, their sum",
    ("demand", "answer"): "14 of 2,000 source ports, the one that sends longest first",
    ("rail-job", "answer"): "those that do the same share a row",
    ("reroute", "problem"): "left out are 31 racks",
    ("reroute", "answer"): "left out are 31 racks",
    ("slice-allocation", "problem"): "a square is one of 128 racks",
    ("slice-allocation", "answer"): "within racks are left out",
    ("collective", "problem"): "32 of 2,000 ranks and blocks",
    ("collective", "answer"): "of 2,000 ranks are shown",
    ("port-sharing", "problem"): "a row is the mean of its jobs",
    ("port-sharing", "answer"): "a row is the mean of its jobs",
}
"""What a picture of the largest size says of what it leaves out."""


@pytest.mark.parametrize(("kind", "size", "what"), PICTURES)
def test_a_picture_can_be_read(kind: str, size: str, what: str) -> None:
    """It has no more of anything than a reader takes in, and says what it leaves out."""
    figure = picture(kind, size, what)
    check_texts(figure)
    width, height = figure.get_size_inches()
    assert height <= 1.7 * width, "a column that nobody can see at once"
    n_shapes, n_colours = count_shapes(figure)
    assert n_shapes <= MOST_SHAPES
    assert n_colours <= MOST_COLOURS
    texts = shown_texts(figure)
    assert len(texts) <= MOST_TEXTS
    if size == "2000":
        said = "\n".join(text.get_text() for text in texts)
        assert LEAVES_OUT.get((kind, what), "") in said


NARROW = {
    "benes 2": om.Benes(2),
    "benes 4": om.Benes(4),
    "crossbar 2": om.Crossbar(2),
    "hex 1x1": om.HexMesh(1, 1, ports=2),
    "square 1x1": om.SquareMesh(1, 1),
    "triangular 1x1": om.TriangularMesh(1, 1),
    "ideal 2": om.IdealSwitch(2),
    "ideal 48": om.IdealSwitch(48),
    "hex 17x17": om.HexMesh(17, 17, ports=64),
    "hex 36x36": om.HexMesh(36, 36, ports=128),
    "benes 256": om.Benes(256),
    "spanke 24": om.SpankeBenes(24),
}


@pytest.mark.parametrize(("name", "n_slots"), some(product(NARROW, (1, 3, 20)), 5))
def test_fabrics_of_every_shape_can_be_read(name: str, n_slots: int) -> None:
    """Titles of narrow fabrics are not cut, and numbers of many ports do not overlap."""
    import numpy as np

    fabric = NARROW[name]
    idle = np.full((n_slots, fabric.n_ports), -1, dtype=np.int32)
    states = np.ones((n_slots, fabric.n_cells), dtype=np.int8) if fabric.graph else None
    schedule = Schedule(matchings=idle, durations_s=np.ones(n_slots), cell_states=states)
    check_texts(draw_schedule((fabric, schedule)))


@pytest.mark.parametrize("n_ports", [2, 5, 11, 12, 13, 40])
def test_a_mesh_of_too_many_cells_to_draw_names_its_ports(n_ports: int) -> None:
    """Few ports are all named, each on both sides; of many the first and the last six."""
    figure = om.HexMesh(42, 42, ports=n_ports).plot()
    check_texts(figure)
    texts = [text.get_text() for text in figure.axes[0].texts]
    named = range(n_ports) if n_ports <= 12 else [*range(6), *range(n_ports - 6, n_ports)]
    more = [f"{n_ports - 12} more"] * 2 if n_ports > 12 else []
    expected = [str(port) for port in named for _ in range(2)] + more
    assert sorted(texts[1:]) == sorted(expected)


@pytest.mark.parametrize("name", NARROW)
def test_problems_on_fabrics_of_every_shape_can_be_read(name: str) -> None:
    fabric = NARROW[name]
    if fabric.n_ports > 1:
        check_texts(om.AllToAll(fabric).plot())


@pytest.mark.parametrize("size", ["100", pytest.param("2000", marks=nightly_only)])
@pytest.mark.parametrize("kind", ["port-sharing", "reroute", "slice-allocation"])
def test_a_map_of_many_parts_fills_its_page(kind: str, size: str) -> None:
    """No sliver: a map of jobs or racks is about as wide as a screen, or as high."""
    data = embedded(viewer_page(sized_answer(kind, size)))
    _, _, width, height = data["bounds"]
    assert 0.8 <= width / height <= 4.0
