"""How a failure of a running state is answered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.reroutes.records import (
    Record,
    add_failure,
    check_failure,
    drop_former_faults,
    find_joined_servers,
    unite,
)
from optmatch.fabrics.units import Reach, measure_reach
from optmatch.model import (
    Clock,
    InfeasibleError,
    LimitReached,
    Limits,
    OptMatchError,
    TimeUp,
    check_time,
    number,
)
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.problem import assess
from optmatch.problems.reroutes.running import FailedParts
from optmatch.problems.reroutes.transition import RAISE, SET

if TYPE_CHECKING:
    from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState
    from optmatch.solvers.reroutes.splice import RerouteSpace


class Stage(NamedTuple):
    """A part of a recovery."""

    name: str
    """What is done, with the number of cells or circuits."""
    start_s: float
    """Seconds from the failure."""
    end_s: float
    """The start of the next stage."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A way over a failure, for the state in which it was asked for."""

    state: Reroute
    """The state for which it was found."""
    failure: FailedParts
    """The parts that have failed, as they were reported."""
    transition: Transition
    """The changes that get around them."""
    restored: tuple[int, int] | None = None
    """The unit that gets its circuits back, and its stand-in."""
    decided_s: float = 0.0
    """Seconds that the answer took."""
    cut_off: tuple[int, ...] = ()
    """Chips of the failure that no caller named: all fibres of their server have failed."""

    def __repr__(self) -> str:
        """Say in one line what changes, and how long the answer took."""
        return f"<Proposal {self.transition.summary()}, decided in {1e3 * self.decided_s:.3g} ms>"

    def timeline(
        self,
        *,
        detect_s: float = 0.0,
        decide_s: float | None = None,
        program_s: float = 0.0,
        cell_s: float = 0.0,
        lock_s: float = 0.0,
        restart_s: float = 0.0,
    ) -> tuple[Stage, ...]:
        """List what happens from a failure until the job runs on, with times in seconds.

        The stages follow each other: detect, decide, set cells (2 x 2 switches), raise circuits,
        and so on, restart. Steps of one kind in a row are one stage, since they are done at the
        same time. In a fabric without cells, one stage programs the switches of all servers on the
        new routes.

        Parameters
        ----------
        detect_s
            Until the failure is reported; this and all times below in seconds.
        decide_s
            How long the answer takes; None for `decided_s`, what it took.
        program_s
            To send settings to the controllers of cells or switches.
        cell_s
            Until cells or switches have settled, in each round of settings.
        lock_s
            Until transceivers see each other on a new route.
        restart_s
            Until the job runs on: processes, communicators, a checkpoint.

        Returns
        -------
        tuple of Stage
            Name, start and end in seconds of each stage. The first starts at 0, the failure; each
            other one where the one before ends.
        """
        if decide_s is None:
            decide_s = self.decided_s
        set_s = number("program_s", program_s) + number("cell_s", cell_s)
        lock_s = number("lock_s", lock_s)
        durations = [
            ("detect", number("detect_s", detect_s)),
            ("decide", number("decide_s", decide_s)),
        ]
        if self.state.fabric.graph is None and len(self.transition.changed):
            durations.append(("program switches", set_s))

        # A step is a row (kind, number, state): steps of one kind in a row happen at once.
        for kind, group in groupby(self.transition.steps[:, 0].tolist()):
            n_steps = len(list(group))
            if kind == SET:
                durations.append((f"set cells ({n_steps})", set_s))
            elif kind == RAISE:
                durations.append((f"raise circuits ({n_steps})", lock_s))
            else:
                durations.append((f"drop circuits ({n_steps})", 0.0))
        durations.append(("restart", number("restart_s", restart_s)))

        # Each stage starts where the one before ends.
        stages = list[Stage]()
        now_s = 0.0
        for name, duration_s in durations:
            stages.append(Stage(name, now_s, now_s + duration_s))
            now_s += duration_s
        return tuple(stages)


class Snapshot(NamedTuple):
    """A record with all values derived from its state. It never changes: readers need no lock."""

    record: Record
    routing: RoutingState | None
    """The routes of the state; None where whole racks take over, and no light is routed."""
    reach: Reach | None
    """How far units are from each other; None where no light is routed."""
    spaces: list[RerouteSpace]
    """Workspaces that no search is in."""
    priorities: NDArray[np.int64]
    """``priorities[circuit]``: the priority of the job that owns it."""

    @property
    def state(self) -> Reroute:
        """The state, with all failures that were answered."""
        return self.record.state


