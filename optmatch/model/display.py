"""Problems that draw, list and tell themselves, as their solutions do; figures as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from optmatch.model.declarations import Value
from optmatch.model.errors import SolverUnavailable
from optmatch.model.problem import is_known, unit_of, write_score


def html_summary(title: str, figures: Mapping[str, str], lines: Sequence[str] = ()) -> str:
    """Return a title, a list of lines and a table of figures as HTML, for a notebook.

    Examples
    --------
    >>> html_summary("verified", {"slots": "3"})
    '<p><b>verified</b></p><table><tr><th>slots</th><td>3</td></tr></table>'
    """
    parts = [f"<p><b>{html.escape(title)}</b></p>"]
    if lines:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        parts.append(f"<ul>{items}</ul>")
    if figures:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in figures.items()
        )
        parts.append(f"<table>{rows}</table>")
    return "".join(parts)


def view_of(problem: Any) -> Any:
    """Return how a kind is shown: the `optmatch.kinds.View` of its row, a layer above."""
    from optmatch.kinds import kind_of

    return kind_of(problem).view()


def view_of_solution(solution: Any) -> Any:
    """Return the same for a solution, after a check that its answer fits its problem."""
    from optmatch.kinds import view_of_solution

    return view_of_solution(solution)


def figures_of(problem: Any, answer: Any) -> dict[str, str]:
    """Return what an answer comes to beside its objective, by name; nothing without an answer.

    Most kinds of problems have no such figures.

    Parameters
    ----------
    problem
        The problem, whose kind may say what its answers come to.
    answer
        An answer to it; None if there is none.

    Returns
    -------
    dict
        Values as texts with their units, by name.
    """
    if answer is None or not hasattr(problem, "figures_of"):
        return {}
    figures: dict[str, str] = problem.figures_of(answer)
    return figures


def titled(figure: Any, title: str | None, ax: Any = None) -> Any:
    """Return a figure with another title: of `ax` or its only axes with one, else above all."""
    if title is not None and ax is not None:
        ax.set_title(title)
    elif title is not None:
        axes_with_title = [ax for ax in figure.get_axes() if ax.get_title()]
        if len(axes_with_title) == 1:
            axes_with_title[0].set_title(title)
        else:
            figure.suptitle(title)
    return figure


def dataframe(columns: Mapping[str, Any]) -> Any:
    """Return columns as a table of pandas.

    Parameters
    ----------
    columns
        Columns of equal length by their names.

    Raises
    ------
    SolverUnavailable
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as exc:
        raise SolverUnavailable("tables need pandas: pip install 'optmatch[pandas]'") from exc
    return pd.DataFrame(columns)


class Displayed(Value):
    """Mixin of the classes of problems: a problem shows itself before anybody has solved it."""

    __slots__ = ()

    def summary(self) -> str:
        """Return in two lines what is asked, and what no answer can beat.

        Examples
        --------
        >>> import optmatch as om
        >>> print(om.AllToAll(om.HexMesh(4, 4, ports=8)).summary())
        all-to-all on hex mesh 4 x 4, 8 ports
        no answer is below 274 cells
        """
        problem: Any = self
        fabric = problem.fabric
        question = problem.kind
        if fabric is not None:
            question += f" on {fabric.title}, {fabric.n_ports} ports"
        bound = problem.lower_bound()
        claim = "nothing answers it"
        if is_known(bound):
            claim = f"no answer is below {write_score(bound, unit_of(problem))}"
        return f"{question}\n{claim}"

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Return a figure of matplotlib that shows what is asked.

        Parameters
        ----------
        ax
            Axes of matplotlib to draw in; None makes a new figure.
        title
            What stands above it; None for what suits the kind of problem.

        Examples
        --------
        >>> import optmatch as om
        >>> demand = om.Demand(om.IdealSwitch(2), [[0, 3], [2, 0]])
        >>> demand.plot().axes[0].get_ylabel()
        'source port'
        """
        return titled(view_of(self).draw_problem(self, ax), title, ax)

    def to_dataframe(self) -> Any:
        """Return what is asked as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            A row for each circuit that is asked for, flow, phase, rank, chip, server, resource or
            job.

        Examples
        --------
        >>> import optmatch as om
        >>> demand = om.Demand(om.IdealSwitch(2), [[0, 3], [2, 0]])
        >>> demand.to_dataframe()["size_bytes"].tolist()
        [3.0, 2.0]
        """
        return dataframe(view_of(self).tabulate_problem(self))

    def _repr_html_(self) -> str:
        """Show the problem in Jupyter: its summary, and its figure where matplotlib is there."""
        from optmatch.plotting import problem_html

        return problem_html(self)
