r"""States for free cells: where stray light goes, chosen so that least of it meets other circuits.

Iterated local search: steepest descents over single flips from all cells in cross, all in bar and
random states, then from the best setting with a few cells kicked at random. `StrayLight` knows how
light interferes, and what each flip would change.

Let x be the amplitudes that enter cells, A what cells and waveguides make of them, and b what
comes in from outside: :math:`(I - A) x = b`, one sparse system for each setting of the cells. The
adjoint system :math:`(I - A)^T y = r` has for each terminal the amplitude that light from there
brings to a receiver. Both are solved with the same factors. The change that flipping one cell
would make at every receiver is then estimated to the first order: light that comes back to the
cell is left out, since each setting that is tried is solved exactly. On 25 meshes and Benes
networks circuits were disturbed as little with it, at nearly twice the time.

Light of one source interferes with itself. Where all phases are known, the system is complex and
the answer exact. Where the phases of a chip are not known, amplitudes are added as if all ways
were in phase: an upper bound of what strays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, identity
from scipy.sparse.linalg import splu

from optmatch.fabrics import EXITS, CellGraph
from optmatch.fabrics.netlists.circuits import cell_circuits, with_cell_phases
from optmatch.fabrics.waveguides import heat_turns, measure_waveguides, waveguide_loss_db
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
    schedule_of,
)
from optmatch.model.device import distances_hz

if TYPE_CHECKING:
    from optmatch.fabrics import CellCircuit, Fabric


MOST_PASSED_ON = 1 - 1e-6
"""In unknown phases a cell passes on at most this part of an amplitude, both outputs together.

