"""Transfer matrices of one state of a chip, as laboratories and simulators write them.

Touchstone (scikit-rf reads it), CSV of dB with names of ports, and Lumerical's S-parameter files.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.contents import check_content, decode, read_bytes
from optmatch.io.fields import shorten
from optmatch.model import FormatError, SolverUnavailable

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0

_PORTS_IN_NAME = re.compile(r"\.s(\d+)p$", re.IGNORECASE | re.ASCII)
_PORTS_IN_TEXT = re.compile(rb"^\s*\[number of ports\]\s*(\d+)", re.IGNORECASE | re.MULTILINE)
_NUMBERED_NAME = re.compile(r"^\s*!\s*port\s*\[(\d+)\]\s*=\s*(.+?)\s*$", re.IGNORECASE)
_LISTED_NAMES = re.compile(r"^\s*!\s*ports?\s*(?:names)?\s*[:=]\s*(.+?)\s*$", re.IGNORECASE)
_LUMERICAL_BLOCK = re.compile(
    r"""^\(\s*["'](?P<exit>[^"']+)["']\s*,\s*["'][^"']*["']\s*,\s*(?P<exit_mode>\d+)\s*,"""
    r"""\s*["'](?P<entry>[^"']+)["']\s*,\s*(?P<entry_mode>\d+)\s*,\s*["']transmission["']\s*\)$"""
)
_LUMERICAL_SIZE = re.compile(r"^\(\s*(\d+)\s*,\s*(\d+)\s*\)$")
_LUMERICAL_PORT = re.compile(r"""^\[\s*["']([^"']+)["']""")
_ANONYMOUS = re.compile(r"^(?:port|p|o)?\s*_?(\d+)$", re.IGNORECASE)


class TransferSpectrum(NamedTuple):
    """Powers between the ports of a chip in one state."""

    frequencies_hz: NDArray[np.float64]
    """(frequencies,): rising; one entry of NaN where the file does not state it."""
    power: NDArray[np.float64]
    """(frequencies, sources, destinations): of the power that went in; NaN if not measured."""


def read_transfer(fabric: Fabric, path: str) -> TransferSpectrum:
    """Read the transfer matrix of a chip in one state of its cells.

    Parameters
    ----------
    fabric
        The chip, which has the names of ports.
    path
        The name of the file; its ending tells the format: ``.csv``, ``.sparam`` or ``.dat`` of
        Lumerical, else Touchstone.

    Returns
    -------
    TransferSpectrum
        Powers by frequency in Hz, source and destination, over the power that went in; NaN where
        nothing was measured.

    Raises
    ------
    FormatError
        If the file cannot be read, is damaged, or is not of the fabric's ports.
    SolverUnavailable
        If it is a Touchstone file, and scikit-rf is not installed.
    """
    ending = PurePath(path).suffix.lower()
    if ending == ".csv":
        return _read_db_table(fabric, path)
    if ending in (".sparam", ".dat"):
        return _read_lumerical(fabric, path)
    return _read_touchstone(fabric, path)


def matrix_port_names(fabric: Fabric) -> list[str]:
    """Name the rows of a scattering matrix of a fabric.

    Parameters
    ----------
    fabric
        The switch. A port is called ``sender>receiver`` where its two ends have names of their
        own.

    Returns
    -------
    list of str
        The ports, if they are bidirectional; else all that send, and then all that receive.
    """
    if fabric.bidirectional:
        return list(fabric.port_names)
    senders = []
    receivers = []
    for name in fabric.port_names:
        sender, _, receiver = name.partition(">")
        senders.append(sender)
        receivers.append(receiver or sender)
    return senders + receivers


def order_of_ports(fabric: Fabric, names: Sequence[str], path: str) -> list[int]:
    """Find for each row of a scattering matrix of the fabric its number in a file.

    Names are compared without blanks, underscores and case. Names that are but numbers in their
    order (``port 1, port 2``) say nothing, and leave the order as it is.

    Parameters
    ----------
    fabric
        The switch.
    names
        The names of the ports in the file, in its order.
    path
        The name of the file, for errors.

    Returns
    -------
    list of int
        ``place[row]``: the place of the port in `names`.

    Raises
    ------
    FormatError
        If the names are others than those of the fabric's ports, or one is there twice.
    """
    fabric_names = matrix_port_names(fabric)
    n_names = len(names)
    if n_names != len(fabric_names):
        raise FormatError(f"{n_names} names of ports, not {len(fabric_names)}", path=path)
    numbers = [_ANONYMOUS.match(name.strip()) for name in names]
    values = [int(number[1]) for number in numbers if number is not None]
    is_in_order = values in (list(range(1, n_names + 1)), list(range(n_names)))

    # Names of the fabric come first: they may be numbers in another order.
    place_of_name = {_plain_name(name): place for place, name in enumerate(names)}
    if len(place_of_name) < n_names:
        raise FormatError(f"ports {shorten(list(names))}: a name is there twice", path=path)
    missing = [name for name in fabric_names if _plain_name(name) not in place_of_name]
    if not missing:
        return [place_of_name[_plain_name(name)] for name in fabric_names]
    if is_in_order:
        return list(range(n_names))
    raise FormatError(
        f"ports {', '.join(names)}: {missing[0]!r} is missing;"
        f" the fabric has {', '.join(fabric_names)}",
        path=path,
    )


def _plain_name(name: str) -> str:
    """Return a name without blanks, underscores and case."""
    return re.sub(r"[\s_]+", "", name).lower()


def _between_ports(fabric: Fabric, scattering_power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut the powers between ports out of the powers of a scattering matrix.

    Parameters
    ----------
    fabric
        The switch. Where ports are not bidirectional, rows are all that send and then all that
        receive.
    scattering_power
        ``power[frequency, terminal entered, terminal left]``.

    Returns
    -------
    float64 array
        ``power[frequency, source, destination]``.
    """
    if fabric.bidirectional:
        return scattering_power
    n_ports = fabric.n_ports
    return scattering_power[:, :n_ports, n_ports:]


def _read_touchstone(fabric: Fabric, path: str) -> TransferSpectrum:
    """Read a Touchstone file by scikit-rf.

    Comments with the names of ports, as simulators write them, say which row is which port;
    without them the rows are in the order of the fabric.

    Parameters
    ----------
    fabric
        The chip, whose number of ports the file has to have.
    path
        The file; its ending states the number of ports, as in ``chip.s8p``.

    Returns
    -------
    TransferSpectrum
        Powers by frequency in Hz, source and destination.

    Raises
    ------
    FormatError
        If the file is no such file, or is of other ports.
    SolverUnavailable
        If scikit-rf is not installed.
    """
    try:
        from skrf.io.touchstone import Touchstone
    except ImportError as exc:
        hint = "Touchstone needs scikit-rf: pip install 'optmatch[touchstone]'"
        raise SolverUnavailable(hint) from exc

    # scikit-rf allocates a matrix of the stated size, even for a file without numbers.
    n_rows = len(matrix_port_names(fabric))
    content = read_bytes(path)
    stated = _PORTS_IN_NAME.search(path)
    if stated is not None:
        _check_port_count(stated[1], n_rows, path)
    for digits in _PORTS_IN_TEXT.findall(content):
        _check_port_count(digits.decode(), n_rows, path)

    # Damaged files show by an error, or by a matrix of another shape.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays: Any = Touchstone(path).get_sparameter_arrays()
        frequencies_hz = np.asarray(arrays[0], dtype=np.float64)
        matrices: NDArray[np.complex128] = np.asarray(arrays[1])
        middle_shape = matrices[len(matrices) // 2].shape
    except Exception as exc:  # scikit-rf raises nearly anything for damaged files
        raise FormatError(f"is no Touchstone file: {exc}", path=path) from exc
    if middle_shape != (n_rows, n_rows):
        raise FormatError(f"{len(matrices[0])} ports, not {n_rows}", path=path)

    names = _names_in_touchstone(content.decode("utf-8", errors="replace"), n_rows)
    order = list(range(n_rows)) if names is None else order_of_ports(fabric, names, path)
    with np.errstate(over="ignore", invalid="ignore"):
        # A row of the file is the port that light leaves by.
        power = np.swapaxes(np.abs(matrices) ** 2, 1, 2)[:, order][:, :, order]
    return TransferSpectrum(frequencies_hz, _between_ports(fabric, power))


def _check_port_count(digits: str, n_ports: int, path: str) -> None:
    """Refuse a Touchstone file that states another number of ports than the fabric has."""
    if len(digits) > 9 or int(digits) != n_ports:
        raise FormatError(f"{digits[:20]} ports, not {n_ports}", path=path)


def _names_in_touchstone(text: str, n_ports: int) -> list[str] | None:
    """Find the names of ports in comments: ``! Port[1] = in0``, or ``! ports: in0, in1``.

    Parameters
    ----------
    text
        The file.
    n_ports
        The number of its ports.

    Returns
    -------
    list of str or None
        By the number of the port; None if not all have names.
    """
    numbered: dict[int, str] = {}
    for line in text.splitlines():
        if match := _NUMBERED_NAME.match(line):
            numbered[int(match[1])] = match[2]
        elif match := _LISTED_NAMES.match(line):
            names = [name for name in re.split(r"[,;\s]+", match[1]) if name]
            if len(names) == n_ports:
                return names
    if sorted(numbered) != list(range(1, n_ports + 1)):
        return None
    return [numbered[number] for number in range(1, n_ports + 1)]


def _read_db_table(fabric: Fabric, path: str) -> TransferSpectrum:
    """Read a CSV of levels in dB: rows ``source,destination,db``, or a matrix with names.

    Rows may have a column ``wavelength_nm`` or ``frequency_hz``. In a matrix the first line names
    destinations and the first entry of each other line its source. Losses are negative, or all
    positive; an empty entry was not measured.

    Parameters
    ----------
    fabric
        The switch, which has the names of ports.
    path
        The name of the file.

    Returns
    -------
    TransferSpectrum
        Powers by frequency, source and destination; NaN where nothing was measured.
    """
    reader = csv.reader(io.StringIO(decode(read_bytes(path), path)))
    try:
        rows = [
            (reader.line_num, [entry.strip() for entry in row])
            for row in reader
            if row and not row[0].lstrip().startswith("#")
        ]
    except csv.Error as exc:
        raise FormatError(f"not CSV: {exc}", path=path, where=f"line {reader.line_num}") from None
    if len(rows) < 2:
        raise FormatError("a line of names and lines of dB are expected", path=path)
    header = [name.lower() for name in rows[0][1]]
    if {"source", "destination", "db"} <= set(header):
        return _read_pairs(fabric, header, rows[1:], path)
    return _read_matrix(fabric, rows, path)


def _read_matrix(fabric: Fabric, rows: list[tuple[int, list[str]]], path: str) -> TransferSpectrum:
    """Read a matrix of dB, whose first line names destinations and whose first column sources.

    Parameters
    ----------
    fabric
        The switch, which has the names of ports.
    rows
        The number of each line and its entries.
    path
        The name of the file, for errors.

    Returns
    -------
    TransferSpectrum
        Powers at one frequency that is not stated (NaN); NaN where nothing was measured.
    """
    destinations = _port_places(fabric, rows[0][1][1:], path, receives=True)
    level_db = np.full((1, fabric.n_ports, fabric.n_ports), np.nan)
    sources = _port_places(fabric, [row[0] for _, row in rows[1:]], path, receives=False)
    for source, (line, row) in zip(sources, rows[1:], strict=True):
        if len(row) != len(rows[0][1]):
            message = f"{len(row)} entries, {len(rows[0][1])} names"
            raise FormatError(message, path=path, where=f"line {line}")
        for destination, entry in zip(destinations, row[1:], strict=True):
            level_db[0, source, destination] = _read_number(entry, "dB", path, line)
    return TransferSpectrum(np.array([np.nan]), _power_of_db(level_db))


def _read_pairs(
    fabric: Fabric, header: list[str], rows: list[tuple[int, list[str]]], path: str
) -> TransferSpectrum:
    """Read the powers between ports from a table with a line for each measurement.

    As an example, with the columns ``source, destination, wavelength_nm, db``, the line
    ``0,3,1550,-2.5`` says that light from port 0 to port 3 loses 2.5 dB at 1550 nm.

    Parameters
    ----------
    fabric
        The chip whose ports the lines name.
    header
        The names of the columns, in small letters: ``source``, ``destination``, ``db``, and
        perhaps ``frequency_hz`` or ``wavelength_nm``.
    rows
        For each line its number in the file, and its entries as texts.
    path
        The file, for messages.

    Returns
    -------
    TransferSpectrum
        Frequencies in Hz, ascending, and powers by frequency, source and destination; NaN for what
        no line states. A table without frequencies has one frequency, which is NaN.

    Raises
    ------
    FormatError
        If a column or a port is unknown, an entry is no number, or there are too many.
    """
    columns = {"source", "destination", "db", "wavelength_nm", "frequency_hz"}
    for name in header:
        if name not in columns:
            message = f"{shorten(name)}: unknown; known are {', '.join(sorted(columns))}"
            raise FormatError(message, path=path)

    # The lines, as frequency (NaN where none is stated), source, destination and dB.
    records = []
    for line, row in rows:
        if len(row) != len(header):
            message = f"{len(row)} entries, {len(header)} names"
            raise FormatError(message, path=path, where=f"line {line}")
        entry_of = dict(zip(header, row, strict=True))

        frequency_hz = np.nan
        if "frequency_hz" in entry_of:
            frequency_hz = _read_number(entry_of["frequency_hz"], "frequency_hz", path, line)
        elif "wavelength_nm" in entry_of:
            wavelength_nm = _read_number(entry_of["wavelength_nm"], "wavelength_nm", path, line)
            if not wavelength_nm > 0:
                message = f"wavelength_nm = {wavelength_nm:g}: must be > 0"
                raise FormatError(message, path=path, where=f"line {line}")
            frequency_hz = 1e9 * SPEED_OF_LIGHT_M_PER_S / wavelength_nm

        (source,) = _port_places(fabric, [entry_of["source"]], path, receives=False)
        (destination,) = _port_places(fabric, [entry_of["destination"]], path, receives=True)
        level = _read_number(entry_of["db"], "db", path, line)
        records.append((frequency_hz, source, destination, level))

    # Levels in dB by frequency, source and destination. Where lines have no frequency, the one
    # frequency is NaN, at place 0.
    frequencies_hz = np.unique([record[0] for record in records])
    n_entries = len(frequencies_hz) * fabric.n_ports**2
    check_content("entries", n_entries, path)
    level_db = np.full((len(frequencies_hz), fabric.n_ports, fabric.n_ports), np.nan)
    for frequency_hz, source, destination, level in records:
        index = 0 if np.isnan(frequency_hz) else np.searchsorted(frequencies_hz, frequency_hz)
        level_db[index, source, destination] = level
    return TransferSpectrum(frequencies_hz, _power_of_db(level_db))


def _port_places(fabric: Fabric, names: Sequence[str], path: str, *, receives: bool) -> list[int]:
    """Find the ports that a file names or numbers.

    Parameters
    ----------
    fabric
        The switch, which has the names of ports.
    names
        Names, compared without blanks, underscores and case, or numbers from 0.
    path
        The name of the file, for errors.
    receives
        Whether they are ends that receive; else ends that send.

    Returns
    -------
    list of int
        Numbers of ports.
    """
    port_names = matrix_port_names(fabric)
    port_names = port_names[-fabric.n_ports :] if receives else port_names[: fabric.n_ports]
    place_of_name = {_plain_name(name): port for port, name in enumerate(port_names)}
    places = []
    for name in names:
        place = place_of_name.get(_plain_name(name))
        if place is None and name.isdecimal() and len(name) < 10 and int(name) < fabric.n_ports:
            place = int(name)
        if place is None:
            message = f"port {shorten(name)}: unknown; the fabric has {', '.join(port_names)}"
            raise FormatError(message, path=path)
        places.append(place)
    return places


def _read_number(text: str, name: str, path: str, line: int) -> float:
    """Return the number that an entry of a table is.

    Parameters
    ----------
    text
        The entry; an empty one was not measured, and is NaN.
    name
        The meaning of the number, for errors.
    path, line
        The file and the line, for errors.
    """
    if not text:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        message = f"{name} = {shorten(text)}: a number is expected"
        raise FormatError(message, path=path, where=f"line {line}") from None


def _power_of_db(level_db: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn levels in dB into powers; levels that look like losses change their sign.

    Parameters
    ----------
    level_db
        Levels, which are negative, or losses: then no entry is negative and some are above 1 dB.
        NaN where nothing was measured.

    Returns
    -------
    float64 array
        Over the power that went in, of the same shape.
    """
    measured = level_db[np.isfinite(level_db)]
    are_losses = len(measured) > 0 and measured.min() >= 0 and measured.max() > 1.0
    sign = -1.0 if are_losses else 1.0
    power: NDArray[np.float64] = 10 ** (sign * level_db / 10)
    return power


def _read_lumerical(fabric: Fabric, path: str) -> TransferSpectrum:
    """Read the light powers between ports from a file of the simulator Lumerical.

    The file has a block for each pair of ports, for example::

        ("port 2","mode 1",1,"port 1",1,"transmission")
        (2,3)
        1.931e14 0.98 0.11
        1.932e14 0.97 0.12

    Here light enters at port 1 and leaves at port 2, and two lines follow: a frequency in Hz, the
    magnitude of the amplitude, and its phase. Blocks of other modes than 1 are passed over. Lines
    before the blocks, such as ``["port 1","LEFT"]``, may list the ports in order.

    Parameters
    ----------
    fabric
        The switch, which has the names of ports.
    path
        The name of the file.

    Returns
    -------
    TransferSpectrum
        Frequencies in Hz, ascending, and powers (squared magnitudes) by frequency, source and
        destination; NaN for pairs without a block.

    Raises
    ------
    FormatError
        If a block is cut off, or has other ports or frequencies than the first one.
    """
    n_rows = len(matrix_port_names(fabric))
    text = decode(read_bytes(path), path)
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line]
    names = [match[1] for _, line in lines if (match := _LUMERICAL_PORT.match(line))]

    # The frequencies and magnitudes of each block, shape (points, 2), by the ports left and
    # entered.
    blocks: dict[tuple[str, str], NDArray[np.float64]] = {}
    index = 0
    while index < len(lines):
        number, line = lines[index]
        header = _LUMERICAL_BLOCK.match(line)
        index += 1
        if header is None:
            if not _LUMERICAL_PORT.match(line):
                message = f"{shorten(line)}: the first line of a block is expected"
                raise FormatError(message, path=path, where=f"line {number}")
            continue
        # The second line of a block says how many lines follow; -1 if it says nothing.
        size = _LUMERICAL_SIZE.match(lines[index][1]) if index < len(lines) else None
        n_points = -1 if size is None or len(size[1]) > 9 else int(size[1])
        rows = [line.split() for _, line in lines[index + 1 : index + 1 + max(0, n_points)]]
        if len(rows) != n_points or any(len(row) < 3 for row in rows) or not rows:
            message = "(points,3) and as many lines of frequency, magnitude and phase are expected"
            raise FormatError(message, path=path, where=f"line {number + 1}")
        index += 1 + n_points
        if header["exit_mode"] == "1" and header["entry_mode"] == "1":
            numbers = [
                [_read_number(entry, "number", path, number) for entry in row[:2]] for row in rows
            ]
            blocks[header["exit"], header["entry"]] = np.array(numbers)
    if not blocks:
        raise FormatError("no block of transmissions", path=path)

    # `row_of_name` leads from a port of the file to its row in the matrix of all ports.
    if not names:
        names = sorted({name for pair in blocks for name in pair})
    order = order_of_ports(fabric, names, path)
    row_of_name = {names[place]: row for row, place in enumerate(order)}

    # All blocks must have the frequencies of the first one. A power is a squared magnitude.
    frequencies_hz = next(iter(blocks.values()))[:, 0]
    check_content("entries", len(frequencies_hz) * n_rows**2, path)
    power = np.full((len(frequencies_hz), n_rows, n_rows), np.nan)
    for (exit_name, entry_name), points in blocks.items():
        if points.shape != (len(frequencies_hz), 2) or (points[:, 0] != frequencies_hz).any():
            message = f"{exit_name} from {entry_name}: other frequencies than the first block"
            raise FormatError(message, path=path)
        if exit_name not in row_of_name or entry_name not in row_of_name:
            raise FormatError(f"{exit_name} from {entry_name}: an unknown port", path=path)
        power[:, row_of_name[entry_name], row_of_name[exit_name]] = points[:, 1] ** 2
    rising = np.argsort(frequencies_hz, kind="stable")
    return TransferSpectrum(frequencies_hz[rising], _between_ports(fabric, power[rising]))
