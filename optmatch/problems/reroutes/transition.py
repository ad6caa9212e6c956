"""The answer to a failure: units that take over, every change in its order; and proofs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    BAR,
    CROSS,
    Axes,
    Given,
    Index,
    InputError,
    Range,
    Value,
    check_fields,
    given,
)
from optmatch.model.numbers import check_below

if TYPE_CHECKING:
    from optmatch.fabrics import Fabric

DROP = 0
SET = 1
RAISE = 2
"""The kinds of steps: a circuit goes dark, a cell is set, a circuit carries light again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transition(Value):
    """How a running state gets over a failure.

    Parameters
    ----------
    moves
        ``moves[k] = lost, spare``: the chips of a rack, or the ports of a switch, whose circuits a
        spare takes over; int32, shape (moves, 2).
    changed
        The circuits whose ports or routes change, by number, ascending; int32, shape (changed,).
    circuits
        ``circuits[k] = source port, destination port`` of circuit ``changed[k]`` from now on.
    routes
        ``routes[k]``: the way of circuit ``changed[k]``: the fibres it passes in a rack with ideal
        interposers, else the terminals at which it enters cells, in order.
    steps
        ``steps[k] = kind, circuit or cell, state``; int32, shape (steps, 3). `DROP` takes the
        light off a circuit, `SET` puts a cell in a state, `RAISE` gives a circuit light on its new
        route. The state is -1 for circuits.

    Raises
    ------
    InputError
        If shapes disagree, or a step is of no known kind.

    See Also
    --------
    Reroute : The problem that it answers.
    Rerouter : Proposes and applies transitions.

    Examples
    --------
    >>> nothing = Transition(moves=[], changed=[], circuits=[], routes=[], steps=[])
    >>> nothing.n_set
    0
    """

    moves: Annotated[Given[np.int32], Axes(2, 2), Range(0)] = given()
    changed: Annotated[Given[np.int32], Range(0)] = given()
    circuits: Annotated[Given[np.int32], Axes(2, 2), Range(0)] = given()
    routes: tuple[tuple[Index, ...], ...]
    steps: Annotated[Given[np.int32], Axes(2, 3)] = given()

    def __post_init__(self) -> None:
        """Check that changed circuits have ports and routes, and that kinds of steps are known."""
        check_fields(self)
        if not len(self.changed) == len(self.circuits) == len(self.routes):
            raise InputError(
                f"changed, circuits and routes have {len(self.changed)}, {len(self.circuits)} and"
                f" {len(self.routes)} entries"
            )
        for k, (kind, _, state) in enumerate(self.steps.tolist()):
            if kind not in (DROP, SET, RAISE):
                raise InputError(f"steps[{k}, 0] = {kind}: kinds are 0, 1, 2", where="steps")
            if state not in ((BAR, CROSS) if kind == SET else (-1,)):
                raise InputError(f"steps[{k}, 2] = {state}: no state of that step", where="steps")

    @property
    def n_set(self) -> int:
        """The number of cells that are set."""
        return int(np.count_nonzero(self.steps[:, 0] == SET))

    def summary(self) -> str:
        """Return the changes in one line.

        Returns
        -------
        str
            The units that move, and the numbers of circuits, cells and steps.

        Examples
        --------
        >>> Transition(moves=[[3, 60]], changed=[4], circuits=[[0, 1]], routes=[[7]],
        ...            steps=[[2, 4, -1]]).summary()
        '3 to 60: 1 circuits change, 0 cells are set, 1 steps'
        """
        moves = ", ".join(f"{lost} to {spare}" for lost, spare in self.moves.tolist())
        return (
            f"{moves or 'nobody moves'}: {len(self.changed)} circuits change,"
            f" {self.n_set} cells are set, {len(self.steps)} steps"
        )

    def describe(self, fabric: Fabric | None = None) -> list[str]:
        """Return the steps in words, one line each.

        Parameters
        ----------
        fabric
            Its cells and ports are called by the names that somebody gave them, as in a netlist.
            None: all have their numbers.

        Returns
        -------
        list of str
            A line for each step, in their order.

        Examples
        --------
        >>> Transition(moves=[], changed=[4], circuits=[[0, 1]], routes=[[7]],
        ...            steps=[[1, 9, 0], [2, 4, -1]]).describe()
        ['set cell 9 to bar', 'set up circuit 4: port 0 to port 1']
        """
        graph = None if fabric is None else fabric.graph
        names: Sequence[str] = () if fabric is None else fabric.labels
        ports_of_circuit = dict(zip(self.changed.tolist(), self.circuits.tolist(), strict=True))
        lines = []
        for kind, number, state in self.steps.tolist():
            if kind == SET:
                state_name = "cross" if state == CROSS else "bar"
                cell_name = f"cell {number}" if graph is None else graph.describe_cell(number)
                lines.append(f"set {cell_name} to {state_name}")
                continue

            # A circuit goes up or down; one that goes up is named by its ports.
            verb = "set up" if kind == RAISE else "take down"
            line = f"{verb} circuit {number}"
            if kind == RAISE and number in ports_of_circuit:
                source, destination = ports_of_circuit[number]
                if names:
                    source = names[source]
                    destination = names[destination]
                line += f": port {source} to port {destination}"
            lines.append(line)
        return lines

    def check_fits(self, problem: Any) -> None:
        """Refuse a repair that names units, circuits, ports or fibres that do not exist.

        Only numbers are compared here; whether light gets where it should is for the verifier to
        say.
        """
        n_circuits = len(problem.circuits)
        check_below("moves", self.moves, problem.n_units, problem.units.unit_name)
        check_below("changed", self.changed, n_circuits, "circuit")
        check_below("circuits", self.circuits, problem.fabric.n_ports, "port")

        # Light in a rack with ideal interposers passes fibres; elsewhere it enters cells.
        if problem.fabric.graph is None:
            n_parts = problem.units.n_fibres
            part = "fibre"
        else:
            n_parts = 4 * problem.fabric.n_cells
            part = "terminal"
        for k, route in enumerate(self.routes):
            check_below(f"routes[{k}]", route, n_parts, part)

        # Each row of steps is a kind, a cell (`SET`) or a circuit (`DROP`, `RAISE`), and a state.
        # Only circuits that change have a new route on which they can be raised.
        kind_of_step = self.steps[:, 0]
        part_of_step = self.steps[:, 1]
        cells = part_of_step[kind_of_step == SET]
        dropped = part_of_step[kind_of_step == DROP]
        raised = part_of_step[kind_of_step == RAISE]
        check_below("steps", cells, problem.fabric.n_cells, "cell", at_least=0)
        check_below("steps", dropped, n_circuits, "circuit", at_least=0)
        unchanged = np.setdiff1d(raised, self.changed)
        if len(unchanged):
            raise InputError(
                f"steps: circuit {unchanged[0]} is raised, and not changed", where="steps"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutProof(Value):
    """Servers that more circuits must leave than live fibres lead out, whichever spare is taken.

    Parameters
    ----------
    servers
        The servers on one side of the cut; int32, ascending.

    See Also
    --------
    BlockProof : The same for chips and broken cells.

    Notes
    -----
    The reader counts. Circuits between units that stay and lie on both sides must cross. A lost
    unit with a spare inside must send to all its partners outside, with a spare outside it must be
    sent to by all its partners inside; the cheapest choice, with as many inside as there can be,
    is what must cross at least. Circuits between two lost units are left out.

    Examples
    --------
    >>> CutProof(servers=[3]).servers.tolist()
    [3]
    """

    servers: Annotated[NDArray[np.int32], Range(0)]

    def __post_init__(self) -> None:
        """Check that there are servers, and that they ascend."""
        check_fields(self)
        if len(self.servers) == 0 or (np.diff(self.servers) <= 0).any():
            raise InputError("servers: at least one, ascending", where="servers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockProof(Value):
    """Chips of a rack with cells that more circuits must leave than waveguides lead away.

    Parameters
    ----------
    chips
        Chips that are not lost; int32, ascending.
    links
        Waveguides, by their numbers without faults, each of which one circuit can use: without
        them no light gets from a transmitter of these chips to a receiver of any, whatever state
        the cells that work are in; int32, ascending.
    leaving
        True if it is about light from the chips; False if it is about light to them, from any.

    See Also
    --------
    CutProof : The same for servers and broken fibres.

    Notes
    -----
    The reader follows light in all states of the cells, and counts: the chips have more circuits
    than there are links.

    Examples
    --------
    >>> BlockProof(chips=[3], links=[], leaving=True).chips.tolist()
    [3]
    """

    chips: Annotated[NDArray[np.int32], Range(0)]
    links: Annotated[NDArray[np.int32], Range(0)]
    leaving: bool

    def __post_init__(self) -> None:
        """Check that chips and links ascend."""
        check_fields(self)
        for name in ("chips", "links"):
            if (np.diff(getattr(self, name)) <= 0).any():
                raise InputError(f"{name}: ascending", where=name)
