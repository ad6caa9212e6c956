"""Critical paths: who waits for whose circuits, and what exchanges on them are worth."""

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.rails.choices import Search
from optmatch.solvers.rails.critical import CriticalPaths, ScheduleTimes
from optmatch.solvers.rails.seats import seat_ranks
from tests.helpers.rails import MODEL, make_job


def make_pipeline(delay_s: float) -> om.RailJob:
    """Return a job of four GPUs whose messages and collectives want the same circuits."""
    return make_job(
        dp=2, pp=2, schedule="1f1b", model=MODEL, gpus_per_server=1, batch=8, micro_batch=1,
        delay_s=delay_s, port_bytes_per_s=1e8,
    )  # fmt: skip


@pytest.mark.parametrize("delay_s", [1e-6, 1000.0])
def test_blocked_communications_start_when_others_end(delay_s: float) -> None:
    job = make_pipeline(delay_s)
    seats = seat_ranks(job)
    search = Search(seats, np.random.default_rng(0), 0.0, np.inf)
    paths = CriticalPaths(seats)
    n_blocked = 0
    in_program = seats.folded.part.astype(float)
    for order in search.orders[:6]:
        choice = search._form(search.plain, order, in_program)
        step = search.decoder.run(choice)
        times = ScheduleTimes(
            search.decoder.result.start_s.copy(), search.decoder.result.end_s.copy()
        )
        if step.step_s == np.inf:
            continue
        earliest_s = np.inf
        for blocked in paths.list_blocked(times, delay_s):
            gap_s = times.start_s[blocked.node] - times.end_s[blocked.blocker]
            assert gap_s == pytest.approx(0.0, abs=1e-15) or gap_s == pytest.approx(delay_s)
            assert blocked.ready_s < times.start_s[blocked.node] <= earliest_s
            assert blocked.blocker_start_s == times.start_s[blocked.blocker]
            earliest_s = times.start_s[blocked.node]
            n_blocked += 1
    assert n_blocked
