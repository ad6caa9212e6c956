"""Critical paths: who waits for whose circuits, and what exchanges on them are worth."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.rails.choices import RailChoice, Search, TimedChoice
from optmatch.solvers.rails.critical import CriticalPaths, ScheduleTimes
from optmatch.solvers.rails.seats import Seats, seat_ranks
from tests.helpers.rails import MODEL, make_job


def make_pipeline(delay_s: float, **options: Any) -> om.RailJob:
    """Return a job of four GPUs whose messages and collectives want the same circuits."""
    return make_job(
        dp=2, pp=2, schedule="1f1b", model=MODEL, gpus_per_server=1, batch=8, micro_batch=1,
        delay_s=delay_s, port_bytes_per_s=1e8, **options,
    )  # fmt: skip


def make_search(job: om.RailJob) -> tuple[Search, RailChoice]:
    """Return a search, and a choice whose step has been timed."""
    seats = seat_ranks(job)
    search = Search(seats, np.random.default_rng(0), 0.0, np.inf)
    choice = search._form(search.plain, search.orders[0], seats.folded.part.astype(float))
    search._try(choice, np.inf)
    return search, choice


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


def test_a_choice_without_blocked_communications_is_changed_at_random() -> None:
    """Else the same choice would be timed again, and counted as a trial."""
    search, choice = make_search(make_pipeline(1e-6))
    search.critical_share = 1.0
    search._blocked = []
    assert all(search._change(choice) is not choice for _ in range(20))


def test_times_of_the_current_choice_outlast_the_next_one() -> None:
    search, choice = make_search(make_pipeline(1e-6))
    search._exchange_on_critical_path(choice)
    assert search._times is not None
    assert not np.shares_memory(search._times.start_s, search.decoder.result.start_s)
    assert not np.shares_memory(search._times.end_s, search.decoder.result.end_s)


def test_times_are_kept_only_where_critical_paths_are_looked_for() -> None:
    search, choice = make_search(make_pipeline(1e-6))
    for critical_share in (0.0, 0.5):
        search.critical_share = critical_share
        step_s = 2 * search.best_s
        search._take_turn(TimedChoice(step_s, choice), 1, np.inf)
        assert (search._times is not None) == (critical_share > 0)


@pytest.mark.parametrize("switching", ["per-circuit", "all-stop"])
def test_switches_that_stop_as_a_whole_change_no_circuit(
    switching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their schedules wait for no change: nobody starts the delay after another one's end."""
    search, choice = make_search(make_pipeline(1e-6, switching=switching))
    delays_s: list[float] = []
    list_blocked = search._paths.list_blocked

    def note_delay(times: ScheduleTimes, delay_s: float) -> Any:
        delays_s.append(delay_s)
        return list_blocked(times, delay_s)

    monkeypatch.setattr(search._paths, "list_blocked", note_delay)
    search._exchange_on_critical_path(choice)
    assert delays_s == [np.inf if switching == "all-stop" else 1e-6]


def test_a_blocker_has_a_common_seat_if_one_of_those_that_end_then_has() -> None:
    """Others that end at the same time may have nothing to do with the one that waits."""
    job = make_pipeline(1e-6)
    seats = seat_ranks(job)
    search, choice = make_search(job)
    n_chosen = 0
    for _ in range(40):
        choice = search._change(choice)
        if search.decoder.run(choice).step_s == np.inf:
            continue
        times = search._copy_times()
        tie_s = 1e-12 * float(times.end_s.max())
        for blocked in search._paths.list_blocked(times, 1e-6):
            freed_s = times.end_s[blocked.blocker]
            tied = [
                int(node)
                for node in seats.riding
                if node != blocked.node and abs(times.end_s[node] - freed_s) <= tie_s / 2
            ]
            own_seats = list_members(seats, blocked.node)
            shares = [bool(own_seats & list_members(seats, node)) for node in tied]
            if any(shares):
                assert own_seats & list_members(seats, blocked.blocker)
                n_chosen += not all(shares)
    assert n_chosen


def list_members(seats: Seats, node: int) -> set[int]:
    """List the seats of a communication."""
    return set(seats.member[seats.begin[node] : seats.begin[node + 1]].tolist())
