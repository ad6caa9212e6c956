"""The flaws that a netlist can have: every one, by the names that its author uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
        """Make an error of all flaws of a netlist; its message has as many of them as fit.

        Parameters
        ----------
        flaws
            The flaws, a sentence each; all of them are kept in `flaws`.
        """
        self.flaws: tuple[str, ...] = tuple(flaws)
        count = "1 flaw" if len(flaws) == 1 else f"{len(flaws)} flaws"
        # At least the first flaw is shown, however long it is.
        lengths = accumulate(map(len, flaws))
        n_shown = max(1, sum(length <= _MOST_LETTERS for length in lengths))
        message = f"{count}: {'; '.join(flaws[:n_shown])}"
        if n_shown < len(flaws):
            message += f"; and {len(flaws) - n_shown} more"
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.flaws,), {"where": self.where, "path": self.path}


def split_pin(pin: str) -> Pair:
    """Split a pin in instance and name, at the last comma."""
    instance, _, name = pin.rpartition(",")
    return instance.strip(), name.strip()


def name_terminals(conventions: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the terminal of a part, 0 to 3, for every name that its pins may have."""
    return {
        name: terminal
        for names in conventions.values()
        for terminal, name in enumerate(names)
        if name
    }


def list_names(names: Sequence[str]) -> str:
    """Return names for a message, which has the first ones of many."""
    return ", ".join(names[:_MOST_NAMES]) + (" and more" if len(names) > _MOST_NAMES else "")


def find_flaws(
    instances: Sequence[str],
    joins: Sequence[Pair],
    ports: Sequence[Pair],
    open_pins: Sequence[str],
    names_of: Mapping[str, Mapping[str, Sequence[str]]],
) -> list[str]:
    """List everything that is wrong with how the parts of a netlist are joined.

    `joins` are pairs of pins such as ``"s1,b1"``, `ports` pairs of a name and a pin, and
    `open_pins` are pins that lead nowhere on purpose. ``names_of[instance]`` has the names that
    its pins may have, by convention. Flaws are instances or ports that are there twice, or none at
    all; pins of instances that do not exist, and pins that a part does not have; pins that are
    used twice, or not at all; and parts that are not connected to all others.
    """
    # Names that are there twice, and nothing where something is needed.
    flaws = [f"instance {name} is there twice" for name in _find_repeated(instances)]
    flaws += [] if instances else ["there are no instances"]
    flaws += [
        f"port {name} is there twice" for name in _find_repeated([name for name, _ in ports])
    ]
    flaws += [] if ports else ["there are no ports"]

    # All uses of pins: the pin, where the netlist says so, and what the pin is connected to.
    uses = []
    for first, second in joins:
        uses.append((first, f"connection {first} to {second}", f"pin {second}"))
        uses.append((second, f"connection {first} to {second}", f"pin {first}"))
    uses += [(pin, f"port {name} at {pin}", f"port {name}") for name, pin in ports]
    uses += [(pin, f"open pin {pin}", "nothing, on purpose") for pin in open_pins]

    # users[instance, terminal]: each pin that was named, and what it is connected to. Thousands of
    # instances share the same conventions, which are turned around once.
    shared = {id(names): name_terminals(names) for names in names_of.values()}
    users: dict[tuple[str, int], list[Pair]] = {}
    for pin, place, user in uses:
        instance, name = split_pin(pin)
        if instance not in names_of:
            flaws.append(f"{place}: there is no instance {instance or repr(pin)}")
            continue
        terminal = shared[id(names_of[instance])].get(name)
        if terminal is None:
            flaws.append(f"{place}: a cell has no pin {name}")
        else:
            users.setdefault((instance, terminal), []).append((pin, user))

    # A pin joins two things: itself, and one other.
    for named in users.values():
        if len(named) > 1:
            listed = " and to ".join(user for _, user in named)
            flaws.append(f"pin {named[0][0]} is connected twice: to {listed}")

    # Pins without a user are named by the convention of which the netlist uses the most names, for
    # this part or for all.
    for instance in dict.fromkeys(instances):
        terminals = sorted(set(shared[id(names_of[instance])].values()))
        unused = [k for k in terminals if (instance, k) not in users]
        if unused:
            of_part = [users.get((instance, k), []) for k in terminals]
            pins = [pin for named in of_part for pin, _ in named]
            pins = pins or [pin for named in users.values() for pin, _ in named]
            used = {split_pin(pin)[1] for pin in pins}
            conventions = names_of[instance].values()
            names = max(conventions, key=lambda names: len(used & set(names)))
            flaws += [f"pin {instance},{names[k]} is connected to nothing" for k in unused]

    # All instances are connected with each other.
    groups = group_connected(instances, joins)
    if len(groups) > 1:
        listed = " | ".join(list_names(group) for group in groups)
        flaws.append(f"{len(groups)} parts are not connected: {listed}")
    return flaws


def find_port_flaws(
    ports: Sequence[Pair], tx: Sequence[str] | None, rx: Sequence[str] | None
) -> list[str]:
    """List what is wrong with a choice of ports that send and that receive.

    `ports` are pairs of a name and a pin, `tx` and `rx` the names of ports that send and receive,
    None for both where nobody says. A flaw is a sentence.
    """
    if tx is None and rx is None:
        return []
    if tx is None or rx is None:
        return ["tx and rx come together"]

    # Each port either sends or receives, and as many do either.
    names = [name for name, _ in ports]
    chosen = [*tx, *rx]
    flaws = []
    if len(tx) != len(rx) or not tx:
        flaws.append(f"{len(tx)} ports send, {len(rx)} receive")
    flaws += [f"tx, rx: there is no port {name}" for name in chosen if name not in names]
    flaws += [f"tx, rx: port {name} is there twice" for name in _find_repeated(chosen)]
    flaws += [f"port {name} neither sends nor receives" for name in names if name not in chosen]
    return flaws


def _find_repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def group_connected(instances: Sequence[str], joins: Iterable[Pair]) -> list[list[str]]:
    """Group the parts that joins connect, directly or through others (connected components).

    `joins` are pairs of pins such as ``"s1,b1"``, where s1 is the part. Groups are lists of parts
    in the order of their first ones. Pins of parts that are not listed are left out.
    """
    # Each part is a group at first; a join puts the smaller group of its ends into the larger one.
    group_of = {name: [name] for name in instances}
    for first_pin, second_pin in joins:
        first = group_of.get(split_pin(first_pin)[0])
        second = group_of.get(split_pin(second_pin)[0])
        if first is not None and second is not None and first is not second:
            smaller, larger = sorted((first, second), key=len)
            larger += smaller
            group_of.update(dict.fromkeys(smaller, larger))

    # Parts of a group stand in the order of the netlist.
    place = {name: number for number, name in enumerate(group_of)}
    groups = {id(group): group for group in group_of.values()}
    return [sorted(group, key=place.__getitem__) for group in groups.values()]
