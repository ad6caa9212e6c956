"""Exact routers of feed-forward fabrics behind one function, and preferences among routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import DEAD, Fabric, FeedForward
from optmatch.model import BAR, CROSS, FREE, IDLE, InputError, frozen
from optmatch.model.schedule import check_matchings
from optmatch.solvers.feedforward.direct import route_by_sorting, route_crossbar, route_trees
from optmatch.solvers.feedforward.loop_search import FORBIDDEN, MOST_VISITS, choose_loops
from optmatch.solvers.feedforward.looping import route_dilated, route_loops
from optmatch.solvers.kernels.decorators import kernel

Preference = Literal["toggles", "loss", "crosstalk"]

_ROUTERS: dict[str, Callable[[NDArray[np.int32]], NDArray[np.int8]]] = {
    "benes": route_loops,
    "dilated-benes": route_dilated,
    "spanke-benes": route_by_sorting,
    "clements": route_by_sorting,
    "reck": partial(route_by_sorting, triangle=True),
    "crossbar": route_crossbar,
    "piloss": partial(route_crossbar, ring=True),
    "switch-and-select": route_trees,
}
"""Functions from ``matchings[k, source] = destination`` (int32, -1 where idle) to
``cell_states[k, cell]`` (int8, -1 where no light passes)."""
LOOPING = {"benes": False, "dilated-benes": True}
"""Fabrics whose router turns loops, and whether each line is a pair of wires (dilated)."""

MICRO_DB = 1e-6
"""Losses are compared in whole numbers of this."""


class RoutedMatchings(NamedTuple):
    """States for a batch of matchings."""

    states: NDArray[np.int8]
    """(k, cells): 0 bar, 1 cross, -1 where no light passes."""
    held: NDArray[np.bool_]
    """``held[k]``: whether matching k is carried in spite of all faults."""
    exact: NDArray[np.bool_]
    """``exact[k]``: whether the states are the best there are, as `choose_loops` knows."""


def route_batch(
    fabric: FeedForward,
    matchings: ArrayLike,
    *,
    prefer: Preference | None = None,
    previous: ArrayLike | None = None,
    bar_loss_db: float = 0.48,
    cross_loss_db: float = 0.48,
) -> NDArray[np.int8]:
    """Route many matchings, each by the exact algorithm of the fabric.

    Parameters
    ----------
    fabric
        A feed-forward fabric without faults; it holds every matching.
    matchings
        ``matchings[k, source] = destination``, -1 where idle; int32, shape (k, n).
    prefer
        The aim in turning the loops of `Benes` and `DilatedBenes`, None for speed.
        ``"toggles"``: matchings follow each other, and few cells change their state from one to
        the next. ``"loss"``: little loss on the route that loses most. ``"crosstalk"``: few cells
        that two circuits pass, each of which leaks into the other. Exact for each matching up to
        64 ports (`optmatch.solvers.feedforward.loop_search`); beyond that loops of the outer
        columns go as their own cells prefer. The other fabrics have a rule and no choice.
    previous
        ``previous[cell]``: the states before the first matching, -1 where not known.
    bar_loss_db, cross_loss_db
        The loss of a cell in each state, in dB, for ``"loss"``.

    Returns
    -------
    NDArray
        ``cell_states[k, cell]``, int8: 0 bar, 1 cross, -1 where no light passes; shape (k, cells).

    Raises
    ------
    InputError
        If a row is no matching of the ports, `previous` has no state for each cell, or `prefer` is
        unknown.

    Notes
    -----
    Time O(n log n) for each matching of a Benes network, O(n squared) for the others; about
    0.1, 0.5 and 3 ms for 8, 16 and 32 ports with `prefer`.

    Examples
    --------
    >>> from optmatch.fabrics import Benes
    >>> route_batch(Benes(4), [[3, 2, 1, 0], [-1, 0, -1, -1]]).tolist()
    [[0, 0, 1, 1, 1, 1], [0, -1, -1, 0, 1, -1]]
    """
    rows = _check(fabric, matchings)
    if prefer is None:
        return _ROUTERS[fabric.type](rows)
    if prefer not in get_args(Preference):
        raise InputError(f"prefer = {prefer!r}: one of {', '.join(get_args(Preference))}")
    driven = np.full(fabric.n_cells, FREE, dtype=np.int8)
    if previous is not None:
        driven = frozen("previous", previous, 1, np.int8).copy()
        if len(driven) != fabric.n_cells or (driven < FREE).any() or (driven > CROSS).any():
            raise InputError(f"previous: not -1, 0 or 1 for each of {fabric.n_cells} cells")

    # By toggles matchings follow each other; otherwise each is routed for itself.
    if prefer == "toggles":
        states = list(follow(fabric, rows, driven))
        return np.array(states, dtype=np.int8).reshape(-1, fabric.n_cells)
    if prefer == "loss":
        cell_cost = cost_states(fabric, bar_loss_db / MICRO_DB, cross_loss_db / MICRO_DB)
    else:
        cell_cost = np.zeros((fabric.n_cells, 2, 2), dtype=np.int64)
        cell_cost[:, :, 1] = 1
    return route_cheaply(fabric, rows, cell_cost, worst=prefer == "loss").states


def exact_router(fabric: Fabric) -> FeedForward | None:
    """Return the feed-forward fabric whose router fits a fabric; None if there is none.

    That is the fabric itself, or the one below its faults. A router knows no faults.
    """
    inner = fabric.intact
    return inner if isinstance(inner, FeedForward) and inner.type in _ROUTERS else None


def route_without_faults(fabric: FeedForward, matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route checked, contiguous matchings by the exact algorithm of a fabric without faults."""
    return _ROUTERS[fabric.type](matchings)


