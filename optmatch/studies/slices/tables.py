"""The study of slices as tables: rules of placement compared on the same requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import OnEvent, Tick, ignore, number
from optmatch.problems import SliceShape
from optmatch.problems.slices.shape import Shape, cut_shape, orient
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.outcome import Row, TableStudy, estimate, mean_row
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
    """Count how many slices of one shape a rule of placement fits into fragmented racks.

    A slice is a box of chips, on whole servers, that a job gets. All servers but a random part are
    taken first. Slices are then asked for, one after another, until one finds no place. A rule
    says which servers a slice may have:

    - ``"first-fit"``: only a block, a box of free servers next to each other that begins at
      multiples of its sides;
    - ``"optical"``: any free servers of one rack that circuits can join to such a box;
    - ``"optical-joined"``: the same across all racks, which an optical switch joins.

    Parameters
    ----------
    fabric
        The racks of servers.
    shape
        The chips of a slice along x, y and z.
    rule
        One of the three names above.
    rng
        Draws the servers that are free. For joined racks it also draws `SAMPLES` free servers for
        the figure `unusable`: only these are tried, as each takes a search, and their share is
        taken for the share of all.
    free
        The part of all servers that is free at first, from 0 to 1.

    Returns
    -------
    Placed
        ``slices``, how many were placed; ``possible``, how many would be if only the numbers of
        free servers counted, not where they are; ``unusable``, the part of the free servers that
        no place for a slice includes, before the first one is placed; and ``worst_load``, the
        circuits on the busiest edge in the end.
    """
    # The racks of this rule: joined ones for "optical-joined", else as they are.
    fabric = join_racks(fabric, rule)
    is_optical = rule in ("optical", JOINED)
    pod = Pod(fabric)
    n_free = round(number("free", free) * fabric.n_servers)
    pod.free[:] = False
    pod.free[rng.permutation(fabric.n_servers)[:n_free]] = True

    # A rack has room for as many slices as it has enough servers for; joined racks count as one.
    plans = [cut_shape(turned, fabric.server) for turned in orient(fabric, shape)]
    n_groups = 1 if fabric.joined else fabric.racks
    free_of_group = pod.free.reshape(n_groups, -1).sum(axis=1)
    n_possible = 0
    if plans:
        n_possible = int((free_of_group // plans[0].n_slots).sum())

    def places_scattered(rack: int, plans: list[SliceShape]) -> bool:
        """Tell whether scattered servers of a rack can hold the slice."""
        return scatters(pod, rack, plans)

    # A server is usable if some block of free servers that includes it holds the slice, or
    # if an optical rule finds scattered servers for it.
    places = places_scattered if is_optical else None
    n_usable, _ = count_usable(pod, plans, places, rng=rng, samples=SAMPLES)
    n_slices = 0
    while pod.allocate(shape, "optical" if is_optical else rule) is not None:
        n_slices += 1
    return Placed(
        rule=rule,
        shape=shape,
        slices=n_slices,
        possible=n_possible,
        unusable=1 - n_usable / n_free if n_free else 0.0,
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
) -> TableStudy:
    """Compare rules by which jobs get their servers in racks, by simulation.

    A slice is the box of chips, on whole servers, that a job gets for some time; its shape is its
    number of chips along x, y and z. A rule says which servers it gets, if any. Two questions are
    asked:

    1. Jobs come and go over time. How many of them does each rule reject?
    2. Random servers of the racks are taken. How many slices of one shape does each rule place?

    All rules get the same random numbers.

    Parameters
    ----------
    fabric
        The racks.
    requests
        How many jobs come in a run of the first question.
    load
        The part of all servers that these jobs ask for on average.
    mix
        How often each shape comes: by shape a relative number.
    trace
        Jobs to take instead, in one run; None draws them.
    rules
        The rules to compare: ``"first-fit"``, ``"optical"`` and ``"optical-joined"``.
    runs
        The number of runs, each with other random numbers.
    seed
        Run k draws from the k-th child of this seed.
    warm_up
        The part of the jobs, the first ones, that is not counted.
    free
        The part of the servers that is free in the second question.
    executor
        An executor of `concurrent.futures`, or the like, that computes the runs; None for this
        process.
    on_event
        Hears a `Tick` now and then; an interrupt ends the study with what there is.

    Returns
    -------
    TableStudy
        Four tables. ``rules`` and ``shapes`` answer the first question by rule, and by rule and
        shape; ``fragmented`` answers the second one; ``tenants`` has the bandwidth that a job of
        each shape gets.
    """
    outcomes: dict[str, list[Outcome]] = {rule: [] for rule in rules}
    placed: dict[tuple[str, Shape], list[Placed]] = {}
    shapes = sorted({arrival.shape for arrival in trace} if trace is not None else mix)

    def list_parts() -> Iterator[_Replay | _Fill]:
        """Yield the parts of each run, with the same random numbers for all rules."""
        draw_options = {"n": requests, "load": load, "mix": mix}
        for run, child in enumerate(np.random.SeedSequence(seed).spawn(runs)):
            arrivals_seed, pod_seed = child.spawn(2)
            is_first = run == 0
            if trace is None or is_first:  # a trace is replayed once
                for rule in rules:
                    yield _Replay(fabric, trace, draw_options, rule, warm_up, arrivals_seed)
            for shape in shapes:
                for rule in rules:
                    yield _Fill(fabric, run + 1, shape, rule, free, pod_seed)

    # Results come in the order of the parts: `Placed` answers the second question, all others the
    # first. An interrupted replay counts only if there is no other one of its rule.
    complete = False
    with suppress(KeyboardInterrupt):
        for part, result in in_order(_do_part, list_parts(), executor, on_event=on_event):
            if isinstance(result, Placed):
                placed.setdefault((part.rule, part.shape), []).append(result)
                continue
            if result.complete or not outcomes[part.rule]:
                outcomes[part.rule].append(result)
            if not result.complete:
                break
        else:
            complete = True
    return TableStudy(
        "slices",
        {
            "rules": _average_outcomes(outcomes),
            "shapes": _count_shapes(outcomes),
            "fragmented": _average_placed(placed),
            "tenants": [_tenant_row(shape) for shape in shapes],
        },
        complete,
    )


class _Replay(NamedTuple):
    """The requests of a run under one rule."""

    fabric: RackFabric
    trace: Sequence[Arrival] | None
    draw_options: dict[str, Any]
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


def _do_part(part: _Replay | _Fill, on_event: OnEvent = ignore) -> tuple[Any, Outcome | Placed]:
    """Do one part of a study; it may run in another process.

    Parameters
    ----------
    part
        The requests of a run under one rule, or a fragmented pod that one rule fills.
    on_event
        Hears a `Tick` now and then.

    Returns
    -------
    part
        As given, so that results can be told apart.
    result : Outcome or Placed
        The figures of the replay, or how many slices the pod took.
    """
    rng = np.random.default_rng(part.seed)
    if isinstance(part, _Fill):
        on_event(Tick(f"fragmented pod, run {part.run}, {part.rule}", 0))
        return part, fill_fragmented(part.fabric, part.shape, part.rule, rng, free=part.free)
    arrivals = part.trace
    if arrivals is None:
        draw = part.draw_options
        arrivals = draw_arrivals(part.fabric, draw["n"], rng, load=draw["load"], mix=draw["mix"])

    # Of the optical rules a rejected slice fits nowhere, scattered or not.
    probe = part.rule not in ("optical", JOINED)
    outcome = replay(
        part.fabric,
        arrivals,
        part.rule,
        probe=probe,
        warm_up=part.warm_up,
        on_event=on_event,
    )
    return part, outcome


def _average_outcomes(outcomes: Mapping[str, list[Outcome]]) -> list[Row]:
    """Average the figures of each rule over its runs, and compare them with first fit.

    Parameters
    ----------
    outcomes
        By rule, the outcome of each run; run k of all rules has the same requests.

    Returns
    -------
    list of Row
        One for each rule that has run: each of `FIGURES` as a mean with the half width of its
        interval; and, if first fit has run, by which part fragmentation and unusable servers are
        less than there.
    """
    rows = []
    for rule, outcomes_of_rule in outcomes.items():
        if outcomes_of_rule:
            row: Row = {"rule": rule, "runs": len(outcomes_of_rule)}
            for name in FIGURES:
                row |= mean_row(name, [getattr(outcome, name) for outcome in outcomes_of_rule])
            rows.append(row)

    # Run k of each rule has the same requests as run k of first fit.
    first_fit = outcomes.get("first-fit", [])
    if first_fit:
        for row in rows:
            for name in ("fragmentation", "unusable"):
                reductions = []
                for outcome, base in zip(outcomes[row["rule"]], first_fit, strict=False):
                    base_value = getattr(base, name)
                    reduction = 1 - getattr(outcome, name) / base_value if base_value else 0.0
                    reductions.append(reduction)
                row |= mean_row(f"{name}_reduction", reductions)
    return rows


def _count_shapes(outcomes: Mapping[str, list[Outcome]]) -> list[Row]:
    """Count requests and rejections over all runs.

    Parameters
    ----------
    outcomes
        By rule, the outcome of each run.

    Returns
    -------
    list of dict
        A row for each rule and shape: ``requests``, ``rejected``, and ``only_scattered``, those
        rejected slices that scattered servers of a rack could have held.
    """
    rows = []
    for rule, outcomes_of_rule in outcomes.items():
        requests: Counter[Shape] = Counter()
        rejected: Counter[Shape] = Counter()
        only_scattered: Counter[Shape] = Counter()
        for outcome in outcomes_of_rule:
            requests.update(outcome.requests)
            rejected.update(outcome.rejected)
            only_scattered.update(outcome.only_scattered)
        for shape in sorted(requests):
            row = {
                "rule": rule,
                "shape": name_shape(shape),
                "requests": requests[shape],
                "rejected": rejected[shape],
                "only_scattered": only_scattered[shape],
            }
            rows.append(row)
    return rows


def _average_placed(placed: Mapping[tuple[str, Shape], list[Placed]]) -> list[Row]:
    """Return a row for each rule and shape: means over the fragmented pods of all runs.

    Parameters
    ----------
    placed
        By rule and shape: what was placed in the pod of each run.

    Returns
    -------
    list of dict
        Numbers of slices, the share of unusable servers, and the largest load of an edge.
    """
    rows = []
    for (rule, shape), pods in placed.items():
        row = {
            "rule": rule,
            "shape": name_shape(shape),
            **mean_row("placed", [pod.slices for pod in pods]),
            "possible": estimate([pod.possible for pod in pods]).mean,
            **mean_row("unusable", [pod.unusable for pod in pods]),
            "worst_load": max(pod.worst_load for pod in pods),
        }
        rows.append(row)
    return rows


def _tenant_row(shape: Shape) -> Row:
    """Return the bandwidth of a chip of a slice as a row: on a fixed torus and with steered ports.

    Parameters
    ----------
    shape
        Chips along each axis.

    Returns
    -------
    dict
        The name of the shape, and the figures of `tenant` by name.
    """
    bandwidth = tenant(shape)
    return {
        "shape": name_shape(shape),
        "rings": bandwidth.rings,
        "fixed": bandwidth.fixed,
        "steered": bandwidth.steered,
        "gain": bandwidth.gain,
        "ratio": bandwidth.ratio,
        "least_ring_ports": bandwidth.level,
    }


def name_shape(shape: Shape) -> str:
    """Write a shape as 2x2x4."""
    return "x".join(map(str, shape))
