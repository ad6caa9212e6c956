"""The view of a scheduler: matchings in, cell states out, in the time that the routing takes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.entrances import solve, verify
from optmatch.fabrics import Fabric
from optmatch.model import (
    FREE,
    CellDevice,
    Device,
    InfeasibleError,
    InputError,
    LimitReached,
    Problem,
    Schedule,
    Solution,
    Status,
    VerificationError,
    frozen,
    integer,
)
from optmatch.model.declarations import Amount, form_of
from optmatch.model.limits import for_other_threads
from optmatch.problems.routing import Routing, check_cells

if TYPE_CHECKING:
    from optmatch.solvers.routing.row_router import RowRouter

_TYPES = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int64)
Preference = Literal["worst-loss-db", "worst-snr-db", "power-mw"]
_SHARE = 256  # matchings that a thread takes at a time
_ROUTED, _NO_MATCHING, _WRONG_STATES = 1, -1, -3  # as of `optmatch.solvers.routing.rows`


class Routed(NamedTuple):
    """Cell states of a matching, and the routes through them."""

    states: NDArray[np.int8]
    """``states[cell]``: 0 bar, 1 cross, -1 where no light passes."""
    routes: NDArray[np.int32]
    """``routes[source, step]``: the terminal by which light leaves its cell, 4 * cell + place."""
    lengths: NDArray[np.int64]
    """``lengths[source]``: cells on the route; 0 for an idle port, and for the higher port of a
    circuit between bidirectional ones."""


class RoutedBatch(NamedTuple):
    """Cell states of many matchings."""

    states: NDArray[np.int8]
    """``states[k, cell]``, all -1 where matching k is not held."""
    lengths: NDArray[np.int64]
    """``lengths[k, source]``: cells on the route."""
    held: NDArray[np.bool_]
    """``held[k]``: False if no states hold matching k, or none were found in time."""


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
        The device of each cell, which `prefer` needs.

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
    ) -> None:
        from optmatch.solvers.routing.row_router import new_row_router
        from optmatch.verify.routing import quick

        form_of(Fabric).check("fabric", fabric)
        fabric.require_switch()
        self._wanted = form_of(Preference | None).check("prefer", prefer), cells
        check_cells(fabric, str(prefer), cells)
        self._time_limit_s = form_of(Amount | None).check("time_limit_s", time_limit_s)
        self.fabric = fabric
        self._new, self._quick = new_row_router, quick
        self._wires = quick.wires_of(fabric) if check and fabric.graph is not None else None
        first = new_row_router(fabric, prefer, cells)
        ports, self._n_cells = fabric.n_ports, fabric.n_cells  # looked up once
        self._shapes = (self._n_cells,), (ports, first.width), (ports,)
        self._idle = [(first, quick.new_marks(fabric))]

        self._options: dict[str, Any] = {
            "check": check,
            "time_limit_s": time_limit_s,
            "prefer": prefer,
            "cells": cells,
        }

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
        """Make room for an answer, to be given as `out` again and again."""
        cells, routes, ports = self._shapes
        return Routed(
            np.full(cells, FREE, dtype=np.int8),
            np.zeros(routes, dtype=np.int32),
            np.zeros(ports, dtype=np.int64),
        )

    def route(self, matching: ArrayLike, *, out: Routed | None = None) -> Routed:
        """Set the cells such that all circuits of a matching have light.

        Parameters
        ----------
        matching
            ``matching[source] = destination``, -1 where idle. Quickest as int32.
        out
            Arrays that receive the answer, from `empty`; then nothing is allocated on meshes.

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
        """Set the cells for many matchings, each for itself.

        Parameters
        ----------
        matchings
            ``matchings[k, source] = destination``, -1 where idle.
        threads
            How many threads share the work; None for one on each processor of this process.

        Raises
        ------
        InputError
            If a row is no matching of the live ports.
        VerificationError
            If the check of an answer fails: a defect.
        """
        rows = _typed("matchings", matchings, 2, np.int32)
        count, ports = rows.shape
        if count and ports != self._shapes[2][0]:
            Routing(self.fabric, rows[0])
        if threads is None:
            threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        threads = integer("threads", threads, at_least=1)
        states = np.empty((count, self._n_cells), dtype=np.int8)
        lengths = np.zeros((count, ports), dtype=np.int64)
        held = np.empty(count, dtype=np.int8)

        def work(first: int) -> None:
            part = slice(first, first + _SHARE)
            seat = self._take()
            routes = np.empty(self._shapes[1], dtype=np.int32)
            seat[0].route(rows[part], states[part], routes, lengths[part], held[part])
            self._check(
                seat, rows[part][held[part] == _ROUTED], states[part][held[part] == _ROUTED]
            )
            self._idle.append(seat)

        shares = range(0, count, _SHARE)
        if threads == 1 or len(shares) < 2:
            for first in shares:
                work(first)
        else:
            with ThreadPoolExecutor(min(threads, len(shares))) as pool:
                list(pool.map(for_other_threads(work), shares))
        for k in np.flatnonzero(held == _NO_MATCHING)[:1]:
            _refuse(self.fabric, rows, int(k))
        for k in np.flatnonzero(held != _ROUTED).tolist():
            self._insist_in_batch(rows[k], states[k], lengths[k], held[k : k + 1])
        return RoutedBatch(states, lengths, held == _ROUTED)

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
        matching, out
            As of `route`.

        Returns
        -------
        Routed
            Cells without light are as given, or -1; `states` of one answer fit the next call.

        Raises
        ------
        InputError, InfeasibleError, LimitReached, VerificationError
            As of `route`.

        Notes
        -----
        On `Benes` and `DilatedBenes` the directions of loops are searched, within 2 ms on 64
        ports; on other feed-forward fabrics, and past faults, circuits fit in as on meshes.
        """
        return self._route(matching, _typed("states", states, 1, np.int8), out)

    def _route(
        self, matching: ArrayLike, given: NDArray[np.int8] | None, out: Routed | None
    ) -> Routed:
        """Route a matching: anew, or from given states."""
        row = _typed("matching", matching, 1, np.int32)
        out = self.empty() if out is None else self._accept(out)
        rows, states, done = row[None], out.states[None], _WRONG_STATES
        if len(row) != len(out.lengths):
            Routing(self.fabric, row)  # says so
        seat = self._take()
        try:
            if given is None:
                held = np.empty(1, dtype=np.int8)
                seat[0].route(rows, states, out.routes, out.lengths[None], held)
                done = int(held[0])
            elif len(given) == self._n_cells:
                done = seat[0].change(given, row, out.states, out.routes, out.lengths)
            if done == _WRONG_STATES:
                raise InputError(f"states: not -1, 0 or 1 for each of {self._n_cells} cells")
            if done != _ROUTED:
                self._insist(seat[0], row, out)
            self._check(seat, rows, states)
        finally:
            self._idle.append(seat)
        return out

    def _take(self) -> tuple[RowRouter, NDArray[np.int32]]:
        """Take a workspace that is not in use, or make a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new(self.fabric, *self._wanted), self._quick.new_marks(self.fabric)

    def _accept(self, out: Routed) -> Routed:
        states, routes, lengths = out
        wrong = (states.shape, routes.shape, lengths.shape) != self._shapes
        if wrong or (states.dtype, routes.dtype, lengths.dtype) != _TYPES:
            raise InputError("out: arrays of another router; take those of `empty`", where="out")
        return out

    def _insist(self, router: RowRouter, row: NDArray[np.int32], out: Routed) -> None:
        """Route the matchings that the first try left out, or raise why one cannot be routed."""
        prefer, cells = self._wanted
        problem = Routing(self.fabric, row, objective=prefer or "total-cells", cells=cells)
        found = solve(problem, seed=0, time_limit_s=self._time_limit_s)
        if found.status is Status.INFEASIBLE:
            reason = found.stats.get("reason", "no states of the cells hold this matching")
            raise InfeasibleError(str(reason))
        if found.schedule is None:
            raise LimitReached("no states that hold this matching were found in time")
        if found.schedule.cell_states is not None:
            out.states[:] = found.schedule.cell_states[0]
            router.read(row, out.states, out.routes, out.lengths)

    def _insist_in_batch(
        self,
        row: NDArray[np.int32],
        states: NDArray[np.int8],
        lengths: NDArray[np.int64],
        held: NDArray[np.int8],
    ) -> None:
        seat, states[:], lengths[:] = self._take(), FREE, 0
        try:
            self._insist(seat[0], row, Routed(states, self.empty().routes, lengths))
            held[0] = _ROUTED
        except (InfeasibleError, LimitReached):
            held[0] = 0
        self._idle.append(seat)

    def _check(self, seat: Any, rows: NDArray[np.int32], states: NDArray[np.int8]) -> None:
        """Trace the light, if that is asked for."""
        if self._wires is None:
            return
        dark = self._quick.find_dark(self._wires, seat[1], rows, states)
        if dark >= 0:
            problem = Routing(self.fabric, rows[dark])
            answer = Schedule(
                matchings=rows[dark][None], durations_s=np.ones(1), cell_states=states[dark][None]
            )
            raise VerificationError(f"router: {verify(problem, answer).complaint}")


