"""Every notebook runs from top to bottom in an empty folder, and shows what it draws."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
DRAWS = re.compile(r"\bplot_\w+\(|\.plot\(\)|\bfigure$")

QUICK = """%config InlineBackend.print_figure_kwargs = {}
from optmatch.solvers.rails import forwarding
forwarding._MOST_TRIALS = 150"""
"""A figure is drawn once, and not again to cut it; plans of rails are searched for elsewhere."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_pictures(path: Path, tmp_path: Path) -> None:
    """A cell that calls for a picture has one among its outputs; none is given as a name."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, nbformat.v4.new_code_cell(QUICK))  # type: ignore[no-untyped-call]
    NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    calls = shown = 0
    for cell in notebook.cells:
        if cell.cell_type != "code" or not DRAWS.search(cell.source.rstrip()):
            continue
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        calls += 1
        shown += bool(kinds & {"image/png", "image/svg+xml"})
    assert calls == shown, f"{calls} cells draw, {shown} show a picture"
    assert calls > 0
