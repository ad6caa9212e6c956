"""Measured chips against their model: the changed cell is found, and states tell cells apart."""

from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import CellGraph
from optmatch.fabrics.light import trace
from optmatch.model import BAR, CROSS, Measurement
from optmatch.model.cells import cells_of
from optmatch.verify.optics import deviation, noise, responses
from optmatch.verify.optics.deviation import Suspect, choose_states, compare_chip
from tests.helpers.modes import SOAK
from tests.verify.rules.routing import ROUND, OneWay

KINDS = ("loss", "extinction", "turn", "stuck", "dead")
CHIP = om.Device(
    bar_loss_db=0.5,
    cross_loss_db=0.4,
    bar_extinction_db=30.0,
    cross_extinction_db=36.0,
    coupling_loss_db=1.5,
    waveguide_loss_db_per_m=1000.0,
    cell_length_m=8e-4,
)
FABRICS: list[om.Fabric] = [
    om.HexMesh(1, 2, ports=8),
    om.HexMesh(1, 2, tx=[0, 4, 8], rx=[2, 6, 10]),
    om.Faulty(om.SquareMesh(1, 2), stuck_bar=[3], dead_cells=[5]),
    om.Benes(4),
    om.Crossbar(3),
]


def graph_of(fabric: om.Fabric) -> CellGraph:
    """Return the cells of a fabric that has some."""
    assert fabric.graph is not None
    return fabric.graph


def cell_matrix(state: int, loss_db: float, extinction_db: float, turn: float) -> Any:
    """Write down the interferometer of the manual."""
    tilt = np.arctan(10 ** (-extinction_db / 20))
    theta = (np.pi / 2 - tilt if state == BAR else tilt) + turn
    gain = np.sqrt(10 ** (-loss_db / 10) * (1 + 10 ** (-extinction_db / 10)))
    s, c = np.sin(theta), np.cos(theta)
    return gain * 1j * np.array([[s, c], [c, -s]])


def transfer_powers(
    fabric: om.Fabric,
    states: NDArray[np.int8],
    changed: int,
    kind: str | None,
    by: float = 0,
    lossy: int = -1,
) -> NDArray[np.float64]:
    """Measure a chip in which one cell is changed, by dense elimination: an oracle.

    Cell `lossy` loses 0.5 dB more.
    """
    from optmatch.fabrics.waveguides import waveguide_loss_db

    graph = graph_of(fabric)
    n = len(graph.mate)
    guides = 10 ** (-waveguide_loss_db(graph, CHIP) / 20)
    powers = []
    for row in states:
        scattering, joins = np.zeros((n, n), dtype=complex), np.zeros((n, n))
        for cell in range(graph.n_cells):
            state = int(graph.stuck[cell]) if 0 <= graph.stuck[cell] <= 1 else int(row[cell])
            loss, leak = ((0.5, 30.0), (0.4, 36.0))[state]
            turn = 0.0
            if cell == changed and kind == "stuck":
                state, loss, leak = ((0, 0.5, 30.0), (1, 0.4, 36.0))[int(by)]
            elif cell == changed:
                loss += by if kind == "loss" else 0.0
                leak = by if kind == "extinction" else leak
                turn = by if kind == "turn" else 0.0
            loss += 0.5 if cell == lossy else 0.0
            matrix = cell_matrix(state, loss, leak, turn)
            if cell == changed and kind in ("p", "q"):
                matrix += (
                    by * 1j * np.array([[1, 0], [0, -1]] if kind == "p" else [[0, 1], [1, 0]])
                )
            if graph.stuck[cell] == 2 or (cell == changed and kind == "dead"):
                matrix = 0 * matrix
            for end in (0, 2):
                scattering[
                    np.ix_(4 * cell + (2 - end) + np.arange(2), 4 * cell + end + np.arange(2))
                ] = matrix
        for terminal in np.flatnonzero(graph.mate >= 0):
            joins[terminal, graph.mate[terminal]] = guides[graph.links.of_terminal[terminal]]
        sent = np.zeros((n, fabric.n_ports))
        sent[fabric.source_terminals, np.arange(fabric.n_ports)] = 1.0
        out = scattering @ np.linalg.solve(np.eye(n) - joins @ scattering, sent)
        powers.append(np.abs(out[fabric.destination_terminals].T) ** 2 * 10**-0.3)
    return np.array(powers)


