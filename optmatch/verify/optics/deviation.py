"""Where a chip and its model disagree: states worth measuring, and the cell that is most likely.

One cell is taken to differ at a time. In each of its states it is a matrix
:math:`j ((p, q), (q, -p))`; p and q are fitted by least squares, so that one fit covers loss,
extinction, a turned phase, a stuck and a dead cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.cellgraph import DEAD
from optmatch.fabrics.light import trace
from optmatch.fabrics.waveguides import heat_turns, waveguide_loss_db
from optmatch.model import BAR, CROSS, Axes, Device, FrozenMap, InputError, Measurement, Value
from optmatch.model.cells import CellDevice, cells_of
from optmatch.model.numbers import integer

FLOOR = 1e-6
"""Is added to powers before they are compared in dB: below it (-60 dB) are leaks of leaks, and the
noise of instruments."""

LEAST_VARIANCE = 0.01**2
"""No instrument repeats to better than 0.01 dB."""

CHANCE = 30
"""The best of many cells may explain so many variances by chance, with its four numbers."""

_DRAWN = 128  # states among which each next one is chosen
_TRIED = 3  # steps of a first fit
_CLOSE, _STEPS = 24, 26  # cells whose fit is refined, and steps of it
_AT_ONCE = 128  # cells that are tried together


def choose_states(fabric: Fabric, count: int, *, seed: int = 0) -> NDArray[np.int8]:
    """Choose states of all cells, ``cell_states[k, cell]``, in which to measure a chip.

    A cell in bar, or in cross, is known by the beams that pass it so, over all states chosen. Each
    next state is the one of many drawn ones that leaves the smallest classes of cells with the
    same beams, by the sum of their squares; cells without light are a class too.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> choose_states(HexMesh(3, 3, ports=8), 4).shape
    (4, 38)
    """
    graph = _graph_of(fabric)
    rng = np.random.default_rng(integer("seed", seed, at_least=0))
    names = rng.integers(1, 2**63, fabric.n_ports, dtype=np.uint64)
    starts = np.broadcast_to(fabric.source_terminals, (_DRAWN, fabric.n_ports))
    cells, chosen = np.arange(graph.n_cells), []
    classes = np.zeros((graph.n_cells, 2), dtype=np.uint64)
    for _ in range(integer("count", count, at_least=1)):
        drawn = _set_stuck(graph, rng.integers(0, 2, (_DRAWN, graph.n_cells), dtype=np.int8))
        light = trace(graph, drawn, starts)
        arrives = np.isin(light.arrived, fabric.destination_terminals)[light.slot, light.beam]
        keys = np.zeros(drawn.shape, dtype=np.uint64)
        passed = light.slot[arrives], light.entered[arrives] // 4
        np.add.at(keys, passed, names[light.beam[arrives]])  # sums wrap round
        parts = np.repeat(classes[None], _DRAWN, axis=0)
        for part, row, key in zip(parts, drawn, keys, strict=True):
            part[cells, row] += key
        sizes = [np.unique(part, return_counts=True)[1] for part in parts]
        best = int(np.argmin([(size**2).sum() for size in sizes]))
        classes = np.unique(parts[best], return_inverse=True)[1].reshape(-1, 2).astype(np.uint64)
        chosen.append(drawn[best])
    return np.stack(chosen)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suspect(Value):
    """A cell that would explain what was measured, if it alone differed so from the model.

    ``loss_db`` and ``extinction_db`` are those fitted in bar and in cross, None where no light
    tells; an extinction below 0 is a cell stuck in the other state. The fit leaves ``off_db``, the
    root mean square of all measured pairs.
    """

    cell: int
    loss_db: tuple[float | None, ...]
    extinction_db: tuple[float | None, ...]
    off_db: float

    def __str__(self) -> str:
        parts = []
        for state, (loss, leak) in enumerate(zip(self.loss_db, self.extinction_db, strict=True)):
            name, other = ("bar", "cross")[:: 1 - 2 * state]
            told = [] if loss is None else [f"loss {loss:.2f} dB"]
            told += [] if leak is None else [f"extinction {leak:.1f} dB"]
            if leak is not None and leak < 0:
                told = [f"stuck in {other}"]
            parts.append(f"{name}: {', '.join(told) or 'not seen'}")
        return f"cell {self.cell}: {'; '.join(parts)}; leaves {self.off_db:.3g} dB"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipComparison(Value):
    """What a measured chip and its model disagree about.

    ``difference_db[state, source, destination]`` is measured less modelled, 0 where not measured;
    ``off_db`` its root mean square. ``suspects`` are the cells that explain it equally well, the
    best first, none if none explains more than chance would: chip and model agree, or more than
    one cell differs. ``unseen[what]`` are cells whose loss or leak, in bar or in cross, could
    change by an amplitude of 0.1 (a loss of 1 dB, a leak of -20 dB) and hardly stand out.
    """

    difference_db: Annotated[NDArray[np.float64], Axes(3)]
    off_db: float
    suspects: tuple[Suspect, ...]
    unseen: Mapping[str, tuple[int, ...]]

    def worst_pairs(self, count: int) -> list[tuple[int, int, int, float]]:
        """List state, source, destination and difference in dB of the pairs that are most off."""
        places = np.argsort(-np.abs(self.difference_db), axis=None, kind="stable")[:count]
        found = [(*np.unravel_index(at, self.difference_db.shape),) for at in places]
        return [(int(k), int(i), int(j), float(self.difference_db[k, i, j])) for k, i, j in found]


def compare_chip(
    fabric: Fabric, measured: Measurement, device: Device | CellDevice | str
) -> ChipComparison:
    """Compare a measured chip with its model, and find the cell that most likely differs.

    Powers are compared, in dB, not phases. From the light that enters a cell, what destinations
    get of its light and what comes back to it, the effect of any change of the cell follows
    exactly, so every cell is fitted from several starts. Suspects are all whose squares are within
    9 variances of the best, three standard deviations; the variance is what the best one leaves.

    Raises
    ------
    InputError
        If the fabric has no cells, or what was measured is not of its cells and ports.

    Examples
    --------
    >>> from optmatch.fabrics import Crossbar
    >>> power = np.full((1, 2, 2), np.nan)
    >>> power[0, 0, 0] = 10 ** -0.764
    >>> measured = Measurement(cell_states=[[1, 0, 0, 1]], power=power)
    >>> compare_chip(Crossbar(2), measured, "smartlight").suspects
    ()
    """
    graph = _graph_of(fabric)
    shape, wanted = measured.power.shape, (len(measured.power), fabric.n_ports, fabric.n_ports)
    if measured.cell_states.shape[1] != graph.n_cells or shape != wanted:
        raise InputError(
            f"cell_states {measured.cell_states.shape}, power {shape}: a fabric of"
            f" {graph.n_cells} cells and {fabric.n_ports} ports"
        )
    if np.isnan(measured.power).all():
        raise InputError("power: no pair was measured", where="power")
    model = _ChipModel(fabric, graph, measured, cells_of(device, graph.n_cells))
    everyone, nominal = np.arange(graph.n_cells), model.nominal
    first = best = model.fit(everyone, nominal, _TRIED)
    starts = [nominal[:, ::-1], 0 * nominal]  # stuck, dead
    starts += [np.stack(_turned(nominal, np.array(turn))).T for turn in (0.5, -0.5)]
    for start in starts:
        best = best.or_better(model.fit(everyone, start, _TRIED))
    close = np.argsort(best.squares.sum(axis=1), kind="stable")[:_CLOSE]
    last = model.fit(close, best.ways[close], _STEPS)
    total, count = last.squares.sum(axis=1), sum(len(part.wanted_db) for part in model.parts)
    variance = max(total.min() / count, LEAST_VARIANCE)
    difference = np.zeros(shape)
    for place, part in zip(difference, model.parts, strict=True):
        place[part.known] = part.wanted_db - _decibels(np.abs(part.arriving[part.known]) ** 2)
    before = float((difference**2).sum())
    order = np.argsort(total, kind="stable")
    order = order[total[order] <= total.min() + 9 * variance]
    explained = before > total.min() + CHANCE * variance
    left = np.sqrt(total / count)
    seen = first.told > CHANCE * LEAST_VARIANCE / 0.1**2
    return ChipComparison(
        difference_db=difference,
        off_db=float(np.sqrt(before / count)),
        suspects=tuple(
            _suspect(int(close[k]), last.ways[k], seen[close[k]], float(left[k]))
            for k in order[: len(order) * explained]
        ),
        unseen=FrozenMap(
            {
                f"{what} in {name}": tuple(np.flatnonzero(~seen[:, state, k]).tolist())
                for state, name in enumerate(("bar", "cross"))
                for k, what in enumerate(("loss", "leak"))
            }
        ),
    )


class _Measured(NamedTuple):
    """One measured state: the light of the model, and what the light of each cell adds to it."""

    states: NDArray[np.int8]
    heat: NDArray[np.float64]  # [cell]: half the turn of the phase by others
    known: NDArray[np.bool_]  # [source, destination]
    wanted_db: NDArray[np.float64]  # of known pairs
    arriving: NDArray[np.complex128]  # [source, destination]
    sent: NDArray[np.complex128]  # [cell, terminal, source]: what enters there
    heard: NDArray[np.complex128]  # [cell, terminal, destination]: of what leaves there
    back: NDArray[np.complex128]  # [cell, entered, left]: of what leaves there


class _Fit(NamedTuple):
    """The matrices (p, q) of cells in their states, and what they leave."""

    ways: NDArray[np.float64]  # [cell, state, p or q]
    squares: NDArray[np.float64]  # [cell, state]
    told: NDArray[
        np.float64
    ]  # [cell, state, loss or leak]: squares that an amplitude of 1 changes

    def or_better(self, other: _Fit) -> _Fit:
        """Take the better fit of each cell in each state."""
        better = other.squares < self.squares
        ways = np.where(better[..., None], other.ways, self.ways)
        return _Fit(ways, np.minimum(self.squares, other.squares), self.told)


class _ChipModel:
    """The model of a chip, and its distance from what was measured if one cell differs."""

    def __init__(
        self, fabric: Fabric, graph: CellGraph, measured: Measurement, cells: CellDevice
    ) -> None:
        both = cells.cell(np.broadcast_to(np.array([[BAR], [CROSS]]), (2, graph.n_cells)))
        self.nominal = np.moveaxis(both[..., 0].imag, 0, 1)  # [cell, state, p or q]
        self.nominal[graph.stuck == DEAD] = 0.0
        self.parts = []
        for row, power in zip(measured.cell_states, measured.power, strict=True):
            states, known = _set_stuck(graph, row), ~np.isnan(power)
            if fabric.bidirectional:
                np.fill_diagonal(known, False)
            heat = heat_turns(graph, cells, states) / 2
            p, q = _turned(self.nominal[np.arange(graph.n_cells), states], heat)
            light = _light(fabric, graph, cells.device, p, q)
            self.parts.append(_Measured(states, heat, known, _decibels(power[known]), *light))

    def off(
        self, part: _Measured, cells: NDArray[np.intp], ways: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """``off_db[cell, pair]``: modelled less measured, if a cell were ``ways[cell, state]``."""
        state = part.states[cells]
        differing = ways[np.arange(len(cells)), state] - self.nominal[cells, state]
        p, q = _turned(differing, part.heat[cells])
        change = np.zeros((len(cells), 4, 4), dtype=np.complex128)
        for into, out in ((0, 2), (2, 0)):
            change[:, out, into], change[:, out + 1, into + 1] = 1j * p, -1j * p
            change[:, out, into + 1] = change[:, out + 1, into] = 1j * q
        turned = np.linalg.solve(np.eye(4) - part.back[cells] @ change, part.sent[cells])
        added = np.swapaxes(change @ turned, 1, 2) @ part.heard[cells]
        power = np.abs((part.arriving + added)[:, part.known]) ** 2
        return _decibels(power) - part.wanted_db

    def fit(self, cells: NDArray[np.intp], ways: NDArray[np.float64], steps: int) -> _Fit:
        """Fit (p, q) of each cell in each state, after Levenberg and Marquardt."""
        if len(cells) > _AT_ONCE:
            places = range(0, len(cells), _AT_ONCE)
            cut = [(cells[k : k + _AT_ONCE], ways[k : k + _AT_ONCE]) for k in places]
            found = [self.fit(some, start, steps) for some, start in cut]
            return _Fit(*map(np.concatenate, zip(*found, strict=True)))
        rows, squares = np.arange(len(cells)), np.full((len(cells), 2), np.inf)
        damping, best = np.full(squares.shape, 1e-3), ways
        for step in range(steps):
            normal, pull = np.zeros((len(cells), 2, 2, 2)), np.zeros(ways.shape)
            then = np.zeros(squares.shape)
            for part in self.parts:
                state, off = part.states[cells], self.off(part, cells, ways)
                by = np.stack(
                    [(self.off(part, cells, ways + h) - off) / 1e-6 for h in 1e-6 * np.eye(2)], 1
                )
                then[rows, state] += (off**2).sum(axis=1)
                normal[rows, state] += by @ np.swapaxes(by, 1, 2)
                pull[rows, state] += (by @ off[..., None])[..., 0]
            better = then < squares
            squares, best = np.minimum(then, squares), np.where(better[..., None], ways, best)
            if step == 0:
                told = np.einsum("csii->csi", normal).copy()
                told[:, CROSS] = told[:, CROSS, ::-1]  # the wanted way first
                kept_normal, kept_pull = normal, pull
            kept_normal = np.where(better[..., None, None], normal, kept_normal)
            kept_pull = np.where(better[..., None], pull, kept_pull)
            damping *= np.where(better, 0.2, 5.0)
            damped = kept_normal * (1 + damping[..., None, None] * np.eye(2)) + 1e-9 * np.eye(2)
            ways = best - np.linalg.solve(damped, kept_pull[..., None])[..., 0]
            ways /= np.maximum(1.0, np.linalg.norm(ways, axis=-1, keepdims=True))  # passive
        return _Fit(best, squares, told)


def _turned(ways: NDArray[np.float64], angle: NDArray[np.float64]) -> tuple[Any, Any]:
    """Turn ``(p, q)`` of cells by angles."""
    (p, q), sine, cosine = ways.T, np.sin(angle), np.cos(angle)
    return p * cosine + q * sine, q * cosine - p * sine


def _light(
    fabric: Fabric, graph: CellGraph, device: Device, p: Any, q: Any
) -> tuple[NDArray[np.complex128], ...]:
    """Solve the model in one state: what a `_Measured` has of it."""
    from optmatch.verify.optics.scattering import scatter  # here only, since it needs SciPy

    n, kept = graph.n_cells, 1 - 1e-5  # a closed loop without loss would be singular
    matrices = kept * 1j * np.stack([p, q, q, -p], axis=1).reshape(n, 2, 2)
    links = (10 ** (-waveguide_loss_db(graph, device) / 20)).astype(np.complex128)
    facets = 10 ** (-device.coupling_loss_db / 10)  # two of them, as an amplitude
    waves = scatter(graph, matrices, links, fabric.source_terminals)
    heard = scatter(graph, matrices, links, fabric.destination_terminals)  # the same backwards
    back = np.zeros((n, 4, 4), dtype=np.complex128)
    joined = np.flatnonzero(graph.mate >= 0)
    for some in np.array_split(joined, max(1, len(joined) // 256)):
        entering = scatter(graph, matrices, links, graph.mate[some]).entering
        comes = entering[4 * (some // 4)[:, None] + np.arange(4), np.arange(len(some))[:, None]]
        back[some // 4, :, some % 4] = comes * links[graph.links.of_terminal[some], None]
    return (
        facets * waves.leaving[fabric.destination_terminals].T,
        facets * waves.entering.reshape(n, 4, -1),
        heard.entering.reshape(n, 4, -1),
        back,
    )


def _graph_of(fabric: Fabric) -> CellGraph:
    if fabric.graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells to measure")
    return fabric.graph


def _set_stuck(graph: CellGraph, states: NDArray[np.int8]) -> NDArray[np.int8]:
    return np.where(np.isin(graph.stuck, (BAR, CROSS)), graph.stuck, states).astype(np.int8)


def _decibels(power: NDArray[np.float64]) -> NDArray[np.float64]:
    level: NDArray[np.float64] = 10 * np.log10(power + FLOOR)
    return level


def _suspect(
    cell: int, ways: NDArray[np.float64], seen: NDArray[np.bool_], off_db: float
) -> Suspect:
    """Say what a fit means."""
    level = -10 * np.log10(np.maximum(ways**2, 1e-12))
    level[CROSS] = level[CROSS, ::-1]  # the wanted way first
    loss, leak = level[:, 0].tolist(), (level[:, 1] - level[:, 0]).tolist()
    return Suspect(
        cell=cell,
        loss_db=tuple(x if s else None for x, s in zip(loss, seen[:, 0], strict=True)),
        extinction_db=tuple(x if s else None for x, s in zip(leak, seen[:, 1], strict=True)),
        off_db=off_db,
    )