def cost_states(fabric: Fabric, bar: float, cross: float) -> NDArray[np.int64]:
    """Return ``cell_cost[cell, state, shared]``, by the state of the cell alone.

    `bar` and `cross` are what a circuit pays for a cell in that state, in a unit of the caller;
    they are rounded to whole numbers. The result has the shape (cells, 2, 2), int64.
    """
    cell_cost = np.zeros((fabric.n_cells, 2, 2), dtype=np.int64)
    cell_cost[:, BAR] = round(bar)
    cell_cost[:, CROSS] = round(cross)
    return cell_cost


def route_cheaply(
    fabric: Fabric,
    matchings: NDArray[np.int32],
    cell_cost: NDArray[np.int64] | None = None,
    *,
    worst: bool = False,
    visits: int = MOST_VISITS,
) -> RoutedMatchings:
    """Route matchings of a feed-forward fabric, perhaps with faults, at the least cost.

    ``matchings[k, source]`` is a destination, -1 where idle. ``cell_cost[cell, state, shared]`` is
    what a cell in this state costs each circuit that passes it, alone (0) or with another one (1);
    None if any routes will do. With `worst` the largest cost of a circuit counts, not the sum, and
    `visits` bounds the search. Fabrics other than Benes networks (`LOOPING`) have no choice of
    routes. A matching is not `held` where a cell would have to be in a state that a fault forbids.
    """
    # ``stuck[cell]`` is -1 for a cell that works, 0 or 1 for one that stays in that state.
    inner: Any = exact_router(fabric)
    stuck = fabric.graph.stuck if fabric.graph is not None else np.empty(0, dtype=np.int8)
    if inner.type in LOOPING and (cell_cost is not None or (stuck != FREE).any()):
        if cell_cost is None:
            cell_cost = np.zeros((fabric.n_cells, 2, 2), dtype=np.int64)
        cell_cost = cell_cost.copy()
        for state in (BAR, CROSS):
            cell_cost[(stuck == DEAD) | (stuck == 1 - state), state] = FORBIDDEN
        choice = choose_loops(
            matchings, cell_cost, dilated=LOOPING[inner.type], worst=worst, visits=visits
        )
        return RoutedMatchings(choice.states, choice.cost < FORBIDDEN, choice.exact)

    # Otherwise the plain rule, which may need a stuck cell in its other state. It compares no
    # costs, hence no row counts as exact.
    states = _ROUTERS[inner.type](matchings)
    wrong = (states != FREE) & (stuck != FREE) & (states != stuck)
    return RoutedMatchings(states, ~wrong.any(axis=1), np.zeros(len(matchings), dtype=bool))


def follow(
    fabric: Fabric,
    matchings: NDArray[np.int32],
    driven: NDArray[np.int8],
    cell_cost: NDArray[np.int64] | None = None,
    visits: int = MOST_VISITS,
) -> Iterator[NDArray[np.int8]]:
    """Yield the states of matchings one after the other, each with the fewest toggles.

    ``driven[cell]`` are the states before the first matching, -1 where not known; a toggle drives
    a cell to its other state. Each row that is yielded has the shape (cells,); a cell without
    light keeps its state, and is -1 there. A cost of 1 in ``cell_cost[cell, state, shared]``
    (alone 0, shared 1) outweighs all toggles of a matching, and `visits` bounds the search for
    each.
    """
    for matching in matchings:
        states = route_with_few_toggles(fabric, matching, driven, cell_cost, visits).states[0]
        yield states
        driven = np.where(states == FREE, driven, states)


