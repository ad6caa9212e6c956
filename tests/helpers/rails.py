"""Small rail jobs for tests."""

import csv
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import optmatch as om
from optmatch.problems.collectives.steps import list_sends
from optmatch.problems.rails.training.phases import Phase
from optmatch.problems.rails.training.step import (
    ALL_REDUCE,
    ALL_TO_ALL,
    COMPUTE,
    RECV,
    SEND,
    Group,
    Step,
)
from optmatch.problems.rails.training.times import find_rounds, list_rounds

PAIR = Group("pp.0", "pp", (0, 1), rail=0)
MODEL = om.TransformerModel(
    layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128, ffn_matrices=2
)


def message_step() -> Step:
    """Return a step of one computation, and a message of its result."""
    columns: dict[str, Any] = {
        "rank": [0, 0, 1],
        "kind": [COMPUTE, SEND, RECV],
        "group": [-1, 0, 0],
        "size_bytes": [0, 8, 8],
        "duration_s": [1, 0, 0],
        "peer": [-1, 1, 0],
        "match": [-1, 0, 0],
        "dep_start": [0, 0, 1, 1],
        "dep": [0],
    }
    return Step(groups=(PAIR,), **columns)


_PARTS = {"parallelism": om.Parallelism, "network": om.RailNetwork, "workload": om.Workload}


def make_job(**options: Any) -> om.RailJob:
    """Return a job by the fields of its three parts; each GPU is a server of its own."""
    parts = {
        part: cls(**{name: options.pop(name) for name in _names(cls) if name in options})
        for part, cls in _PARTS.items()
    }
    return om.RailJob(**parts, **options)


def change_job(job: om.RailJob, **options: Any) -> om.RailJob:
    """Return a job with some fields of its three parts changed."""
    parts = {
        part: replace(
            getattr(job, part),
            **{name: options.pop(name) for name in _names(cls) if name in options},
        )
        for part, cls in _PARTS.items()
    }
    return replace(job, **parts, **options)


def _names(cls: Any) -> list[str]:
    return [field.name for field in fields(cls)]


def small_job(dp: int = 2, tp: int = 2, pp: int = 2, **options: Any) -> om.RailJob:
    """Return a job whose servers hold the tensor-parallel ranks."""
    plain: dict[str, Any] = {
        "gpus_per_server": tp,
        "model": om.TransformerModel(
            layers=12, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128
        ),
        "batch": 4 * dp,
        "peak_flops_per_s": 1e9,
        "port_bytes_per_s": 1e8,
    }
    return make_job(dp=dp, tp=tp, pp=pp, **{**plain, **options})


@st.composite
def random_jobs(draw: Any) -> om.RailJob:
    """Draw a job of up to 32 ranks, of any kind of parallelism."""
    dp, tp, pp, cp = (
        draw(st.sampled_from(sizes)) for sizes in ((1, 2, 4), (1, 2), (1, 2, 3), (1, 2))
    )
    schedules = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", *["dualpipe"] * (pp == 2)]
    schedule = draw(st.sampled_from(schedules))
    parts = 2 if schedule == "interleaved" else 1
    micro_batches = pp * (2 if schedule == "dualpipe" else draw(st.sampled_from([1, 2])))
    ep = draw(st.sampled_from([e for e in (1, 2, 4) if dp % e == 0]))
    model = om.TransformerModel(
        layers=2 * pp * max(parts, 1 + (schedule == "zb-v")),
        hidden=64,
        heads=4,
        sequence=32,
        vocabulary=100,
        ffn=128,
        experts=4 if ep > 1 else 1,
    )
    return small_job(
        dp,
        tp,
        pp,
        cp=cp,
        ep=ep,
        schedule=schedule,
        virtual_stages=parts,
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        batch=dp * micro_batches,
        micro_batch=1,
        model=model,
        collectives={
            name: draw(st.sampled_from(["ring", "ring", "halving", "tree"]))
            for name in ("dp", "cp", "ep")
        },
        ports_per_gpu=draw(st.sampled_from([1, 2, 4])),
        switching=draw(st.sampled_from(["per-circuit", "all-stop"])),
        delay_s=draw(st.sampled_from([0.0, 1e-5, 1e-3, 0.1])),
        order=draw(st.permutations(["dp", "tp", "pp", "cp"])),
    )


def served_jobs() -> st.SearchStrategy[om.RailJob]:
    """Draw jobs whose phases can follow each other.

    With several parts of the model at a rank, and gradients between micro-batches, two stages may
    each wait in one phase for what the other sends in a later one.
    """
    return random_jobs().filter(
        lambda job: (
            job.parallelism.schedule not in ("interleaved", "zb-h1", "zb-v", "dualpipe")
            or job.parallelism.zero_stage + job.parallelism.ep + job.parallelism.cp == 2
        )
    )


RAILS = Path(__file__).resolve().parents[2] / "instances" / "rails"


def read_curves() -> dict[str, dict[tuple[str, float], float]]:
    """Read the published step times: by case, policy and delay, in seconds."""
    lines = (RAILS / "published-step-times.csv").read_text().splitlines()
    found: dict[str, dict[tuple[str, float], float]] = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        key = row["policy"], float(row["delay_ms"]) / 1e3
        found.setdefault(row["case"], {})[key] = float(row["step_ns"]) / 1e9
    return found


