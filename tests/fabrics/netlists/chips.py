"""Small chips for tests: drawn interferometers, and a dense matrix of all their light.

The matrix is computed from the netlist as it is written, by a table of components and pins of its
own: nothing here is taken from the reader, nor from the verifier.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

COUPLERS_1X2 = ("mmi1x2", "y_branch")
COUPLERS_2X2 = ("mmi2x2", "coupler", "coupler_ideal")
SHIFTERS = ("straight_heater_metal", "phase_shifter", "straight_pin")


def ways_through(component: str, coupling: float, phase_rad: float) -> dict[Any, complex]:
    """Return the amplitudes between the pins of a component, one direction of each pair."""
    straight, across = np.sqrt(1 - coupling), np.sqrt(coupling)
    if component in COUPLERS_1X2:
        return {("o1", "o3"): straight, ("o1", "o2"): across}
    if component in COUPLERS_2X2:
        ways = {("o1", "o4"): straight, ("o2", "o3"): straight}
        return ways | {("o1", "o3"): 1j * across, ("o2", "o4"): 1j * across}
    if component == "crossing":
        return {("o1", "o3"): 1, ("o2", "o4"): 1}
    return {("o1", "o2"): np.exp(1j * phase_rad)}


def port_amplitudes(
    tree: Mapping[str, Any], phases_rad: Mapping[str, float]
) -> tuple[list[str], NDArray[np.complex128]]:
    """Solve for the light at all pins of a flat netlist at once.

    Returns the names of its ports, and ``amplitude[port left by, port entered]``. Parts that are
    not in `phases_rad` have no phase.
    """
    ways: dict[tuple[str, str], complex] = {}
    for name, entry in tree["instances"].items():
        component = entry if isinstance(entry, str) else entry["component"]
        settings = {} if isinstance(entry, str) else entry["settings"]
        coupling = settings.get("coupling", 0.5)
        table = ways_through(component, coupling, phases_rad.get(name, 0.0))
        ways |= {(f"{name},{a}", f"{name},{b}"): t for (a, b), t in table.items()}
    number = {pin: k for k, pin in enumerate(sorted({pin for pair in ways for pin in pair}))}
    scatter = np.zeros((len(number), len(number)), dtype=np.complex128)
    for (a, b), amplitude in ways.items():
        scatter[number[a], number[b]] = scatter[number[b], number[a]] = amplitude
    joined = np.zeros_like(scatter)
    for first, second in tree["connections"].items():
        joined[number[first], number[second]] = joined[number[second], number[first]] = 1
    leaving = np.linalg.solve(np.eye(len(number)) - scatter @ joined, scatter)
    places = [number[pin] for pin in tree["ports"].values()]
    between: NDArray[np.complex128] = leaving[np.ix_(places, places)].astype(np.complex128)
    return list(tree["ports"]), between


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Put the netlists of components in their place, one level deep."""
    if "instances" in tree:
        return dict(tree)
    top, library = tree["top"], tree
    flat: dict[str, Any] = {"instances": {}, "connections": {}, "ports": {}}
    inner_pin: dict[str, str] = {}
    for name, entry in top["instances"].items():
        component = entry if isinstance(entry, str) else entry["component"]
        if component not in library:
            flat["instances"][name] = entry
            continue
        inner = library[component]
        flat["instances"] |= {f"{name}.{part}": e for part, e in inner["instances"].items()}
        joins = inner["connections"].items()
        flat["connections"] |= {f"{name}.{first}": f"{name}.{second}" for first, second in joins}
        inner_pin |= {f"{name},{port}": f"{name}.{pin}" for port, pin in inner["ports"].items()}
    for first, second in top["connections"].items():
        flat["connections"][inner_pin.get(first, first)] = inner_pin.get(second, second)
    flat["ports"] = {name: inner_pin.get(pin, pin) for name, pin in top["ports"].items()}
    return flat


