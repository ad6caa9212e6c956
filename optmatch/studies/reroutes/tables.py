"""The studies of failures as tables: how many spares suffice, and what a failed chip disturbs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import OnEvent, Tick, ignore
from optmatch.problems.slices.shape import Shape
from optmatch.studies.outcome import Row, Study, mean_row
from optmatch.studies.reroutes.blast import BlastRadius, measure_blast
from optmatch.studies.reroutes.spares import cover_failures
from optmatch.studies.slices.arrivals import EQUAL_MIX, draw_arrivals
from optmatch.sweeps.streams import Submits, in_order

_SPLICES = ("chips", "unspliced", "circuits", "disturbed")
"""What is told of the repairs in each run."""

_REPAIRS = {"spliced": "spare takes over", "migrated": "slice moves", "racks": "rack is given up"}


def study_spares(
    fabric: RackFabric,
    *,
    most: int = 8,
    chip_failures_per_year: float = 0.09,
    server_failures_per_year: float = 0.03,
    repair_days: float = 7.0,
    executor: Submits | None = None,
) -> Study:
    """Tabulate how often 0, 1, ..., `most` spare chips or servers of a rack suffice.

    Rates are those of `optmatch.studies.reroutes.spares.cover_failures`; an `executor` counts, as
    for `optmatch.sweep`, or None for this process.
    """
    servers = fabric.chips_per_rack // fabric.chips_per_server
    numbers = [
        {"unit": unit, "spares": spares}
        for unit, count in (("chip", fabric.chips_per_rack), ("server", servers))
        for spares in range(min(most, count) + 1)
    ]
    rates: dict[str, Any] = {
        "chip_failures_per_year": chip_failures_per_year,
        "server_failures_per_year": server_failures_per_year,
        "repair_days": repair_days,
    }
    rows = list(in_order(partial(_cover, fabric, rates), numbers, executor))
    return Study("spares", {"cover": rows}, True)


def _cover(
    fabric: RackFabric, rates: dict[str, Any], number: dict[str, Any], on_event: OnEvent = ignore
) -> Row:
    return cover_failures(fabric, **number, **rates)._asdict()


def _measure(
    fabric: RackFabric,
    requests: int,
    mix: Mapping[Shape, float],
    seed: np.random.SeedSequence,
    on_event: OnEvent = ignore,
) -> BlastRadius:
    rng = np.random.default_rng(seed)
    return measure_blast(fabric, draw_arrivals(fabric, requests, rng, mix=mix))


def study_blast(
    fabric: RackFabric,
    *,
    requests: int = 200,
    mix: Mapping[Shape, float] = EQUAL_MIX,
    runs: int = 5,
    seed: int = 0,
    executor: Submits | None = None,
    on_event: OnEvent = ignore,
) -> Study:
    """Fill racks with random slices, and count what each failed chip disturbs.

    In each of the `runs` so many `requests` for slices ask for a place, shapes as often as `mix`
    says; run k draws from the k-th child of `seed`. An `executor` does the runs, as for
    `optmatch.sweep`, or None for this process. `on_event` hears a `Tick` for each run; an
    interrupt ends the study with what there is.
    """
    found: list[BlastRadius] = []
    complete = True
    try:
        on_event(Tick("blast radius", 0, runs))
        children = np.random.SeedSequence(seed).spawn(runs)
        for blast in in_order(partial(_measure, fabric, requests, mix), children, executor):
            found.append(blast)
            on_event(Tick("blast radius", len(found), runs))
    except KeyboardInterrupt:
        complete = False
    rows = []
    for name, most in (("spliced", "spliced_most"), ("migrated", "migrated_most"), ("racks", "")):
        chips = mean_row("chips", [getattr(blast, name) for blast in found])
        largest = max((getattr(blast, most or name) for blast in found), default=0)
        rows.append({"repair": _REPAIRS[name], **chips, "most": largest})
    repairs = [
        {"run": run, **{name: getattr(blast, name) for name in _SPLICES}}
        for run, blast in enumerate(found)
    ]
    tables = {"blast": rows, "repairs": repairs} if found else {"blast": []}
    return Study("blast-radius", tables, complete)
