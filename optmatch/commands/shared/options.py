"""Options that several commands share, and the fabrics, faults and files that they make."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from decimal import Decimal, InvalidOperation, Overflow
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import click
import numpy as np
from click.core import ParameterSource

from optmatch.commands.shared.outcome import (
    IS_QUIET,
    STDIN,
    hint_of_unit,
    read,
    say,
    say_remarks,
    say_written,
)
from optmatch.fabrics import SWITCHES, Fabric, Faulty
from optmatch.model import CellDevice, Problem, Solution, write_amount
from optmatch.model.declarations import Array, Choice, Mapped, Plain, Word, forms_of, meanings_of
from optmatch.model.files import is_stream


class FieldOption(NamedTuple):
    """How users type a field of a problem, where its name and declaration do not say it.

    Attributes
    ----------
    field
        The name of the field.
    flag
        The option; empty for the one that follows from the name, see `flag_of_field`.
    type
        The type of click; None for the one that follows from the declaration.
    is_flag
        Whether the option stands alone, as ``--two-way``, and means true.
    has_default
        False where the command has no default though the field has one.
    default
        The default of the command where it is another one than that of the field.
    """

    field: str
    flag: str = ""
    type: Any = None
    is_flag: bool = False
    has_default: bool = True
    default: Any = None


RAIL_FIELDS = (
    *("ports_per_gpu", "port_bytes_per_s", "scale_up_bytes_per_s", "latency_s", "radix"),
    *("delay_s", "switching"),
)
"""The network of a job, modelled or recorded."""

# Endings of fields with a unit, and what an option says in their place.
_ENDINGS = (
    ("rate_bytes_per_s", "rate"),
    ("_bytes_per_s", "_rate"),
    ("_per_s", ""),
    ("_bytes", ""),
    ("_s", ""),
)


def flag_of_field(name: str) -> str:
    """Return the option of a field: its name without the unit, and without ``n_`` of a number.

    Examples
    --------
    >>> flag_of_field("port_bytes_per_s"), flag_of_field("delay_s"), flag_of_field("n_hosts")
    ('--port-rate', '--delay', '--hosts')
    """
    words = name.removeprefix("n_")
    for ending, replacement in _ENDINGS:
        if words.endswith(ending):
            words = words.removesuffix(ending) + replacement
            break
    return "--" + words.replace("_", "-")


def _help_of_field(meaning: str, flag_of: Mapping[str, str]) -> str:
    """Return the help of an option: the first sentence of what a docstring says of its field.

    A sentence "None: ..." is the default of the option, and fields that it names in backticks
    become their options by `flag_of`.

    Examples
    --------
    >>> _help_of_field("Heads of keys. None: as many as `heads`. Queries share.", {"heads": "-n"})
    'Heads of keys.  [default: as many as -n]'
    """

    def name_option(match: re.Match[str]) -> str:
        """Return the option of a field that a sentence names, or the name where there is none."""
        return flag_of.get(match[1], match[1])

    meaning = re.sub(r"`(\w+)`", name_option, meaning.replace("``", ""))

    # A semicolon ends the sentence with the default too, but not that of the help.
    sentences = re.split(r"(?<=[.;])\s+", meaning)
    help_text = re.split(r"(?<=\.)\s+", meaning)[0]
    for sentence in sentences:
        if sentence.startswith("None: "):
            help_text += f"  [default: {sentence.removeprefix('None: ').rstrip('.;')}]"
    return help_text


def field_options(
    cls: Any, rows: Sequence[str | FieldOption], *, optional: bool = False
) -> list[Any]:
    """Make options of the command line from the fields of a data class.

    `cls` is the class, and the result has an option of click for each of `rows`, in this order.
    These are names of fields, or records with what differs from the declaration. A field
    ``delay_s`` becomes ``--delay``; type, range and default are those of the field, and the help
    is the first sentence of its description. With `optional`, an option may be missing though its
    field has no default: the command has another way to know it.
    """
    default_of_field = {field.name: field.default for field in fields(cls)}
    typed_fields = [FieldOption(row) if isinstance(row, str) else row for row in rows]
    flag_of = {typed.field: typed.flag or flag_of_field(typed.field) for typed in typed_fields}
    options = []
    for typed in typed_fields:
        name = typed.field
        text = _help_of_field(meanings_of(cls).get(name, ""), flag_of)
        if typed.is_flag:
            options.append(click.option(flag_of[name], name, is_flag=True, help=text))
            continue

        # Rates and durations may have units.
        option_type = typed.type or type_of_field(cls, name)
        if option_type is RATE:
            text = text.replace("bytes per second", "bytes per second or as 100Gbit/s", 1)
        elif isinstance(option_type, Duration):
            text = text.replace(", in seconds", ", in seconds or as 20us", 1)

        # The default, which the help shows as a user would type it: lists with commas. A field
        # without a default makes the option a required one.
        default: Any = default_of_field[name]
        is_required = default is MISSING
        if is_required:
            default = None
        elif isinstance(default, tuple | Mapping):
            default = ",".join(default)
        if not typed.has_default:
            default = None
        if typed.default is not None:
            default = typed.default

        # The help ends with the default.
        if default is not None and default != "":
            text += f"  [default: {_write_default(default, option_type)}]"
        option = click.option(
            flag_of[name],
            name,
            type=option_type,
            required=is_required and not optional,
            default=default,
            show_default=False,
            help=text,
        )
        options.append(option)
    return options


def type_of_field(cls: Any, name: str) -> Any:
    """Return the type of click for a field of a data class.

    Times, rates and bytes are typed in their unit or with another one. A `TypeError` says that an
    option of a field of another form has to name its type.
    """
    # Of a choice between forms the first counts, and of a mapping the form of its entries.
    form = forms_of(cls)[name]
    while isinstance(form, Choice):
        form = form.parts[0]
    if isinstance(form, Mapped):
        form = form.part
    if isinstance(form, Array) and cls is CellDevice:
        form = Plain(float)  # one number for all cells
    if isinstance(form, Word):
        return click.Choice(form.options)
    if not isinstance(form, Plain):
        raise TypeError(f"{form}: an option of this form needs a type")
    if form.type is not float:
        return form.type

    # The unit of a number is the end of its name.
    if name.endswith("bytes_per_s"):
        return RATE
    if name.endswith("_bytes"):
        return BYTES
    if name.endswith("_s") and not name.endswith("_per_s"):
        return Duration()
    return float


def _write_default(default: Any, option_type: Any) -> str:
    """Write a default for help, as a user would type it.

    Rates from 0.8 Gbit/s on are written as 400Gbit/s, times with the unit in which they are at
    least 1, as 20us.
    """
    if option_type is RATE and default >= 1e8:
        return f"{default * 8 / 1e9:g}Gbit/s"
    if isinstance(option_type, Duration):
        for unit, units_per_s in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
            if default * units_per_s >= 1:
                return f"{default * units_per_s:g}{unit}"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)


class Parsed(click.ParamType):  # type: ignore[type-arg] # no generic class before click 8.3.2
    """What a function reads from a text; where that raises `ValueError`, the rule is the message.

    The name stands in help where an option names no other metavar.
    """

    def __init__(self, name: str, read: Callable[[str], Any], rule: str) -> None:
        self.name = name
        self.read = read
        self.rule = rule

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text, or a default."""
        try:
            return self.read(str(value))
        except ValueError:
            self.fail(f"{value!r:.200}: {self.rule}", param, ctx)


