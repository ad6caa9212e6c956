"""Published step times, predicted from the job: one factor is fitted to one step of each GPU."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.published import CASES, published_job
from optmatch.simulation.rails.replay import simulate_rails
from tests.helpers.rails import CURVES

CALIBRATED = {"h200": "h200-dp2", "gb200": "gb200-dp4"}
pytestmark = pytest.mark.filterwarnings("error")


@cache
def efficiency_of(case: str) -> float:
    """Fit the efficiency to the step with all links."""
    base = CALIBRATED[case.partition("-")[0]]
    job = published_job(base, electrical=True)
    return calibrate(job, CURVES[base]["all-links", 0.0]).workload.efficiency


@pytest.mark.parametrize("case", CASES)
def test_all_links(case: str) -> None:
    """The step of an electrical network, in which nothing waits for gradients: within 0.6 %."""
    job = published_job(case, efficiency=efficiency_of(case), electrical=True)
    assert job.lower_bound() == pytest.approx(CURVES[case]["all-links", 0.0], rel=6e-3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", ["on-demand", "provisioned"])
def test_step_times(case: str, policy: Any) -> None:
    job = published_job(case, efficiency=efficiency_of(case))
    for delay_s in (0.0, 0.1, 1.0):
        found = simulate_rails(job, policy, delay_s=delay_s)
        assert found.step_s == pytest.approx(CURVES[case][policy, delay_s], rel=1e-2)


@pytest.mark.parametrize("case", ["h200-dp2", "h200-dp4", "h200-dp8"])
def test_switches(case: str) -> None:
    """A rail changes 10 times a step, as published, and on demand all 10 are waited for."""
    job = published_job(case, efficiency=efficiency_of(case))
    found = simulate_rails(job, "on-demand", delay_s=1.0)
    rail = np.array([phase.rail == 0 for phase in job.phases()])
    assert len(np.unique(found.begun_s[rail & found.switched])) == 10
    long_s = [simulate_rails(job, "on-demand", delay_s=d).step_s for d in (1.0, 2.0)]
    published_s = [CURVES[case]["on-demand", d] for d in (1.0, 2.0)]
    assert long_s[1] - long_s[0] == pytest.approx(10.0)
    assert published_s[1] - published_s[0] == pytest.approx(10.0)


def test_cases_that_are_not_known() -> None:
    with pytest.raises(om.InputError, match="'h100': one of h200-dp2, h200-dp4"):
        published_job("h100")
