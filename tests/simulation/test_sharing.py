"""Devices and jobs in time: against a plain simulator, conservation, and the generator."""

import heapq
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from optmatch.model import InputError
from optmatch.problems.sharing.resources import Jobs, Resources
from optmatch.simulation.sharing.pool import Pool, draw_devices, draw_jobs, make_pool
from optmatch.simulation.sharing.replay import Moment, Policy, PoolRun, simulate_pool
from tests.helpers.pools import at_random, choosy, fewest_first, first_come, pools


def simulate_plainly(
    pool: Pool, policy: Policy, seed: int, factor: float, enough: float, until_s: float
) -> tuple[list[float], list[int], list[tuple[int, int, int, float]]]:
    """Simulate device by device, event by event; returns completions, failures and the log."""
    rng, jobs = np.random.default_rng(seed), range(len(pool.demand))
    count, done, failed = len(pool.arrival_s), [math.nan] * len(jobs), [0] * len(jobs)
    wants = [math.ceil(round(d * factor, 9)) for d in pool.demand.tolist()]
    needs = [math.ceil(round(d * enough, 9)) for d in pool.demand.tolist()]
    residual, left, given = [0] * len(jobs), pool.rounds.tolist(), [0] * len(jobs)
    request, results, draws = [0] * len(jobs), [0] * len(jobs), [0.0] * len(jobs)
    log: list[tuple[int, int, int, float]] = []
    waiting: list[int] = []
    # (time, kind, job or device, request): devices first, then results, deadlines, first requests
    events = [(t, 3, j, 0) for j, t in enumerate(pool.asked_s.tolist())]
    turns = int(until_s // pool.period_s) + 1 if pool.period_s else 1
    stay: dict[int, float] = {}
    time, fresh, happened, decided = 0.0, True, False, np.zeros(0)
    for turn in range(turns):
        for k in range(count):
            shift = turn * pool.period_s
            device = turn * count + k
            events.append((float(pool.arrival_s[k]) + shift, 0, device, 0))
            stay[device] = float(pool.departure_s[k]) + shift
    heapq.heapify(events)

    def decide() -> np.ndarray:
        now = Moment(
            time_s=time,
            asks=np.array(residual) > 0,
            residual=np.array(residual),
            had=np.array(wants) - np.array(residual),
            demand=pool.demand,
            rounds_left=np.array(left),
            given=np.array(given),
            asked_s=pool.asked_s,
            draws=np.array(draws),
            eligible=pool.eligible > 0,
            rates=pool.rates,
            tier=pool.tier,
        )
        return np.broadcast_to(policy(now), pool.eligible.shape).copy()

    def best_job(device: int) -> int:
        class_ = pool.class_of[device % count]
        row = decided[class_]
        fitting = [
            j for j in jobs if pool.eligible[class_, j] and residual[j] and row[j] > -math.inf
        ]
        return max(fitting, key=lambda j: (row[j], -j), default=-1)

    def serve(device: int) -> bool:
        nonlocal fresh
        job = best_job(device)
        if job < 0:
            return False
        residual[job] -= 1
        given[job] += 1
        log.append((device, job, request[job], time))
        end = time + float(pool.response_s[device % count])
        if end <= stay[device]:
            heapq.heappush(events, (end, 1, job, request[job]))
        fresh = fresh and residual[job] > 0
        return True

    def settle() -> None:
        """Decide, and let waiting devices serve, anew after each job that has all."""
        nonlocal decided, fresh
        fresh = False
        while not fresh:
            decided, fresh = decide(), True
            waiting[:] = [d for d in waiting if stay[d] > time]
            for device in tuple(waiting):
                if fresh and serve(device):
                    waiting.remove(device)

    def ask(job: int) -> None:
        residual[job], results[job] = wants[job], 0
        request[job] += 1
        draws[job] = rng.random()
        heapq.heappush(events, (time + float(pool.deadline_s[job]), 2, job, request[job]))

    def close(job: int) -> None:
        results[job] = -(10**9)
        left[job] -= 1
        if left[job]:
            ask(job)
        else:
            residual[job], done[job] = 0, time - float(pool.asked_s[job])
            request[job] += 1

    decided = decide()
    while events and any(map(math.isnan, done)) and events[0][0] <= until_s:
        time, kind, name, number = heapq.heappop(events)
        if kind == 0:
            if not serve(name):
                waiting.append(name)
            if not fresh:
                settle()
            continue
        if kind == 1 and number == request[name]:
            results[name] += 1
            if results[name] == needs[name]:
                happened = True
                close(name)
        elif kind == 2 and number == request[name]:
            happened = True
            failed[name] += 1
            ask(name)
        elif kind == 3:
            happened = True
            ask(name)
        if happened and (not events or events[0][0] > time):
            happened = False
            settle()
    return done, failed, log


@given(
    pools(),
    st.sampled_from([first_come, at_random, fewest_first, choosy]),
    st.sampled_from([(1.0, 1.0), (1.3, 0.8), (2.0, 0.5)]),
    st.integers(0, 3),
)
def test_as_a_plain_simulator(
    pool: Pool, policy: Policy, rule: tuple[float, float], seed: int
) -> None:
    run = simulate_pool(
        pool, policy, seed=seed, over_selection=rule[0], enough=rule[1], until_s=60.0, record=True
    )
    done, failed, log = simulate_plainly(pool, policy, seed, *rule, 60.0)
    found = [(*row, t) for row, t in zip(run.log.tolist(), run.log_s.tolist(), strict=True)]
    np.testing.assert_array_equal(run.completion_s, done)
    if not np.isnan(done).any() or pool.period_s:
        assert run.failed.tolist() == failed
    assert sorted(found) == sorted(log)
    check_conservation(pool, run, rule)


def check_conservation(pool: Pool, run: PoolRun, rule: tuple[float, float]) -> None:
    """No device serves two jobs, none before it comes or after it leaves, none too many."""
    devices, jobs, requests = run.log.T
    assert len(set(devices.tolist())) == len(devices) <= run.checked_in
    turns, places = np.divmod(devices, len(pool.arrival_s))
    shift = turns * pool.period_s
    assert (pool.arrival_s[places] + shift <= run.log_s).all()
    assert (run.log_s < pool.departure_s[places] + shift).all()
    assert pool.eligible[pool.class_of[places], jobs].all()
    assert (np.diff(run.log_s) >= 0).all() or len(pool.demand) > 1
    _, sizes = np.unique(np.stack((jobs, requests)), axis=1, return_counts=True)
    job_of = np.unique(np.stack((jobs, requests)), axis=1)[0]
    assert (sizes <= np.ceil((pool.demand[job_of] * rule[0]).round(9))).all()
    assert np.bincount(jobs, minlength=len(pool.demand)).tolist() == run.given.tolist()
    least = np.ceil((pool.demand * rule[1]).round(9)) * pool.rounds
    finished = ~np.isnan(run.completion_s)
    assert (run.given >= least)[finished].all()
    assert 0 <= run.busy_s <= run.present_s


SHARES = {(3, 2, 400, 4): 0.75, (6, 4, 800, 6): 0.5, (7, 6, 900, 7): 0.39, (9, 6, 1200, 8): 0.25}


@pytest.mark.parametrize("seed", [0, 1])
def test_shares_of_eligible_devices(seed: int) -> None:
    devices, response_s, _ = draw_devices(20_000, 1000.0, np.random.default_rng(seed))
    for bounds, share in SHARES.items():
        found = (devices.public >= np.array(bounds)[:, None]).all(axis=0).mean()
        assert found == pytest.approx(share, abs=0.05), bounds
    assert np.quantile(response_s, [0.25, 0.5, 0.75, 0.95]).round(1).tolist() == [
        29,
        60,
        85.3,
        137.1,
    ]
    assert np.corrcoef(devices.public[0], response_s)[0, 1] < -0.7  # good phones are quick


def test_mixes_are_the_published_ones() -> None:
    rng = np.random.default_rng(0)
    total = {
        mix: draw_jobs(mix, 200, rng, scale=1.0)[0] for mix in ("small", "large", "low", "high")
    }
    whole = {mix: jobs.demand * jobs.requests for mix, jobs in total.items()}
    assert whole["small"].max() <= 600_000 < 640_000 <= whole["large"].min()
    assert total["low"].demand.max() == 200 < 400 == total["high"].demand.min()
    gaps = np.diff(total["low"].arrivals_s)
    assert 1500 < gaps.mean() < 2100 and total["low"].arrivals_s[0] == 3600


def test_same_seed_same_run() -> None:
    """Runs are functions of their arguments; another seed draws otherwise."""
    devices, response_s, period_s = draw_devices(500, 100.0, np.random.default_rng(0))
    jobs = Jobs(np.array([20, 30, 10]), np.zeros((4, 3)), rounds=np.array([2, 1, 3]))
    pool = make_pool(devices, jobs, response_s, 300.0, period_s=period_s)
    first, again, other = (simulate_pool(pool, at_random, seed=k) for k in (0, 0, 1))
    assert first == again
    assert first != other
    assert not np.isnan(first.completion_s).any()


@given(pools())
def test_who_does_not_wait_serves_when_it_comes(pool: Pool) -> None:
    """Without patience a device serves at its check-in or never."""
    run = simulate_pool(pool, first_come, patient=False, until_s=60.0, record=True)
    turns, places = np.divmod(run.log[:, 0], max(1, len(pool.arrival_s)))
    assert np.allclose(run.log_s, pool.arrival_s[places] + turns * pool.period_s)


def test_early_leavers_give_no_result() -> None:
    """The only device leaves before its result: the round fails, and the trace ends."""
    times: dict[str, Any] = {"arrival_s": [0.0], "departure_s": [5.0]}
    phones = Resources(np.ones((1, 1)), **times)
    pool = make_pool(phones, Jobs(np.array([1]), np.zeros((1, 1))), 6.0, 10.0)
    run = simulate_pool(pool, first_come)
    assert np.isnan(run.completion_s[0])
    assert (run.given.tolist(), run.useful, run.busy_s) == ([1], 0, 5.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"demand": [1, 1]}, "demand: 1 entries"),
        ({"arrival_s": [3.0, 2.0]}, "in order"),
        ({"departure_s": [1.0, 9.0]}, "before the departures"),
        ({"period_s": 2.0}, "later than the period"),
        ({"class_of": [0, 2]}, "there are 2 classes"),
        ({"eligible": [[0], [0]]}, "job 0: no device"),
        ({"response_s": [0.0, 1.0]}, "must be > 0"),
        ({"demand": [0]}, "must be >= 1"),
    ],
)
def test_bad_pools(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        **{"arrival_s": [1.0, 2.0], "departure_s": [8.0, 9.0], "response_s": [1.0, 1.0]},
        **{"class_of": [0, 1], "eligible": [[1], [0]], "tier": [0, 0], "asked_s": [0.0]},
        **{"demand": [1], "rounds": [1], "deadline_s": [5.0]},
    }
    with pytest.raises(InputError, match=message):
        Pool(**good | change)