def take_snapshot(
    record: Record, priorities: NDArray[np.int64], before: Snapshot | None = None
) -> Snapshot:
    """Make the snapshot of a record on which searches for answers to failures work.

    `before` is a snapshot of an earlier state of the same fabric, whose distances and workspaces
    are used again; None to compute them. Where light does not pass servers (``units.through``),
    whole racks take over, and there is no routing.
    """
    from optmatch.solvers.reroutes.routing_state import RoutingState

    if not record.state.units.through:
        return Snapshot(record, None, None, [], priorities)
    routing = RoutingState(record.state)
    if before is not None:
        return before._replace(record=record, routing=routing)
    reach = measure_reach(record.state.units, record.state.loss_units)
    return Snapshot(record, routing, reach, [], priorities)


def start_clock(deadline_s: float | None) -> Clock:
    """Start a clock that ends after so many seconds, or never."""
    time_s = None if deadline_s is None else number("deadline_s", deadline_s)
    return Limits(time_s=time_s).start()


def find_answer(
    snapshot: Snapshot, failure: FailedParts, clock: Clock
) -> Proposal | OptMatchError:
    """Search for the changes that keep all circuits alight after some parts have failed.

    There are two remedies. If a unit has failed, its circuits move to a spare unit. If a fibre or
    a cell has failed, the circuits that pass it get new routes. Parts of other pending failures
    are closed: nothing moves to them, and no new route passes them. Chips whose server loses its
    last fibres by this failure are cut off, and are replaced as if they had failed, too.

    The error that says that nothing helps or was found in time is returned, for the caller to
    raise; `InputError` is raised here if a part does not exist or has failed.
    """
    state = snapshot.state
    closed = snapshot.record.closed_to(failure)
    check_failure(state, failure)
    try:
        with clock.running():
            # A cell that was stuck and is now dead, for instance, is dead alone: its former fault
            # is dropped from the state, and the snapshot is made anew.
            current = drop_former_faults(state, failure)
            if current is not state:
                record = snapshot.record._replace(state=current)
                snapshot = take_snapshot(record, snapshot.priorities, snapshot)

            cut_off: tuple[int, ...] = ()
            if snapshot.routing is not None:
                cut_off = _find_cut_off_chips(current, failure, closed)
            chips = tuple(sorted({*failure.failed_chips, *cut_off}))
            failure = failure._replace(failed_chips=chips)
            transition = _search_transition(snapshot, failure, closed)
    except TimeUp:
        time_s = clock.limits.time_s
        if time_s is None:
            return LimitReached("no way was found until the search was interrupted")
        return LimitReached(f"no way was found within {time_s:g} s")
    except (InfeasibleError, LimitReached) as exc:
        return exc.with_traceback(None)
    return Proposal(state, failure, transition, decided_s=clock.elapsed_s, cut_off=cut_off)


