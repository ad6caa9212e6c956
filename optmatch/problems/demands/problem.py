"""Demand: bytes from each source to each destination, over switches that take time to change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import Fabric, Faulty, IdealSwitch
from optmatch.model import (
    Amount,
    Axes,
    Count,
    Displayed,
    Given,
    GivenOrNone,
    InputError,
    Positive,
    Range,
    Schedule,
    Value,
    check_fields,
    check_size,
    frozen,
    given,
)
from optmatch.model.declarations import form_of
from optmatch.model.numbers import check_length
from optmatch.model.schedule import Switching
from optmatch.problems.demands.bounds import (
    bound_groups,
    bound_lines,
    bound_together,
    check_groups,
)
from optmatch.problems.demands.matrices import AnyMatrix, plain_matrix
from optmatch.problems.demands.ticks import Scaled, even_out, scale
from optmatch.problems.demands.traffic import check_entries

_log = logging.getLogger("optmatch")

DemandObjective = Literal["completion-s", "matchings", "weighted-completion-s"]

_DAY_S = 86_400.0
"""A circuit that is busy for longer is a sign that the rate was not set."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaneSchedules(Value):
    """The answer to a demand on several planes: a schedule for each.

    Parameters
    ----------
    schedules
        One for each plane; an idle plane has a schedule without slots.

    See Also
    --------
    Demand : What it answers.

    Examples
    --------
    >>> import optmatch as om
    >>> demand = om.Demand.from_matrix([[0, 4], [4, 0]], delay_s=1, planes=2)
    >>> om.solve(demand, seed=0).answer.makespan_s
    3.0
    """

    schedules: tuple[Schedule, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.schedules:
            raise InputError("schedules of no plane")
        if len({schedule.n_ports for schedule in self.schedules}) > 1:
            raise InputError("schedules of planes with different numbers of ports")

    @property
    def makespan_s(self) -> float:
        """When the last plane has finished, in seconds."""
        return max((schedule.makespan_s for schedule in self.schedules), default=-inf)

    def check_fits(self, problem: Any) -> None:
        """Refuse schedules that are not one for each plane, or that belong to another switch."""
        check_length("schedules", self.schedules, problem.planes, "planes")
        for plane, schedule in enumerate(self.schedules):
            schedule.check_fits(problem, f"schedules[{plane}].")


class _InTicks(Displayed):
    """Holds values that are derived once and are no fields."""

    __slots__ = ("_scaled",)
    _scaled: Scaled

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        """Name `from_matrix` to who gives a matrix where the fabric stands."""
        if args and not isinstance(args[0], Fabric):
            raise InputError(
                f"{type(args[0]).__name__} is no fabric: Demand.from_matrix(matrix, delay_s=...)"
                " makes a demand of a matrix alone",
                where="fabric",
            )
        return super().__new__(cls)


@dataclass(frozen=True, slots=True, eq=False)
class Demand(_InTicks):
    """Serve a demand matrix by a sequence of matchings, and finish as early as possible.

    Time is counted in whole ticks: slots and the delay last whole ticks, and each demand is
    rounded up to them; what is a whole number of ticks up to a relative 1e-9 is that number.
    Without `quantum_s` the tick divides everything exactly wherever such a tick exists, which is
    so for integers and for decimal numbers of common length.

    Parameters
    ----------
    fabric
        The switch. `IdealSwitch` holds any matching; on cells every matching must be realised.
    demand_bytes
        ``demand_bytes[source, destination]`` >= 0; float64, shape (ports, ports). On bidirectional
        ports nothing stands on the diagonal, and a circuit carries both directions at once.
    rate_bytes_per_s
        The rate of a circuit in bytes per second; at the rate 1 the demand is in seconds.
    delay_s
        The reconfiguration delay before each matching, in seconds; 0 if it takes no time.
    switching
        Whether circuits that stay go on during the delay (per-circuit) or wait (all-stop).
    planes
        How many switches of this kind work side by side, each with its own schedule. Every port is
        on every plane, and a demand may be split between them.
    packet_bytes_per_s
        What each port sends, and receives, over a packet network beside, in bytes per second. The
        packet network takes what the circuits leave. 0: there is no packet network.
    min_slot_s
        The shortest slot that is allowed, in seconds.
    quantum_s
        The length of one tick, in seconds. None: the largest that divides everything.
    objective
        What is least: the time, the number of matchings, or the weighted times of groups.
        ``"completion-s"``: when the demand is complete, in seconds. ``"matchings"``: the fewest
        matchings whose weighted sum *is* the demand; all lines must have the same sum. Lines of
        floats that agree to rounding are rounded to ticks, up or down, so that they do exactly.
        ``"weighted-completion-s"``: entries belong to groups (coflows); the sum, over all groups,
        of the weight times the seconds from its deadline to the arrival of its last byte.
    groups
        ``groups[source, destination]``: the group of an entry, from 0; -1 for an entry without
        one.
    weights
        Of the groups; all 1 if empty.
    deadlines_s
        Of the groups: a group that is complete before costs nothing; all 0 if empty.

    Raises
    ------
    InputError
        Naming the entry that is negative, on a forbidden diagonal, or between ports that cannot be
        connected; the dead port that has a demand; the line whose sum differs, with both sums; or
        the option out of range.

    See Also
    --------
    optmatch.schedule : A schedule of a matrix, without a problem object.
    optmatch.decompose : A matrix as a weighted sum of permutations.
    PlaneSchedules : The answer where there are several planes.

    Examples
    --------
    >>> problem = Demand(IdealSwitch(2), [[0, 3], [2, 1]], delay_s=0.5)
    >>> problem.tick_s, problem.ticks.tolist(), problem.delay_ticks
    (0.5, [[0, 6], [4, 2]], 1)
    >>> problem.lower_bound()
    5.0
    """

    fabric: Fabric
    demand_bytes: Annotated[Given[np.float64], Axes(2), Range(0)] = given()
    rate_bytes_per_s: Positive = field(default=1.0, kw_only=True)
    delay_s: Amount = field(default=0.0, kw_only=True)
    switching: Switching = field(default="all-stop", kw_only=True)
    planes: Count = field(default=1, kw_only=True)
    packet_bytes_per_s: Amount = field(default=0.0, kw_only=True)
    min_slot_s: Amount = field(default=0.0, kw_only=True)
    quantum_s: Positive | None = field(default=None, kw_only=True)
    objective: DemandObjective = field(default="completion-s", kw_only=True)
    groups: Annotated[GivenOrNone[np.int32], Axes(2), Range(-1)] = given(
        default=None, kw_only=True, metadata={"brief": True}
    )
    weights: tuple[Amount, ...] = field(default=(), kw_only=True, metadata={"brief": True})
    deadlines_s: tuple[Amount, ...] = field(default=(), kw_only=True, metadata={"brief": True})
    kind: ClassVar[str] = "demand"
    answer_class: ClassVar[type[PlaneSchedules] | None] = PlaneSchedules
    objectives: ClassVar[dict[str, str]] = {
        "completion-s": "s",
        "matchings": "matchings",
        "weighted-completion-s": "s",
    }

    def __post_init__(self) -> None:
        """Check all fields, and count the demand, the delay and the shortest slot in ticks.

        A tick is the unit of time in which methods compute.

        Raises
        ------
        InputError
            Naming the field that is wrong, or the entry of the demand that no circuit can carry.
        """
        check_fields(self)
        demand = self.demand_bytes
        self.fabric.require_switch()
        check_size("ports", self.planes * self.fabric.n_ports, "planes")
        check_entries(self.fabric, demand, with_packets=self.packet_bytes_per_s > 0)
        per_s = self.rate_bytes_per_s
        self._set(_scaled=scale(demand, per_s, self.delay_s, self.min_slot_s, self.quantum_s))
        if self.objective == "matchings":
            self._check_decomposable()
        check_groups(self)

    def _check_decomposable(self) -> None:
        """Refuse a demand that matchings cannot carry exactly, with all ports busy all the time.

        Such a schedule is an exact decomposition into weighted permutations. There is one only if
        all rows and columns of the demand have the same sum: all ports send and receive equally
        much. Sums that differ by rounding alone are made equal first, which may change the demand
        in ticks (the unit of time).

        Raises
        ------
        InputError
            If there are several planes or packets, or naming the first row or column with another
            sum.
        """
        if self.planes > 1 or self.packet_bytes_per_s > 0:
            raise InputError(
                "objective matchings is for one plane without packet network", where="objective"
            )

        # Lines that differ by rounding alone get one sum.
        evened = even_out(
            self._scaled,
            self.demand_bytes,
            self.rate_bytes_per_s,
            delay_s=self.delay_s,
            min_slot_s=self.min_slot_s,
            quantum_s=self.quantum_s,
            symmetric=self.fabric.bidirectional,
        )
        self._set(_scaled=evened)
        sums = np.concatenate([self.ticks.sum(axis=1), self.ticks.sum(axis=0)])

        # Rows come first, then columns.
        for line in np.flatnonzero(sums != sums[0])[:1]:
            name = f"{'row' if line < len(self.ticks) else 'column'} {line % len(self.ticks)}"
            line_s = int(sums[line]) * self.tick_s
            first_s = int(sums[0]) * self.tick_s
            raise InputError(
                f"demand_bytes: {name} sums to {line_s:g} s of circuit time, row 0 to {first_s:g}"
                " s: an exact decomposition needs equal sums, or stuffing first",
                where="demand_bytes",
            )

    @classmethod
    def from_matrix(
        cls,
        matrix: AnyMatrix,
        fabric: Fabric | None = None,
        *,
        delay_s: float | None = None,
        names: Sequence[str] | None = None,
        rate_bytes_per_s: float | None = None,
        switching: Switching = "all-stop",
        planes: int = 1,
        packet_bytes_per_s: float = 0.0,
        min_slot_s: float = 0.0,
        quantum_s: float | None = None,
        objective: DemandObjective = "completion-s",
        groups: ArrayLike | None = None,
        weights: tuple[float, ...] = (),
        deadlines_s: tuple[float, ...] = (),
    ) -> Demand:
        """Make a demand from a matrix in any form: numbers, a DataFrame, a sparse matrix, a graph.

        The entry in row i and column j is what port i sends to port j, in bytes.

        Parameters
        ----------
        matrix
            ``matrix[source, destination]``: numbers, nested sequences, a SciPy sparse matrix, a
            DataFrame or a graph of networkx with the demand as ``weight`` of its edges; labels
            and nodes become the names of the ports. It is square, unless `fabric` is given: then
            ports beyond it are idle.
        fabric
            The switch; None for the ideal one that fits.
        delay_s
            The reconfiguration delay in seconds; 0 has to be said, too. Only the objective
            ``"matchings"`` can do without.
        names
            Names of the ports of the ideal switch that fits.
        rate_bytes_per_s
            The rate of a circuit; None for 1, with which the demand is in seconds: a warning is
            logged if that takes a circuit more than a day.
        switching, planes, packet_bytes_per_s, min_slot_s, quantum_s, objective
            As of the class.
        groups, weights, deadlines_s
            As of the class.

        Returns
        -------
        Demand
            The demand of all ports of the fabric, in bytes.

        Raises
        ------
        InputError
            Naming the first row of another length, the shape that is not square, labels that would
            be lost, or `delay_s` if it is missing.

        Examples
        --------
        >>> problem = Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.5, names=["a", "b"])
        >>> problem.fabric.port_names
        ('a', 'b')
        """
        # The delay has to be stated, since it decides what a good schedule is.
        names = form_of(Sequence[Any] | None).check("names", names)
        fabric = form_of(Fabric | None).check("fabric", fabric)
        needs_no_delay = isinstance(objective, str) and objective == "matchings"
        if delay_s is None and not needs_no_delay:
            raise InputError(
                "delay_s: the reconfiguration delay in seconds is not stated; 0 if there is none",
                where="delay_s",
            )
        plain, labels = plain_matrix(matrix)
        rows, columns = plain.shape

        # Without a fabric it is an ideal switch with a port for each row.
        if fabric is None:
            if rows != columns:
                raise InputError(
                    f"demand_bytes has shape {rows} x {columns}: a row and a column for each port"
                    " are needed, unless a fabric is given",
                    where="demand_bytes",
                )
            fabric = IdealSwitch(max(1, rows), labels if names is None else tuple(map(str, names)))
        elif names is not None or labels not in (None, fabric.port_names):
            raise InputError(
                "names: the ports of the fabric have names of their own; of a DataFrame give the"
                " values, matrix.to_numpy()",
                where="names",
            )
        if max(plain.shape) > fabric.n_ports:
            raise InputError(
                f"demand_bytes has shape {rows} x {columns}, the fabric {fabric.n_ports} ports",
                where="demand_bytes",
            )

        # Ports beyond the matrix are idle.
        padded = np.zeros((fabric.n_ports, fabric.n_ports))
        padded[:rows, :columns] = plain
        problem = cls(
            fabric,
            padded,
            rate_bytes_per_s=1.0 if rate_bytes_per_s is None else rate_bytes_per_s,
            delay_s=0.0 if delay_s is None else delay_s,
            switching=switching,
            planes=planes,
            packet_bytes_per_s=packet_bytes_per_s,
            min_slot_s=min_slot_s,
            quantum_s=quantum_s,
            objective=objective,
            groups=groups,
            weights=weights,
            deadlines_s=deadlines_s,
        )
        if rate_bytes_per_s is None:
            for remark in problem.remarks():
                _log.warning("%s", remark)
        return problem

    def with_dead_ports(self, ports: Sequence[int | str]) -> Demand:
        """Return the same demand after ports have failed: free ports take their places.

        A free port is one that works and has no demand. The first one takes over what the first
        dead port sends and receives, and on an ideal switch its name too, as its fibre is moved.

        Parameters
        ----------
        ports
            The ports that have failed, by name or by number.

        Returns
        -------
        Demand
            On the same switch, with these ports dead.

        Raises
        ------
        InputError
            If there is no such port, or no free port for one that has a demand.

        Examples
        --------
        >>> switch = IdealSwitch(3, names=("a", "b", "spare"))
        >>> demand = Demand.from_matrix([[0, 4], [2, 0]], switch, delay_s=1)
        >>> after = demand.with_dead_ports(["b"])
        >>> after.fabric.port_names, after.fabric.dead_ports, after.demand_bytes[0].tolist()
        (('a', 'spare', 'b'), (1,), [0.0, 0.0, 4.0])
        """
        ports = form_of(Sequence[int | str]).check("ports", ports)
        whole, faults = self.fabric, {}
        if isinstance(whole, Faulty):
            faults = {
                name: getattr(whole, name) for name in ("stuck_bar", "stuck_cross", "dead_cells")
            }
            whole = whole.fabric
        failed = {self.fabric.find_port(port) for port in ports}
        busy = set(np.concatenate(np.nonzero(self.demand_bytes)).tolist())
        dead = sorted(failed.union(self.fabric.dead_ports))
        faulty = Faulty(whole, dead_ports=dead, **faults)

        # Each dead port with a demand and a free one change places.
        place = np.arange(self.fabric.n_ports)
        free_ports = [port for port in range(len(place)) if port not in busy.union(dead)]
        for port in sorted(failed & busy):
            if not free_ports:
                raise InputError(
                    f"{self.fabric.describe_port(port)} has a demand, and no port is free to take"
                    " it over: a larger switch (--size) has more",
                    where="ports",
                )
            free = free_ports.pop(0)
            place[[port, free]] = free, port
        if isinstance(whole, IdealSwitch) and whole.names is not None:
            named = replace(whole, names=tuple(whole.names[port] for port in place))
            faulty = replace(faulty, fabric=named)
        return replace(
            self,
            fabric=faulty,
            demand_bytes=self.demand_bytes[np.ix_(place, place)],
            groups=None if self.groups is None else self.groups[np.ix_(place, place)],
        )

    @property
    def tick_s(self) -> float:
        """The quantum of time, in seconds."""
        return self._scaled.tick_s

    @property
    def exact(self) -> bool:
        """Whether no demand was rounded to ticks."""
        return self._scaled.exact

    @property
    def directed_ticks(self) -> NDArray[np.int64]:
        """``directed_ticks[source, destination]``: the demand in ticks of a circuit."""
        return self._scaled.demand

    @property
    def ticks(self) -> NDArray[np.int64]:
        """``ticks[source, destination]``: how long a circuit is needed; int64.

        On bidirectional ports the larger of both directions, as a circuit carries both at once.
        Pairs over their link budget have no circuit: beside a packet network, which carries their
        demand, they stand as 0.
        """
        directed = self._scaled.demand
        over_budget = self.fabric.over_budget
        if over_budget is not None and self.packet_bytes_per_s > 0:
            return np.where(over_budget, 0, directed)
        return np.maximum(directed, directed.T) if self.fabric.bidirectional else directed

    @property
    def entry_places(self) -> NDArray[np.int64] | None:
        """Where `ticks` are above 0, as ``source * ports + destination``, ascending.

        None where many pairs have an entry, or where a circuit serves both directions or may be
        over its budget: then the full matrix tells.
        """
        if self.fabric.bidirectional or self.fabric.over_budget is not None:
            return None
        return self._scaled.places

    @property
    def delay_ticks(self) -> int:
        """The reconfiguration delay, in ticks."""
        return self._scaled.delay

    @property
    def min_slot_ticks(self) -> int:
        """The shortest slot, in ticks, at least 1."""
        return max(1, self._scaled.min_slot)

    @property
    def packet_share(self) -> float:
        """The load that the packet network carries per tick of one port, in ticks of a circuit."""
        return self.packet_bytes_per_s / self.rate_bytes_per_s

    def dead_circuits(self) -> list[tuple[int, int]]:
        """List the demands that need a circuit over its link budget, which no schedule can have.

        There are none beside a packet network, which carries such a demand.

        Returns
        -------
        list of (source, destination)
            Row by row; empty if there are none.
        """
        over_budget = self.fabric.over_budget
        if over_budget is None or self.packet_bytes_per_s > 0:
            return []
        needed = np.argwhere(over_budget & (self.directed_ticks > 0))
        return [(int(source), int(destination)) for source, destination in needed]

    def lower_bound(self) -> float:
        """Bound the objective from below by counting: no schedule is better than this.

        A line is all that one port sends, or all that it receives.

        Returns
        -------
        float
            In the unit of the objective:

            - ``"completion-s"``, in seconds: a line needs the sum of its demands, and a delay for
              each partner; where all circuits stop, the sum and the partners may be those of two
              lines;
            - ``"matchings"``: the largest number of partners of a port;
            - ``"weighted-completion-s"``, in weights times seconds: how late groups are if each
              port serves its own groups, whatever other ports do.

            Infinite where a demand needs a circuit over its link budget.
        """
        if self.dead_circuits():
            return inf
        if self.objective == "weighted-completion-s":
            return bound_groups(self)
        return max(float(bound_lines(self).max(initial=0.0)), bound_together(self))

    def remarks(self) -> tuple[str, ...]:
        """Return sentences about values that are allowed, but hardly what was meant.

        The command line prints them.

        Returns
        -------
        tuple of str
            Empty if nothing is remarkable.

        Examples
        --------
        >>> matrix = [[0, 4e7], [3e7, 0]]
        >>> Demand.from_matrix(matrix, delay_s=1e-5).remarks()[0][:77]
        'one circuit from port 0 to port 1 takes 463 days at rate_bytes_per_s = 1: if '
        >>> Demand.from_matrix(matrix, delay_s=1e-5, rate_bytes_per_s=12.5e9).remarks()
        ()
        """
        if not self.demand_bytes.size:
            return ()
        source, destination = np.unravel_index(
            int(self.demand_bytes.argmax()), self.demand_bytes.shape
        )
        longest_s = float(self.demand_bytes[source, destination]) / self.rate_bytes_per_s
        if longest_s <= _DAY_S:
            return ()
        names = self.fabric.port_names
        return (
            f"one circuit from port {names[source]} to port {names[destination]} takes"
            f" {longest_s / _DAY_S:.3g} days at rate_bytes_per_s = {self.rate_bytes_per_s:g}: if"
            " the demand is in bytes, set the rate of a circuit (rate_bytes_per_s, --rate), as"
            " 12.5e9 for 100 Gbit/s",
        )

    def schedule(
        self, matchings: ArrayLike, ticks: ArrayLike, cell_states: NDArray[np.int8] | None = None
    ) -> Schedule:
        """Make a schedule from durations in ticks.

        Parameters
        ----------
        matchings
            ``matchings[slot, source] = destination``, -1 where idle, shape (slots, ports).
        ticks
            ``ticks[slot]``: the duration without the delay before it, > 0.
        cell_states
            ``cell_states[slot, cell]``: 0 bar, 1 cross, -1 free; None for a fabric without cells.

        Returns
        -------
        Schedule
            The slots with durations in seconds, and the delay and the switching of this demand.
        """
        rows = frozen("matchings", matchings, 2, np.int32)
        return Schedule(
            matchings=rows if rows.size else rows.reshape(0, self.fabric.n_ports),
            durations_s=frozen("ticks", ticks, 1, np.float64) * self.tick_s,
            delay_s=self.delay_s,
            cell_states=cell_states,
            switching=self.switching,
        )
