"""Accounts of readers: a name is used, passed over with a reason, refused, or in the warning."""

import logging

import pytest

import optmatch as om
from optmatch.model.accounts import Level, accounting

COLUMNS = Level("column", ("a", "b"), {"note*": "said to people"})
SETTINGS = Level("setting", ("length",), {}, assumed="the usual value is taken")


def test_each_name_has_a_fate() -> None:
    with accounting("t.csv") as account:
        account.take(COLUMNS, ["a", "notes"], "line 1")
        account.take(COLUMNS, ["a", "b"], "line 2")
    assert account.rows() == [
        ("column", "a", "used"),
        ("column", "notes", "passed over: said to people"),
        ("column", "b", "used"),
    ]


def test_what_is_unknown_is_refused_with_its_place() -> None:
    with (
        accounting("t.csv") as account,
        pytest.raises(om.FormatError, match=r"line 3: unknown column 'c': known are a, b"),
    ):
        account.take(COLUMNS, ["a", "c"], "line 3")


def test_or_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Once for a name, however often it stands; blocks within blocks add to the outer one."""
    with caplog.at_level(logging.WARNING, logger="optmatch"), accounting("t.yml"):
        for number in range(20):
            with accounting("within") as account:
                account.take(SETTINGS, ["length", f"odd{number % 10}"], f"part{number}")
                account.assume("arms differ")
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("t.yml: unknown setting: odd0 (part0), odd1 (part1)")
    assert "and 2 more; the usual value is taken; arms differ" in text
    assert text.count("arms differ") == 1


def test_what_is_all_known_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="optmatch"), accounting("t.yml") as account:
        account.take(SETTINGS, ["length"])
    assert not caplog.records