def _search_transition(
    snapshot: Snapshot, failure: FailedParts, closed: FailedParts
) -> Transition:
    """Search for new routes and replacements once it is known what has failed.

    `closed` are parts of other pending failures, which no answer may use.

    Where light is routed through cells or fibres, a spare unit replaces each lost one, and the
    circuits that lost their light get new routes. Where nothing is routed, a whole spare rack
    replaces each rack that has a failure. Only ``snapshot.spaces`` changes. Raises
    `InfeasibleError` with the reason if nothing helps, `LimitReached` if no way was found and none
    ruled out, `TimeUp` when the clock ends.
    """
    from optmatch.solvers.reroutes.changes import make_transition, replace_racks
    from optmatch.solvers.reroutes.impossible import (
        explain,
        explain_bound,
        explain_shortage,
        find_cut,
    )
    from optmatch.solvers.reroutes.repair import Recovery, repair
    from optmatch.solvers.reroutes.routing_state import HitCircuits

    # Only racks that this failure hits are lost; racks with a closed part are no spares.
    state = snapshot.state
    damage = assess(state, unite([state.failed, failure]))
    if snapshot.routing is None or snapshot.reach is None:
        spares = assess(state, unite([state.failed, failure, closed])).spares
        return replace_racks(state, damage._replace(spares=spares))[0]

    # Each lost unit needs a spare of its own. ``damage.hit[circuit]`` says who lost light or end.
    closed_units = closed.failed_chips if state.units.n_chips else closed.failed_ports
    spares = tuple(unit for unit in damage.spares if unit not in closed_units)
    hit = tuple(np.flatnonzero(damage.hit).tolist())
    case = HitCircuits(hit, damage.lost, spares, state.owners, priorities=snapshot.priorities)
    if len(case.lost) > len(case.spares):
        raise InfeasibleError(explain_shortage(len(case.lost), len(case.spares)))

    # The search changes a fork of the routing, so that the snapshot stays as it is for others. A
    # workspace that no search is in is used again, since a new one takes long to make. Closed
    # parts stay with the circuits that have them, and no other circuit gets them; fibres that are
    # shut carry no light; broken cells are dead, or stuck in one state.
    space = snapshot.spaces.pop() if snapshot.spaces else None
    routing = snapshot.routing.fork(space)
    routing.close(closed.failed_fibres, closed.failed_ports, closed.broken_cells)
    routing.shut_fibres(failure.failed_fibres)
    routing.break_cells(failure.stuck, failure.dead_cells)

    # Ports that die now are shut. `fields` are the kinds of parts that have failed, such as
    # "failed_chips". If these are units alone (chips of a rack or ports of a switch), nothing has
    # to be shut: their circuits leave them, and no other circuit comes there.
    fields = {field for field, parts in failure._asdict().items() if parts}
    if fields != {f"failed_{state.units.unit_name}s"}:
        routing.shut_ports(sorted(damage.dead_ports - state.dead_ports))

    def prove() -> Any:
        """Look for a cut, a proof that no way over the failure exists; None if there is none."""
        return find_cut(_relax_problem(state, failure, closed, case))

    # The outcome is a plan, a proof that there is none, or None if nothing was found. Cuts are
    # looked for only between servers with chips.
    find_proof = prove if state.units.n_chips else None
    try:
        outcome = repair(routing, case, snapshot.reach, prove=find_proof)
    finally:
        snapshot.spaces.append(routing.work)
    if isinstance(outcome, Recovery):
        return make_transition(routing, case, outcome)
    if outcome is not None:
        raise InfeasibleError(explain(state, outcome))

    # Nothing was found. The bound of a problem is a tuple of levels, or the number infinity if it
    # is proved that there is no answer.
    check_time()
    relaxed = _relax_problem(state, failure, closed, case)
    if not isinstance(relaxed.lower_bound(), tuple):
        raise InfeasibleError(explain_bound(relaxed))
    failed_fields = ", ".join(
        f"{field}={parts}" for field, parts in relaxed.failed._asdict().items() if parts
    )
    raise LimitReached(
        "no way over the failure was found, and none ruled out: to settle it,"
        f" om.solve(dataclasses.replace(state, {failed_fields}), 'ilp')"
    )


def _relax_problem(
    state: Reroute, failure: FailedParts, closed: FailedParts, case: HitCircuits
) -> Reroute:
    """Make an easier problem, of which a proof that nothing helps holds for the present one, too.

    It leaves out the circuits that pending failures (`closed`) hit, unless the present failure
    hits them as well. Fibres of pending failures count as failed, since no answer may use them.
    """
    # Circuits that this failure hits have to be repaired, whatever else hits them.
    is_pending = assess(state, unite([state.failed, closed])).hit
    is_pending[list(case.hit)] = False
    kept_circuits = np.flatnonzero(~is_pending)
    changes: dict[str, Any] = {
        "circuits": state.circuits[kept_circuits],
        "owners": state.owners[kept_circuits],
    }
    if state.cell_states is None:
        changes["routes"] = tuple(state.routes[circuit] for circuit in kept_circuits.tolist())
    fibres = tuple(sorted({*state.failed_fibres, *closed.failed_fibres}))
    relaxed = replace(state, **changes, spares=case.spares, failed_fibres=fibres)
    return add_failure(relaxed, failure)


