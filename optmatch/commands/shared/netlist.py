"""Fabrics that come from a netlist, and fabrics with faults, on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.lists import Listed, pair
from optmatch.commands.shared.outcome import STDIN, name_of, read
from optmatch.model import InputError
from optmatch.model.files import is_stream

if TYPE_CHECKING:
    from optmatch.fabrics import Fabric

NETLIST_OPTIONS = (
    click.option(
        "--pins",
        type=Listed(pair("=", str, str), "name=pin"),
        help="Names of pins, as w1=a1,w2=a2,e1=b1,e2=b2.  [default: known ones]",
    ),
    click.option(
        "--component",
        "components",
        type=Listed(pair("=", str, str), "name=kind"),
        help="What components are, as tap=pass,x=switch.  [default: known ones]",
    ),
    click.option("--open-pins", is_flag=True, default=None, help="Allow pins that lead nowhere."),
    click.option(
        "--directed/--bidirectional",
        default=None,
        help="Ports in... send to ports out...; or each does both.  [default: by their names]",
    ),
)
NETLIST_NAMES = ("pins", "components", "open_pins", "directed")


def read_fabric(file: str, options: dict[str, Any]) -> Fabric:
    """Read a netlist; `options` may have those of `NETLIST_OPTIONS`."""
    from optmatch.io.netlists.gdsfactory import read_netlist

    given: dict[str, Any] = {
        name: options[name] for name in NETLIST_NAMES if options.get(name) is not None
    }
    given |= {name: dict(given[name]) for name in ("pins", "components") if name in given}
    return read_netlist(file, **given)


def fabric_of(file: str, options: dict[str, Any]) -> Fabric:
    """Return the fabric of a netlist, a problem or a schedule, whichever a file is.

    A pipe, which can be read but once, has no netlist.
    """
    if file == STDIN or is_stream(file) or _is_ours(file):
        found: Any = read(file)
        fabric = getattr(getattr(found, "problem", found), "fabric", None)
        if fabric is None:
            raise InputError("a problem without a fabric", path=name_of(file))
        return fabric  # type: ignore[no-any-return]
    return read_fabric(file, options)


def _is_ours(file: str) -> bool:
    """Tell whether a file is JSON with our tag."""
    from optmatch.io.contents import read_bytes

    content = read_bytes(file)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and "format" in tree
