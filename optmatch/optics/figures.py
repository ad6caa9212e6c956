"""The figures of the light of a schedule: losses, crosstalk, delays, and power in loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Amount, Axes, FrozenMap, Value
from optmatch.model.device import SPEED_OF_LIGHT_M_PER_S, Device, frequency_of_nm
from optmatch.model.display import dataframe


class Margin(NamedTuple):
    """How far a figure is from its limit."""

    figure: str
    """Its name and unit."""
    value: float
    limit: float
    margin: float
    """Negative where the budget fails; infinite where nothing disturbs."""
    where: str
    """The slot, and the two ports of the circuit."""

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        return self.margin >= 0

    def __str__(self) -> str:
        numbers = f"{self.value:.4g}, limit {self.limit:.4g}, margin {self.margin:.4g}"
        return f"{self.figure}: {numbers} ({self.where})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Budget(Value):
    """Limits on the figures of every circuit; None for no limit.

    Parameters
    ----------
    insertion_loss_db
        At most this from fibre to fibre: launched power less what the receiver needs, in dB.
    signal_to_crosstalk_db
        At least this with all inputs loaded.
    delay_spread_s
        At most this between the slowest and the fastest circuit.

    Raises
    ------
    InputError
        If a limit is negative or not finite.

    See Also
    --------
    measure_optics : Measures the figures.

    Examples
    --------
    >>> Budget(insertion_loss_db=15.0).insertion_loss_db
    15.0
    """

    insertion_loss_db: Amount | None = None
    signal_to_crosstalk_db: Amount | None = None
    delay_spread_s: Amount | None = None

    def margins(self, optics: Optics) -> list[Margin]:
        """Compare the worst circuits with the limits.

        Parameters
        ----------
        optics
            What was measured.

        Returns
        -------
        list of Margin
            One for each limit that is set; none if there are no circuits.
        """
        margins: list[Margin] = []
        if not optics.lit.any():
            return margins
        ratio = optics.signal_to_crosstalk_db
        delay: NDArray[np.float64] = np.where(optics.lit, optics.delay_s, np.nan)
        for figure, limit, values, sign in (
            ("insertion loss, dB", self.insertion_loss_db, optics.insertion_loss_db, 1),
            ("signal to crosstalk, dB", self.signal_to_crosstalk_db, ratio, -1),
            ("delay spread, s", self.delay_spread_s, delay - np.nanmin(delay), 1),
        ):
            # The sign is 1 if the figure may be at most the limit, and -1 if at least.
            if limit is not None:
                place = int(np.nanargmax(sign * values))
                value = float(values.flat[place])
                margin = sign * (limit - value)
                slot, source = divmod(place, optics.matchings.shape[1])
                destination = optics.matchings[slot, source]
                where = f"slot {slot}, from port {source} to port {destination}"
                margins.append(Margin(figure, value, limit, margin, where))
        return margins


Loop = tuple[int, ...]
"""The cells round which light can go, in order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optics(Value):
    """The result of `measure_optics`: powers on the chip, and the figures that follow from them.

    Light of power 1 enters at every port, for each port by itself; light of different ports has
    nothing to interfere with, so powers add. Figures of a circuit are the worst over frequencies.

    Parameters
    ----------
    device
        The device of the cells.
    matchings
        ``matchings[slot, source] = destination``, -1 where idle; int32.
    cell_states
        ``cell_states[slot, cell]``: 0 bar, 1 cross; int8. No cell is free any more.
    frequencies_hz
        Distances from the frequency at which each way through a cell is a whole number of waves.
    power
        ``power[slot, frequency, source, perimeter]``: what leaves the chip at each free terminal,
        in the order of ``graph.perimeter``, facets not counted; float64.
    lost
        ``lost[slot, frequency, source]``: what cells and waveguides absorb; float64.
    exits
        ``exits[port]``: where in the perimeter light to this port leaves; int32.
    cells
        ``cells[slot, source]``: cells passed on the way of the circuit; 0 where idle; int32.
    length_m, delay_s
        ``[slot, source]``: of the way of the circuit; 0 where idle; float64.
    loops
        ``loops[slot]``: closed ways through cells, which no port leads to.
    loop_power
        ``loop_power[slot]``: the largest power anywhere in these loops, float64; 0 without one.
    heater_mw
        ``heater_mw[slot]``: power of all heaters while the slot is held.
    heat_rad
        ``heat_rad[slot, cell]``: how far heat of other cells turns the phase; light has it.
    settling_s
        ``settling_s[slot]``: of the slowest cell that changes before the slot; all cells change
        before the first.
    notes
        Notes for a reader: where figures have few digits.
    port_names
        ``port_names[port]``: the names that a netlist gives the port where its light comes in, and
        where light to it goes out; none of other fabrics.

    See Also
    --------
    Budget : Compares the figures with limits.

    Examples
    --------
    Nine of ten parts of the light get through one cell:

    >>> from optmatch.model import Schedule
    >>> from optmatch.fabrics import Crossbar
    >>> from optmatch.problems import Routing
    >>> from optmatch.optics.measurement import measure_optics
    >>> states = [[0, 1, 1, 0]]
    >>> schedule = Schedule(matchings=[[0, 1]], durations_s=[1.0], cell_states=states)
    >>> problem = Routing(Crossbar(2), [0, 1])
    >>> optics = measure_optics(problem, schedule, Device(bar_loss_db=0.46))
    >>> optics.insertion_loss_db.round(2).tolist()
    [[0.46, 0.46]]
    """

    device: Device
    matchings: Annotated[NDArray[np.int32], Axes(2)]
    cell_states: Annotated[NDArray[np.int8], Axes(2)]
    frequencies_hz: NDArray[np.float64]
    power: Annotated[NDArray[np.float64], Axes(4)]
    lost: Annotated[NDArray[np.float64], Axes(3)]
    exits: NDArray[np.int32]
    cells: Annotated[NDArray[np.int32], Axes(2)]
    length_m: Annotated[NDArray[np.float64], Axes(2)]
    delay_s: Annotated[NDArray[np.float64], Axes(2)]
    loops: tuple[tuple[Loop, ...], ...]
    loop_power: NDArray[np.float64]
    heater_mw: NDArray[np.float64]
    heat_rad: Annotated[NDArray[np.float64], Axes(2)]
    settling_s: NDArray[np.float64]
    notes: tuple[str, ...] = ()
    port_names: tuple[tuple[str, str], ...] = ()

    @property
    def lit(self) -> NDArray[np.bool_]:
        """``lit[slot, source]``: whether there is a circuit."""
        return np.asarray(self.matchings != IDLE)

    @property
    def signal(self) -> NDArray[np.float64]:
        """``signal[slot, frequency, source]``: the power that reaches the partner; NaN if idle."""
        slot, source = np.nonzero(self.lit)
        signal = np.full((len(self.matchings), len(self.frequencies_hz), len(self.exits)), np.nan)
        exit_of_partner = self.exits[self.matchings[slot, source]]
        signal[slot, :, source] = self.power[slot, :, source, exit_of_partner]
        return signal

    @property
    def crosstalk(self) -> NDArray[np.float64]:
        """Power of all other sources at the exit where the light of a source should be.

        All sources of the slot are loaded, each with the same power.

        Returns
        -------
        float64 array
            ``crosstalk[slot, frequency, source]``, over the power of one source; NaN if the source
            is idle.
        """
        slot, source = np.nonzero(self.lit)
        crosstalk = np.full(
            (len(self.matchings), len(self.frequencies_hz), len(self.exits)), np.nan
        )
        # arriving[circuit, frequency, source]: what each source sends to the partner's exit
        arriving = self.power[slot, :, :, self.exits[self.matchings[slot, source]]]
        # Idle sources are dark, and a circuit's own light is its signal.
        arriving = np.where(self.lit[slot, None], arriving, 0.0)
        arriving[np.arange(len(slot)), :, source] = 0.0
        crosstalk[slot, :, source] = arriving.sum(axis=2)
        return crosstalk

    @property
    def insertion_loss_db(self) -> NDArray[np.float64]:
        """``insertion_loss_db[slot, source]``: from fibre to fibre, both facets; NaN if idle."""
        return np.asarray(self._loss_db.max(axis=1))

    @property
    def signal_to_crosstalk_db(self) -> NDArray[np.float64]:
        """``signal_to_crosstalk_db[slot, source]``, all inputs loaded; NaN if idle."""
        return np.asarray(self._ratio_db.min(axis=1))

    @property
    def _loss_db(self) -> NDArray[np.float64]:
        """``loss_db[slot, frequency, source]``, with the coupling of both fibres; NaN if idle."""
        with np.errstate(divide="ignore"):
            return -10 * np.log10(self.signal) + 2 * self.device.coupling_loss_db

    @property
    def _ratio_db(self) -> NDArray[np.float64]:
        """``ratio_db[slot, frequency, source]``: infinite without crosstalk, NaN if idle."""
        signal = self.signal
        crosstalk = self.crosstalk
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(crosstalk > 0, signal / crosstalk, np.inf)
            return np.where(np.isnan(signal), np.nan, 10 * np.log10(ratio))

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Return a figure of matplotlib with the loss and the crosstalk of every circuit.

        Parameters
        ----------
        ax
            Axes of matplotlib to draw the losses in; None makes a new figure of both.
        title
            What stands above it; None for the numbers of circuits and slots.

        Examples
        --------
        >>> import optmatch as om
        >>> solution = om.solve(om.Routing(om.Crossbar(2), [0, 1]))
        >>> om.measure_optics(solution, "smartlight").plot().axes[0].get_title()
        '2 circuits in 1 slot'
        """
        from optmatch.plotting import plot_optics  # a layer above the figures

        return plot_optics(self, ax=ax, title=title)

    def band_rows(self) -> list[dict[str, float]]:
        """Tabulate the worst loss and crosstalk of all slots by frequency.

        Returns
        -------
        list of dict
            A row for each frequency: ``frequency_hz``, as distance from the central one,
            ``wavelength_nm``, ``worst_insertion_loss_db`` from fibre to fibre, and
            ``worst_signal_to_crosstalk_db`` with all inputs loaded. Empty without a circuit.
        """
        if not self.lit.any():
            return []
        loss_db = self._loss_db
        ratio_db = self._ratio_db
        center_hz = frequency_of_nm(self.device.wavelength_nm)
        rows = []
        for place, offset_hz in enumerate(self.frequencies_hz):
            row = {
                "frequency_hz": float(offset_hz),
                "wavelength_nm": SPEED_OF_LIGHT_M_PER_S / (center_hz + float(offset_hz)) * 1e9,
                "worst_insertion_loss_db": float(np.nanmax(loss_db[:, place])),
                "worst_signal_to_crosstalk_db": float(np.nanmin(ratio_db[:, place])),
            }
            rows.append(row)
        return rows

    def __repr__(self) -> str:
        """Say the device, the slots, and the worst circuit in one line."""
        figures = self.figures
        text = f"Optics of {self.device.name}, {len(self.matchings)} slots"
        if self.lit.any():
            text += (
                f": insertion loss up to {figures['worst_insertion_loss_db']:.2f} dB, signal to"
                f" crosstalk from {figures['worst_signal_to_crosstalk_db']:.1f} dB"
            )
        return f"<{text}>"

    @property
    def switching_mj(self) -> NDArray[np.float64]:
        """``switching_mj[slot]``: what heaters take before the slot, until all cells settle."""
        return self.heater_mw * self.settling_s

    @property
    def energy_error(self) -> float:
        """The largest difference between power that enters and power that leaves or is lost."""
        balance = self.power.sum(axis=3) + self.lost - 1.0
        return float(np.abs(balance).max(initial=0.0))

    @property
    def figures(self) -> Mapping[str, float | int]:
        """Figures of the whole schedule by name: worst, mean and total values over all slots.

        Returns
        -------
        mapping
            Figures of losses, crosstalk, routes and delays are there only if the schedule has a
            circuit. Those of heaters, settling, loops and energy are always there. A figure's unit
            is the end of its name; ``worst_loop_power_db`` is minus infinity without light in a
            loop.
        """
        figures: dict[str, float | int] = {}
        if self.lit.any():
            loss = self.insertion_loss_db[self.lit]
            ratio = self.signal_to_crosstalk_db[self.lit]
            delay = self.delay_s[self.lit]
            figures |= {
                "worst_insertion_loss_db": float(loss.max()),
                "mean_insertion_loss_db": float(loss.mean()),
                "best_insertion_loss_db": float(loss.min()),
                "worst_signal_to_crosstalk_db": float(ratio.min()),
                "longest_route_cells": int(self.cells[self.lit].max()),
                "longest_route_m": float(self.length_m[self.lit].max()),
                "longest_delay_s": float(delay.max()),
                "delay_spread_s": float(np.ptp(delay)),
            }
        figures |= {
            "largest_heater_mw": float(self.heater_mw.max(initial=0.0)),
            "mean_heater_mw": float(self.heater_mw.mean()) if len(self.heater_mw) else 0.0,
            "largest_heat_rad": float(self.heat_rad.max(initial=0.0)),
            "longest_settling_s": float(self.settling_s.max(initial=0.0)),
            "total_settling_s": float(self.settling_s.sum()),
            "switching_mj": float(self.switching_mj.sum()),
        }
        # Light in loops, and how well energy is conserved: a check of the numbers themselves.
        figures["loops"] = sum(map(len, self.loops))
        figures["worst_loop_power_db"] = _decibels(self.loop_power.max(initial=0.0))
        figures["energy_error"] = self.energy_error
        return FrozenMap(figures)

    def slot_rows(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each slot: its worst figures, and where they are.

        A circuit is given as source and destination. A slot without circuits has no figures of
        them, only those of heaters, settling and loops.

        Returns
        -------
        list of dict
            One for each slot. Units are the ends of the names; ``loops`` lists the cells of each
            closed loop.
        """
        loss = self.insertion_loss_db
        ratio = self.signal_to_crosstalk_db
        rows = []
        for slot, lit in enumerate(self.lit):
            row: dict[str, Any] = {"slot": slot, "circuits": int(lit.sum())}
            # The circuits with most loss and with most crosstalk, by their sources.
            if lit.any():
                faint = int(np.nanargmax(loss[slot]))
                noisy = int(np.nanargmin(ratio[slot]))
                row |= {
                    "worst_insertion_loss_db": float(loss[slot, faint]),
                    "worst_loss_circuit": [faint, int(self.matchings[slot, faint])],
                    "worst_signal_to_crosstalk_db": float(ratio[slot, noisy]),
                    "worst_crosstalk_circuit": [noisy, int(self.matchings[slot, noisy])],
                    "longest_route_m": float(self.length_m[slot].max()),
                    "longest_delay_s": float(self.delay_s[slot].max()),
                }
            row |= {
                "heater_mw": float(self.heater_mw[slot]),
                "settling_s": float(self.settling_s[slot]),
                "switching_mj": float(self.switching_mj[slot]),
            }
            row["loops"] = [list(loop) for loop in self.loops[slot]]
            row["loop_power_db"] = _decibels(float(self.loop_power[slot]))
            rows.append(row)
        return rows

    def circuit_columns(self) -> dict[str, NDArray[Any]]:
        """Return the route and the light of each circuit, column by column, slot by slot.

        Returns
        -------
        dict of array
            By name, with an entry for each circuit: ``slot``, ``source``, ``destination``,
            ``cells`` passed, ``length_m``, ``delay_s``, ``insertion_loss_db`` and
            ``signal_to_crosstalk_db``, infinite without crosstalk. On a netlist ``from`` and
            ``to`` have the names of both ports.
        """
        slot, source = np.nonzero(self.lit)
        columns: dict[str, NDArray[Any]] = {"slot": slot, "source": source}
        columns["destination"] = self.matchings[self.lit]
        if self.port_names:
            sender_names, receiver_names = np.array(self.port_names).T
            columns["from"] = sender_names[source]
            columns["to"] = receiver_names[columns["destination"]]
        for name in ("cells", "length_m", "delay_s", *_CIRCUIT_FIGURES):
            columns[name] = getattr(self, name)[self.lit]
        return columns

    def to_dataframe(self) -> Any:
        """Return a table of pandas with a row for each circuit; see `circuit_columns`."""
        return dataframe(self.circuit_columns())


_CIRCUIT_FIGURES = ("insertion_loss_db", "signal_to_crosstalk_db")


def _decibels(power: float) -> float:
    """Return a power in dB; minus infinity if it is 0."""
    return float(10 * np.log10(power)) if power > 0 else -np.inf
