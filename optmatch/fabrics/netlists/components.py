"""The components of netlists: what each does to light, and how its pins are called.

A component is known by its name, or its user declares its kind. Parts of five kinds are told
apart: switches, which become cells; parts that pass light, phase shifters and crossings, which
lead light from pin to pin; and couplers, which split it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.netlists.flaws import CONVENTIONS, list_names
from optmatch.model.accounts import Level, assume

KINDS = ("switch", "pass", "shifter", "crossing", "coupler")
"""What a component may be: a 2x2 or 1x2 cell; a part that passes light from pin to pin; the same
with a phase that is set; two waveguides that cross; a coupler, which splits light."""

PASSING = ("pass", "shifter", "crossing")
"""The kinds of parts that lead light from one pin to one other pin."""

_KIND_OF_NAME = (
    ("switch", r"cell|osu|mzi2x2(_2x2.*)?|mzi_?1x2_?2x2.*|mzi_ps|(.*_)?switch(_?[12]x2)?"),
    ("shifter", r".*phase_?shifter|.*heat.*|straight_pi?n(_.*)?"),
    ("pass", r"straight.*|wave_?guide.*|bend.*|taper.*|grating_coupler.*|edge_coupler.*"),
    ("crossing", r"crossing.*"),
    ("coupler", r"coupler.*|directional_coupler.*|mmi(_?[12]x2.*)?|splitter.*|y_?branch.*"),
)
"""The kind of a component by a pattern of its name; the first pattern that fits decides."""

SWITCHES = frozenset(("cell", "osu", "mzi2x2", "mzi_ps", "switch", "switch_2x2", "switch_1x2"))
"""Components that are switches and nothing else; of others the name may mislead."""

_ONE_TO_TWO = re.compile(r"^\D*1x2|splitter|y_?branch", re.IGNORECASE)
NARROW = {
    "optical": ("o1", "", "o2", "o3"),
    "inout": ("in0", "", "out0", "out1"),
    "numbered": ("I1", "", "O1", "O2"),
    "cell": ("a1", "", "b1", "b2"),
}
"""Names of the pins of a 1x2 part; it has no a2."""

_CROSSING = {
    "optical": ("o1", "o2", "o3", "o4"),
    "inout": ("in0", "in1", "out1", "out0"),
}
"""Names of the pins of a crossing, such that light goes from a1 to b1 and from a2 to b2.