def listed(read: Callable[[str], Any], what: str, *, single: bool = False) -> Parsed:
    """Return the type of values between commas, each read by a function.

    The function may raise `ValueError`. If `single`, one value without a comma is no list.
    """

    def read_list(text: str) -> Any:
        """Read the values, empty ones aside."""
        values = [read(part.strip()) for part in text.split(",") if part.strip()]
        if single and "," not in text and values:
            return values[0]
        return values

    return Parsed("list", read_list, f"{what}, separated by commas")


def pair(
    sign: str, first: Callable[[str], Any], second: Callable[[str], Any]
) -> Callable[[str], tuple[Any, Any]]:
    """Return a function that reads a pair such as ``63=0.01``.

    It returns both parts, cut at the sign, and raises `ValueError` without the sign, or if a part
    cannot be read.
    """

    def read_pair(text: str) -> tuple[Any, Any]:
        """Cut a text at the sign and read both parts; without the sign it is no pair."""
        key, separator, value = text.partition(sign)
        if not separator:
            raise ValueError(text)
        return first(key.strip()), second(value.strip())

    return read_pair


def _read_amount(text: str, factor_of_unit: Mapping[str, Decimal]) -> float:
    """Return the value of a text: a number, perhaps with one of the units, each with its factor.

    Anything else is a ``ValueError``. Factors are decimal: 20us is the float that 20e-6 is.
    """
    parts = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?) *([a-zA-Zµ/]+)", text.strip())
    try:
        amount = float(Decimal(parts[1]) * factor_of_unit[parts[2]]) if parts else float(text)
    except (KeyError, InvalidOperation, Overflow):  # as 3 furlongs, 1.2.3s, or 9e999999h
        raise ValueError(text) from None

    # A plain number may be nan or inf, and one with a unit too large for a float.
    if not math.isfinite(amount):
        raise ValueError(text)
    return amount


