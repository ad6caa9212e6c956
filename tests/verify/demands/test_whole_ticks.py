"""Durations are whole numbers of ticks, up to the rounding of floats and 1e-9 of a tick."""

import numpy as np
import pytest

import optmatch as om


@pytest.mark.parametrize(("off_ticks", "is_valid"), [(0.0, True), (5e-10, True), (3.4e-7, False)])
def test_a_duration_is_a_whole_number_of_ticks(off_ticks: float, is_valid: bool) -> None:
    """A slot that is shorter by a part of a tick leaves bytes behind."""
    demand_bytes = np.array([[0, 37e9], [0, 0]])
    demand = om.Demand(om.IdealSwitch(2), demand_bytes, rate_bytes_per_s=2e9, delay_s=0.5)
    ticks = 18.5 / demand.tick_s
    durations_s = np.array([(ticks - off_ticks) * demand.tick_s])
    schedule = om.Schedule(matchings=[[1, -1]], durations_s=durations_s, delay_s=0.5)
    assert om.verify(demand, schedule).valid == is_valid
