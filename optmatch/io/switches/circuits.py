"""Circuits of an optical circuit switch by the names of their ports, and what changes of them.

A port of such a switch is *simplex*: an A side receives light, a B side sends it out. A circuit
joins one A side to one B side, and each side takes part in one circuit at most. A transceiver that
sends and receives sits at the A and the B side of one number, so two of them that talk to each
other need two circuits, ``1A-2B`` and ``2A-1B``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import lru_cache
from typing import NamedTuple

from optmatch.model import FormatError, InputError
from optmatch.model.numbers import list_entries

SIDE_NAME = re.compile(r"(?:(?P<module>\d{1,6})-)?(?P<number>\d{1,6})(?P<side>[AB])", re.ASCII)
"""A side of a port: ``1A``, or with the number of a module ``3-20B``."""

_CIRCUIT_NAME = re.compile(r"(?P<a_side>(?:\d{1,6}-)?\d{1,6}A)-(?P<b_side>(?:\d{1,6}-)?\d{1,6}B)")

_BEHIND_ALL = (10**9, 0)
"""A module and a number behind those of all sides, whose numbers have six digits at most."""


class CrossConnect(NamedTuple):
    """One circuit of a switch, by the names of its two sides.

    Examples
    --------
    >>> CrossConnect("1A", "2B").name
    '1A-2B'
    """

    a_side: str
    """Where light enters the switch."""
    b_side: str
    """Where light leaves it."""

    @property
    def name(self) -> str:
        """The key of the circuit in the tables of a switch."""
        return f"{self.a_side}-{self.b_side}"


class Difference(NamedTuple):
    """What a switch has to change to get from one set of circuits to another."""

    removals: tuple[CrossConnect, ...]
    additions: tuple[CrossConnect, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.removals and not self.additions

    @property
    def moves_a_side(self) -> bool:
        """Whether a side of a removed circuit gets another circuit.

        The removal then has to be carried out before the addition.
        """
        freed = {side for circuit in self.removals for side in circuit}
        return any(side in freed for circuit in self.additions for side in circuit)


def circuit_named(name: str) -> CrossConnect:
    """Return the circuit of a key such as ``1A-2B``, or ``1-1A-3-20B`` with numbers of modules.

    Examples
    --------
    >>> circuit_named("1-1A-3-20B")
    CrossConnect(a_side='1-1A', b_side='3-20B')
    """
    match = _CIRCUIT_NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"{name[:80]!r}: an A side and a B side name a circuit, as in 1A-2B or 1-1A-2-7B"
        )
    return CrossConnect(match["a_side"], match["b_side"])


def list_circuits(name: str, circuits: object) -> tuple[CrossConnect, ...]:
    """Check a collection of circuits that a caller has given, and return them as a tuple.

    `name` is what messages call it.
    """
    listed = tuple(list_entries(name, circuits, "circuits"))
    for number, circuit in enumerate(listed):
        is_circuit = isinstance(circuit, CrossConnect)
        if not is_circuit or not all(isinstance(side, str) for side in circuit):
            place = f"{name}[{number}]"
            raise InputError(f"{place} = {circuit!r:.60}: a CrossConnect is expected", where=place)
    return listed


def check_difference(difference: object) -> Difference:
    """Check a change of circuits that a caller has given, and return it."""
    if not isinstance(difference, Difference):
        message = f"difference = {difference!r:.60}: a Difference is expected"
        raise InputError(message, where="difference")
    list_circuits("difference.removals", difference.removals)
    list_circuits("difference.additions", difference.additions)
    return difference


@lru_cache(maxsize=16_384)
def _side_order(side: str) -> tuple[int, int, str]:
    """Return a key that sorts sides by module, number, and A before B; other names come last."""
    match = SIDE_NAME.fullmatch(side)
    if match is None:
        return (*_BEHIND_ALL, side)
    return (int(match["module"] or 0), int(match["number"]), match["side"])


def sort_circuits(circuits: Iterable[CrossConnect]) -> tuple[CrossConnect, ...]:
    """Return circuits by A side, then B side, in the order of numbers: ``2A`` before ``10A``."""
    return tuple(
        sorted(
            circuits,
            key=lambda circuit: (_side_order(circuit.a_side), _side_order(circuit.b_side)),
        )
    )


def difference_between(
    before: Iterable[CrossConnect], after: Iterable[CrossConnect]
) -> Difference:
    """Return the circuits to remove and to add; those in both sets stay as they are.

    Parameters
    ----------
    before, after
        Two sets of circuits, each of them `CrossConnect`.

    Returns
    -------
    Difference
        ``removals`` and ``additions``, both sorted by the numbers of sides.

    Raises
    ------
    InputError
        If something else than circuits is given.

    Examples
    --------
    >>> old = [CrossConnect("1A", "2B"), CrossConnect("2A", "1B")]
    >>> new = [CrossConnect("1A", "3B"), CrossConnect("2A", "1B")]
    >>> change = difference_between(old, new)
    >>> change.removals[0].name, change.additions[0].name
    ('1A-2B', '1A-3B')
    >>> change.moves_a_side
    True
    """
    circuits_before = frozenset(list_circuits("before", before))
    circuits_after = frozenset(list_circuits("after", after))
    return Difference(
        removals=sort_circuits(circuits_before - circuits_after),
        additions=sort_circuits(circuits_after - circuits_before),
    )


def with_a_side_of(circuits: Iterable[CrossConnect], sides: Set[str]) -> frozenset[CrossConnect]:
    """Return the circuits that have one of some sides at either end."""
    return frozenset(circuit for circuit in circuits if not sides.isdisjoint(circuit))


def check_sides(circuits: Iterable[CrossConnect], where: str = "") -> None:
    """Refuse circuits that share a side; one that is listed twice counts once."""
    circuit_of_side: dict[str, CrossConnect] = {}
    for circuit in circuits:
        for side in circuit:
            other = circuit_of_side.setdefault(side, circuit)
            if other != circuit:
                raise FormatError(
                    f"side {side} is in two circuits, {other.name} and {circuit.name}", where=where
                )
