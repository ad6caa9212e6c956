"""The text forms of frozen values."""

import numpy as np

import optmatch as om


def test_representations_are_short() -> None:
    mesh = om.HexMesh(4, 4, ports=8)
    assert repr(mesh) == "HexMesh(rows=4, cols=4, ports=8)"
    slots = np.tile(np.arange(8, dtype=np.int32)[::-1], (5, 1))
    schedule = om.Schedule(matchings=slots, durations_s=np.ones(5))
    assert (
        repr(schedule)
        == "Schedule(matchings=<int32 5 x 8>, durations_s=[1.0, 1.0, 1.0, 1.0, 1.0])"
    )


def test_arrays_that_are_left_out_can_be_shown() -> None:
    """An empty array by default is no truth value, and is left out as other defaults are."""
    timeline = om.RailPlan(rails=(), start_s=[0.0], end_s=[1.0], ports=[0], step_s=1.0)
    assert repr(timeline).startswith("RailPlan(rails=(), start_s=[0.0]")
    assert "relays" not in repr(timeline)
