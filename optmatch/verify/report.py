"""The result of a replay: violations, figures, notes, unchecked parts, unproved claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from optmatch.model import RTOL, FrozenMap, Proof, is_known

SHOWN = 20
"""How many violations and notes `str` of a report shows; the report has them all."""


class ProofError(Exception):
    """A proof that does not prove what it says."""


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
        return f"{self.where}: {self.rule}: got {self.got}, expected {self.expected}"


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
        Notes that break no rule: loops of light, unchecked claims.
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

    def __str__(self) -> str:
        count = len(self.violations)
        found = f"{count or 'no'} violation{'s' if count > 1 else ''}"
        verdict = "verified" if self.ok else "unproved" if self.valid else "refused"
        lines = [f"{verdict}: {found}"]
        lines += _first(f"  {violation}" for violation in self.violations)
        lines += [f"  not checked: {check}" for check in self.skipped]
        lines += [f"  unproved: {claim}" for claim in self.unproved]
        lines += [f"  {name} = {write_figure(value)}" for name, value in self.figures.items()]
        lines += _first(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinite figure becomes None.

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
                {name: _told(getattr(v, name)) for name in ("rule", "where", "got", "expected")}
                for v in self.violations
            ],
            "figures": {
                name: value if is_known(value) else None for name, value in self.figures.items()
            },
            "notes": list(self.notes),
            "skipped": list(self.skipped),
            "unproved": list(self.unproved),
        }


def _told(value: Any) -> Any:
    return value if isinstance(value, int | float | list) or value is None else str(value)


def _first(lines: Any) -> list[str]:
    listed = list(lines)
    more = len(listed) - SHOWN
    return listed[:SHOWN] + ([f"  ... and {more} more"] if more > 0 else [])


def write_figure(value: Any) -> str:
    """Write a figure; a float with ten digits, levels one after the other."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value:.10g}"


class Findings:
    """A report in the making.

    Attributes
    ----------
    step
        Objective and bounds are whole multiples of it, and compared as such; None where they are
        sums of floats, which are compared up to rounding.
    """

    def __init__(self) -> None:
        self.step: float | None = None
        self.violations: list[Violation] = []
        self.figures: dict[str, Any] = {}
        self.notes: list[str] = []
        self.skipped: list[str] = []
        self.unproved: list[str] = []
        self.proof: Proof | None = None

    def expect(self, rule: str, where: str, got: Any, expected: Any) -> bool:
        """Add a violation unless `got` equals `expected`; tell whether it does."""
        if got == expected:
            return True
        self.refuse(rule, where, got, expected)
        return False

    def refuse(self, rule: str, where: str, got: Any, expected: Any) -> None:
        """Add a violation."""
        self.violations.append(Violation(rule, where, got, expected))

    def doubt(self, claim: str) -> None:
        """Add a claim that rests on a search without a certificate."""
        self.unproved.append(claim)
        self.proof = "search"

    def include(self, inner: Findings, where: str) -> None:
        """Add violations, notes, and what was not checked or proved of a part, saying which."""
        self.violations += [
            Violation(v.rule, where + v.where, v.got, v.expected) for v in inner.violations
        ]
        self.notes += [where + note for note in inner.notes]
        self.skipped += [where + check for check in inner.skipped]
        self.unproved += [where + claim for claim in inner.unproved]

    def report(self) -> Report:
        """Return the slice that was found."""
        return Report(
            violations=tuple(self.violations),
            figures=FrozenMap(self.figures),
            notes=tuple(self.notes),
            skipped=tuple(self.skipped),
            unproved=tuple(self.unproved),
            proof=self.proof,
        )


def agree(claimed: Any, found: float) -> bool:
    """Tell whether a claim is the number found, up to the rounding of sums of floats."""
    return math.isclose(as_number(claimed), found, rel_tol=RTOL)


def as_number(claimed: Any) -> float:
    """Return a claimed number; NaN, which agrees with nothing, for a claim that is no number."""
    if isinstance(claimed, bool) or not isinstance(claimed, Real):
        return math.nan
    return float(claimed)
