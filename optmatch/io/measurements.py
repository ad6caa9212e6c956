"""Measured transfer matrices of a chip: an archive of arrays, or Touchstone files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.contents import Shape, read_arrays, read_bytes
from optmatch.model import FormatError, Measurement, SolverUnavailable, naming
from optmatch.model.files import path_name

_ARRAYS = {
    "cell_states": ("iu", "whole"),
    "power": ("iuf", "real"),
    "amplitude": ("c", "complex"),
}
"""The arrays of an archive: the kinds of their type in NumPy, and the word for messages."""

_PORTS_IN_NAME = re.compile(r"\.s(\d+)p$", re.IGNORECASE | re.ASCII)
_PORTS_IN_TEXT = re.compile(rb"^\s*\[number of ports\]\s*(\d+)", re.IGNORECASE | re.MULTILINE)


def read_measurement(fabric: Fabric, paths: Sequence[str | os.PathLike[str]]) -> Measurement:
    """Read what was measured of a chip.

    The first path is an ``.npz`` with ``cell_states[k, cell]``, 0 bar and 1 cross, and either
    ``power[k, source, destination]``, of what went in, or complex ``amplitude``; NaN where not
    measured. If it has states alone, a Touchstone file for each of them follows, which scikit-rf
    reads: of bidirectional ports in their order, else of all sources and then all destinations.
    Its middle frequency counts.

    Raises
    ------
    FormatError, InputError
        If a file cannot be read, an array is another one, or a value is out of range.
    SolverUnavailable
        If there is a Touchstone file, and no scikit-rf.
    """
    archive, *touchstones = (path_name(path) for path in paths)

    def check_shape(key: str, shape: Shape) -> None:
        _check_array_name(key, archive)
        _check_shape(fabric, key, shape, archive)

    arrays = read_arrays(read_bytes(archive), archive, check_shape=check_shape)
    with naming(archive):
        for key, array in arrays.items():
            _check_array_name(key, archive)
            kinds, word = _ARRAYS[key]
            if array.dtype.kind not in kinds:
                raise FormatError(f"{key} of type {array.dtype}: {word} numbers", where=key)
        _check_which_arrays(list(arrays), bool(touchstones))

        states = arrays["cell_states"]
        if touchstones:
            if states.ndim == 0 or len(touchstones) != len(states):
                message = f"cell_states {states.shape}: {len(touchstones)} Touchstone files"
                raise FormatError(message)
            amplitudes = [_read_touchstone(fabric, path) for path in touchstones]
            arrays["amplitude"] = np.stack(amplitudes)

        if "power" in arrays:
            power = arrays["power"]
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                power = np.abs(arrays["amplitude"]) ** 2
        return Measurement(cell_states=states, power=power)


def _check_array_name(key: str, path: str) -> None:
    if key not in _ARRAYS:
        raise FormatError(f"{key!r}: unknown; known are {', '.join(_ARRAYS)}", path=path)


def _check_which_arrays(keys: Sequence[str], has_touchstones: bool) -> None:
    """Refuse an archive that lacks the states, or has none or two sources of power."""
    needed = 1 if has_touchstones else 2
    if "cell_states" not in keys or len(keys) != needed:
        rule = "cell_states alone" if has_touchstones else "cell_states, and power or amplitude"
        raise FormatError(f"{', '.join(keys) or 'nothing'}: {rule} is needed")


def _check_shape(fabric: Fabric, key: str, shape: Shape, path: str) -> None:
    """Refuse an array that cannot belong to the fabric, before it is read.

    Numbers of dimensions are left to `Measurement`.
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


def _read_touchstone(fabric: Fabric, path: str) -> NDArray[np.complex128]:
    """Return ``amplitude[source, destination]`` of one state, at the middle frequency."""
    import warnings

    try:
        from skrf.io.touchstone import Touchstone
    except ImportError as exc:
        hint = "Touchstone needs scikit-rf: pip install 'optmatch[touchstone]'"
        raise SolverUnavailable(hint) from exc

    # scikit-rf allocates a matrix of the stated size, even for a file without numbers.
    n_ports = fabric.n_ports if fabric.bidirectional else 2 * fabric.n_ports
    content = read_bytes(path)
    stated = _PORTS_IN_NAME.search(path)
    if stated is not None:
        _check_port_count(stated[1], n_ports, path)
    for digits in _PORTS_IN_TEXT.findall(content):
        _check_port_count(digits.decode(), n_ports, path)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrices: Any = Touchstone(path).get_sparameter_arrays()[1]
        middle: NDArray[np.complex128] = matrices[len(matrices) // 2].T
    except Exception as exc:  # scikit-rf raises nearly anything for damaged files
        raise FormatError(f"is no Touchstone file: {exc}", path=path) from exc
    if middle.shape != (n_ports, n_ports):
        raise FormatError(f"{len(middle)} ports, not {n_ports}", path=path)

    if fabric.bidirectional:
        return middle
    return middle[: fabric.n_ports, fabric.n_ports :]


def _check_port_count(digits: str, n_ports: int, path: str) -> None:
    """Refuse a Touchstone file that states another number of ports than the fabric has."""
    if len(digits) > 9 or int(digits) != n_ports:
        raise FormatError(f"{digits[:20]} ports, not {n_ports}", path=path)
