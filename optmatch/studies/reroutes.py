"""Studies of failures: how many spares suffice, and the effect of a failed chip, by repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import InputError, OnEvent, Tick, ignore, integer, number
from optmatch.problems import Allocation, Reroute
from optmatch.problems.slices.shape import Shape
from optmatch.solvers.reroutes.repair import Reach, Recovery, repair
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.outcome import Row, Study, mean_row
from optmatch.studies.slices.arrivals import EQUAL_MIX, Arrival, draw_arrivals
from optmatch.sweeps.streams import Submits, in_order


class BlastRadius(NamedTuple):
    """Chips whose circuits change when one chip fails; means and largest over all chips in use."""

    chips: int
    """Chips in use, each of which fails once."""
    spliced: float
    """A spare takes over: chips, but for the two, that have a circuit which changes."""
    spliced_most: int
    migrated: float
    """The slice moves elsewhere: all its chips."""
    migrated_most: int
    racks: float
    """The rack is given up: all its chips in use."""
    circuits: float
    """Circuits that change where a spare takes over."""
    disturbed: float = 0.0
    """Circuits of other slices among those that are changed."""
    unspliced: int = 0
    """Chips that no spare was found to replace: their slices move, also above."""


class _Noticed(NamedTuple):
    """The effect of one failed chip."""

    chips: int
    circuits: int
    disturbed: int
    spliced: bool


def measure_blast(fabric: RackFabric, arrivals: list[Arrival]) -> BlastRadius:
    """Fill racks by the optical allocator, then let every chip in use fail, one at a time.

    Requests stay, and those that find no place are left out. The last server of each rack is kept
    back. It and all other idle chips of the rack are spares, and method ``greedy`` repairs each
    failure on the circuits and fibres that the slices have; interposers count as ideal. Joined
    racks raise `InputError`: a slice then has no rack to give up.
    """
    if fabric.joined:
        raise InputError("joined = True: blast radii are of racks by themselves", where="fabric")
    per_rack = fabric.n_servers // fabric.racks
    last = range(per_rack - 1, fabric.n_servers, per_rack) if per_rack > 1 else ()
    pod = Pod(fabric, reserved=tuple(last))
    placed: list[list[Allocation]] = [[] for _ in range(fabric.racks)]
    for arrival in arrivals:
        slice_ = pod.allocate(arrival.shape, "optical")
        if slice_ is not None:
            placed[int(fabric.server_coordinates[slice_.servers[0], 0])].append(slice_)
    noticed = list[_Noticed]()
    sizes = list[int]()
    racks = list[int]()
    one = replace(fabric, racks=1, interposer=None)
    for rack, slices in enumerate(placed):
        of_slices = [int(np.prod(slice_.shape)) for slice_ in slices]
        noticed += _fail_each(one, rack, slices)
        sizes += [size for size in of_slices for _ in range(size)]
        racks += [sum(of_slices)] * sum(of_slices)
    return BlastRadius(
        chips=len(noticed),
        spliced=_mean([found.chips for found in noticed]),
        spliced_most=max((found.chips for found in noticed), default=0),
        migrated=_mean(sizes),
        migrated_most=max(sizes, default=0),
        racks=_mean(racks),
        circuits=_mean([found.circuits for found in noticed if found.spliced]),
        disturbed=_mean([found.disturbed for found in noticed if found.spliced]),
        unspliced=sum(not found.spliced for found in noticed),
    )


def _fail_each(rack: RackFabric, number: int, slices: list[Allocation]) -> list[_Noticed]:
    """Let every chip of the slices of a rack fail, and repair it."""
    state = state_of_rack(rack, number, slices)
    routing = RoutingState(state)
    reach = Reach(routing, state.loss_units)
    noticed = []
    for slice_ in slices:
        size = int(np.prod(slice_.shape))
        chips = np.unique(slice_.circuits // rack.ports_per_chip) - number * rack.n_chips
        alone = size - len(chips)  # a slice of one chip has no circuit
        noticed += [_Noticed(0, 0, 0, spliced=True)] * alone
        for chip in chips.tolist():
            hit = tuple(np.flatnonzero((routing.ends == chip).any(axis=1)).tolist())
            plan = repair(routing, HitCircuits(hit, (chip,), state.spares, state.owners), reach)
            if not isinstance(plan, Recovery):
                noticed.append(_Noticed(size, 0, 0, spliced=False))
                continue
            touched = set(routing.ends[list(plan.changed)].ravel().tolist())
            others = len(touched - {chip, *plan.handover})
            noticed.append(_Noticed(others, len(plan.changed), plan.levels[0], spliced=True))
    return noticed


def state_of_rack(rack: RackFabric, number: int, slices: list[Allocation]) -> Reroute:
    """Return the slices of a rack as a running state of that rack alone."""
    circuits = list[list[int]]()
    routes = list[tuple[int, ...]]()
    owners: list[int] = []
    used: set[int] = set()
    for owner, slice_ in enumerate(slices):
        passed = [list[int]() for _ in slice_.circuits]
        for circuit, fibre in slice_.fibres.tolist():
            passed[circuit].append(fibre - number * rack.n_fibres)
        circuits += (slice_.circuits - number * rack.n_ports).tolist()
        routes += map(tuple, passed)
        owners += [owner] * len(passed)
        servers = slice_.servers - number * rack.n_servers
        used.update(np.flatnonzero(np.isin(rack.server_of_chip, servers)).tolist())
    spares = tuple(chip for chip in range(rack.n_chips) if chip not in used)
    return Reroute(
        rack,
        np.array(circuits, dtype=np.int32).reshape(-1, 2),
        np.array(owners, dtype=np.int32),
        spares,
        tuple(routes),
    )


def _mean(values: list[int]) -> float:
    return float(np.mean(values)) if values else 0.0


DAYS_PER_YEAR = 365.25


class SpareCover(NamedTuple):
    """How often a number of spares suffices."""

    spares: int
    unit: str
    """``"chip"`` or ``"server"``: what one spare replaces."""
    covered: float
    """Pr(F <= K): at any time no more is down than there are spares."""
    covered_failures: float
    """Pr(F <= K | F >= 1): of the times at which something is down."""
    conservative: float
    """1 - Pr(F >= K), as if K failures used up K spares and one more was needed."""
    mean_down: float
    """Mean number of units that are down."""


def cover_failures(
    fabric: RackFabric,
    spares: int,
    *,
    unit: str = "chip",
    chip_failures_per_year: float = 0.09,
    server_failures_per_year: float = 0.03,
    repair_days: float = 7.0,
) -> SpareCover:
    """Compute how often the spares of a rack cover all that has failed in it.

    Chips and servers fail independently of one another, at constant rates, and are repaired in
    parallel; so each is down with probability r t / (1 + r t), and the number of chips down in a
    server is a mixture of all and a binomial number. The distribution in the rack is their
    convolution, exact up to rounding. The unit of the rate is the whole rack, spares included.

    Parameters
    ----------
    spares
        How many units are kept aside. Spares fail like other chips, and those that are down count
        among F as well: a rack of n units and K spares runs n - K, as long as F <= K.
    unit
        ``"chip"``: a spare chip replaces any chip. ``"server"``: a spare server replaces a server
        of which anything has failed.
    server_failures_per_year
        The rate of a server as a whole: its chips share a risk, and are all down at once.
    """
    spares = integer("spares", spares, at_least=0)
    if unit not in ("chip", "server"):
        raise InputError(f"unit = {unit!r}: chip or server", where="unit")
    alone = _down(number("chip_failures_per_year", chip_failures_per_year), repair_days)
    whole = _down(number("server_failures_per_year", server_failures_per_year), repair_days)
    size = fabric.chips_per_server
    servers = fabric.chips_per_rack // size
    units = servers if unit == "server" else fabric.chips_per_rack
    if spares > units:
        raise InputError(f"spares = {spares}: a rack has {units} {unit}s", where="spares")
    one = distribution_of_server(size, alone, whole)
    if unit == "server":
        one = np.array([one[0], one[1:].sum()])
    down = np.ones(1)
    for _ in range(servers):
        down = np.convolve(down, one)
    covered = float(down[: spares + 1].sum())
    some = float(down[1:].sum())
    return SpareCover(
        spares=spares,
        unit=unit,
        covered=covered,
        covered_failures=float(down[1 : spares + 1].sum()) / some if some else 1.0,
        conservative=float(down[:spares].sum()),
        mean_down=float(down @ np.arange(len(down))),
    )


def distribution_of_server(size: int, alone: float, whole: float) -> NDArray[np.float64]:
    """Return the probabilities that 0, 1, ... chips of a server are down.

    A chip is down by itself with probability `alone`, all chips together with `whole`.
    """
    down = np.ones(1)
    for _ in range(size):
        down = np.convolve(down, [1 - alone, alone])
    down = down * (1 - whole)
    down[-1] += whole
    return down


def _down(failures_per_year: float, repair_days: float) -> float:
    """Return the part of the time that something is down."""
    expected = failures_per_year * number("repair_days", repair_days) / DAYS_PER_YEAR
    return expected / (1 + expected)


_SPLICES = ("chips", "unspliced", "circuits", "disturbed")
"""The figures of the repairs in each run."""

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

    Rates are those of `optmatch.studies.reroutes.cover_failures`; an `executor` counts, as
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
    """Fill racks with random slices, and count the circuits that each failed chip disturbs.

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
