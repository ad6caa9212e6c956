"""The studies as tables: rows of figures by name, with confidence intervals over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import OnEvent, Tick, ignore
from optmatch.problems.slices.shape import Shape
from optmatch.studies.intervals import estimate
from optmatch.studies.reroutes.blast import BlastRadius, measure_blast
from optmatch.studies.reroutes.spares import cover_failures
from optmatch.studies.slices.arrivals import EQUAL_MIX, Arrival, draw_arrivals
from optmatch.studies.slices.fragmented import Placed, fill_fragmented
from optmatch.studies.slices.replay import JOINED, RULES, Outcome, replay
from optmatch.studies.slices.tenants import compare_tenants

Row = dict[str, Any]

FIGURES = (
    "rejected_part",
    "fragmentation",
    "unusable",
    "utilisation",
    "bandwidth",
    "hops",
    "spanning",
    "racks",
)
"""What is averaged over the runs of the slices study."""


class Study(NamedTuple):
    """The outcome of a study."""

    name: str
    tables: dict[str, list[Row]]
    complete: bool
    """False if it was interrupted: the tables are of the runs before."""


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
    on_event: OnEvent = ignore,
) -> Study:
    """Let the same requests come to racks under several rules.

    Parameters
    ----------
    fabric
        The racks.
    requests, load, mix
        Of the synthetic process; see `optmatch.studies.draw_arrivals`.
    trace
        Requests to take instead, one run.
    rules
        See `optmatch.studies.slices.replay`.
    runs
        How many times, with independent requests.
    seed
        Run k draws from the k-th child of this seed.
    warm_up
        Part of the requests that is not counted.
    free
        Part of the servers that is free in the pod of the second question: what rules make of a
        pod where slices of one server have left at random.
    on_event
        Hears a `Tick` now and then; an interrupt ends the study with what there is.

    Returns
    -------
    Study
        Tables ``rules``, ``shapes``, ``fragmented`` and ``tenants``.
    """
    outcomes: dict[str, list[Outcome]] = {rule: [] for rule in rules}
    packed: dict[tuple[str, Shape], list[Placed]] = {}
    shapes = sorted({arrival.shape for arrival in trace} if trace is not None else mix)
    complete = True
    try:
        for number, child in enumerate(np.random.SeedSequence(seed).spawn(runs)):
            draws, leaves = child.spawn(2)
            arrivals = trace
            if arrivals is None:
                rng = np.random.default_rng(draws)
                arrivals = draw_arrivals(fabric, requests, rng, load=load, mix=mix)
            if trace is None or not number:
                for rule in rules:
                    found = replay(
                        fabric,
                        arrivals,
                        rule,
                        probe=rule not in ("optical", JOINED),
                        warm_up=warm_up,
                        on_event=on_event,
                    )
                    if found.complete or not outcomes[rule]:
                        outcomes[rule].append(found)
                    if not found.complete:
                        raise KeyboardInterrupt
            for shape in shapes:
                for rule in rules:
                    on_event(Tick(f"fragmented pod, run {number + 1}, {rule}", 0))
                    drawn = np.random.default_rng(leaves)
                    placed = fill_fragmented(fabric, shape, rule, drawn, free=free)
                    packed.setdefault((rule, shape), []).append(placed)
    except KeyboardInterrupt:
        complete = False
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


def _average_outcomes(outcomes: Mapping[str, list[Outcome]]) -> list[Row]:
    rows = []
    for rule, found in outcomes.items():
        if not found:
            continue
        row: Row = {"rule": rule, "runs": len(found)}
        for name in FIGURES:
            mean = estimate([getattr(outcome, name) for outcome in found])
            row |= {name: mean.mean, f"{name}_half_width": mean.half_width}
        rows.append(row)
    first = outcomes.get("first-fit", [])
    for row in rows if first else ():
        for name in ("fragmentation", "unusable"):
            pairs = zip(outcomes[row["rule"]], first, strict=False)  # the same requests
            parts = [(getattr(own, name), getattr(base, name)) for own, base in pairs]
            lower = estimate([1 - own / base if base else 0.0 for own, base in parts])
            row |= {
                f"{name}_reduction": lower.mean,
                f"{name}_reduction_half_width": lower.half_width,
            }
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
    rows = []
    for (rule, shape), found in packed.items():
        placed, unusable = (
            estimate([getattr(p, name) for p in found]) for name in ("slices", "unusable")
        )
        rows.append(
            {
                "rule": rule,
                "shape": name_shape(shape),
                "placed": placed.mean,
                "placed_half_width": placed.half_width,
                "possible": estimate([p.possible for p in found]).mean,
                "unusable": unusable.mean,
                "unusable_half_width": unusable.half_width,
                "worst_load": max(p.worst_load for p in found),
            }
        )
    return rows


def _tenant_row(shape: Shape) -> Row:
    (found,) = compare_tenants([shape])
    return {
        "shape": name_shape(shape),
        "rings": found.rings,
        "fixed": found.fixed,
        "steered": found.steered,
        "gain": found.gain,
        "ratio": found.ratio,
        "least_ring_ports": found.level,
    }


def study_spares(
    fabric: RackFabric,
    *,
    most: int = 8,
    chip_failures_per_year: float = 0.09,
    server_failures_per_year: float = 0.03,
    repair_days: float = 7.0,
) -> Study:
    """Tabulate how often 0, 1, ... spare chips or servers of a rack suffice.

    Parameters
    ----------
    fabric
        The racks; one is looked at.
    most
        The largest number of spares.
    chip_failures_per_year, server_failures_per_year, repair_days
        See `optmatch.studies.cover_failures`.
    """
    servers = fabric.chips_per_rack // fabric.chips_per_server
    rows = [
        cover_failures(
            fabric,
            spares,
            unit=unit,
            chip_failures_per_year=chip_failures_per_year,
            server_failures_per_year=server_failures_per_year,
            repair_days=repair_days,
        )._asdict()
        for unit, count in (("chip", fabric.chips_per_rack), ("server", servers))
        for spares in range(min(most, count) + 1)
    ]
    return Study("spares", {"cover": rows}, True)


def study_blast(
    fabric: RackFabric,
    *,
    requests: int = 200,
    mix: Mapping[Shape, float] = EQUAL_MIX,
    runs: int = 5,
    seed: int = 0,
    on_event: OnEvent = ignore,
) -> Study:
    """Fill racks with random slices, and count what each failed chip disturbs.

    Parameters
    ----------
    fabric
        The racks.
    requests
        How many slices ask for a place.
    mix
        How often each shape comes.
    runs
        How many times, with independent requests.
    seed
        Run k draws from the k-th child of this seed.
    on_event
        Hears a `Tick` for each run; an interrupt ends the study with what there is.
    """
    found: list[BlastRadius] = []
    complete = True
    try:
        for number, child in enumerate(np.random.SeedSequence(seed).spawn(runs)):
            on_event(Tick("blast radius", number, runs))
            rng = np.random.default_rng(child)
            found.append(measure_blast(fabric, draw_arrivals(fabric, requests, rng, mix=mix)))
    except KeyboardInterrupt:
        complete = False
    rows = []
    for name, most in (("spliced", "spliced_most"), ("migrated", "migrated_most"), ("racks", "")):
        mean = estimate([getattr(blast, name) for blast in found])
        row: Row = {
            "repair": _REPAIRS[name],
            "chips": mean.mean,
            "chips_half_width": mean.half_width,
        }
        row["most"] = max((getattr(blast, most or name) for blast in found), default=0)
        rows.append(row)
    repairs = [
        {"run": run, **{name: getattr(blast, name) for name in _SPLICES}}
        for run, blast in enumerate(found)
    ]
    tables = {"blast": rows, "repairs": repairs} if found else {"blast": []}
    return Study("blast-radius", tables, complete)


_SPLICES = ("chips", "unspliced", "circuits", "disturbed")
"""What is told of the repairs in each run."""

_REPAIRS = {
    "spliced": "spare takes over",
    "migrated": "slice moves",
    "racks": "rack is given up",
}


def name_shape(shape: Shape) -> str:
    """Write a shape as 2x2x4."""
    return "x".join(map(str, shape))