def model_of(fabric: om.Fabric, measured: Measurement) -> deviation._ChipModel:
    """Return the model of a chip as it should be."""
    cells = cells_of(CHIP, fabric.n_cells)
    nominal = responses.nominal_amplitudes(graph_of(fabric), cells)
    return deviation._ChipModel(fabric, measured, cells, nominal)


def draw_change(rng: np.random.Generator, kind: str) -> float:
    """Draw by how much a cell is changed."""
    sign = rng.choice([-1, 1])
    drawn: dict[str, float] = {
        "loss": rng.uniform(0.3, 3.0),
        "extinction": rng.uniform(8.0, 20.0),
        "turn": sign * rng.uniform(0.1, 0.6),
        "stuck": float(rng.integers(2)),
        "dead": 0.0,
    }
    return drawn[kind]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_a_changed_cell_is_found(fabric: om.Fabric) -> None:
    """Any cell, changed in any way, is among few suspects, or no light tells of it."""
    rng = np.random.default_rng(1)
    states = choose_states(fabric, 5)
    sizes, k = [], FABRICS.index(fabric)
    for kind in (KINDS[k], KINDS[k - 2]):
        works = np.flatnonzero(graph_of(fabric).stuck < 0)
        cell = int(rng.choice(works))
        power = transfer_powers(fabric, states, cell, kind, draw_change(rng, kind))
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        cells = [suspect.cell for suspect in found.suspects]
        unseen = {cell for part in found.unseen.values() for cell in part}
        assert cell in cells or (not cells and cell in unseen), (kind, cell, cells)
        sizes.append(len(cells))
    assert max(sizes) > 0
    assert np.mean(sizes) <= 3


@pytest.mark.parametrize(
    ("fabric", "kind", "count", "seed", "cell"),
    [(om.Crossbar(3), "dead", 1, 78, 4), (om.HexMesh(1, 2, ports=4), "stuck", 2, 40, 8)],
)
def test_a_broken_cell_needs_a_start_of_its_own(
    fabric: om.Fabric, kind: str, count: int, seed: int, cell: int
) -> None:
    """From a cell as it should be, or turned, a fit ends where it explains less."""
    states = choose_states(fabric, count, seed=seed)
    for by in (0, 1):
        power = transfer_powers(fabric, states, cell, kind, by)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        assert not found.suspects or cell in [suspect.cell for suspect in found.suspects]


def test_the_fit_is_what_was_changed() -> None:
    """Loss and extinction are found to the digits that the floor leaves."""
    fabric = om.HexMesh(1, 2)
    states = choose_states(fabric, 6)
    for cell, kind, by in ((3, "loss", 1.5), (7, "extinction", 12.0)):
        power = transfer_powers(fabric, states, cell, kind, by)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        best = found.suspects[0]
        assert best.cell == cell
        loss, leak = (0.5 + by, 0.4 + by), (30.0, 36.0)
        if kind == "extinction":
            loss, leak = (0.5, 0.4), (by, by)
        assert best.loss_db == pytest.approx(loss, abs=0.02)
        assert best.extinction_db == pytest.approx(leak, abs=0.3)
    power = transfer_powers(fabric, states, 5, "stuck", 1)
    found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
    assert found.suspects[0].cell == 5
    assert "bar: stuck in cross" in str(found.suspects[0])


