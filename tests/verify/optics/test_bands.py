"""The band of a measured chip, and hints at another order of its ports."""

import numpy as np
import pytest

import optmatch as om
from optmatch.model import CellDevice, Measurement
from optmatch.verify.optics.bands import lit_matchings, measure_band, suggest_port_order
from optmatch.verify.optics.deviation import compare_chip
from tests.verify.optics.test_deviation import CHIP, transfer_powers


def test_the_worst_circuit_of_a_band() -> None:
    """Loss and crosstalk come from whatever frequency is worst, of lit pairs alone."""
    fabric = om.Crossbar(2)
    states = np.array([[0, 1, 1, 0]], dtype=np.int8)
    assert lit_matchings(fabric, states).tolist() == [[0, 1]]
    band = np.full((1, 3, 2, 2), 1e-4)
    band[0, :, 0, 0] = 0.5, 0.25, 0.4
    band[0, :, 1, 1] = 0.5
    band[0, 2, 1, 0] = 0.1
    frequencies_hz = np.array([1.92e14, 1.93e14, 1.94e14])
    measured = Measurement(
        cell_states=states, power=band[:, 1], frequencies_hz=frequencies_hz, band_power=band
    )
    figures = measure_band(fabric, measured)
    assert figures is not None
    loss, crosstalk = figures.insertion_loss, figures.signal_to_crosstalk
    assert loss.decibels == pytest.approx(10 * np.log10(4))
    assert (loss.source, loss.destination, loss.frequency_hz) == (0, 0, 1.93e14)
    assert crosstalk.decibels == pytest.approx(10 * np.log10(4))
    assert (crosstalk.source, crosstalk.frequency_hz) == (0, 1.94e14)


@pytest.mark.parametrize("reading", ["transposed", "reversed", "right"])
def test_another_order_of_ports_is_hinted_at(reading: str) -> None:
    fabric = om.Benes(4)
    states = np.random.default_rng(1).integers(0, 2, (10, fabric.n_cells), dtype=np.int8)
    power = transfer_powers(fabric, states, 0, None)
    if reading == "transposed":
        power = np.swapaxes(power, 1, 2)
    if reading == "reversed":
        power = power[:, ::-1, ::-1]
    measured = Measurement(cell_states=states, power=power)
    hint = suggest_port_order(fabric, measured, compare_chip(fabric, measured, CHIP))
    if reading == "right":
        assert hint is None
    else:
        assert hint is not None
        assert reading in hint


def test_sorted_names_are_hinted_at() -> None:
    """Ports in0, in1, in10, in11, in2: rows are where their names are among the sorted ones."""
    fabric = om.Crossbar(12)
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, (1, fabric.n_cells), dtype=np.int8)
    states[0] = 1
    cells = CellDevice.of(CHIP, fabric.n_cells)
    blank = Measurement(cell_states=states, power=np.full((1, 12, 12), 0.5))
    from optmatch.verify.optics.responses import model_states, nominal_amplitudes

    assert fabric.graph is not None
    amplitudes = nominal_amplitudes(fabric.graph, cells)
    (model,) = model_states(fabric, blank, cells, amplitudes, with_returns=False)
    by_name = sorted(range(12), key=str)
    power = np.abs(model.arriving) ** 2
    shuffled = power[by_name][:, by_name][None]
    measured = Measurement(cell_states=states, power=shuffled)
    comparison = compare_chip(fabric, measured, CHIP)
    hint = suggest_port_order(fabric, measured, comparison)
    assert hint is not None and "sorted names" in hint
