"""Measured transfer matrices of a chip: an archive of arrays, or Touchstone files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.contents import read_arrays, read_bytes
from optmatch.model import FormatError, Measurement, SolverUnavailable, naming

_KINDS = {"cell_states": "iu", "power": "iuf", "amplitude": "c"}


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
    first, *more = (os.fspath(path) for path in paths)
    found = read_arrays(read_bytes(first), first)
    with naming(first):
        names = ", ".join(_KINDS)
        for key, array in found.items():
            if key not in _KINDS:
                raise FormatError(f"{key!r}: unknown; known are {names}")
            if array.dtype.kind not in _KINDS[key]:
                kind = "complex" if key == "amplitude" else "real"
                kind = "whole" if key == "cell_states" else kind
                raise FormatError(f"{key} of type {array.dtype}: {kind} numbers", where=key)
        if "cell_states" not in found or len(found) != 2 - bool(more):
            rule = "cell_states alone" if more else "cell_states, and power or amplitude"
            raise FormatError(f"{', '.join(found) or 'nothing'}: {rule} is needed")
        states = found["cell_states"]
        if more:
            if states.ndim == 0 or len(more) != len(states):
                raise FormatError(f"cell_states {states.shape}: {len(more)} Touchstone files")
            found["amplitude"] = np.stack([_read_touchstone(fabric, name) for name in more])
        with np.errstate(over="ignore", invalid="ignore"):
            power = found["power"] if "power" in found else np.abs(found["amplitude"]) ** 2
        return Measurement(cell_states=states, power=power)


def _read_touchstone(fabric: Fabric, name: str) -> NDArray[np.complex128]:
    """``amplitude[source, destination]`` of one state."""
    import warnings

    try:
        from skrf.io.touchstone import Touchstone
    except ImportError as exc:
        hint = "Touchstone needs scikit-rf: pip install 'optmatch[touchstone]'"
        raise SolverUnavailable(hint) from exc
    read_bytes(name)  # neither absent nor too large
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrices: Any = Touchstone(name).get_sparameter_arrays()[1]
        middle: NDArray[np.complex128] = matrices[len(matrices) // 2].T
    except Exception as exc:  # of damaged files scikit-rf raises nearly anything
        raise FormatError(f"is no Touchstone file: {exc}", path=name) from exc
    ports = fabric.n_ports * (1 if fabric.bidirectional else 2)
    if middle.shape != (ports, ports):
        raise FormatError(f"{len(middle)} ports, not {ports}", path=name)
    return middle if fabric.bidirectional else middle[: fabric.n_ports, fabric.n_ports :]
