"""Objects show themselves in Jupyter, and plain reprs stay what they are."""

from __future__ import annotations

import subprocess
import sys

import pytest

import optmatch as om


def test_a_fabric_is_a_picture() -> None:
    """An SVG by the method that Jupyter looks for."""
    pytest.importorskip("matplotlib")
    assert "<svg" in om.HexMesh(2, 2, ports=4)._repr_svg_()  # type: ignore[attr-defined]


def test_a_solution_is_its_viewer() -> None:
    """A page in a frame with a schedule, the reason without one."""
    found = om.solve(om.AllToAll(om.HexMesh(3, 3, ports=4)), seed=0)
    assert "<iframe" in found._repr_html_()  # type: ignore[attr-defined]
    mesh = om.HexMesh(2, 2, ports=list(om.HexMesh(2, 2).dead_pairs()[0]))
    none = om.solve(om.AllToAll(mesh), seed=0)
    assert "no state of the cells" in none._repr_html_()  # type: ignore[attr-defined]


def test_without_matplotlib_a_fabric_is_its_repr() -> None:
    """Jupyter takes None for no picture and falls back to the text."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; import optmatch as om;"
        "print(om.HexMesh(2, 2)._repr_svg_())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "None\n"
