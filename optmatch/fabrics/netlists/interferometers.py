"""Mach-Zehnder interferometers among the parts of a netlist: which couplers are a switch.

Two couplers that two arms join are an interferometer, and with a phase shifter in an arm it may
switch. Whether it does, and which phase sets which state, follows from the matrix of its circuit.
Parts that neither split nor switch light only lead it on, from pin to pin (`LightPaths`).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.netlists.circuits import CellCircuit, CellPart
from optmatch.fabrics.netlists.components import (
    NARROW,
    PASSING,
    Part,
    coupler_matrix,
    length_of,
)
from optmatch.fabrics.netlists.flaws import (
    CONVENTIONS,
    Pair,
    list_names,
    name_terminals,
    split_pin,
)
from optmatch.model import BAR, CROSS
from optmatch.model.accounts import assume

Terminal = tuple[str, int]
"""An instance, and the number of one of its pins: 0 to 3 for a1, a2, b1, b2."""

LEFT = 0
RIGHT = 2
"""The two sides of a part: the number of the first pin there."""


def side_of(terminal: Terminal) -> int:
    """Return the side of its part on which a pin is, `LEFT` or `RIGHT`."""
    return terminal[1] & 2


def height_of(terminal: Terminal) -> int:
    """Return 0 for the upper and 1 for the lower pin of a side."""
    return terminal[1] & 1


def opposite(terminal: Terminal) -> Terminal:
    """Return the pin of the same height on the other side of the part."""
    return terminal[0], terminal[1] ^ 2


class Path(NamedTuple):
    """The way of light from a pin that it leaves a part by to the next part that it stops at."""

    end: Terminal
    """Where the light arrives: a pin of a switch or coupler, or the last pin before the open."""
    passed: list[str]
    """The parts that the light goes straight through, in order."""
    joins: list[tuple[Terminal, Terminal]]
    """The joins that the light takes, in order."""


class LightPaths:
    """Follows light through waveguides, phase shifters and crossings.

    Parameters
    ----------
    parts
        The parts by name.
    joins
        Pairs of pins ``"instance,pin"``; all pins are known to their parts.
    """

    def __init__(self, parts: Mapping[str, Part], joins: Iterable[Pair]) -> None:
        """Note which pins of parts are joined to which."""
        self.parts = parts
        self._joined: dict[Terminal, Terminal] = {}
        self._names_used: dict[Terminal, str] = {}
        for first, second in joins:
            first_terminal = self.terminal_of(first)
            second_terminal = self.terminal_of(second)
            self._joined[first_terminal] = second_terminal
            self._joined[second_terminal] = first_terminal

    def terminal_of(self, pin: str) -> Terminal:
        """Return the terminal of a pin ``"instance,pin"``, and remember how it is called."""
        instance, name = split_pin(pin)
        terminal = (instance, name_terminals(self.parts[instance].names)[name])
        self._names_used[terminal] = name
        return terminal

    def convention_of(self, instance: str) -> str:
        """Return the key of the names by which the netlist calls the pins of a part."""
        names = self.parts[instance].names
        used = {self._names_used.get((instance, k)) for k in range(4)}
        return max(names, key=lambda convention: len(used & set(names[convention])))

    def pin_names(self, instance: str) -> tuple[str, str, str, str]:
        """Return the names of pins a1, a2, b1 and b2 of a part; empty for one it does not have."""
        standard = self.parts[instance].names[self.convention_of(instance)]
        names = [self._names_used.get((instance, k), standard[k]) for k in range(4)]
        return names[0], names[1], names[2], names[3]

    def has_pin(self, terminal: Terminal) -> bool:
        """Tell whether a part has a pin: 1x2 parts have only three."""
        instance, k = terminal
        return any(names[k] for names in self.parts[instance].names.values() if len(names) > k)

    def follow(self, terminal: Terminal) -> Path:
        """Follow light that leaves a part by a pin, as far as it is neither split nor switched."""
        # Light ends at a part that splits or switches it, or at a pin that is joined to nothing.
        passed: list[str] = []
        joins: list[tuple[Terminal, Terminal]] = []
        while terminal in self._joined:
            entered = self._joined[terminal]
            joins.append((terminal, entered))
            if self.parts[entered[0]].kind not in PASSING:
                return Path(entered, passed, joins)
            passed.append(entered[0])
            terminal = opposite(entered)
        return Path(terminal, passed, joins)

    def enter(self, pin: str) -> Terminal:
        """Return where light that enters at a pin from outside meets a switch or coupler.

        If it meets none, that is where it leaves the last part.
        """
        terminal = self.terminal_of(pin)
        if self.parts[terminal[0]].kind in PASSING:
            return self.follow(opposite(terminal)).end
        return terminal


_MIN_EXTINCTION_DB = 10.0
"""A state counts as one if at most a tenth as much light leaks as goes where it should.

