"""The state of a rolling schedule, as a value and as a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.control.demands.flows import Counts, Flow, FlowQueue, Place, Urgency, Waiting
from optmatch.fabrics import Fabric
from optmatch.io.fields import check_format, from_object, to_object
from optmatch.io.text import layout, parse_json, read_bytes
from optmatch.model import CROSS, FREE, IDLE, InputError
from optmatch.model.declarations import Amount, Axes, Count, Index, Positive, Range, check_fields
from optmatch.model.errors import naming
from optmatch.model.files import check_target, path_name, replace_file
from optmatch.model.numbers import check_length, check_size
from optmatch.model.schedule import Switching, check_matchings

TICKS_PER_S = 10**15

_FORMAT = "optmatch/rolling-schedule/1"


@dataclass(frozen=True, eq=False)
class Committed:
    """A slot that is not over yet, in ticks."""

    plane: Index
    """The number of the plane that holds it."""
    matching: NDArray[np.int32]
    """(n,): the destination of each source, -1 where idle."""
    kept: NDArray[np.int32]
    """The circuits that carry from `start` on, -1 for others."""
    start: Index
    """When the slot before has ended."""
    light: Index
    """When all circuits carry: a delay later if any of them is new."""
    end: Index
    """When the slot has ended."""

    def __post_init__(self) -> None:
        """Check all fields; the circuits that are kept are those of as many ports."""
        check_fields(self)
        check_length("kept", self.kept, len(self.matching), "ports")

    @property
    def times_s(self) -> tuple[float, float, float]:
        """Start, light and end in seconds."""
        return self.start / TICKS_PER_S, self.light / TICKS_PER_S, self.end / TICKS_PER_S

    def circuits(self) -> Iterator[tuple[Place, int]]:
        """Name each circuit, and from when on it carries."""
        for source, destination in enumerate(self.matching.tolist()):
            if destination != IDLE:
                kept = self.kept[source] != IDLE
                yield (source, destination), self.start if kept else self.light


@dataclass(frozen=True, eq=False)
class RollingState:
    """All that a rolling schedule needs to go on; times and demands are in ticks."""

    # The first fields, up to `packet_bytes_per_s`, are parameters of `RollingSchedule`.
    fabric: Fabric
    delay_s: Amount
    rate_bytes_per_s: Positive = 1.0
    time_limit_s: Amount | None = 0.005
    aim: Literal["wait", "completion"] = "wait"
    planes: Count = 1
    switching: Switching = "all-stop"
    packet_bytes_per_s: Amount = 0.0
    now: Index = 0
    """The present tick."""
    next_demand: Index = 0
    """The number that the next demand gets."""
    n_slots: Index = 0
    """How many slots were committed so far."""
    waiting: tuple[tuple[Index, Index, Index], ...] = ()
    """Number, added and last served of each demand of which flows wait."""
    flows: tuple[tuple[Index, Index, Index, Index, Index], ...] = ()
    """Source, destination, demand, ticks and due of each flow, in the order they came."""
    done: tuple[Index, Index, Index, Index] = (0, 0, 0, 0)
    """Demands that are complete, their waits together, the longest one, the last completion."""
    weights: tuple[Positive, ...] = ()
    """The weight of each waiting demand, in the order of `waiting`; empty if all are 1."""
    deadlines: tuple[Index | None, ...] = ()
    """The deadline of each waiting demand, likewise; empty if none has one."""
    weighted_done: tuple[Amount, Amount] = (0.0, 0.0)
    """Of complete demands: their weights together, and their weights times waits."""
    deadlines_done: tuple[Index, Index] = (0, 0)
    """Of complete and lost demands: those that had a deadline, and those that missed it."""
    lost: tuple[Index, ...] = ()
    """The numbers of waiting demands of which a failed port has lost a part."""
    n_lost: Index = 0
    """Demands of which nothing waits, but a part was lost."""
    carried: tuple[Index, Index] = (0, 0)
    """The ticks of all that circuits and packets have carried, and of all that was lost."""
    # By plane: the last committed matching, shape (planes, n), the states of the cells, shape
    # (planes, cells), and the tick from which the plane is free. Then the slots that are not over.
    held: Annotated[NDArray[np.int32], Axes(2)] | None = None
    cell_states: Annotated[NDArray[np.int8], Axes(2), Range(FREE, CROSS)] | None = None
    free: tuple[Index, ...] = ()
    slots: tuple[Committed, ...] = ()
    plan_matchings: Annotated[NDArray[np.int32], Axes(2)] | None = None
    """Of the aim ``"completion"``: the matchings that are planned."""
    plan_ticks: tuple[Count, ...] = ()
    """How long each of them is held."""
    plan_outdated: bool = True
    """Whether demand has come or gone since the plan was made."""

    def __post_init__(self) -> None:
        """Check all fields, one by one and against each other; an `InputError` names one."""
        check_fields(self)
        check_size("ports", self.planes * self.fabric.n_ports, "planes")
        self._check_slots()
        self._check_matchings()
        self._check_flows()

    def _check_slots(self) -> None:
        """Refuse committed or planned slots that contradict themselves.

        Times have to ascend, planes to exist, and kept circuits to be in the matching; there is
        one free time for each plane, and one duration for each planned matching.
        """
        for slot in self.slots:
            if not slot.start <= slot.light <= slot.end or slot.plane >= self.planes:
                raise InputError("slots: times or planes out of range", where="slots")
            if ((slot.kept != IDLE) & (slot.kept != slot.matching)).any():
                raise InputError("slots: kept circuits are part of the matching", where="slots")
        check_length("free", self.free or None, self.planes, "planes")
        n_planned = 0 if self.plan_matchings is None else len(self.plan_matchings)
        check_length("plan_ticks", self.plan_ticks, n_planned, "planned matchings")

    def _check_matchings(self) -> None:
        """Refuse arrays of other shapes than the fabric has, and rows that are no matchings.

        ``held[plane, port]``, ``plan_matchings[row, port]`` and both rows of each slot have a
        receiving port or -1.
        """
        # Each array with the shape that it has to have.
        n_ports = self.fabric.n_ports
        arrays: list[tuple[str, NDArray[Any] | None, tuple[int, int]]] = [
            ("held", self.held, (self.planes, n_ports)),
            ("plan_matchings", self.plan_matchings, (len(self.plan_ticks), n_ports)),
            ("cell_states", self.cell_states, (self.planes, self.fabric.n_cells)),
        ]
        for slot in self.slots:
            arrays += [("slots", row[None], (1, n_ports)) for row in (slot.matching, slot.kept)]
        for name, array, shape in arrays:
            if array is None:
                continue
            if array.shape != shape:
                raise InputError(f"{name} has shape {array.shape}, not {shape}", where=name)
            if name != "cell_states":
                check_matchings(array)

    def _check_flows(self) -> None:
        """Refuse flows of unknown demands or ports, and demands without flows.

        Numbers of demands differ and are below the next one, weights or deadlines are one for each
        waiting demand, and each flow has ticks.
        """
        numbers = {number for number, _, _ in self.waiting}
        if len(numbers) < len(self.waiting) or any(k >= self.next_demand for k in numbers):
            raise InputError("waiting: numbers of demands are below the next one", where="waiting")
        if {flow[2] for flow in self.flows} != numbers:
            raise InputError("flows: each waiting demand has flows, and no other", where="flows")
        if not numbers.issuperset(self.lost):
            raise InputError("lost: a demand that does not wait", where="lost")

        # Weights and deadlines are of waiting demands; flows have ticks, and ports of the switch.
        for name in ("weights", "deadlines"):
            values = getattr(self, name) or None
            check_length(name, values, len(self.waiting), "waiting demands")
        for flow in self.flows:
            if max(flow[:2]) >= self.fabric.n_ports or not flow[3]:
                raise InputError(f"flows: {flow}: a port out of range, or no ticks", where="flows")

    def fill(self, queue: FlowQueue) -> None:
        """Put waiting flows, and the figures of complete demands, into an empty queue.

        This is the inverse of `now_with`. Without a list of weights all are 1.
        """
        # The statistics of complete demands: their number, the sum of their waits and the longest
        # one in ticks, the tick of the last completion; the sums by weight, and of deadlines.
        queue.completed, queue.wait, queue.longest_wait, queue.last_done = self.done
        queue.counts = Counts(*self.weighted_done, *self.deadlines_done)
        queue.n_lost = self.n_lost
        queue.carried, queue.lost = self.carried
        urgency_of_demand: dict[int, Urgency] = {}

        # A row of `waiting`: the demand, the tick at which it came, and that of its last
        # service.
        for row, (number, added, served) in enumerate(self.waiting):
            urgency = Urgency(
                self.weights[row] if self.weights else 1.0,
                self.deadlines[row] if self.deadlines else None,
            )
            urgency_of_demand[number] = urgency
            queue.waiting[number] = Waiting(added, served, urgency, has_lost=number in self.lost)
        for source, destination, demand, ticks, due in self.flows:
            place = (source, destination)
            queue.append(Flow(place, demand, ticks, due, *urgency_of_demand[demand]))

    def now_with(self, queue: FlowQueue, **changed: Any) -> RollingState:
        """Return this state with the flows and figures of a queue in place of its own.

        A list of weights is empty if all are 1, and one of deadlines if there are none. `changed`
        are the values of further fields.
        """
        # `waiting` maps the number of a demand to what the queue knows of it.
        demands = queue.waiting.values()
        weights = tuple(demand.urgency.weight for demand in demands)
        deadlines = tuple(demand.urgency.deadline for demand in demands)
        counts = queue.counts
        return replace(
            self,
            weights=() if set(weights) <= {1.0} else weights,
            deadlines=() if set(deadlines) <= {None} else deadlines,
            weighted_done=(counts.weight, counts.weighted_wait),
            deadlines_done=(counts.with_deadline, counts.late),
            lost=tuple(k for k, demand in queue.waiting.items() if demand.has_lost),
            n_lost=queue.n_lost,
            carried=(queue.carried, queue.lost),
            waiting=tuple((k, demand.added, demand.done) for k, demand in queue.waiting.items()),
            flows=tuple((*f.place, f.demand, f.ticks, f.due) for f in queue.flows()),
            done=(queue.completed, queue.wait, queue.longest_wait, queue.last_done),
            **changed,
        )


def write_state(path: str | os.PathLike[str], state: RollingState) -> None:
    """Write a state as JSON, replacing an earlier file."""
    tree = {"format": _FORMAT, **to_object(state)}
    replace_file(check_target(path, force=True), (layout(tree) + "\n").encode())


def read_state(path: str | os.PathLike[str]) -> RollingState:
    """Read a file that `write_state` has written."""
    with naming(path):
        tree = parse_json(read_bytes(path), path_name(path))
        check_format(tree, "", _FORMAT)
        return from_object(RollingState, tree, "", tags=("format",))
