"""Problems that draw, list and tell themselves, as their solutions do; figures as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optmatch.model.declarations import Value
from optmatch.model.errors import SolverUnavailable
from optmatch.model.problem import is_known, split_unit, unit_of, write_amount, write_score


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


def write_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Write rows of equal names in words: a line of titles, then a line for each row, with units.

    The ending of a name says the unit of its column; columns `unit`, which tells that of
    objectives, and `reason` are left out.

    Examples
    --------
    >>> write_table([{"method": "ring", "time_s": 0.0123, "gap": 0.04}])
    [['method', 'time', 'gap'], ['ring', '12.3 ms', '4 %']]
    """
    names = [name for name in (rows[0] if rows else ()) if name not in ("reason", "unit")]
    lines = [[split_unit(name)[0] for name in names]]
    for row in rows:
        unit = row.get("unit", "")
        lines.append([_write_cell(name, row[name], unit) for name in names])
    return lines


def _write_cell(name: str, value: Any, unit: str) -> str:
    """Write an entry of a table with its unit, which its name says, or `unit` of objectives.

    Levels of an objective stand without names, a gap and a share in percent, and what is not known
    as "-".
    """
    if value is None:
        return "-"
    if name.endswith(("gap", "longer")):
        return write_amount(100 * value, "%", digits=3)
    if isinstance(value, tuple):
        return write_score(value)
    if not isinstance(value, float):
        return str(value)
    if name in ("objective", "lower_bound"):
        return write_score(value, unit)
    unit = split_unit(name)[1]
    return write_amount(value, unit) if unit else f"{value:.4g}"


def align_columns(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return lines of texts with all cells of a column equally wide: the first one to the left.

    Examples
    --------
    >>> align_columns([["method", "time"], ["ring", "9 s"]])
    [['method', 'time'], ['ring  ', ' 9 s']]
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [[name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])] for name, *cells in lines]


def html_table(lines: Sequence[Sequence[str]], style: str = "") -> str:
    """Return lines of texts, titles first, as a table of HTML; `style` is its class in CSS."""
    titles, *entries = lines
    rows = [f"<tr>{''.join(f'<th>{html.escape(title)}</th>' for title in titles)}</tr>"]
    for entry in entries:
        rows.append(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in entry)}</tr>")
    body = "\n".join(rows)
    return f"<table class='{style}'>{body}</table>"


def name_ports(text: str, labels: Sequence[str]) -> str:
    """Write the labels of ports beside their numbers; without one that differs, all stays.

    Examples
    --------
    >>> name_ports("from port 0 to port 7: all demand is served", ["rack-9", "1"])
    'from port 0 (rack-9) to port 7: all demand is served'
    """
    for port, label in enumerate(labels):
        if label != str(port):
            named = f"port {port} ({label})".replace("\\", r"\\")
            text = re.sub(rf"\bport {port}\b", named, text)
    return text


def view_of(problem: Any) -> Any:
    """Return how a kind is shown: the `optmatch.kinds.View` of its row, a layer above."""
    from optmatch.kinds import kind_of

    return kind_of(problem).view()


def view_of_solution(solution: Any) -> Any:
    """Return the same for a solution, after a check that its answer fits its problem."""
    from optmatch.kinds import view_of_solution

    return view_of_solution(solution)


def describe_question(problem: Any) -> str:
    """Return the kind of a problem and its switch, such as ``routing on benes 8, 8 ports``.

    A problem without a switch has its size there, such as ``rail-job of 128 GPUs``.
    """
    fabric = problem.fabric
    if fabric is None:
        return f"{problem.kind} of {problem.extent}"
    return f"{problem.kind} on {fabric.title}, {fabric.n_ports} ports"


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
        bound = problem.lower_bound()
        claim = "nothing answers it; to solve it says why"
        if is_known(bound):
            claim = f"no answer is below {write_score(bound, unit_of(problem))}"
        return f"{describe_question(problem)}\n{claim}"

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