@pytest.mark.parametrize("fabric", [om.HexMesh(1, 2, ports=8), om.Benes(8)])
def test_differences_are_those_of_the_oracle(
    fabric: om.Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a chip as modelled they are nothing; else what two dense solutions differ by."""
    monkeypatch.setattr(deviation, "_CELLS_AT_ONCE", 7)
    states = choose_states(fabric, 3)
    model = transfer_powers(fabric, states, 0, None)
    same = compare_chip(fabric, Measurement(cell_states=states, power=model), CHIP)
    assert np.abs(same.difference_db).max() < 0.01
    assert same.suspects == ()
    power = transfer_powers(fabric, states, 4, "loss", 2.0)
    found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
    wanted = 10 * np.log10((power + 1e-6) / (model + 1e-6))
    if fabric.bidirectional:
        wanted[:, np.arange(8), np.arange(8)] = 0.0  # light that comes back is not compared
    pairs = 3 * 8 * (7 if fabric.bidirectional else 8)
    assert found.difference_db == pytest.approx(wanted, abs=0.01)
    assert found.off_db == pytest.approx(np.sqrt((wanted**2).sum() / pairs), abs=0.01)
    assert 4 in [suspect.cell for suspect in found.suspects]
    assert found.suspects[0].off_db < 0.05 < found.off_db
    assert 4 not in {*found.unseen["loss in bar"]} & {*found.unseen["loss in cross"]}
    k, i, j, off = found.worst_pairs(1)[0]
    assert abs(off) == np.abs(found.difference_db).max() == abs(found.difference_db[k, i, j])


def test_a_suspect_says_what_is_seen() -> None:
    ways = np.array([[0.5, 0.05], [0.5, 0.05]])  # in cross most light goes the wrong way
    for seen, loss_db, extinction_db in (
        ([[1, 0], [0, 1]], (6.0206, None), (None, -20.0)),
        ([[0, 1], [1, 0]], (None, 26.0206), (20.0, None)),
    ):
        found = deviation._describe_suspect(3, ways, np.array(seen, dtype=bool), 0.25)
        assert found.loss_db == pytest.approx(loss_db) and found.cell == 3
        assert found.extinction_db == pytest.approx(extinction_db) and found.off_db == 0.25
    for loss, leak, told in (
        ((0.5, None), (None, -3.0), "bar: loss 0.50 dB; cross: stuck in bar"),
        ((1.0, None), (-0.1, 0.5), "bar: stuck in cross; cross: extinction 0.5 dB"),
        ((1.0, None), (0.0, None), "bar: loss 1.00 dB, extinction 0.0 dB; cross: not seen"),
    ):
        suspect = Suspect(cell=4, loss_db=loss, extinction_db=leak, off_db=0.25)
        assert str(suspect) == f"cell 4: {told}; leaves 0.25 dB"


@pytest.mark.parametrize("fabric", [om.HexMesh(1, 1), om.Benes(4), OneWay((3, 1), (1, 3), ROUND)])
def test_the_effect_of_a_changed_cell_follows_exactly(fabric: om.Fabric) -> None:
    """From the light of the model alone, as the oracle has it that solves the chip anew."""
    states = choose_states(fabric, 2)
    measured = Measurement(cell_states=states, power=transfer_powers(fabric, states, 0, None))
    model = model_of(fabric, measured)
    for cell in range(fabric.n_cells):
        for kind, by in (("p", -0.3), ("q", 0.2)):
            power = transfer_powers(fabric, states, cell, kind, by)
            wanted = 10 * np.log10((power + 1e-6) / (measured.power + 1e-6))
            ways = model.amplitudes[[cell]] + by * np.array([kind == "p", kind == "q"])
            for part, differs in zip(model.states, wanted, strict=True):
                found = model.deviations(part, np.array([cell]), ways)
                assert found[0] == pytest.approx(differs[part.compared], abs=0.01)


def test_a_first_step_is_the_one_of_newton() -> None:
    """Shorter by less than a thousandth; no cell is taken to amplify."""
    fabric = om.Benes(4)
    states = choose_states(fabric, 3)
    power = transfer_powers(fabric, states, 0, None)
    model = model_of(fabric, Measurement(cell_states=states, power=power))
    model.weights = [np.ones_like(weight) for weight in model.weights]
    parts, seen = model.states, 0
    for cell in range(fabric.n_cells):
        one = np.array([cell])
        start = model.amplitudes[one]
        for share in (0.8, 1.3):
            model.states = [
                part._replace(
                    measured_db=part.measured_db + model.deviations(part, one, share * start)[0]
                )
                for part in parts
            ]
            found = model.fit(one, start, 2).amplitudes
            assert np.linalg.norm(found, axis=2).max() <= 1 + 1e-12
            for state in (BAR, CROSS):
                off, slopes = [], []
                for part in model.states:
                    if part.cell_states[cell] == state:
                        off += model.deviations(part, one, start)[0].tolist()
                        moved = [
                            model.deviations(part, one, start + h)[0] for h in 1e-6 * np.eye(2)
                        ]
                        slopes += np.transpose(moved).tolist()
                step, slope = (start - found)[0, state], np.array(slopes).reshape(-1, 2)
                slope = (slope - np.array(off)[:, None]) / 1e-6
                gained, curved = off @ slope @ step, ((slope @ step) ** 2).sum()
                if curved > 0 and share < 1:
                    assert 0 < gained / curved - 1 < 1e-3
                    seen += 1
    assert seen > fabric.n_cells


def test_no_cell_amplifies() -> None:
    """In each state by itself, however well more light would fit."""
    fabric = om.Benes(4)
    states = choose_states(fabric, 3)
    power = transfer_powers(fabric, states, 0, None)
    model = model_of(fabric, Measurement(cell_states=states, power=power))
    every = np.arange(fabric.n_cells)
    for loud in (BAR, CROSS):
        start = np.full((fabric.n_cells, 2, 2), 0.05)
        start[:, loud] = 0.7
        for cell in every:
            one, parts = np.array([cell]), model.states
            model.states = [
                part._replace(
                    measured_db=part.measured_db + model.deviations(part, one, start[one] * 1.3)[0]
                )
                for part in parts
            ]
            found = model.fit(one, start[one], 4).amplitudes
            assert np.linalg.norm(found, axis=2).max() <= 1 + 1e-12
            model.states = parts


def test_what_hardly_stands_out_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amplitude by amplitude: 0.1 more, along its slope, changes less than 30 variances.

    Instruments are taken to be so precise that the border lies close to every fourth cell.
    """
    fabric = om.HexMesh(1, 2, ports=6)
    states = choose_states(fabric, 2)
    model = transfer_powers(fabric, states, 0, None)
    measured = Measurement(cell_states=states, power=model)
    known = ~np.eye(fabric.n_ports, dtype=bool)
    told = {}
    for cell in range(fabric.n_cells):
        slopes = {}
        for kind in ("p", "q"):
            power = transfer_powers(fabric, states, cell, kind, 1e-6)
            slope = 10 * np.log10((power + 1e-6) / (model + 1e-6)) / 1e-6
            slopes[kind] = (slope[:, known] ** 2).sum(axis=1)
        for state, name, ways in ((BAR, "bar", "pq"), (CROSS, "cross", "qp")):
            for what, way in zip(("loss", "leak"), ways, strict=True):
                squares = float(slopes[way][states[:, cell] == state].sum())
                told[cell, f"{what} in {name}"] = squares * 0.1**2 / 30
    sizes = [size for size in sorted(told.values()) if size > 1e-4]
    borders = [1.01 * size for size, more in pairwise(sizes) if more > 1.02 * size]
    assert min(told.values()) == 0.0 and len(borders) > 8
    monkeypatch.setattr(deviation, "relative_spread", lambda share, ratio: np.ones_like(share))
    monkeypatch.setattr(noise, "DARK_DEVIATIONS", 0.0)  # the oracle compares all levels
    for border in (0.01**2, *borders[::4], 1.01 * sizes[-1]):
        monkeypatch.setattr(noise, "LEAST_NOISE_DB", np.sqrt(border))
        found = compare_chip(fabric, measured, CHIP)
        for (cell, what), size in told.items():
            assert (cell in found.unseen[what]) == (size <= border), (cell, what)


def add_noise(
    power: NDArray[np.float64], rng: np.random.Generator, floor: float = 0.0
) -> NDArray[np.float64]:
    """Give powers an error of 0.01 to 0.1 dB, and of a detector's floor."""
    noise_db = rng.uniform(0.01, 0.1)
    noisy = power * 10 ** (rng.normal(0, noise_db, power.shape) / 10)
    clipped: NDArray[np.float64] = np.clip(noisy + floor * rng.normal(size=power.shape), 0.0, 1.0)
    return clipped


@pytest.mark.parametrize("floor", [0.0, 1e-6])
def test_noise_is_no_suspect(floor: float) -> None:
    """A chip as modelled has one in 5 % of measurements at most, dark pairs noisy or not."""
    fabric = om.Benes(4)
    rng = np.random.default_rng(3)
    states = choose_states(fabric, 6)
    model = transfer_powers(fabric, states, 0, None)
    draws = 60 if SOAK else 10
    alarms = 0
    for _ in range(draws):
        power = add_noise(model, rng, floor)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        alarms += bool(found.suspects)
    assert alarms <= 0.05 * draws


def test_one_changed_cell_is_told_from_two() -> None:
    """In noise: one of 0.3 dB or 0.1 rad is a suspect and called one; two are called several."""
    fabric = om.Benes(4)
    rng = np.random.default_rng(4)
    states = choose_states(fabric, 8)
    named = called_several = told_of_two = 0
    draws = 20 if SOAK else 5
    for _ in range(draws):
        first, second = rng.choice(fabric.n_cells, 2, replace=False)
        kind, by = (("loss", 0.3), ("turn", 0.1), ("turn", -0.1))[rng.integers(3)]
        one = transfer_powers(fabric, states, first, kind, by)
        power = add_noise(one, rng)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        named += first in [suspect.cell for suspect in found.suspects]
        called_several += found.several

        both = transfer_powers(fabric, states, first, kind, by, lossy=second)
        power = add_noise(both, rng)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        names = [suspect.cell for suspect in (*found.suspects, *found.second_suspects)]
        told_of_two += found.several or {first, second} <= set(names)
    assert named >= 0.95 * draws and called_several <= 0.05 * draws
    assert told_of_two >= 0.9 * draws


def of_the_day(draws: int, rate: float) -> int:
    """Return how often something of this rate happens at most, but for one day in a thousand."""
    chance, most = (1 - rate) ** draws, 0
    term = chance
    while chance < 0.999:
        term *= (draws - most) / (most + 1) * rate / (1 - rate)
        most += 1
        chance += term
    assert most < draws, "too few draws: the test cannot fail"
    return most


def seed_of_the_day() -> int:
    """Return a seed that is another one each day: a failure names the day."""
    return date.today().toordinal()


@pytest.mark.slow
@pytest.mark.parametrize("floor", [0.0, 1e-6])
def test_false_alarms_on_hexagons(floor: float) -> None:
    """The stated rate holds, on any day, also where the instrument's noise is at -60 dB."""
    fabric = om.HexMesh(4, 4, ports=8)
    rng = np.random.default_rng(seed_of_the_day())
    states = choose_states(fabric, 8)
    model = transfer_powers(fabric, states, 0, None)
    draws = 40 if SOAK else 3
    alarms = 0
    for _ in range(draws):
        power = add_noise(model, rng, floor)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        alarms += bool(found.suspects)
    assert alarms <= of_the_day(draws, deviation.FALSE_ALARMS), seed_of_the_day()


@pytest.mark.slow
def test_changed_cells_are_found_on_hexagons() -> None:
    """On any day: one is among the suspects unless no light tells; two are called several."""
    fabric = om.HexMesh(4, 4, ports=8)
    rng = np.random.default_rng(seed_of_the_day())
    states = choose_states(fabric, 8)
    draws = 20 if SOAK else 3
    missed = missed_of_two = 0
    for _ in range(draws):
        first, second = rng.choice(fabric.n_cells, 2, replace=False)
        kind, by = (("loss", 0.3), ("turn", 0.1), ("turn", -0.1))[rng.integers(3)]
        one = transfer_powers(fabric, states, first, kind, by)
        power = add_noise(one, rng)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        told = first in [suspect.cell for suspect in found.suspects]
        unseen = kind == "turn" and first in {
            *found.unseen["leak in bar"],
            *found.unseen["leak in cross"],
        }
        missed += not told and not unseen

        both = transfer_powers(fabric, states, first, kind, by, lossy=second)
        power = add_noise(both, rng)
        found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
        names = [suspect.cell for suspect in (*found.suspects, *found.second_suspects)]
        missed_of_two += not (found.several or {first, second} <= set(names) or unseen)
    assert missed <= of_the_day(draws, 0.02), seed_of_the_day()
    assert missed_of_two <= of_the_day(draws, 0.05), seed_of_the_day()


def test_a_leak_that_grows_through_a_null_needs_a_start_of_its_own() -> None:
    """Cell 26 is turned by 0.1 rad: its leak in cross goes through a null of interference."""
    fabric = om.HexMesh(4, 4, ports=8)
    states = choose_states(fabric, 8)
    power = transfer_powers(fabric, states, 26, "turn", 0.1)
    power *= 10 ** (np.random.default_rng(0).normal(0, 0.07, power.shape) / 10)
    found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
    assert found.suspects[0].cell == 26
    assert found.noise_db == pytest.approx(0.07, rel=0.15)
    assert not found.several


def test_the_chance_of_an_f_test() -> None:
    """Against drawn ratios of mean squares, four degrees of freedom above."""
    rng = np.random.default_rng(0)
    for freedom in (4, 30):
        above = rng.chisquare(4, 200_000) / 4
        ratios = above / (rng.chisquare(freedom, 200_000) / freedom)
        for ratio in (0.5, 2.0, 4.0):
            chance = deviation._f_test_chance(ratio, freedom)
            assert chance == pytest.approx((ratios > ratio).mean(), abs=0.004)


def test_pairs_that_were_not_measured_do_not_matter() -> None:
    fabric = om.HexMesh(1, 2, ports=8)
    states = choose_states(fabric, 8)
    power = transfer_powers(fabric, states, 6, "turn", 0.4)
    power[np.random.default_rng(0).random(power.shape) < 0.3] = np.nan
    found = compare_chip(fabric, Measurement(cell_states=states, power=power), CHIP)
    assert 6 in [suspect.cell for suspect in found.suspects]
    assert (found.difference_db[np.isnan(power)] == 0).all()


def classes(fabric: om.Fabric, states: NDArray[np.int8]) -> int:
    """Sum up the squares of the classes of cells that no beam of any state tells apart."""
    starts = np.broadcast_to(fabric.source_terminals, (len(states), fabric.n_ports))
    light = trace(graph_of(fabric), states, starts)
    beams: dict[tuple[int, int], list[tuple[int, int]]] = {
        (cell, state): [] for cell in range(fabric.n_cells) for state in (BAR, CROSS)
    }
    for slot, beam, entered in zip(light.slot, light.beam, light.entered, strict=True):
        if light.arrived[slot, beam] in fabric.destination_terminals:
            cell = int(entered) // 4
            beams[cell, int(states[slot, cell])].append((int(slot), int(beam)))
    sizes: dict[tuple[tuple[int, int], ...], int] = {}
    for passed in beams.values():
        sizes[tuple(sorted(passed))] = sizes.get(tuple(sorted(passed)), 0) + 1
    return sum(size**2 for size in sizes.values())


@pytest.mark.parametrize("fabric", [om.HexMesh(4, 4, ports=10), om.Benes(8), om.Crossbar(4)])
def test_each_state_chosen_tells_most_apart(
    fabric: om.Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all that are drawn for its place, by the sum of the squares of classes."""
    drawn = []

    def watch(graph: CellGraph, states: NDArray[np.int8], starts: NDArray[np.int32]) -> Any:
        drawn.append(states)
        return trace(graph, states, starts)

    monkeypatch.setattr(deviation, "trace", watch)
    monkeypatch.setattr(deviation, "_DRAWN_STATES", 16)
    chosen = choose_states(fabric, 5, seed=1)
    for k, among in enumerate(drawn):
        left = [classes(fabric, np.stack([*chosen[:k], states])) for states in among]
        assert classes(fabric, chosen[: k + 1]) == min(left)


def test_what_is_refused() -> None:
    mesh = om.HexMesh(1, 1)
    with pytest.raises(om.InputError, match="no cells"):
        choose_states(om.IdealSwitch(4), 2)
    for options, match in (((0, 0), "count = 0: must be >= 1"), ((1, -1), "seed = -1")):
        with pytest.raises(om.InputError, match=match):
            choose_states(mesh, options[0], seed=options[1])
    power = np.full((1, 12, 12), 0.5)
    for states, powers, match in (
        ([[3] * 6], power, r"cell_states\[0, 0\] = 3: from 0 to 2"),
        ([[0] * 6], -power, r"power\[0, 0, 0\] = -0.5: from 0 to 1"),
        ([[0] * 6], power * np.inf, "not a finite number"),
        ([[0] * 6], power[:, :4], "not .states, cells. and .states, ports, ports."),
        ([[0] * 6] * 2, power, "not .states, cells. and"),
    ):
        with pytest.raises(om.InputError, match=match):
            Measurement(cell_states=states, power=powers)  # type: ignore[arg-type]
    for states, powers, match in (
        ([[0] * 5], power, r"cell_states \(1, 5\), power \(1, 12, 12\): a fabric of 6 cells"),
        ([[0] * 6], power[:, :4, :4], r"power \(1, 4, 4\): a fabric of 6 cells and 12 ports"),
        ([[0] * 6], power * np.nan, "no pair was measured"),
        ([[2] * 6], power, "in every state some cell is half turned"),
    ):
        measured = Measurement(cell_states=states, power=powers)  # type: ignore[arg-type]
        with pytest.raises(om.InputError, match=match):
            compare_chip(mesh, measured, "smartlight")
