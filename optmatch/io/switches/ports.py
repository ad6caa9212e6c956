"""Which side of which port of a switch each of our ports is: by default, or by a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from optmatch.io.contents import read_bytes
from optmatch.io.records import csv_records
from optmatch.io.switches.circuits import SIDE_NAME, CrossConnect, sort_circuits
from optmatch.model import FormatError, InputError, check_size, integer, naming
from optmatch.model.declarations import form_of
from optmatch.model.files import path_name
from optmatch.model.numbers import frozen

COLUMNS = ("switch", "port", "A", "B", "label")
"""Columns of a table of ports; ``switch`` and ``label`` may be absent."""


class PortSides(NamedTuple):
    """The two sides of one of our ports."""

    a_side: str
    """Where the light that the port sends enters the switch."""
    b_side: str
    """Where the light that the port receives leaves the switch."""
    label: str = ""


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
        return sort_circuits(
            CrossConnect(self.sides[source].a_side, self.sides[destination].b_side)
            for source, destination in enumerate(destinations)
            if destination >= 0
        )


def number_ports(sides: Iterable[str], where: str) -> PortTable:
    """Return the usual table with as many ports as the largest number among names of sides, as 3B.

    ``where`` is the table that names them, for messages. A side of a module (``1-3A``), whose
    number says nothing, or of another form is an `InputError`.
    """
    largest = 0
    for side in sides:
        match = SIDE_NAME.fullmatch(side)
        if match is None or match["module"] is not None:
            raise InputError(f"side {side}: ports of modules need a table of ports")
        largest = max(largest, int(match["number"]))
    check_size("ports", largest, where)
    return PortTable.numbered(largest)


def read_port_tables(
    path: str | os.PathLike[str], names: Sequence[str] = ()
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
        The names of our ports; a text that is one of them is no number.

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
        for place, _, row in csv_records(read_bytes(path), name, COLUMNS, needed=COLUMNS[1:4]):
            port_text = row.get("port", "")
            # Names go first. Digits of other scripts count as decimal in Python, and are refused.
            is_number = port_text.isascii() and port_text.isdecimal() and len(port_text) <= 6
            if not is_number and port_text not in names:
                raise FormatError(
                    f"port = {port_text[:40]!r}: the name of a port, or a number from 0 on, is"
                    " expected",
                    where=place,
                )
            rows = rows_of_switch.setdefault(row.get("switch", ""), {})
            port = names.index(port_text) if port_text in names else int(port_text)
            if port in rows:
                raise FormatError(f"port {port} is there twice", where=place)
            rows[port] = PortSides(row.get("A", ""), row.get("B", ""), row.get("label", ""))
        if not rows_of_switch:
            raise FormatError("a line of names and a line for each port are expected")

        # Ports of each switch are 0, 1, ... without a gap, in any order of lines.
        tables = {}
        for switch, rows in rows_of_switch.items():
            for port in range(len(rows)):
                if port not in rows:
                    of_switch = f" of switch {switch}" if switch else ""
                    raise FormatError(f"port {port}{of_switch} is missing")
            try:
                tables[switch] = PortTable([rows[port] for port in range(len(rows))])
            except InputError as error:
                raise FormatError(error.message, where=switch) from None
    return tables