_UNITS_S = {
    **{"ps": Decimal("1e-12"), "ns": Decimal("1e-9"), "us": Decimal("1e-6")},
    **{"µs": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1), "m": Decimal(60)},
    **{"min": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)},
}
_PREFIXES = {
    **{"": Decimal(1), "k": Decimal("1e3"), "K": Decimal("1e3"), "M": Decimal("1e6")},
    **{"G": Decimal("1e9"), "T": Decimal("1e12")},
}
"""The factor of each prefix of a unit of bytes or of rates."""
_UNITS_OF_BYTES = {
    **{f"{prefix}B": factor for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}iB": Decimal(1024) ** k for k, prefix in enumerate("kMGT", 1)},
    "KiB": Decimal(1024),
}
_UNITS_OF_RATES = {
    f"{prefix}{unit}{per}": factor / bits
    for prefix, factor in _PREFIXES.items()
    for unit, bits in (("b", 8), ("bit", 8), ("bits", 8), ("B", 1), ("byte", 1), ("bytes", 1))
    for per in ("/s", "ps")
} | {f"{unit}/s": factor for unit, factor in _UNITS_OF_BYTES.items()}


def read_seconds(text: str) -> float:
    """Return the seconds of a text: a number >= 0 and perhaps its unit, in capitals or not.

    Anything else is a ``ValueError``.

    Examples
    --------
    >>> read_seconds("20us"), read_seconds("1.5e-3"), read_seconds("2 h")
    (2e-05, 0.0015, 7200.0)
    """
    time_s = _read_amount(text.lower(), _UNITS_S)
    if time_s < 0:
        raise ValueError(text)
    return time_s


def read_rate(text: str) -> float:
    """Return the bytes per second of a text: a number, perhaps with a unit.

    In it ``b`` is a bit and ``B`` a byte, and prefixes are powers of 1000, those of ``GiB/s`` of
    1024. Anything else is a ``ValueError``.

    Examples
    --------
    >>> read_rate("100Gbit/s"), read_rate("12.5 GB/s"), read_rate("12.5e9"), read_rate("2GiB/s")
    (12500000000.0, 12500000000.0, 12500000000.0, 2147483648.0)
    """
    return _read_amount(text, _UNITS_OF_RATES)


def _read_bytes_of(text: str) -> float:
    """Return the bytes of a text: a number, perhaps with the unit ``B`` and a prefix.

    The prefixes k, M, G and T are powers of 1000, Ki, Mi, Gi and Ti of 1024. Anything else is a
    ``ValueError``.

    Examples
    --------
    >>> _read_bytes_of("100MB"), _read_bytes_of("4 MiB"), _read_bytes_of("1e6")
    (100000000.0, 4194304.0, 1000000.0)
    """
    return _read_amount(text, _UNITS_OF_BYTES)


