"""Demand: bytes from each source to each destination, over switches that take time to change.

Lower bounds are those of each line, of all ports together, and of groups of entries. A line, which
is a source or a destination, serves one entry at a time, each in another slot. A set of groups is
therefore complete no earlier than its busiest line has had its time, nor than the line with most
slots, which may be another one, has had a delay before each. Every two lines are so a machine that
serves groups one after another: a concurrent open shop.

Terms: an *entry* is the demand of one source for one destination, a *partner* of a port one with
which it has an entry. A *group* is a set of entries that count as one job (a coflow): it has a
weight and a deadline, and is complete with its last entry. A *plane* is one of several switches
side by side. *All-stop* and *per-circuit* say which circuits stop while some change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import UNREACHED, Fabric, Fault, Faulty, IdealSwitch
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
from optmatch.model.numbers import check_length, refuse_entries
from optmatch.model.schedule import Switching
from optmatch.problems.demands.matrices import (
    AnyMatrix,
    name_first_ports,
    order_by_names,
    plain_matrix,
)
from optmatch.problems.demands.ticks import Scaled, even_out, place_deadline, scale
from optmatch.problems.demands.traffic import check_entries

_log = logging.getLogger("optmatch")

DemandObjective = Literal["completion-s", "matchings", "weighted-completion-s"]

EXACT_GROUPS = 12
"""The most groups whose best order in the relaxation is found; more groups are not all ordered."""
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
        """Name `from_matrix` to who gives a matrix in the fabric's place, or in another order."""
        if args and not isinstance(args[0], Fabric):
            raise InputError(
                f"{type(args[0]).__name__} is no fabric: Demand.from_matrix(matrix, delay_s=...)"
                " makes a demand of a matrix alone",
                where="fabric",
            )
        fabric = args[0] if args else fields.get("fabric")
        matrix: Any = args[1] if len(args) > 1 else fields.get("demand_bytes")
        has_labels = hasattr(matrix, "columns") and hasattr(matrix, "index")
        if has_labels and isinstance(fabric, Fabric):
            labels = tuple(map(str, matrix.columns))
            names = fabric.port_names
            if labels != names and set(labels) == set(names):
                raise InputError(
                    "demand_bytes: its labels are the names of the ports in another order:"
                    " Demand.from_matrix orders them",
                    where="demand_bytes",
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

        InputError names the field that is wrong, or the entry that no circuit can carry.
        """
        check_fields(self)
        demand = self.demand_bytes
        self.fabric.require_switch()
        check_size("ports", self.planes * self.fabric.n_ports, "planes")
        check_entries(self.fabric, demand, with_packets=self.packet_bytes_per_s > 0)
        per_s = self.rate_bytes_per_s
        self._set(_scaled=scale(demand, per_s, self.delay_s, self.min_slot_s, self.quantum_s))
        self._check_slots()
        if self.objective == "matchings":
            # Refuse a demand that matchings cannot carry exactly, with all ports busy all the
            # time.
            if self.planes > 1 or self.packet_bytes_per_s > 0:
                raise InputError(
                    "objective matchings is for one plane without packet network",
                    where="objective",
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
            self._check_slots()  # the ticks may be finer now
            sums = np.concatenate([self.ticks.sum(axis=1), self.ticks.sum(axis=0)])

            # Rows come first, then columns.
            for line in np.flatnonzero(sums != sums[0])[:1]:
                name = f"{'row' if line < len(self.ticks) else 'column'} {line % len(self.ticks)}"
                line_s = int(sums[line]) * self.tick_s
                first_s = int(sums[0]) * self.tick_s
                raise InputError(
                    f"demand_bytes: {name} sums to {line_s:g} s of circuit time, row 0 to"
                    f" {first_s:g} s: an exact decomposition needs equal sums, or stuffing first",
                    where="demand_bytes",
                )
        if self.packet_bytes_per_s > 0 and not 1e-100 <= self.packet_share <= 1e100:
            raise InputError(
                f"packet_bytes_per_s = {self.packet_bytes_per_s:g}: {self.packet_share:g} times"
                " rate_bytes_per_s; 1e-100 to 1e+100 times are allowed",
                where="packet_bytes_per_s",
            )
        check_groups(self)
        # Whoever gets the ticks cannot change what is asked.
        self._scaled.demand.flags.writeable = False
        if self._scaled.places is not None:
            self._scaled.places.flags.writeable = False

    def _check_slots(self) -> None:
        """Refuse delays and shortest slots of so many ticks that no schedule could be added up.

        Floats tell how many ticks one slot has, and int64 holds what circuits carry together in as
        many slots as there are ports, on every plane.
        """
        scaled = self._scaled
        n_slots = self.planes * self.fabric.n_ports
        for name, ticks, most in (
            ("min_slot_s", scaled.min_slot, min(2**53, 2**61 // n_slots)),
            ("delay_s", scaled.delay, 2**61 // n_slots),
        ):
            if ticks >= most:
                raise InputError(
                    f"{name} = {getattr(self, name):g}: {ticks:.3g} ticks of {scaled.tick_s:g} s,"
                    f" less than {most:.3g} are allowed",
                    where=name,
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
            and nodes become the names of the ports of an ideal switch without names, and name
            the ports of any other fabric. It is square, unless `fabric` is given: then ports
            beyond it are idle.
        fabric
            The switch; None for the ideal one that fits.
        delay_s
            The reconfiguration delay in seconds; 0 has to be said, too. Only the objective
            ``"matchings"`` can do without.
        names
            Names of the ports of the ideal switch that fits; of a labelled matrix its labels, in
            the order of the ports.
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
            Naming the first row of another length, the shape that is not square, a label that no
            port of the fabric has for a name, or `delay_s` if it is missing.

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
        labelled = plain_matrix(matrix)
        labels = labelled.labels
        rows, columns = labelled.entries.shape

        # Without a fabric it is an ideal switch with a port for each row.
        if fabric is None:
            if rows != columns:
                raise InputError(
                    f"demand_bytes has shape {rows} x {columns}: a row and a column for each port"
                    " are needed, unless a fabric is given",
                    where="demand_bytes",
                )
            port_names = labels if names is None else tuple(map(str, names))
            fabric = IdealSwitch(max(1, rows), port_names)
        elif names is not None:
            raise InputError(
                "names: the ports of the fabric have names of their own", where="names"
            )
        elif labels is not None and isinstance(fabric, IdealSwitch):
            # Labels that are names or numbers of its ports already give no names.
            is_known = set(labels).issubset(fabric.port_names)
            fabric = fabric if is_known else name_first_ports(fabric, labels)
        if max(rows, columns) > fabric.n_ports:
            raise InputError(
                f"demand_bytes has shape {rows} x {columns}, the fabric {fabric.n_ports} ports",
                where="demand_bytes",
            )

        # Ports beyond the matrix are idle.
        if labels is None:
            padded = np.zeros((fabric.n_ports, fabric.n_ports))
            padded[:rows, :columns] = labelled.entries
        else:
            padded = order_by_names(labelled.entries, labels, fabric.port_names)
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

        A free port is one that works and has no demand. It takes over what a dead port sends and
        receives, and on an ideal switch its name too, as its fibre is moved: the first one over
        which all demands of the dead port can go, and the first of all if there is none.

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
        failed = {self.fabric.find_port(port) for port in ports}
        busy = set(np.concatenate(np.nonzero(self.demand_bytes)).tolist())
        faulty = fail_ports(self.fabric, failed)

        # Each dead port with a demand and a free one change places: ``new_port[port]``.
        new_port = np.arange(self.fabric.n_ports)
        taken = busy.union(faulty.dead_ports)
        free_ports = [port for port in range(len(new_port)) if port not in taken]
        is_reached = self.fabric.route_cells() != UNREACHED
        for port in sorted(failed & busy):
            if not free_ports:
                raise InputError(
                    f"{self.fabric.describe_port(port)} has a demand, and no port is free to take"
                    " it over: a larger switch has more (--size), and demand of ports can be left"
                    " out (--drop-ports)",
                    where="ports",
                )

            # A free port that all demands of this one can reach; ports that moved count as there.
            destinations = new_port[self.demand_bytes[port] > 0]
            sources = new_port[self.demand_bytes[:, port] > 0]
            fitting_ports = [
                free
                for free in free_ports
                if is_reached[free, destinations].all() and is_reached[sources, free].all()
            ]
            free = (fitting_ports or free_ports)[0]
            free_ports.remove(free)
            new_port[[port, free]] = free, port

        return replace(
            self,
            fabric=with_moved_names(faulty, new_port),
            demand_bytes=self.demand_bytes[np.ix_(new_port, new_port)],
            groups=None if self.groups is None else self.groups[np.ix_(new_port, new_port)],
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
        needed = self._scaled.demand
        if self.fabric.bidirectional:
            needed = np.maximum(needed, needed.T)
        over_budget = self.fabric.over_budget
        if over_budget is not None and self.packet_bytes_per_s > 0:
            return np.where(over_budget, 0, needed)
        return needed

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
    def due_ticks(self) -> tuple[float, ...]:
        """The deadline of each group in ticks, whole or between two; empty if none are given."""
        return tuple(place_deadline(due_s, self.tick_s, self.exact) for due_s in self.deadlines_s)

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
        return max(float(bound_lines(self).max(initial=0.0)), _bound_together(self))

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
            ``ticks[slot]``: the duration without the delay before it, > 0, in units of `tick_s`.
            Seconds are divided by `tick_s`.
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


def fail_ports(fabric: Fabric, ports: Iterable[int]) -> Faulty:
    """Return a switch of which these ports are dead too, beside all faults that it has."""
    newly_dead = sorted(set(ports).difference(fabric.dead_ports))
    new_faults = [Fault("dead-port", port) for port in newly_dead]
    return Faulty.of(fabric.intact, [*fabric.faults, *new_faults])


def with_moved_names(faulty: Faulty, place: NDArray[np.int64]) -> Faulty:
    """Return a switch whose names have moved with the fibres: an ideal one that has names.

    Ports change places in pairs: ``place[port]`` is the port of which `port` gets the name.
    """
    whole = faulty.fabric
    if isinstance(whole, IdealSwitch) and whole.names is not None:
        named = replace(whole, names=tuple(whole.names[port] for port in place))
        return replace(faulty, fabric=named)
    return faulty


def bound_lines(problem: Demand) -> NDArray[np.float64]:
    r"""Bound the objective from below by what each port alone has to send or to receive.

    A *line* is all that one port sends, or all that it receives; its sum is :math:`S` ticks of
    circuits, with :math:`k` partners. A *plane* is one of :math:`s` switches side by side, and
    :math:`\delta` is the delay before a circuit is there.

    Without a packet network the port spends :math:`\max(k, s)` delays on all planes together, and
    takes at least :math:`(S + \max(k, s)\,\delta) / s`, in whole ticks. For example, 10 ticks for
    2 partners on one plane with a delay of 3 take 16.

    A packet network of :math:`r` times the rate of a circuit may carry a part. Then only some
    :math:`k` entries, the largest ones, have circuits. Two things bound the time: both kinds of
    network together carry all, :math:`(S + k \delta) / (s + r)`, and packets carry the rest. The
    :math:`k` with the least time counts.

    Parameters
    ----------
    problem
        The demand. With objective ``"matchings"`` the bound is a number of slots, else it is in
        seconds.

    Returns
    -------
    array of float, shape (2 * ports,)
        In the unit of the objective, for the rows by source, then the columns by destination.
    """
    if problem.packet_share > 0:
        # Each source, then each destination, with its positive entries alone.
        bounds = [
            _bound_line_with_packets(line[line > 0], problem)
            for matrix in (problem.directed_ticks, problem.directed_ticks.T)
            for line in matrix
        ]
        return np.asarray(np.array(bounds) * problem.tick_s, dtype=np.float64)

    busy_ticks, n_partners = _line_sums(problem)
    if problem.objective == "matchings":
        return n_partners.astype(np.float64)

    # A port with fewer partners than planes counts a delay for each plane: on fewer planes it
    # would be busy for longer.
    n_delays = np.where(n_partners > 0, np.maximum(n_partners, problem.planes), 0)
    all_ticks = busy_ticks + n_delays * problem.delay_ticks
    bound_ticks = -(-all_ticks // problem.planes)  # rounded up
    return np.asarray(bound_ticks * problem.tick_s, dtype=np.float64)


def _line_sums(problem: Demand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each line how many ticks it is busy, and with how many partners.

    Each entry lasts one shortest slot at least. Both arrays have shape (2 * ports,): the rows,
    then the columns. Where entries are few, the time is theirs and not that of the matrix.
    """
    ticks = problem.ticks
    n_ports = len(ticks)
    places = problem.entry_places
    if places is not None:
        sources, destinations = np.divmod(places, n_ports)
        lines = np.concatenate([sources, n_ports + destinations])
        lengths = np.maximum(ticks.reshape(-1)[places], problem.min_slot_ticks)
        busy_ticks = np.zeros(2 * n_ports, dtype=np.int64)
        np.add.at(busy_ticks, lines, np.tile(lengths, 2))
        return busy_ticks, np.bincount(lines, minlength=2 * n_ports)

    # A full matrix: rows and columns are added up as they are.
    lengths = ticks
    if problem.min_slot_ticks > 1:
        lengths = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
    busy_ticks = np.concatenate([lengths.sum(axis=1), lengths.sum(axis=0)])
    n_partners = np.concatenate([np.count_nonzero(ticks, axis=1), np.count_nonzero(ticks, axis=0)])
    return busy_ticks, n_partners


def _bound_together(problem: Demand) -> float:
    r"""Bound the objective from below by the length and the number of all slots together.

    A *line* is all that one port sends, or all that it receives. A slot connects ports in pairs
    for some time, with a delay :math:`\delta` before it. All slots together last :math:`D` ticks
    or more, the sum of the busiest line, and there are :math:`K` slots or more, the most partners
    that a port has. Example: one port has to send for 10 ticks, another one to 5 partners. If all
    circuits stop in delays of 2 ticks, the demand takes :math:`10 + 5 \cdot 2 = 20` ticks.

    With :math:`s` switches side by side (planes) the objective is at least

    - :math:`K`, if the number of slots is minimised (``"matchings"``);
    - :math:`\lceil (D + K \delta) / s \rceil` ticks, if all circuits stop at each change
      (``"all-stop"``);
    - :math:`\lceil C / s \rceil` ticks, if circuits that stay go on (``"per-circuit"``), where
      :math:`C` is as below, and 0 unless ports are bidirectional.

    If ports are bidirectional, at most :math:`k = \lfloor n / 2 \rfloor` pairs of the :math:`n`
    ports with demand have circuits at once. There are :math:`m` pairs with :math:`T` ticks in all.
    Hence :math:`D \ge \lceil T / k \rceil` and :math:`K \ge \lceil m / k \rceil`. With per-circuit
    switching each pair takes its ports for a delay, too: :math:`C = \lceil (T + m \delta) / k
    \rceil`.

    Each entry counts the shortest slot at least. The bound is a number of slots with objective
    ``"matchings"``, else seconds; 0 if there is no demand, or if a packet network may carry a part
    of it.
    """
    ticks = problem.ticks
    delay_ticks = problem.delay_ticks
    if problem.packet_share > 0:
        return 0.0

    # The durations and the number of all slots, by the busiest lines.
    line_ticks, n_partners = _line_sums(problem)
    busy_ticks = int(line_ticks.max(initial=0))
    n_slots = int(n_partners.max(initial=0))
    if not n_slots:
        return 0.0
    per_circuit_ticks = 0
    if problem.fabric.bidirectional:
        # Each pair once, for one shortest slot at least; -(-a // b) is a / b rounded up.
        lengths = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
        pair_ticks = lengths[np.triu(lengths) > 0]
        total_ticks = int(pair_ticks.sum())
        n_pairs = len(pair_ticks)
        n_busy_ports = int(np.count_nonzero(ticks.any(axis=0)))
        most_circuits = n_busy_ports // 2
        busy_ticks = max(busy_ticks, -(-total_ticks // most_circuits))
        n_slots = max(n_slots, -(-n_pairs // most_circuits))
        per_circuit_ticks = -(-(total_ticks + n_pairs * delay_ticks) // most_circuits)

    if problem.objective == "matchings":
        return float(n_slots)
    bound_ticks = per_circuit_ticks
    if problem.switching == "all-stop":
        bound_ticks = busy_ticks + n_slots * delay_ticks
    return float(-(-bound_ticks // problem.planes) * problem.tick_s)


def _bound_line_with_packets(entries: NDArray[np.int64], problem: Demand) -> float:
    """Bound one line beside a packet network, over all numbers of partners that get circuits.

    A line is a source or a destination with all its entries, in ticks; its sum is S. If the k
    largest entries get circuits on s of the planes, each plane spends a delay for each of its
    partners, and circuits and packets together carry S: (S + max(k, s) delays) / (s + r) ticks,
    where packets carry r ticks of a circuit in a tick. The other entries are left to packets
    alone, and take their sum / r. The later end of both counts, and the best k.
    """
    packet_share = problem.packet_share
    planes = problem.planes
    total = int(entries.sum())

    # With circuits for the k largest entries, packets carry the others: by_packets[k]. As many
    # planes are used as there are partners, or all of them. (In floats, as a sum of delays may
    # have more digits than int64.)
    largest_first = np.sort(entries)[::-1]
    by_packets = total - np.concatenate([[0], np.cumsum(largest_first)])
    n_partners = np.arange(len(by_packets), dtype=np.float64)
    delay_ticks = problem.delay_ticks
    used_planes = np.minimum(n_partners, planes)
    on_used = (total + n_partners * delay_ticks) / (used_planes + packet_share)
    n_delays = np.maximum(n_partners, planes)
    on_all = (total + n_delays * delay_ticks) / (planes + packet_share)
    by_circuits = np.minimum(on_used, on_all)
    return float(np.maximum(by_circuits, by_packets / packet_share).min())


def check_groups(problem: Demand) -> None:
    """Check the groups of a demand, their weights and their deadlines.

    A *group* (coflow) is a set of entries of the demand that belong to one task: it is complete
    when all of them are sent. Only the objective ``"weighted-completion-s"`` knows groups.

    Parameters
    ----------
    problem
        A demand with any objective. The fields that are read here:

        - ``demand_bytes[source, destination]``: the bytes of each entry;
        - ``groups[source, destination]``: the group of the entry, from 0, or -1 for none. The
          whole field is None if there are no groups;
        - ``weights``, ``deadlines_s``: a number for each group, or empty;
        - ``objective``, ``planes``, ``switching``, ``packet_bytes_per_s``, ``fabric``: groups are
          defined only for one switch all of whose circuits stop at each change.

    Raises
    ------
    InputError
        If groups, weights or deadlines are given for another objective, if groups are missing or
        do not fit the demand, or if the switch is not one that groups are defined for.
    """
    groups = problem.groups

    # Groups are of one objective alone.
    if problem.objective != "weighted-completion-s":
        if groups is not None or problem.weights or problem.deadlines_s:
            raise InputError(
                "groups, weights and deadlines_s are for objective weighted-completion-s",
                where="objective",
            )
        return

    # Each entry of the demand belongs to one group.
    if groups is None or groups.shape != problem.demand_bytes.shape:
        raise InputError("groups: a group for each entry of demand_bytes", where="groups")
    if (
        problem.planes > 1
        or problem.packet_bytes_per_s > 0
        or problem.switching != "all-stop"
        or problem.fabric.bidirectional
    ):
        raise InputError(
            "objective weighted-completion-s is for all-stop circuits from inputs to outputs, on"
            " one plane, without packet network",
            where="objective",
        )
    # Each entry with bytes has a group, and groups are numbered from 0.
    refuse_entries(
        "groups",
        (problem.demand_bytes > 0) & (groups < 0),
        lambda *_place: " = -1: the entry of demand_bytes has no group",
    )
    n_groups = int(groups.max(initial=-1)) + 1
    if n_groups > groups.size:
        raise InputError(f"groups: number {n_groups - 1} of {groups.size} entries", where="groups")

    # Weights and deadlines are given for all groups, or for none.
    for name in ("weights", "deadlines_s"):
        check_length(name, getattr(problem, name) or None, n_groups, "groups")

    # No schedule need take longer than one entry after another; weights times that time, summed
    # over all groups, have to fit a number.
    n_entries = int(np.count_nonzero(problem.demand_bytes))
    longest_ticks = float(problem.ticks.sum(dtype=float)) + n_entries * problem.delay_ticks
    weights, _ = weigh_groups(problem)
    for group, weight in enumerate(weights.tolist()):
        if not weight * n_groups * longest_ticks * float(problem.tick_s) < inf:
            raise InputError(
                f"weights[{group}] = {weight:g}: times the seconds of the whole demand it is more"
                " than a number can hold",
                where=f"weights[{group}]",
            )


def weigh_groups(problem: Demand) -> tuple[NDArray[np.float64], tuple[float, ...]]:
    """Return weight and deadline in ticks of each group, 1 and 0 where none are given."""
    assert problem.groups is not None
    n_groups = int(problem.groups.max(initial=-1)) + 1
    weights = np.array(problem.weights or (1.0,) * n_groups)
    return weights, problem.due_ticks or (0.0,) * n_groups


def load_lines(problem: Demand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sum the ticks of circuits and the ticks of delays of each group on each line.

    There is one delay for each entry; both arrays have shape (groups, 2 * ports), for sources,
    then destinations.
    """
    n_ports = problem.fabric.n_ports
    weights, _ = weigh_groups(problem)
    shape = (len(weights), 2 * n_ports)
    served = np.zeros(shape, dtype=np.int64)
    delayed = np.zeros(shape, dtype=np.int64)
    sources, destinations = np.nonzero(problem.ticks)
    assert problem.groups is not None
    group = problem.groups[sources, destinations]

    # Each entry loads its source, and its destination, whose number comes after all sources.
    for line in (sources, n_ports + destinations):
        np.add.at(served, (group, line), problem.ticks[sources, destinations])
        np.add.at(delayed, (group, line), problem.delay_ticks)
    return served, delayed


def bound_groups(problem: Demand) -> float:
    """Bound from below the weighted lateness of the groups of a demand in any schedule.

    The bound is that of a relaxation in which each port serves its own groups, whatever other
    ports do (`order_groups`).
    """
    weights, due = weigh_groups(problem)
    served, delayed = load_lines(problem)
    _, bound_ticks = order_groups(served, delayed, weights, due)
    return bound_ticks * float(problem.tick_s)


def order_groups(
    served: NDArray[np.int64],
    delayed: NDArray[np.int64],
    weights: NDArray[np.float64],
    due: Sequence[float],
) -> tuple[list[int], float]:
    """Order groups of transfers to be late as little as possible, and bound what any order costs.

    A *group* (coflow) is complete when all of its transfers are. Its cost is its weight times the
    time from its deadline to its completion. A *line* is a port that sends or one that receives.
    A line serves one group at a time; time is counted in ticks.

    This is the concurrent open shop problem: each group needs some time of every machine, and is
    complete when the last machine has served it. Here a machine is a pair of lines: the ticks of
    circuits on the first line and the delays on the second one, which may be the same line.

    While there are more than `EXACT_GROUPS` groups, the primal-dual rule of [1]_ finds the last
    one:

    1. Take the machine that all remaining groups need for the longest time.
    2. The last group is the one with the smallest quotient of its weight and its time there. This
       quotient is the price of a tick.
    3. Each group pays a part of its weight, the price times its time on the machine; the last
       group pays all that it has. Groups whose weights are such payments cost the same in every
       order, ``price * (T**2 + sum(t**2)) / 2`` for times t of sum T, less the price times the
       deadlines. This is added to the bound.
    4. If the last group costs more than that even when it is served alone, its own cost is added
       instead, and no group pays.

    The groups that are left are put in the best order for the rest of their weights, by dynamic
    programming over sets, and its cost is added to the bound.

    As an example of one step, two groups of weight 1 need 2 and 6 ticks of one machine and have no
    deadlines. The second one has the smaller weight for each tick, 1/6, and comes last. Both pay
    1/6 for each tick, together 1/6 * (64 + 40) / 2 = 8 2/3. The first one has 2/3 of its weight
    left and costs 2/3 * 2 more. The bound is 10, which is the cost of this order: 2 + 8.

    Parameters
    ----------
    served : array of int, shape (groups, lines)
        Ticks of circuits that each group needs on each line: sources, then destinations.
    delayed : array of int, shape (groups, lines)
        Ticks of delays that it needs there: one delay for each of its entries.
    weights : array, shape (groups,)
        The cost of a tick of lateness.
    due : sequence of int or float, shape (groups,)
        The deadlines in ticks.

    Returns
    -------
    order : list of int
        The groups, the first one first.
    bound : float
        The weighted lateness of no order is less: weights times ticks.

    References
    ----------
    .. [1] Mastrolilli, Queyranne, Schulz, Svensson and Uhan (2010), Minimizing the sum of weighted
       completion times in a concurrent open shop, doi 10.1016/j.orl.2010.04.011.
    """
    unpaid_weights = weights.astype(np.float64)
    # Sums of squares and of deadlines may be equal but for the last of forty digits: they are of
    # Python integers, of whole ticks and of the parts of a tick apart.
    due_ticks = np.array(due, dtype=np.float64)
    whole_due = np.array([floor(ticks) for ticks in due], dtype=np.object_)
    part_due = due_ticks % 1
    bound = 0.0
    unordered = np.arange(len(weights))
    served_together = served.sum(axis=0)  # by line, of the groups without an order
    delayed_together = delayed.sum(axis=0)
    last_first: list[int] = []
    while len(unordered) > EXACT_GROUPS:
        # The busiest machine: a line for circuits, and one for delays, perhaps another.
        busiest_served = served_together.argmax()
        busiest_delayed = delayed_together.argmax()
        times = served[unordered, busiest_served] + delayed[unordered, busiest_delayed]

        # The group of the smallest weight for each tick comes last. Groups that do not use the
        # machine cannot pay for it.
        prices = np.full(len(unordered), np.inf)
        np.divide(unpaid_weights[unordered], times, out=prices, where=times > 0)
        place = int(prices.argmin())
        group = unordered[place]
        price = prices[place] if times.any() else 0.0

        # All groups pay the price for their time on the machine, the last one with all its weight.
        # One machine has the same cost in every order if weights are proportional to times.
        ticks = times.astype(np.object_)
        twice_the_cost = ticks.sum() ** 2 + (ticks**2).sum()
        twice_late = twice_the_cost - 2 * (ticks @ whole_due[unordered])
        payment = price * (twice_late / 2 - times @ part_due[unordered])
        own_time = served[group].max() + delayed[group].max()
        own_cost = unpaid_weights[group] * max(0.0, own_time - due_ticks[group])
        if payment >= own_cost:
            paid = price * times
            unpaid_weights[unordered] = np.maximum(unpaid_weights[unordered] - paid, 0.0)
        bound += float(max(payment, own_cost))
        last_first.append(int(group))
        unordered = np.delete(unordered, place)
        served_together -= served[group]
        delayed_together -= delayed[group]

    order, cost = _order_exactly(
        served[unordered], delayed[unordered], unpaid_weights[unordered], due_ticks[unordered]
    )
    first_groups = unordered[order].tolist()
    return [*first_groups, *reversed(last_first)], bound + cost


def _order_exactly(
    served: NDArray[np.int64],
    delayed: NDArray[np.int64],
    weights: NDArray[np.float64],
    due: NDArray[np.float64],
) -> tuple[list[int], float]:
    """Find the best order of few groups, and its cost, by dynamic programming over sets.

    ``served[group, line]`` and ``delayed[group, line]`` are the ticks for which a group keeps a
    line busy, with its data and with delays. ``weights[group]`` times the ticks after
    ``due[group]`` is the cost of a group; the order lists groups, the first one first. This is the
    method of Held and Karp. The last group of an order ends after the data of all its groups on
    the line with most of them, and their delays on the line with most of these, perhaps another:
    the sum of both is the same in every order. The cost of a set of groups is the least, over
    the choice of the last one, of the cost of the others in their best order plus the cost of the
    last one. Sets are numbers: group k is in set s if bit k of s is 1; for example, set 5 has the
    groups 0 and 2.
    """
    n_groups = len(weights)
    n_sets = 1 << n_groups

    # ``end[set]``: when the last group of a set ends, whichever it is.
    end = _busiest_line_of_sets(served) + _busiest_line_of_sets(delayed)
    lateness = np.maximum(end - due[:, None], 0.0)
    cost_if_last = weights[:, None] * lateness  # [group, set]

    # By set of groups the least weighted lateness, and the group that is then last.
    best_cost = np.full(n_sets, np.inf)
    last_group = np.zeros(n_sets, dtype=np.int64)
    best_cost[0] = 0.0
    sets = np.arange(n_sets)

    # After round k, sets of k groups have their final costs.
    for _ in range(n_groups):
        for group in range(n_groups):
            (sets_with_group,) = np.nonzero(sets >> group & 1)

            # A set with the group, less the group, was settled in an earlier round.
            sets_without = sets_with_group ^ (1 << group)
            cost = best_cost[sets_without] + cost_if_last[group, sets_with_group]
            is_better = cost < best_cost[sets_with_group]
            improved_sets = sets_with_group[is_better]
            best_cost[improved_sets] = cost[is_better]
            last_group[improved_sets] = group

    # From the set of all groups back to the empty one.
    last_first: list[int] = []
    remaining = n_sets - 1
    while remaining:
        group = int(last_group[remaining])
        last_first.append(group)
        remaining ^= 1 << group
    return last_first[::-1], float(best_cost[-1])


def _busiest_line_of_sets(load: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each set of groups the load of its busiest line, from ``load[group, line]``.

    Bit k of a set is 1 if group k is in it. The sums of all sets of the first groups double with
    each further group: first those without it, then those with it.
    """
    busiest = np.zeros(1 << len(load))
    for load_of_groups in load.T:
        sums = np.zeros(1)
        for load_of_group in load_of_groups:
            sums = np.concatenate([sums, sums + load_of_group])
        np.maximum(busiest, sums, out=busiest)
    return busiest