In sax the drawing of `crossing_ideal` has out0 opposite to in0, and its matrix leads light from
in0 to out1. The matrix counts here, since it is what sax computes with.
"""

_OTHER_END = {"o1": "o2", "I1": "O1", "in0": "out0"} | {"o2": "o1", "O1": "I1", "out0": "in0"}

PinNames = Mapping[str, Sequence[str]]
"""The names of pins a1, a2, b1 and b2 by convention; empty for a pin that a part does not have."""


class Part(NamedTuple):
    """An instance of a netlist, and what it does to light."""

    component: str
    """The name of what it is an instance of, such as ``"mzi2x2"``."""
    kind: str | None
    """One of `KINDS`; None if the kind is not known, or not looked for yet."""
    names: PinNames
    """How its pins may be called."""
    settings: Mapping[str, Any]
    """Its parameters by name, such as a length in micrometres or a coupling."""
    computed: Mapping[str, Any] = MappingProxyType({})
    """Figures that the program that wrote the netlist computed, such as the length of a bend."""

    @property
    def is_narrow(self) -> bool:
        """Whether it has one pin on its left side, and no a2."""
        return all(not names[1] for names in self.names.values())


_DRAWING = dict.fromkeys(
    (
        *(
            "cross_section*",
            "layer*",
            "width*",
            "*_width",
            "*taper*",
            "*_mmi",
            "bend*",
            "straight*",
        ),
        *("dx", "dy", "port*", "with_*", "npoints", "radius", "angle", "p", "heater*", "via_*"),
        *("allow_min_radius_violation", "extension*", "post_process", "info", "auto_rename_ports"),
    ),
    "how it is drawn",
)
_SIMULATION = {"wl": "at which wavelength somebody simulates it"}
SETTINGS = {
    "coupler": Level(
        "setting of couplers",
        ("coupling", "loss_dB", "splitting_ratio_cross", "splitting_ratio_thru"),
        _DRAWING | _SIMULATION,
        "couplers split as their other settings say, or evenly",
    ),
    "splitter": Level(
        "setting of 1x2 couplers",
        ("coupling", "loss_dB"),
        _DRAWING | _SIMULATION,
        "they split as their other settings say, or evenly",
    ),
    "switch": Level(
        "setting of switches",
        ("delta_length",),
        {
            **_DRAWING,
            **_SIMULATION,
            **dict.fromkeys(("length_x", "length_y", "min_length", "nbends"), "how it is drawn"),
            **dict.fromkeys(("splitter", "combiner", "mirror_bot"), "pins say what it has"),
            "state": "states are those of a schedule",
        },
        "switches are ideal interferometers",
    ),
    "pass": Level(
        "setting of waveguides and phase shifters",
        ("length",),
        _DRAWING | _SIMULATION,
        "the device says what waveguides do, and both arms of a cell are alike",
    ),
}
"""The settings of parts by their kind; those of shifters and crossings are as of waveguides."""


def settings_level(part: Part) -> Level:
    """Return the declaration of the settings of a part."""
    if part.kind == "coupler":
        return SETTINGS["splitter" if part.is_narrow else "coupler"]
    return SETTINGS["switch" if part.kind == "switch" else "pass"]


def read_number(value: Any) -> float | None:
    """Return a finite number, or a text that is one; None for anything else."""
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def length_of(part: Part, key: str = "length") -> float | None:
    """Return a length among the settings of a part, in micrometres; None if it states none.

    Raises
    ------
    ValueError
        If it is no finite number.
    """
    value = part.settings.get(key, part.computed.get(key))
    length_um = read_number(value)
    if value is not None and length_um is None:
        raise ValueError(f"{key} = {value}: a number of micrometres")
    return length_um


def kind_of(component: str, declared: Mapping[str, str], n_pins: int) -> str | None:
    """Return the kind of a component, as its user declares it or by its name; None if unknown.

    ``declared[component]`` are the kinds that the user says. An ``mzi`` is a switch if more than
    two of its pins are used (`n_pins`): with two it is a filter or a modulator.
    """
    if component in declared:
        return declared[component]
    if component.lower() == "mzi":
        return "switch" if n_pins > 2 else None
    for kind, pattern in _KIND_OF_NAME:
        if re.fullmatch(pattern, component, re.IGNORECASE):
            return kind
    return None


def make_parts(
    instances: Mapping[str, Part],
    used_pins: Mapping[str, Sequence[str]],
    declared: Mapping[str, str],
    user_names: PinNames,
) -> dict[str, Part]:
    """Tell for each instance what it does to light, and what its pins may be called.

    ``used_pins[instance]`` are the pins that joins and ports name, ``declared[component]`` is the
    kind that the user has declared, and `user_names` are names of pins that the user says. Pins
    have four names, for a1, a2, b1 and b2, by convention; a 1x2 part (`NARROW`) has no a2.
    """
    # Whether an `mzi` is a 1x2 switch shows only if no instance of it uses a fourth pin.
    pins_of_component: dict[str, set[str]] = {}
    for name, instance in instances.items():
        pins_of_component.setdefault(instance.component, set()).update(used_pins[name])

    # Three pins may have the usual names, or those that the user says of a1, b1 and b2.
    narrow = NARROW | {
        key: (names[0], "", names[2], names[3])
        for key, names in user_names.items()
        if names[0] and names[2] and names[3]
    }
    parts = {}
    for name, instance in instances.items():
        component = instance.component
        kind = kind_of(component, declared, len(used_pins[name]))
        is_narrow = kind in ("switch", "coupler") and _has_three_pins(
            component, pins_of_component[component], narrow, is_declared=component in declared
        )

        # The names of pins follow from the kind; what the user gives goes before.
        if is_narrow:
            names: PinNames = narrow
        elif kind == "switch":
            names = user_names or CONVENTIONS
        elif kind == "coupler":
            names = {**CONVENTIONS, **user_names}
        elif kind == "crossing":
            names = {**_CROSSING, **user_names}
        else:
            names = _name_passing_pins(kind, used_pins[name], user_names)
        parts[name] = instance._replace(kind=kind, names=names)
    return parts


def _has_three_pins(
    component: str, used_pins: set[str], narrow: PinNames, *, is_declared: bool
) -> bool:
    """Tell whether a switch or coupler has three pins.

    By its name, or by the pins that all its instances use (`used_pins`), for an ``mzi`` and for a
    component whose kind the user declares; the account of the netlist says so in the last case.
    `narrow` has the names of three pins by convention, "" in place of a2.
    """
    if re.search(r"2x2", component):
        return re.search(r"1x2", component) is not None
    if _ONE_TO_TWO.search(component):
        return True
    if component.lower() != "mzi" and not is_declared:
        return False
    if not any(used_pins == {pin for pin in names if pin} for names in narrow.values()):
        return False
    if is_declared:
        listed = ", ".join(sorted(used_pins))
        assume(f"component {component} is taken for one of three pins, since {listed} are used")
    return True


def _name_passing_pins(kind: str | None, used: Sequence[str], user_names: PinNames) -> PinNames:
    """Name the pins of a part with two pins, of which maybe one is used, or with four.

    Light passes from the first pin of a part with two pins to the second. Parts of four pins have
    the names that the user gives, or the usual ones.
    """
    if len(used) > 2:
        return {**CONVENTIONS, **user_names} if kind else {"own": used}
    first = used[0] if used else "o1"
    second = used[1] if len(used) > 1 else _OTHER_END.get(first, "the other pin")
    return {"own": (first, "", second, "")}


def find_unknown(parts: Mapping[str, Part]) -> list[str]:
    """Return a sentence with advice for each component that nobody knows."""
    unknown: dict[str, list[str]] = {}
    for name, part in parts.items():
        if part.kind is None:
            unknown.setdefault(part.component, []).append(name)
    return [
        f"component {component} of {list_names(names)} is not known:"
        f" say --component {component}={'|'.join(KINDS)},"
        " or export a recursive netlist, which says what it is made of"
        for component, names in unknown.items()
    ]


def coupler_matrix(part: Part, convention: str) -> NDArray[np.complex128]:
    r"""Return ``T[exit, entry]`` of a coupler by its settings, as sax has it.

    With the shares :math:`\kappa` of power that crosses and :math:`\tau` of power that stays, a
    2x2 coupler is :math:`((\sqrt{\tau}, j\sqrt{\kappa}), (j\sqrt{\kappa}, \sqrt{\tau}))`; a 1x2
    coupler sends :math:`\sqrt{\tau}` and :math:`\sqrt{\kappa}` to its two outputs, in phase. Which
    output gets :math:`\kappa` depends on the convention of its pins: sax counts ``o2``, ``o3``
    from below: `convention` is "optical" for these names. One share tells the other, and both are
    one half if none is stated. Rows and columns are the upper and the lower pin. Raise
    `ValueError` if a setting is out of range, or two contradict each other.
    """
    coupling = _read_setting(part, "coupling", most=1.0)
    loss_db = _read_setting(part, "loss_dB", most=1000.0) or 0.0
    crossing = coupling
    staying = None
    if not part.is_narrow:
        ratio_cross = _read_setting(part, "splitting_ratio_cross", most=1.0)
        staying = _read_setting(part, "splitting_ratio_thru", most=1.0)
        if None not in (coupling, ratio_cross) and coupling != ratio_cross:
            raise ValueError(f"coupling = {coupling:g}, splitting_ratio_cross = {ratio_cross:g}")
        crossing = ratio_cross if coupling is None else coupling

    # A share that is not stated follows: all light crosses or stays, half by default.
    if crossing is None:
        crossing = 0.5 if staying is None else 1 - staying
    if staying is None:
        staying = 1 - crossing
    if crossing + staying > 1 + 1e-9:
        raise ValueError(f"{crossing:g} of the power crosses and {staying:g} stays: more than all")

    # A narrow coupler has the input a1 alone, so that its second column is 0; the matrix of others
    # is symmetric. A loss of 20 dB leaves a tenth of the amplitude.
    stays = np.sqrt(staying)
    crosses = np.sqrt(crossing)
    if part.is_narrow:
        outputs = [stays, crosses]
        if convention == "optical":  # which counts outputs from below
            outputs.reverse()
        matrix = np.array([[outputs[0], 0], [outputs[1], 0]], dtype=np.complex128)
    else:
        matrix = np.array([[stays, 1j * crosses], [1j * crosses, stays]])
    return np.asarray(10 ** (-loss_db / 20) * matrix, dtype=np.complex128)


def _read_setting(part: Part, name: str, *, most: float) -> float | None:
    """Return a number from 0 to `most` among the settings of a part; None if it is not stated."""
    value = part.settings.get(name)
    number = read_number(value)
    if value is not None and (number is None or not 0 <= number <= most):
        raise ValueError(f"{name} = {value}: a number from 0 to {most:g}")
    return number


def find_bad_settings(parts: Mapping[str, Part]) -> list[str]:
    """List the settings that no part can have: ratios out of range, and lengths without number.

    Returns
    -------
    list of str
        A sentence for each part.
    """
    flaws = []
    for name, part in parts.items():
        try:
            if part.kind == "coupler":
                coupler_matrix(part, "")
            else:
                length_of(part, "delta_length" if part.kind == "switch" else "length")
        except ValueError as exc:
            flaws.append(f"settings of {name}: {exc}")
    return flaws


def guessed_switches(parts: Iterable[Part], declared: Mapping[str, str]) -> list[str]:
    """List the components that are taken for switches by a name that may mislead."""
    named = {part.component for part in parts if part.kind == "switch"}
    return sorted(named - declared.keys() - SWITCHES)
