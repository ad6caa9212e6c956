"""The study of slices as tables: rules of placement compared on the same requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import OnEvent, Tick, ignore, number
from optmatch.problems.slices.shape import Shape, cut_shape, orient
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.outcome import Row, Study, estimate, mean_row
from optmatch.studies.slices.arrivals import EQUAL_MIX, Arrival, draw_arrivals, tenant
from optmatch.studies.slices.replay import (
    JOINED,
    RULES,
    Outcome,
    count_usable,
    join_racks,
    replay,
    scatters,
)
from optmatch.sweeps.streams import Submits, in_order

SAMPLES = 32
"""The number of servers outside of every block that are tried in joined racks."""


class Placed(NamedTuple):
    """Requests of one shape on the same fragmented pod, until no more is placed."""

    rule: str
    shape: Shape
    slices: int
    """The number of slices that find a place, one after another."""
    possible: int
    """The number of slices for which the free servers of each rack, or of all, suffice."""
    unusable: float
    """The part of the free servers where the slice cannot lie, before the first placement."""
    worst_load: int
    """Circuits on the busiest edge at the end."""


def fill_fragmented(
    fabric: RackFabric, shape: Shape, rule: str, rng: np.random.Generator, *, free: float = 0.5
) -> Placed:
    """Fill a pod with slices of one server, let some leave at random, then ask for larger ones.

    `rng` draws the slices that leave, until the part `free` of the servers is free. Then slices of
    `shape` are asked for, under a `rule` of `optmatch.studies.slices.replay`.
    """
    fabric = join_racks(fabric, rule)
    optical = rule in ("optical", JOINED)
    pod = Pod(fabric)
    count = round(number("free", free) * fabric.n_servers)
    pod.free[:] = False
    pod.free[rng.permutation(fabric.n_servers)[:count]] = True
    plans = [cut_shape(turned, fabric.server) for turned in orient(fabric, shape)]
    by_rack = pod.free.reshape(1 if fabric.joined else fabric.racks, -1).sum(axis=1)
    possible = int((by_rack // plans[0].n_slots).sum()) if plans else 0
    usable, _ = count_usable(
        pod,
        plans,
        (lambda rack, p: scatters(pod, rack, p)) if optical else None,
        rng=rng,
        samples=SAMPLES,
    )
    slices = 0
    while pod.allocate(shape, "optical" if optical else rule) is not None:
        slices += 1
    return Placed(
        rule=rule,
        shape=shape,
        slices=slices,
        possible=possible,
        unusable=1 - usable / count if count else 0.0,
        worst_load=int(pod.loads.max(initial=0)),
    )


FIGURES = (
    *("rejected_part", "fragmentation", "unusable", "utilisation"),
    *("bandwidth", "hops", "spanning", "racks"),
)
"""The figures that are averaged over the runs of the slices study."""


def study_slices(
    fabric: RackFabric,
    *,
    requests: int = 2000,
    load: float = 0.9,
    mix: Mapping[Shape, float] = EQUAL_MIX,
    trace: Sequence[Arrival] | None = None,
    rules: Sequence[str] = RULES,
    runs: int = 5,
    seed: int = 0,
    warm_up: float = 0.25,
    free: float = 0.5,
    executor: Submits | None = None,
    on_event: OnEvent = ignore,
) -> Study:
    """Let the same requests come to racks under several rules.

    Returns tables ``rules``, ``shapes``, ``fragmented`` and ``tenants``.

    Parameters
    ----------
    requests, load, mix
        Of the synthetic process; see `optmatch.studies.slices.arrivals.draw_arrivals`.
    trace
        Requests to take instead, one run.
    seed
        Run k draws from the k-th child of this seed.
    warm_up
        Part of the requests that is not counted.
    free
        Part of the servers that is free in the pod of the second question: what rules make of a
        pod where slices of one server have left at random.
    executor
        The executor of the runs, as for `optmatch.sweep`; None for this process.
    on_event
        Hears a `Tick` now and then; an interrupt ends the study with what there is.
    """
    outcomes: dict[str, list[Outcome]] = {rule: [] for rule in rules}
    packed: dict[tuple[str, Shape], list[Placed]] = {}
    shapes = sorted({arrival.shape for arrival in trace} if trace is not None else mix)
    complete = False

    def parts() -> Iterator[_Replay | _Fill]:
        """Yield the rows of each run; a trace is replayed once."""
        drawn = {"n": requests, "load": load, "mix": mix}
        for run, child in enumerate(np.random.SeedSequence(seed).spawn(runs)):
            draws, leaves = child.spawn(2)
            if trace is None or not run:
                for rule in rules:
                    yield _Replay(fabric, trace, drawn, rule, warm_up, draws)
            for shape in shapes:
                for rule in rules:
                    yield _Fill(fabric, run + 1, shape, rule, free, leaves)

    with suppress(KeyboardInterrupt):
        for part, found in in_order(_do, parts(), executor, on_event=on_event):
            if isinstance(found, Placed):
                packed.setdefault((part.rule, part.shape), []).append(found)
                continue
            if found.complete or not outcomes[part.rule]:
                outcomes[part.rule].append(found)
            if not found.complete:
                break
        else:
            complete = True
    return Study(
        "slices",
        {
            "rules": _average_outcomes(outcomes),
            "shapes": _count_shapes(outcomes),
            "fragmented": _average_placed(packed),
            "tenants": [_tenant_row(shape) for shape in shapes],
        },
        complete,
    )


class _Replay(NamedTuple):
    """The requests of a run under one rule."""

    fabric: RackFabric
    trace: Sequence[Arrival] | None
    drawn: dict[str, Any]
    rule: str
    warm_up: float
    seed: np.random.SeedSequence


class _Fill(NamedTuple):
    """The fragmented pod of a run, filled with slices of one shape by one rule."""

    fabric: RackFabric
    run: int
    shape: Shape
    rule: str
    free: float
    seed: np.random.SeedSequence


def _do(part: _Replay | _Fill, on_event: OnEvent = ignore) -> tuple[Any, Outcome | Placed]:
    """Do one part of a study, wherever this runs."""
    rng = np.random.default_rng(part.seed)
    if isinstance(part, _Fill):
        on_event(Tick(f"fragmented pod, run {part.run}, {part.rule}", 0))
        return part, fill_fragmented(part.fabric, part.shape, part.rule, rng, free=part.free)
    arrivals = part.trace
    if arrivals is None:
        given = part.drawn
        arrivals = draw_arrivals(
            part.fabric, given["n"], rng, load=given["load"], mix=given["mix"]
        )
    probe = part.rule not in ("optical", JOINED)
    options: dict[str, Any] = {"warm_up": part.warm_up, "on_event": on_event}
    return part, replay(part.fabric, arrivals, part.rule, probe=probe, **options)


def _average_outcomes(outcomes: Mapping[str, list[Outcome]]) -> list[Row]:
    rows = []
    for rule, found in outcomes.items():
        if not found:
            continue
        row: Row = {"rule": rule, "runs": len(found)}
        for name in FIGURES:
            row |= mean_row(name, [getattr(outcome, name) for outcome in found])
        rows.append(row)
    first = outcomes.get("first-fit", [])
    for row in rows if first else ():
        for name in ("fragmentation", "unusable"):
            pairs = zip(outcomes[row["rule"]], first, strict=False)  # the same requests
            parts = [(getattr(own, name), getattr(base, name)) for own, base in pairs]
            lower = [1 - own / base if base else 0.0 for own, base in parts]
            row |= mean_row(f"{name}_reduction", lower)
    return rows


def _count_shapes(outcomes: Mapping[str, list[Outcome]]) -> list[Row]:
    return [
        {
            "rule": rule,
            "shape": name_shape(shape),
            "requests": sum(outcome.requests.get(shape, 0) for outcome in found),
            "rejected": sum(outcome.rejected.get(shape, 0) for outcome in found),
            "only_scattered": sum(outcome.only_scattered.get(shape, 0) for outcome in found),
        }
        for rule, found in outcomes.items()
        for shape in sorted({shape for outcome in found for shape in outcome.requests})
    ]


def _average_placed(packed: Mapping[tuple[str, Shape], list[Placed]]) -> list[Row]:
    return [
        {
            "rule": rule,
            "shape": name_shape(shape),
            **mean_row("placed", [p.slices for p in found]),
            "possible": estimate([p.possible for p in found]).mean,
            **mean_row("unusable", [p.unusable for p in found]),
            "worst_load": max(p.worst_load for p in found),
        }
        for (rule, shape), found in packed.items()
    ]


def _tenant_row(shape: Shape) -> Row:
    found = tenant(shape)
    names = ("rings", "fixed", "steered", "gain", "ratio")
    figures = {name: getattr(found, name) for name in names}
    return {"shape": name_shape(shape), **figures, "least_ring_ports": found.level}


def name_shape(shape: Shape) -> str:
    """Write a shape as 2x2x4."""
    return "x".join(map(str, shape))
