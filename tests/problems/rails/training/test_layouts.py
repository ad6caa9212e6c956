"""Groups over several servers and rails: their parts, the load of these, and that plans hold."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.training.layout import coordinates, place_ranks
from optmatch.problems.rails.training.program import Operation
from optmatch.problems.rails.training.spanning import span_rails
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COMPUTE,
    OPERATIONS,
    RECV,
    REDUCE_SCATTER,
    SEND,
    Group,
    ring_bytes,
)
from tests.helpers.rails import small_job

MODEL = om.TransformerModel(
    layers=8, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128, experts=8, active_experts=2
)
FOLDED = "tp-cp-ep-dp-pp"
LAYOUTS: list[dict[str, Any]] = [
    {"dp": 4, "tp": 4, "pp": 2, "gpus_per_server": 8},
    {"dp": 2, "tp": 4, "cp": 2, "pp": 1, "gpus_per_server": 4, "order": FOLDED},
    {"dp": 16, "tp": 1, "pp": 1, "gpus_per_server": 4, "zero_stage": 3},
    {"dp": 16, "tp": 1, "pp": 1, "gpus_per_server": 4, "zero_stage": 3, "shard": 8},
    {"dp": 8, "tp": 1, "pp": 1, "gpus_per_server": 4, "ep": 8, "skew": 1.5},
    {"dp": 4, "cp": 2, "tp": 1, "pp": 2, "gpus_per_server": 4, "ep": 8, "zero_stage": 1},
    {"dp": 4, "tp": 4, "pp": 1, "gpus_per_server": 2, "sequence_parallel": True},
    {"dp": 8, "tp": 1, "pp": 2, "ep": 4, "gpus_per_server": 2, "placement": "ep-pp-tp-cp-dp"},
    {"dp": 2, "tp": 1, "pp": 4, "gpus_per_server": 2, "placement": "pp-tp-cp-dp"},
    {"dp": 1, "tp": 2, "pp": 4, "gpus_per_server": 4, "stage_layers": (1, 3, 3, 1)},
]
"""Groups over servers and rails, in several orders; the last three have stages in one server."""


def make(change: dict[str, Any], **more: Any) -> om.RailJob:
    """Return a small job of two micro-batches, with experts if it has an expert degree."""
    experts = {} if change.get("ep") else {"experts": 1, "active_experts": 1}
    sizes = {name: getattr(MODEL, name) for name in MODEL.__slots__ if hasattr(MODEL, name)}
    model = om.TransformerModel(**sizes | experts)
    batch = {"batch": 2 * change["dp"], "micro_batch": 1}
    return small_job(**{"model": model, "delay_s": 1e-4, **batch, **change, **more})


@pytest.mark.parametrize("change", LAYOUTS)
def test_parts_of_groups_make_up_the_groups(change: dict[str, Any]) -> None:
    job = make(change)
    split, per_server = job.parallelism, job.network.gpus_per_server
    places, gpus = coordinates(split), place_ranks(split)
    assert sorted(gpus.tolist()) == list(range(job.n_gpus))
    dp, tp, pp, cp = places.T
    fast, parts = split.expert_replicas, split.expert_parts
    among = dp * split.cp + cp
    shard = split.shard or split.dp * split.cp
    same: dict[str, list[Any]] = {
        "dp": [tp, pp, among // shard],
        "copies": [tp, pp, among % shard],
        "tp": [dp, pp, cp],
        "pp": [dp, tp, cp],
        "cp": [dp, tp, pp],
        "ep": [tp, pp, dp // fast, cp // parts],
        "edp": [tp, pp, dp % fast, cp % parts],
    }
    joined: dict[str, set[tuple[int, int]]] = {}
    for group in job.groups():
        family = group.name.partition(".")[0].partition("-")[0]
        places_of = gpus[list(group.ranks)]
        on = places_of % per_server if group.rail >= 0 else places_of // per_server
        assert len(set(on.tolist())) == 1
        assert group.rail in (-1, on[0])
        joined.setdefault(family, set()).update(product(group.ranks, group.ranks))
    for family, pairs in joined.items():
        keys = np.stack(same[family], axis=1)
        alike = (keys[:, None] == keys).all(axis=2)
        near = (gpus[:, None] % per_server == gpus % per_server) | (
            gpus[:, None] // per_server == gpus // per_server
        )
        wanted = {(int(a), int(b)) for a, b in np.argwhere(alike & near)}
        assert pairs == wanted


@pytest.mark.parametrize(
    ("change", "spanning"),
    [(change, ("hierarchical", "rings")[k % 2]) for k, change in enumerate(LAYOUTS)],
)
def test_any_layout_is_planned(change: dict[str, Any], spanning: str) -> None:
    job = make(change, spanning=spanning)
    for method in ("on-demand", "provisioned", "prefetch"):
        found = om.solve(job, method, seed=0)
        assert found.objective >= job.lower_bound() * (1 - 1e-12)


@pytest.mark.parametrize("kind", [ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL])
def test_each_rail_carries_its_share(kind: int) -> None:
    groups = (Group("dp-server.0", "dp", (0, 1, 2)), Group("dp-rail.0", "dp", (0, 3, 6, 9), 0))
    whole = [Operation(COMPUTE), Operation(kind, (0,), "dp", 36.0), Operation(COMPUTE, (1,))]

    def sent(spanning: Any) -> tuple[float, float, tuple[int, ...]]:
        (program,) = span_rails([whole], groups, spanning)
        inside, across = (
            sum(
                float(ring_bytes(each.kind, each.size_bytes, len(group.ranks)))
                for each in program
                if each.family == group.name[:-2]
            )
            for group in groups
        )
        return inside, across, program[-1].after

    if kind == ALL_TO_ALL:  # two thirds go to other members of a server, three quarters away
        assert sent("hierarchical") == (24.0, 27.0, (2,))
        assert sent("rings") == (24.0, 27.0, (1, 2))
        return
    ring = float(ring_bytes(kind, 36.0, 12))
    inside, across, after = sent("rings")
    assert (inside, across) == pytest.approx((ring * 2 / 3, ring / 3))
    assert after == (1, 2)
    least = {ALL_REDUCE: 2 * 9.0, ALL_GATHER: 3 * 36.0, REDUCE_SCATTER: 9.0}[kind]
    inside, across, after = sent("hierarchical")
    assert (across, len(after)) == (least, 1)
    assert inside == {ALL_REDUCE: 48.0, ALL_GATHER: 288.0, REDUCE_SCATTER: 24.0}[kind]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("inside", [1, 2, 3, 6])
def test_messages_reach_the_next_stage(schedule: Any, inside: int) -> None:
    """Followed from sender to receiver: over one rail where the stages are in two servers."""
    parts = 2 if schedule == "interleaved" else 1
    job = small_job(
        *(1, 1, 6), gpus_per_server=inside, batch=6, micro_batch=1, placement="pp-tp-cp-dp",
        schedule=schedule, virtual_stages=parts,
    )  # fmt: skip
    step = job.step()
    job.lower_bound()  # nobody waits for itself
    ways: dict[int, list[tuple[int, int, int]]] = {}
    for k in np.flatnonzero(step.kind == SEND).tolist():
        other = int(np.flatnonzero((step.match == step.match[k]) & (step.kind == RECV))[0])
        assert (step.rank[other], step.peer[other]) == (step.peer[k], step.rank[k])
        ways[k] = [(int(step.rank[k]), int(step.peer[k]), int(step.rail[k]))]
    for k in sorted(ways):
        before = step.dep[step.dep_start[k] : step.dep_start[k + 1]].tolist()
        received = [one for one in before if step.kind[one] == RECV]
        if received:  # what is forwarded needs nothing but what has come
            (come,) = received
            sender = next(s for s in ways if step.match[s] == step.match[come])
            ways[sender] += ways.pop(k)
    hops = [(way[0][0], way[-1][1]) for way in ways.values()]
    wrap = {(5, 0), (0, 5)} if parts == 2 else set()
    assert {abs(a - b) for a, b in hops} == ({1, 5} if wrap else {1})
    for way in ways.values():
        rails = [rail for _, _, rail in way if rail >= 0]
        apart = way[0][0] // inside != way[-1][1] // inside
        assert rails == ([way[-1][1] % inside] if apart else [])
    assert len(ways) == 6 * 2 * (6 * parts - 1)


def test_orders_are_written_in_either_way() -> None:

    def split(order: Any) -> om.Parallelism:
        return om.Parallelism(dp=8, tp=2, ep=4, order=order)

    text = split("tp-cp-ep-dp-pp")
    assert text == split(("tp", "cp", "ep", "dp", "pp"))
    assert (coordinates(text) == coordinates(split(("tp", "cp", "dp", "pp")))).all()
    apart = split("dp-tp-cp-pp-ep")
    assert coordinates(apart)[:6, 0].tolist() == [0, 4, 0, 4, 1, 5]


def test_skewed_routing_costs_what_the_busiest_expert_needs() -> None:
    split = {"dp": 8, "tp": 1, "pp": 1, "ep": 8}
    even, skewed = (make(split, skew=s).step() for s in (1.0, 1.5))
    assert make(split, skew=(21, *[13] * 7)).step() == skewed
    exchanged = even.kind == ALL_TO_ALL
    ratio = skewed.size_bytes[~(even.kind == COMPUTE)] / even.size_bytes[~(even.kind == COMPUTE)]
    assert set(ratio[exchanged[~(even.kind == COMPUTE)]].tolist()) == {1.5}
    assert set(ratio[~exchanged[~(even.kind == COMPUTE)]].tolist()) == {1.0}
    longer = skewed.duration_s[even.kind == COMPUTE] / even.duration_s[even.kind == COMPUTE]
    assert {round(x, 9) for x in longer.tolist()} == {1.0, 1.5}


def test_shared_activations_are_as_many_bytes() -> None:
    change = {"dp": 1, "tp": 4, "pp": 1, "gpus_per_server": 4}
    plain, shared = (make(change, sequence_parallel=s).step() for s in (False, True))
    sent = [
        ring_bytes(step.kind, step.size_bytes, 4)[step.kind != COMPUTE].sum()
        for step in (plain, shared)
    ]
    assert sent[0] == pytest.approx(sent[1])
    kinds = {OPERATIONS[kind] for kind in np.unique(shared.kind)}
    assert kinds == {"compute", "reduce-scatter", "all-gather"}


def test_layers_of_stages_are_theirs() -> None:
    job = make(LAYOUTS[-1])
    step = job.step()
    passes = {int(r): int(((step.rank == r) & (step.kind == COMPUTE)).sum()) for r in range(8)}
    places = coordinates(job.parallelism)[:, 2]
    found = {int(stage): passes[rank] for rank, stage in enumerate(places.tolist())}
    assert found == {0: 2 * 2 * 1, 1: 2 * 2 * 3, 2: 2 * 2 * 3, 3: 2 * 2 * 1 + 4}
