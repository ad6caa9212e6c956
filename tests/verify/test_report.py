"""What a report says as text and as JSON, and how findings come together."""

import json
import math
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import FrozenMap
from optmatch.verify import Violation
from optmatch.verify.report import SHOWN, Findings, agree, as_number, write_figure


def test_json_keeps_what_it_can_hold() -> None:
    kept: list[Any] = ["text", 3, 2.5, [1, 2], None, True]
    given = [*kept, (1, 2), om.Status.OPTIMAL]
    report = om.Report(violations=tuple(Violation("rule", "where", got, 1) for got in given))
    told = [violation["got"] for violation in report.to_json()["violations"]]
    assert told == [*kept, "(1, 2)", "Status.OPTIMAL"]
    assert [type(value) for value in told[:6]] == [type(value) for value in kept]


def test_verdicts() -> None:
    wrong, other = Violation("rule", "where", 1, 2), Violation("other", "there", 3, 4)
    refused = om.Report(violations=(wrong, other), skipped=("light",), unproved=("bound",))
    assert str(refused).splitlines() == [
        "refused: 2 violations",
        "  where: rule: got 1, expected 2",
        "  there: other: got 3, expected 4",
        "  not checked: light",
        "  unproved: bound",
    ]
    assert refused.complaint == "where: rule: got 1, expected 2"
    assert om.Report(skipped=("light",)).complaint == "light"
    assert om.Report(unproved=("bound",)).complaint == ""
    one = om.Report(violations=(wrong,), notes=("a note",), figures=FrozenMap({"levels": (1, 2)}))
    assert str(one).splitlines()[0] == "refused: 1 violation"
    assert str(one).splitlines()[2:] == ["  levels = 1, 2", "  note: a note"]
    assert str(om.Report(unproved=("bound",))).startswith("unproved: no violation\n")
    for report, verdict in (
        (om.Report(notes=("x",)), (True, True)),
        (om.Report(unproved=("x",)), (True, False)),
        (om.Report(skipped=("x",)), (False, False)),
        (one, (False, False)),
    ):
        assert (report.valid, report.ok) == verdict


@pytest.mark.parametrize("count", [SHOWN - 1, SHOWN, SHOWN + 1])
def test_long_lists_are_cut(count: int) -> None:
    notes = tuple(f"note {k}" for k in range(count))
    lines = str(om.Report(notes=notes)).splitlines()
    assert sum("note: " in line for line in lines) == min(count, SHOWN)
    assert [line for line in lines if "more" in line] == ["  ... and 1 more"] * (count > SHOWN)


def test_figures_without_a_number_are_none_in_json() -> None:
    report = om.Report(figures=FrozenMap({"bound": math.inf, "levels": (1, 2), "slots": 3}))
    told = report.to_json()["figures"]
    assert told == {"bound": None, "levels": (1, 2), "slots": 3}
    assert json.dumps(told, allow_nan=False)


def test_parts_are_included_with_their_place() -> None:
    whole, part = Findings(), Findings()
    assert part.expect("rule", "here", 1, 1) and not part.violations
    assert not part.expect("rule", "here", 1, 2)
    part.notes.append("note")
    part.skipped.append("light")
    part.doubt("bound")
    part.figures["slots"] = 3
    whole.include(part, "part: ")
    assert str(whole.violations[0]) == "part: here: rule: got 1, expected 2"
    assert (whole.notes, whole.skipped, whole.unproved) == (
        ["part: note"], ["part: light"], ["part: bound"],
    )  # fmt: skip
    assert whole.figures == {} and part.proof == "search" and whole.proof is None


def test_numbers_agree_up_to_rounding() -> None:
    assert agree(1.0 + 1e-12, 1.0) and agree(math.inf, math.inf) and agree(0, 0.0)
    assert not agree(1.0 + 1e-8, 1.0) and not agree("1", 1.0) and not agree(1e-12, 0.0)
    assert as_number(3) == 3.0 and math.isnan(as_number(True)) and math.isnan(as_number(None))
    assert write_figure(1 / 3) == "0.3333333333" and write_figure((1, 2)) == "1, 2"


def test_reports_are_frozen_values() -> None:
    with pytest.raises(AttributeError):
        om.Report().notes = ()  # type: ignore[misc]
    assert hash(om.Report(figures=FrozenMap({"slots": 1}))) != hash(om.Report())


def test_messages_are_short_and_can_be_encoded() -> None:
    """A name in a file may have any length, and letters that no encoding has."""
    for where, got in (("x" * 10_000, "y" * 10_000), ("place \ud800", ["value \udfff"])):
        told = str(Violation("rule", where, got, got))
        assert len(told) < 4000
        assert told.encode("utf-8")


def test_the_first_wrong_entries_are_named() -> None:
    """With what stands there and what should, by entry or alike for all, as plain values."""
    findings, rows = Findings(), np.array([[1, 2], [3, 4], [5, 6]])
    assert findings.expect_none("rows", np.zeros(3, dtype=bool), "rows[{}]", rows, "others")
    assert not findings.violations
    is_wrong = np.array([False, True, True])
    assert not findings.expect_none("rows", is_wrong, "rows[{}]", rows, np.array([7, 8, 9]))
    assert findings.violations == [Violation("rows", "rows[1]", [3, 4], 8)]
    findings.expect_none("all", is_wrong, "rows[{}]", rows, None, most=None)
    assert [violation.where for violation in findings.violations] == [
        "rows[1]",
        "rows[1]",
        "rows[2]",
    ]
    findings.expect_none("entry", rows > 3, "rows[{}, {}]", rows, 0, most=2)
    assert [violation.got for violation in findings.violations[-2:]] == [4, 5]
    assert type(findings.violations[-1].got) is int
    assert findings.violations[-1].where == "rows[2, 0]"
