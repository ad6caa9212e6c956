"""The view of a scheduler: matchings in, cell states out, in the time that the routing takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.entrances import solve, verify
from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import (
    FREE,
    IDLE,
    CellDevice,
    Clock,
    Device,
    InfeasibleError,
    InputError,
    LimitReached,
    Limits,
    Problem,
    Schedule,
    Solution,
    Status,
    VerificationError,
    brief_tuple,
    frozen,
    integer,
    read_only,
)
from optmatch.model.declarations import Amount, form_of
from optmatch.model.device import DEFAULT_DEVICE
from optmatch.model.limits import for_other_threads
from optmatch.problems.routing import Routing, cells_for

if TYPE_CHECKING:
    from optmatch.solvers.routing.row_router import RowRouter

Preference = Literal["worst-loss-db", "worst-snr-db", "power-mw"]

_ARRAY_TYPES = (np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int64))
"""The types of states, routes and lengths in a `Routed`."""

_MATCHINGS_PER_SHARE = 256
"""How many matchings a thread takes at a time: a few milliseconds of work."""

# Outcomes of a row, as `optmatch.solvers.routing.rows` numbers them: its circuits have their
# routes, it is no matching of live ports, or the states to start from are no states. 0 means that
# the quick methods found no routes, and a search has to decide.
_ROUTED = 1
_NO_MATCHING = -1
_WRONG_STATES = -3


@brief_tuple
class Routed(NamedTuple):
    """Cell states of a matching, and the routes through them."""

    states: NDArray[np.int8]
    """``states[cell]``: 0 bar, 1 cross, -1 where no light passes."""
    routes: NDArray[np.int32]
    """``routes[source, step]``: the terminal by which light leaves its cell, 4 * cell + place."""
    lengths: NDArray[np.int64]
    """``lengths[source]``: cells on the route; 0 for an idle port, and for the higher port of a
    circuit between bidirectional ones."""


@brief_tuple
class RoutedBatch(NamedTuple):
    """Cell states of many matchings."""

    states: NDArray[np.int8]
    """``states[k, cell]``, all -1 where matching k is not held."""
    lengths: NDArray[np.int64]
    """``lengths[k, source]``: cells on the route."""
    held: NDArray[np.bool_]
    """``held[k]``: False if no states hold matching k, or none were found in time."""


class _Workspace(NamedTuple):
    """Compiled methods and arrays of one thread, to route and to check; no two use it at once."""

    router: RowRouter
    marks: NDArray[np.int32]
    """The scratch array of the check of light."""


class Router:
    """Sets the cells of one fabric for matchings, thousands a second.

    Meshes are routed by negotiation, feed-forward fabrics by their exact algorithms. Matchings
    that these methods do not route go to the default method of `Routing`, which finds routes or
    proves that there are none. Any number of threads may call it at once; compiled code runs
    without the lock of the interpreter.

    Parameters
    ----------
    fabric
        A switch, which may have faults.
    check
        Whether the light of every answer is traced, by code that no method shares.
    time_limit_s
        How long a matching that is not routed at once may take; None for as long as it takes.
    prefer
        What the routes are for: ``"worst-loss-db"``, ``"worst-snr-db"`` or ``"power-mw"``, as of
        `Routing`; None for few cells in all. `reroute` is for few toggles in any case.
    cells
        The device of each cell, for `prefer`. None takes cells that are all as those of the preset
        ``"smartlight"``.
    warm
        Whether to compile, or to load, all kernels now that the calls of this router need. Without
        it the first call of each method does so, which takes seconds to half a minute where they
        were never compiled before.

    Raises
    ------
    InputError
        If `fabric` is no switch, `time_limit_s` no time, or `cells` do not fit `prefer`.

    See Also
    --------
    Routing : One matching as a problem, with a bound and a proof.
    schedule : Matchings and durations of a demand.

    Examples
    --------
    >>> import optmatch as om
    >>> router = om.Router(om.HexMesh(3, 3, ports=4), check=True)
    >>> routed = router.route([2, 3, 0, 1])
    >>> routed.lengths.tolist()
    [9, 11, 0, 0]
    >>> changed = router.reroute(routed.states, [1, 0, 3, 2]).states
    >>> int(((routed.states >= 0) & (changed != routed.states)).sum())
    1
    >>> router.route_batch([[1, 0, 3, 2], [-1, -1, 3, 2]]).held.tolist()
    [True, True]
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        check: bool = False,
        time_limit_s: float | None = None,
        prefer: Preference | None = None,
        cells: CellDevice | None = None,
        warm: bool = False,
    ) -> None:
        """Prepare a router, which sets the cells of one switch for one matching after the other.

        A matching says which port is connected to which. A cell is a 2 x 2 switch inside the
        fabric, in state bar or cross. Each thread that calls works in a workspace (compiled
        methods with their arrays): one is made here, others when several threads call at once.

        Parameters
        ----------
        fabric
            A switch, which may have faults.
        check
            Whether the light of every answer is traced.
        time_limit_s
            How long a matching that is not routed at once may take, in seconds; None: no limit.
        prefer
            By what routes are chosen, such as low loss; None for few cells in all.
        cells
            The device of each cell, for `prefer`; None for cells that are all alike.
        warm
            Whether to compile, or to load, all kernels now.
        """
        from optmatch.solvers.routing.row_router import new_row_router
        from optmatch.verify.routing import quick

        form_of(Fabric).check("fabric", fabric)
        fabric.require_switch()

        self._prefer = form_of(Preference | None).check("prefer", prefer)
        cells = cells_for(fabric, str(prefer), cells)
        self._cells = cells
        self._time_limit_s = form_of(Amount | None).check("time_limit_s", time_limit_s)

        # The check of light is code of the verifier; without cells there is none to trace.
        self.fabric = fabric
        self._new_row_router = new_row_router
        self._quick = quick
        self._wires = None
        """What the check of light needs of the fabric; None if answers are not checked."""
        if check and fabric.graph is not None:
            self._wires = quick.wires_of(fabric)

        # Looked up once: a call takes microseconds, and properties of fabrics count.
        first = _Workspace(new_row_router(fabric, prefer, cells), quick.new_marks(fabric))
        self._n_cells = fabric.n_cells
        self._n_ports = fabric.n_ports
        self._shapes = (
            (self._n_cells,),
            (self._n_ports, first.router.width),
            (self._n_ports,),
        )
        """The shapes of states, routes and lengths, as in `Routed`."""
        self._idle_workspaces = [first]
        """Workspaces that no thread is in: a call takes one, and puts it back at its end."""
        self._options: dict[str, Any] = {
            "check": check,
            "time_limit_s": time_limit_s,
            "prefer": prefer,
            "cells": cells,
        }

        if warm:
            self._warm_up()

    def _warm_up(self) -> None:
        """Compile all kernels of this router by calling each method once.

        The matchings are one with a single circuit, between two ports that can meet, and one
        without any. The answers are thrown away.
        """
        dark = np.full(self.fabric.n_ports, IDLE, dtype=np.int32)
        circuit = dark.copy()

        # The first two different ports between which there is a way.
        meets = self.fabric.route_cells() != UNREACHED
        np.fill_diagonal(meets, False)
        if meets.any():
            source, destination = np.unravel_index(int(meets.argmax()), meets.shape)
            circuit[source] = destination
            if self.fabric.bidirectional:
                circuit[destination] = source

        # Each call is made once, from and to a dark fabric.
        for matching in (circuit, dark):
            routed = self.route(matching)
            self.reroute(routed.states, dark)
            self.reroute(routed.states, circuit)
        self.route_batch(np.stack([dark, circuit]), threads=1)
        for workspace in self._idle_workspaces:
            workspace.router.warm_up()

    def __repr__(self) -> str:
        parts = [f"{self.fabric.title}, {self.fabric.n_ports} ports, {self._n_cells} cells"]
        for name in ("check", "time_limit_s", "prefer"):  # `cells` are too many to be shown
            value = self._options[name]
            if value is not None and value is not False:
                parts.append(f"{name}={value!r}")
        return f"<Router {', '.join(parts)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled workspaces stay behind: the copy makes its own.
        return partial(Router, self.fabric, **self._options), ()

    def empty(self) -> Routed:
        """Make room for an answer, to be given as `out` again and again.

        Returns
        -------
        Routed
            ``states``, int8 of shape (cells,), all free (-1); ``routes``, int32 of shape (ports,
            width); ``lengths``, int64 of shape (ports,).
        """
        states_shape, routes_shape, lengths_shape = self._shapes
        return Routed(
            states=np.full(states_shape, FREE, dtype=np.int8),
            routes=np.zeros(routes_shape, dtype=np.int32),
            lengths=np.zeros(lengths_shape, dtype=np.int64),
        )

    def route(self, matching: ArrayLike, *, out: Routed | None = None) -> Routed:
        """Set the cells such that all circuits of a matching have light.

        Parameters
        ----------
        matching
            ``matching[source] = destination``, -1 where idle, shape (ports,). Quickest as int32.
        out
            Arrays that receive the answer, from `empty`; then nothing is allocated on meshes. None
            for new ones.

        Returns
        -------
        Routed
            ``states[cell]``: 0 bar, 1 cross, -1 free; ``routes[port]``, of which the first
            ``lengths[port]`` count: the terminals ``4 * cell + place`` by which the light of a
            circuit leaves the cells on its way, 0 of them for idle ports.

        Raises
        ------
        InputError
            If it is no matching of the live ports.
        InfeasibleError
            If no states hold it; proved.
        LimitReached
            If none were found within `time_limit_s`.
        VerificationError
            If the check of an answer fails: a defect.
        """
        return self._route(matching, None, out)

    def route_batch(self, matchings: ArrayLike, *, threads: int | None = None) -> RoutedBatch:
        """Find cell states for many matchings, each for itself.

        A matching says which source port is connected to which destination port; a cell is a 2 x 2
        switch inside the fabric. First, compiled methods route all rows, in threads. Then the rows
        that they could not route get a search, one after the other.

        Parameters
        ----------
        matchings
            ``matchings[k, source] = destination``, -1 where idle.
        threads
            How many threads share the work; None for one on each processor of this process.

        Returns
        -------
        RoutedBatch
            Three arrays:

            - the states of the cells, 0 bar, 1 cross, all -1 for a matching that is not held;
              shape (matchings, cells);
            - the cells on the route from each source port, shape (matchings, ports);
            - ``held``: whether each matching has all its circuits, shape (matchings,).

        Raises
        ------
        InputError
            If a row is no matching of the live ports.
        VerificationError
            If the check of an answer fails: a defect.
        """
        rows = _typed("matchings", matchings, 2, np.int32)
        n_rows, n_ports = rows.shape
        if n_rows and n_ports != self._n_ports:
            Routing(self.fabric, rows[0])  # raises the error of a row of this length

        # One thread for each processor that this process may use.
        if threads is None:
            has_affinity = hasattr(os, "sched_getaffinity")
            threads = len(os.sched_getaffinity(0)) if has_affinity else 1
        threads = integer("threads", threads, at_least=1)

        # Threads write to rows of their own of these arrays. ``outcome[k]`` says whether row k is
        # routed (1), is not routed (0), or is no matching (-1).
        states = np.empty((n_rows, self._n_cells), dtype=np.int8)
        lengths = np.zeros((n_rows, n_ports), dtype=np.int64)
        outcome = np.empty(n_rows, dtype=np.int8)

        def route_share(first: int) -> None:
            """Route the share of rows that begins at `first`, in a workspace of its own."""
            share = slice(first, first + _MATCHINGS_PER_SHARE)
            workspace = self._take_workspace()
            routes = np.empty(self._shapes[1], dtype=np.int32)
            workspace.router.route(
                rows[share], states[share], routes, lengths[share], outcome[share]
            )
            is_routed = outcome[share] == _ROUTED
            self._check_light(workspace, rows[share][is_routed], states[share][is_routed])
            self._idle_workspaces.append(workspace)

        # A share is large enough that handing it over costs little.
        shares = range(0, n_rows, _MATCHINGS_PER_SHARE)
        if threads == 1 or len(shares) < 2:
            for first in shares:
                route_share(first)
        else:
            with ThreadPoolExecutor(min(threads, len(shares))) as pool:
                list(pool.map(for_other_threads(route_share), shares))

        # One row that is no matching refuses the batch; rows that were not routed get a search.
        for k in np.flatnonzero(outcome == _NO_MATCHING)[:1].tolist():
            try:
                Routing(self.fabric, rows[k])
            except InputError as exc:
                raise InputError(exc.message.replace("matching", f"matchings[{k}]", 1)) from None
        is_held = outcome == _ROUTED
        for k in np.flatnonzero(~is_held).tolist():
            is_held[k] = self._search_in_batch(rows[k], states[k], lengths[k])
        return RoutedBatch(states, lengths, is_held)

    def reroute(
        self, states: ArrayLike, matching: ArrayLike, *, out: Routed | None = None
    ) -> Routed:
        """Change to a matching from given cell states by few toggles.

        Circuits that the states carry already stay where they are, if the others find a way. A
        toggle is a cell that is driven to the other state; setting a cell from -1 is none.

        Parameters
        ----------
        states
            ``states[cell]``: 0 bar, 1 cross, -1 where not known.
        matching
            ``matching[source] = destination``, -1 where idle, shape (ports,). Quickest as int32.
        out
            Arrays that receive the answer, from `empty`; None for new ones.

        Returns
        -------
        Routed
            Cells without light are as given, or -1; `states` of one answer fit the next call.

        Raises
        ------
        InputError
            If the states are not -1, 0 or 1 for each cell, or it is no matching of the live ports.
        InfeasibleError
            If no states hold the matching; proved.
        LimitReached
            If none were found within `time_limit_s`.
        VerificationError
            If the check of an answer fails: a defect.

        Notes
        -----
        On `Benes` and `DilatedBenes` the directions of loops are searched, within 2 ms on 64
        ports; on other feed-forward fabrics, and past faults, circuits fit in as on meshes.
        """
        return self._route(matching, _typed("states", states, 1, np.int8), out)

    def _route(
        self, matching: ArrayLike, given: NDArray[np.int8] | None, out: Routed | None
    ) -> Routed:
        """Find states of the cells with which one matching has all its circuits.

        Quick compiled methods come first, a search after them. ``given[cell]`` is the present
        state of a cell, -1 where not known, and few cells are to change from it; None to route
        anew. `out` receives the answer, None for new arrays. A matching without states is an
        `InfeasibleError`, one without states in time a `LimitReached`.
        """
        row = _typed("matching", matching, 1, np.int32)
        routed = self.empty() if out is None else self._check_out(out)
        states, routes, lengths = routed
        if len(row) != self._n_ports:
            Routing(self.fabric, row)  # raises the error of a row of this length

        # The clock covers the whole call: what the quick methods take is not left to the search.
        clock = None
        if self._time_limit_s is not None:
            clock = Limits(time_s=self._time_limit_s).start()
        workspace = self._take_workspace()
        try:
            # Present states of another number of cells than the fabric has are refused below.
            router = workspace.router
            outcome = _WRONG_STATES
            if given is None:
                outcomes = np.empty(1, dtype=np.int8)
                router.route(row[None], states[None], routes, lengths[None], outcomes)
                outcome = int(outcomes[0])
            elif len(given) == self._n_cells:
                outcome = router.change(given, row, states, routes, lengths, clock)

            # A matching that the quick methods could not route gets a search.
            if outcome == _WRONG_STATES:
                raise InputError(f"states: not -1, 0 or 1 for each of {self._n_cells} cells")
            if outcome != _ROUTED:
                self._search(router, row, routed, clock)
            self._check_light(workspace, row[None], routed.states[None])
        finally:
            self._idle_workspaces.append(workspace)
        return routed

    def _take_workspace(self) -> _Workspace:
        """Take a workspace that no thread uses, or make a new one."""
        try:
            return self._idle_workspaces.pop()
        except IndexError:
            router = self._new_row_router(self.fabric, self._prefer, self._cells)
            return _Workspace(router, self._quick.new_marks(self.fabric))

    def _check_out(self, out: Routed) -> Routed:
        """Return `out` if kernels can write to it: of the shapes and types of `empty`."""
        try:
            states, routes, lengths = out
            shapes = states.shape, routes.shape, lengths.shape
            types = states.dtype, routes.dtype, lengths.dtype
        except (AttributeError, TypeError, ValueError):
            raise InputError("out: arrays from `empty` are expected", where="out") from None
        if shapes != self._shapes or types != _ARRAY_TYPES:
            raise InputError("out: arrays of another router; take those of `empty`", where="out")
        return out

    def _search(
        self, router: RowRouter, row: NDArray[np.int32], routed: Routed, clock: Clock | None = None
    ) -> None:
        """Search for cell states of one matching that the quick compiled methods could not route.

        ``row[source] = destination`` is the matching. `routed` receives the states, and the routes
        and lengths that `router` reads from them. The search has the time that is left on `clock`,
        None for the time limit of this router.
        """
        problem = Routing(
            self.fabric, row, objective=self._prefer or "total-cells", cells=self._cells
        )
        time_limit_s = self._time_limit_s
        if clock is not None:
            time_limit_s = clock.remaining_s
        solution = solve(problem, seed=0, time_limit_s=time_limit_s)

        # Nothing exists, nothing was found in time, or the answer is copied.
        if solution.status is Status.INFEASIBLE:
            reason = solution.stats.get("reason", "no states of the cells hold this matching")
            raise InfeasibleError(str(reason))
        if solution.schedule is None:
            raise LimitReached("no states that hold this matching were found in time")
        if solution.schedule.cell_states is not None:
            routed.states[:] = solution.schedule.cell_states[0]
            router.read(row, routed.states, routed.routes, routed.lengths)

    def _search_in_batch(
        self, row: NDArray[np.int32], states: NDArray[np.int8], lengths: NDArray[np.int64]
    ) -> bool:
        """Search for one row of a batch that was not routed; tell whether states were found.

        ``row[source] = destination`` is the matching. Writes ``states[cell]`` and
        ``lengths[port]`` of the row, `FREE` and 0 where nothing was found.
        """
        states[:] = FREE
        lengths[:] = 0
        workspace = self._take_workspace()
        try:
            self._search(workspace.router, row, Routed(states, self.empty().routes, lengths))
        except (InfeasibleError, LimitReached):
            return False
        finally:
            self._idle_workspaces.append(workspace)
        return True

    def _check_light(
        self, workspace: _Workspace, rows: NDArray[np.int32], states: NDArray[np.int8]
    ) -> None:
        """Check that every circuit of some matchings gets its light, if the user asked for checks.

        ``rows[k, source] = destination`` is a matching, ``states[k, cell]`` the states that hold
        it. A circuit without light of its own is a `VerificationError`.
        """
        if self._wires is None:
            return
        dark_row = self._quick.find_dark(self._wires, workspace.marks, rows, states)
        if dark_row < 0:
            return
        # The full verifier says what is wrong.
        problem = Routing(self.fabric, rows[dark_row])
        schedule = Schedule(
            matchings=rows[dark_row][None],
            durations_s=np.ones(1),
            cell_states=states[dark_row][None],
        )
        raise VerificationError(f"router: {verify(problem, schedule).complaint}")


