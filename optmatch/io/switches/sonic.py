"""SONiC for optical circuit switches: configuration, patches, commands, and measured losses.

The names are those of the design document of SONiC (``doc/ocs/ocs_hld.md``, revision 0.5) and of
its developer guide (revision 0.2). They differ in one field: the state of a port is called
``state`` in the first and ``config_status`` on the virtual switch; both are read.

SONiC keeps in STATE_DB what the factory measured: the loss of every possible circuit, at some
optical frequencies and temperatures, and how accurate that is. The key of a row is
``OCS_FACTORY_INSERTION_LOSS|1A-2B|229.100|25.00``: circuit, frequency in THz, temperature in
degrees Celsius.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.io.fields import check_object
from optmatch.io.matrices import read_matrix
from optmatch.io.switches.circuits import (
    SIDE_NAME,
    CrossConnect,
    Difference,
    PortTable,
    check_sides,
    circuit_named,
    number_ports,
    sort_circuits,
)
from optmatch.io.text import layout, parse_json, pointer, read_bytes, refused_at
from optmatch.model import FormatError, InputError, check_size, naming, number
from optmatch.model.files import path_name
from optmatch.problems import Reroute

PORT_TABLE = "OCS_PORT"
CIRCUIT_TABLE = "OCS_CROSS_CONNECT"

_PORT_STATE_FIELDS = ("state", "config_status")
"""The two spellings of a port's configured state."""

NORMAL = "normal"
BLOCKED = "force_blocked"
"""The configured state of a port that carries no light."""

_MOST_LETTERS_OF_A_COMMAND = 4000
"""Terminals take lines of up to 4,096 bytes."""


class SonicConfig(NamedTuple):
    """The part of a configuration that is about circuits."""

    circuits: tuple[CrossConnect, ...]
    state_of_side: Mapping[str, str]
    """``normal`` or ``force_blocked``, by the name of a side."""


def command_lines(difference: Difference, blocked_sides: Iterable[str] = ()) -> list[str]:
    """Return a difference as commands of the switch's own command line, removals first.

    Additions are ``safe``: the switch refuses one whose side is in use by a circuit that stays.
    Before them sides of failed ports are blocked. Each line fits a terminal.

    Examples
    --------
    >>> pairs = (CrossConnect("1A", "12B"), CrossConnect("2A", "11B"))
    >>> command_lines(Difference((), pairs))
    ['config ocs cross-connect add 1A-12B,2A-11B safe']
    """
    command = "config ocs cross-connect"
    removals = [f"{command} delete {names}" for names in _lines_of_names(difference.removals)]
    additions = [f"{command} add {names} safe" for names in _lines_of_names(difference.additions)]
    blocks = [f"config ocs port state {side} {BLOCKED}" for side in blocked_sides]
    return removals + blocks + additions


def _lines_of_names(circuits: Sequence[CrossConnect]) -> list[str]:
    """Write the names of circuits with commas between them, in as few lines as fit a terminal."""
    lines: list[str] = []
    for circuit in circuits:
        if lines and len(lines[-1]) + 1 + len(circuit.name) <= _MOST_LETTERS_OF_A_COMMAND:
            lines[-1] += f",{circuit.name}"
        else:
            lines.append(circuit.name)
    return lines


def write_config(
    circuits: Iterable[CrossConnect], ports: PortTable, dead_ports: Collection[int] = ()
) -> str:
    """Return the text of a ``config_db.json`` with these circuits; dead ports are blocked.

    ``OCS_PORT`` has a row for each side, ``OCS_CROSS_CONNECT`` one for each circuit, such as
    ``"1A-2B": {"a_side": "1A", "b_side": "2B"}``.
    """
    rows = {circuit.name: circuit._asdict() for circuit in circuits}
    return layout({PORT_TABLE: _list_ports(ports, dead_ports), CIRCUIT_TABLE: rows}) + "\n"


def _list_ports(ports: PortTable, dead_ports: Collection[int]) -> dict[str, dict[str, str]]:
    """Return the rows of ``OCS_PORT`` by side; dead ports are blocked."""
    listed_ports = {}
    for port, sides in enumerate(ports.sides):
        state = BLOCKED if port in dead_ports else NORMAL
        for side in sides.in_use:
            listed_ports[side] = {"label": sides.label, "state": state}
    return listed_ports


def write_patch(difference: Difference, ports: PortTable, dead_ports: Collection[int] = ()) -> str:
    """Return the text of a JSON patch (RFC 6902): all removals, then all additions.

    A patch is applied in order, so sides are free before they are used again. Between both dead
    ports are blocked: an addition replaces the row of a side that is there already.
    """
    removals: list[Any] = [
        {"op": "remove", "path": pointer("", CIRCUIT_TABLE, circuit.name)}
        for circuit in difference.removals
    ]
    blocks = [
        {"op": "add", "path": pointer("", PORT_TABLE, side), "value": row}
        for side, row in _list_ports(ports, dead_ports).items()
        if row["state"] == BLOCKED
    ]
    additions = [
        {
            "op": "add",
            "path": pointer("", CIRCUIT_TABLE, circuit.name),
            "value": circuit._asdict(),
        }
        for circuit in difference.additions
    ]
    return layout(removals + blocks + additions) + "\n"


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
    with refused_at(where):
        circuit = circuit_named(key)
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
    return NORMAL


