"""Objects show themselves in Jupyter, and plain reprs stay what they are."""

import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest

import optmatch as om


def test_a_fabric_is_a_picture() -> None:
    pytest.importorskip("matplotlib")
    assert "<svg" in str(om.HexMesh(2, 2, ports=4)._repr_svg_())


def test_a_solution_is_its_viewer() -> None:
    found = om.solve(om.AllToAll(om.HexMesh(3, 3, ports=4)), seed=0)
    assert "<iframe" in found._repr_html_()
    mesh = om.HexMesh(2, 2, ports=list(om.HexMesh(2, 2).dead_pairs()[0]))
    none = om.solve(om.AllToAll(mesh), seed=0)
    assert "no state of the cells" in none._repr_html_()


def test_a_figure_is_a_picture_without_pyplot() -> None:
    """The last line of a cell shows it, though nobody has loaded pyplot or said %matplotlib."""
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="needs IPython")
    shell = shells.InteractiveShell.instance()
    try:
        figure = om.AllToAll(om.HexMesh(2, 2, ports=4)).plot()
        shown, _ = shell.display_formatter.format(figure)
    finally:
        shells.InteractiveShell.clear_instance()
    assert shown["image/png"].startswith(b"\x89PNG")


def _answers() -> list[om.Solution]:
    """Solve one small problem of each kind."""
    mesh = om.HexMesh(2, 2, ports=4)
    model = om.TransformerModel(layers=2, hidden=64, heads=4, sequence=64, vocabulary=256, ffn=256)
    job = om.RailJob(
        parallelism=om.Parallelism(dp=2, tp=2, pp=1),
        network=om.RailNetwork(gpus_per_server=2, delay_s=0.01),
        workload=om.Workload(model=model, batch=4, micro_batch=2),
    )
    two = om.Demand.from_matrix([[0, 4], [4, 0]], delay_s=1, planes=2)
    problems = [
        om.Routing(mesh, np.array([1, 0, -1, -1], dtype=np.int32)),
        two,
        job,
        om.load("instances/reroute/rack-64-chip.json"),
        om.SliceAllocation(om.RackFabric(), (2, 2, 1)),
        om.Collective("all-gather", 3, 3.0),
    ]
    return [om.solve(problem, seed=0) for problem in cast("list[Any]", problems)]


def test_each_kind_of_answer_has_a_summary_a_figure_and_a_table() -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    for solution in _answers():
        kind = solution.problem.kind
        assert solution.summary().startswith(kind)
        assert len(solution.summary().splitlines()) <= 3
        assert solution.plot().axes, kind
        shown = solution._repr_html_()
        assert "<iframe" in shown or "<svg" in shown, kind
        assert len(solution.to_dataframe()) > 0, kind


def test_without_matplotlib_a_fabric_is_its_repr() -> None:
    """Jupyter takes None for no picture and falls back to the text."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; import optmatch as om;"
        "print(om.HexMesh(2, 2)._repr_svg_())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "None\n"
