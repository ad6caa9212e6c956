"""Options that are fields of a class: their names and texts here, their defaults from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import click

Row = tuple[str, str, Any, str]
"""Flag, name of the field, type, and help."""

SWITCHING: tuple[Row, ...] = (
    ("--delay", "delay_s", float, "Reconfiguration delay in s."),
    (
        "--switching",
        "switching",
        click.Choice(["per-circuit", "all-stop"]),
        "Whether circuits that stay go on during the delay.",
    ),
)
RAILS: tuple[Row, ...] = (
    ("--ports-per-gpu", "ports_per_gpu", int, "Ports of a GPU on its rail."),
    ("--port-rate", "port_bytes_per_s", float, "Bytes per second of a port."),
    ("--scale-up-rate", "scale_up_bytes_per_s", float, "Bytes per second inside a server."),
    ("--latency", "latency_s", float, "Seconds of each message."),
    ("--radix", "radix", int, "Ports of the switch of a rail.  [default: enough]"),
    *SWITCHING,
)
"""What joins the GPUs of a job, modelled or recorded."""


def field_options(cls: type[Any], rows: Sequence[Row], *, optional: bool = False) -> list[Any]:
    """Make options with the defaults of a data class; without one they are required.

    With `optional` none is: the command says what it needs.
    """
    made = []
    for flag, name, type_, text in rows:
        default = next(field.default for field in fields(cls) if field.name == name)
        required = default is MISSING
        shown = ",".join(default) if isinstance(default, tuple | Mapping) else default
        made.append(
            click.option(
                flag,
                name,
                type=type_,
                required=required and not optional,
                default=None if required else shown,
                show_default=not required and default is not None and shown != "",
                help=text,
            )
        )
    return made
