"""Measured chips beyond one comparison: their whole band, and ports in another order.

Over a band the couplers of cells change (`Device.coupler_slope_per_nm`, or a table), and delays
turn phases. The model of each frequency is one sparse system, as in `measurement`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.fabrics.cellgraph import DEAD
from optmatch.fabrics.light import trace
from optmatch.fabrics.netlists.circuits import with_cell_phases
from optmatch.fabrics.waveguides import heat_turns, measure_waveguides, waveguide_loss_db
from optmatch.model import BAR, Device, Measurement
from optmatch.model.cells import HALF_TURNED, CellDevice, cells_of
from optmatch.model.device import frequency_of_nm
from optmatch.verify.optics.circuits import cell_matrices
from optmatch.verify.optics.deviation import ChipComparison
from optmatch.verify.optics.responses import KEPT, graph_of, level_db, set_stuck_cells

FAR_BETTER = 0.5
"""Another order of ports is worth a hint if it leaves less than this part of the difference."""

NOTICEABLE_DB = 1.0
"""Below this difference no other order is looked for."""


class BandFigure(NamedTuple):
    """The worst circuit of a measured band."""

    decibels: float
    state: int
    source: int
    destination: int
    frequency_hz: float
    """NaN if it is not known."""


class BandFigures(NamedTuple):
    """The worst values over all measured states and frequencies, of the pairs that are lit."""

    insertion_loss: BandFigure
    signal_to_crosstalk: BandFigure
    """With all sources that send in this state loaded by the same power."""


def lit_matchings(fabric: Fabric, cell_states: NDArray[np.int8]) -> NDArray[np.int64]:
    """Find to which port the light of each source goes, in each of many states of the cells.

    Parameters
    ----------
    fabric
        A switch with cells.
    cell_states
        ``cell_states[state, cell]``: 0 bar, 1 cross, 2 half turned.

    Returns
    -------
    int64 array
        ``matching[state, source]``: the destination port, -1 if light comes to none. All entries
        of a state with half-turned cells are -1, since light there goes to many ports.
    """
    graph = graph_of(fabric)
    is_split = (cell_states == HALF_TURNED).any(axis=1)
    # States with half-turned cells are traced as if all bar, and marked at the end.
    states = set_stuck_cells(graph, np.where(is_split[:, None], BAR, cell_states).astype(np.int8))
    entered = np.broadcast_to(fabric.source_terminals, (len(states), fabric.n_ports))
    arrived = trace(graph, states, entered).arrived
    port_of_terminal = np.full(len(graph.mate) + 1, -1)  # the last entry is that of -1
    port_of_terminal[fabric.destination_terminals] = np.arange(fabric.n_ports)
    matching: NDArray[np.int64] = np.where(is_split[:, None], -1, port_of_terminal[arrived])
    return matching


def measure_band(fabric: Fabric, measured: Measurement) -> BandFigures | None:
    """Find the worst loss and crosstalk over a measured band.

    Looked at are the circuits of each measured state, at all frequencies. A measurement without a
    band counts as one of a single frequency that is not known.

    Parameters
    ----------
    fabric
        The chip.
    measured
        ``power[state, source, destination]``, and ``band_power[state, frequency, source,
        destination]`` if it has a band; NaN where nothing was measured.

    Returns
    -------
    BandFigures or None
        None if no circuit was measured.
    """
    if measured.band_power is None or measured.frequencies_hz is None:
        band_power = measured.power[:, None]
        frequencies_hz = np.array([np.nan])
    else:
        band_power = measured.band_power
        frequencies_hz = measured.frequencies_hz
    return _worst_of_band(fabric, measured.cell_states, band_power, frequencies_hz)


def model_band(
    fabric: Fabric, measured: Measurement, device: Device | CellDevice | str
) -> BandFigures | None:
    """Find the worst loss and crosstalk that the model of a chip has over a band of frequencies.

    At other frequencies couplers split light otherwise, and delays turn its phase. The model is
    evaluated in the states and at the frequencies of a measurement, to be compared with it.

    Parameters
    ----------
    fabric
        The chip.
    measured
        The measurement, whose states, frequencies and measured pairs count, so that the figures
        are those of `measure_band` for a chip as modelled.
    device
        The model: one device for all cells, a preset's name, or a device for each cell. Its
        couplers change with the wavelength as `Device` says.

    Returns
    -------
    BandFigures or None
        None if nothing was measured over a band, or no circuit was.

    Raises
    ------
    InputError
        If the couplers of the device are not known at a measured frequency.

    Examples
    --------
    >>> from optmatch.fabrics import Benes
    >>> from optmatch.model.device import frequency_of_nm
    >>> frequencies_hz = [frequency_of_nm(1570.0), frequency_of_nm(1550.0)]
    >>> power = np.full((1, 2, 2, 2), 0.5)
    >>> measured = Measurement(
    ...     cell_states=[[1]], power=power[:, 0], frequencies_hz=frequencies_hz, band_power=power
    ... )
    >>> band = model_band(Benes(2), measured, Device(coupler_slope_per_nm=0.002))
    >>> f"{band.signal_to_crosstalk.decibels:.1f} dB at {band.insertion_loss.frequency_hz:.4g} Hz"
    '21.9 dB at 1.91e+14 Hz'
    """
    if measured.band_power is None or measured.frequencies_hz is None:
        return None
    graph = graph_of(fabric)
    cells = with_cell_phases(fabric, cells_of(device, graph.n_cells))
    center_hz = frequency_of_nm(cells.device.wavelength_nm)
    changes = cells.device.coupling_changes(measured.frequencies_hz - center_hz)

    # Light of states with half-turned cells goes to many ports, hence these have no circuits.
    modelled = np.full(measured.band_power.shape, np.nan)
    for state, cell_states in enumerate(measured.cell_states):
        if (cell_states == HALF_TURNED).any():
            continue
        for place, frequency_hz in enumerate(measured.frequencies_hz):
            modelled[state, place] = _model_frequency(
                fabric, cells, cell_states, float(frequency_hz - center_hz), float(changes[place])
            )
    modelled[np.isnan(measured.band_power)] = np.nan
    return _worst_of_band(fabric, measured.cell_states, modelled, measured.frequencies_hz)


def _model_frequency(
    fabric: Fabric,
    cells: CellDevice,
    cell_states: NDArray[np.int8],
    offset_hz: float,
    coupling_change: float,
) -> NDArray[np.float64]:
    """Return the powers of a chip at one optical frequency, as its model has them.

    At another frequency than the central one, delays turn the phase of light in cells and
    waveguides, and couplers split light otherwise.

    Parameters
    ----------
    fabric, cells
        The chip, and the device of each cell.
    cell_states
        ``cell_states[cell]``: 0 bar, 1 cross.
    offset_hz
        The optical frequency less the central one.
    coupling_change
        By how much more of the power crosses in each coupler than at the central wavelength, as a
        part of 1.

    Returns
    -------
    float64 array
        ``power[source, destination]``, from fibre to fibre, over the power of the source.
    """
    from optmatch.verify.optics.scattering import scatter  # here only, since it needs SciPy

    graph = graph_of(fabric)
    device = cells.device
    states = set_stuck_cells(graph, cell_states)

    # The matrix of each cell: heat turns both arms, and no light passes a dead cell.
    heat_rad = heat_turns(graph, cells, states)[:, None] / 2 * np.array([1, -1])
    matrices = cell_matrices(fabric, cells, states, heat_rad, coupling_change)
    matrices[graph.stuck == DEAD] = 0.0

    # Delays of cells and of the waveguides between them turn phases.
    turn = 2j * np.pi * offset_hz * device.cell_delay_s
    waveguides = 10 ** (-waveguide_loss_db(graph, device) / 20)
    waveguides = waveguides * np.exp(turn * measure_waveguides(graph).length)
    waves = scatter(graph, KEPT * matrices * np.exp(turn), waveguides, fabric.source_terminals)
    # Light is lost where it comes in and where it goes out, hence twice.
    both_facets = 10 ** (-2 * device.coupling_loss_db / 10)
    power: NDArray[np.float64] = np.abs(waves.leaving[fabric.destination_terminals].T) ** 2
    return both_facets * power


def _worst_of_band(
    fabric: Fabric,
    cell_states: NDArray[np.int8],
    band_power: NDArray[np.float64],
    frequencies_hz: NDArray[np.float64],
) -> BandFigures | None:
    """Find the circuit and the frequency with the worst loss, and those with the worst crosstalk.

    A state sets all cells of the chip, and thereby connects sources to destinations: its circuits.
    All sources send at once. The crosstalk of a circuit is the power that its destination gets
    from all other sources.

    Parameters
    ----------
    fabric
        The chip.
    cell_states
        int8, (states, cells): 0 bar, 1 cross, 2 half turned.
    band_power
        (states, frequencies, sources, destinations): the part of a source's power that arrives;
        NaN where it is not known.
    frequencies_hz
        (frequencies,): optical frequencies.

    Returns
    -------
    BandFigures or None
        ``insertion_loss`` has the largest loss, and ``signal_to_crosstalk`` the smallest ratio of
        signal to crosstalk, both in dB, each with its state, source, destination and frequency.
        The ratio is infinite without crosstalk. None if the power of no circuit is known.
    """
    losses: list[BandFigure] = []
    ratios: list[BandFigure] = []
    for state, matching in enumerate(lit_matchings(fabric, cell_states)):
        senders = np.flatnonzero(matching >= 0)
        for source in senders:
            destination = int(matching[source])
            signal = band_power[state, :, source, destination]
            if np.isnan(signal).all():
                continue

            # All other sources of the state send too, and their light at the destination adds up.
            other_power = band_power[state][:, senders[senders != source], destination]
            crosstalk = np.nansum(other_power, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                loss_db = -10 * np.log10(signal)
                ratio_db = np.where(crosstalk > 0, 10 * np.log10(signal / crosstalk), np.inf)

            # The frequencies at which this circuit is worst.
            faintest = int(np.nanargmax(loss_db))
            noisiest = int(np.nanargmin(ratio_db))
            losses.append(
                BandFigure(
                    decibels=float(loss_db[faintest]),
                    state=state,
                    source=int(source),
                    destination=destination,
                    frequency_hz=frequencies_hz[faintest],
                )
            )
            ratios.append(
                BandFigure(
                    decibels=float(ratio_db[noisiest]),
                    state=state,
                    source=int(source),
                    destination=destination,
                    frequency_hz=frequencies_hz[noisiest],
                )
            )
    if not losses:
        return None
    return BandFigures(
        insertion_loss=max(losses, key=lambda figure: figure.decibels),
        signal_to_crosstalk=min(ratios, key=lambda figure: figure.decibels),
    )


def suggest_port_order(
    fabric: Fabric, measured: Measurement, comparison: ChipComparison
) -> str | None:
    """Tell a user that measured matrices may have their ports in another order.

    Files often list ports in an order of their own. If measured powers are far from the model,
    four other orders are tried: matrices transposed, and ports sorted by their names (as in p1,
    p10, p2), reversed, or rotated by one place.

    Parameters
    ----------
    fabric
        The chip.
    measured
        ``power[state, source, destination]``, in the order as read.
    comparison
        The comparison of these powers with the model.

    Returns
    -------
    str or None
        A sentence for the user that names the best other order, if it leaves less than
        `FAR_BETTER` of the difference; None if there is no such order, or the difference is below
        `NOTICEABLE_DB` already.
    """
    if comparison.off_db < NOTICEABLE_DB:
        return None
    # Levels in dB, (states, sources, destinations).
    measured_db = level_db(measured.power)
    modelled_db = measured_db - comparison.difference_db

    # Light that comes back to a bidirectional port is not told from a reflection.
    is_compared = np.ones((fabric.n_ports, fabric.n_ports), dtype=bool)
    if fabric.bidirectional:
        np.fill_diagonal(is_compared, False)
    best_hint = None
    best_off_db = FAR_BETTER * comparison.off_db
    for hint, reordered_db in _other_readings(fabric, measured_db):
        difference_db = (reordered_db - modelled_db)[:, is_compared]  # (states, compared pairs)
        if np.isnan(difference_db).all():
            continue
        off_db = float(np.sqrt(np.nanmean(difference_db**2)))
        if off_db < best_off_db:
            best_off_db = off_db
            best_hint = (
                f"{hint} fit far better: {off_db:.3g} dB instead of {comparison.off_db:.3g}"
            )
    return best_hint


def _other_readings(
    fabric: Fabric, measured_db: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield measured matrices as they would be if the file had its ports in another order.

    Parameters
    ----------
    fabric
        The chip.
    measured_db
        ``measured_db[state, source, destination]``: the matrices as read.

    Yields
    ------
    name : str
        The name of the order, for users.
    level_db : float64 array
        Matrices of the same shape, with ports in that order.
    """
    names = [name.partition(">")[0] for name in fabric.port_names]
    # The port of the fabric that each row belongs to, if rows are in the order of sorted names.
    # The argsort of an argsort is the rank of each name.
    by_name = np.argsort(np.argsort(np.array(names), kind="stable"), kind="stable")
    last_first = np.arange(fabric.n_ports)[::-1]
    one_on = np.roll(np.arange(fabric.n_ports), 1)
    transposed_db = np.swapaxes(measured_db, 1, 2)
    if not fabric.bidirectional:
        yield "transposed matrices", transposed_db
    for order_name, order in (
        ("ports in the order of their sorted names", by_name),
        ("ports in reversed order", last_first),
        ("ports rotated by one place", one_on),
        ("ports rotated back by one place", np.argsort(one_on)),
    ):
        yield order_name, measured_db[:, order][:, :, order]
        if not fabric.bidirectional:
            yield f"transposed matrices with {order_name}", transposed_db[:, order][:, :, order]
