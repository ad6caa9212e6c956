"""Options of the commands that drive real switches, and how their switches are opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from optmatch.commands.shared.options import Duration

if TYPE_CHECKING:
    from optmatch.switches import Switch

SWITCH_OPTIONS = (
    click.option(
        "--switch",
        "switches",
        multiple=True,
        required=True,
        metavar="[NAME=]URL",
        help="redis://HOST:6379 (SONiC), scpi://HOST:5025 (Polatis) or dry:; where there are"
        " several switches once for each, as rail-0=redis://... or server-3=redis://...",
    ),
    click.option("--ports", type=click.Path(), help="CSV with the sides of each port: port,A,B."),
)
"""Which switches, and how their ports are named."""

TIME_LIMIT = click.option(
    "--time-limit", type=Duration(), default=10.0, help="How long circuits may take to be tuned."
)


@contextmanager
def opened_switches(addresses: tuple[str, ...]) -> Iterator[dict[str, Switch]]:
    """Open connections to all switches for a block, which gets them by name.

    Addresses are URLs such as ``redis://host:6379``, with names before them where there are
    several, as ``rail-0=redis://host:6379``; a single one may go without, and has the empty name.
    Where two names are equal, or one is missing, it is a usage error.
    """
    from optmatch.switches import open_switch

    opened: dict[str, Switch] = {}
    try:
        for text in addresses:
            # An address may have an equals sign itself; a name stands before the scheme.
            name = ""
            url = text
            if "=" in text.partition(":")[0]:
                name, _, url = text.partition("=")
            if name in opened or (opened and "" in (*opened, name)):
                raise click.UsageError(f"--switch {name or url}: a name of its own for each")
            opened[name] = open_switch(url)
        yield opened
    finally:
        for switch in opened.values():
            switch.close()
