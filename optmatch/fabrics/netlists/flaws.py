"""The flaws that a netlist can have: every one, by the names that its author uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.model import InputError

Pair = tuple[str, str]

CONVENTIONS: dict[str, tuple[str, str, str, str]] = {
    "cell": TERMINAL_NAMES,
    "optical": ("o2", "o1", "o3", "o4"),
    "inout": ("in0", "in1", "out0", "out1"),
    "numbered": ("I1", "I2", "O1", "O2"),
}
"""How pins are called that we call a1, a2, b1, b2: by us; by gdsfactory, clockwise from the lower
left; by sax; by PICBench."""

_MOST_NAMES = 6  # characters of a part's name in a message
_MOST_LETTERS = 3000  # of flaws in a message, but for the first one


class NetlistError(InputError):
    """A netlist with flaws; `flaws` has all of them, the message the first ones."""

    def __init__(self, flaws: Sequence[str]) -> None:
        self.flaws: tuple[str, ...] = tuple(flaws)
        count = "1 flaw" if len(flaws) == 1 else f"{len(flaws)} flaws"
        ends = accumulate(map(len, flaws))
        told = max(1, sum(end <= _MOST_LETTERS for end in ends))
        more = f"; and {len(flaws) - told} more" if told < len(flaws) else ""
        super().__init__(f"{count}: {'; '.join(flaws[:told])}{more}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.flaws,), {"where": self.where, "path": self.path}


def split_pin(pin: str) -> Pair:
    """Split a pin in instance and name, at the last comma."""
    instance, _, name = pin.rpartition(",")
    return instance.strip(), name.strip()


def name_terminals(conventions: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the terminal of a part, 0 to 3, for every name of a pin."""
    return {
        name: terminal
        for names in conventions.values()
        for terminal, name in enumerate(names)
        if name
    }


def find_flaws(
    instances: Sequence[str],
    joins: Sequence[Pair],
    ports: Sequence[Pair],
    open_pins: Sequence[str],
    names_of: Mapping[str, Mapping[str, Sequence[str]]],
) -> list[str]:
    """List everything that is wrong with parts, joins and ports, each flaw once.

    `joins` are pairs of pins ``"instance,pin"``, `ports` names with their pins, `open_pins` pins
    that are meant to lead nowhere; `names_of` says for each instance how its pins may be called,
    as `CONVENTIONS`. Flaws are instances that are not there or there twice, unknown pins, pins
    connected twice or to nothing, and parts that are not connected.
    """
    shared = {id(names): name_terminals(names) for names in names_of.values()}
    terminals = {name: shared[id(names)] for name, names in names_of.items()}
    flaws = [f"instance {name} is there twice" for name in _repeated(instances)]
    flaws += [] if instances else ["there are no instances"]
    flaws += [f"port {name} is there twice" for name in _repeated([name for name, _ in ports])]
    flaws += [] if ports else ["there are no ports"]
    users: dict[tuple[str, int], list[Pair]] = {}

    def use(pin: str, place: str, user: str) -> None:
        """Note which part is at a pin, or that there is no such pin."""
        instance, name = split_pin(pin)
        if instance not in terminals:
            flaws.append(f"{place}: there is no instance {instance or repr(pin)}")
        elif name not in terminals[instance]:
            flaws.append(f"{place}: a cell has no pin {name}")
        else:
            users.setdefault((instance, terminals[instance][name]), []).append((pin, user))

    for first, second in joins:
        use(first, f"connection {first} to {second}", f"pin {second}")
        use(second, f"connection {first} to {second}", f"pin {first}")
    for name, pin in ports:
        use(pin, f"port {name} at {pin}", f"port {name}")
    for pin in open_pins:
        use(pin, f"open pin {pin}", "nothing, on purpose")
    flaws += [
        f"pin {who[0][0]} is connected twice: to {' and to '.join(user for _, user in who)}"
        for who in users.values()
        if len(who) > 1
    ]
    for instance in dict.fromkeys(instances):
        pins = sorted(set(terminals[instance].values()))
        if missing := [terminal for terminal in pins if (instance, terminal) not in users]:
            names = _spoken(instance, users, names_of[instance])
            flaws += [f"pin {instance},{names[k]} is connected to nothing" for k in missing]
    return flaws + _parts(instances, joins)


def find_port_flaws(
    ports: Sequence[Pair], tx: Sequence[str] | None, rx: Sequence[str] | None
) -> list[str]:
    """List what is wrong with a choice of ports that send and that receive."""
    if tx is None and rx is None:
        return []
    if tx is None or rx is None:
        return ["tx and rx come together"]
    names = [name for name, _ in ports]
    flaws = []
    if len(tx) != len(rx) or not tx:
        flaws.append(f"{len(tx)} ports send, {len(rx)} receive")
    flaws += [f"tx, rx: there is no port {name}" for name in (*tx, *rx) if name not in names]
    flaws += [f"tx, rx: port {name} is there twice" for name in _repeated([*tx, *rx])]
    return flaws + [
        f"port {name} neither sends nor receives" for name in names if name not in (*tx, *rx)
    ]


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _spoken(
    instance: str,
    users: Mapping[tuple[str, int], list[Pair]],
    conventions: Mapping[str, Sequence[str]],
) -> Sequence[str]:
    """Find the convention that a netlist uses for a cell, or for any cell."""
    mine = [pin for (name, _), who in users.items() if name == instance for pin, _ in who]
    pins = mine or [pin for who in users.values() for pin, _ in who]
    used = {split_pin(pin)[1] for pin in pins}
    return max(conventions.values(), key=lambda names: len(used & set(names)))


def _parts(instances: Sequence[str], joins: Sequence[Pair]) -> list[str]:
    """Tell which cells are not connected to the first one, part by part."""
    near: dict[str, set[str]] = {name: set() for name in instances}
    for pair in joins:
        first, second = (split_pin(pin)[0] for pin in pair)
        if first in near and second in near:
            near[first].add(second)
            near[second].add(first)
    parts, left = [], dict.fromkeys(instances)
    place = {name: k for k, name in enumerate(near)}
    while left:
        waiting, part = [next(iter(left))], set[str]()
        while waiting:
            name = waiting.pop()
            if name in left:
                del left[name]
                part.add(name)
                waiting += near[name]
        parts.append(sorted(part, key=place.__getitem__))
    if len(parts) < 2:
        return []
    told = [
        ", ".join(part[:_MOST_NAMES]) + (" and more" if len(part) > _MOST_NAMES else "")
        for part in parts
    ]
    return [f"{len(parts)} parts are not connected: {' | '.join(told)}"]
