"""The progress of a search below a cell of Jupyter: a bar with the best answer and its gap."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from optmatch.model import Bound, NewBest, Problem, Score, gap_between, unit_of, write_score
from optmatch.model.limits import Event
from optmatch.plotting.palette import CIRCUIT_COLOURS, STATE_COLOURS

_LEAST_PAUSE_S = 0.2
"""Between two changes of the bar: each is a message to the browser."""


class CellProgress:
    """Show how a search goes below its cell: ``solve(..., on_event=CellProgress())``.

    A bar shows how near the lower bound is to the best answer, or how much of a phase is done, and
    a text beside it the best objective, the bound, the gap and the time. Outside Jupyter nothing
    is shown, so that the same code runs in a script.

    Parameters
    ----------
    problem
        Whose unit the figures get; None for plain numbers.

    See Also
    --------
    plot_progress : The same events against time, after the search.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.AllToAll(om.HexMesh(3, 3, ports=4))
    >>> progress = CellProgress(problem)
    >>> solution = om.solve(problem, seed=0, on_event=progress)
    >>> progress.best == solution.objective
    True
    """

    best: Score | None
    """The objective of the best answer that has been told of."""
    lower_bound: Score | None
    """The best bound that has been told of."""

    def __init__(self, problem: Problem | None = None):
        """Make a bar that has not been shown yet; its clock starts now.

        Parameters
        ----------
        problem
            The problem that is solved, for the unit of its objective; None writes numbers without
            one.
        """
        self.best = None
        self.lower_bound = None
        self._unit = "" if problem is None else unit_of(problem)
        self._phase = ""
        self._done = 0.0
        self._begin_s = time.perf_counter()
        self._shown_s = -1.0
        self._handle: Any = None

    def __call__(self, event: Event) -> None:
        """Take note of an event of a method, and change the bar.

        Parameters
        ----------
        event
            A better answer or bound, which is shown at once, or a tick, which says how much of a
            phase is done and is shown if the bar has stood for a while.
        """
        if isinstance(event, NewBest):
            self.best = event.objective
        elif isinstance(event, Bound):
            self.lower_bound = event.lower_bound
        else:
            self._phase = event.phase
            self._done = event.done / event.total if event.total else 0.0

        # Answers and bounds are shown at once, ticks now and then.
        now_s = time.perf_counter()
        is_tick = not isinstance(event, NewBest | Bound)
        if is_tick and now_s - self._shown_s < _LEAST_PAUSE_S:
            return
        self._shown_s = now_s
        self._show()

    @property
    def gap(self) -> float | None:
        """The gap between best answer and bound, a share of the answer; None without both."""
        if self.best is None or self.lower_bound is None:
            return None
        gap = gap_between(self.best, self.lower_bound)
        return gap if gap < float("inf") else None

    def _repr_html_(self) -> str:
        """Return the bar and the text beside it, as HTML for a notebook.

        The bar shows 1 - gap where answer and bound are known, else the part of the phase that is
        done.
        """
        gap = self.gap
        filled = self._done if gap is None else max(0.0, 1.0 - gap)
        texts = []
        if self.best is not None:
            texts.append(f"best {write_score(self.best, self._unit)}")
        if self.lower_bound is not None:
            texts.append(f"bound {write_score(self.lower_bound, self._unit)}")
        if gap is not None:
            texts.append(f"gap {100 * gap:.2f} %")
        texts.append(f"{time.perf_counter() - self._begin_s:.1f} s")
        if self._phase:
            texts.append(self._phase)

        # A closed gap, which proves the answer, has a colour of its own.
        colour = CIRCUIT_COLOURS[0] if gap is None or gap > 0 else CIRCUIT_COLOURS[4]
        return (
            '<div style="max-width: 100%; display: flex; flex-wrap: wrap; gap: 4px 12px;'
            ' align-items: center; font-variant-numeric: tabular-nums">'
            f'<div role="progressbar" aria-valuenow="{100 * filled:.0f}" style="width: 160px;'
            f" height: 10px; background: {STATE_COLOURS['free']}; border-radius: 5px;"
            ' overflow: hidden">'
            f'<div style="width: {100 * filled:.1f}%; height: 100%; background: {colour}"></div>'
            f"</div><span>{html.escape(', '.join(texts))}</span></div>"
        )

    def _show(self) -> None:
        """Show the bar below the cell of a notebook, or change the one that is there."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if getattr(shell, "kernel", None) is None:
            return
        from IPython.display import HTML, display

        content: Any = HTML(self._repr_html_())
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)
