"""Switches by their addresses, and the losses that they or files have."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

import numpy as np
from numpy.typing import NDArray

from optmatch.io.switches import sonic as files
from optmatch.io.switches.circuits import PortTable
from optmatch.io.switches.sonic import Conditions as Conditions
from optmatch.model import InputError
from optmatch.model.declarations import form_of
from optmatch.model.files import path_name
from optmatch.switches.drivers.dry import DrySwitch
from optmatch.switches.drivers.polatis import PORT, PolatisSwitch
from optmatch.switches.drivers.sonic import SonicSwitch
from optmatch.switches.protocol import Switch, refuse_address, split_address

_ENTRY_POINTS = "optmatch.switches"
"""The group in which other packages name their drivers: scheme = function of an address."""


def open_switch(url: str) -> Switch:
    """Open a switch by its address.

    Parameters
    ----------
    url
        ``redis://HOST:6379`` (also ``rediss`` and ``unix``) for SONiC, ``scpi://HOST:5025`` for
        Polatis, ``dry:`` for a rehearsal. Other schemes are looked for in the entry-point group
        ``optmatch.switches``, whose functions take the address.

    Returns
    -------
    Switch
        The driver of the switch; most of them have connected already.

    Raises
    ------
    InputError
        If it is no text, its host or port cannot be read, or nobody knows the scheme.
    SwitchError
        If the switch cannot be reached.

    Examples
    --------
    >>> open_switch("dry:").name
    'dry'
    """
    url = form_of(str).check("switch", url)
    parts = split_address(url)

    # Drivers of this package come first, then those that other packages have registered.
    if parts.scheme in ("redis", "rediss", "unix"):
        return SonicSwitch(url)
    if parts.scheme == "scpi" and parts.hostname:
        return PolatisSwitch(parts.hostname, parts.port or PORT)
    if parts.scheme == "dry":
        return DrySwitch()
    for entry in entry_points(group=_ENTRY_POINTS):
        if entry.name == parts.scheme:
            opened: Switch = entry.load()(url)
            return opened

    raise refuse_address(parts)


def read_losses(
    source: str | os.PathLike[str],
    ports: PortTable | None = None,
    conditions: Conditions | None = None,
) -> NDArray[np.float64]:
    r"""Read the loss of every circuit, for `optmatch.IdealSwitch`.

    Parameters
    ----------
    source
        A file, or the address of a SONiC switch, whose database has what the factory measured. A
        ``.json`` file has SONiC's table ``OCS_FACTORY_INSERTION_LOSS``, any other a matrix in dB.
    ports
        The sides of our ports; None: port p is at the sides ``(p + 1)A`` and ``(p + 1)B``.
    conditions
        Of a table: the frequency and temperature, between which losses are interpolated, and
        whether the accuracy is added; None: the worst of all, with accuracy.

    Returns
    -------
    NDArray
        ``loss_db[source, destination]``; float64, shape (ports, ports).

    Raises
    ------
    FormatError
        If a row cannot be read; the message names it.
    InputError
        If a circuit was not measured, or the conditions lie outside of what was.
    SwitchError
        If the switch cannot be reached.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "loss.csv")
    ...     _ = path.write_text("1.0,3.5\n2.0,1.0")
    ...     read_losses(path).tolist()
    [[1.0, 3.5], [2.0, 1.0]]
    """
    address = path_name(source, "source")
    form_of(PortTable | None).check("ports", ports)
    form_of(Conditions | None).check("conditions", conditions)
    if "://" not in address:
        return files.read_losses(source, ports, conditions)
    switch = open_switch(address)
    if not isinstance(switch, SonicSwitch):
        raise InputError(f"{address}: only SONiC's database has a table of losses")
    return files.matrix_of_losses(switch.read_losses(), ports, conditions)
