"""Circuits of an optical circuit switch by the names of its ports: by default, or by a table.

A port of such a switch is *simplex*: an A side receives light, a B side sends it out. A circuit
joins one A side to one B side, and each side takes part in one circuit at most. A transceiver that
sends and receives sits at the A and the B side of one number, so two of them that talk to each
other need two circuits, ``1A-2B`` and ``2A-1B``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from optmatch.io.fields import csv_records
from optmatch.io.text import read_bytes, refused_at
from optmatch.model import FormatError, InputError, check_size, integer, naming
from optmatch.model.declarations import form_of
from optmatch.model.files import path_name
from optmatch.model.numbers import frozen, list_entries

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
    """Circuits that are there and not wanted."""
    additions: tuple[CrossConnect, ...]
    """Circuits that are wanted and not there."""

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
    checked: Difference = form_of(Difference).check("difference", difference)
    list_circuits("difference.removals", checked.removals)
    list_circuits("difference.additions", checked.additions)
    return checked


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


COLUMNS = ("switch", "port", "A", "B", "label")
"""Columns of a table of ports; ``switch`` and ``label`` may be absent."""


class PortSides(NamedTuple):
    """The two sides of one of our ports; both are empty of a dead port that is at no side."""

    a_side: str
    """Where the light that the port sends enters the switch."""
    b_side: str
    """Where the light that the port receives leaves the switch."""
    label: str = ""

    @property
    def in_use(self) -> tuple[str, ...]:
        """The sides that the port is at."""
        return tuple(side for side in (self.a_side, self.b_side) if side)


class PortTable:
    """The sides of all ports of one switch.

    Parameters
    ----------
    sides
        ``sides[port]``: the sides of each of our ports. No side occurs twice.

    Raises
    ------
    InputError
        If a side has no proper name, is of the wrong kind, or occurs twice.

    Examples
    --------
    >>> table = PortTable.numbered(3)
    >>> table.sides[0]
    PortSides(a_side='1A', b_side='1B', label='')
    >>> [circuit.name for circuit in table.circuits_of([1, 0, -1])]
    ['1A-2B', '2A-1B']
    """

    def __init__(self, sides: Sequence[PortSides]) -> None:
        """Make a table of the names of our ports.

        Parameters
        ----------
        sides
            For each of our ports the names of its A side, where light enters the switch, and of
            its B side, where light leaves it, and a label; such as ``("1A", "1B", "gpu 0")``.

        Raises
        ------
        InputError
            If a name has another form, or belongs to two ports.
        """
        rows = form_of(Sequence[tuple[str, str, str]]).check("sides", sides)
        port_of_side: dict[str, int] = {}
        for port, (a_side, b_side, _label) in enumerate(rows):
            if not a_side and not b_side:
                continue  # a dead port that is at no side
            for side, kind in ((a_side, "A"), (b_side, "B")):
                match = SIDE_NAME.fullmatch(side)
                if match is None or match["side"] != kind:
                    example = f"{port + 1}{kind} or 1-{port + 1}{kind}"
                    raise InputError(
                        f"port {port}, {kind} = {side[:40]!r}: expected as in {example}"
                    )
                # The first port that names a side has it.
                other = port_of_side.setdefault(side, port)
                if other != port:
                    raise InputError(f"side {side} belongs to port {other} and to port {port}")
        self.sides: tuple[PortSides, ...] = tuple(
            PortSides(a_side, b_side, label) for a_side, b_side, label in rows
        )
        self.port_of_side: dict[str, int] = port_of_side

    @classmethod
    def numbered(cls, n_ports: int, labels: Sequence[str] = ()) -> PortTable:
        """Return the usual table: our port p is at sides ``(p + 1)A`` and ``(p + 1)B``.

        Parameters
        ----------
        n_ports
            The number of our ports.
        labels
            The label of each port; none: all are empty.

        Returns
        -------
        PortTable
            A table of `n_ports` ports.
        """
        n_ports = integer("n_ports", n_ports, at_least=0)
        labels = form_of(Sequence[str]).check("labels", labels)
        if labels and len(labels) != n_ports:
            raise InputError(f"{len(labels)} labels of {n_ports} ports", where="labels")
        return cls(
            [
                PortSides(f"{port + 1}A", f"{port + 1}B", labels[port] if labels else "")
                for port in range(n_ports)
            ]
        )

    @property
    def n_ports(self) -> int:
        """The number of our ports."""
        return len(self.sides)

    def names_by_label(self) -> tuple[str, ...]:
        """Return a name for each port: its label, or its number where it has none.

        Returns
        -------
        tuple of str
            Empty if no port has a label, two have the same, or one is a number, which would be
            taken for that of a port.

        Examples
        --------
        >>> PortTable([("1A", "1B", "host a"), ("2A", "2B", "")]).names_by_label()
        ('host a', '1')
        """
        labels = [row.label for row in self.sides if row.label]
        if not labels or len(set(labels)) < len(labels) or any(map(str.isdecimal, labels)):
            return ()
        return tuple(row.label or str(port) for port, row in enumerate(self.sides))

    def circuits_of(self, matching: ArrayLike) -> tuple[CrossConnect, ...]:
        """Return the circuits of a matching.

        Parameters
        ----------
        matching
            ``matching[source] = destination``, -1 where idle; shape (ports,). A bidirectional
            circuit i-j stands in it twice and becomes two circuits.

        Returns
        -------
        tuple of CrossConnect
            The circuits by the names of their sides, sorted by the numbers of sides.

        Raises
        ------
        InputError
            If it is no matching of so many ports.
        """
        destinations = frozen("matching", matching, 1, np.int64).tolist()
        if len(destinations) > self.n_ports or max(destinations, default=-1) >= self.n_ports:
            raise InputError(f"matching: ports are 0 .. {self.n_ports - 1}", where="matching")
        circuits = sort_circuits(
            CrossConnect(self.sides[source].a_side, self.sides[destination].b_side)
            for source, destination in enumerate(destinations)
            if destination >= 0
        )
        if any("" in circuit for circuit in circuits):
            raise InputError("matching: it has a port that is at no side", where="matching")
        return circuits


def number_ports(sides: Iterable[str], where: str) -> PortTable:
    """Return the usual table with as many ports as the largest number among names of sides, as 3B.

    ``where`` is the table that names them, for messages. A side of a module (``1-3A``), whose
    number says nothing, or of another form is an `InputError`.
    """
    largest = 0
    for side in sides:
        match = SIDE_NAME.fullmatch(side)
        if match is None or match["module"] is not None:
            raise InputError(f"side {side}: ports of modules need a table of ports (--ports FILE)")
        largest = max(largest, int(match["number"]))
    check_size("ports", largest, where)
    return PortTable.numbered(largest)


def names_in_table(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return what a table of sides calls its ports, line by line; empty if they are numbers."""
    name = path_name(path)
    with naming(name):
        records = csv_records(read_bytes(path), name, COLUMNS, needed=COLUMNS[1:4])
    names = tuple(dict.fromkeys(row["port"] for _, _, row in records if "port" in row))
    return () if all(map(str.isdecimal, names)) else names


