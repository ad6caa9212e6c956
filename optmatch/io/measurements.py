"""Measured transfer matrices of a chip: an archive of arrays, or a file for each state."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.contents import Shape, read_arrays, read_bytes
from optmatch.io.transfers import TransferSpectrum, read_transfer
from optmatch.model import CALIBRATION_DB, FormatError, InputError, Measurement, naming
from optmatch.model.files import path_name

_ARRAYS = {
    "cell_states": ("iu", "whole"),
    "power": ("iuf", "real"),
    "amplitude": ("c", "complex"),
}
"""The arrays of an archive: the kinds of their type in NumPy, and the word for messages."""


def read_measurement(
    fabric: Fabric,
    paths: Sequence[str | os.PathLike[str]],
    *,
    calibration_db: float = CALIBRATION_DB,
) -> Measurement:
    """Read how much light was measured between the ports of a chip, in some states of its cells.

    Parameters
    ----------
    fabric
        The chip.
    paths
        The names of files. The first one is an ``.npz`` with these arrays:

        - ``cell_states[k, cell]``: the cells in measurement k, 0 bar and 1 cross;
        - ``power[k, source, destination]``: the light at a destination port, as a part of what
          went in at the source port; or ``amplitude``, complex, whose squares are powers. NaN
          stands for what was not measured.

        If it has states alone, a file with the powers of each state follows: Touchstone, CSV of
        dB, or Lumerical's ``.sparam``. Ports are matched by the names in these files. Without
        names they are those of the chip in order; where ports are not bidirectional, all that
        send come first, then all that receive.
    calibration_db
        By how many dB powers may exceed what went in, as no instrument is calibrated better.

    Returns
    -------
    Measurement
        Powers at the middle frequency, and those of the whole band if files have one.

    Raises
    ------
    FormatError, InputError
        If a file cannot be read, an array is another one, or a value is out of range.
    SolverUnavailable
        If there is a Touchstone file, and no scikit-rf.
    """
    # The arrays, whose names, shapes and types are checked.
    archive, *state_files = (path_name(path) for path in paths)

    def check_shape(key: str, shape: Shape) -> None:
        """Refuse an array that is unknown, or that cannot belong to the fabric."""
        _check_array_name(key, archive)
        _check_shape(fabric, key, shape, archive)

    arrays = read_arrays(read_bytes(archive), archive, check_shape=check_shape)
    with naming(archive):
        for key, array in arrays.items():
            _check_array_name(key, archive)
            kinds, word = _ARRAYS[key]
            if array.dtype.kind not in kinds:
                raise FormatError(f"{key} of type {array.dtype}: {word} numbers", where=key)
        _check_which_arrays(list(arrays), bool(state_files))
        # States alone need a file of powers for each of them; otherwise powers are here.
        states = arrays["cell_states"]
        if state_files and (states.ndim == 0 or len(state_files) != len(states)):
            raise FormatError(f"cell_states {states.shape}: {len(state_files)} files of states")
        if not state_files:
            if "power" in arrays:
                power = arrays["power"]
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    power = np.abs(arrays["amplitude"]) ** 2
            return Measurement(cell_states=states, power=power, calibration_db=calibration_db)
    return _measure_states(fabric, states, state_files, calibration_db)


def _measure_states(
    fabric: Fabric, states: NDArray[np.int8], paths: Sequence[str], calibration_db: float
) -> Measurement:
    """Put the files of all measured states of a chip together.

    Parameters
    ----------
    fabric
        The switch.
    states
        ``states[state, cell]``: 0 bar, 1 cross, 2 half turned.
    paths
        The file of each state, with powers by frequency.
    calibration_db
        By how much powers may exceed what went in, in dB: errors of the calibration.

    Returns
    -------
    Measurement
        The powers at the middle frequency, and those of the whole band.

    Raises
    ------
    InputError
        If frequencies of files differ, or a value is out of range.
    """
    spectra: list[TransferSpectrum] = []
    for path, states_of_file in zip(paths, states, strict=True):
        spectrum = read_transfer(fabric, path)
        middle = len(spectrum.power) // 2
        # A value that is out of range is one of this file, not of the archive of states.
        with naming(path):
            Measurement(
                cell_states=states_of_file[None],
                power=spectrum.power[[middle]],
                frequencies_hz=spectrum.frequencies_hz,
                band_power=spectrum.power[None],
                calibration_db=calibration_db,
            )
        spectra.append(spectrum)

    first = spectra[0]
    for path, spectrum in zip(paths, spectra, strict=True):
        if not np.array_equal(spectrum.frequencies_hz, first.frequencies_hz, equal_nan=True):
            raise InputError(
                f"{len(spectrum.frequencies_hz)} frequencies, not those"
                f" {len(first.frequencies_hz)} of {paths[0]}: states share their frequencies",
                path=path,
            )
    band_power = np.stack([spectrum.power for spectrum in spectra])
    return Measurement(
        cell_states=states,
        power=band_power[:, len(first.power) // 2],
        frequencies_hz=first.frequencies_hz,
        band_power=band_power,
        calibration_db=calibration_db,
    )


def _check_array_name(key: str, path: str) -> None:
    if key not in _ARRAYS:
        raise FormatError(f"{key!r}: unknown; known are {', '.join(_ARRAYS)}", path=path)


def _check_which_arrays(keys: Sequence[str], has_state_files: bool) -> None:
    """Refuse an archive that lacks the states, or has none or two sources of power."""
    needed = 1 if has_state_files else 2
    if "cell_states" not in keys or len(keys) != needed:
        rule = "cell_states alone" if has_state_files else "cell_states, and power or amplitude"
        raise FormatError(f"{', '.join(keys) or 'nothing'}: {rule} is needed")


def _check_shape(fabric: Fabric, key: str, shape: Shape, path: str) -> None:
    """Refuse an array that cannot belong to the fabric, before it is read.

    Parameters
    ----------
    fabric
        The switch.
    key
        The name of the array: "cell_states" has the shape (k, cells), others (k, ports, ports).
    shape
        The stated shape. Numbers of dimensions are left to `Measurement`.
    path
        The name of the file, for errors.
    """
    if key == "cell_states":
        expected: Shape = (fabric.n_cells,)
    else:
        expected = (fabric.n_ports, fabric.n_ports)
    if len(shape) == 1 + len(expected) and shape[1:] != expected:
        message = (
            f"{key} has shape {shape}, the fabric needs ({', '.join(map(str, ('k', *expected)))})"
        )
        raise FormatError(message, where=key, path=path)
