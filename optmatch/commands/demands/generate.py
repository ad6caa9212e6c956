"""`optmatch generate demand`: a matrix from a file or from a model of traffic."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from optmatch.commands.shared.options import (
    BYTES,
    CONDITION_NAMES,
    CONDITION_OPTIONS,
    FABRIC_NAMES,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    KINETO,
    LABELS,
    LENIENT,
    Duration,
    FieldOption,
    SectionedCommand,
    build_fabric,
    count,
    field_options,
    given_traces,
    say_skipped,
    take,
    with_options,
    without_none,
    write_problem,
)
from optmatch.commands.shared.outcome import say
from optmatch.fabrics import Fabric, IdealSwitch
from optmatch.model import write_amount
from optmatch.model.accounts import accounting
from optmatch.problems import Demand
from optmatch.problems.demands.matrices import name_first_ports
from optmatch.problems.demands.traffic import MODELS, draw_groups

_MODEL_OPTIONS = tuple(
    click.option(flag, type=type_, help=text)
    for flag, type_, text in (
        ("--count", int, "permutations: how many are added up.  [default: twice the ports]"),
        (
            "--bytes",
            BYTES,
            "Largest demand or weight, of zipf-moe the size of a token.  [default: 1000, 4096]",
        ),
        ("--large", int, "solstice: how many large flows a port has.  [default: 4]"),
        ("--small", int, "solstice: how many small flows a port has.  [default: 12]"),
        ("--share", float, "solstice: the part of the demand in large flows.  [default: 0.7]"),
        (
            "--noise",
            float,
            "solstice: deviation of each flow, as a part of the window.  [default: 0]",
        ),
        ("--window", Duration(), "solstice: how long the demand of a port takes.  [default: 3ms]"),
        ("--tokens", int, "zipf-moe: the tokens of a port.  [default: 1024]"),
        ("--top", int, "zipf-moe: to how many experts a token goes.  [default: 2]"),
        ("--exponent", float, "zipf-moe: how uneven the popularity of experts is.  [default: 1]"),
    )
)
_OWN_PORTS = click.option(
    "--own-ports",
    is_flag=True,
    default=None,
    help="permutations, solstice: ports may also send to themselves.",
)
_BYTES_OF_UNIT = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
"""How many bytes a number in a matrix stands for."""

_DEMAND_FIELDS = (
    FieldOption("delay_s", has_default=False),
    *("rate_bytes_per_s", "switching", "planes"),
    *("packet_bytes_per_s", "min_slot_s", "quantum_s", "objective"),
)


@click.command(cls=SectionedCommand)
@click.option(
    "--matrix",
    type=click.Path(allow_dash=True),
    help="A matrix with a row for each source: .csv .tsv .txt .npy .npz .mtx, QOBLIB or SNDlib"
    " .json, SNDlib .xml, REPETITA .demands, all also .gz; Chakra .et; - is stdin. Numbers are"
    " bytes, or in the unit of --matrix-unit.",
)
@click.option(
    "--matrix-unit",
    type=click.Choice(list(_BYTES_OF_UNIT)),
    help="The unit of the numbers in the file of --matrix.  [default: B, bytes]",
)
@with_options(KINETO)
@click.option("--name", help="The name of the matrix, where a file holds several.")
@click.option(
    "--layout",
    type=click.Choice(["numbers", "header", "index", "labelled", "edges"]),
    help="What a table of text is, where it could be two things.",
)
@click.option(
    "--transposed", is_flag=True, help="Rows of the file are destinations, and columns sources."
)
@click.option(
    "--groups",
    type=click.Path(),
    help="Traces: a JSON file with the ranks of each communicator group.",
)
@LENIENT
@click.option(
    "--model", type=click.Choice(list(MODELS)), help="Traffic to draw, without --matrix."
)
@with_options((*_MODEL_OPTIONS, _OWN_PORTS), "Parameters of --model")
@click.option(
    "--coflows",
    type=int,
    help="Put entries into so many groups at random, with weights from 1 to 10.",
)
@click.option(
    "--drop-ports",
    type=LABELS,
    help="Ports, by name or number, whose bytes are not carried, as no free port takes over.",
)
@count("--seed", 0, "Seed of the traffic and of the groups.")
@with_options(field_options(Demand, _DEMAND_FIELDS))
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@with_options(FILE_OPTIONS)
def demand(
    type_: str,
    output: str,
    force: bool,
    matrix: str | None,
    kineto: bool,
    files: tuple[str, ...],
    name: str | None,
    layout: str | None,
    transposed: bool,
    groups: str | None,
    lenient: bool,
    model: str | None,
    coflows: int | None,
    drop_ports: list[str] | None,
    seed: int,
    **options: Any,
) -> None:
    """Serve bytes from sources to destinations by a sequence of matchings.

    Without any option of a fabric, the switch is an ideal one that fits the matrix; with --size
    alone, an ideal one with so many ports.
    """
    # The bytes come from one of three sources, the others are None or empty: `matrix`, a file;
    # `model`, the name of a random model, which draws by `seed`; or, with `kineto`, the traces
    # `files`. `name`, `layout` and `transposed` say how a file of `matrix` is read; `groups` and
    # `lenient` are for traces, see `_read`. `type_` is the type of the fabric, and `output` the
    # problem file. `coflows` is the number of groups of entries, None for none. `options` are
    # those of the fabric, the parameters of the model, and the fields of the problem, by name.
    if options["delay_s"] is None and options["objective"] != "matchings":
        raise click.UsageError("--delay: how long a reconfiguration takes; 0 if no time")
    has_weights = options["objective"] == "weighted-completion-s"
    if has_weights != (coflows is not None):
        raise click.UsageError("--coflows and --objective weighted-completion-s: only together")
    traces = given_traces(kineto, files)
    if [matrix, model, traces].count(None) != 2:
        raise click.UsageError("either --matrix, --model or --kineto")

    # Options are told apart; what remains in `options` are fields of the problem.
    unit = options.pop("matrix_unit")
    if unit is not None and matrix is None:
        raise click.UsageError("--matrix-unit: only with --matrix")
    fabric_options = take(options, (*FABRIC_NAMES, *CONDITION_NAMES))
    dead_ports = fabric_options.pop("dead_ports")
    names = {key for draw in MODELS.values() for key in inspect.signature(draw).parameters}
    parameters = without_none(take(options, sorted(names - {"n", "rng", "mutual"})))
    layout_options = {"name": name, "layout": layout, "transposed": transposed}
    rng = np.random.default_rng(seed)
    is_read_with_options = any(layout_options.values()) or groups is not None or lenient
    if model is not None and is_read_with_options:
        raise click.UsageError(
            "--name, --layout, --transposed, --groups, --lenient are for --matrix"
        )

    # Without any option of a fabric it is a switch that fits the matrix.
    fabric = None
    if model is not None or without_none(fabric_options):
        fabric = build_fabric(type_, fabric_options)

    # The matrix: drawn for the fabric, or read from a file, which may name its ports.
    port_names = None
    if fabric is None or model is None:
        if parameters:
            flag = min(parameters).replace("_", "-")
            raise click.UsageError(f"--{flag}: only with --model")
        demand_bytes, port_names = read_numbers(
            matrix, files, layout_options, groups, lenient, unit
        )
    else:
        demand_bytes = _draw(model, fabric, rng, parameters)
        # Solstice draws seconds of a circuit, which are bytes at the rate of one.
        if model == "solstice" and options["rate_bytes_per_s"] is not None:
            demand_bytes = demand_bytes * options["rate_bytes_per_s"]

    # Without a fabric, `Demand.from_matrix` makes a switch that fits and has these names.
    if fabric is None:
        options["names"] = port_names
    elif port_names is not None:
        fabric = with_names(fabric, port_names)

    if drop_ports:
        demand_bytes = _drop_ports(demand_bytes, fabric, options, drop_ports)
        dead_ports = [*(dead_ports or ()), *drop_ports]

    objective = options.pop("objective")
    if coflows is None:
        problem = Demand.from_matrix(demand_bytes, fabric, objective=objective, **options)
    else:
        # Groups are drawn over the entries of the problem, so the objective, which needs them,
        # comes last.
        problem = Demand.from_matrix(demand_bytes, fabric, **options)
        group_of_entry, weights = draw_groups(problem.demand_bytes, rng, coflows)
        problem = replace(problem, objective=objective, groups=group_of_entry, weights=weights)

    write_problem(_replace_dead_ports(problem, dead_ports or []), output, force)


def _replace_dead_ports(problem: Demand, ports: list[str]) -> Demand:
    """Return a demand whose free ports have taken the places of dead ones, and say which.

    Dead ports have the names that the matrix gave them.
    """
    if not ports:
        return problem
    before = problem.fabric.labels
    problem = problem.with_dead_ports(ports)
    moved = np.flatnonzero(np.array(before) != np.array(problem.fabric.labels))
    for port in np.setdiff1d(moved, problem.fabric.dead_ports).tolist():
        say(f"{problem.fabric.labels[port]}: port {port} takes over, as its own is dead")
    return problem


def _drop_ports(
    demand_bytes: Any, fabric: Fabric | None, options: dict[str, Any], ports: list[str]
) -> NDArray[np.float64]:
    """Return ``demand_bytes[source, destination]`` of a switch without the bytes of some ports.

    `ports` are names or numbers. `options` are the fields of the demand, by name, with the `names`
    of its ports where it has no `fabric` yet.
    """
    demand = Demand.from_matrix(demand_bytes, fabric, **{**options, "objective": "completion-s"})
    dropped = [demand.fabric.find_port(port) for port in ports]
    kept_bytes = demand.demand_bytes.copy()
    kept_bytes[dropped] = 0
    kept_bytes[:, dropped] = 0
    lost_bytes = float(demand.demand_bytes.sum() - kept_bytes.sum())
    say(f"{write_amount(lost_bytes, 'B')} of dropped ports are not carried")
    return kept_bytes


def read_numbers(
    matrix: str | None,
    traces: tuple[str, ...],
    layout_options: dict[str, Any],
    groups: str | None,
    lenient: bool,
    unit: str | None,
) -> tuple[Any, tuple[str, ...] | None]:
    """Read the bytes of --matrix or of the traces of --kineto, and the names of the ports.

    The first result is ``demand_bytes[source, destination]``; the names are None where there are
    none. `matrix` is a file, or None for the files `traces`, and `groups` a file with the ranks of
    the groups that traces name. `layout_options` are ``name``, ``layout`` and ``transposed``; if
    `lenient`, what a trace does not tell is left out and listed on stderr. Numbers of a matrix are
    in `unit`, None for bytes; a trace, and a file that states its unit, are refused beside one.
    """
    from optmatch.io import read_matrix, read_traffic
    from optmatch.io.matrices import STATED_UNIT
    from optmatch.io.rails.chakra import is_trace, read_groups

    skipped: list[str] | None = [] if lenient else None
    port_names = None
    demand_bytes: Any
    if matrix is None:
        if any(layout_options.values()):
            raise click.UsageError("--name, --layout and --transposed are for --matrix")
        from optmatch.io.rails.kineto import read_kineto_demand

        ranks_of_group = None if groups is None else read_groups(groups)
        demand_bytes = read_kineto_demand(traces, ranks_of_group, skipped=skipped)
    elif (matrix != "-" and is_trace(matrix)) or groups is not None or lenient:
        if unit is not None:
            raise click.UsageError(f"--matrix-unit: {matrix} is a trace, which is in bytes")
        demand_bytes = read_matrix(matrix, groups=groups, skipped=skipped, **layout_options)
    else:
        with accounting(matrix) as account:
            numbers, port_names = read_traffic(matrix, **layout_options)
        demand_bytes = numbers * _BYTES_OF_UNIT[unit or "B"]
        for what, stated_unit, _ in account.rows():
            if what == STATED_UNIT and unit is not None:
                raise click.UsageError(
                    f"--matrix-unit {unit}: the file {matrix} says {stated_unit} already"
                )
    say_skipped(skipped)
    return demand_bytes, port_names


def with_names(fabric: Fabric, names: tuple[str, ...]) -> Fabric:
    """Give the names of a file to the first ports of a switch, if it has none of its own.

    Other fabrics have names of their own, and stderr says that those of the file are not used.
    """
    if not isinstance(fabric, IdealSwitch):
        say("the names in the file are not used: ports of this fabric have names of their own")
        return fabric
    return name_first_ports(fabric, names)


def _draw(
    model: str, fabric: Fabric, rng: np.random.Generator, options: dict[str, Any]
) -> NDArray[np.float64]:
    """Draw the bytes of a traffic model, one row and column for each port of the fabric."""
    parameters = inspect.signature(MODELS[model]).parameters
    for name in options:
        if name not in parameters:
            raise click.UsageError(f"--{name.replace('_', '-')}: no option of {model}")

    # Bidirectional ports exchange bytes in pairs.
    if "mutual" in parameters:
        options = {**options, "mutual": fabric.bidirectional}
    return MODELS[model](fabric.n_ports, rng, **options)