def read_port_tables(
    path: str | os.PathLike[str], names: Sequence[str] = (), *, dead_ports: Sequence[int] = ()
) -> dict[str, PortTable]:
    """Read the sides of our ports from a CSV file.

    A port is an input, its A side, and an output, its B side, as the maker of the switch names
    them; ours are numbered from 0. A file may be for several switches.

    Parameters
    ----------
    path
        A line of names, ``port,A,B`` and perhaps ``switch`` and ``label``; then a line for each
        port: its name or its number, its A side (``1A``, ``1-1A``), its B side.
    names
        The names of our ports. Names may be digits: a file of which each line begins with a name
        has names, and in any other one digits are the number of a port.
    dead_ports
        Numbers of ports that are out of use, which need no line.

    Returns
    -------
    dict
        A table for each switch by its name; under ``""`` the one of a file without a column
        ``switch``.

    Raises
    ------
    FormatError
        Naming the line, if a column is unknown or absent, a port is missing or there twice, or a
        side is misspelt or there twice.
    """
    name = path_name(path)
    rows_of_switch: dict[str, dict[int, PortSides]] = {}
    with naming(name):
        records = csv_records(read_bytes(path), name, COLUMNS, needed=COLUMNS[1:4])
        has_names = all(row.get("port", "") in names for _, _, row in records)
        for place, _, row in records:
            port_text = row.get("port", "")
            # Digits of other scripts count as decimal in Python, and are refused.
            is_number = port_text.isascii() and port_text.isdecimal() and len(port_text) <= 6
            if not is_number and port_text not in names:
                listed = f"a name among {', '.join(names[:10])}, or " if names else ""
                raise FormatError(
                    f"port = {port_text[:40]!r}: {listed}a number from 0 on is expected",
                    where=place,
                )
            if "A" not in row or "B" not in row:
                raise FormatError(f"port {port_text}: A and B are expected", where=place)

            # Each port stands once for each switch.
            rows = rows_of_switch.setdefault(row.get("switch", ""), {})
            is_name = has_names or not is_number
            port = names.index(port_text) if is_name else int(port_text)
            if port in rows:
                raise FormatError(f"port {port_text} is there twice", where=place)
            rows[port] = PortSides(row["A"], row["B"], row.get("label", ""))
        if not rows_of_switch:
            raise FormatError("a line of names and a line for each port are expected")

        # Ports of each switch are 0, 1, ... without a gap but of dead ones, in any order of lines.
        tables = {}
        for switch, rows in rows_of_switch.items():
            rows = {**dict.fromkeys(dead_ports, PortSides("", "")), **rows}
            for port in range(len(rows)):
                if port not in rows:
                    missing = names[port] if port < len(names) else port
                    of_switch = f" of switch {switch}" if switch else ""
                    raise FormatError(f"port {missing}{of_switch} is missing")
            with refused_at(switch):
                tables[switch] = PortTable([rows[port] for port in range(len(rows))])
    return tables
