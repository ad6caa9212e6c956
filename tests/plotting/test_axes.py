"""`plot(ax=, title=)`: pictures of every kind go into given axes, with the title of the user."""

from __future__ import annotations

from typing import Any

import pytest

import optmatch as om
from optmatch.plotting.drawing import blank_figure
from tests.helpers.answers import answer_named, problem_named
from tests.helpers.pictures import SIZED, sized_answer


@pytest.mark.parametrize("what", ["problem", "answer"])
@pytest.mark.parametrize("kind", SIZED)
def test_a_picture_goes_into_given_axes(kind: str, what: str) -> None:
    """The axes get the drawing and the title; the axes beside them stay empty."""
    shown: Any = problem_named(kind) if what == "problem" else answer_named(kind)
    figure = blank_figure(12.0, 5.0)
    ours, beside = figure.subplots(1, 2)
    assert shown.plot(ax=ours, title="(a) ours") is figure
    assert ours.get_title() == "(a) ours"
    assert ours.collections or ours.images or ours.patches or ours.lines
    assert not (beside.collections or beside.images or beside.patches or beside.lines)
    assert beside.get_title() == ""


@pytest.mark.parametrize("kind", ["all-to-all", "routing", "demand", "slice-allocation"])
def test_large_pictures_go_into_given_axes(kind: str) -> None:
    (ax,) = blank_figure(6.0, 5.0).subplots(1, 1, squeeze=False)[0]
    sized_answer(kind, "100").plot(ax=ax, title="many")
    assert ax.get_title() == "many"


def test_a_slot_goes_into_given_axes() -> None:
    ax = blank_figure(6.0, 5.0).add_subplot()
    answer_named("all-to-all").plot(slot=1, ax=ax, title="slot one")
    assert ax.get_title() == "slot one"


@pytest.mark.parametrize("kind", SIZED)
def test_what_are_no_axes_is_refused(kind: str) -> None:
    with pytest.raises(om.InputError, match="axes of matplotlib are expected"):
        answer_named(kind).plot(ax=3)


def test_optics_draw_losses_and_crosstalk() -> None:
    """Losses and crosstalk side by side; given axes get the losses alone."""
    solution = answer_named("all-to-all")
    optics = om.measure_optics(solution, "smartlight")
    left, right = optics.plot().axes
    n_slots = len(optics.matchings)
    assert [tick.get_text() for tick in left.get_yticklabels()] == [str(k) for k in range(n_slots)]
    worst = [
        f"{row:.1f}" for row in optics.insertion_loss_db.max(axis=1, initial=0.0, where=optics.lit)
    ]
    assert [text.get_text() for text in left.texts] == worst
    assert len(right.texts) == n_slots
    ax = blank_figure(5.0, 4.0).add_subplot()
    assert optics.plot(ax=ax, title="losses").axes == [ax]
    assert ax.get_title() == "losses"
    with pytest.raises(om.InputError, match="axes of matplotlib are expected"):
        optics.plot(ax=3)
