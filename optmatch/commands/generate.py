"""`optmatch generate`: write a problem file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import click
import numpy as np

from optmatch.commands.groups import LaterGroup
from optmatch.commands.netlist import NETLIST_NAMES, NETLIST_OPTIONS, read_fabric
from optmatch.commands.outcome import say
from optmatch.fabrics import SWITCHES, Fabric, Faulty
from optmatch.io import dumps, save
from optmatch.model import Problem
from optmatch.problems import AllToAll, Routing

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


@click.group(
    cls=LaterGroup,
    later={
        "all-to-all": "optmatch.commands.generate:all_to_all",
        "routing": "optmatch.commands.generate:routing",
        "demand": "optmatch.commands.generate_demand:demand",
        "rail-job": "optmatch.commands.generate_rails:rail_job",
        "rail-trace": "optmatch.commands.generate_trace:rail_trace",
        "reroute": "optmatch.commands.generate_reroute:reroute",
        "slice-allocation": "optmatch.commands.generate_slices:slice_allocation",
    },
)
def generate() -> None:
    """Write a problem file."""


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@click.option(
    "--slot", "slot_s", type=float, default=1.0, show_default=True, help="Seconds per matching."
)
@click.option(
    "--delay",
    "delay_s",
    type=float,
    default=0.0,
    show_default=True,
    help="Seconds to reconfigure.",
)
@with_options(FILE_OPTIONS)
def all_to_all(
    type_: str, output: str, force: bool, slot_s: float, delay_s: float, **options: Any
) -> None:
    """Every pair of ports once, in the fewest matchings."""
    write_problem(
        AllToAll(build_fabric(type_, options), slot_s=slot_s, delay_s=delay_s), output, force
    )


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@click.option(
    "--matching", type=Integers(single=False), help="Destinations by source, -1 idle: 1,0,3,2"
)
@click.option("--random-matching", is_flag=True, help="A random matching of all ports.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the random matching.",
)
@click.option(
    "--objective",
    type=click.Choice(["total-cells", "worst-cells", "loss-db"]),
    default="total-cells",
    show_default=True,
)
@click.option(
    "--bar-loss-db", type=float, default=0.48, show_default=True, help="Of one cell, for loss-db."
)
@click.option(
    "--cross-loss-db",
    type=float,
    default=0.48,
    show_default=True,
    help="Of one cell, for loss-db.",
)
@with_options(FILE_OPTIONS)
def routing(
    type_: str,
    output: str,
    force: bool,
    matching: list[int] | None,
    random_matching: bool,
    seed: int,
    objective: Any,
    bar_loss_db: float,
    cross_loss_db: float,
    **options: Any,
) -> None:
    """One matching, to be routed through the cells."""
    if (matching is None) == (not random_matching):
        raise click.UsageError("either --matching or --random-matching")
    fabric = build_fabric(type_, options)
    problem = Routing(
        fabric,
        draw_matching(fabric, seed) if matching is None else matching,  # type: ignore[arg-type]
        objective=objective,
        bar_loss_db=bar_loss_db,
        cross_loss_db=cross_loss_db,
    )
    write_problem(problem, output, force)


def draw_matching(fabric: Fabric, seed: int) -> list[int]:
    """Draw a matching of all ports; of an odd number of bidirectional ports one stays idle.

    Parameters
    ----------
    fabric
        The switch.
    seed
        Of the random numbers.

    Returns
    -------
    list of int
        ``matching[source] = destination``; no port meets itself, unless it is alone.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> sorted(draw_matching(IdealSwitch(4), seed=1))
    [0, 1, 2, 3]
    """
    return draw_ports(fabric.n_ports, fabric.bidirectional, seed)


def draw_ports(n: int, pairs: bool, seed: int) -> list[int]:
    """Draw a matching of n ports, which exchanges them in pairs or has inputs and outputs."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    matching = np.full(n, -1)
    if pairs:
        two = order[: n - n % 2].reshape(-1, 2)
        matching[two[:, 0]], matching[two[:, 1]] = two[:, 1], two[:, 0]
    else:
        while (
            n > 1 and (order == np.arange(n)).any()
        ):  # one draw in e has no port that meets itself
            order = rng.permutation(n)
        matching = order
    return [int(port) for port in matching]


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
    if output == "-":
        click.echo(dumps(problem))
        return
    save(problem, output, force=force)
    say(f"{output}: written")
