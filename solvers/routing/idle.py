"""States for free cells: where stray light goes, chosen so that least of it meets other circuits.

The model adds powers, as if all light were incoherent: what enters a cell leaves by the wanted and
the other output, and p = (I - M)^-1 b is the power everywhere. It is linear in what one cell does,
so the powers p of each circuit and the adjoints q of each receiver tell at once what every flip of
a cell would change, to first order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, identity
from scipy.sparse.linalg import splu

from optmatch.fabrics import EXITS, CellGraph
from optmatch.fabrics.netlists.circuits import with_cell_phases
from optmatch.fabrics.waveguides import waveguide_loss_db
from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    CellDevice,
    Device,
    InputError,
    Problem,
    Schedule,
    Solution,
    cells_of,
)

ROUNDS = 12
"""How often all free cells of a slot are reconsidered, at most."""

LEAST_GAIN = 0.01
"""A round begins only if it is expected to lower the cost by this share (0.01 dB)."""

_COOLING = 1e-3
"""The share by which the cost may grow for less power: 0.001 dB of crosstalk."""

STARTS, START_TERMINALS = 8, 4000
"""A slot has at most so many descents, and so many terminals in all of them, but always two."""


def settle(
    problem: Problem, subject: Schedule | Solution, device: Device | CellDevice | str
) -> NDArray[np.int8]:
    """Choose a state for every free cell; see `optmatch.settle_free_cells`."""
    fabric = problem.fabric
    graph: CellGraph | None = fabric.graph
    schedule = subject.schedule if isinstance(subject, Solution) else subject
    if graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells, and no optics")
    if schedule is None or schedule.cell_states is None:
        raise InputError("optics need one schedule, with cell states")
    cells = with_cell_phases(fabric, cells_of(device, graph.n_cells))
    flow = PowerFlow.of(graph, cells)
    settled = schedule.cell_states.copy()
    for states, matching in zip(settled, schedule.matchings, strict=True):
        source = np.flatnonzero(matching >= 0)
        ends = Ends(
            fabric.source_terminals[source], fabric.destination_terminals[matching[source]]
        )
        states[graph.stuck == BAR] = BAR
        states[graph.stuck >= CROSS] = CROSS
        free = np.flatnonzero(states == FREE)
        if len(free) and len(source) > 1:
            states[:] = _choose(flow, ends, states, free)
        states[states == FREE] = CROSS
        if len(source):
            _cool(flow, ends, states, free, cells.power_mw)
    return settled


class Ends(NamedTuple):
    """The terminals at which circuits begin and end; circuits are numbered as in these arrays."""

    sources: NDArray[np.int32]  # (circuits,): where light enters its first cell
    destinations: NDArray[np.int32]  # (circuits,): where light leaves its last cell


class PowerFlow(NamedTuple):
    """How power gets from the entry of one cell to the entry of the next."""

    graph: CellGraph
    by_state: NDArray[np.float64]
    """``by_state[state, cell, straight or across]``: shares of the power in a cell."""
    kept: NDArray[np.float64]
    """``kept[terminal]``: the share that gets from there to the joined terminal."""
    ahead: NDArray[np.int64]
    """``ahead[terminal, straight or across]``: where light that enters there may leave."""

    @classmethod
    def of(cls, graph: CellGraph, cells: CellDevice) -> PowerFlow:
        """Apply a device to the cells and links of a graph."""
        loss_db = waveguide_loss_db(graph, cells.device)
        kept = np.where(graph.mate < 0, 0.0, 10 ** (-loss_db / 10)[graph.links.of_terminal])
        terminals = np.arange(len(graph.mate))
        ahead = 4 * (terminals // 4)[:, None] + EXITS[terminals % 4]
        both = np.broadcast_to(np.array([[BAR], [CROSS]]), (2, graph.n_cells))
        return cls(graph, np.abs(cells.cell(both)[..., 0]) ** 2, kept, ahead)

    def shares(self, states: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return which share of the power that enters at a terminal leaves by each exit.

        Parameters
        ----------
        states
            ``states[cell]``: 0 bar, 1 cross, -1 free. Free and dead cells absorb all light.

        Returns
        -------
        float array, shape (terminals, 2)
            ``shares[terminal, way]`` with `way` 0 for straight and 1 for across; the exits are
            ``ahead[terminal, way]``. The four terminals of a cell have the same shares.
        """
        shares = self.by_state[states, np.arange(len(states))]
        shares[(states == FREE) | (self.graph.stuck > CROSS)] = 0.0
        return np.repeat(shares, 4, axis=0)


