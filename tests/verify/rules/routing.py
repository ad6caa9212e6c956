"""Matchings, their light, all pairs; the claims and certificates of routings."""

from __future__ import annotations

import optmatch as om
from tests.verify.rules import Row, schedule

IDEAL = om.AllToAll(om.IdealSwitch(2), slot_s=1.0)

ROWS = [
    Row(None, IDEAL, schedule([[1, 0]]), figures={"slots": 1}),
    Row(
        "a slot lasts slot_s",
        IDEAL,
        schedule([[1, 0]], [2.0]),
        "durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0",
    ),
]
