"""Calibrations from sweeps: phases are found, and their uncertainty is true."""

from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.io.heaters import read_heaters
from optmatch.verify.optics.sweeps import band_factor, fit_sweep
from tests.helpers.command import call
from tests.helpers.modes import SOAK


def test_heaters_are_found_from_noisy_sweeps() -> None:
    """100 heaters, 41 points over 2 pi, 1 % noise: within 0.02 rad in 95, as certain as stated."""
    rng = np.random.default_rng(0)
    close = 0
    within = []
    for _ in range(100):
        largest_v = rng.uniform(2, 6)
        a_rad = rng.uniform(-np.pi, np.pi)
        b_rad_per_v2 = 2 * np.pi / largest_v**2
        volts = np.linspace(0, largest_v, 41)
        phase_rad = a_rad + b_rad_per_v2 * volts**2
        visibility = rng.uniform(0.9, 1.0)
        cross = 0.5 * (1 + visibility * np.cos(phase_rad))
        bar = 0.5 * (1 - visibility * np.cos(phase_rad))
        power = np.stack([cross, bar], axis=1) + rng.normal(0, 0.01, (41, 2))
        fit = fit_sweep(volts, power, (True, False))
        off_rad = np.abs(np.angle(np.exp(1j * (fit.phase_rad(volts) - phase_rad))))
        close += off_rad.max() <= 0.02
        within.append((off_rad <= fit.within_rad(volts)).all())
        assert fit.visibility == pytest.approx([visibility] * 2, abs=0.03)
        assert fit.noise == pytest.approx(0.01, rel=0.4)
    assert close >= 95
    assert 90 <= sum(within) < 100


def draw_sweep(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the voltages, the phases and the visibility of a heater that is drawn at random."""
    largest_v = rng.uniform(2, 6)
    volts = np.linspace(0, largest_v, 41)
    phase_rad = rng.uniform(-np.pi, np.pi) + 2 * np.pi * (volts / largest_v) ** 2
    return volts, phase_rad, float(rng.uniform(0.9, 1.0))


def test_one_output_is_enough() -> None:
    """With noise of 1 % of the reading: within 0.02 rad in all of the sweep, 95 of 100 heaters."""
    rng = np.random.default_rng(2)
    n_heaters = 300 if SOAK else 150
    n_close = 0
    for _ in range(n_heaters):
        volts, phase_rad, visibility = draw_sweep(rng)
        power = 0.5 * (1 + visibility * np.cos(phase_rad)) * (1 + rng.normal(0, 0.01, 41))
        fit = fit_sweep(volts, power[:, None], (True,))
        off_rad = np.abs(np.angle(np.exp(1j * (fit.phase_rad(volts) - phase_rad))))
        n_close += off_rad.max() <= 0.02
    assert n_close >= 0.95 * n_heaters


def test_one_output_tells_what_its_noise_allows() -> None:
    """With noise of 1 % of the largest power, errors are as small as the bound of Cramer and Rao.

    The bound is the inverse of the information that 41 powers have on the scale, the visibility
    and the two coefficients of the phase; no estimate without bias has a smaller variance.
    """
    rng = np.random.default_rng(2)
    noise = 0.01
    ratios = []
    for _ in range(300 if SOAK else 150):
        volts, phase_rad, visibility = draw_sweep(rng)
        power = 0.5 * (1 + visibility * np.cos(phase_rad)) + rng.normal(0, noise, 41)
        fit = fit_sweep(volts, power[:, None], (True,))
        off_rad = np.angle(np.exp(1j * (fit.phase_rad(volts) - phase_rad)))

        slope_of_phase = -0.5 * visibility * np.sin(phase_rad)
        slopes = np.stack(
            [
                0.5 * (1 + visibility * np.cos(phase_rad)),
                0.5 * np.cos(phase_rad),
                slope_of_phase,
                slope_of_phase * volts**2,
            ],
            axis=1,
        )
        covariance = noise**2 * np.linalg.inv(slopes.T @ slopes)[2:, 2:]
        powers_of_v = np.stack([np.ones(41), volts**2], axis=1)
        least_variance = np.einsum("pi,ij,pj->p", powers_of_v, covariance, powers_of_v)
        ratios.append(np.mean(off_rad**2 / least_variance))
    # The mean of at least 150 ratios that are 1 in the mean, each with a deviation of about 1.
    assert np.mean(ratios) <= 1.25


def test_the_factor_of_a_band() -> None:
    """Against drawn ratios: the root of twice the quantile of F with 2 degrees above."""
    rng = np.random.default_rng(1)
    for freedom in (3, 37):
        ratios = rng.chisquare(2, 400_000) / 2 / (rng.chisquare(freedom, 400_000) / freedom)
        quantile = np.quantile(ratios, 0.95)
        assert band_factor(freedom) == pytest.approx(np.sqrt(2 * quantile), rel=0.02)


def test_what_tells_nothing_is_refused() -> None:
    volts = np.linspace(0, 3, 10)
    for some_volts, power, match in (
        (volts[:4], np.ones((4, 1)), "a sweep of 4 points: at least 6"),
        (volts, np.ones((10, 1)), "does not change"),
        (0 * volts, volts[:, None], "does not change"),
        (volts, np.ones((9, 1)), "not .10 points, 1 outputs"),
    ):
        with pytest.raises(om.InputError, match=match):
            fit_sweep(some_volts, power, (True,))


def test_from_sweeps_to_calibrations(tmp_path: Path) -> None:
    """The command fits both arms of a cell, each with the phase that the drive table needs."""
    fabric = om.Benes(2)
    problem = tmp_path / "p.json"
    om.save(om.Routing(fabric, [0, 1]), problem)
    lines = ["cell,arm,v,cross,resistance_ohm"]
    for arm, sign, rate in ((1, 1, 0.5), (2, -1, 0.4)):
        for v in np.linspace(0, 4, 41):
            cross = 1 + np.cos(0.7 + sign * rate * v**2)
            lines.append(f"0,{arm},{v},{cross},1000")
    (tmp_path / "sweeps.csv").write_text("\n".join(lines) + "\n")
    words = ("optics", str(problem), "--sweeps", str(tmp_path / "sweeps.csv"))
    done = call(*words, "-o", str(tmp_path / "heaters.csv"))
    assert done.exit_code == 0 and "visibility 1.000" in done.stdout
    heaters = read_heaters(tmp_path / "heaters.csv", fabric)
    first, second = heaters[0, 1], heaters[0, 2]
    assert first.a_rad - second.a_rad == pytest.approx(0.7, abs=1e-6)
    assert first.b_rad_per_v2 == pytest.approx(0.5, abs=1e-6)
    assert second.b_rad_per_v2 == pytest.approx(0.4, abs=1e-6)
    assert (first.max_v, first.resistance_ohm) == (4.0, 1000.0)