CURVES = read_curves()


def measured(case: str) -> om.RailJob:
    """Return the recorded pipeline of a published case: one rail, windows as measured."""
    job = om.load(RAILS / f"{case}-windows.json")
    assert isinstance(job, om.RailJob)
    return job


def list_circuits(job: om.RailJob, phase: Phase) -> set[tuple[int, int]]:
    """List who sends to whom in a phase: around rings, in rounds, to all others, or a message."""
    step, found = job.step(), set[tuple[int, int]]()
    for first, last in zip(phase.first.tolist(), phase.last.tolist(), strict=True):
        for k in range(first, last + 1):
            if step.rail[k] != phase.rail:
                continue
            group, kind, rank = step.groups[step.group[k]], int(step.kind[k]), int(step.rank[k])
            members, n = group.ranks, len(group.ranks)
            algorithm = job.collectives.get(group.dimension, "ring")
            rounds = list_rounds(algorithm, kind, n) if kind < SEND else ()
            if kind >= SEND:
                pair = rank, int(step.peer[k])
                found.add(pair if kind == SEND else pair[::-1])
            elif rounds:
                rows = [
                    pair for each in rounds for pair in list_sends(algorithm, n, each).tolist()
                ]
                found |= {(members[one], members[two]) for one, two in rows}
            elif kind == ALL_TO_ALL:
                found |= {(one, two) for one in members for two in members if one != two}
            elif n > 1:
                found |= {*zip(members, (*members[1:], members[0]), strict=True)}
    return found


def switched_phases(job: om.RailJob) -> list[bool]:
    """Walk through two steps and note the circuits that each phase lacks in the second."""
    found: dict[tuple[int, int, int], bool] = {}
    held: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for phase in [*job.phases(), *job.phases()]:
        wanted = list_circuits(job, phase)
        here = phase.rail, phase.stage
        found[*here, phase.position] = not wanted <= held.get(here, set())
        if found[*here, phase.position]:
            held[here] = wanted
    return [found[phase.rail, phase.stage, phase.position] for phase in job.phases()]


def fixed_point(job: om.RailJob, *, early: bool) -> float:
    """Return the step time by relaxation from zero: each time is the least that rules allow.

    Of policies, where each phase, and each round of a collective, is one matching.
    """
    step, phases, given_ = job.step(), job.phases(), job.events()
    lasts = given_.duration_s.copy()
    for own, rounds in find_rounds(step, job.collectives):
        turns = sum(one.distance != two.distance for one, two in pairwise(rounds))
        lasts[np.unique(given_.event_of[own])] += turns * job.network.delay_s
    inside, rides = [], (step.rail >= 0)[given_.part][given_.before]
    for phase in phases:
        spans = zip(phase.first, phase.last, strict=True)
        own = np.concatenate([np.arange(first, last + 1) for first, last in spans])
        inside.append(np.unique(given_.event_of[own[step.rail[own] == phase.rail]]))
    changed = switched_phases(job)
    start = np.zeros(len(given_.part))
    for _ in range(10_000):
        end = start + lasts
        ready, talked = np.zeros(len(start)), np.zeros(len(start))
        np.maximum.at(ready, given_.after, end[given_.before])
        while True:  # when the communication before has ended, through other work
            before = np.where(rides, end[given_.before], talked[given_.before])
            if (before <= talked[given_.after]).all():
                break
            np.maximum.at(talked, given_.after, before)
        fresh = ready.copy()
        idle = 0.0
        for phase, own, change in zip(phases, inside, changed, strict=True):
            asked = (talked if early else ready)[own].min()
            begin = max(asked, idle if phase.position else 0.0)
            done = begin + (job.network.delay_s if change else 0.0)
            fresh[own] = np.maximum(fresh[own], done)
            idle = float(end[own].max())
        if (fresh == start).all():
            return float(end.max())
        start = fresh
    raise AssertionError("no fixed point")


def chain_step(pattern: list[tuple[str, int]]) -> Step:
    """Return a step of two stages of two replicas; in each phase so many operations in a row."""
    groups = (
        Group("dp.0", "dp", (0, 1), rail=0),
        Group("dp.1", "dp", (2, 3), rail=0),
        Group("pp.0", "pp", (0, 2), rail=0),
        Group("pp.1", "pp", (1, 3), rail=0),
    )
    rows, deps, start = [], [], 0
    for rank in range(4):
        stage, place = divmod(rank, 2)
        number = 0
        for dimension, count in pattern:
            for _ in range(count):
                message = dimension == "pp"
                group = 2 + place if message else stage
                kind = (SEND if (stage + number) % 2 else RECV) if message else ALL_REDUCE
                peer = (rank + 2) % 4 if message else -1
                rows.append((rank, kind, group, 1e6, 0.0, peer, group * 1000 + number))
                deps.append([start + number - 1] if number else [])
                number += 1
        start += number
    names = ("rank", "kind", "group", "size_bytes", "duration_s", "peer", "match")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    lengths = [0]
    for row in deps:
        lengths.append(lengths[-1] + len(row))
    flat: Any = [op for row in deps for op in row]
    return Step(groups=groups, **columns, dep_start=lengths, dep=flat)
