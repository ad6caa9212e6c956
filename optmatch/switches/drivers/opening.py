"""Switches by their addresses."""

from __future__ import annotations

from importlib.metadata import entry_points

from optmatch.model.declarations import form_of
from optmatch.switches.drivers.addresses import refuse_address, split_address
from optmatch.switches.drivers.dry import DrySwitch
from optmatch.switches.drivers.polatis import PORT, PolatisSwitch
from optmatch.switches.drivers.sonic import SonicSwitch
from optmatch.switches.protocol import Switch

_SCHEMES = ("redis", "rediss", "unix", "scpi", "dry")
"""Schemes of addresses that drivers of this package take."""

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
