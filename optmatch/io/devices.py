"""Device files: what one cell, one waveguide and one facet do to light."""

from __future__ import annotations

import os
from typing import Any

from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_object, choose, from_object, to_object
from optmatch.io.text import layout, parse
from optmatch.model import Device, naming

DEVICE_FORMAT = "optmatch/device/1"


def read_device(path: str | os.PathLike[str]) -> Device:
    """Read a device file.

    Parameters
    ----------
    path
        JSON with ``"format": "optmatch/device/1"`` and the fields of `Device`; those that are
        absent have their defaults.

    Raises
    ------
    FormatError
        If the file cannot be read, is no JSON, or breaks the format.
    InputError
        If a value breaks a rule of `Device`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from optmatch.model import DEVICES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "chip.json")
    ...     _ = file.write_text(write_device(DEVICES["smartlight"]))
    ...     read_device(file) == DEVICES["smartlight"]
    True
    """
    name = os.fspath(path)
    tree: Any = parse(read_bytes(path), name)
    with naming(name):
        check_object(tree, "")
        choose(tree, "format", {DEVICE_FORMAT: Device}, "")
        return from_object(Device, tree, "", tags=["format"])


def write_device(device: Device) -> str:
    """Return the text of a device file, with all fields."""
    return layout({"format": DEVICE_FORMAT, **to_object(device)}) + "\n"
