"""The paths of light through the parts of a netlist that neither split nor switch it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from optmatch.fabrics.netlists.components import PASSING, Part
from optmatch.fabrics.netlists.flaws import Pair, name_terminals, split_pin

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
