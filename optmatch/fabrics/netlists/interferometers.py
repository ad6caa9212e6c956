"""Mach-Zehnder interferometers among the parts of a netlist: which couplers are a switch.

Two couplers that two arms join are an interferometer, and with a phase shifter in an arm it may
switch. Whether it does, and which phase sets which state, follows from the matrix of its circuit.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.netlists.circuits import CellCircuit, CellPart
from optmatch.fabrics.netlists.components import NARROW, Part, coupler_matrix, length_of
from optmatch.fabrics.netlists.flaws import CONVENTIONS, Pair, list_names
from optmatch.fabrics.netlists.paths import (
    LEFT,
    RIGHT,
    LightPaths,
    Path,
    Terminal,
    height_of,
    opposite,
    side_of,
)
from optmatch.model import BAR, CROSS
from optmatch.model.accounts import assume

_MIN_EXTINCTION_DB = 10.0
"""A state counts as one if at most a tenth as much light leaks as goes where it should.

Ideal couplers leak nothing; two couplers that let 35 % or 65 % across reach this bound. At 20 dB
the cells of broadband couplers that are made today would be refused, at 3 dB a plan of circuits
would mean little.
"""

_NO_LIGHT = 1e-12  # of the power that goes in: less is rounding


class Link(NamedTuple):
    """Two couplers that two arms join."""

    first: str
    """The name of a coupler, as of the next one."""
    second: str
    arms: tuple[Path, Path]
    """The arms from the first coupler to the second; arm 1 begins at its upper pin."""


class _Interferometer(NamedTuple):
    """Two couplers, two arms with a phase shifter, and the terminals of the cell that they are."""

    link: Link
    terminals: tuple[Terminal | None, ...]
    """The pins at terminals a1, a2, b1, b2 of the cell; None for one that it does not have."""

    @property
    def name(self) -> str:
        """The names of both couplers, as ``"c1+c2"``."""
        return f"{self.link.first}+{self.link.second}"


class Found(NamedTuple):
    """The couplers of a netlist, by what they are part of."""

    cells: list[_Interferometer]
    filters: list[_Interferometer]
    """Interferometers without a phase shifter in their arms."""
    alone: list[str]
    """Couplers that are part of no interferometer."""


def _find_interferometers(paths: LightPaths) -> Found:
    """Find the Mach-Zehnder interferometers of a netlist: pairs of couplers that two arms join.

    In a row of interferometers ``c1 === c2 === c3 === c4`` a coupler has two possible partners.
    Pairs are made from the ends inward, where a coupler has one: c1 + c2 and c3 + c4.
    ``paths.parts[name]`` are the parts of the netlist, and `paths` follows light between them. A
    coupler stays alone if it has no partner, if its partner has another one, or in a ring, where
    each has two.
    """
    # links[coupler][other]: the two arms from one side of a coupler to another coupler.
    couplers = [name for name, part in paths.parts.items() if part.kind == "coupler"]
    links: dict[str, dict[str, Link]] = {name: {} for name in couplers}
    for name in couplers:
        for side in (RIGHT, LEFT):
            link = _find_link(paths, name, side)
            if link is not None:
                links[name].setdefault(link.second, link)

    # Pair each coupler that has one possible partner left with it. Others may have one partner
    # left after that: they join the queue `waiting`. In a row of four: c1, c4, then none.
    pairs: list[Pair] = []
    waiting = [name for name in couplers if len(links[name]) == 1]
    unpaired = dict.fromkeys(couplers)
    while waiting:
        name = waiting.pop(0)
        partners = [other for other in links[name] if other in unpaired]
        if name not in unpaired or len(partners) != 1:
            continue
        partner = partners[0]
        pairs.append((name, partner))
        del unpaired[name], unpaired[partner]
        waiting += [other for other in links[partner] if other in unpaired]

    # Interferometers have the order of their first couplers in the netlist.
    order = {name: place for place, name in enumerate(couplers)}
    cells: list[_Interferometer] = []
    filters: list[_Interferometer] = []
    for pair in sorted(pairs, key=lambda pair: min(order[name] for name in pair)):
        first, second = sorted(pair, key=order.__getitem__)
        link = links[first][second]

        # A link begins at the left coupler, where the netlist tells which one it is.
        if side_of(_start_of(link.arms[0])) == LEFT and side_of(link.arms[0].end) == RIGHT:
            link = links[second][first]
        interferometer = _Interferometer(link, _find_terminals(paths, link))
        # One with a phase shifter in an arm is a cell, other ones are filters.
        is_tuned = any(_shifters_of(paths, arm) for arm in link.arms)
        (cells if is_tuned else filters).append(interferometer)
    return Found(cells, filters, list(unpaired))


def _find_link(paths: LightPaths, name: str, side: int) -> Link | None:
    """Follow both arms on one side of a coupler, whose first pin is `side`.

    Return None if the side has one pin, or the arms do not end at both pins of one side of another
    coupler.
    """
    starts = [(name, side), (name, side + 1)]
    if not all(map(paths.has_pin, starts)):
        return None  # the side of a 1x2 coupler with one pin
    arms = (paths.follow(starts[0]), paths.follow(starts[1]))
    ends = [arm.end for arm in arms]
    other = ends[0][0]
    is_same_side = ends[1][0] == other and side_of(ends[0]) == side_of(ends[1])
    is_other_coupler = other != name and paths.parts[other].kind == "coupler"
    if is_same_side and is_other_coupler and ends[0] != ends[1]:
        return Link(name, other, arms)
    return None


def _find_terminals(paths: LightPaths, link: Link) -> tuple[Terminal | None, ...]:
    """Return the outer pins of both couplers, None for one that a coupler lacks.

    Terminals a1 and b1 are in line with arm 1. If the arms arrive exchanged at the second coupler,
    b1 is its lower pin, hence equal phases of both arms are always the cross state.
    """
    terminals: list[Terminal | None] = []
    for starts in ([_start_of(arm) for arm in link.arms], [arm.end for arm in link.arms]):
        # The outer pins lie opposite those at which the arms begin, or end.
        in_line = [opposite(terminal) for terminal in starts]
        outer = [terminal for terminal in in_line if paths.has_pin(terminal)]
        terminals += [*outer, None, None][:2] if len(outer) < 2 else outer
    return tuple(terminals)


def _start_of(arm: Path) -> Terminal:
    return arm.joins[0][0]


def _shifters_of(paths: LightPaths, arm: Path) -> list[str]:
    """Return the phase shifters of an arm, in order."""
    return [name for name in arm.passed if paths.parts[name].kind == "shifter"]


class _ArmAmplitudes(NamedTuple):
    r"""The matrix of an interferometer as a function of the phase :math:`d` of arm 1 less arm 2.

    It is :math:`e^{jd} A_1 + A_2`, up to a common phase.
    """

    through_arm_1: NDArray[np.complex128]
    """``A_1[b side, a side]``, shape (2, 2); 0 at terminals that the cell does not have."""
    through_arm_2: NDArray[np.complex128]

    def matrix(self, difference_rad: float) -> NDArray[np.complex128]:
        """Return the amplitudes at b1 and b2 for light at a1 and a2, shape (2, 2)."""
        return cmath.exp(1j * difference_rad) * self.through_arm_1 + self.through_arm_2


def _find_amplitudes(paths: LightPaths, interferometer: _Interferometer) -> _ArmAmplitudes:
    """Compute what goes through each arm, from each terminal on the left to each on the right.

    An amplitude is the product of those of both couplers, into the arm and out of it. The result
    has a matrix ``[exit, entry]`` for each arm: entry 0 and 1 are terminals a1 and a2, exit 0 and
    1 are b1 and b2. It is 0 for a terminal that the cell does not have.
    """
    terminals = interferometer.terminals
    through = []
    for arm in interferometer.link.arms:
        amplitudes = np.zeros((2, 2), dtype=np.complex128)
        for exit_ in (0, 1):
            for entry in (0, 1):
                outside_left = terminals[entry]
                outside_right = terminals[2 + exit_]
                if outside_left is not None and outside_right is not None:
                    # Light enters the first coupler outside and leaves it into the arm, and so on
                    # at the other end.
                    into_arm = _amplitude(paths, outside_left, _start_of(arm))
                    out_of_arm = _amplitude(paths, arm.end, outside_right)
                    amplitudes[exit_, entry] = out_of_arm * into_arm
        through.append(amplitudes)
    return _ArmAmplitudes(*through)


def _amplitude(paths: LightPaths, entered: Terminal, left: Terminal) -> complex:
    """Return the amplitude between two pins on different sides of a coupler."""
    name = entered[0]
    matrix = coupler_matrix(paths.parts[name], paths.convention_of(name))
    if side_of(entered) == RIGHT:
        return complex(matrix[height_of(entered), height_of(left)])  # reciprocal: transposed
    return complex(matrix[height_of(left), height_of(entered)])


def _find_states(
    amplitudes: _ArmAmplitudes, terminals: Sequence[Terminal | None]
) -> tuple[list[float], list[float]]:
    r"""Find the two phases that make a switch of an interferometer: bar and cross.

    With :math:`A_1, A_2` through the arms and the difference d of their phases, the power between
    two terminals is :math:`|A_1|^2 + |A_2|^2 + 2 \Re(A_1 \bar A_2 e^{jd})`. The power that leaks,
    less the power that goes where it should, is such a sinusoid of d, too, whose minimum is known
    in closed form. The results are d in rad for bar and cross, and the extinction of both states
    in dB: how much less light leaks than goes where it should. It is minus infinity if the phase
    changes nothing. `terminals` are a1, a2, b1, b2, None for one that the cell lacks.
    """
    # exists[b, a]: whether the cell has both terminals. Tables below are by exit b and entry a.
    exists = np.array([[bool(b and a) for a in terminals[:2]] for b in terminals[2:]])
    beat = amplitudes.through_arm_1 * amplitudes.through_arm_2.conj()
    differences = []
    extinctions = []
    for state in (BAR, CROSS):
        goes_there = np.eye(2, dtype=bool) if state == BAR else ~np.eye(2, dtype=bool)
        # Leaked less wanted power is 2 Re(slope e^(jd)) and a constant, least at d = pi -
        # arg(slope).
        slope = complex((beat * ~goes_there).sum() - (beat * goes_there).sum())
        is_fixed = abs(slope) < _NO_LIGHT
        difference_rad = 0.0 if is_fixed else _round_phase(math.pi - cmath.phase(slope))
        differences.append(difference_rad)
        power = np.abs(amplitudes.matrix(difference_rad)) ** 2
        extinctions.append(
            -math.inf if is_fixed else _extinction_db(power, goes_there & exists, exists)
        )

    # A gate, with one terminal on each side, is in cross where it is dark: compare on and off.
    if exists.sum() == 1:
        on = np.abs(amplitudes.matrix(differences[BAR])[exists]) ** 2
        off = np.abs(amplitudes.matrix(differences[CROSS])[exists]) ** 2
        contrast_db = _ratio_db(float(on[0]), float(off[0]))
        extinctions = [contrast_db, contrast_db]
    return differences, extinctions


def _extinction_db(
    power: NDArray[np.float64], goes_there: NDArray[np.bool_], exists: NDArray[np.bool_]
) -> float:
    """Return the least ratio in dB of the wanted power to that of a leak beside it.

    A leak leaves by the same terminal as wanted light, or comes from the same one. All arrays are
    ``[b side, a side]``.
    """
    worst_db = math.inf
    leak = np.where(exists & ~goes_there, power, 0.0)
    for exit_, entry in np.argwhere(goes_there):
        leaked = max(leak[exit_].max(), leak[:, entry].max())
        worst_db = min(worst_db, _ratio_db(float(power[exit_, entry]), float(leaked)))
    return worst_db


def _ratio_db(power: float, leaked: float) -> float:
    """Return a ratio of powers in dB.

    Infinite where nothing leaks but rounding, minus infinity where there is no light.
    """
    if power < _NO_LIGHT:
        return -math.inf
    return math.inf if leaked < _NO_LIGHT else 10 * math.log10(power / leaked)


def _round_phase(phase_rad: float) -> float:
    r"""Return a phase from :math:`-\pi` to :math:`\pi`; eighths of a turn are exact."""
    phase_rad = math.remainder(phase_rad, 2 * math.pi)
    eighth = round(phase_rad / (math.pi / 4)) * (math.pi / 4)
    phase_rad = eighth if abs(phase_rad - eighth) < 1e-9 else phase_rad
    return math.pi if phase_rad <= -math.pi else phase_rad


def _make_circuit(
    paths: LightPaths, interferometer: _Interferometer, difference_rad: tuple[float, float]
) -> CellCircuit:
    """Record what a cell is made of, and which phases set it to bar and to cross."""
    link = interferometer.link
    passed = dict.fromkeys(name for arm in link.arms for name in arm.passed)
    arm_1, arm_2 = link.arms

    def pin(terminal: Terminal | None) -> str:
        """Name a pin as the netlist does."""
        if terminal is None:
            return ""
        return f"{terminal[0]},{paths.pin_names(terminal[0])[terminal[1]]}"

    a1, a2, b1, b2 = map(pin, interferometer.terminals)
    return CellCircuit(
        parts=[_make_part(paths, name) for name in (link.first, *passed, link.second)],
        joins=[(pin(start), pin(end)) for arm in link.arms for start, end in arm.joins],
        terminals=(a1, a2, b1, b2),
        arms=(_shifters_of(paths, arm_1), _shifters_of(paths, arm_2)),
        difference_rad=difference_rad,
        longer_um=_compare_arms(paths, interferometer),
    )


def _compare_arms(paths: LightPaths, interferometer: _Interferometer) -> float:
    """Return by how many micrometres arm 1 is longer than arm 2; 0 where nobody says.

    ``interferometer.link.arms[k].passed`` are the names of the parts that light passes in an arm.
    Parts of both arms with the same component and settings cancel. Where arms differ, or only some
    of the other parts state their lengths, the account of the netlist says so (`assume`).
    """
    first, second = (
        [
            (part.component, dict(part.settings), part)
            for part in (paths.parts[name] for name in arm.passed)
        ]
        for arm in interferometer.link.arms
    )
    for entry in list(first):
        equal = next((other for other in second if other[:2] == entry[:2]), None)
        if equal is not None:
            first.remove(entry)
            second.remove(equal)

    # The parts that differ are compared by width first, since that changes the speed of light.
    widths = [{str(part.settings.get("width")) for _, _, part in arm} for arm in (first, second)]
    if first and second and widths[0] != widths[1] and "None" not in widths[0] | widths[1]:
        assume(
            f"arms of {interferometer.name} have other widths: its phase without power is not"
            " known"
        )

    # Then by length, where all parts state theirs.
    lengths_um = [[length_of(part) for _, _, part in arm] for arm in (first, second)]
    stated = [length for arm in lengths_um for length in arm if length is not None]
    if not stated:
        return 0.0
    if any(length is None for arm in lengths_um for length in arm):
        assume(
            f"arms of {interferometer.name}: only some parts state their lengths; the arms are"
            " taken for equally long"
        )
        return 0.0
    first_um, second_um = (
        math.fsum(length for length in arm if length is not None) for arm in lengths_um
    )
    longer_um = first_um - second_um
    if abs(longer_um) < 1e-6:
        return 0.0
    assume(
        f"arms of {interferometer.name} differ by {abs(longer_um):.6g} um: its phase without power"
        " is not known, and no phases are exported for it"
    )
    return longer_um


def _make_part(paths: LightPaths, name: str) -> CellPart:
    """Record one part of a cell; a coupler has a matrix."""
    part = paths.parts[name]
    matrix = None
    if part.kind == "coupler":
        amplitudes = coupler_matrix(part, paths.convention_of(name))
        matrix = np.stack([amplitudes.real, amplitudes.imag], axis=-1)
    return CellPart(
        name=name,
        component=part.component,
        kind=part.kind,  # type: ignore[arg-type]  # a switch is no part of a cell
        pins=paths.pin_names(name),
        matrix=matrix,
    )


def find_cells(
    paths: LightPaths, flaws: list[str]
) -> Iterator[tuple[_Interferometer, CellCircuit]]:
    """Yield the interferometers that switch, with their circuits.

    Couplers that are part of no cell are appended to `flaws`, with a sentence each: single ones,
    pairs without a phase shifter, and pairs that no phase sets to bar and to cross. `paths`
    follows light between the parts of the netlist.
    """
    couplers = _find_interferometers(paths)
    if couplers.alone:
        flaws.append(
            f"couplers {list_names(couplers.alone)} split the light of every circuit: two of them"
            " with a phase shifter in an arm between are a cell, others are no part of a switch"
        )
    for interferometer in couplers.filters:
        link = interferometer.link
        matrix = _find_amplitudes(paths, interferometer).matrix(0.0)
        flaws.append(
            f"couplers {link.first}, {link.second} have no phase shifter in the arms between"
            " them: they are filters and do not switch; their matrix is"
            f" {_format_matrix(matrix)}"
        )
    for interferometer in couplers.cells:
        link = interferometer.link
        amplitudes = _find_amplitudes(paths, interferometer)
        phases_rad, extinctions_db = _find_states(amplitudes, interferometer.terminals)
        # States 0 and 1 are bar and cross: a cell has to be good in both.
        if min(extinctions_db) < _MIN_EXTINCTION_DB:
            worst = int(np.argmin(extinctions_db))
            difference_rad = phases_rad[worst]
            matrix = amplitudes.matrix(difference_rad)
            flaws.append(
                f"couplers {link.first}, {link.second} are no switch: no phase between their arms"
                f" sets {('bar', 'cross')[worst]} with {_MIN_EXTINCTION_DB:g} dB of extinction;"
                f" the best is {difference_rad:.4g} rad, where the matrix is"
                f" {_format_matrix(matrix)}"
            )
        else:
            yield (
                interferometer,
                _make_circuit(paths, interferometer, (phases_rad[BAR], phases_rad[CROSS])),
            )


def _format_matrix(matrix: NDArray[np.complex128]) -> str:
    """Return a matrix for messages by its rows, the exits b1 and b2.

    ``"((0.707, 0.707j), (0.707j, 0.707))"``.
    """

    def entry(value: complex) -> str:
        """Return a complex number with three digits, without parts below 5e-4 (rounding)."""
        has_real = abs(value.real) >= 5e-4
        has_imag = abs(value.imag) >= 5e-4
        if has_real and has_imag:
            return f"{value.real:.3g}{value.imag:+.3g}j"
        if has_imag:
            return f"{value.imag:.3g}j"
        return f"{value.real:.3g}" if has_real else "0"

    rows = [", ".join(entry(complex(value)) for value in row) for row in matrix]
    return f"(({rows[0]}), ({rows[1]}))"


def assume_circuit(name: str, *, is_narrow: bool, longer_um: float) -> CellCircuit:
    """Return the circuit of a switch of which only the name is known.

    It is that of gdsfactory's ``mzi1x2_2x2`` or ``mzi2x2_2x2``: two couplers, and a phase shifter
    in the upper arm, which is longer than the other one by `longer_um`. The names of its parts
    begin with the name of the switch.
    """
    wide = {"optical": CONVENTIONS["optical"]}
    heater = Part("straight_heater_metal", "shifter", {"own": ("o1", "", "o2", "")}, {})
    splitter = Part("mmi2x2", "coupler", wide, {})
    if is_narrow:
        splitter = Part("mmi1x2", "coupler", NARROW, {})
    instances = {
        f"{name}.splitter": splitter,
        f"{name}.heater": heater,
        f"{name}.combiner": Part("mmi2x2", "coupler", wide, {}),
    }
    upper, lower = ("o2", "o3") if is_narrow else ("o3", "o4")
    joins = [
        (f"{name}.splitter,{upper}", f"{name}.heater,o1"),
        (f"{name}.heater,o2", f"{name}.combiner,o2"),
        (f"{name}.splitter,{lower}", f"{name}.combiner,o1"),
    ]
    paths = LightPaths(instances, joins)
    ((_, circuit),) = find_cells(paths, [])
    return replace(circuit, longer_um=longer_um)
