"""The result of a replay: violations, figures, notes, unchecked parts, unproved claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL, FrozenMap, Proof, is_known
from optmatch.model.display import html_summary

SHOWN = 20
"""How many violations and notes `str` of a report shows; the report has them all."""


LONGEST_LETTERS = 1000
"""A value of a violation is cut after so many letters, so that a message has fewer than 4,000."""


class ProofError(Exception):
    """A certificate that does not prove the bound that it claims."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold.

    Parameters
    ----------
    rule
        The rule in words.
    where
        The place: a field with its indices, or a slot and its ports.
    got
        What is there.
    expected
        The value that the rule wants there.

    Examples
    --------
    >>> print(Violation("a slot lasts slot_s", "durations_s[2]", 3.0, 1.0))
    durations_s[2]: a slot lasts slot_s: got 3.0, expected 1.0
    """

    rule: str
    where: str
    got: Any
    expected: Any

    def __str__(self) -> str:
        got = _shorten(self.got)
        expected = _shorten(self.expected)
        return f"{_shorten(self.where)}: {_shorten(self.rule)}: got {got}, expected {expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of `verify`.

    Parameters
    ----------
    violations
        Every rule that does not hold, with the place.
    figures
        Recomputed numbers by name; amounts of levels are tuples.
    notes
        Notes that break no rule, such as claims that are not checked.
    skipped
        Checks that were not made, because something before them failed.
    unproved
        Claims that rest on a search without a certificate: a status, or a lower bound above the
        checked one. Nothing speaks against them, and nothing here shows them.
    proof
        The proof of the status and the lower bound of a solution; None for an answer alone.

    Examples
    --------
    >>> report = Report(figures=FrozenMap({"slots": 3}))
    >>> report.ok
    True
    >>> print(report)
    verified: no violation
      slots = 3
    >>> claim = Report(unproved=("lower bound 11: from a search",))
    >>> claim.valid, claim.ok
    (True, False)
    """

    violations: tuple[Violation, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=FrozenMap)
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()
    proof: Proof | None = None

    @property
    def valid(self) -> bool:
        """Whether no rule is violated and no check was skipped."""
        return not self.violations and not self.skipped

    @property
    def ok(self) -> bool:
        """Whether it is `valid`, and all that is claimed is proved."""
        return self.valid and not self.unproved

    @property
    def complaint(self) -> str:
        """The first objection to the answer; empty if it is `valid`."""
        return next(map(str, (*self.violations, *self.skipped)), "")

    def _verdict(self) -> str:
        """Return what came of the replay, and the number of violations.

        It is "verified" if all is proved, "unproved" if no rule is violated, else "refused".
        """
        if self.ok:
            verdict = "verified"
        elif self.valid:
            verdict = "unproved"
        else:
            verdict = "refused"
        count = len(self.violations)
        plural = "s" if count > 1 else ""
        return f"{verdict}: {count or 'no'} violation{plural}"

    def _repr_html_(self) -> str:
        """Show the report in Jupyter: the verdict, every objection, and a table of figures."""
        lines = _cut_list([str(violation) for violation in self.violations])
        lines += [f"not checked: {check}" for check in self.skipped]
        lines += [f"unproved: {claim}" for claim in self.unproved]
        lines += _cut_list([f"note: {note}" for note in self.notes])
        figures = {name: write_figure(value) for name, value in self.figures.items()}
        return html_summary(self._verdict(), figures, lines)

    def __str__(self) -> str:
        """Return the verdict, then objections, figures and notes, one on a line."""
        lines = [self._verdict()]
        lines += _cut_list([f"  {violation}" for violation in self.violations])
        lines += [f"  not checked: {check}" for check in self.skipped]
        lines += [f"  unproved: {claim}" for claim in self.unproved]
        lines += [f"  {name} = {write_figure(value)}" for name, value in self.figures.items()]
        lines += _cut_list([f"  note: {note}" for note in self.notes])
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON.

        Returns
        -------
        dict
            Violations with their rule, their place, and what was found and expected; an infinite
            figure becomes None.

        Examples
        --------
        >>> Report().to_json()["format"]
        'optmatch/report/1'
        """
        return {
            "format": "optmatch/report/1",
            "ok": self.ok,
            "valid": self.valid,
            "proof": self.proof,
            "violations": [
                {
                    "rule": str(violation.rule),
                    "where": violation.where,
                    "got": _to_json_value(violation.got),
                    "expected": _to_json_value(violation.expected),
                }
                for violation in self.violations
            ],
            "figures": {
                name: value if is_known(value) else None for name, value in self.figures.items()
            },
            "notes": list(self.notes),
            "skipped": list(self.skipped),
            "unproved": list(self.unproved),
        }


def _to_json_value(value: Any) -> Any:
    """Return numbers, lists and None as they are, and everything else as text."""
    if value is None or isinstance(value, int | float | list):
        return value
    return str(value)


def _shorten(value: Any) -> str:
    """Write a value in at most `LONGEST_LETTERS` letters, all of which can be encoded."""
    text = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    excess = len(text) - LONGEST_LETTERS
    return f"{text[:LONGEST_LETTERS]} ... and {excess} more letters" if excess > 0 else text


def _cut_list(lines: list[str]) -> list[str]:
    """Keep the first `SHOWN` lines, and count the others in a last one."""
    excess = len(lines) - SHOWN
    if excess > 0:
        return [*lines[:SHOWN], f"  ... and {excess} more"]
    return lines


def write_figure(value: Any) -> str:
    """Write a figure: a number with ten digits, the levels of an objective one after the other."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}"