class DrawnChip:
    """A Mach-Zehnder interferometer drawn at random, in the words of gdsfactory.

    Couplers are 1x2, 2x2 or MMI, with a ratio or without, each either way round; arms are straight
    or exchanged, with or without a crossing between them; phase shifters stand in one arm, in both
    or in none, and before and behind it; the whole may be a component within another netlist.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.instances: dict[str, Any] = {}
        self.connections: dict[str, str] = {}
        self.ports: dict[str, str] = {}
        self.arm_shifters: tuple[list[str], list[str]] = ([], [])
        outer_first, arms_first = self._coupler("first")
        outer_second, arms_second = self._coupler("second")
        if self.rng.random() < 0.5:
            arms_second = arms_second[::-1]
        self._join_arms(arms_first, arms_second)
        for side, pins in (("west", outer_first), ("east", outer_second)):
            for k, pin in enumerate(pins):
                self.ports[f"{side}{k}"] = self._lead(f"{side}{k}", pin)

    def _coupler(self, name: str) -> tuple[list[str], list[str]]:
        """Draw a coupler; return its outer pins, and those where arms begin."""
        narrow = self.rng.random() < 0.35
        component = str(self.rng.choice(COUPLERS_1X2 if narrow else COUPLERS_2X2))
        settings = {}
        if self.rng.random() < 0.6:
            shares = (0.5, self.rng.uniform(0.42, 0.58), self.rng.uniform(0.05, 0.95))
            settings = {"coupling": float(shares[self.rng.integers(3)])}
        self.instances[name] = {"component": component, "settings": settings}
        if narrow:
            return [f"{name},o1"], [f"{name},o2", f"{name},o3"]
        sides = [[f"{name},o2", f"{name},o1"], [f"{name},o3", f"{name},o4"]]
        if self.rng.random() < 0.5:
            sides.reverse()
        return sides[0], sides[1]

    def _chain(self, name: str, pin: str, components: list[str]) -> str:
        """Join parts in a row behind a pin; return the pin where they end."""
        for k, component in enumerate(components):
            part = f"{name}_{k}"
            self.instances[part] = {"component": component, "settings": {}}
            ends = ["o1", "o2"] if self.rng.random() < 0.5 else ["o2", "o1"]
            self.connections[pin] = f"{part},{ends[0]}"
            pin = f"{part},{ends[1]}"
        return pin

    def _lead(self, name: str, pin: str) -> str:
        """Draw what stands before or behind the interferometer."""
        choices: list[list[str]] = [[], [], ["straight"], ["straight_heater_metal"]]
        return self._chain(name, pin, choices[self.rng.integers(4)])

    def _join_arms(self, starts: list[str], ends: list[str]) -> None:
        """Draw both arms and join the couplers by them."""
        in_arm = [(1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (2, 1), (0, 0)][self.rng.integers(7)]
        pins = []
        for arm, pin in enumerate(starts):
            components = [str(self.rng.choice(SHIFTERS)) for _ in range(in_arm[arm])]
            components += ["straight"] * int(self.rng.integers(3))
            self.rng.shuffle(components)
            pins.append(self._chain(f"arm{arm}", pin, components))
            parts = [f"arm{arm}_{k}" for k, name in enumerate(components) if name != "straight"]
            self.arm_shifters[arm].extend(parts)
        if self.rng.random() < 0.2:
            self.instances["x"] = {"component": "crossing", "settings": {}}
            self.connections |= {pins[0]: "x,o1", pins[1]: "x,o2"}
            pins = ["x,o3", "x,o4"]
        for pin, end in zip(pins, ends, strict=True):
            self.connections[pin] = end

    def tree(self) -> dict[str, Any]:
        """Return the netlist, its instances in any order, maybe one level down."""
        names = list(self.instances)
        self.rng.shuffle(names)
        instances = {name: self.instances[name] for name in names}
        flat = {"instances": instances, "connections": self.connections, "ports": self.ports}
        if self.rng.random() < 0.6:
            return flat
        component = str(self.rng.choice(["mzi", "my_switch", "mzi2x2", "tunable"]))
        outer = {
            "instances": {"inner": component},
            "connections": {},
            "ports": {name: f"inner,{name}" for name in self.ports},
        }
        return {"top": outer, component: flat}