class Duration(Parsed):
    """Seconds, or a number with its unit: 20us, 250ms, 2h; or what a journal has measured.

    The text of a journal is such as ``measured:p99:play.jsonl``: p50, p99 or longest of the delays
    that `optmatch play` has noted there, and the file.
    """

    def __init__(self) -> None:
        super().__init__(
            "duration",
            read_seconds,
            "a time >= 0 is expected, in seconds or with its unit, as 20us, 250ms, 1m, 2h",
        )

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return seconds >= 0."""
        if not str(value).startswith("measured:"):
            return super().convert(value, param, ctx)
        from optmatch.switches import measured_delays

        match = re.fullmatch(r"measured:(p50|p99|longest):(.+)", str(value))
        if match is None:
            self.fail(
                f"{value!r}: measured:p50:JOURNAL, measured:p99: or longest: expected", param, ctx
            )
        delays = measured_delays(match[2])
        if delays.is_rehearsal:
            say(f"{match[2]}: the journal of a rehearsal (dry:), whose delays are of no switch")
        return float(getattr(delays, f"{match[1]}_s"))


RATE = Parsed(
    "rate",
    read_rate,
    "a rate is expected, in bytes per second or with its unit, as 100Gbit/s, 10Gb/s,"
    " 400Mbit/s, 12.5GB/s, 50MB/s",
)
BYTES = Parsed(
    "bytes",
    _read_bytes_of,
    "a number of bytes is expected, or one with its unit, as 100MB, 4MiB",
)


NETLIST_OPTIONS = (
    click.option(
        "--pins",
        type=listed(pair("=", str, str), "name=pin"),
        help="Netlist: names of pins, as w1=a1,w2=a2,e1=b1,e2=b2.  [default: known ones]",
    ),
    click.option(
        "--component",
        "components",
        type=listed(pair("=", str, str), "name=kind"),
        help="Netlist: the kind of each component, as tap=pass,x=switch.  [default: known ones]",
    ),
    click.option(
        "--open-pins", is_flag=True, default=None, help="Netlist: allow pins that lead nowhere."
    ),
    click.option(
        "--directed/--bidirectional",
        default=None,
        help="Netlist: ports in... send to ports out..., or each does both.  [default: by their"
        " names]",
    ),
    click.option(
        "--leave-out",
        type=listed(str, "names"),
        help="Netlist: parts and ports that are no part of the fabric, by name.",
    ),
)
NETLIST_PORT_OPTIONS = (
    click.option("--tx", type=listed(str, "names"), help="Ports that send, by name; with --rx."),
    click.option("--rx", type=listed(str, "names"), help="Ports that receive, by name."),
)
"""For commands that take a netlist and no fabric of ours, whose options have the same names."""

_NETLIST_NAMES = ("pins", "components", "open_pins", "directed", "leave_out")


def _read_fabric(file: str, options: dict[str, Any]) -> Fabric:
    """Read a netlist of gdsfactory.

    `options` may have the values of `NETLIST_OPTIONS` and `NETLIST_PORT_OPTIONS`: names of pins
    and kinds of components as pairs, and the names of the ports that send (`tx`) and receive
    (`rx`).
    """
    from optmatch.io.netlists.gdsfactory import read_netlist

    arguments: dict[str, Any] = {}
    for name in (*_NETLIST_NAMES, "tx", "rx"):
        value = options.get(name)
        if value is None:
            continue
        if name in ("pins", "components"):
            value = dict(value)
        elif name in ("tx", "rx"):
            # One port alone is no list, and a number is a name here.
            ports = value if isinstance(value, list) else [value]
            value = [str(port) for port in ports]
        arguments[name] = value
    return read_netlist(file, **arguments)


def read_fabric_and_content(
    file: str, options: dict[str, Any]
) -> tuple[Fabric | None, Problem | Solution | None]:
    """Return the fabric of a netlist, a problem or a solution, and the latter; None without one.

    A pipe, which can be read but once, has no netlist.
    """
    if not (file == STDIN or is_stream(file)):
        # Problems and schedules are JSON with the key ``format``; all else may be a netlist.
        from optmatch.io.text import read_bytes

        try:
            tree = json.loads(read_bytes(file))
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict) or "format" not in tree:
            return _read_fabric(file, options), None

    content = read(file)
    problem = content.problem if isinstance(content, Solution) else content
    return problem.fabric, content


# Options that have another name than their field, which formulas use.
_FIELD_OF_OPTION = {
    "size": "n",
    "loss": "loss_db",
    "budget": "budget_db",
    "bidirectional_ports": "bidirectional",
}


def count(flag: str, default: int | None, text: str, *, least: int = 0) -> Callable[[Any], Any]:
    """Make an option for a whole number."""
    return click.option(flag, type=click.IntRange(min=least), default=default, help=text)


def _read_names(text: str) -> list[str]:
    """Read different names between commas; else it is a `ValueError`."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names or len(set(names)) < len(names):
        raise ValueError(text)
    return names


