"""A rail plan that a controller can execute: an order of events, and no times at which they begin.

A *trigger* is one change of circuits of a rail, which its controller makes as one; the rail is in
*state* s after its first s triggers. The *place* of an operation or a trigger is its number in one
total order of all of them. A communication that changes circuits while it is under way *pauses*:
it has *parts*, counted from 0, and the *share* of a pause says how much of it is over then. A
*relay* is a rank that forwards data, with the ports that it forwards them over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    CROSS,
    FREE,
    IDLE,
    Axes,
    Count,
    Index,
    InputError,
    Positive,
    Range,
    Value,
    check_fields,
)
from optmatch.model.numbers import check_below, check_length, refuse_entries
from optmatch.model.schedule import check_matchings
from optmatch.problems.rails.execution.plan import ChordRoutes

Rows = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailTriggers(Value):
    """The order for the controller of one rail.

    Parameters
    ----------
    ranks
        Its ranks, ascending: ports are counted in this order, as in a `RailTimeline`.
    circuits
        ``circuits[transmit port] = receive port`` when the step begins, -1 where idle; int32.
    fallback
        The fall-back state, written in the same way: a ring over all ranks, in which all that is
        sent can be forwarded; None where there are cells.
    place
        ``place[trigger]``: the place of each change of circuits in the order of the plan, see
        `TriggerPlan`, ascending; int32. State s of the rail is the state after the first s of
        them.
    changes
        ``changes[row] = transmit port, receive port, trigger`` of all ports that change, by
        trigger; -1 where a port only gives up its circuit; int32, shape (rows, 3). After the last
        trigger the circuits are those of the beginning.
    after
        ``after[row] = rank, group, n, part, ago, trigger``: what has to be over, since it goes
        over the circuits that are given up; int32, shape (rows, 6). The n-th communication of a
        group at a rank is counted in program order, from 1; parts from 0. `ago` is 0 for the same
        step, 1 for the step before; before the first step everything is over.
    wanted
        ``wanted[row] = rank, group, n, trigger``: what has to be ready at these ranks, too, where
        circuits are changed on demand, as it is the first that needs the new ones; int32, shape
        (rows, 4).
    needs
        ``needs[row] = rank, group, n, part, state, ago``: a rank sends this part of its n-th
        communication of a group when the controller has confirmed the state, of the same step or
        of the one before; int32, shape (rows, 6).
    cell_states
        ``cell_states[state, cell]`` of fabrics with cells.
    """

    rail: Index
    ranks: tuple[Index, ...]
    circuits: Annotated[NDArray[np.int32], Axes(1), Range(IDLE)]
    fallback: Annotated[NDArray[np.int32], Axes(1), Range(IDLE)] | None = None
    place: Annotated[NDArray[np.int32], Axes(1), Range(0)]
    changes: Annotated[NDArray[np.int32], Axes(2, 3), Range(IDLE)]
    after: Annotated[NDArray[np.int32], Axes(2, 6), Range(0)] = field(
        default_factory=lambda: np.empty((0, 6), np.int32)
    )
    wanted: Annotated[NDArray[np.int32], Axes(2, 4), Range(0)] = field(
        default_factory=lambda: np.empty((0, 4), np.int32)
    )
    needs: Annotated[NDArray[np.int32], Axes(2, 6), Range(0)] = field(
        default_factory=lambda: np.empty((0, 6), np.int32)
    )
    cell_states: Annotated[NDArray[np.int8], Axes(2), Range(FREE, CROSS)] | None = None

    def __post_init__(self) -> None:
        """Check the order of tables, and that states are matchings, the last like the first.

        Numbers of triggers have to exist and may not fall from row to row; after the last change
        the circuits are those of the beginning.

        Raises
        ------
        InputError
            Naming the table and the first wrong row.
        """
        check_fields(self)
        check_length("fallback", self.fallback, len(self.circuits), "ports")
        if self.fallback is not None:
            check_matchings(self.fallback[None])

        # The last column of these tables is the number of a trigger, which has to exist.
        for name in ("changes", "after", "wanted"):
            trigger_of_row = getattr(self, name)[:, -1]
            check_below(name, trigger_of_row, len(self.place), "trigger", at_least=0)

        # Places ascend. The rows of a trigger stand together: its number may not fall.
        not_ascending = {
            "place": np.diff(self.place, prepend=-1) <= 0,
            "changes": np.diff(self.changes[:, 2], prepend=0) < 0,
        }
        for name, is_wrong in not_ascending.items():
            refuse_entries(name, is_wrong, lambda _row: " is not after the one before")

        # After the last trigger the circuits are those that the step begins with. For each row of
        # changes: its trigger, its transmit port, and the receive port before and after it.
        check_matchings(self.circuits[None])
        trigger, sends, old, new = self.turns()
        ended = self.circuits.copy()
        ended[sends] = new  # the last of several entries stays
        if not np.array_equal(ended, self.circuits):
            raise InputError("changes: the last state is not the first", where="changes")

        # Two circuits may never lead to one receive port. The circuits to port p are counted in
        # entry p + 1, trigger by trigger; entry 0 is of circuits that lead nowhere.
        n_circuits_to = np.bincount(self.circuits + 1, minlength=len(self.circuits) + 1)
        bounds = np.searchsorted(trigger, np.arange(len(self.place) + 1)).tolist()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            np.subtract.at(n_circuits_to, old[begin:end] + 1, 1)
            np.add.at(n_circuits_to, new[begin:end] + 1, 1)
            lit = new[begin:end][new[begin:end] != IDLE]
            for port in lit[n_circuits_to[lit + 1] > 1][:1].tolist():
                raise InputError(
                    f"changes: after trigger {number} two circuits lead to receive port {port}",
                    where="changes",
                )

    def turns(self) -> tuple[Rows, Rows, Rows, Rows]:
        """Return (trigger, transmit port, old receive port, new receive port) by row of `changes`.

        A receive port is -1 where there is no circuit. Raises `InputError` for ports that do not
        exist, or that are there twice in a trigger.
        """
        sends, new, trigger = self.changes.T
        ports = len(self.circuits)
        refuse_entries(
            "changes",
            (sends < 0) | (np.maximum(sends, new) >= ports),
            lambda row: f" = {self.changes[row].tolist()}: ports are from 0 to {ports - 1}",
        )

        # By transmit port, in the order of triggers: a change replaces the one before it at its
        # port, and the first one the circuit that the step begins with. `again` is true of all
        # rows but the first of each port.
        order = np.lexsort((trigger, sends))
        again = np.diff(sends[order], prepend=-1) == 0
        refuse_entries(
            "changes",
            again & (np.diff(trigger[order], prepend=-1) == 0),
            lambda _row: ": a port of a trigger is there twice",
            entries=order,
        )
        old = np.empty_like(new)
        old[order] = np.where(again, np.roll(new[order], 1), self.circuits[sends[order]])
        return trigger, sends, old, new

    def split(self, rows: Rows) -> list[Rows]:
        """Split a table by the triggers in its last column: one table for each trigger."""
        # Sorted by trigger, the table is cut before the first row of each trigger and behind the
        # last one; what is before trigger 0 and behind the last trigger is empty.
        rows = rows[np.argsort(rows[:, -1], kind="stable")]
        return np.split(rows, np.searchsorted(rows[:, -1], np.arange(len(self.place) + 1)))[1:-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TriggerPlan(Value):
    """An order of states for each rail, in which each waits for communications, not for times.

    One order of all operations and triggers tells which waits for which: over each port they
    come in this order, step after step. However long anything takes, no circuit is changed while
    data go over it, and nothing waits for itself.

    Parameters
    ----------
    place
        ``place[operation]``: its place in the order, in which all triggers have one, too. Ports
        serve what they send in this order; int32, by the operations of ``job.step()``.
    ports, relays, chords, pooled
        As in a `RailPlan`. With pooled rails the controller of a rail waits for communications of
        GPUs of all rails of a server, and a rank for the controllers of all rails that it uses.
    lasts_s
        ``lasts_s[operation]``: how long it is expected to last with its circuits there, in
        seconds; by operation.
    pauses
        ``pauses[row] = rank, group, n, state``: a communication that changes circuits while it is
        under way waits for this state; int32, shape (rows, 4). One of its ranks is named.
    shares
        ``shares[row]``: how much of it is over then, from 0 to 1; rows of one communication with
        the same share end the same part of it.
    timeout_s
        After so long without an answer a message is sent again.
    tries
        After so many messages without an answer a rail goes to its fall-back state.
    """

    groups: tuple[str, ...]
    rails: tuple[RailTriggers, ...]
    place: Annotated[NDArray[np.int32], Axes(1), Range(0)]
    ports: Annotated[NDArray[np.int32], Axes(1), Range(0)]
    lasts_s: Annotated[NDArray[np.float64], Axes(1), Range(0)]
    relays: Annotated[NDArray[np.int32], Axes(2, 3), Range(0)] = field(
        default_factory=lambda: np.empty((0, 3), np.int32)
    )
    pauses: Annotated[NDArray[np.int32], Axes(2, 4), Range(0)] = field(
        default_factory=lambda: np.empty((0, 4), np.int32)
    )
    shares: Annotated[NDArray[np.float64], Axes(1), Range(0, 1)] = field(
        default_factory=lambda: np.empty(0, np.float64)
    )
    timeout_s: Positive = 0.1
    tries: Count = 5
    chords: tuple[ChordRoutes, ...] = field(default=(), metadata={"brief": True})
    pooled: bool = field(default=False, metadata={"brief": True})

    def __post_init__(self) -> None:
        """Check that columns have equal lengths, and that no rail is there twice."""
        check_fields(self)
        check_length("ports", self.ports, len(self.place), "operations")
        check_length("lasts_s", self.lasts_s, len(self.place), "operations")
        check_length("shares", self.shares, len(self.pauses), "pauses")
        numbers = [rail.rail for rail in self.rails]
        if len(set(numbers)) < len(numbers):
            repeated = next(rail for rail in numbers if numbers.count(rail) > 1)
            raise InputError(f"rails: rail {repeated} is there twice", where="rails")
