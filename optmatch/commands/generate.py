"""`optmatch generate`: write a problem file. The list of all commands that do so."""

from __future__ import annotations

import click

from optmatch.commands.all_to_all.generate import all_to_all
from optmatch.commands.collectives.generate import collective
from optmatch.commands.demands.generate import demand
from optmatch.commands.rails.generate import rail_job
from optmatch.commands.rails.trace import rail_trace
from optmatch.commands.reroutes.generate import reroute
from optmatch.commands.routing.generate import routing
from optmatch.commands.shared.groups import Group
from optmatch.commands.sharing.generate import port_sharing
from optmatch.commands.slices.generate import slice_allocation
from optmatch.commands.tenancies.generate import tenancy

_COMMANDS = (
    *(all_to_all, collective, demand, port_sharing, rail_job, rail_trace, reroute, routing),
    *(slice_allocation, tenancy),
)


@click.group(cls=Group, commands=_COMMANDS)
def generate() -> None:
    """Write a problem file."""