NAMES = Parsed("names", _read_names, "different names, separated by commas")
NUMBERS = listed(int, "whole numbers")
MESH_PORTS_HELP = "Bidirectional ports of a mesh: a number, or a list as 0,2,5.  [default: all]"
_MESH_PORTS = click.option(
    "--ports", type=listed(int, "whole numbers", single=True), help=MESH_PORTS_HELP
)


def number_or_name(text: str) -> int | str:
    """Read a number, or else the name of a port or a cell."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else text


LABELS = listed(str, "numbers or names")
PORT_LABELS = listed(number_or_name, "numbers or names", single=True)
AMOUNTS = listed(float, "numbers")
FORCE = click.option("--force", is_flag=True, help="Replace a file that is there.")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object, on one line.")
JSON_LINES = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object for each file, on a line."
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
EXECUTOR_OPTIONS = (
    click.option(*("-j", "--jobs"), type=click.IntRange(min=1), help="Processes of this machine."),
    click.option(
        "--dask",
        metavar="ADDRESS|local",
        help="Workers of Dask: the address or file of a scheduler, or workers started here.",
    ),
)
FABRICS_BY_SIZE = [name for name in SWITCHES if name not in ("faulty", "netlist")]


def fabric_options(
    default: str | None,
    text: str = "The type of the switch.",
    ports: Callable[[Any], Any] = _MESH_PORTS,
) -> Sequence[Callable[[Any], Any]]:
    """Make the options from which `build_fabric` makes a fabric.

    `default` is the type where ``--fabric`` is missing, None if there is no fabric then; `text` is
    the help of that option, and `ports` the option ``--ports``.
    """
    types = click.Choice(FABRICS_BY_SIZE)
    return (
        click.option("--fabric", "type_", type=types, default=default, help=text),
        click.option("--rows", type=int, help="The rows of a mesh."),
        click.option("--cols", type=int, help="The columns of a mesh."),
        ports,
        click.option(
            "--tx",
            type=PORT_LABELS,
            help="Terminals that send, a number or a list, or names of a netlist; with --rx.",
        ),
        click.option("--rx", type=PORT_LABELS, help="Terminals that receive, or names."),
        click.option("--size", type=int, help="The number of ports of a switch that is no mesh."),
        click.option(
            "--bidirectional-ports",
            is_flag=True,
            default=None,
            help="Circuits of an ideal switch join two ports both ways.",
        ),
        click.option(
            "--loss",
            metavar="FILE|URL",
            help="Loss of each circuit of an ideal switch in dB: a matrix, or SONiC's table.",
        ),
        click.option(
            "--loss-at",
            type=listed(float, "THz and degrees Celsius"),
            metavar="THZ[,CELSIUS]",
            help="Where to take losses that were measured at several points.  [default: worst]",
        ),
        click.option(
            "--budget",
            type=listed(float, "numbers in dB", single=True),
            help="The most that a circuit may lose, in dB: one number, or one for each port.",
        ),
    )


FABRIC_OPTIONS = fabric_options("hex-mesh")
FABRIC_NAMES = (
    *("rows", "cols", "ports", "tx", "rx", "size", "bidirectional_ports"),
    *("loss", "loss_at", "budget"),
)
_BROKEN_CELLS = (
    click.option("--stuck-bar", type=LABELS, help="Cells that stay in bar: 3,14."),
    click.option("--stuck-cross", type=LABELS, help="Cells that stay in cross."),
    click.option("--dead-cells", type=LABELS, help="Cells that carry no light."),
)
CONDITION_OPTIONS = (
    click.option(
        "--netlist", type=click.Path(), help="Take the fabric of a netlist file, in YAML or JSON."
    ),
    *NETLIST_OPTIONS,
    *_BROKEN_CELLS,
    click.option("--dead-ports", type=LABELS, help="Ports that take part in no circuit."),
)
_FAULTS = ("stuck_bar", "stuck_cross", "dead_cells", "dead_ports")
CONDITION_NAMES = ("netlist", *_NETLIST_NAMES, *_FAULTS)


FILE_OPTIONS = (
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        default="-",
        show_default="stdout",
        help="The file.",
    ),
    FORCE,
    click.option(
        *("-q", "--quiet"),
        is_flag=True,
        expose_value=False,
        callback=lambda ctx, _, quiet: ctx.meta.update({IS_QUIET: quiet}),
        help="Do not say what was written; warnings stay.",
    ),
)


def with_options(
    options: Sequence[Callable[[Any], Any]], section: str | None = None
) -> Callable[[Any], Any]:
    """Give a command several options at once, in their order.

    A `SectionedCommand` lists them in the named section of its help, or in the first one.
    """

    def decorate(command: Any) -> Any:
        """Add all options to the function of a command, and note their section."""
        for option in reversed(options):
            command = option(command)
            # click collects options on the function until the command is made of it, last first.
            _SECTIONS[command.__click_params__[-1]] = section
        return command

    return decorate


_SECTIONS: WeakKeyDictionary[click.Parameter, str | None] = WeakKeyDictionary()
"""The section of the help in which an option is listed, where it is not the first one."""


_SECTION_OF_NAME = {
    **dict.fromkeys(("type_", *FABRIC_NAMES), "Fabric"),
    **dict.fromkeys(CONDITION_NAMES, "Fabric: netlists and faults"),
    **dict.fromkeys(("output", "force", "as_json", "quiet", "verbose", "help"), "Output"),
}
"""Sections of options that many commands share, in the order in which they end the help."""


class SectionedCommand(click.Command):
    """A command whose help lists its options in sections: its own ones, and those that it shares.

    Sections of its own are in the order of their first options. Those of the fabric and of output,
    what is printed and written, come last.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections.

        `_SECTIONS` has the section of an option that a command has placed, and `_SECTION_OF_NAME`
        that of a shared one by its name; all others stand under "Options".
        """
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        shared: dict[str, list[tuple[str, str]]] = {name: [] for name in _SECTION_OF_NAME.values()}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or not isinstance(param, click.Option):
                continue
            section = _SECTIONS.get(param)
            if section is None and param.name in _SECTION_OF_NAME:
                shared[_SECTION_OF_NAME[param.name]].append(record)
            else:
                sections.setdefault(section or "Options", []).append(record)
        for name, records in (sections | shared).items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def take(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take options out of a dictionary; those that are not in it are None."""
    return {name: options.pop(name, None) for name in names}


