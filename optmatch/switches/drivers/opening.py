"""Switches by their addresses, a rehearsal among them, and the losses that they or files have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points

import numpy as np
from numpy.typing import NDArray

from optmatch.io.switches import sonic as files
from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    PortTable,
    check_difference,
    check_sides,
    list_circuits,
    sort_circuits,
)
from optmatch.io.switches.sonic import Conditions as Conditions
from optmatch.model import InputError
from optmatch.model.declarations import form_of
from optmatch.model.files import path_name
from optmatch.switches.drivers.polatis import PORT, PolatisSwitch
from optmatch.switches.drivers.sonic import SonicSwitch
from optmatch.switches.protocol import (
    Switch,
    SwitchReading,
    Tuning,
    refuse_address,
    refused_by,
    split_address,
)


class DrySwitch:
    """A rehearsal of a switch: nothing is sent anywhere.

    Parameters
    ----------
    circuits
        The circuits that the switch holds in the beginning.
    write
        Is given a line for each circuit that is removed or added; `print` unless told otherwise.

    Examples
    --------
    >>> from optmatch.switches import CrossConnect, Difference
    >>> switch = DrySwitch([CrossConnect("1A", "2B")])
    >>> switch.apply(Difference((CrossConnect("1A", "2B"),), (CrossConnect("1A", "3B"),)))
    remove 1A-2B
    add 1A-3B
    >>> switch.read().circuits
    (CrossConnect(a_side='1A', b_side='3B'),)
    """

    name: str = "dry"

    def __init__(
        self, circuits: Iterable[CrossConnect] = (), write: Callable[[str], object] = print
    ) -> None:
        """Make a stand-in for a switch that only prints what it is told.

        Parameters
        ----------
        circuits
            The circuits that it holds at first, as `CrossConnect`.
        write
            Is called with each line, such as ``add 1A-2B``.
        """
        form_of(Callable).check("write", write)
        self._circuits = set(list_circuits("circuits", circuits))
        self._write = write

    def read(self) -> SwitchReading:
        """Return the circuits; all of them are tuned."""
        return SwitchReading(sort_circuits(self._circuits), self.read_statuses())

    def read_circuits(self) -> tuple[CrossConnect, ...]:
        """Return the circuits."""
        return sort_circuits(self._circuits)

    def read_statuses(self) -> dict[str, str]:
        """Return ``tuned`` for each side of a circuit."""
        return {side: "tuned" for circuit in self._circuits for side in circuit}

    def apply(self, difference: Difference) -> None:
        """Rehearse a change: print each circuit that is removed or added, and remember it.

        Parameters
        ----------
        difference
            The circuits (from the A side of a port to the B side of one) to remove and to add.

        Raises
        ------
        SwitchError
            If two circuits would share a side afterwards; nothing is printed or changed then.
        """
        check_difference(difference)
        after = (self._circuits - set(difference.removals)) | set(difference.additions)
        with refused_by(self.name):
            check_sides(after)
        for circuit in difference.removals:
            self._write(f"remove {circuit.name}")
        for circuit in difference.additions:
            self._write(f"add {circuit.name}")
        self._circuits = after

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Return at once: circuits that are there are tuned."""
        expected = list_circuits("circuits", circuits)
        absent = {circuit: "absent" for circuit in expected if circuit not in self._circuits}
        return Tuning(0.0, absent)

    def claim(self, owner: str) -> None:
        """Do nothing: nobody else knows this switch."""

    def release(self, owner: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


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