More than 1 would let light grow without end in a closed ring of cells, whose true bound is the
energy that enters. It only matters for cells that lose less than they leak.
"""

LOST_IN_EACH_STEP = 1e-9
"""A closed ring free of loss would make the system singular; no port leads light into it."""

TINY = 1e-300
"""Stands for a signal of no power, whose ratio to crosstalk is then very bad but finite."""

RIGHT_SIDES_AT_ONCE = 8
"""Right sides that are solved for together: for more, BLAS starts threads that wait."""

IDEAL_MATRICES = np.array([[[1j, 0], [0, -1j]], [[0, 1j], [1j, 0]]])
"""``IDEAL_MATRICES[state, b side, a side]``: a lossless cell by the convention of `Device`."""


def find_circuit_matrices(fabric: Fabric) -> NDArray[np.complex128] | None:
    """Return the matrices of lossless cells, by their circuits where these are known.

    ``matrices[cell, state, b side, a side]``: amplitudes at b1 and b2 for light of amplitude 1 at
    a1 and a2, 0 at a terminal that a cell does not have. None if no cell has a known circuit.
    """
    circuits = cell_circuits(fabric)
    if not any(circuits):
        return None
    matrices = np.tile(IDEAL_MATRICES, (len(circuits), 1, 1, 1))
    for cell, circuit in enumerate(circuits):
        if circuit is not None:
            for state in (BAR, CROSS):
                matrices[cell, state] = _walk_circuit(circuit, circuit.difference_rad[state])
    return matrices


def _walk_circuit(circuit: CellCircuit, difference_rad: float) -> NDArray[np.complex128]:
    """Return ``matrix[b side, a side]`` of a cell; `difference_rad` is how far arm 1 is ahead.

    Entries are complex amplitudes, of light that enters at a terminal of side a (column 0 for a1,
    1 for a2) and leaves at one of side b (row 0 for b1, 1 for b2). Waves walk along the joins of
    `circuit`, pairs of pins; where a coupler divides one, both parts go on, and those that meet at
    a terminal are added up. A pin is a text ``"part,pin"``, with the name of its part first; pins
    of a part, and terminals of the circuit, are a1, a2, b1 and b2 in this order, "" for one that
    is not there.
    """
    part_of_name = {part.name: part for part in circuit.parts}
    joined_pin: dict[str, str] = {}
    for first, second in circuit.joins:
        joined_pin[first] = second
        joined_pin[second] = first

    # One shifter holds the whole difference; the others of both arms stand for none.
    arm_1, arm_2 = circuit.arms
    phase_of_part = {arm_1[0]: difference_rad} if arm_1 else {arm_2[0]: -difference_rad}

    matrix = np.zeros((2, 2), dtype=np.complex128)
    for a_side, a_pin in enumerate(circuit.terminals[:2]):
        # Waves on their way: where each enters a part, and its amplitude.
        entering: list[tuple[str, complex]] = [(a_pin, 1.0 + 0j)] if a_pin else []
        while entering:
            entry, amplitude = entering.pop()
            name, pin = entry.rsplit(",", 1)
            part = part_of_name[name]
            place = part.pins.index(pin)
            if part.matrix is None:
                # A piece of waveguide: a1 leads to b1 and a2 to b2, with a change of phase.
                exits = [part.pins[(place + 2) % 4]]
                factors = [complex(np.exp(1j * phase_of_part.get(name, 0.0)))]
            else:
                # Couplers are reciprocal: light from the b side has the transposed matrix.
                coupler = part.matrix[..., 0] + 1j * part.matrix[..., 1]
                is_from_a = place < 2
                exits = list(part.pins[2:] if is_from_a else part.pins[:2])
                factors = (coupler if is_from_a else coupler.T)[:, place % 2].tolist()

            # A pin of no name is not there; light that leaves by another one goes on, or arrives.
            for exit_pin, factor in zip(exits, factors, strict=True):
                exit_ = f"{name},{exit_pin}"
                if exit_pin and exit_ in joined_pin:
                    entering.append((joined_pin[exit_], amplitude * factor))
                elif exit_pin and exit_ in circuit.terminals[2:]:
                    matrix[circuit.terminals.index(exit_) - 2, a_side] += amplitude * factor
    return matrix


class ChipOptics(NamedTuple):
    """The light on a chip, as far as it is known before its cells are set."""

    graph: CellGraph
    """The cells, and how they are joined."""
    cells: CellDevice
    """What each of them does to light."""
    errors_rad: NDArray[np.float64]
    """``errors_rad[cell, arm]``: the errors of the phases of both arms, in every state."""
    circuit_matrices: NDArray[np.complex128] | None
    """(cells, 2, 2, 2) ``[cell, state, b side, a side]``: the matrix of each cell without errors,
    by `find_circuit_matrices`; None where the parts of no cell are known."""
    frequencies_hz: tuple[float, ...]
    """Distances from the central frequency at which light is solved for."""
    phases_known: bool
    """Whether ways interfere by their phases; if not, all are added as if in phase."""

    @classmethod
    def of(
        cls,
        fabric: Fabric,
        cells: CellDevice,
        frequencies_hz: tuple[float, ...],
        seed: int | None,
    ) -> ChipOptics:
        """Collect what is known of the light on a fabric whose cells are such devices.

        `seed` draws the errors of the phases; without one, errors that the device says to be there
        are unknown, and light is solved for at the central frequency alone. `frequencies_hz` are
        distances from that.
        """
        graph = fabric.graph
        assert graph is not None  # the caller has refused a fabric without cells
        size_rad = cells.device.phase_error_rad
        phases_known = size_rad == 0.0 or seed is not None
        errors_rad = None if seed is None else cells.device.draw_errors(graph.n_cells, seed)
        if errors_rad is None:
            errors_rad = np.zeros((graph.n_cells, 2))
        return cls(
            graph=graph,
            cells=cells,
            errors_rad=errors_rad,
            circuit_matrices=find_circuit_matrices(fabric),
            frequencies_hz=frequencies_hz if phases_known else (0.0,),
            phases_known=phases_known,
        )

    def pass_cells(self, states: NDArray[np.int8]) -> NDArray[np.complex128]:
        """Return ``amplitudes[terminal, exit]`` behind cells, for light of amplitude 1.

        ``states[cell]``: 0 bar, 1 cross, -1 free. Exit 0 is that of bar, 1 that of cross; real
        cells leak into the other one. A free cell absorbs all light. Where the phases of a chip
        are not known, the amplitudes are real, the larger magnitude for errors of either sign:
        amplitudes that are added in phase bound what can stray.
        """
        # The heat of other cells turns the phase between the two arms of a cell: by half in each,
        # in opposite directions. Free cells count as in cross here; their light is cleared below.
        settled = np.where(states == FREE, CROSS, states).astype(np.int8)
        heat_rad = heat_turns(self.graph, self.cells, settled)[:, None] / 2 * np.array([1, -1])
        if self.phases_known:
            matrices = self._matrices(settled, self.errors_rad + heat_rad)
        else:
            # Only the difference of the errors of both arms counts. Each arm has an independent
            # error e, the difference root 2 times e, of which each arm takes a half, in opposite
            # directions: e over root 2. Its sign is not known, and either one may leak more.
            errors_rad = self.cells.device.phase_error_rad / np.sqrt(2) * np.array([1, -1])
            magnitudes = np.maximum(
                np.abs(self._matrices(settled, heat_rad + errors_rad)),
                np.abs(self._matrices(settled, heat_rad - errors_rad)),
            )

            # Neither a row nor a column of a matrix passes on more than `MOST_PASSED_ON`; else
            # light that is added in phase could grow without end in a closed ring.
            passed_on = np.maximum(magnitudes.sum(axis=1), magnitudes.sum(axis=2)).max(axis=1)
            scale = np.minimum(1.0, MOST_PASSED_ON / np.maximum(passed_on, MOST_PASSED_ON))
            matrices = (magnitudes * scale[:, None, None]).astype(np.complex128)
        matrices[(states == FREE) | (self.graph.stuck > CROSS)] = 0.0

        # ``matrices[cell, b side, a side]`` is the amplitude from end a to end b; light from end b
        # to end a has the transposed matrix. Terminals 0 and 1 of a cell are sides 0 and 1 of end
        # a, 2 and 3 those of end b. For each terminal and each exit, `a_side` and `b_side` are the
        # sides at which the way between them meets both ends, shape (4, 2).
        terminals = np.arange(4)
        side_entered = (terminals & 1)[:, None]
        side_left = EXITS & 1
        comes_from_b = (terminals & 2 > 0)[:, None]
        b_side = np.where(comes_from_b, side_entered, side_left)
        a_side = np.where(comes_from_b, side_left, side_entered)
        amplitudes: NDArray[np.complex128] = matrices[:, b_side, a_side].reshape(-1, 2)
        return amplitudes

    def pass_waveguides(self, frequency_hz: float) -> NDArray[np.complex128]:
        """Return for each terminal what a waveguide makes of light that leaves there.

        The result is the complex factor from its amplitude where it leaves a cell to the amplitude
        where it enters the next one: less than 1 by the loss on the way, and turned by the phase
        of light at `frequency_hz` from the centre. It is 0 where no waveguide begins.
        """
        amplitude_share = 10 ** (-waveguide_loss_db(self.graph, self.cells.device) / 20)
        turn_rad = 2 * np.pi * frequency_hz * self.cells.device.cell_delay_s
        of_link = amplitude_share * np.exp(1j * turn_rad * measure_waveguides(self.graph).length)
        amplitude: NDArray[np.complex128] = np.where(
            self.graph.mate < 0, 0.0, of_link[self.graph.links.of_terminal]
        )
        return amplitude

    def _matrices(
        self, states: NDArray[np.int8], errors_rad: NDArray[np.float64]
    ) -> NDArray[np.complex128]:
        """Return what all cells make of light: complex amplitudes, shape (cells, 2, 2).

        ``matrices[cell, b side, a side]`` is the amplitude that leaves at a place of side b, of
        light of amplitude 1 that enters at a place of side a. ``states[cell]`` is 0 bar or 1
        cross, and ``errors_rad[cell, arm]`` are the errors of the phases in both arms.
        """
        # The device gives matrices with errors, but of ideal cells. Times the inverse of the ideal
        # matrix they are the errors alone; these are applied to the matrix that follows from the
        # parts of each cell.
        of_device = self.cells.cell(states, errors_rad)
        if self.circuit_matrices is None:
            return of_device
        inverse_of_ideal = IDEAL_MATRICES[states].conj().swapaxes(-1, -2)  # they are unitary
        transfer = self.circuit_matrices[np.arange(len(states)), states]
        matrices: NDArray[np.complex128] = of_device @ inverse_of_ideal @ transfer
        # A terminal that a cell does not have is dark in both states.
        dark = (self.circuit_matrices == 0).all(axis=1)
        return np.where(dark, 0.0, matrices)


class SolvedLight(NamedTuple):
    """The light of one setting of all cells at one frequency."""

    arriving: NDArray[np.complex128]
    """``arriving[receiver, sender]``: amplitudes, numbered by circuits."""
    entering: NDArray[np.complex128]
    """``entering[terminal, sender]``: amplitudes that enter cells."""
    worth: NDArray[np.complex128]
    """``worth[terminal, receiver]``: what light that leaves a cell there brings to a receiver."""
    turn: complex
    """The factor of the delay of one cell."""


class StrayLight:
    """Solves for the light of given circuits on a chip.

    Parameters
    ----------
    chip
        The fabric with its device.
    sources, destinations
        The terminals at which circuits begin and end, int, shape (circuits,): circuits are
        numbered as in these arrays.
    stated
        ``stated[cell]``: states of the cells that circuits pass, -1 elsewhere.
    free
        The cells whose states are to be chosen, shape (free cells,).

    Notes
    -----
    ``_exits[terminal, state]`` is where light leaves that enters a cell at a terminal, and
    ``_waveguides[frequency][terminal]`` the complex factor of the waveguide behind a terminal.
    ``_own_amplitude[circuit]`` is the amplitude of a signal that takes its own way alone, where
    phases are not known; else 0.
    """

    def __init__(
        self,
        chip: ChipOptics,
        sources: NDArray[np.int32],
        destinations: NDArray[np.int32],
        stated: NDArray[np.int8],
        free: NDArray[np.intp],
    ) -> None:
        """Prepare to solve for light, and find each circuit's signal if phases are unknown."""
        graph = chip.graph
        self._chip = chip
        self._sources = sources
        self._destinations = destinations
        self.free = free
        self._waveguides = [chip.pass_waveguides(frequency) for frequency in chip.frequencies_hz]
        terminals = np.arange(len(graph.mate))
        self._exits = 4 * (terminals // 4)[:, None] + EXITS[terminals % 4]

        # Without leaks light takes its own way alone. The amplitude that is left of it is the
        # signal wherever phases are unknown.
        self._own_amplitude = np.zeros(len(sources))
        if not chip.phases_known:
            amplitudes = chip.pass_cells(stated)
            leaks = np.arange(2) != np.repeat(stated, 4)[:, None]
            amplitudes[leaks] = 0.0
            waves = self._solve_at_frequency(amplitudes, 0)
            self._own_amplitude = np.abs(waves.arriving.diagonal())

    def solve(self, states: NDArray[np.int8]) -> list[SolvedLight]:
        """Solve for all light at each frequency; ``states[cell]`` is 0 bar or 1 cross."""
        amplitudes = self._chip.pass_cells(states)
        frequencies = range(len(self._chip.frequencies_hz))
        return [self._solve_at_frequency(amplitudes, frequency) for frequency in frequencies]

    def ratios(self, light: list[SolvedLight]) -> NDArray[np.float64]:
        """Return crosstalk over signal of each circuit at each frequency, in one row.

        `light` has an entry for each frequency. All circuits at the first frequency come first,
        then all at the second one: shape (frequencies * circuits,).
        """
        return np.concatenate([self._ratios(waves.arriving) for waves in light])

    def ratios_after_flips(
        self, light: list[SolvedLight], states: NDArray[np.int8]
    ) -> NDArray[np.float64]:
        """Estimate all ratios of crosstalk to signal if each free cell is flipped alone.

        `light` is the solution for ``states[cell]``, 0 bar or 1 cross, at each frequency. The
        result has a row for each free cell, and in it all circuits at the first frequency, then
        all at the second one, and so on: shape (free cells, frequencies * circuits).
        Let D be the change of the 4 x 4 matrix of a cell, X what enters it, and W the worth of
        what leaves it. Arriving light changes by :math:`W^T D X`, but for light that comes back to
        the cell: where it cannot, as in feed-forward fabrics, the estimate is exact.
        """
        # ``changed[free cell, terminal left, terminal entered]``: the matrix D of each cell. The
        # four terminals of cell c are 4 c to 4 c + 3; light that enters at one leaves by those of
        # its row in `EXITS`, in bar and in cross.
        change = self._chip.pass_cells((1 - states).astype(np.int8))
        change -= self._chip.pass_cells(states)
        terminals = 4 * self.free[:, None] + np.arange(4)
        changed = np.zeros((len(self.free), 4, 4), dtype=np.complex128)
        changed[:, EXITS, np.arange(4)[:, None]] = change[terminals]

        # For each frequency `turned` is D with the delay of the cell, and `brought` the product of
        # (free cells, receivers, 4), (free cells, 4, 4) and (free cells, 4, senders).
        ratios = []
        for waves in light:
            turned = changed * waves.turn
            brought = waves.worth[terminals].swapaxes(1, 2) @ turned @ waves.entering[terminals]
            ratios.append(self._ratios(waves.arriving + brought))
        return np.concatenate(ratios, axis=1)

    def _ratios(self, arriving: NDArray[np.complex128]) -> NDArray[np.float64]:
        """Return ``ratios[..., receiver]`` of crosstalk to signal power of each circuit.

        ``arriving[..., receiver, sender]`` are amplitudes, senders and receivers by circuit.
        The power from the own sender is the signal, or what is certain of it where phases are not
        known; the powers from all other senders together are the crosstalk.
        """
        power = np.abs(arriving) ** 2
        from_own_source = np.einsum("...rr->...r", power)
        if self._chip.phases_known:
            signal = from_own_source
        else:
            # At worst, stray light of the own source is in opposite phase.
            strayed = np.sqrt(from_own_source) - self._own_amplitude
            signal = np.maximum(self._own_amplitude - strayed, 0.0) ** 2
        crosstalk = power.sum(axis=-1) - from_own_source
        return np.asarray(np.maximum(crosstalk, 0.0) / np.maximum(signal, TINY))

    def _solve_at_frequency(
        self, amplitudes: NDArray[np.complex128], frequency: int
    ) -> SolvedLight:
        """Solve for the light everywhere, at one frequency, by one sparse LU factorisation.

        The amplitudes x of light that enters cells satisfy ``(I - A) x = b``. Column k of A tells
        what light of amplitude 1 that enters at terminal k makes enter the next cells, and b is
        what comes in from outside, one column for each circuit. The transposed system tells for
        each terminal what light from there brings to each destination.
        ``amplitudes[terminal, exit]`` is what goes on, by the exit of bar (0) or of cross (1), of
        light of amplitude 1 that enters a cell at a terminal; ``self._exits[terminal, exit]`` is
        where it leaves the cell. `frequency` is a place in the frequencies of the chip.
        """
        graph = self._chip.graph
        n_terminals = len(graph.mate)
        frequency_hz = self._chip.frequencies_hz[frequency]
        turn = complex(np.exp(2j * np.pi * frequency_hz * self._chip.cells.device.cell_delay_s))
        through_waveguide = self._waveguides[frequency]
        through_cell = amplitudes * turn

        # The matrix A: light that enters at a terminal leaves by an exit, passes the waveguide
        # behind it, and enters the next cell.
        entered_next = graph.mate[self._exits]
        joined = entered_next >= 0
        step = (through_cell * through_waveguide[self._exits])[joined] * (1 - LOST_IN_EACH_STEP)
        entered_before = np.repeat(np.arange(n_terminals), 2).reshape(-1, 2)[joined]
        steps = csc_matrix(
            (step, (entered_next[joined], entered_before)), shape=(n_terminals, n_terminals)
        )
        factors = splu(
            (identity(n_terminals, format="csc") - steps).tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )

        # Light from each source.
        circuits = np.arange(len(self._sources))
        sent = np.zeros((n_terminals, len(circuits)), dtype=np.complex128)
        sent[self._sources, circuits] = 1.0
        entering = _solve_in_parts(factors, sent, "N")

        # Light that leaves at a destination has entered its last cell at one of two terminals of
        # the other end, ``last_entries[circuit, exit]``: at one if it takes the exit of bar, at
        # the other if that of cross. Ways through a cell lead back as well, hence light that
        # entered at the destination would leave at these two. ``share[circuit, exit]`` is the
        # amplitude that reaches the destination from either of them.
        last_entries = self._exits[self._destinations]
        share = np.stack(
            [through_cell[last_entries[:, exit_], exit_] for exit_ in (BAR, CROSS)], axis=1
        )
        received = np.zeros((n_terminals, len(circuits)), dtype=np.complex128)
        received[last_entries, circuits[:, None]] = share

        # ``adjoint[terminal, circuit]``: what light of amplitude 1 that enters a cell at a
        # terminal brings to the destination in the end.
        adjoint = _solve_in_parts(factors, received, "T")
        arriving = (share[:, :, None] * entering[last_entries]).sum(axis=1)

        # `adjoint` is by the terminal at which light enters a cell, `worth` by that at which it
        # leaves one: behind it come a waveguide and the entry into the next cell, at the mate of
        # the terminal. At the destination itself light has arrived.
        worth = np.where(graph.mate[:, None] < 0, 0.0, adjoint[graph.mate])
        worth *= through_waveguide[:, None]
        worth[self._destinations, circuits] = 1.0
        return SolvedLight(
            arriving=arriving,
            entering=entering,
            worth=worth,
            turn=turn,
        )


def _solve_in_parts(
    factors: Any, right_sides: NDArray[np.complex128], trans: str
) -> NDArray[np.complex128]:
    """Solve for few right sides at once, ``right_sides[terminal, circuit]``.

    `factors` are those of SciPy's `splu`; `trans` is "N" for the system and "T" for its transpose.
    """
    starts = range(0, right_sides.shape[1], RIGHT_SIDES_AT_ONCE)
    parts = [
        factors.solve(right_sides[:, start : start + RIGHT_SIDES_AT_ONCE], trans=trans)
        for start in starts
    ]
    return np.concatenate(parts, axis=1)


ORDER = 512
"""The order of the norm of all ratios of crosstalk to signal that the search lowers.

It is high enough that the worst circuit decides. Among 42 meshes 120 random states were better by
more than 0.001 dB on 5 at order 32, on 2 at order 128 and on 1, by 0.003 dB, at order 512.
"""

MEAN_WEIGHT = 1e-4
"""The weight of the mean ratio, which decides between settings with an equal worst circuit."""

LEAST_GAIN = 1e-5
"""A flip must promise to lower the objective by this share."""

MOST_COOLING_GROWTH = 2.5e-4
"""By how much crosstalk may grow for less power: 0.001 dB."""

EVALUATIONS_OF_WAVES = 4_000_000
"""Settings that are solved in a schedule, times the terminals and ports of the fabric, at most."""

MOST_EVALUATIONS = 120
LEAST_EVALUATIONS = 12
"""Settings that are solved for a slot. Half of the most lost nothing on 14 small meshes."""

N_RANDOM_STARTS = 8
MOST_KICKED = 8
"""At most so many free cells are flipped at random before a descent is repeated."""


def settle(
    problem: Problem,
    subject: Schedule | Solution,
    device: Device | CellDevice | str,
    frequencies_hz: Sequence[float] = (0.0,),
    wavelengths_nm: Sequence[float] | None = None,
    *,
    seed: int | None = None,
) -> NDArray[np.int8]:
    """Choose a state for every free cell, such that circuits disturb each other least.

    A free cell is one that no circuit of a slot needs; stray light passes it nevertheless. The
    setting of the least worst ratio of crosstalk to signal counts, among those that the search
    tries. Then cells whose other state needs less heater power are flipped, as far as that
    disturbs no circuit more. `frequencies_hz` are differences from the frequency of the device,
    and `wavelengths_nm` may stand in their place; `seed` draws phase errors, None for a chip whose
    phases are not known. `subject` is a schedule with cell states, or a solution with one;
    `device` is a device of all cells or its name, or a `CellDevice`. The result is
    ``states[slot, cell]``, int8, 0 bar or 1 cross.
    """
    fabric = problem.fabric
    graph: CellGraph | None = fabric.graph
    schedule = schedule_of(subject)
    if graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells, and no optics")
    if schedule is None or schedule.cell_states is None:
        raise InputError("optics need one schedule, with cell states")
    cells = with_cell_phases(fabric, cells_of(device, graph.n_cells))
    frequencies = distances_hz(cells.device.wavelength_nm, frequencies_hz, wavelengths_nm)
    chip = ChipOptics.of(fabric, cells, tuple(frequencies.tolist()), seed)
    n_waves = max(1, len(graph.mate) * schedule.matchings.size)
    n_evaluations = min(max(EVALUATIONS_OF_WAVES // n_waves, LEAST_EVALUATIONS), MOST_EVALUATIONS)

    # Slot by slot. Stuck cells have their state whatever is stated. Dead ones get some state, as
    # every cell does. Without a second circuit nothing is disturbed; only power may be saved.
    settled = schedule.cell_states.copy()
    for states, matching in zip(settled, schedule.matchings, strict=True):
        source = np.flatnonzero(matching >= 0)
        first = fabric.source_terminals[source]
        last = fabric.destination_terminals[matching[source]]
        states[graph.stuck == BAR] = BAR
        states[graph.stuck >= CROSS] = CROSS
        free = np.flatnonzero(states == FREE)

        # The search begins with all free cells in cross.
        if len(source) and len(free):
            light = StrayLight(chip, first, last, states, free)
            states[free] = CROSS
            if len(source) > 1:
                search_setting(light, states, n_evaluations)
            _save_power(light, states, cells.power_mw)
        states[states == FREE] = CROSS
    return settled


def measure_objective(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the objective of ``ratios[..., circuit]``, less is better.

    It is the norm of order `ORDER` (512) of all ratios of crosstalk to signal power, hence hardly
    more than the worst one, plus a ten-thousandth of their mean. Of the ratios 0.01 and 0.02 it is
    0.0200015.
    """
    worst = np.maximum(ratios.max(axis=-1), 1e-300)
    shares = ratios / worst[..., None]
    norm = worst * (shares**ORDER).sum(axis=-1) ** (1 / ORDER)
    objective: NDArray[np.float64] = norm + MEAN_WEIGHT * ratios.mean(axis=-1)
    return objective


class Descent(NamedTuple):
    """The end of a descent."""

    states: NDArray[np.int8]
    """(cells,): 0 bar, 1 cross."""
    objective: float
    """The result of `measure_objective` for them, without unit; less is better."""
    n_evaluations: int
    """Settings that were solved for."""


def search_setting(light: StrayLight, states: NDArray[np.int8], n_evaluations: int) -> None:
    """Settle the free cells of one slot in ``states[cell]``, in place, by iterated local search.

    `light` has the circuits of the slot and its free cells, which are in cross (1) at first.
    Descents begin there, then with all of them in bar (0), then `N_RANDOM_STARTS` times at random,
    and then near the best setting so far. About `n_evaluations` settings are solved: a descent
    that has begun is finished.
    """
    rng = np.random.default_rng(0)
    free = light.free
    best = descend(light, states)
    n_left = n_evaluations - best.n_evaluations
    n_descents = 1
    while n_left > 0 and best.objective > 0:
        # The second descent begins in bar, some more in random states.
        start = states.copy()
        if n_descents == 1:
            start[free] = BAR
        elif n_descents <= 1 + N_RANDOM_STARTS:
            start[free] = rng.integers(0, 2, len(free))
        else:
            # Later descents begin near the best setting: a few of its cells are kicked (flipped).
            start = best.states.copy()
            n_kicked = int(rng.integers(1, MOST_KICKED + 1))
            kicked = rng.permutation(free)[:n_kicked]
            start[kicked] = 1 - start[kicked]

        # A descent from there; the best setting of all stays.
        descent = descend(light, start)
        n_left -= descent.n_evaluations
        n_descents += 1
        # Among equal settings the last one goes on, so that the search can cross a plateau.
        if descent.objective <= best.objective:
            best = descent
    states[:] = best.states


def descend(light: StrayLight, start: NDArray[np.int8]) -> Descent:
    """Flip free cells as long as the objective falls; return where that ends.

    Each round flips all cells that promise to lower the objective, or the most promising half,
    quarter and so on of them, until the objective computed exactly is indeed lower.
    ``start[cell]`` is 0 bar or 1 cross, and is not changed.
    """
    states = start
    waves = light.solve(states)
    objective = float(measure_objective(light.ratios(waves)))
    n_evaluations = 1
    while True:
        # ``promised[free cell]``: the objective if this cell alone is flipped.
        promised = measure_objective(light.ratios_after_flips(waves, states))
        order = np.argsort(promised, kind="stable")
        n_promising = int((promised < (1 - LEAST_GAIN) * objective).sum())

        # The promise of a flip holds for it alone. Many flips at once may disturb each other: then
        # fewer are tried, and those that promise most are kept longest.
        is_lower = False
        while n_promising and not is_lower:
            flipped = light.free[order[:n_promising]]
            trial = states.copy()
            trial[flipped] = 1 - trial[flipped]
            trial_waves = light.solve(trial)
            trial_objective = float(measure_objective(light.ratios(trial_waves)))
            n_evaluations += 1
            is_lower = trial_objective < objective
            n_promising //= 2
        if not is_lower:
            return Descent(states, objective, n_evaluations)
        states = trial
        waves = trial_waves
        objective = trial_objective


def _save_power(
    light: StrayLight, states: NDArray[np.int8], power_mw: NDArray[np.float64]
) -> None:
    """Put free cells, in place, where they need less power, if crosstalk grows by next to nothing.

    Changes ``states[cell]`` of the free cells of `light`, 0 bar or 1 cross; ``power_mw[cell,
    state]`` is what a heater takes. Crosstalk may grow by the share `MOST_COOLING_GROWTH`. All
    cells that save power are flipped together; if that is too much, the half of them that promises
    the least crosstalk, then a quarter, and so on; then as many of those that are left.
    """
    free = light.free
    saved_mw = power_mw[free, states[free]] - power_mw[free, 1 - states[free]]
    is_warm = saved_mw > 0
    if not is_warm.any():
        return

    # How much crosstalk may grow, and what each flip alone would do. `warm` are the numbers of the
    # cells that save power, those first that promise the least crosstalk.
    waves = light.solve(states)
    ratios = light.ratios(waves)
    most_objective = (1 + MOST_COOLING_GROWTH) * float(measure_objective(ratios))
    most_ratio = (1 + MOST_COOLING_GROWTH) * float(ratios.max())
    promised = measure_objective(light.ratios_after_flips(waves, states))[is_warm]
    warm = free[is_warm][np.argsort(promised, kind="stable")]
    n_cooled = len(warm)

    # Flip the first half, quarter and so on that keeps within this; then those behind them.
    while n_cooled and len(warm):
        trial = states.copy()
        trial[warm[:n_cooled]] = 1 - trial[warm[:n_cooled]]
        ratios = light.ratios(light.solve(trial))
        if measure_objective(ratios) <= most_objective and ratios.max() <= most_ratio:
            states[:] = trial
            warm = warm[n_cooled:]
        else:
            n_cooled //= 2