@contextmanager
def executing(jobs: int | None, dask: str | None) -> Iterator[Any]:
    """Start the workers that `EXECUTOR_OPTIONS` ask for, and stop them at the end.

    They are a client of Dask, processes of this machine, or None if all is to run in this process.
    """
    if dask is not None:
        from optmatch.sweeps.processes import dask_client

        with dask_client(dask, jobs) as client:
            yield client
    elif jobs is not None:
        from optmatch.sweeps.processes import Processes

        executor = Processes(jobs)
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)
    else:
        yield None


def build_fabric(type_: str, options: dict[str, Any], *, sides: Any = None) -> Fabric:
    """Make the fabric that the options of a command describe, with its faults.

    `type_` is a name such as ``"hex-mesh"``, which has no effect where a netlist is given, and
    `options` are those of the command by name, None where not set. The options of fabric, netlist
    and faults are removed from it. Options that do not belong together are a usage error. `sides`
    are those of the ports whose losses are read, a `PortTable`; None: as they are numbered.
    """
    # The default type may be a mesh, which has no size: a size means an ideal switch.
    source = click.get_current_context().get_parameter_source("type_")
    if options.get("size") is not None and source is ParameterSource.DEFAULT:
        type_ = "ideal-switch"

    # Options are taken out group by group, so that a command is left with those of its problem.
    shape = without_none(take(options, FABRIC_NAMES))
    netlist = options.pop("netlist", None)
    netlist_options = without_none(take(options, _NETLIST_NAMES))
    faults = without_none(take(options, _FAULTS))

    if netlist is not None:
        for name in shape.keys() - {"tx", "rx"}:
            raise click.UsageError(f"--{name}: no option of a netlist")
        fabric = _read_fabric(netlist, netlist_options | shape)
    else:
        for name in netlist_options:
            raise click.UsageError(f"--{name.replace('_', '-')}: only with --netlist")

        # A file of losses becomes their matrix in dB, which has the size of the switch. They may
        # be those at a frequency in THz, and perhaps degrees Celsius.
        point = shape.pop("loss_at", ())
        if point and "loss" not in shape:
            raise click.UsageError("--loss-at: only with --loss")
        if len(point) > 2:
            raise click.UsageError("--loss-at: a frequency in THz, and perhaps degrees Celsius")
        if "loss" in shape:
            from optmatch.io.switches.sonic import Conditions
            from optmatch.switches import read_losses

            shape["loss"] = read_losses(shape["loss"], sides, Conditions(*point))
            shape.setdefault("size", len(shape["loss"]))
        fabric = _build_by_size(type_, shape)
    # Faults name cells and ports of the whole fabric, so they come last.
    if faults:
        return Faulty(fabric, **faults)
    return fabric