def route_with_few_toggles(
    fabric: Fabric,
    matching: NDArray[np.int32],
    driven: NDArray[np.int8],
    cell_cost: NDArray[np.int64] | None = None,
    visits: int = MOST_VISITS,
) -> RoutedMatchings:
    """Route one matching, ``matching[source]`` or -1, with the fewest toggles, as `follow` does.

    A toggle drives a cell from its state in ``driven[cell]``, -1 where not known, to the other
    one. A cost of 1 in ``cell_cost[cell, state, shared]`` outweighs all toggles, and `visits`
    bounds the search. The result is a batch of one: ``states[0, cell]`` is -1 where no light
    passes, and ``held[0]`` is False if faults forbid the matching.
    """
    # ``changes[cell, state, shared]``: a toggle costs 2, which one circuit alone pays and two that
    # share the cell pay by halves. All toggles together cost 2 * cells at most, less than the
    # factor of the costs of cells.
    changes = np.zeros((fabric.n_cells, 2, 2), dtype=np.int64)
    for state in (BAR, CROSS):  # circuits that share a cell share its toggle
        changes[driven == 1 - state, state] = 2, 1
    if cell_cost is not None:
        changes += cell_cost * (2 * fabric.n_cells + 1)
    return route_cheaply(fabric, matching[None], changes, visits=visits)


def count_cells(
    fabric: Fabric, matchings: NDArray[np.int32], states: NDArray[np.int8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count by row and source port the cells that each circuit passes, and those in cross.

    ``matchings[row, source]`` is a destination or -1. Both results, ``[row, source]``, are 0 where
    a port is idle. All circuits are followed at once, a cell in each turn; ``states[row, cell]``
    is 0 bar or 1 cross.
    """
    # Three arrays have an entry for each circuit that is not at its end yet: its row, its source,
    # and the terminal at which its light enters the next cell. Cell c has the terminals 4 c to
    # 4 c + 3: bit 1 says at which end, bit 0 on which side.
    graph: Any = fabric.graph
    passed = np.zeros(matchings.shape, dtype=np.int64)
    crossed = np.zeros(matchings.shape, dtype=np.int64)
    slot, source = np.nonzero(matchings != IDLE)
    terminal = fabric.source_terminals[source]
    while len(terminal):
        state = states[slot, terminal >> 2]
        passed[slot, source] += 1
        crossed[slot, source] += state == CROSS
        onward = graph.mate[(terminal ^ 2) ^ state]  # the other end, the other side if crossed
        slot, source, terminal = (array[onward >= 0] for array in (slot, source, onward))
    return passed, crossed


def _check(fabric: FeedForward, matchings: ArrayLike) -> NDArray[np.int32]:
    """Return matchings as a contiguous int32 array, shape (k, n); refuse rows that are none.

    An `InputError` says which row is no matching of the ports of the fabric, and why.
    """
    rows = np.asarray(matchings)
    if rows.dtype != np.int32 or rows.ndim != 2:
        rows = frozen("matchings", matchings, 2, np.int32)
    rows = np.ascontiguousarray(rows)
    if rows.shape[1] != fabric.n:
        raise InputError(f"matchings of {rows.shape[1]} ports, a fabric of {fabric.n}")
    wrong = find_clash(rows, np.full(fabric.n, -1, dtype=np.int32))
    if wrong >= 0:
        check_matchings(rows[: wrong + 1])  # raises an error that says what is wrong
    return rows


@kernel
def find_clash(matchings, last):
    """Find the first row that is no matching, -1 if all are.

    ``matchings[row, source]`` is a port or -1. A row is no matching if it has another number, or a
    port twice. ``last[port]``, -1 at first, becomes the last row that has used the port, so that
    it need not be cleared between rows.

    Example: the rows 1, 0, -1 and 1, 1, -1. The first one is a matching; row 1 is not, as it has
    port 1 twice.
    """
    ports = np.uint64(matchings.shape[1])
    for row in range(len(matchings)):
        for o in matchings[row]:
            port = np.uint64(np.int64(o))  # as unsigned numbers, of which -1 is the largest
            if port >= ports:
                if o != -1:
                    return row
                continue
            if last[port] == row:
                return row
            last[port] = row
    return -1