def _typed(name: str, value: ArrayLike, ndim: int, dtype: Any) -> NDArray[Any]:
    """Return an array as kernels are compiled for: of one type, contiguous, read-only.

    An array that fits already is not copied.
    """
    array = value if type(value) is np.ndarray else frozen(name, value, ndim, dtype)
    if array.dtype != dtype or array.ndim != ndim or not array.flags.c_contiguous:
        return frozen(name, value, ndim, dtype)
    if array.flags.writeable:
        return read_only(array.view())
    return array


def settle_free_cells(
    problem: Problem,
    subject: Schedule | Solution,
    device: Device | CellDevice | str | None = None,
    *,
    frequencies_hz: Sequence[float] = (0.0,),
    wavelengths_nm: Sequence[float] | None = None,
    seed: int | None = None,
) -> NDArray[np.int8]:
    """Choose a state for every free cell, such that circuits disturb each other least.

    Parameters
    ----------
    problem
        The problem, of which the fabric and the device matter.
    subject
        A schedule with cell states, or a solution that has one.
    device
        What cells do to light, the name of a preset, or a device for each cell. None: those that
        the problem states, or ``"smartlight"``.
    frequencies_hz
        Distances from the central frequency at which crosstalk counts, as of `measure_optics`; but
        couplers are taken as they are at the central one.
    wavelengths_nm
        Instead of `frequencies_hz`: wavelengths in nm.
    seed
        The chip whose phase errors `measure_optics` draws by this seed. None: the errors of a
        device that has any are not known.

    Returns
    -------
    NDArray
        ``states[slot, cell]``: 0 bar, 1 cross, int8; as given where a cell is not free. It is what
        `measure_optics` takes as `idle`.

    Raises
    ------
    InputError
        If the fabric has no cells, there are no cell states, or a frequency is not finite.

    Notes
    -----
    The search lowers the worst ratio of crosstalk to signal. Light of one source interferes with
    itself: where all phases are known, ratios are those that `measure_optics` finds. Where phase
    errors are unknown, all ways are added as if in phase, which no chip exceeds whose errors are
    within one standard deviation; the frequencies make no difference then.

    It is an iterated local search: descents over single flips from all cells in cross, all in bar,
    random states, and kicks of the best setting. What a flip changes follows from the adjoint
    light of each receiver. Up to 120 settings are solved for each slot, fewer if the fabric has
    many cells and ports and the schedule many slots. No choice changes what leaks from one lit way
    into another in one cell: where circuits share cells, as on meshes, the gain is small.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.Routing(om.SwitchAndSelect(8), [4, 5, 6, 7, 0, 1, 2, 3])
    >>> solution = om.solve(problem, "negotiated", seed=0)
    >>> settled = om.settle_free_cells(problem, solution, "smartlight")
    >>> for idle in ("cross", settled):
    ...     optics = om.measure_optics(problem, solution, "smartlight", idle=idle)
    ...     print(f"{optics.figures['worst_signal_to_crosstalk_db']:.0f} dB")
    65 dB
    77 dB
    """
    from optmatch.solvers.routing.idle import settle

    form_of(Problem).check("problem", problem)
    form_of(Schedule | Solution).check("subject", subject)
    chosen_device: Any = device
    if chosen_device is None:
        chosen_device = getattr(problem, "cells", None) or DEFAULT_DEVICE
    return settle(problem, subject, chosen_device, frequencies_hz, wavelengths_nm, seed=seed)