class Powers(NamedTuple):
    """All powers in one setting of the cells, as parts of what each source sends."""

    ratios: NDArray[np.float64]  # (circuits,): power from other sources over that of the signal
    signal: NDArray[np.float64]  # (circuits,): power from its own source at each destination
    entering: NDArray[np.float64]
    """``entering[terminal, circuit]``: from the source of each circuit."""
    worth: NDArray[np.float64]
    """``worth[terminal, circuit]``: the share of what leaves there that gets to a receiver."""

    @property
    def cost(self) -> float:
        """The sum of the fourth powers of all ratios, which the search lowers."""
        return float((self.ratios**4).sum())


def solve_powers(flow: PowerFlow, ends: Ends, states: NDArray[np.int8]) -> Powers:
    """Find the power of every circuit at every terminal, by one sparse LU factorisation.

    The powers p that enter the cells solve p = M p + b. Here ``M[onward, terminal]`` is the share
    of the light entering at `terminal` that next enters at `onward`, and b is 1 at the source of a
    circuit. The adjoint q = M^T q + r, with r the share of what enters the last cell that leaves
    at the destination, is for each terminal the share of light that gets from there to a receiver.
    Both systems use the same factors, with a right side for each circuit.

    Parameters
    ----------
    flow
        The fabric and the shares of power that its cells and links pass on.
    ends
        Where the circuits begin and end.
    states
        ``states[cell]``: 0 bar, 1 cross, -1 free, int8, shape (cells,). Free cells absorb light.

    Returns
    -------
    Powers
        ``entering`` is p, and ``worth`` is the adjoint moved back over a link: the share of what
        *leaves* a cell at a terminal that gets to the destination of a circuit.
    """
    n, circuits = len(flow.graph.mate), np.arange(len(ends.sources))
    shares = flow.shares(states)
    onward = flow.graph.mate[flow.ahead]
    joined = onward >= 0
    values = (shares * flow.kept[flow.ahead])[joined]
    places = (onward[joined], np.repeat(np.arange(n), 2).reshape(n, 2)[joined])
    # A closed loop without loss would make the matrix singular. Its light reaches no port, hence
    # a loss of 1e-9 in each step changes nothing that is measured.
    matrix = csc_matrix((values * (1 - 1e-9), places), shape=(n, n))
    factors = splu(
        (identity(n, format="csc") - matrix).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    # Light that leaves the last cell at the destination entered it by one of two terminals. A cell
    # passes the same shares in both directions, so `ahead` of the destination lists these two.
    sent, received = np.zeros((n, len(circuits))), np.zeros((n, len(circuits)))
    sent[ends.sources, circuits] = 1.0
    at, share = flow.ahead[ends.destinations], shares[ends.destinations]
    received[at, circuits[:, None]] = share
    entering, adjoint = _solve(factors, sent, "N"), _solve(factors, received, "T")

    # The adjoint counts from the entry of the next cell: `kept` is the share that gets there. What
    # leaves at the destination itself has arrived.
    worth = np.where(flow.graph.mate[:, None] < 0, 0.0, adjoint[flow.graph.mate])
    worth *= flow.kept[:, None]
    worth[ends.destinations, circuits] = 1.0

    # The diagonal is the power of a circuit's own source, all the rest of a row is crosstalk.
    arriving = (entering[at] * share[..., None]).sum(axis=1)  # by receiver, then by sender
    signal = arriving.diagonal().copy()
    np.fill_diagonal(arriving, 0.0)
    return Powers(arriving.sum(axis=1) / signal, signal, entering, worth)


def _solve(factors: Any, right: NDArray[np.float64], trans: str) -> NDArray[np.float64]:
    """Solve for few right sides at once: for more, BLAS starts threads that wait."""
    parts = [factors.solve(right[:, k : k + 8], trans=trans) for k in range(0, right.shape[1], 8)]
    return np.concatenate(parts, axis=1)


def estimate_changes(
    flow: PowerFlow, now: Powers, states: NDArray[np.int8], free: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Estimate, to first order, how much the cost grows if each free cell is flipped alone.

    Parameters
    ----------
    flow
        The fabric and the shares of power that its cells pass on.
    now
        The powers at the present states.
    states
        ``states[cell]``: 0 bar or 1 cross, int8, shape (cells,).
    free
        The cells that may be flipped, shape (free cells,).

    Returns
    -------
    float array, shape (free cells,)
        The growth of ``Powers.cost``, without unit; less than 0 where flipping should help.
    """
    # The derivative of the cost, the sum of ratios**4, by the stray power at each receiver.
    weight = 4 * now.ratios**3 / now.signal
    everyone = now.worth @ weight
    terminals = 4 * free[:, None] + np.arange(4)
    change = flow.by_state[1 - states[free], free] - flow.by_state[states[free], free]
    grown = np.zeros(len(free))
    for way in (0, 1):
        left = flow.ahead[terminals, way]
        others = everyone[left][..., None] - now.worth[left] * weight
        grown += change[:, way] * (now.entering[terminals] * others).sum(axis=(1, 2))
    return grown


def _choose(
    flow: PowerFlow, ends: Ends, stated: NDArray[np.int8], free: NDArray[np.intp]
) -> NDArray[np.int8]:
    """Descend from all in cross, all in bar and random states, and return the best.

    Crosstalk is least if free cells absorb all light; the search ends near that bound.
    """
    enough = (1 + LEAST_GAIN) * solve_powers(flow, ends, stated).cost
    rng = np.random.default_rng(0)
    best, least = stated, np.inf
    for start in range(max(2, min(STARTS, START_TERMINALS // len(flow.graph.mate)))):
        states = stated.copy()
        states[free] = (CROSS, BAR)[start] if start < 2 else rng.integers(0, 2, len(free))
        cost = _descend(flow, ends, states, free, enough)
        if cost < least:
            best, least = states, cost
        if least <= enough:
            break
    return best


def _descend(
    flow: PowerFlow,
    ends: Ends,
    states: NDArray[np.int8],
    free: NDArray[np.intp],
    enough: float,
) -> float:
    """Flip free cells, in place, as long as the cost falls; return the cost.

    Each round flips all cells that promise to lower the cost, or the most promising half, quarter
    and so on of them, until the cost computed exactly is indeed lower.

    Parameters
    ----------
    flow
        The fabric and the shares of power that its cells pass on.
    ends
        Where the circuits begin and end.
    states
        ``states[cell]``: 0 bar or 1 cross, int8, shape (cells,). Changed at `free` only.
    free
        The cells without a prescribed state, shape (free cells,).
    enough
        The cost at which the search stops.

    Returns
    -------
    float
        ``Powers.cost`` of the final states: the sum of the fourth powers of all ratios of
        crosstalk to signal.
    """
    now = solve_powers(flow, ends, states)
    for _ in range(ROUNDS):
        grown = estimate_changes(flow, now, states, free)
        if now.cost <= enough or np.minimum(grown, 0.0).sum() > -LEAST_GAIN * now.cost:
            break

        # The estimate holds for one flip alone. Many flips at once may disturb each other: then
        # fewer are tried, and those that promise most are kept longest.
        order = free[np.argsort(grown)][: int((grown < -1e-6 * now.cost).sum())]
        while len(order):
            tried = states.copy()
            tried[order] = 1 - tried[order]
            then = solve_powers(flow, ends, tried)
            if then.cost < now.cost:
                break
            order = order[: len(order) // 2]
        if not len(order):
            break
        states[:], now = tried, then
    return now.cost


def _cool(
    flow: PowerFlow,
    ends: Ends,
    states: NDArray[np.int8],
    free: NDArray[np.intp],
    power_mw: NDArray[np.float64],
) -> None:
    """Put free cells, in place, where they need less power, if crosstalk grows by next to nothing.

    Those that promise the least are flipped together; if that is too much, the better half.
    """
    saved = power_mw[free, states[free]] - power_mw[free, 1 - states[free]]
    warm = free[saved > 0]
    if not len(warm):
        return
    now = solve_powers(flow, ends, states)
    grown = estimate_changes(flow, now, states, warm)
    order, allowed = warm[np.argsort(grown, kind="stable")], (1 + _COOLING) * now.cost
    while len(order):
        tried = states.copy()
        tried[order] = 1 - tried[order]
        if solve_powers(flow, ends, tried).cost <= allowed:
            states[:] = tried
            return
        order = order[: len(order) // 2]
