"""Measured insertion losses of a switch: SONiC's table, or a matrix in a file.

SONiC keeps in STATE_DB what the factory measured: the loss of every possible circuit, at some
optical frequencies and temperatures, and how accurate that is. The key of a row is
``OCS_FACTORY_INSERTION_LOSS|1A-2B|229.100|25.00``: circuit, frequency in THz, temperature in
degrees Celsius (``doc/ocs/ocs_hld.md`` of SONiC, revision 0.5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import read_bytes
from optmatch.io.matrices.reader import read_matrix
from optmatch.io.switches.circuits import CrossConnect, circuit_named
from optmatch.io.switches.ports import PortTable, number_ports
from optmatch.io.text import parse_json, pointer
from optmatch.model import FormatError, InputError, check_size, naming, number
from optmatch.model.files import path_name

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


class _Measured(NamedTuple):
    """One row of the table."""

    circuit: CrossConnect
    frequency_thz: float
    temperature_c: float
    loss_db: float


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
    with naming(name):
        return matrix_of_losses(_rows_in(tree), ports, conditions)


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
    measured = [_read_row(key, row, conditions) for key, row in rows.items()]
    if ports is None:
        ports = number_ports((side for row in measured for side in row.circuit), LOSS_TABLE)

    # loss_db[frequency, temperature, source, destination], not a number where nothing was measured
    frequencies_thz = sorted({row.frequency_thz for row in measured})
    temperatures_c = sorted({row.temperature_c for row in measured})
    n_points = len(frequencies_thz) * len(temperatures_c)
    check_size("entries", n_points * ports.n_ports**2, LOSS_TABLE)
    loss_db = np.full(
        (len(frequencies_thz), len(temperatures_c), ports.n_ports, ports.n_ports), np.nan
    )
    index_of_thz = {thz: index for index, thz in enumerate(frequencies_thz)}
    index_of_c = {celsius: index for index, celsius in enumerate(temperatures_c)}

    # Rows of ports that are none of ours are passed over.
    for row in measured:
        source = ports.port_of_side.get(row.circuit.a_side)
        destination = ports.port_of_side.get(row.circuit.b_side)
        if source is None or destination is None:
            continue  # a port of the switch that is none of ours
        point = index_of_thz[row.frequency_thz], index_of_c[row.temperature_c]
        loss_db[(*point, source, destination)] = row.loss_db

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


def _rows_in(tree: Any) -> LossRows:
    """Return the rows of the table of losses in a JSON file, by key without the table's name.

    Three forms are read: an object with the table under its name, as in ``config_db.json``; an
    object with a key ``OCS_FACTORY_INSERTION_LOSS|...`` for each row; and a dump of the database,
    in which the fields of a row are under ``value``.
    """
    if isinstance(tree, dict) and isinstance(tree.get(LOSS_TABLE), dict):
        return tree[LOSS_TABLE]  # type: ignore[no-any-return]
    prefix = f"{LOSS_TABLE}|"
    rows: dict[str, Any] = {}
    for key, entry in tree.items() if isinstance(tree, dict) else ():
        if key.startswith(prefix):
            # A dump of the database has the type of each entry beside its value.
            is_dumped = isinstance(entry, dict) and isinstance(entry.get("value"), dict)
            rows[key.removeprefix(prefix)] = entry["value"] if is_dumped else entry
    if not rows:
        raise FormatError(f"an object with the table {LOSS_TABLE} is expected")
    return rows


def _read_row(key: str, row: Any, conditions: Conditions) -> _Measured:
    """Read one row of the table of factory losses, with its accuracy added if asked for.

    The key is circuit, frequency in THz and temperature in degrees Celsius, as
    ``1A-2B|193.1|25.00``.
    """
    place = pointer("", LOSS_TABLE, key)
    parts = key.split("|")
    if len(parts) != 3:
        raise FormatError("a key CIRCUIT|THZ|CELSIUS is expected", where=place)
    if not isinstance(row, Mapping) or "loss_dB" not in row:
        raise FormatError("an object with loss_dB is expected", where=place)
    # Entries of the database are texts, also those that are numbers.
    try:
        circuit = circuit_named(parts[0])
        frequency_thz = number("frequency", float(parts[1]))
        temperature_c = number("temperature", float(parts[2]), at_least=-300.0)
        loss_db = number("loss_dB", float(row["loss_dB"]))
        accuracy_db = number("accuracy_dB", float(row.get("accuracy_dB", 0.0)))
    except InputError as error:
        raise FormatError(error.message, where=place) from None
    except (TypeError, ValueError) as error:
        raise FormatError(f"a number is expected: {error}", where=place) from None
    if conditions.add_accuracy:
        loss_db += accuracy_db
    return _Measured(circuit, frequency_thz, temperature_c, loss_db)


def _interpolate(
    loss_db: NDArray[np.float64], measured_at: list[float], value: float | None, name: str
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
    upper = int(np.searchsorted(measured_at, value))
    if measured_at[upper] == value:
        return np.asarray(loss_db[upper])
    # The share of the upper point: with points 190 and 196, a value of 193 has 0.5.
    share = (value - measured_at[upper - 1]) / (measured_at[upper] - measured_at[upper - 1])
    return np.asarray((1 - share) * loss_db[upper - 1] + share * loss_db[upper])
