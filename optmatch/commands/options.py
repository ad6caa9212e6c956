"""Options that several commands share: fabrics, faults, files; and what they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import click

from optmatch.commands.netlist import NETLIST_NAMES, NETLIST_OPTIONS, read_fabric
from optmatch.commands.outcome import say
from optmatch.fabrics import SWITCHES, Fabric, Faulty
from optmatch.model import Problem

_FIELDS = {"size": "n"}  # the option is named for people, the field for formulas


class Integers(click.ParamType[Any]):
    """A comma-separated list of whole numbers; if `single`, one number alone stays a number."""

    name = "integers"

    def __init__(self, *, single: bool) -> None:
        self.single = single

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | list[int]:
        """Parse the text."""
        try:
            numbers = [int(part) for part in value.split(",") if part.strip()]
        except ValueError:
            self.fail(f"{value!r}: whole numbers, separated by commas", param, ctx)
        return numbers[0] if self.single and "," not in value and numbers else numbers


_PORTS = Integers(single=True)
_LIST = Integers(single=False)
FABRIC_OPTIONS = (
    click.option(
        "--fabric",
        "type_",
        type=click.Choice([name for name in SWITCHES if name not in ("faulty", "netlist")]),
        default="hex-mesh",
        show_default=True,
    ),
    click.option("--rows", type=int, help="Rows of the mesh."),
    click.option("--cols", type=int, help="Columns of the mesh."),
    click.option(
        "--ports", type=_PORTS, help="A number, spread evenly, or a list as 0,2,5.  [default: all]"
    ),
    click.option("--tx", type=_PORTS, help="Terminals that send: a number or a list; with --rx."),
    click.option("--rx", type=_PORTS, help="Terminals that receive."),
    click.option("--size", type=int, help="Ports of a switch that is no mesh."),
)
CONDITION_OPTIONS = (
    click.option("--netlist", type=click.Path(), help="The fabric of a netlist, YAML or JSON."),
    *NETLIST_OPTIONS,
    click.option("--stuck-bar", type=_LIST, help="Cells that stay in bar: 3,14."),
    click.option("--stuck-cross", type=_LIST, help="Cells that stay in cross."),
    click.option("--dead-cells", type=_LIST, help="Cells that carry no light."),
    click.option("--dead-ports", type=_LIST, help="Ports that take part in no circuit."),
)
_FAULTS = ("stuck_bar", "stuck_cross", "dead_cells", "dead_ports")
CONDITION_NAMES = ("netlist", *NETLIST_NAMES, *_FAULTS)
FILE_OPTIONS = (
    click.option(
        "-o", "--output", type=click.Path(), default="-", show_default="stdout", help="The file."
    ),
    click.option("--force", is_flag=True, help="Replace a file that is there."),
)


def with_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Give a command several options at once, in their order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def build_fabric(type_: str, options: dict[str, Any]) -> Fabric:
    """Make the fabric that the options describe."""
    conditions = {name: options.pop(name, None) for name in CONDITION_NAMES}
    faults = {name: conditions[name] for name in _FAULTS if conditions[name] is not None}
    netlist = conditions.pop("netlist")
    if netlist is not None:
        for name in (name for name, value in options.items() if value is not None):
            raise click.UsageError(f"--{name}: no option of a netlist")
        fabric = read_fabric(netlist, conditions)
    else:
        for name in (name for name in NETLIST_NAMES if conditions[name] is not None):
            raise click.UsageError(f"--{name.replace('_', '-')}: only with --netlist")
        fabric = _build(type_, options)
    return Faulty(fabric, **faults) if faults else fabric


def _build(type_: str, options: dict[str, Any]) -> Fabric:
    """Make a fabric of ours from the options of its type."""
    if type_ in ("faulty", "netlist"):
        raise click.UsageError(f"--fabric {type_}: --netlist and faults are options of their own")
    cls = SWITCHES[type_]
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if _FIELDS.get(name, name) not in known:
            raise click.UsageError(f"--{name}: no option of {type_}")
    for name in ("rows", "cols", "size"):
        if _FIELDS.get(name, name) in known and name not in given:
            raise click.UsageError(f"--{name}: needed for {type_}")
    return cls(**{_FIELDS.get(name, name): value for name, value in given.items()})


def write_problem(problem: Problem, output: str, force: bool) -> None:
    """Write a problem to a file or to stdout."""
    from optmatch.io import dumps, save  # these load every kind, which `--help` has no need of

    if output == "-":
        click.echo(dumps(problem))
        return
    save(problem, output, force=force)
    say(f"{output}: written")
