"""The answer to a rail job: the state of every switch over time, and the ports of all sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    CROSS,
    FREE,
    IDLE,
    Amount,
    Axes,
    Count,
    Given,
    GivenOrNone,
    Index,
    InputError,
    Range,
    Value,
    check_fields,
    given,
)
from optmatch.model.numbers import (
    check_below,
    check_length,
    check_seconds,
    refuse_entries,
    shorten_numbers,
)
from optmatch.model.schedule import check_matchings
from optmatch.problems.rails.training.arrays import copy_ranges
from optmatch.problems.rails.training.network import MOST_PORTS
from optmatch.problems.rails.training.step import SCALE_UP, Step

MANY_OPERATIONS = 131_072
"""Files of plans with so many operations store those of ranks that do the same once: spelled out,
a plan of 16,384 GPUs of Mixtral-8x22B takes 772 MB, three times what a file may have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailTimeline(Value):
    """The states of the switches of some rails in one step; the step repeats.

    The GPUs of a rail are numbered in the order of their ranks. Port p of GPU g is port
    ``g * ports_per_gpu + p`` of the switch, to transmit and to receive.

    Parameters
    ----------
    rails
        The rails that behave so, ascending: they differ in nothing but the names of their ranks.
    matchings
        ``matchings[state, transmit port] = receive port``, -1 where idle; int32, shape (states,
        ports). The first is there when the step begins, the last when it ends: they are the same.
    asked_s
        ``asked_s[state]``: when the state is asked for, in seconds from the beginning of the step;
        0 of the first.
    starts_s
        ``starts_s[state]``: when its reconfiguration starts, ascending; 0 of the first, which
        needs none. Ports that change carry nothing for the delay from then on.
    cell_states
        ``cell_states[state, cell]`` as in a `Schedule`; None where the fabric has no cells.

    Raises
    ------
    InputError
        If shapes disagree, a row is no matching, or times descend.
    """

    rails: tuple[Index, ...]
    matchings: Annotated[Given[np.int32], Axes(2), Range(IDLE)] = given()
    asked_s: Given[np.float64] = given()
    starts_s: Given[np.float64] = given()
    cell_states: Annotated[GivenOrNone[np.int8], Axes(2), Range(FREE, CROSS)] = given(default=None)

    def __post_init__(self) -> None:
        """Refuse rows that are no matchings, columns of other lengths, and times that descend."""
        check_fields(self)
        states = len(self.matchings)
        check_matchings(self.matchings)
        if not states:
            raise InputError("matchings has no states", where="matchings")
        for name in ("asked_s", "starts_s", "cell_states"):
            check_length(name, getattr(self, name), states, "states")

        # States follow in time.
        refuse_entries(
            "starts_s",
            np.diff(self.starts_s, prepend=self.starts_s[:1]) < 0,
            lambda state: f" = {self.starts_s[state]:g}: before the state before it",
        )

    @property
    def n_reconfigurations(self) -> int:
        """How often the switch of a rail changes circuits in a step."""
        return len(self.matchings) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChordRoutes(Value):
    """The routes of all-to-alls over circuits that stay: chords of the circle of members.

    Port p of every member leads to the member `strides[p]` places further on in the group. The
    part for the member d places further on is split over routes; each makes so many hops over each
    port, so that ``sum(hops * strides) = d`` modulo the number of members.

    Parameters
    ----------
    n_members
        The members of the groups that use these routes.
    strides
        A stride for each port that the all-to-all uses, in the order of the ports.
    distance
        ``distance[route]``: the members d places further on, from 1; int32.
    hops
        ``hops[route, port]``: how many circuits of this port a route takes; int32.
    share
        ``share[route]``: which part of the data for this distance takes the route; those of each
        distance sum to 1; float64.

    Raises
    ------
    InputError
        If columns differ in length, or a stride or distance leads to no other member.
    """

    n_members: Count
    strides: tuple[Count, ...]
    distance: Annotated[Given[np.int32], Axes(1), Range(1)] = given()
    hops: Annotated[Given[np.int32], Axes(2), Range(0)] = given()
    share: Annotated[Given[np.float64], Axes(1), Range(0, 1)] = given()

    def __post_init__(self) -> None:
        """Check that routes lead to members that exist, over ports that exist."""
        check_fields(self)
        n_routes = len(self.distance)
        for name in ("hops", "share"):
            check_length(name, getattr(self, name), n_routes, "routes")
        if self.hops.shape[1] != len(self.strides):
            raise InputError(
                f"hops has {self.hops.shape[1]} columns, there are {len(self.strides)} strides",
                where="hops",
            )
        for name, places in (("strides", self.strides), ("distance", self.distance.tolist())):
            if any(place >= self.n_members for place in places):
                raise InputError(
                    f"{name}: {max(places)} places further on in a group of {self.n_members}",
                    where=name,
                )

    @property
    def busiest_port_parts(self) -> float:
        """How many parts the busiest port of a member carries, one for each hop.

        A part is the data of one member for one other; a share of a part counts as that share, and
        each hop of it once.
        """
        return float((self.share @ self.hops).max(initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailPlan(Value):
    """The times and ports of each operation of a step, and the states of the switches.

    Parameters
    ----------
    rails
        A timeline for each class of rails that behave alike; every rail is in one of them.
    start_s, end_s
        ``start_s[operation]``, ``end_s[operation]`` in seconds from the beginning of the step;
        float64, by the operations of ``job.step()``.
    ports
        ``ports[operation]``: a bit for each port of its GPU that it uses, bit p for port p; int32;
        0 for a row that is no operation on a rail. Data follow the circuits of the ports that they
        start from, through further GPUs if there are any on the way; the ports share them evenly.
    step_s
        The time of the step, in seconds: when the last operation or reconfiguration ends.
    relays
        ``relays[row]``: an operation, a rank that forwards it, and over which of its ports, as
        bits; int32, shape (rows, 3), by operation, and then in the order of the way.
    chords
        The routes of all-to-alls whose ports lead to different members and stay; such an
        all-to-all takes those of its number of members and strides.
    pooled
        Whether data change rail inside a server, so that rails may hold different circuits. The
        GPUs of a server then use all its rails together, each GPU an equal share of every port:
        bit ``q * ports_per_gpu + p`` in `ports` and `relays` stands for port p on the rail number
        q of the server, rails ascending (`RailNetwork.pool_rails` has the cost).
    like
        ``like[rank]``: the least rank that does the same at the same times; int32. `start_s`,
        `end_s` and `ports` then have the operations of those ranks alone that are like themselves.
        Files of large plans are written so; a plan that is used has the operations of all ranks,
        and no rows here (`spelled_out`).

    Raises
    ------
    InputError
        If columns differ in length, a rail occurs twice, or relays are not in order.

    See Also
    --------
    RailJob : The job whose step it plans.

    Examples
    --------
    >>> import optmatch as om
    >>> plan = om.solve(om.load("instances/rails/h200-dp2-windows.json")).answer
    >>> round(plan.step_s, 1)
    21.5
    """

    rails: tuple[RailTimeline, ...]
    start_s: Given[np.float64] = given()
    end_s: Given[np.float64] = given()
    ports: Given[np.int32] = given()
    step_s: Amount
    relays: Annotated[Given[np.int32], Axes(2, 3)] = given(
        default_factory=lambda: np.empty((0, 3), np.int32)
    )
    chords: tuple[ChordRoutes, ...] = field(default=(), metadata={"brief": True})
    pooled: bool = field(default=False, metadata={"brief": True})
    like: Annotated[Given[np.int32], Axes(1), Range(0)] = given(
        default_factory=lambda: np.empty(0, np.int32)
    )
    left_out_if_empty: ClassVar[tuple[str, ...]] = ("relays", "like")
    """Fields that files of plans without them do not have."""

    def __post_init__(self) -> None:
        """Refuse columns of other lengths, rails that occur twice, and relays out of order."""
        check_fields(self)
        operations = len(self.start_s)
        for name in ("end_s", "ports"):
            check_length(name, getattr(self, name), operations, "operations")
        named = [rail for timeline in self.rails for rail in timeline.rails]
        if len(set(named)) < len(named):
            repeated = next(rail for rail in named if named.count(rail) > 1)
            raise InputError(f"rails: rail {repeated} is there twice", where="rails")
        if not len(self.like):
            _check_relays(self.relays, operations)

    def for_file(self, problem: Any) -> RailPlan:
        """Return the plan as files hold it; `problem` is its `RailJob`."""
        is_large = len(self.start_s) >= MANY_OPERATIONS
        return self.stored_once(problem.step()) if is_large else self

    def from_file(self, problem: Any) -> RailPlan:
        """Return the plan that a file holds with the operations of all ranks."""
        return self.spelled_out(problem.step())

    def stored_once(self, step: Step) -> RailPlan:
        """Return the plan with the operations of ranks that do the same stored once, for files.

        Parameters
        ----------
        step
            The step that it plans.

        Returns
        -------
        RailPlan
            With `like`; `spelled_out` has all operations again.
        """
        # Ranks with equal times and ports are known by a digest of these.
        first_of: dict[bytes, int] = {}
        like = np.empty(step.n_ranks, np.int32)
        columns = (self.start_s, self.end_s, self.ports)
        for rank, (begin, end) in enumerate(pairwise(step.rank_start.tolist())):
            texts = (column[begin:end].tobytes() for column in columns)
            like[rank] = first_of.setdefault(blake2b(b"".join(texts)).digest(), rank)
        is_stored = (like == np.arange(step.n_ranks))[step.rank]
        start_s, end_s, ports = (column[is_stored] for column in columns)
        return replace(self, start_s=start_s, end_s=end_s, ports=ports, like=like)

    def spelled_out(self, step: Step) -> RailPlan:
        """Return the plan with the operations of all ranks, if it stores those of equals once.

        Parameters
        ----------
        step
            The step that it plans.

        Returns
        -------
        RailPlan
            The same plan without `like`.

        Raises
        ------
        InputError
            If `like` names ranks that have other operations or are not stored.
        """
        if not len(self.like):
            return self
        check_length("like", self.like, step.n_ranks, "ranks")
        check_below("like", self.like, step.n_ranks, "rank", at_least=0)

        # A rank is stored if it is like itself. All others are like one that is stored.
        n_operations = np.diff(step.rank_start)
        is_stored = self.like == np.arange(step.n_ranks)
        wrong = ~is_stored[self.like] | (n_operations[self.like] != n_operations)
        refuse_entries(
            "like",
            wrong,
            lambda rank: (
                f" = {self.like[rank]}: a stored rank with as many operations as rank {rank} is"
                " expected"
            ),
        )
        n_stored = n_operations * is_stored
        check_length("start_s", self.start_s, int(n_stored.sum()), "stored operations")

        # Stored operations stand rank by rank: with 3, 2 and 3 operations of the ranks 0, 1 and 2,
        # of which rank 2 is like rank 0, the 5 stored ones begin at 0 and 3, and those of rank 2
        # are copied from 0.
        first_stored = (np.cumsum(n_stored) - n_stored)[self.like]
        return replace(
            self,
            start_s=copy_ranges(self.start_s, first_stored, n_operations),
            end_s=copy_ranges(self.end_s, first_stored, n_operations),
            ports=copy_ranges(self.ports, first_stored, n_operations),
            like=np.empty(0, np.int32),
        )

    def check_fits(self, problem: Any) -> None:
        """Refuse a plan of a training step whose arrays belong to another job or other rails.

        `problem` is a `RailJob`. Only sizes and ranges are compared here: an entry for each
        operation of its step, sets of ports that a GPU has (in pooled plans those of its whole
        server), finite times, and for each rail one timeline with a column for each port of its
        switch. Whether the plan can be executed is for the verifier to say.

        Raises
        ------
        InputError
            Naming the field that does not fit.
        """
        step = problem.step()
        n_ports = problem.network.ports_per_gpu
        n_shares = n_ports
        if self.pooled:  # each GPU has a share of the ports of all rails of its server
            n_shares *= problem.network.gpus_per_server
            if n_shares > MOST_PORTS:
                raise InputError(
                    f"{n_shares} ports of a server, {MOST_PORTS} fit into a set", where="pooled"
                )

        # Times of operations, sets of ports (numbers below 2**ports) and relays.
        check_length("start_s", self.start_s, step.n_operations, "operations")
        check_seconds("start_s", float(np.abs(self.start_s).max(initial=0.0)))
        check_seconds("end_s", float(np.abs(self.end_s).max(initial=0.0)))
        check_seconds("step_s", self.step_s)
        check_below("ports", self.ports, 1 << n_shares, "set of ports", at_least=0)
        check_below("relays", self.relays[:, 1], step.n_ranks, "rank", at_least=0)
        check_below("relays", self.relays[:, 2], 1 << n_shares, "set of ports", at_least=0)

        # Each rail of the job stands in one timeline, which has a column for each port of its
        # switch: an ideal one has as many as the GPUs of the rail, a fabric may have more.
        ranks_of_rail = ranks_of_rails(step)
        planned = sorted(rail for timeline in self.rails for rail in timeline.rails)
        if planned != list(ranks_of_rail):
            raise InputError(
                f"rails has timelines of rails {shorten_numbers(planned)}, the job has"
                f" {shorten_numbers(list(ranks_of_rail))}",
                where="rails",
            )

        # Times within bounds, and a column for each port of each rail.
        for k, timeline in enumerate(self.rails):
            check_seconds(f"rails[{k}].asked_s", float(np.abs(timeline.asked_s).max()))
            check_seconds(f"rails[{k}].starts_s", float(np.abs(timeline.starts_s).max()))
            for rail in timeline.rails:
                expected = len(ranks_of_rail[rail]) * n_ports
                if problem.fabric is not None:
                    expected = problem.fabric.n_ports
                if timeline.matchings.shape[1] != expected:
                    n_columns = timeline.matchings.shape[1]
                    raise InputError(
                        f"rails[{k}].matchings has rows of {n_columns} entries, rail {rail} has"
                        f" {expected} ports",
                        where=f"rails[{k}]",
                    )


def _check_relays(rows: NDArray[np.int32], n_operations: int) -> None:
    """Raise `InputError` at the first relay of no operation, or that is out of order."""
    operation = rows[:, 0]
    refuse_entries(
        "relays",
        (operation < 0) | (operation >= n_operations),
        lambda row: f": operation {operation[row]} of a step of {n_operations}",
    )
    refuse_entries(
        "relays",
        np.diff(operation, prepend=operation[:1]) < 0,
        lambda row: f": operation {operation[row]} after operation {operation[row - 1]}",
    )


def find_step_end(
    timelines: Iterable[RailTimeline], end_s: NDArray[np.float64], delay_s: float
) -> float:
    """Find when the last operation has ended and the last circuit is up, in seconds.

    ``end_s[operation]`` are the ends of operations, of which some are enough if others are equal.
    """
    step_s = float(end_s.max(initial=0.0))
    for timeline in timelines:
        if timeline.n_reconfigurations:
            step_s = max(step_s, float(timeline.starts_s[-1]) + delay_s)
    return step_s


def ranks_of_rails(step: Step) -> dict[int, NDArray[np.int64]]:
    """List by rail the ranks that have groups on it; both ascend."""
    ranks_of_rail: dict[int, set[int]] = {}
    for group in step.groups:
        if group.rail != SCALE_UP:
            ranks_of_rail.setdefault(group.rail, set()).update(group.ranks)
    return {rail: np.array(sorted(ranks_of_rail[rail])) for rail in sorted(ranks_of_rail)}