def _find_cut_off_chips(
    state: Reroute, failure: FailedParts, closed: FailedParts
) -> tuple[int, ...]:
    """List the chips that must be replaced because their server has lost its last fibres.

    `failure` is what fails now, and `closed` are the parts of other failures that are pending:
    they have failed as well, but no answer to them was applied, and the state does not list them.
    Chips that one of the three names as failed are not listed again. Units are chips here.

    A server needs a fibre that leads out and one that leads in. A server that loses the last of
    either kind by this failure is cut. Its chips are replaced in two cases:

    - a chip has a circuit with another server;
    - a chip has a circuit with a chip of its own server that is replaced, since that circuit must
      then leave the server, too. This is repeated until no more chips follow.
    """
    units = state.units
    if not failure.failed_fibres or not units.n_chips:
        return ()

    # Rows of `servers` are those (from, to) of each fibre that fails now.
    dead_fibres = {*failure.failed_fibres, *state.failed_fibres, *closed.failed_fibres}
    servers = units.edges[units.edge_of_fibre[list(failure.failed_fibres)]]
    cut_servers = np.setdiff1d(servers, find_joined_servers(units, dead_fibres))

    # For each circuit the units and the servers at both of its ends, shape (circuits, 2), and
    # whether each end is in a cut server.
    server_of_unit = units.server_of_unit
    circuit_units = state.circuits // units.ports_per_unit
    circuit_servers = server_of_unit[circuit_units]
    is_inside = np.isin(circuit_servers, cut_servers)

    # Units with circuits between a cut server and another one have to leave.
    crosses = circuit_servers[:, 0] != circuit_servers[:, 1]
    leaving = np.isin(np.arange(units.n_units), circuit_units[is_inside & crosses[:, None]])

    # Partners of a leaving unit inside the same cut server follow it, until no more do.
    for _ in range(units.n_units):
        with_leaving = is_inside.all(axis=1) & leaving[circuit_units].any(axis=1)
        followers = circuit_units[with_leaving]
        if leaving[followers].all():
            break
        leaving[followers] = True
    failed_units = {*state.failed_chips, *failure.failed_chips, *closed.failed_chips}
    return tuple(unit for unit in np.flatnonzero(leaving).tolist() if unit not in failed_units)


def explain_stale(proposal: Proposal, record: Record) -> str | None:
    """Say why a proposal cannot be applied any more, as ``"fibre 12 has failed"``, or None.

    It is stale if the state has changed, or if it uses a part of another pending failure: a unit
    that replaces another one, a port at which a circuit ends that did not end there before, or a
    cell or a fibre of a new route.
    """
    state = proposal.state
    if state is not record.state:
        moved = [
            circuit
            for circuit, (former, present) in enumerate(
                zip(state.circuits.tolist(), record.state.circuits.tolist(), strict=False)
            )
            if former != present
        ]
        if not moved:
            return "the state has changed"
        return f"circuits have moved (first {moved[0]}, {len(moved)} in all)"
    transition = proposal.transition
    graph = state.fabric.graph
    units = state.units
    used: dict[str, set[int]] = {"chip": set(), "port": set(), "fibre": set(), "cell": set()}

    # Ports at the new ends of circuits, and units that take over, which are ports or chips.
    is_new = transition.circuits != state.circuits[transition.changed]
    used["port"].update(transition.circuits[is_new].tolist())
    used[units.unit_name].update(transition.moves[:, 1].tolist())

    # The parts that the new routes pass: terminals ``4 * cell + place`` in a fabric of cells, else
    # fibres. Where a spare takes over for a whole rack (no `units.through`), a circuit may keep a
    # closed fibre of its former route: it is dark until the rack at its other end is replaced,
    # too.
    for circuit, route in zip(transition.changed.tolist(), transition.routes, strict=True):
        kept_parts = () if units.through else state.routes[circuit]
        passed = [part for part in route if part not in kept_parts]
        if graph is not None:
            used["cell"].update(terminal // 4 for terminal in passed)
            passed = units.fibre_of_terminal[passed].tolist()
        used["fibre"].update(passed)

    # Is one of them among the parts of other failures that are pending?
    for kind, part in record.closed_to(proposal.failure).faults:
        if part in used[kind]:
            name = f"{kind} {part}"
            if kind == "cell" and graph is not None:
                name = graph.describe_cell(part)
            return f"{name} has failed"
    return None