def without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set."""
    return {name: value for name, value in options.items() if value is not None}


def _build_by_size(type_: str, shape: dict[str, Any]) -> Fabric:
    """Make a fabric without faults from its type and the options that are set.

    `shape` has these by name, as ``{"rows": 4, "cols": 5}``. One that does not belong to the type,
    or that it lacks, is a usage error.
    """
    accepted = _accepted_options(type_)
    for name in shape:
        if name not in accepted:
            other_fabrics = [
                other for other in FABRICS_BY_SIZE if name in _accepted_options(other)
            ]
            raise click.UsageError(
                f"--{name.replace('_', '-')}: no option of {type_}; --fabric"
                f" {', '.join(other_fabrics)} take it"
            )
    for name in ("rows", "cols", "size"):
        if name in accepted and name not in shape:
            example = f"--{name} 9"
            if type_ == "hex-mesh" and isinstance(shape.get("ports"), int):
                side = max(4, math.ceil(shape["ports"] / 4) + 1)  # as docs/concepts.md says
                example = f"--rows {side} --cols {side}, enough for all pairs of its ports"
            raise click.UsageError(f"--{name}: needed for {type_}, as {example}")
    arguments = {_FIELD_OF_OPTION.get(name, name): value for name, value in shape.items()}
    return SWITCHES[type_](**arguments)


def _accepted_options(type_: str) -> set[str]:
    """Return the options of the sizes of a fabric: the names of its fields, as users type them."""
    option_of_field = {field: option for option, field in _FIELD_OF_OPTION.items()}
    names = [field.name for field in fields(SWITCHES[type_])]  # type: ignore[arg-type]
    return {option_of_field.get(name, name) for name in names}


LENIENT = click.option(
    "--lenient",
    is_flag=True,
    help="Traces: leave out what a cut or old one does not tell, and list it.",
)
KINETO = (
    click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path()),
    click.option("--kineto", is_flag=True, help="FILEs are of PyTorch's profiler, one a rank."),
)


def given_traces(kineto: bool, files: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the traces that a command reads.

    Without files it is None; ``--kineto`` says that files are traces. One without the other is a
    usage error.
    """
    if kineto and not files:
        raise click.UsageError("--kineto: name the FILEs of the traces, one a rank")
    if files and not kineto:
        hint = hint_of_unit(files[0], click.get_current_context())
        raise click.UsageError(
            hint
            or f"{files[0]}: FILEs are traces, which --kineto reads; a matrix is read by"
            f" --matrix {files[0]}"
        )
    return files or None


