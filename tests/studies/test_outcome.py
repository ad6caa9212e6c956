"""Every study has tables, one JSON object and one picture."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

import optmatch as om
from optmatch.plotting import methods_data, plot_methods
from optmatch.studies import MethodComparison, Study
from optmatch.sweeps.store import Row, empty_row

DEMAND = om.Demand.from_matrix([[0, 3, 1], [2, 0, 2], [0, 1, 0]], delay_s=1.0)

STUDIES: dict[str, Callable[[], Study]] = {
    "yield": lambda: om.study_yield(om.AllToAll(om.HexMesh(2, 2, ports=4)), samples=5, seed=0),
    "fabrics": lambda: om.compare_fabrics({"benes": om.Benes(4)}, [[1, 0, 3, 2]], "ideal"),
    "methods": lambda: om.compare_methods(
        {"small": DEMAND}, ["solstice", "eclipse", "negotiated"]
    ),
    "variation": lambda: om.vary(DEMAND, {"delay_s": [0.0, 1.0]}, ["solstice", "negotiated"]),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_tables_an_object_and_a_picture(name: str) -> None:
    study = STUDIES[name]()
    assert isinstance(study, Study)
    assert (study.name, study.complete) == (name, True)
    assert any(study.tables.values())
    for rows in study.tables.values():
        assert len({tuple(row) for row in rows}) <= 1, "rows of a table have the same columns"
    assert json.loads(json.dumps(study.to_object(), allow_nan=False))
    assert study.plot().get_axes()
    axes = Figure().subplots()
    if name == "fabrics":
        with pytest.raises(om.InputError, match="four axes: give an empty figure"):
            study.plot(ax=axes)
    else:
        assert study.plot(ax=axes) is axes.get_figure()
        assert axes.has_data()
    first = next(iter(study.tables.values()))
    table = study.to_dataframe()
    assert (len(table), list(table)) == (len(first), list(first[0]))


def test_the_tables_of_a_yield_study_are_its_fields() -> None:
    study = om.study_yield(om.AllToAll(om.HexMesh(2, 2, ports=4)), 2, samples=12, seed=1)
    outcomes = {row["outcome"]: row["samples"] for row in study.tables["samples"]}
    assert outcomes == {
        name: getattr(study, name) for name in ("survived", "failed", "unrepaired")
    }
    assert sum(row["broken"] for row in study.tables["cells"]) == study.broken.sum() == 24
    cells = [row["cell"] for row in study.tables["cells"]]
    assert list(dict.fromkeys(cells)) == [cell for cell in study.ranking() if cell in cells]
    assert study == pickle.loads(pickle.dumps(study))


def test_a_comparison_is_the_list_of_its_rows() -> None:
    rows = om.compare_methods({"small": DEMAND}, ["solstice", "eclipse"])
    assert isinstance(rows, list)
    (first, second) = rows
    assert rows == [first, second]
    assert [row["objective"] for row in rows.tables["methods"]] == [
        first.objective,
        second.objective,
    ]
    part = MethodComparison(rows, complete=False)
    for twin in (copy.copy(part), pickle.loads(pickle.dumps(part))):
        assert (twin, twin.complete) == (rows, False)


def test_objectives_are_drawn_over_the_smallest_of_their_problem() -> None:
    def row(name: str, method: str, objective: om.model.Score | None) -> Row:
        return replace(
            empty_row(om.Task(DEMAND, name=name), "", ""), method=method, objective=objective
        )

    rows = [
        *(row("a", "one", 2.0), row("a", "two", 3.0)),
        *(row("b", "one", None), row("b", "two", 5)),
        *(row("levels", "one", (1, 2)), row("nothing", "one", 0.0)),
    ]
    panel = methods_data(rows)
    assert panel.labels == ["a", "b"]
    np.testing.assert_array_equal(panel.series["one"], [1.0, np.nan])
    np.testing.assert_array_equal(panel.series["two"], [1.5, 1.0])
    assert len(plot_methods(rows).get_axes()) == 1
    with pytest.raises(om.InputError, match="no objectives to draw"):
        MethodComparison([row("levels", "one", (1, 2))]).plot()
