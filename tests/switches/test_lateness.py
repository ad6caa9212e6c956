"""The measurement of how late a player is, on plans of any length and with changes in parts."""

import pytest

import optmatch as om
from tests.helpers.lateness import TunedPart, times_of_switch
from tests.switches.test_play import schedule_of, shifts


def test_long_plans_keep_to_their_demand() -> None:
    # Each pair of ports meets in fifty slots, whose floating-point sum is no multiple of 10 ms.
    assert om.verify(schedule_of(shifts(4, 200))).ok


def test_a_change_that_was_carried_out_in_parts_counts_once() -> None:
    parts = [
        TunedPart(shift=1, began_s=10.0, ended_s=10.07, removing_s=0.0),
        TunedPart(shift=2, began_s=11.0, ended_s=11.05, removing_s=0.01),
        TunedPart(shift=2, began_s=11.06, ended_s=11.12, removing_s=0.0),
        TunedPart(shift=1, began_s=12.0, ended_s=12.08, removing_s=0.02),
    ]
    assert times_of_switch(parts) == pytest.approx([0.07, 0.13, 0.1])