# A trace may lack its whole beginning, and then thousands of entries are left out.
_MAX_LISTED = 20


def say_skipped(skipped: Sequence[str] | None) -> None:
    """Write on stderr what was left out of a trace; None if nothing may be left out."""
    if skipped is None:
        return
    for entry in skipped[:_MAX_LISTED]:
        say(f"left out: {entry}")
    if len(skipped) > _MAX_LISTED:
        say(f"left out: {len(skipped)} in all")


def write_problem(problem: Problem, output: str, force: bool) -> None:
    """Write a problem to a file, and say on stderr what it is and what is unusual.

    In a sweep, whose context has a list of problems, it is added to that list instead.
    """
    from optmatch.io import dumps, save  # these load every kind, which `--help` has no need of

    say_remarks(problem, output)
    problems_of_sweep = click.get_current_context().find_object(list)
    if problems_of_sweep is not None:
        problems_of_sweep.append(problem)
        return
    if output == "-":
        click.echo(dumps(problem))
        return
    save(problem, output, force=force)
    say_written(output, f": {describe_problem(problem)}")


def describe_problem(problem: Problem) -> str:
    """Say in a line what a problem asks, how much it moves, and what no answer can beat.

    The parts are the question, entries and bytes of a demand (or the size of a collective), rate,
    delay and lower bound, as far as the problem has them.
    """
    question, bound = problem.summary().splitlines()
    parts = [question]
    demand_bytes = getattr(problem, "demand_bytes", None)
    if isinstance(demand_bytes, np.ndarray):
        n_entries = np.count_nonzero(demand_bytes)
        parts.append(f"{n_entries} entries, {write_amount(float(demand_bytes.sum()), 'B')}")
        own_bytes = float(np.trace(demand_bytes))
        if own_bytes:
            parts.append(f"{write_amount(own_bytes, 'B')} of them from ports to themselves")
    elif getattr(problem, "size_bytes", None) is not None:
        parts.append(write_amount(problem.size_bytes, "B"))  # type: ignore[attr-defined]

    # Rate and delay of the switch.
    rate_bytes_per_s = getattr(problem, "rate_bytes_per_s", None)
    if rate_bytes_per_s is not None:
        parts.append(f"rate {write_amount(rate_bytes_per_s, 'B')}/s")
    delay_s = getattr(getattr(problem, "network", problem), "delay_s", None)
    if delay_s is not None:
        delay = "of its cells" if delay_s == "cells" else write_amount(delay_s, "s")
        parts.append(f"delay {delay}")
    return ", ".join([*parts, bound])


def draw_ports(n: int, pairs: bool, seed: int) -> list[int]:
    """Draw a random matching of n ports as ``matching[source] = destination``.

    Ports are exchanged in pairs, where one of an odd number is idle (-1), or permuted so that none
    meets itself.
    """
    rng = np.random.default_rng(seed)
    permutation = rng.permutation(n)
    if pairs:
        # Neighbours in the random order become partners.
        partners = permutation[: n - n % 2].reshape(-1, 2)
        matching = np.full(n, -1)
        matching[partners] = partners[:, ::-1]
        return [int(port) for port in matching]

    # A random permutation has no fixed point with probability 1/e: about three draws are enough.
    while n > 1 and (permutation == np.arange(n)).any():
        permutation = rng.permutation(n)
    return [int(port) for port in permutation]
