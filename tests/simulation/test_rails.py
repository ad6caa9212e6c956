"""Steps under policies: against a fixed point, and without folding; published step times."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import optmatch as om
from optmatch.io import dumps
from optmatch.plotting import jitter_data
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import link_triggers, retime
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import ALL_REDUCE, COMPUTE, Group, Step
from optmatch.simulation.rails.replay import (
    draw_factors,
    read_plan,
    simulate_jitter,
    simulate_rails,
)
from tests.helpers.command import call, put
from tests.helpers.rails import (
    MODEL,
    change_job,
    fixed_point,
    make_job,
    served_jobs,
    small_job,
)

relaxed = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POLICIES = st.sampled_from(["on-demand", "provisioned"])


def single_jobs() -> st.SearchStrategy[om.RailJob]:
    """Draw jobs of which each phase is one matching.

    Not so of an all-to-all, or of messages both ways at the same time.
    """
    single: Any = {"micro_batch": -1, "schedule": "1f1b", "virtual_stages": 1, "collectives": {}}
    alone: Any = {"switching": "per-circuit", "ports_per_gpu": 1}
    jobs = served_jobs().filter(
        lambda job: job.parallelism.ep == 1 and job.parallelism.dp * job.parallelism.cp > 1
    )
    return jobs.map(lambda job: change_job(job, **single, **alone))


@relaxed
@given(single_jobs(), POLICIES)
def test_a_policy_is_the_least_fixed_point(job: om.RailJob, policy: Any) -> None:
    expected = fixed_point(job, early=policy == "provisioned")
    assert simulate_rails(job, policy).step_s == pytest.approx(expected)


@relaxed
@given(served_jobs(), POLICIES)
def test_folding_changes_nothing(job: om.RailJob, policy: Any) -> None:
    found = simulate_rails(job, policy)
    names = [str(rank).encode() for rank in range(job.n_gpus)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optmatch.solvers.rails.seats._describe_ranks", lambda *_: names)
        whole = simulate_rails(job, policy)
    for name in ("start_s", "end_s", "asked_s", "begun_s", "ready_s", "window_s", "exposed_s"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), atol=1e-12)
    assert (found.switched == whole.switched).all()


@relaxed
@given(served_jobs(), st.sampled_from(["static", "on-demand", "provisioned"]))
def test_a_policy_has_one_step_time(job: om.RailJob, policy: Any) -> None:
    """Whether it is simulated or solved for, with one port and several micro-batches too."""
    solution = om.solve(job, policy, seed=0)
    if solution.answer is None:
        with pytest.raises(om.InputError, match="fewer ports than there are kinds of circuits"):
            simulate_rails(job, policy)
        return
    assert simulate_rails(job, policy).step_s == solution.objective


@relaxed
@given(served_jobs())
def test_policies_are_ordered(job: om.RailJob) -> None:
    job = change_job(job, switching="per-circuit")
    late, early, none = (
        simulate_rails(job, policy).step_s for policy in ("on-demand", "provisioned", "all-links")
    )
    assert none == pytest.approx(job.lower_bound())
    assert none <= early + 1e-12
    assert early <= late + 1e-12
    slower = simulate_rails(job, "on-demand", delay_s=2 * job.network.delay_s).step_s
    assert late <= slower + 1e-12
    stopping = simulate_rails(change_job(job, switching="all-stop"), "on-demand").step_s
    assert stopping >= none - 1e-12


def test_all_stop_stops_what_goes_on() -> None:
    job = small_job(dp=2, tp=1, pp=2, delay_s=1e-3, port_bytes_per_s=1e6)
    going = simulate_rails(job, "on-demand")
    standing = simulate_rails(change_job(job, switching="all-stop"), "on-demand")
    longer = (standing.end_s - standing.start_s) - (going.end_s - going.start_s)
    stopped = longer[longer > 1e-12]
    assert len(stopped)
    np.testing.assert_allclose(
        stopped / job.network.delay_s, np.round(stopped / job.network.delay_s), atol=1e-6
    )


def test_static_shares_have_their_rates() -> None:
    job = small_job(dp=2, tp=1, pp=2, ports_per_gpu=3)
    found = simulate_rails(job, "static")
    assert found.step_s > job.lower_bound()
    assert not found.switched.any()
    with pytest.raises(om.InputError, match="policy = 'never': one of all-links"):
        simulate_rails(job, "never")  # type: ignore[arg-type]


def test_a_plan_is_read_as_it_stands(tmp_path: Any) -> None:
    job = small_job()
    solution = om.solve(job, "provisioned", seed=0)
    assert isinstance(solution.answer, RailPlan)
    told = read_plan(job, solution.answer)
    expected = simulate_rails(job, "provisioned")
    assert told.switched.tolist() == expected.switched.tolist()
    om.save(solution, tmp_path / "plan.json")
    done = call("simulate", str(tmp_path / "plan.json"), "--json")
    assert json.loads(done.stdout)["policy"] == "plan"
    call("simulate", str(tmp_path / "plan.json"), "--delay", "1", code=2)
    anew = call(
        "simulate", str(tmp_path / "plan.json"), "--delay", "1", "--policy", "on-demand", "--json"
    )
    late = simulate_rails(job, "on-demand", delay_s=1.0).step_s
    assert json.loads(anew.stdout)["step_s"] == late
    with pytest.raises(om.InputError, match="operations, the step has"):
        read_plan(small_job(dp=4), solution.answer)


def test_only_waits_for_circuits_are_exposed() -> None:
    """The plan puts some operations off for many delays; none waits longer for its circuits."""
    model = om.TransformerModel(
        layers=8, hidden=4096, heads=8, sequence=2048, vocabulary=1000, ffn=16384
    )
    sizes = {"gpus_per_server": 2, "dp": 2, "tp": 2, "pp": 4, "batch": 8, "micro_batch": 2}
    job = make_job(**sizes, model=model, delay_s=1e-3)
    solution = om.solve(job, "prefetch", seed=0)
    assert isinstance(solution.answer, RailPlan) and solution.objective == job.lower_bound()
    told = read_plan(job, solution.answer)
    assert told.exposed_s.max() <= job.network.delay_s * (1 + 1e-9)
    assert (told.exposed_s[~told.switched] == 0).all()


def test_the_command_replays_a_job(tmp_path: Any) -> None:
    job = small_job()
    path = put(tmp_path, "job.json", dumps(job))
    done = call("simulate", str(path), "--policy", "provisioned", "--delay", "0.5", "--json")
    tree = json.loads(done.stdout)
    expected = simulate_rails(job, "provisioned", delay_s=0.5)
    assert (tree["policy"], tree["step_s"]) == ("provisioned", expected.step_s)
    assert len(tree["boundaries"]) == len(job.phases())
    shown = call("simulate", str(path), "--phases")
    assert f"{len(job.phases())}\n" in shown.stdout
    assert shown.stdout.count("operations): window") == len(job.phases())
    call("simulate", str(path), "--packet-rate", "1", code=2)
    call("simulate", str(path), "--switching", "all-stop")


@pytest.mark.parametrize("policy", ["on-demand", "provisioned", "all-links"])
def test_groups_of_which_only_some_ranks_are_members(policy: Any) -> None:
    """What is planned is simulated: ranks 0 and 1 change dimensions, ranks 2 and 3 do not."""
    groups = (Group("tp.0", "tp", (0, 1), rail=0), Group("dp.0", "dp", (0, 1, 2, 3), rail=0))
    step = Step(
        groups=groups,
        rank=[0, 0, 1, 1, 2, 3],
        kind=[ALL_REDUCE] * 6,
        group=[0, 1, 0, 1, 1, 1],
        size_bytes=[8e6] * 6,
        duration_s=[0.0] * 6,
        peer=[-1] * 6,
        match=[0, 1, 0, 1, 1, 1],
        dep_start=[0, 0, 1, 1, 2, 2, 2],
        dep=[0, 2],
    )
    network = om.problems.RailNetwork(gpus_per_server=1, delay_s=0.25, port_bytes_per_s=8e6)
    job = om.RailJob(network=network, workload=om.problems.Workload(recorded=step))
    outcome = simulate_rails(job, policy)
    stages = [(phase.stage, phase.ranks, phase.dimension) for phase in job.phases()]
    assert stages == [(0, (0, 1), "tp"), (0, (0, 1), "dp"), (1, (2, 3), "dp")]
    switches = policy != "all-links"
    assert outcome.switched.tolist() == [switches, switches, False]
    if policy != "all-links":
        assert om.solve(job, policy).objective == pytest.approx(outcome.step_s)


# Step times under jitter: plans stay valid, whatever computations take.


METHODS = st.sampled_from(["on-demand", "provisioned", "prefetch"])
KINDS: list[dict[str, Any]] = [
    {},
    {"ports_per_gpu": 2},
    {"switching": "all-stop"},
    {"dp": 4, "pp": 1, "collectives": {"dp": "halving"}},
]


@settings(max_examples=5, deadline=None)
@given(st.sampled_from(KINDS), METHODS, st.integers(0, 2**32), st.sampled_from([0.1, 1.0]))
def test_an_order_is_valid_with_any_times(
    kind: dict[str, Any], method: str, seed: int, jitter: float
) -> None:
    job = small_job(delay_s=1e-3, model=MODEL, **kind)
    plan = om.solve(job, method=method, seed=0).answer
    triggers, step = derive_triggers(job, plan), job.step()
    computes = job.events().part[step.kind[job.events().part] == COMPUTE]
    factor = np.ones(step.n_operations)
    factor[computes] = draw_factors(np.random.default_rng(seed), jitter, len(computes))
    other = om.RailJob(
        network=job.network,
        workload=om.Workload(recorded=replace(step, duration_s=step.duration_s * factor)),
        collectives=job.collectives,
    )
    moved = replace(triggers, lasts_s=triggers.lasts_s * factor)
    again = retime(other, link_triggers(other, moved)[1], moved)
    assert om.verify(other, again).valid
    (step_s,) = simulate_jitter(job, plan, jitter, runs=1, seed=seed)
    assert again.step_s == pytest.approx(step_s)


def test_without_jitter_a_step_takes_what_was_planned() -> None:
    job = small_job(delay_s=1e-3, model=MODEL)
    plan = om.solve(job, method="provisioned", seed=0).answer
    assert simulate_jitter(job, plan, 0.0, runs=2) == pytest.approx([plan.step_s] * 2)
    assert simulate_jitter(job, None, 0.0, runs=1) == pytest.approx([job.lower_bound()])


def test_plans_of_one_job_meet_the_same_computations() -> None:
    job = small_job(delay_s=1e-3, model=MODEL)
    links = simulate_jitter(job, None, 0.2, runs=20)
    planned = simulate_jitter(
        job, om.solve(job, method="provisioned", seed=0).answer, 0.2, runs=20
    )
    assert (planned >= links * (1 - 1e-12)).all()
    assert links.mean() > job.lower_bound()


def test_the_command_draws_what_it_prints(tmp_path: Path) -> None:
    file, picture = tmp_path / "job.json", tmp_path / "jitter.svg"
    om.save(small_job(delay_s=1e-3, model=MODEL), file)
    words = ("simulate", str(file), "--jitter", "0.1", "--runs", "3")
    done = call(*words, "--json", "-o", str(picture))
    policies = json.loads(done.stdout)["policies"]
    rows = [{"policy": name, **figures} for name, figures in policies.items()]
    panel = jitter_data(rows)
    assert panel.labels == ["on-demand", "provisioned", "prefetch", "all-links"]
    assert panel.series["mean"] == [row["mean_s"] for row in policies.values()]
    assert "provisioned" in picture.read_text()
    for more in (["-o", str(picture)], ["--policy", "static"], ["--phases"]):
        call(*words, *more, code=2)
    call("simulate", str(file), "-o", str(picture), code=2)


def test_factors_have_mean_one() -> None:
    drawn = draw_factors(np.random.default_rng(0), 0.1, 100_000)
    assert drawn.mean() == pytest.approx(1, abs=0.002)
    assert drawn.std() == pytest.approx(0.1, abs=0.002)