def read_running_state(
    path: str | os.PathLike[str],
    ports: PortTable | None = None,
    switch: IdealSwitch | None = None,
) -> Reroute:
    """Read which circuits a switch holds from its configuration, as the state of a rerouting.

    The configuration is the ``config_db.json`` of a SONiC switch. Ports that no circuit uses are
    spares, and ports that it blocks count as failed. Circuits of other ports than those of `ports`
    are left out; None takes all ports, port p at the sides ``(p + 1)A`` and ``(p + 1)B``. The
    `switch` may state losses; None is an ideal one of that many ports.
    """
    config = read_config(path)
    with naming(path_name(path)):
        if ports is None:
            sides = [side for circuit in config.circuits for side in circuit]
            ports = number_ports([*sides, *config.state_of_side], PORT_TABLE)
        if switch is None:
            switch = IdealSwitch(ports.n_ports)
        if switch.n_ports != ports.n_ports:
            raise InputError(f"{ports.n_ports} ports, but the switch has {switch.n_ports}")
        # A circuit of ours has both sides on our ports, one of others none.
        circuits = []
        for circuit in config.circuits:
            n_ours = sum(side in ports.port_of_side for side in circuit)
            if n_ours == 1:
                raise InputError(f"circuit {circuit.name}: only one of its sides is of our ports")
            if n_ours == 2:
                circuits.append([ports.port_of_side[side] for side in circuit])

        # What is neither used nor blocked can take over.
        used = {port for circuit in circuits for port in circuit}
        blocked = {
            ports.port_of_side[side]
            for side, state in config.state_of_side.items()
            if state == BLOCKED and side in ports.port_of_side
        }
        spares = [port for port in range(ports.n_ports) if port not in used | blocked]
        return Reroute(
            switch,
            np.array(circuits, dtype=np.int32).reshape(-1, 2),
            spares=tuple(spares),
            failed_ports=tuple(sorted(blocked)),
        )


LOSS_TABLE = "OCS_FACTORY_INSERTION_LOSS"

LossRows = Mapping[str, Mapping[str, Any]]
"""The rows of the table: their fields, by the key without the name of the table."""


class Conditions(NamedTuple):
    """At which frequency and temperature losses are wanted, and whether with their accuracy."""

    frequency_thz: float | None = None
    """The optical frequency; None for the worst of all that were measured."""
    temperature_c: float | None = None
    """The temperature; None for the worst of all that were measured."""
    add_accuracy: bool = True
    """Whether the stated accuracy is added, so that no loss is larger than it is said to be."""


