"""The studies of failures as tables: how many spares suffice, and what a failed chip disturbs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import OnEvent, Tick, ignore
from optmatch.problems.slices.shape import Shape
from optmatch.studies.outcome import Study, mean_row
from optmatch.studies.reroutes.blast import BlastRadius, measure_blast
from optmatch.studies.reroutes.spares import cover_failures
from optmatch.studies.slices.arrivals import EQUAL_MIX, draw_arrivals

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
) -> Study:
    """Tabulate how often 0, 1, ... spare chips or servers of a rack suffice.

    Parameters
    ----------
    fabric
        The racks; one is looked at.
    most
        The largest number of spares.
    chip_failures_per_year, server_failures_per_year, repair_days
        See `optmatch.studies.reroutes.spares.cover_failures`.
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
        chips = mean_row("chips", [getattr(blast, name) for blast in found])
        largest = max((getattr(blast, most or name) for blast in found), default=0)
        rows.append({"repair": _REPAIRS[name], **chips, "most": largest})
    repairs = [
        {"run": run, **{name: getattr(blast, name) for name in _SPLICES}}
        for run, blast in enumerate(found)
    ]
    tables = {"blast": rows, "repairs": repairs} if found else {"blast": []}
    return Study("blast-radius", tables, complete)