Ideal couplers leak nothing; two couplers that let 35 % or 65 % across reach this bound. At 20 dB
the cells of broadband couplers that are made today would be refused, at 3 dB a plan of circuits
would mean little.
"""

_NO_LIGHT = 1e-12  # of the power that goes in: less is rounding


class _Interferometer(NamedTuple):
    """Two couplers that two arms join, and the terminals of the cell that they are."""

    first: str
    """The name of a coupler, as of the next one."""
    second: str
    arms: tuple[Path, Path]
    """The arms from the first coupler to the second; arm 1 begins at its upper pin."""
    terminals: Sequence[Terminal | None]
    """The pins at terminals a1, a2, b1, b2 of the cell; None for one that it does not have."""

    @property
    def name(self) -> str:
        """The names of both couplers, as ``"c1+c2"``."""
        return f"{self.first}+{self.second}"


def _find_interferometers(paths: LightPaths) -> tuple[list[_Interferometer], list[str]]:
    """Find the Mach-Zehnder interferometers of a netlist: pairs of couplers that two arms join.

    In a row of interferometers ``c1 === c2 === c3 === c4`` a coupler has two possible partners.
    Pairs are made from the ends inward, where a coupler has one: c1 + c2 and c3 + c4.
    ``paths.parts[name]`` are the parts of the netlist, and `paths` follows light between them. A
    coupler stays alone if it has no partner, if its partner has another one, or in a ring, where
    each has two. Returns the interferometers, and the names of the couplers that stay alone.
    """
    # links[coupler][other]: the two arms from one side of a coupler to another coupler.
    couplers = [name for name, part in paths.parts.items() if part.kind == "coupler"]
    links: dict[str, dict[str, _Interferometer]] = {name: {} for name in couplers}
    for name in couplers:
        for side in (RIGHT, LEFT):
            link = _follow_arms(paths, name, side)
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
    interferometers: list[_Interferometer] = []
    for pair in sorted(pairs, key=lambda pair: min(order[name] for name in pair)):
        first, second = sorted(pair, key=order.__getitem__)
        interferometer = links[first][second]

        # It begins at the left coupler, where the netlist tells which one that is.
        arm = interferometer.arms[0]
        if side_of(_start_of(arm)) == LEFT and side_of(arm.end) == RIGHT:
            interferometer = links[second][first]
        interferometers.append(interferometer)
    return interferometers, list(unpaired)


def _follow_arms(paths: LightPaths, name: str, side: int) -> _Interferometer | None:
    """Follow both arms that begin on one side of the coupler `name`, `LEFT` or `RIGHT`.

    Arm 1 begins at the upper pin, and terminals a1 and b1 of the cell are in line with it. If the
    arms arrive exchanged at the second coupler, b1 is its lower pin, hence equal phases of both
    arms are always the cross state. None if the side has one pin, or the arms do not end at both
    pins of one side of another coupler.
    """
    starts = [(name, side), (name, side + 1)]
    if not all(map(paths.has_pin, starts)):
        return None  # the side of a 1x2 coupler with one pin
    arms = (paths.follow(starts[0]), paths.follow(starts[1]))
    ends = [arm.end for arm in arms]
    other = ends[0][0]
    is_same_side = ends[1][0] == other and side_of(ends[0]) == side_of(ends[1])
    is_other_coupler = other != name and paths.parts[other].kind == "coupler"
    if not (is_same_side and is_other_coupler) or ends[0] == ends[1]:
        return None

    # The outer pins lie opposite those at which the arms begin, or end; a coupler may lack one.
    terminals: list[Terminal | None] = []
    for arm_pins in (starts, ends):
        outer = [opposite(pin) for pin in arm_pins if paths.has_pin(opposite(pin))]
        terminals += [*outer, None, None][:2]
    return _Interferometer(name, other, arms, terminals)


def _start_of(arm: Path) -> Terminal:
    return arm.joins[0][0]


def _shifters_of(paths: LightPaths, arm: Path) -> list[str]:
    """Return the phase shifters of an arm, in order."""
    return [name for name in arm.passed if paths.parts[name].kind == "shifter"]


def _find_amplitudes(paths: LightPaths, interferometer: _Interferometer) -> NDArray[np.complex128]:
    """Compute what goes through each arm, from each terminal on the left to each on the right.

    An amplitude is the product of those of both couplers, into the arm and out of it. The result
    is ``through[arm, exit, entry]``, shape (2, 2, 2): arm 0 is arm 1, entry 0 and 1 are terminals
    a1 and a2, exit 0 and 1 are b1 and b2. It is 0 for a terminal that the cell does not have.
    """
    terminals = interferometer.terminals
    through = np.zeros((2, 2, 2), dtype=np.complex128)
    for k, exit_, entry in np.ndindex(through.shape):
        outside_left = terminals[entry]
        outside_right = terminals[2 + exit_]
        if outside_left is not None and outside_right is not None:
            # Light enters the first coupler outside and leaves it into the arm, and so on at the
            # other end.
            arm = interferometer.arms[k]
            into_arm = _amplitude(paths, outside_left, _start_of(arm))
            out_of_arm = _amplitude(paths, arm.end, outside_right)
            through[k, exit_, entry] = out_of_arm * into_arm
    return through


def _matrix_at(through: NDArray[np.complex128], difference_rad: float) -> NDArray[np.complex128]:
    r"""Return the matrix ``[exit, entry]`` of an interferometer, up to a common phase.

    :math:`d`, `difference_rad`, is the phase of arm 1 less that of arm 2: the matrix is
    :math:`e^{jd} A_1 + A_2`, with :math:`A_1` and :math:`A_2` through the arms.
    """
    return np.asarray(cmath.exp(1j * difference_rad) * through[0] + through[1])


def _amplitude(paths: LightPaths, entered: Terminal, left: Terminal) -> complex:
    """Return the amplitude between two pins on different sides of a coupler."""
    name = entered[0]
    matrix = coupler_matrix(paths.parts[name], paths.convention_of(name))
    if side_of(entered) == RIGHT:
        return complex(matrix[height_of(entered), height_of(left)])  # reciprocal: transposed
    return complex(matrix[height_of(left), height_of(entered)])


def _find_states(
    through: NDArray[np.complex128], terminals: Sequence[Terminal | None]
) -> tuple[list[float], list[float]]:
    r"""Find the two phases that make a switch of an interferometer: bar and cross.

    With :math:`A_1, A_2`, `through` the arms, and the difference d of their phases, the power
    between two terminals is :math:`|A_1|^2 + |A_2|^2 + 2 \Re(A_1 \bar A_2 e^{jd})`. The power that
    leaks, less the power that goes where it should, is such a sinusoid of d, too, whose minimum is
    known in closed form. The results are d in rad for bar and cross, and the extinction of both
    states in dB: how much less light leaks than goes where it should. It is minus infinity if the
    phase changes nothing. `terminals` are a1, a2, b1, b2, None for one that the cell lacks.
    """
    # exists[b, a]: whether the cell has both terminals. Tables below are by exit b and entry a.
    exists = np.array([[bool(b and a) for a in terminals[:2]] for b in terminals[2:]])
    beat = through[0] * through[1].conj()
    differences = []
    extinctions = []
    for state in (BAR, CROSS):
        # Bar joins a1 to b1 and a2 to b2, cross the others.
        is_wanted = np.eye(2, dtype=bool)
        if state == CROSS:
            is_wanted = ~is_wanted
        # Leaked less wanted power is 2 Re(slope e^(jd)) and a constant, least at d = pi -
        # arg(slope).
        slope = complex(beat[~is_wanted].sum() - beat[is_wanted].sum())
        if abs(slope) < _NO_LIGHT:  # the phase changes nothing
            differences.append(0.0)
            extinctions.append(-math.inf)
            continue

        # A phase is above -pi and at most pi, and an eighth of a turn exactly but for rounding.
        phase_rad = math.pi - cmath.phase(slope)
        phase_rad = math.remainder(phase_rad, 2 * math.pi)
        eighth = round(phase_rad / (math.pi / 4)) * (math.pi / 4)
        phase_rad = eighth if abs(phase_rad - eighth) < 1e-9 else phase_rad
        difference_rad = math.pi if phase_rad <= -math.pi else phase_rad
        power = np.abs(_matrix_at(through, difference_rad)) ** 2
        differences.append(difference_rad)
        extinctions.append(_extinction_db(power, is_wanted & exists, exists))

    # A gate, with one terminal on each side, is in cross where it is dark: compare on and off.
    if exists.sum() == 1:
        on = np.abs(_matrix_at(through, differences[BAR])[exists]) ** 2
        off = np.abs(_matrix_at(through, differences[CROSS])[exists]) ** 2
        contrast_db = _ratio_db(float(on[0]), float(off[0]))
        extinctions = [contrast_db, contrast_db]
    return differences, extinctions


def _extinction_db(
    power: NDArray[np.float64], is_wanted: NDArray[np.bool_], exists: NDArray[np.bool_]
) -> float:
    """Return the least ratio in dB of the wanted power to that of a leak beside it.

    A leak leaves by the same terminal as wanted light, or comes from the same one. All arrays are
    ``[b side, a side]``: the power between two terminals for a power of 1 that enters, whether
    light should go this way, and whether the cell has both terminals.
    """
    worst_db = math.inf
    leak = np.where(exists & ~is_wanted, power, 0.0)
    for exit_, entry in np.argwhere(is_wanted):
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


def _make_circuit(
    paths: LightPaths, interferometer: _Interferometer, difference_rad: tuple[float, float]
) -> CellCircuit:
    """Record what a cell is made of, by the names of the netlist.

    `difference_rad` are the phases of arm 1 less that of arm 2 that set it to bar and to cross.
    """
    arm_1, arm_2 = interferometer.arms
    passed = dict.fromkeys([*arm_1.passed, *arm_2.passed])
    names = (interferometer.first, *passed, interferometer.second)

    def pin(terminal: Terminal | None) -> str:
        """Name a pin as the netlist does."""
        if terminal is None:
            return ""
        return f"{terminal[0]},{paths.pin_names(terminal[0])[terminal[1]]}"

    # Couplers and the parts of both arms; couplers have a matrix, whose complex numbers become
    # real and imaginary parts along a third axis.
    parts = []
    for name in names:
        part = paths.parts[name]
        matrix = None
        if part.kind == "coupler":
            amplitudes = coupler_matrix(part, paths.convention_of(name))
            matrix = np.stack([amplitudes.real, amplitudes.imag], axis=-1)
        parts.append(
            CellPart(
                name=name,
                component=part.component,
                kind=part.kind,  # type: ignore[arg-type]  # a switch is no part of a cell
                pins=paths.pin_names(name),
                matrix=matrix,
            )
        )
    a1, a2, b1, b2 = map(pin, interferometer.terminals)
    return CellCircuit(
        parts=parts,
        joins=[(pin(start), pin(end)) for start, end in (*arm_1.joins, *arm_2.joins)],
        terminals=(a1, a2, b1, b2),
        arms=(_shifters_of(paths, arm_1), _shifters_of(paths, arm_2)),
        difference_rad=difference_rad,
        longer_um=_compare_arms(paths, interferometer),
    )


def _compare_arms(paths: LightPaths, interferometer: _Interferometer) -> float:
    """Return by how many micrometres arm 1 is longer than arm 2; 0 where nobody says.

    ``interferometer.arms[k].passed`` are the names of the parts that light passes in an arm.
    Parts of both arms with the same component and settings cancel. Where arms differ, or only some
    of the other parts state their lengths, the account of the netlist says so (`assume`).
    """
    arm_1, arm_2 = interferometer.arms
    first = [paths.parts[name] for name in arm_1.passed]
    second = [paths.parts[name] for name in arm_2.passed]
    for part in list(first):
        for other in second:
            if other.component == part.component and other.settings == part.settings:
                first.remove(part)
                second.remove(other)
                break

    # The parts that differ are compared by width first, since that changes the speed of light.
    first_widths = {str(part.settings.get("width")) for part in first}
    second_widths = {str(part.settings.get("width")) for part in second}
    all_state_widths = "None" not in first_widths | second_widths
    if first and second and first_widths != second_widths and all_state_widths:
        assume(
            f"arms of {interferometer.name} have other widths: its phase without power is not"
            " known"
        )

    # Then by length, where all parts state theirs.
    first_um = [length_of(part) for part in first]
    second_um = [length_of(part) for part in second]
    stated_um = [length for length in (*first_um, *second_um) if length is not None]
    if not stated_um:
        return 0.0
    if len(stated_um) < len(first_um) + len(second_um):
        assume(
            f"arms of {interferometer.name}: only some parts state their lengths; the arms are"
            " taken for equally long"
        )
        return 0.0

    # A difference that is more than rounding.
    longer_um = math.fsum(stated_um[: len(first)]) - math.fsum(stated_um[len(first) :])
    if abs(longer_um) < 1e-6:
        return 0.0
    assume(
        f"arms of {interferometer.name} differ by {abs(longer_um):.6g} um: its phase without power"
        " is not known, and no phases are exported for it"
    )
    return longer_um


def find_cells(
    paths: LightPaths, flaws: list[str]
) -> Iterator[tuple[_Interferometer, CellCircuit]]:
    """Yield the interferometers that switch, with their circuits.

    Couplers that are part of no cell are appended to `flaws`, with a sentence each: single ones,
    pairs without a phase shifter, and pairs that no phase sets to bar and to cross. `paths`
    follows light between the parts of the netlist.
    """
    interferometers, alone = _find_interferometers(paths)
    if alone:
        flaws.append(
            f"couplers {list_names(alone)} split the light of every circuit: two of them"
            " with a phase shifter in an arm between are a cell, others are no part of a switch"
        )
    for interferometer in interferometers:
        through = _find_amplitudes(paths, interferometer)
        if not any(_shifters_of(paths, arm) for arm in interferometer.arms):
            flaws.append(
                f"couplers {interferometer.first}, {interferometer.second} have no phase shifter"
                " in the arms between them: they are filters and do not switch; their matrix is"
                f" {np.round(_matrix_at(through, 0.0), 3).tolist()}"
            )
            continue
        phases_rad, extinctions_db = _find_states(through, interferometer.terminals)
        # States 0 and 1 are bar and cross: a cell has to be good in both.
        if min(extinctions_db) < _MIN_EXTINCTION_DB:
            worst = int(np.argmin(extinctions_db))
            difference_rad = phases_rad[worst]
            matrix = _matrix_at(through, difference_rad)
            flaws.append(
                f"couplers {interferometer.first}, {interferometer.second} are no switch: no phase"
                " between their arms"
                f" sets {('bar', 'cross')[worst]} with {_MIN_EXTINCTION_DB:g} dB of extinction;"
                f" the best is {difference_rad:.4g} rad, where the matrix is"
                f" {np.round(matrix, 3).tolist()}"
            )
        else:
            yield (
                interferometer,
                _make_circuit(paths, interferometer, (phases_rad[BAR], phases_rad[CROSS])),
            )


def assume_circuit(name: str, part: Part) -> CellCircuit | None:
    """Return the circuit of a switch of which only the name is known; None for an ideal 2x2 one.

    It is that of gdsfactory's ``mzi1x2_2x2`` or ``mzi2x2_2x2``: two couplers, and a phase shifter
    in the upper arm, which is longer than the other one by ``delta_length``. The names of its
    parts begin with the name of the switch.
    """
    longer_um = length_of(part, "delta_length") or 0.0
    is_narrow = part.is_narrow
    if longer_um:
        assume(
            f"arms of {name} differ by {abs(longer_um):.6g} um: its phase without power is not"
            " known, and no phases are exported for it"
        )
    elif not is_narrow:
        return None

    # Its parts, and how they are joined: the heater is in the upper arm. In gdsfactory a 1x2
    # coupler has o2 above o3 on the right; a 2x2 coupler has o3 above o4 there, and o2 above o1 on
    # the left.
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