def _typed(name: str, value: ArrayLike, ndim: int, dtype: Any) -> NDArray[Any]:
    """Return an array as kernels want it: of one type, in one piece, not to be written to."""
    array = value if isinstance(value, np.ndarray) else frozen(name, value, ndim, dtype)
    if array.dtype != dtype or array.ndim != ndim or not array.flags.c_contiguous:
        return frozen(name, value, ndim, dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _refuse(fabric: Fabric, rows: NDArray[np.int32], k: int) -> None:
    """Raise an error that names the flaw of a row."""
    try:
        Routing(fabric, rows[k])
    except InputError as exc:
        raise InputError(exc.message.replace("matching", f"matchings[{k}]", 1)) from None


def settle_free_cells(
    problem: Problem, subject: Schedule | Solution, device: Device | CellDevice | str
) -> NDArray[np.int8]:
    """Choose a state for every free cell, such that circuits disturb each other least.

    Parameters
    ----------
    problem
        The problem, of which only the fabric matters.
    subject
        A schedule with cell states, or a solution that has one.
    device
        What cells do to light, the name of a preset, or a device for each cell.

    Returns
    -------
    NDArray
        ``states[slot, cell]``: 0 bar, 1 cross, int8; as given where a cell is not free. It is what
        `measure_optics` takes as `idle`.

    Raises
    ------
    InputError
        If the fabric has no cells, or there are no cell states.

    Notes
    -----
    Descents from all in cross, all in bar and a few random states, in a model that adds powers:
    each round flips the free cells that promise to lower the sum of the fourth powers of all
    crosstalk-to-signal ratios, which the worst one dominates, or half of them, or a quarter, until
    the sum falls. The search ends near the sum that free cells would leave if they swallowed all
    light, which is a lower bound. No choice changes what leaks from one lit way into another in
    one cell: where circuits share cells, as on meshes, the gain is small. A round takes two sparse
    solutions for each circuit of a slot.

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

    return settle(problem, subject, device)
