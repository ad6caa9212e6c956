"""Every notebook runs from top to bottom in an empty folder, and shows what it draws."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
LIMIT = re.compile(r"\btime_limit_s=[\d.]+(?![\w.])")
DRAWS = re.compile(r"\bplot_\w+\(|\.plot\(\)|\bfigure$")

QUICK = """%reset -f
%cd -q {}
%config InlineBackend.print_figure_kwargs = {{}}
from optmatch.solvers.rails import forwarding
forwarding._MOST_TRIALS = 150"""
"""No name of another notebook is left; a figure is drawn once, and not again to cut it; plans of
rails are searched for elsewhere."""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """Start one process for all notebooks: what the first one loads is there for the others."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_pictures(path: Path, tmp_path: Path, kernel: Any) -> None:
    """A cell that calls for a picture has one among its outputs; none is given as a name.

    Searches that go on until their limit have a tenth of the time.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    start: Any = nbformat.v4.new_code_cell(QUICK.format(tmp_path))  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        cell.source = LIMIT.sub(r"\g<0> / 10", cell.source)
    notebook.cells.insert(0, start)
    client = NotebookClient(notebook, km=kernel, timeout=300)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    calls = shown = 0
    for cell in notebook.cells:
        if cell.cell_type != "code" or not DRAWS.search(cell.source.rstrip()):
            continue
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        calls += 1
        shown += bool(kinds & {"image/png", "image/svg+xml"})
    assert calls == shown, f"{calls} cells draw, {shown} show a picture"
    assert calls > 0


@pytest.mark.parametrize("delay_s", [0.0, 0.5, 0.3, 1.0])
def test_the_method_of_a_reader_holds_at_any_delay(delay_s: float) -> None:
    """A schedule has durations in ticks, which are seconds at some delays only."""
    import json

    import numpy as np
    from scipy.optimize import linear_sum_assignment

    import optmatch as om

    notebook = json.loads((FOLDER / "09-your-own-method.ipynb").read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    (cell,) = [source for source in sources if source.startswith("def heaviest_first")]
    names: dict[str, Any] = {"np": np, "om": om, "linear_sum_assignment": linear_sum_assignment}
    exec(cell.partition("\nmine = ")[0], names)
    problem = om.Demand.from_matrix([[0, 3, 1], [2, 0, 2], [0, 1, 0]], delay_s=delay_s)
    report = om.verify(problem, names["heaviest_first"](problem))
    assert report.valid, report


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_outputs_are_stored_and_small(path: Path) -> None:
    """A viewer of the repository shows pictures; no output names a folder of a machine."""
    import base64
    import io
    import json

    from PIL import Image

    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 300_000
    n_pictures = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["execution_count"] is not None, "run `python notebooks/store.py`"
        for output in cell["outputs"]:
            text = json.dumps({key: value for key, value in output.items() if key != "data"})
            data = output.get("data", {})
            text += json.dumps([value for kind, value in data.items() if kind != "image/png"])
            assert "<iframe" not in text
            assert not re.search(r"/tmp/|/usr/|site-packages", text)
            n_pictures += bool({"image/png", "image/svg+xml"} & set(data))
            if "image/png" in data:
                with Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) as picture:
                    assert picture.width <= 720
    assert n_pictures > 0
