"""`optmatch generate`: write a problem file. The list of all commands that do so."""

from __future__ import annotations

import click

from optmatch.commands.shared.outcome import LaterGroup

COMMANDS = {
    "all-to-all": "all_to_all:all_to_all",
    "collective": "collectives:collective",
    "demand": "demands.generate:demand",
    "device": "device:device",
    "port-sharing": "sharing:port_sharing",
    "rail-job": "rails.generate:rail_job",
    "rail-trace": "rails.trace:rail_trace",
    "reroute": "reroutes:reroute",
    "routing": "routing:routing",
    "slice-allocation": "slices:slice_allocation",
}
"""The module of `optmatch.commands` and the function of each command, in the order of help."""


@click.group(cls=LaterGroup, groups={"Commands": COMMANDS})
def generate() -> None:
    """Write a problem file, or the device of each cell."""
