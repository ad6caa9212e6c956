"""The base of all problems: what methods, verifier and files ask; objectives and their bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Answer = TypeVar("Answer", covariant=True, default=Any)
else:
    from typing import TypeVar

    Answer = TypeVar("Answer", covariant=True)

from optmatch.model.declarations import Index, Range

if TYPE_CHECKING:  # each kind of problem has one of both, so callers need not rule the other out
    Score: TypeAlias = Any
    ScoreBound: TypeAlias = Any
else:
    Score = float | tuple[Index, ...]
    ScoreBound = Annotated[float, Range(infinite=True)] | tuple[Index, ...]


def is_known(score: Score | None) -> bool:
    """Tell whether a score is there and finite.

    Parameters
    ----------
    score
        An objective or a bound: a number, or a tuple of levels, which is always finite; None if
        there is none.

    Examples
    --------
    >>> is_known((0, 3)), is_known(2.5), is_known(float("inf")), is_known(None)
    (True, True, False, False)
    """
    return isinstance(score, tuple) or (score is not None and math.isfinite(score))


def is_levels(value: Any) -> bool:
    """Tell whether a value is a tuple of whole numbers."""
    return isinstance(value, tuple) and all(type(level) is int for level in value)


_ROUNDING = 1e-12
"""An objective that is above its bound by no more of itself differs by rounding alone."""


def gap_between(objective: Score, bound: Score) -> float:
    """Return (objective - bound) / objective, of levels that of the first one that differs.

    Parameters
    ----------
    objective
        The objective of an answer: a number, or a tuple of levels that are compared one after the
        other.
    bound
        A lower bound on all answers, in the same form; minus infinity if nothing is known.

    Returns
    -------
    float
        0 if the answer is as good as the bound; infinite if only one of them has levels, or the
        objective is 0 above its bound.

    Examples
    --------
    >>> gap_between(4.0, 3.0), gap_between((0, 4, 9), (0, 3, 2)), gap_between((0, 2), (0, 2))
    (0.25, 0.25, 0.0)
    """
    if isinstance(objective, tuple) and isinstance(bound, tuple):
        pairs = zip(objective, bound, strict=True)
        # The first level that differs decides.
        objective, bound = next((pair for pair in pairs if pair[0] != pair[1]), (0, 0))
    if isinstance(objective, tuple) or isinstance(bound, tuple):
        return math.inf
    if objective - bound <= _ROUNDING * abs(objective):
        return 0.0
    if objective == 0:
        return math.inf
    gap: float = (objective - bound) / abs(objective)
    return gap


_SIZES = {
    "s": ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"),
          (1e-6, 1e-6, "µs"), (0.0, 1e-9, "ns")),
    "B": ((1e12, 1e12, "TB"), (1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB"),
          (0.0, 1.0, "B")),
}  # fmt: skip
"""For each unit that is written by size: from what value on, how much of it, and its name."""


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """Return in which unit a value is read best, and how much of `unit` that is.

    Parameters
    ----------
    value
        The value in `unit`.
    unit
        The unit: ``s``, ``B`` and ``B/s`` have larger and smaller ones, others stay.

    Returns
    -------
    scale, name
        How much of `unit` the better unit is, and its name: (0.001, "ms") for some milliseconds.

    Examples
    --------
    >>> scale_of(0.0035, "s"), scale_of(9000.0, "s"), scale_of(12.0, "cells")
    ((0.001, 'ms'), (3600.0, 'h'), (1.0, 'cells'))
    >>> scale_of(5e9, "B/s")
    (1000000000.0, 'GB/s')
    """
    if unit == "B/s":
        scale, name = scale_of(value, "B")
        return scale, f"{name}/s"
    if unit not in _SIZES or not value or not math.isfinite(value):
        return 1.0, unit
    for least, scale, name in _SIZES[unit]:
        if abs(value) >= least * (1 - 1e-12):  # 0.001 s is 1 ms, whatever rounding made of it
            return scale, name
    raise AssertionError("the last row is for all values")


def write_amount(value: float, unit: str = "", *, digits: int = 4) -> str:
    """Write a quantity with its unit: seconds from ns to h, bytes to TB, B/s to TB/s.

    Parameters
    ----------
    value
        The quantity in `unit`.
    unit
        Its unit, empty for a plain number.
    digits
        How many digits are shown that count; all of those before the point are.

    Examples
    --------
    >>> write_amount(0.003514, "s"), write_amount(3e9, "B"), write_amount(1234567.0, "cells")
    ('3.514 ms', '3 GB', '1,234,567 cells')
    >>> write_amount(9723.4, "%", digits=2), write_amount(99.6, "%", digits=2)
    ('9,723 %', '100 %')
    >>> write_amount(math.inf, "cells")
    'infinite'
    """
    if value == math.inf:
        return "infinite"
    scale, name = scale_of(value, unit)
    amount = value / scale
    text = f"{amount:,.{digits}g}"
    if (amount % 1 == 0 or "e+" in text) and abs(amount) < 1e15:
        text = f"{amount:,.0f}"  # an exponent would hide digits before the point
    return f"{text} {name}".rstrip()


_UNIT_OF_ENDING = {
    **{"bytes_per_s": "B/s", "bytes": "B", "s": "s", "db": "dB"},
    **{"mw": "mW", "mj": "mJ", "rad": "rad", "m": "m"},
}
"""How units are written in which names of figures end; of two endings the longer comes first."""


def split_unit(name: str) -> tuple[str, str]:
    """Return the words of the name of a figure, and the unit that its ending says.

    Examples
    --------
    >>> split_unit("port_bytes_per_s"), split_unit("delay_s"), split_unit("n_slots")
    (('port', 'B/s'), ('delay', 's'), ('n slots', ''))
    >>> split_unit("late_s.63"), split_unit("heater_mw")
    (('late 63', 's'), ('heater', 'mW'))
    """
    for ending, unit in _UNIT_OF_ENDING.items():
        if name.endswith(f"_{ending}"):
            return name.removesuffix(f"_{ending}").replace("_", " "), unit
        if f"_{ending}." in name:  # an entry of a field, as late_s.63
            return name.replace(f"_{ending}.", " ").replace("_", " "), unit
    return name.replace("_", " "), ""


CROSSTALK_UNIT = "of the signal"
"""The unit of an objective that is a ratio of crosstalk to signal."""


def write_score(score: Score, unit: str = "") -> str:
    """Write a score with its unit, of levels each with its name.

    Parameters
    ----------
    score
        A number, or a tuple of levels that are compared one after the other.
    unit
        The unit of the number, or the names of the levels with commas between them.

    Examples
    --------
    >>> write_score(0.0025, "s"), write_score((0, 3), "disturbed, changed")
    ('2.5 ms', '0 disturbed, 3 changed')

    A ratio of crosstalk to signal has its signal to crosstalk in dB beside it:

    >>> write_score(0.000106407, "of the signal")
    '0.000106407 of the signal (39.73 dB)'
    """
    if not isinstance(score, tuple):
        text = write_amount(score, unit, digits=6).replace(",", "")
        if unit == CROSSTALK_UNIT and 0.0 < score < math.inf:
            text += f" ({-10.0 * math.log10(score):.2f} dB)"
        return text
    names = unit.split(", ")
    if len(names) != len(score):
        names = [""] * len(score)
    return ", ".join(f"{level} {name}".rstrip() for level, name in zip(score, names, strict=True))


@runtime_checkable
class Problem(Protocol[Answer]):  # type: ignore[misc]  # covariant: nobody assigns an answer class
    """A question: a frozen value with a kind and a lower bound on its objective."""

    kind: ClassVar[str]
    """The name of the kind in files."""
    objectives: ClassVar[dict[str, str]]
    """The unit of each of its objectives, of levels the name of each, by commas; of a problem with
    one objective, under its own kind."""
    answer_class: ClassVar[type[Answer] | None]
    """The class of an answer that is no schedule, or not only one. It is a class variable here, as
    it is in the classes of problems: Pyright accepts neither in place of the other."""

    @property
    def fabric(self) -> Any:
        """The switch it is asked of."""

    def lower_bound(self) -> Score:
        """Return a value that no answer can beat, in the unit of the objective."""

    if TYPE_CHECKING:  # what classes of problems have from `Displayed`

        def summary(self) -> str:
            """Return in two lines what is asked, and what no answer can beat."""

        def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
            """Return a figure of what is asked."""

        def to_dataframe(self) -> Any:
            """Return what is asked as a table of pandas."""


def unit_of(problem: Problem) -> str:
    """Return the unit of the objective, or the names of its levels; empty if there are none.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.problems import Routing
    >>> unit_of(Routing(IdealSwitch(2), [1, 0], objective="loss-db"))
    'dB'
    """
    return problem.objectives[getattr(problem, "objective", problem.kind)]