def read_losses(
    path: str | os.PathLike[str],
    ports: PortTable | None = None,
    conditions: Conditions | None = None,
) -> NDArray[np.float64]:
    """Read the loss of every circuit of a switch from a file.

    Parameters
    ----------
    path
        A ``.json`` file with the table of SONiC, ``{"OCS_FACTORY_INSERTION_LOSS": {...}}``, or as
        a dump of the database with keys ``OCS_FACTORY_INSERTION_LOSS|...``; or a matrix in any
        format that demands are read from, CSV among them, in dB.
    ports
        The sides of our ports; None: port p is at the sides ``(p + 1)A`` and ``(p + 1)B``.
    conditions
        Of a table of SONiC: frequency and temperature, between which losses are interpolated.

    Returns
    -------
    NDArray
        ``loss_db[source, destination]``; float64, shape (ports, ports).

    Raises
    ------
    FormatError
        If a row of the table cannot be read; the message names it.
    InputError
        If a circuit of our ports was not measured, or the conditions lie outside of what was.
    """
    name = path_name(path)
    if not name.lower().endswith(".json"):
        matrix = np.asarray(read_matrix(path), dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise FormatError(f"shape {matrix.shape}: losses of all pairs are a square", path=name)
        return matrix
    tree = parse_json(read_bytes(path), name)

    # Three forms are read: an object with the table under its name, as in ``config_db.json``; an
    # object with a key ``OCS_FACTORY_INSERTION_LOSS|...`` for each row; a dump of the database,
    # in which the fields of a row are under ``value``, beside its type.
    entries = tree.items() if isinstance(tree, dict) else ()
    rows: dict[str, Any] = {}
    for key, entry in entries:
        if key.startswith(f"{LOSS_TABLE}|"):
            is_dumped = isinstance(entry, dict) and isinstance(entry.get("value"), dict)
            rows[key.partition("|")[2]] = entry["value"] if is_dumped else entry
    if isinstance(tree, dict) and isinstance(tree.get(LOSS_TABLE), dict):
        rows = tree[LOSS_TABLE]
    elif not rows:
        raise FormatError(f"an object with the table {LOSS_TABLE} is expected", path=name)
    with naming(name):
        return matrix_of_losses(rows, ports, conditions)


def matrix_of_losses(
    rows: LossRows, ports: PortTable | None = None, conditions: Conditions | None = None
) -> NDArray[np.float64]:
    """Make ``loss_db[source, destination]`` of the rows of SONiC's table of factory losses.

    Losses were measured at some frequencies and temperatures. Between these they are interpolated,
    and without a frequency or a temperature the largest loss is taken. Keys are such as
    ``1A-2B|193.1|25.00``: circuit, frequency in THz and temperature in degrees Celsius. Rows of
    ports that `ports` does not name are passed over; None names port p ``(p + 1)A`` and ``(p +
    1)B``. A circuit that was not measured at all points, and conditions outside of them, are an
    `InputError`.

    Examples
    --------
    >>> rows = {
    ...     f"{a}A-{b}B|{thz}|25.00": {"loss_dB": str(a + b + thz), "accuracy_dB": "0.5"}
    ...     for a in (1, 2) for b in (1, 2) for thz in (190, 196)
    ... }
    >>> matrix_of_losses(rows, conditions=Conditions(193.0, add_accuracy=False)).tolist()
    [[195.0, 196.0], [196.0, 197.0]]
    """
    conditions = conditions or Conditions()
    circuits = []
    measured_thz = []
    measured_c = []
    losses_db = []
    for key, row in rows.items():
        place = pointer("", LOSS_TABLE, key)
        parts = key.split("|")
        if len(parts) != 3:
            raise FormatError("a key CIRCUIT|THZ|CELSIUS is expected", where=place)
        if not isinstance(row, Mapping) or "loss_dB" not in row:
            raise FormatError("an object with loss_dB is expected", where=place)

        # Entries of the database are texts, also those that are numbers.
        try:
            circuits.append(circuit_named(parts[0]))
            measured_thz.append(number("frequency", float(parts[1])))
            measured_c.append(number("temperature", float(parts[2]), at_least=-300.0))
            measured_db = number("loss_dB", float(row["loss_dB"]))
            accuracy_db = number("accuracy_dB", float(row.get("accuracy_dB", 0.0)))
        except InputError as error:
            raise FormatError(error.message, where=place) from None
        except (TypeError, ValueError) as error:
            raise FormatError(f"a number is expected: {error}", where=place) from None
        losses_db.append(measured_db + accuracy_db * conditions.add_accuracy)
    if ports is None:
        ports = number_ports((side for circuit in circuits for side in circuit), LOSS_TABLE)

    # loss_db[frequency, temperature, source, destination], not a number where nothing was measured
    frequencies_thz, index_of_thz = np.unique(measured_thz, return_inverse=True)
    temperatures_c, index_of_c = np.unique(measured_c, return_inverse=True)
    shape = (len(frequencies_thz), len(temperatures_c), ports.n_ports, ports.n_ports)
    check_size("entries", math.prod(shape), LOSS_TABLE)
    loss_db = np.full(shape, np.nan)

    # Rows of ports that are none of ours are passed over.
    for k, circuit in enumerate(circuits):
        source = ports.port_of_side.get(circuit.a_side)
        destination = ports.port_of_side.get(circuit.b_side)
        if source is not None and destination is not None:
            loss_db[index_of_thz[k], index_of_c[k], source, destination] = losses_db[k]

    # Only the first circuit that lacks a measurement is named.
    for source, destination in np.argwhere(np.isnan(loss_db).any(axis=(0, 1)))[:1].tolist():
        circuit = CrossConnect(ports.sides[source].a_side, ports.sides[destination].b_side)
        raise InputError(
            f"{LOSS_TABLE}: the loss of {circuit.name} was not measured at all frequencies and"
            " temperatures",
            where=LOSS_TABLE,
        )
    # Each call interpolates along the first axis and removes it.
    loss_db = _interpolate(loss_db, frequencies_thz, conditions.frequency_thz, "frequency_thz")
    return _interpolate(loss_db, temperatures_c, conditions.temperature_c, "temperature_c")


def _interpolate(
    loss_db: NDArray[np.float64],
    measured_at: NDArray[np.float64],
    value: float | None,
    name: str,
) -> NDArray[np.float64]:
    """Interpolate losses in dB linearly along their first axis; None takes the worst of all.

    The points `measured_at` ascend, and losses are not extrapolated beyond them; `name` is what
    messages call the axis.
    """
    if value is None:
        return np.asarray(loss_db.max(axis=0))
    first = measured_at[0]
    last = measured_at[-1]
    if not first <= value <= last:
        raise InputError(
            f"{name} = {value:g}: losses were measured from {first:g} to {last:g}", where=name
        )
    # The share of each point: with points 190, 196 and 200, a value of 193 has 0.5, 0.5 and 0.
    shares = [np.interp(value, measured_at, point) for point in np.eye(len(measured_at))]
    return np.tensordot(shares, loss_db, axes=1)
