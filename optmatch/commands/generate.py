"""`optmatch generate`: write a problem file. The list of all commands that do so."""

from __future__ import annotations

import click

from optmatch.commands.shared.outcome import LaterGroup

NAMES = (
    *("all-to-all", "collective", "demand", "device", "port-sharing", "rail-job", "rail-trace"),
    *("reroute", "routing", "slice-allocation"),
)
"""Names of the commands, in the order of help."""


def _import(name: str) -> click.Command:
    """Import the command of a kind of problem, and no other: importing all of them takes long.

    Parameters
    ----------
    name
        The name of the command, one of `NAMES`.

    Returns
    -------
    click.Command
        The command, which stands behind ``optmatch generate``.
    """
    command: click.Command
    match name:
        case "all-to-all":
            from optmatch.commands.all_to_all import all_to_all as command
        case "collective":
            from optmatch.commands.collectives import collective as command
        case "demand":
            from optmatch.commands.demands.generate import demand as command
        case "device":
            from optmatch.commands.device import device as command
        case "port-sharing":
            from optmatch.commands.sharing import port_sharing as command
        case "rail-job":
            from optmatch.commands.rails.generate import rail_job as command
        case "rail-trace":
            from optmatch.commands.rails.trace import rail_trace as command
        case "reroute":
            from optmatch.commands.reroutes import reroute as command
        case "routing":
            from optmatch.commands.routing import routing as command
        case _:
            from optmatch.commands.slices import slice_allocation as command
    return command


@click.group(cls=LaterGroup, names=NAMES, load=_import)
def generate() -> None:
    """Write a problem file, or the device of each cell."""
