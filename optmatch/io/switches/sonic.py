"""SONiC for optical circuit switches: configuration, JSON patches, commands; written and read.

The names are those of the design document of SONiC (``doc/ocs/ocs_hld.md``, revision 0.5) and of
its developer guide (revision 0.2). They differ in one field: the state of a port is called
``state`` in the first and ``config_status`` on the virtual switch; both are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_object
from optmatch.io.switches.circuits import (
    SIDE_NAME,
    CrossConnect,
    Difference,
    check_sides,
    circuit_named,
    sort_circuits,
)
from optmatch.io.switches.ports import PortTable
from optmatch.io.text import layout, parse_json, pointer
from optmatch.model import FormatError, InputError, naming
from optmatch.model.files import path_name

PORT_TABLE = "OCS_PORT"
CIRCUIT_TABLE = "OCS_CROSS_CONNECT"

_PORT_STATE_FIELDS = ("state", "config_status")
"""The two spellings of a port's configured state."""

_MOST_LETTERS_OF_A_COMMAND = 4000
"""Terminals take lines of up to 4,096 bytes."""


class SonicConfig(NamedTuple):
    """The part of a configuration that is about circuits."""

    circuits: tuple[CrossConnect, ...]
    state_of_side: Mapping[str, str]
    """``normal`` or ``force_blocked``, by the name of a side."""


def command_lines(difference: Difference) -> list[str]:
    """Return a difference as commands of the switch's own command line, removals first.

    Runs of circuits whose A sides and B sides both count upwards by one become ranges. Additions
    are ``safe``: the switch refuses one whose side is in use by a circuit that stays. Each line
    fits a terminal.

    Examples
    --------
    >>> pairs = tuple(CrossConnect(f"{k}A", f"{k + 10}B") for k in range(1, 5))
    >>> command_lines(Difference((), pairs))
    ['config ocs cross-connect add 1A..4A-11B..14B safe']
    """
    lines = []
    for specification in _join_up_to(_ranges(difference.removals)):
        lines.append(f"config ocs cross-connect delete {specification}")
    for specification in _join_up_to(_ranges(difference.additions)):
        lines.append(f"config ocs cross-connect add {specification} safe")
    return lines


def _ranges(circuits: Sequence[CrossConnect]) -> list[str]:
    """Write circuits, by A side, as names, and runs of them as ranges.

    Both sides of a run count upwards by one: ``1A-11B``, ``2A-12B``, ``3A-13B`` become
    ``1A..3A-11B..13B``.
    """
    runs: list[list[CrossConnect]] = []
    for circuit in circuits:
        if runs and _continues(runs[-1][-1], circuit):
            runs[-1].append(circuit)
        else:
            runs.append([circuit])

    texts = []
    for run in runs:
        if len(run) == 1:
            texts.append(run[0].name)
        else:
            first = run[0]
            last = run[-1]
            texts.append(f"{first.a_side}..{last.a_side}-{first.b_side}..{last.b_side}")
    return texts


def _continues(before: CrossConnect, circuit: CrossConnect) -> bool:
    """Tell whether a circuit follows the one before, as ``2A-12B`` follows ``1A-11B``.

    Sides stay in the same modules.
    """
    for side_before, side in zip(before, circuit, strict=True):
        earlier = SIDE_NAME.fullmatch(side_before)
        later = SIDE_NAME.fullmatch(side)
        if earlier is None or later is None or earlier["module"] != later["module"]:
            return False
        if int(later["number"]) != int(earlier["number"]) + 1:
            return False
    return True


def _join_up_to(texts: Sequence[str]) -> list[str]:
    """Join texts by commas, in this order, into as few lines as fit a terminal."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + 1 + len(text) <= _MOST_LETTERS_OF_A_COMMAND:
            lines[-1] += f",{text}"
        else:
            lines.append(text)
    return lines


def write_config(circuits: Iterable[CrossConnect], ports: PortTable) -> str:
    """Return the text of a ``config_db.json`` with these circuits.

    ``OCS_PORT`` has a row for each side, ``OCS_CROSS_CONNECT`` one for each circuit, such as
    ``"1A-2B": {"a_side": "1A", "b_side": "2B"}``.
    """
    listed_ports = {}
    for port in ports.sides:
        for side in (port.a_side, port.b_side):
            listed_ports[side] = {"label": port.label, "state": "normal"}
    rows = {circuit.name: circuit._asdict() for circuit in circuits}
    return layout({PORT_TABLE: listed_ports, CIRCUIT_TABLE: rows}) + "\n"


def write_patch(difference: Difference) -> str:
    """Return the text of a JSON patch (RFC 6902): all removals, then all additions.

    A patch is applied in order, so sides are free before they are used again.
    """
    patch: list[dict[str, Any]] = []
    for circuit in difference.removals:
        patch.append({"op": "remove", "path": pointer("", CIRCUIT_TABLE, circuit.name)})
    for circuit in difference.additions:
        path = pointer("", CIRCUIT_TABLE, circuit.name)
        patch.append({"op": "add", "path": path, "value": circuit._asdict()})
    return layout(patch) + "\n"


def read_config(path: str | os.PathLike[str]) -> SonicConfig:
    """Read the circuits and the states of ports from a ``config_db.json``.

    Other tables are passed over: a whole configuration of a switch may be given.
    """
    name = path_name(path)
    tree = parse_json(read_bytes(path), name)
    with naming(name):
        if not isinstance(tree, dict) or not {PORT_TABLE, CIRCUIT_TABLE} & tree.keys():
            raise FormatError(
                f"a configuration of a switch with {CIRCUIT_TABLE} or {PORT_TABLE} is expected"
            )
        circuit_rows = tree.get(CIRCUIT_TABLE, {})
        port_rows = tree.get(PORT_TABLE, {})
        check_object(circuit_rows, pointer("", CIRCUIT_TABLE))
        check_object(port_rows, pointer("", PORT_TABLE))

        # A circuit has a row by its name, and a side of a port one by its own.
        circuits = sort_circuits(
            circuit_of_row(key, row, pointer("", CIRCUIT_TABLE, key))
            for key, row in circuit_rows.items()
        )
        check_sides(circuits, pointer("", CIRCUIT_TABLE))
        for side, row in port_rows.items():
            if not isinstance(row, dict) or SIDE_NAME.fullmatch(side) is None:
                where = pointer("", PORT_TABLE, side)
                raise FormatError("a side such as 1A with an object is expected", where=where)
        states = {side: state_of_port(row) for side, row in port_rows.items()}
        return SonicConfig(circuits, states)


def circuit_of_row(key: str, row: Any, where: str) -> CrossConnect:
    """Return the circuit of one entry of the table; its key and its fields have to agree.

    A row without fields, as the commands of some switches leave it, is read by its key, such as
    ``1A-2B``.
    """
    try:
        circuit = circuit_named(key)
    except InputError as error:
        raise FormatError(error.message, where=where) from None
    if not isinstance(row, Mapping):
        raise FormatError("an object with a_side and b_side is expected", where=where)
    for field, side in circuit._asdict().items():
        if row.get(field, side) != side:
            raise FormatError(
                f"{field} = {str(row[field])[:40]!r}: the key says {side}", where=where
            )
    return circuit


def state_of_port(row: Mapping[str, Any]) -> str:
    """Return the configured state of a port; ``normal`` if it says none.

    The fields ``state`` and ``config_status`` mean the same.
    """
    for field in _PORT_STATE_FIELDS:
        if field in row:
            return str(row[field])
    return "normal"
