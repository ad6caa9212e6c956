"""`optmatch generate reroute`: a running state, and a failure in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    FABRIC_NAMES,
    FILE_OPTIONS,
    LABELS,
    MESH_PORTS_HELP,
    NUMBERS,
    PORT_LABELS,
    FieldOption,
    SectionedCommand,
    build_fabric,
    count,
    fabric_options,
    field_options,
    listed,
    number_or_name,
    take,
    with_options,
    without_none,
    write_problem,
)
from optmatch.commands.shared.outcome import STDIN, say
from optmatch.fabrics import IdealSwitch, RackFabric
from optmatch.io import load, parse_json
from optmatch.io.text import read_bytes
from optmatch.model import InputError, Solution
from optmatch.model.files import is_stream
from optmatch.problems import Reroute, Transition
from optmatch.problems.demands.matrices import name_first_ports

_PARTS = (
    FieldOption("spares", type=listed(number_or_name, "numbers or names")),
    FieldOption("failed_chips", type=NUMBERS),
    FieldOption("failed_ports", type=LABELS),
    FieldOption("failed_fibres", type=NUMBERS),
    FieldOption("stuck_bar", type=LABELS),
    FieldOption("stuck_cross", type=LABELS),
    FieldOption("dead_cells", type=LABELS),
)

_PORTS = click.option(
    *("--ports", "--port-sides"),
    "ports",
    type=PORT_LABELS,
    metavar="LIST|FILE",
    help=f"{MESH_PORTS_HELP}  With a config_db.json: CSV with port,A,B, the sides of our ports;"
    " others are left out, and those with a name are no spares.",
)


@click.command(cls=SectionedCommand)
@with_options(fabric_options("hex-mesh", ports=_PORTS))
@click.option("--rack", is_flag=True, help="Take a rack of 64 chips, 60 of them in five jobs.")
@count("--fibres", None, "Fibres from a server of the rack to each neighbour.  [default: 8]")
@count(
    "--busy", None, "Ports of the switch in use, matched at random.  [default: all but an eighth]"
)
@count("--seed", 0, "The seed of the matching.")
@click.option(
    "--state",
    type=click.Path(),
    help="Take the state of a problem file, the state after the answer in a schedule file, or that"
    " of a config_db.json.",
)
@with_options(field_options(Reroute, _PARTS))
@with_options(FILE_OPTIONS)
def reroute(
    type_: str,
    output: str,
    force: bool,
    rack: bool,
    fibres: int | None,
    busy: int | None,
    seed: int,
    state: str | None,
    **options: Any,
) -> None:
    """Get over failures in a rack, or in a switch with cells.

    Failures are added to those that a --state has already; --spares replaces its spares.
    """
    # The running state comes from one of three sources: the file `state`; a random one of a rack
    # (`rack`), with so many `fibres` from a server to each neighbour; or a random matching of
    # `busy` ports of a switch. `options` are those of the switch, the spares, and the failed parts
    # by kind.
    shape = take(options, FABRIC_NAMES)
    is_config = state is not None and _is_config(state)
    if isinstance(shape["ports"], str) and not is_config:
        raise click.UsageError("--ports FILE: only with a config_db.json as --state")
    if state is not None and is_config:
        running: Any = _read_config(state, shape)
    elif state is not None:
        # A problem, or what its answer leads to.
        content = load(state)
        running = content.problem if isinstance(content, Solution) else content
        if not isinstance(running, Reroute):
            raise InputError("holds no running state", path=state)
        if isinstance(content, Solution) and isinstance(content.answer, Transition):
            running = running.after(content.answer)
    elif rack:
        from optmatch.solvers.reroutes.states import fill_rack

        running = fill_rack(RackFabric() if fibres is None else RackFabric(fibres=fibres))
    else:
        running = _hold_random_matching(build_fabric(type_, shape), busy, seed)

    # New failures are added to those that the state has already.
    changes = {name: parts for name, parts in options.items() if parts}
    for name in changes.keys() - {"spares"}:
        changes[name] = (*getattr(running, name), *changes[name])
    write_problem(replace(running, **changes), output, force)


def _is_config(path: str) -> bool:
    """Tell whether a file is a configuration of a SONiC switch."""
    if path == STDIN or is_stream(path):
        return False
    tree = parse_json(read_bytes(path), path)
    return isinstance(tree, dict) and ("OCS_CROSS_CONNECT" in tree or "OCS_PORT" in tree)


def _read_config(path: str, shape: dict[str, Any]) -> Reroute:
    """Return the state that a switch is in by its `config_db.json`, without failures.

    Without ``--loss`` and ``--size`` in `shape` it is an ideal switch that fits; ``--ports`` may
    be a table of sides. Its names become those of the ports, in the order of the lines, and ports
    with a name are no spares. Where ports are numbers there, their labels are their names, and
    spares stay. A table of several switches is an `InputError`.
    """
    from optmatch.io.switches.circuits import names_in_table, read_port_tables
    from optmatch.io.switches.sonic import read_running_state

    sides = None
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    if isinstance(shape["ports"], str):
        table = shape.pop("ports")
        names = names_in_table(table)
        tables = read_port_tables(table, names)
        if len(tables) > 1:
            raise InputError("a table of one switch is expected", path=table)
        sides = next(iter(tables.values()))
        labels = names or sides.names_by_label()

    # The switch of the options, or one with a port for each name; else one that fits.
    switch: Any = None
    if without_none(shape):
        switch = build_fabric("ideal-switch", shape, sides=sides)
    if labels:
        switch = name_first_ports(switch or IdealSwitch(len(labels)), labels)
    running = read_running_state(path, sides, switch)

    # A port with a name belongs to somebody, also where it has no circuit now.
    spares = [port for port in running.spares if not names or names[port].isdecimal()]
    if len(spares) < len(running.spares):
        say("named ports without a circuit are no spares, unless --spares lists them")
    return replace(running, spares=tuple(spares))


def _hold_random_matching(fabric: Any, busy: int | None, seed: int) -> Reroute:
    """Return a switch that holds a random matching, as the state from which a failure starts.

    `busy` is the number of ports in use, None for all but an eighth of them; `seed` is that of the
    matching, and of the search for its routes.
    """
    from optmatch.solvers.reroutes.states import hold_matching

    n_ports = fabric.n_ports
    n_busy = n_ports - max(2, n_ports // 8) if busy is None else busy
    if n_busy > n_ports:
        raise click.UsageError(f"--busy {n_busy}: the fabric has {n_ports} ports")

    # The first half of a random order sends to the second half.
    order = np.random.default_rng(seed).permutation(n_ports)
    n_pairs = n_busy // 2
    sources = order[:n_pairs]
    destinations = order[n_pairs : 2 * n_pairs]
    matching = np.full(n_ports, -1)
    matching[sources] = destinations
    if fabric.bidirectional:
        matching[destinations] = sources
    return hold_matching(fabric, matching.tolist(), seed=seed)