@dataclass(eq=False)
class Findings:
    """A report in the making, which every check of the verifier is given and adds to.

    A violation is added by `refuse`; by `expect` if two values differ; and by `expect_none` for
    the first entry of a mask that is True, or for the first `most` ones (None: for all), whose
    indices stand for ``{}`` in messages. The last two return whether the rule holds.

    Attributes
    ----------
    step
        The objective and its bounds are whole multiples of this number, such as one cell or one
        tick, and are compared as such. None where they are sums of floats, which are compared up
        to rounding.
    violations, figures, notes, skipped, unproved, proof
        As in `Report`: `figures` are recomputed numbers by name, `skipped` checks that could not
        be made.
    """

    step: float | None = None
    violations: list[Violation] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    proof: Proof | None = None

    def expect(self, rule: str, where: str, got: Any, expected: Any) -> bool:
        """Add a violation unless a value is the expected one; return whether both are equal."""
        if got == expected:
            return True
        self.refuse(rule, where, got, expected)
        return False

    def expect_none(
        self,
        rule: str,
        is_wrong: NDArray[np.bool_],
        where: str,
        got: Any,
        expected: Any,
        *,
        most: int | None = 1,
    ) -> bool:
        """Add violations for the first entries of a mask that are True; return whether none is.

        Parameters
        ----------
        where
            The place, with ``{}`` for each index of the mask, as in ``"sends[{}, 4]"``.
        got, expected
            One value for all, or an array whose first axes are those of the mask.
        most
            How many entries are named; None for all.
        """
        wrong = np.argwhere(is_wrong)
        for index in wrong[:most].tolist():
            self.refuse(
                rule, where.format(*index), _entry_at(got, index), _entry_at(expected, index)
            )
        return not len(wrong)

    def refuse(self, rule: str, where: str, got: Any, expected: Any) -> None:
        """Add a violation."""
        self.violations.append(Violation(rule, where, got, expected))

    def doubt(self, claim: str) -> None:
        """Add a claim that rests on a search without a certificate."""
        self.unproved.append(claim)
        self.proof = "search"

    def include(self, inner: Findings, where: str) -> None:
        """Add the findings of one part of an answer, each behind the name of the part.

        Figures and the proof of the part are left out: they are about the part alone.
        """
        for violation in inner.violations:
            self.violations.append(replace(violation, where=where + violation.where))
        self.notes += [where + note for note in inner.notes]
        self.skipped += [where + check for check in inner.skipped]
        self.unproved += [where + claim for claim in inner.unproved]

    def report(self) -> Report:
        """Return everything that was found so far as an immutable report."""
        return Report(
            violations=tuple(self.violations),
            figures=FrozenMap(self.figures),
            notes=tuple(self.notes),
            skipped=tuple(self.skipped),
            unproved=tuple(self.unproved),
            proof=self.proof,
        )


def _entry_at(value: Any, index: list[int]) -> Any:
    """Return the entry of an array as a plain number; anything else is one value for all."""
    if isinstance(value, np.ndarray):
        return value[tuple(index)].tolist()
    return value


def agree(claimed: Any, recomputed: float) -> bool:
    """Return whether a claim equals the recomputed number, up to the rounding of float sums."""
    return math.isclose(as_number(claimed), recomputed, rel_tol=RTOL)


def as_number(claimed: Any) -> float:
    """Return a claimed number as a float; NaN, which equals nothing, if it is no real number."""
    if isinstance(claimed, bool) or not isinstance(claimed, Real):
        return math.nan
    return float(claimed)
