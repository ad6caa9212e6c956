"""Collectives in rounds: data end where they belong, plans are replayed, broken ones refused."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.model import Limits
from optmatch.problems.collectives.steps import Algorithm, list_sends
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    OPERATIONS,
    REDUCE_SCATTER,
    Group,
    Step,
)
from optmatch.problems.rails.training.times import list_rounds
from optmatch.verify.rails.replay import Transfers, list_transfers
from tests.helpers.command import call
from tests.helpers.modes import SOAK
from tests.helpers.rails import change_job, fixed_point, make_job, small_job

Sends = list[tuple[int, int, float]]
HALVED = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def planned(algorithm: Algorithm, kind: int, n: int) -> list[Sends]:
    """List the sends of each round, as planners state them."""
    return [
        [(a, b, each.share) for a, b in list_sends(algorithm, n, each).tolist()]
        for each in list_rounds(algorithm, kind, n)
    ]


def checked(algorithm: str, kind: int, n: int) -> list[Transfers]:
    """List the sends that the verifier wants."""
    return list_transfers(algorithm, OPERATIONS[kind], n)


def halve(rounds: list[Sends], n: int) -> list[dict[int, set[int]]]:
    """Move sums: each sends what belongs to the side of its partner; all parts of a size of 1.

    Returns, for each member and each part left to it, the contributions in its sum.
    """
    left = [{part: {p} for part in range(n)} for p in range(n)]
    for sends in rounds:
        moved = []
        for a, b, share in sends:
            parts = {part for part in left[a] if (part ^ b) & (a ^ b) == 0}
            assert len(parts) / n == pytest.approx(share)
            moved.append((b, {part: left[a].pop(part) for part in parts}))
        for b, parts_of in moved:
            for part, sums in parts_of.items():
                assert not left[b][part] & sums, "counted twice"
                left[b][part] |= sums
    return left


def gather(rounds: list[Sends], held: list[set[int]], shard: float) -> list[set[int]]:
    """Move shards: each member sends all that it holds."""
    for sends in rounds:
        before = [set(parts) for parts in held]
        for a, b, share in sends:
            assert len(before[a]) * shard == pytest.approx(share)
            assert not before[a] & held[b], "sent twice"
            held[b] |= before[a]
    return held


@pytest.mark.parametrize("source", [planned, checked])
@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_halving_moves_every_part_to_its_owner_and_back(source: Any, n: int) -> None:
    everyone, own = set(range(n)), [{p} for p in range(n)]
    assert halve(source("halving", REDUCE_SCATTER, n), n) == [{p: everyone} for p in range(n)]
    assert gather(source("halving", ALL_GATHER, n), own, 1.0) == [everyone] * n
    rounds = source("halving", ALL_REDUCE, n)
    half = len(rounds) // 2
    assert halve(rounds[:half], n) == [{p: everyone} for p in range(n)]
    assert gather(rounds[half:], [{p} for p in range(n)], 1 / n) == [everyone] * n
    total = sum(sends[0][2] for sends in rounds)
    assert total == pytest.approx(2 * (n - 1) / n)  # as around a ring


@pytest.mark.parametrize("source", [planned, checked])
@pytest.mark.parametrize("n", range(3, 20))
def test_trees_collect_from_everyone_and_tell_everyone(source: Any, n: int) -> None:
    levels = (n - 1).bit_length()
    rounds = source("tree", ALL_REDUCE, n)
    assert len(rounds) == 2 * levels
    sums = [{p} for p in range(n)]
    for sends in rounds[:levels]:
        assert len({p for a, b, _ in sends for p in (a, b)}) == 2 * len(sends)
        for a, b, share in sends:
            assert share == 1.0
            assert not sums[a] & sums[b]
            sums[b] |= sums[a]
    assert sums[0] == set(range(n))
    for broadcast in (rounds[levels:], source("tree", BROADCAST, n)):
        told = {0}
        for sends in broadcast:
            assert {a for a, _, _ in sends} <= told
            assert not {b for _, b, _ in sends} & told
            told |= {b for _, b, _ in sends}
        assert told == set(range(n))


@pytest.mark.parametrize("kind", range(1, 6))
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_planners_and_the_verifier_agree(kind: int, algorithm: Algorithm) -> None:
    known = {"halving": HALVED, "tree": (ALL_REDUCE, BROADCAST), "ring": ()}[algorithm]
    for n in (2, 4, 8, 16) if algorithm == "halving" else range(2, 17):
        one, two = planned(algorithm, kind, n), checked(algorithm, kind, n)
        assert [sorted(sends) for sends in one] == [sorted(sends) for sends in two], n
        assert bool(one) == (n > 2 and kind in known), n


def single(n: int, kind: int, size: float = 1e6, **options: Any) -> om.RailJob:
    """Return a job of one collective."""
    every = list(range(n))
    columns: dict[str, Any] = {
        "rank": every,
        "kind": [kind] * n,
        "group": [0] * n,
        "size_bytes": [size] * n,
        "duration_s": [0] * n,
        "peer": [-1] * n,
        "match": [0] * n,
        "dep_start": [0] * (n + 1),
        "dep": [],
    }
    step = Step(groups=(Group("dp.0", "dp", tuple(every), rail=0),), **columns)
    plain: dict[str, Any] = {"port_bytes_per_s": 1e8, "latency_s": 1e-6}
    return make_job(gpus_per_server=1, recorded=step, **{**plain, **options})


def plan_of(job: om.RailJob, method: str = "provisioned") -> RailPlan:
    """Solve a job, and return its plan."""
    answer = om.solve(job, method, seed=0).answer
    assert isinstance(answer, RailPlan)
    return answer


@pytest.mark.parametrize("ports", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [2, 4, 8, 16])
@pytest.mark.parametrize("kind", HALVED)
def test_times_of_halving(ports: int, n: int, kind: int) -> None:
    """The bytes of a ring, a message for each round, a delay wherever circuits change."""
    levels, delay, size = n.bit_length() - 1, 1e-3, 1e6
    job = single(n, kind, size, ports_per_gpu=ports, delay_s=delay, collectives={"dp": "halving"})
    shares = {ALL_REDUCE: 2 * (n - 1) / n, REDUCE_SCATTER: (n - 1) / n, ALL_GATHER: n - 1}
    rounds = levels * (2 if kind == ALL_REDUCE else 1)
    bound = shares[kind] * size / (ports * 1e8) + rounds * 1e-6
    assert job.lower_bound() == pytest.approx(bound)
    changes = 2 * (levels - 1) if kind == ALL_REDUCE else levels - 1
    first = delay if n > 2 and kind != ALL_REDUCE else 0.0  # what the step before has left
    plan = plan_of(job)
    assert plan.step_s == pytest.approx(bound + first + changes * delay)
    assert plan_of(job, "prefetch").step_s <= plan.step_s


@pytest.mark.parametrize("n", [3, 4, 5, 8, 11])
def test_times_of_trees(n: int) -> None:
    levels, delay = (n - 1).bit_length(), 1e-3
    job = single(n, ALL_REDUCE, 1e6, delay_s=delay, collectives={"dp": "tree"})
    bound = 2 * levels * (1e6 / 1e8 + 1e-6)
    assert job.lower_bound() == pytest.approx(bound)
    assert plan_of(job).step_s == pytest.approx(bound + 2 * (levels - 1) * delay)


@st.composite
def jobs_in_rounds(draw: Any) -> om.RailJob:
    """Draw a job whose replicas are not joined by rings."""
    algorithm = draw(st.sampled_from(["halving", "tree"]))
    dp = draw(st.sampled_from([2, 4, 8] if algorithm == "halving" else [2, 3, 4, 5, 6, 7]))
    return small_job(
        dp,
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([1, 2, 3])),
        collectives={"dp": algorithm, "cp": draw(st.sampled_from(get_args(Algorithm)))},
        zero_stage=draw(st.sampled_from([0, 1, 3])),
        ports_per_gpu=draw(st.sampled_from([1, 2, 3, 4])),
        micro_batch=draw(st.sampled_from([-1, 2])),
        switching=draw(st.sampled_from(["per-circuit", "all-stop"])),
        delay_s=draw(st.sampled_from([0.0, 1e-6, 1e-4, 1e-2])),
    )


@relaxed
@given(jobs_in_rounds(), st.sampled_from(["on-demand", "provisioned", "prefetch", "ilp"]))
def test_jobs_in_rounds_are_planned(job: om.RailJob, method: str) -> None:
    """Every plan passes the verifier, and none is below the bound."""
    found = om.solve(job, method, seed=0, limits=Limits(iterations=400))
    assert found.objective >= job.lower_bound() * (1 - 1e-9)


@pytest.mark.parametrize("switching", ["all-stop", "per-circuit"])
@pytest.mark.parametrize("method", ["on-demand", "provisioned", "prefetch"])
def test_a_round_of_no_time_uses_circuits_until_they_are_given_up(
    method: str, switching: str
) -> None:
    """The last circuits of one tree are the first of the next, which has no bytes."""
    job = single(4, ALL_REDUCE, delay_s=1.0, port_bytes_per_s=1.0)
    step = job.step()
    twice: dict[str, Any] = {
        name: np.repeat(getattr(step, name), 2) for name in ("rank", "kind", "group", "peer")
    }
    tree = Step(
        groups=step.groups,
        **twice,
        size_bytes=[1.0, 0.0] * 4,
        duration_s=[0.0] * 8,
        match=[0, 1] * 4,
        dep_start=[0] * 9,
        dep=[],
    )
    job = change_job(
        job, recorded=tree, latency_s=0.0, switching=switching, collectives={"dp": "tree"}
    )
    assert om.solve(job, method, seed=0, limits=Limits(iterations=50)).objective == 8.0


SOME = [("halving", 4), ("tree", 5), *([("halving", 8)] if SOAK else [])]


@pytest.mark.parametrize("policy", ["on-demand", "provisioned"])
@pytest.mark.parametrize("pp", [1, 2, 3])
@pytest.mark.parametrize(("algorithm", "dp"), SOME)
@pytest.mark.parametrize("delay_s", [0.0, 1e-4, 1e-2])
def test_policies_count_the_changes_between_rounds(
    policy: Any, algorithm: str, dp: int, delay_s: float, pp: int
) -> None:
    job = small_job(dp, 1, pp, delay_s=delay_s, collectives={"dp": algorithm})
    expected = fixed_point(job, early=policy == "provisioned")
    assert plan_of(job, policy).step_s == pytest.approx(expected, rel=1e-12)


def test_static_ports_cannot_change_between_rounds() -> None:
    job = small_job(4, 1, 1, collectives={"dp": "halving"})
    found = om.solve(job, "static", seed=0)
    assert found.status is om.Status.UNKNOWN
    two = small_job(2, 1, 1, collectives={"dp": "halving"})
    assert om.solve(two, "static", seed=0).stats["reconfigurations"] == 0


@pytest.mark.parametrize("algorithm", ["halving", "tree"])
@pytest.mark.parametrize(
    "fabric", [om.Benes(8), om.HexMesh(7, 7, tx=8, rx=8), om.HexMesh(5, 5, ports=8)]
)
def test_rounds_on_fabrics_with_cells(fabric: om.Fabric, algorithm: str) -> None:
    job = small_job(
        4, 1, 1, fabric=fabric, ports_per_gpu=2, delay_s=1e-4, collectives={"dp": algorithm}
    )
    found = om.solve(job, "provisioned", seed=0)
    assert found.status is om.Status.FEASIBLE, found.stats
    assert found.answer.rails[0].cell_states is not None
    assert found.answer.rails[0].cell_states.shape[1] == fabric.n_cells


@pytest.mark.parametrize(
    ("collectives", "message"),
    [
        ({"dp": "halving"}, "group dp.0 has 6 members, halving needs a power of two"),
        ({"dp": "halves"}, r"collectives\[dp\] = 'halves': one of ring, halving, tree"),
        ({"zp": "ring"}, "zp = 'ring': one of"),
        ("halving", "a mapping is expected, as {'key': value}"),
    ],
)
def test_what_cannot_be_done_is_refused(collectives: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message) as caught:
        small_job(6, 1, 1, collectives=collectives)
    assert caught.value.where.partition("[")[0] == "collectives"


def test_groups_inside_a_server_need_no_power_of_two() -> None:
    job = small_job(2, 3, 1, collectives={"tp": "halving"})
    assert job.lower_bound() == small_job(2, 3, 1).lower_bound()


def test_an_all_to_all_stays_what_it_is() -> None:
    one, two = (single(4, ALL_TO_ALL, collectives=given_) for given_ in ({}, {"dp": "halving"}))
    assert plan_of(one).step_s == plan_of(two).step_s


def test_files_and_commands_name_algorithms() -> None:
    job = small_job(4, 1, 1, collectives={"dp": "tree"})
    again = loads(dumps(job))
    assert again == job
    assert isinstance(again, om.RailJob)
    assert again.collectives == {"dp": "tree"}
    line = "generate rail-job --gpus 4 --gpus-per-server 1 --dp 4 --batch 4 --layers 4 --hidden 64"
    line += " --heads 4 --sequence 32 --vocabulary 100 --ffn 128 --collectives dp=halving,cp=tree"
    done = call(*line.split())
    made = loads(done.stdout)
    assert isinstance(made, om.RailJob)
    assert made.collectives == {"dp": "halving", "cp": "tree"}
    wrong = call(*line.replace("halving", "halve").split(), code=2)
    assert "collectives[dp] = 'halve': one of ring" in wrong.stderr
