"""Studies of failures: how many spares suffice, and the effect of a failed chip, by repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from optmatch.studies.outcome import Row, TableStudy, mean_row
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


class _FailureEffect(NamedTuple):
    """The effect of one failed chip.

    Parameters
    ----------
    chips
        Other chips whose circuits change.
    circuits
        Circuits that change.
    disturbed
        Circuits of other slices among them.
    spliced
        Whether a spare takes over; else the whole slice moves.
    """

    chips: int
    circuits: int
    disturbed: int
    spliced: bool


def measure_blast(fabric: RackFabric, arrivals: list[Arrival]) -> BlastRadius:
    """Fill racks by the optical allocator, then let every chip in use fail, one at a time.

    The last server of each rack is kept back. It and all other idle chips of the rack are spares.
    Method ``greedy`` repairs each failure on the circuits and fibres that the slices have;
    interposers count as ideal.

    Parameters
    ----------
    fabric
        Racks that are not joined.
    arrivals
        Slices that ask for a place, and stay. Those that find none are left out.

    Returns
    -------
    BlastRadius
        How many other chips a failure concerns, in the mean and at most: if a spare takes over
        (spliced), if the slice moves (migrated), or if the rack is given up.

    Raises
    ------
    InputError
        If the racks are joined: a slice then has no rack to give up.
    """
    if fabric.joined:
        raise InputError("joined = True: blast radii are of racks by themselves", where="fabric")
    slices_of_rack = _fill_racks(fabric, arrivals)

    # One entry for each chip in use: what a repair, a move of its slice, or giving up its rack
    # would change.
    effects: list[_FailureEffect] = []
    chips_of_slice: list[int] = []
    chips_of_rack: list[int] = []
    single_rack = replace(fabric, racks=1, interposer=None)
    for rack, slices in enumerate(slices_of_rack):
        effects += _fail_each_chip(single_rack, rack, slices)
        sizes = [int(np.prod(slice_.shape)) for slice_ in slices]
        for size in sizes:
            chips_of_slice += [size] * size
            chips_of_rack += [sum(sizes)] * size

    spliced_effects = [effect for effect in effects if effect.spliced]
    return BlastRadius(
        chips=len(effects),
        spliced=_mean([effect.chips for effect in effects]),
        spliced_most=max((effect.chips for effect in effects), default=0),
        migrated=_mean(chips_of_slice),
        migrated_most=max(chips_of_slice, default=0),
        racks=_mean(chips_of_rack),
        circuits=_mean([effect.circuits for effect in spliced_effects]),
        disturbed=_mean([effect.disturbed for effect in spliced_effects]),
        unspliced=len(effects) - len(spliced_effects),
    )


def _fill_racks(fabric: RackFabric, arrivals: list[Arrival]) -> list[list[Allocation]]:
    """Place slices by the optical allocator, and keep the last server of each rack free.

    Parameters
    ----------
    fabric
        The racks.
    arrivals
        Requests for slices, in order; those that do not fit are left out, and none leaves.

    Returns
    -------
    list of list of Allocation
        By rack: its slices. A rack of one server keeps none free.
    """
    servers_per_rack = fabric.n_servers // fabric.racks
    last_servers: Sequence[int] = ()
    if servers_per_rack > 1:
        last_servers = range(servers_per_rack - 1, fabric.n_servers, servers_per_rack)
    pod = Pod(fabric, reserved=tuple(last_servers))
    slices_of_rack: list[list[Allocation]] = [[] for _ in range(fabric.racks)]
    for arrival in arrivals:
        slice_ = pod.allocate(arrival.shape, "optical")
        if slice_ is not None:
            rack = int(fabric.server_coordinates[slice_.servers[0], 0])
            slices_of_rack[rack].append(slice_)
    return slices_of_rack


def _fail_each_chip(
    rack: RackFabric, number: int, slices: list[Allocation]
) -> list[_FailureEffect]:
    """Let each chip of a rack fail, one at a time, and count what its repair disturbs.

    A slice is the box of chips, with circuits between them, that a job gets. A failed chip is
    replaced by a spare chip, to which its circuits move; if that is not possible, the whole slice
    moves elsewhere.

    Parameters
    ----------
    rack
        One rack by itself.
    number
        Its number among all racks, by which the slices count their servers and ports.
    slices
        The slices of the rack.

    Returns
    -------
    list of _FailureEffect
        For each chip in use these values:

        - `chips`: other chips whose circuits change, without the failed one and its spare; all
          chips of the slice if it moves;
        - `circuits`: circuits that change; `disturbed`: those of other slices among them;
        - `spliced`: whether a spare takes over.
    """
    # The rack with its circuits and spare chips, before any failure.
    state = state_of_rack(rack, number, slices)
    routing = RoutingState(state)
    reach = Reach(routing, state.loss_units)
    effects = []
    for slice_ in slices:
        # A slice of one chip has no circuit, so no other chip takes notice of its failure.
        n_chips = int(np.prod(slice_.shape))
        chips_with_circuits = np.unique(slice_.circuits // rack.ports_per_chip)
        n_without_circuits = n_chips - len(chips_with_circuits)
        effects += [_FailureEffect(0, 0, 0, spliced=True)] * n_without_circuits

        # Each chip with circuits fails, by its number in the rack, and is repaired. The level that
        # is read from a repair, the first one, counts the circuits of other slices that it moves.
        for chip in (chips_with_circuits - number * rack.n_chips).tolist():
            is_hit = (routing.ends == chip).any(axis=1)
            hit_circuits = tuple(np.flatnonzero(is_hit).tolist())
            failure = HitCircuits(hit_circuits, (chip,), state.spares, state.owners)
            # Without a spare for it the slice moves, with all its chips.
            plan = repair(routing, failure, reach)
            if not isinstance(plan, Recovery):
                effects.append(_FailureEffect(n_chips, 0, 0, spliced=False))
                continue
            touched_chips = set(routing.ends[list(plan.changed)].ravel().tolist())
            other_chips = touched_chips - {chip, *plan.handover}
            n_disturbed = plan.levels[0]
            effect = _FailureEffect(len(other_chips), len(plan.changed), n_disturbed, spliced=True)
            effects.append(effect)
    return effects


def state_of_rack(rack: RackFabric, number: int, slices: list[Allocation]) -> Reroute:
    """Describe one rack and the jobs in it as a running state, in which parts may then fail.

    A slice is what a job gets: servers, and circuits between their chips, each over some fibres.

    Parameters
    ----------
    rack
        One rack by itself.
    number
        Its number among all racks, by which the slices count their servers, ports and fibres.
    slices
        The slices of the rack, which become the owners 0, 1, ... of its circuits.

    Returns
    -------
    Reroute
        The circuits (pairs of ports), their owners and routes (fibres), all numbered within the
        rack, and all chips without a slice as spares.
    """
    # Numbers of servers, ports and fibres become those within the rack.
    circuits: list[list[int]] = []
    routes: list[tuple[int, ...]] = []
    owners: list[int] = []
    used_chips: set[int] = set()
    for owner, slice_ in enumerate(slices):
        circuits += (slice_.circuits - number * rack.n_ports).tolist()
        owners += [owner] * len(slice_.circuits)

        # A route is the fibres of a circuit, one after the other; rows of `fibres` are (circuit
        # of the slice, fibre).
        fibres_of_circuit: list[list[int]] = [[] for _ in slice_.circuits]
        for circuit, fibre in slice_.fibres.tolist():
            fibres_of_circuit[circuit].append(fibre - number * rack.n_fibres)
        routes += [tuple(fibres) for fibres in fibres_of_circuit]

        # All chips of the servers of a slice are in use.
        servers = slice_.servers - number * rack.n_servers
        is_used = np.isin(rack.server_of_chip, servers)
        used_chips.update(np.flatnonzero(is_used).tolist())
    spares = tuple(chip for chip in range(rack.n_chips) if chip not in used_chips)
    return Reroute(
        rack,
        np.array(circuits, dtype=np.int32).reshape(-1, 2),
        np.array(owners, dtype=np.int32),
        spares,
        tuple(routes),
    )


def _mean(values: list[int]) -> float:
    """Return the mean of some numbers; 0 without any."""
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
    """Compute how often the spares of a rack suffice for all that has failed in it.

    Chips fail one by one, and servers as a whole, with all their chips. Failures are independent
    and have constant rates; all repairs go on at the same time. A part that fails r times a year,
    with repairs of t years in the mean, is down with probability r t / (1 + r t). From this follow
    the probabilities of the number of chips that are down in a server, and in the whole rack. They
    are exact up to rounding.

    As an example, a rack of 64 chips, 2 of them spares, runs 62 chips as long as 2 at most are
    down, spares included.

    Parameters
    ----------
    fabric
        The racks, of which one counts: how many chips it has, and how many a server has.
    spares
        How many units (chips or servers) are kept aside. They fail like all others.
    unit
        ``"chip"``: a spare chip replaces any chip. ``"server"``: a spare server replaces a server
        of which anything has failed.
    chip_failures_per_year
        The rate r of one chip by itself.
    server_failures_per_year
        The rate of a server as a whole: its chips share a risk, and are all down at once.
    repair_days
        The mean time t of a repair.

    Returns
    -------
    SpareCover
        With F for the number of units that are down, and K for `spares`:

        - `covered`: the probability that F <= K at any time;
        - `covered_failures`: the same for the times at which anything is down;
        - `conservative`: the probability that F < K;
        - `mean_down`: the mean of F.
    """
    spares = integer("spares", spares, at_least=0)
    if unit not in ("chip", "server"):
        raise InputError(f"unit = {unit!r}: chip or server", where="unit")
    chip_rate = number("chip_failures_per_year", chip_failures_per_year)
    server_rate = number("server_failures_per_year", server_failures_per_year)
    n_servers = fabric.chips_per_rack // fabric.chips_per_server
    n_units = n_servers if unit == "server" else fabric.chips_per_rack
    if spares > n_units:
        raise InputError(f"spares = {spares}: a rack has {n_units} {unit}s", where="spares")

    # of_server[k] is the probability that k units of one server are down: k chips or, where
    # servers are units, no (0) or the only one (1), which is down if any chip is.
    of_server = distribution_of_server(
        fabric.chips_per_server,
        _probability_of_down(chip_rate, repair_days),
        _probability_of_down(server_rate, repair_days),
    )
    if unit == "server":
        of_server = np.array([of_server[0], of_server[1:].sum()])

    # In the rack it is that of a sum of independent servers: probability[F] for F units down.
    probability = np.ones(1)
    for _ in range(n_servers):
        probability = np.convolve(probability, of_server)
    any_down = float(probability[1:].sum())
    covered_down = float(probability[1 : spares + 1].sum())
    return SpareCover(
        spares=spares,
        unit=unit,
        covered=float(probability[: spares + 1].sum()),
        covered_failures=covered_down / any_down if any_down else 1.0,
        conservative=float(probability[:spares].sum()),
        mean_down=float(probability @ np.arange(len(probability))),
    )


def distribution_of_server(
    n_chips: int, p_chip_down: float, p_server_down: float
) -> NDArray[np.float64]:
    """Return the probabilities that 0, 1, ... chips of a server are down.

    A mixture of the binomial distribution and of all chips at once.

    Parameters
    ----------
    n_chips
        The chips of the server.
    p_chip_down
        The probability that a chip is down by itself.
    p_server_down
        The probability that the server is down with all its chips.

    Returns
    -------
    array, shape (n_chips + 1,)
        The probability of each number of chips that are down; the sum is 1.
    """
    # The sum of independent chips, each up (0) or down (1). If the server is down as a whole, all
    # chips are.
    probability = np.ones(1)
    for _ in range(n_chips):
        probability = np.convolve(probability, [1 - p_chip_down, p_chip_down])
    probability = probability * (1 - p_server_down)
    probability[-1] += p_server_down
    return probability


def _probability_of_down(failures_per_year: float, repair_days: float) -> float:
    """Return the part of the time that something is down, r t / (1 + r t)."""
    years_down_per_year_up = failures_per_year * number("repair_days", repair_days) / DAYS_PER_YEAR
    return years_down_per_year_up / (1 + years_down_per_year_up)


_REPAIR_FIGURES = ("chips", "unspliced", "circuits", "disturbed")
"""The figures of the repairs in each run."""


def study_spares(
    fabric: RackFabric,
    *,
    most: int = 8,
    chip_failures_per_year: float = 0.09,
    server_failures_per_year: float = 0.03,
    repair_days: float = 7.0,
    executor: Submits | None = None,
) -> TableStudy:
    """Tabulate how often 0, 1, ..., `most` spare chips or servers of a rack suffice.

    A spare replaces a chip, or a server, that is down. Spares suffice as long as no more is down
    than there are spares, which fail like all others.

    Parameters
    ----------
    fabric
        The racks, of which one counts.
    most
        The largest number of spares.
    chip_failures_per_year, server_failures_per_year
        The rates of a chip by itself, and of a server with all its chips.
    repair_days
        The mean time of a repair.
    executor
        An executor of `concurrent.futures`, or the like, that computes the rows; None for this
        process.

    Returns
    -------
    TableStudy
        The table ``cover``: a row for each unit (chip, server) and number of spares, with the
        probability that they suffice, and the other figures of
        `optmatch.studies.reroutes.cover_failures`.
    """
    # A rack has no more spares than units.
    n_servers = fabric.chips_per_rack // fabric.chips_per_server
    cases = []
    for unit, n_units in (("chip", fabric.chips_per_rack), ("server", n_servers)):
        for spares in range(min(most, n_units) + 1):
            cases.append({"unit": unit, "spares": spares})
    rates: dict[str, Any] = {
        "chip_failures_per_year": chip_failures_per_year,
        "server_failures_per_year": server_failures_per_year,
        "repair_days": repair_days,
    }
    rows = list(in_order(partial(_cover_row, fabric, rates), cases, executor))
    return TableStudy("spares", {"cover": rows}, True)


def _cover_row(
    fabric: RackFabric, rates: dict[str, Any], case: dict[str, Any], on_event: OnEvent = ignore
) -> Row:
    """Return the row of a unit and a number of spares, wherever this runs."""
    return cover_failures(fabric, **case, **rates)._asdict()


def _measure_run(
    fabric: RackFabric,
    requests: int,
    mix: Mapping[Shape, float],
    seed: np.random.SeedSequence,
    on_event: OnEvent = ignore,
) -> BlastRadius:
    """Draw the slices of one run and measure what failures hit; also in a worker process.

    Parameters
    ----------
    fabric
        The racks.
    requests
        The number of slices that are asked for.
    mix
        How often each shape is asked for, in any unit.
    seed
        The seed of the numbers of this run.
    on_event
        Not used; calls of a sweep have it.

    Returns
    -------
    BlastRadius
        How many other chips notice the failure of one, in the mean and at most.
    """
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
) -> TableStudy:
    """Fill racks with random slices, and count how many chips notice that one chip fails.

    A slice is the box of chips, with circuits between them, that a job gets. In each run, racks
    are filled with random slices, and then each chip in use fails once. There are three ways to
    repair that: a spare chip takes over, the slice moves elsewhere, or the whole rack is given up.
    A chip notices a failure if its circuits change.

    Parameters
    ----------
    fabric
        Racks that are not joined by circuits.
    requests
        How many slices ask for a place in each run.
    mix
        How often each shape comes: by its numbers of chips along x, y and z a relative number.
    runs, seed
        The number of runs; run k draws from the k-th child of the seed.
    executor
        An executor of `concurrent.futures`, or the like, that computes the runs; None for this
        process.
    on_event
        Hears a `Tick` for each run; an interrupt ends the study with what there is.

    Returns
    -------
    TableStudy
        Two tables. ``blast`` has a row for each way to repair: the chips that notice a failure, in
        the mean over runs and at most. ``repairs`` has a row for each run, with figures of the
        spares that take over, such as the circuits that change.
    """
    # Each run draws from numbers of its own, so that it may be computed anywhere. An interrupt
    # keeps the runs that are done.
    radii: list[BlastRadius] = []
    complete = True
    try:
        on_event(Tick("blast radius", 0, runs))
        children = np.random.SeedSequence(seed).spawn(runs)
        for radius in in_order(partial(_measure_run, fabric, requests, mix), children, executor):
            radii.append(radius)
            on_event(Tick("blast radius", len(radii), runs))
    except KeyboardInterrupt:
        complete = False
    if not radii:
        return TableStudy("blast-radius", {"blast": []}, complete)

    # A row of figures for each run, and one for each kind of repair: how many chips notice it.
    repairs = []
    for run, radius in enumerate(radii):
        figures = {name: getattr(radius, name) for name in _REPAIR_FIGURES}
        repairs.append({"run": run, **figures})
    rows = [
        {
            "repair": "spare takes over",
            **mean_row("chips", [radius.spliced for radius in radii]),
            "most": max(radius.spliced_most for radius in radii),
        },
        {
            "repair": "slice moves",
            **mean_row("chips", [radius.migrated for radius in radii]),
            "most": max(radius.migrated_most for radius in radii),
        },
        {
            "repair": "rack is given up",
            **mean_row("chips", [radius.racks for radius in radii]),
            "most": max(radius.racks for radius in radii),
        },
    ]
    return TableStudy("blast-radius", {"blast": rows, "repairs": repairs}, complete)
