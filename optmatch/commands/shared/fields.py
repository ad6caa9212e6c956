"""Options that are fields of a class, and values between commas."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import click

from optmatch.model.declarations import Choice, Form, Plain, Word, forms_of

Row = tuple[str, str, str] | tuple[str, str, str, Any]
"""Flag, name of the field, help, and how it is typed if the declaration does not say it."""

SWITCHING: tuple[Row, ...] = (
    ("--delay", "delay_s", "Reconfiguration delay in s."),
    ("--switching", "switching", "Whether circuits that stay go on during the delay."),
)
RAILS: tuple[Row, ...] = (
    ("--ports-per-gpu", "ports_per_gpu", "Ports of a GPU on its rail."),
    ("--port-rate", "port_bytes_per_s", "Bytes per second of a port."),
    ("--scale-up-rate", "scale_up_bytes_per_s", "Bytes per second inside a server."),
    ("--latency", "latency_s", "Seconds of each message."),
    ("--radix", "radix", "Ports of the switch of a rail.  [default: enough]"),
    *SWITCHING,
)
"""What joins the GPUs of a job, modelled or recorded."""


def field_options(cls: Any, rows: Sequence[Row], *, optional: bool = False) -> list[Any]:
    """Make options with the types and defaults of a data class; without one they are required.

    With `optional` none is: the command says what it needs.
    """
    made = []
    for flag, name, text, *given in rows:
        type_ = given[0] if given else _type_of(forms_of(cls)[name])
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


def _type_of(form: Form) -> Any:
    match form:
        case Word(options):
            return click.Choice(options)
        case Choice(parts):
            return _type_of(parts[0])
        case Plain(kind):
            return kind
    raise TypeError(f"{form}: an option of this form needs a type")


class Listed(click.ParamType):  # type: ignore[type-arg] # no generic class before click 8.3.2
    """Values between commas, each read by a function that may raise `ValueError`."""

    name = "list"

    def __init__(self, read: Callable[[str], Any], what: str, *, single: bool = False) -> None:
        self.read, self.what, self.single = read, what, single

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text, or a default; if `single`, one value alone stays alone."""
        try:
            found = [self.read(part.strip()) for part in str(value).split(",") if part.strip()]
        except ValueError:  # InputError is one
            self.fail(f"{value!r}: {self.what}, separated by commas", param, ctx)
        return found[0] if self.single and "," not in str(value) and found else found


def pair(
    sign: str, first: Callable[[str], Any], second: Callable[[str], Any]
) -> Callable[[str], tuple[Any, Any]]:
    """Return what reads a pair, such as ``63=0.01``."""

    def read(text: str) -> tuple[Any, Any]:
        key, found, value = text.partition(sign)
        if not found:
            raise ValueError(text)
        return first(key.strip()), second(value.strip())

    return read


_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Duration(click.ParamType):  # type: ignore[type-arg] # no generic class before click 8.3.2
    """Seconds, or a number with its unit: 250ms, 1m, 2h."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds >= 0."""
        found = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?) *([a-z]*)", str(value).strip().lower())
        unit_s = _UNITS_S.get(found[2] or "s") if found else None
        try:
            time_s = float(found[1]) * unit_s if found and unit_s else -1.0
        except ValueError:  # as 1.2.3
            time_s = -1.0
        if not 0 <= time_s < math.inf:
            rule = "a time >= 0 is expected, in seconds or as 250ms, 1m, 2h"
            self.fail(f"{value!r}: {rule}", param, ctx)
        return time_s
