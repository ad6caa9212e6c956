"""`optmatch generate reroute`: a running state, and what fails in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import numpy as np

from optmatch.commands.options import (
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    Integers,
    build_fabric,
    with_options,
    write_problem,
)
from optmatch.fabrics import RackFabric
from optmatch.io import load
from optmatch.model import InputError, Solution
from optmatch.problems import Reroute, Transition

_LIST = Integers(single=False)
_FABRIC_NAMES = ("rows", "cols", "ports", "tx", "rx", "size")
_FAILURES = (
    click.option("--failed-chips", type=_LIST, help="Chips of a rack: 3,14."),
    click.option("--failed-ports", type=_LIST, help="Ports."),
    click.option("--failed-fibres", type=_LIST, help="Fibres of a rack."),
    click.option("--stuck-bar", type=_LIST, help="Cells that stay in bar."),
    click.option("--stuck-cross", type=_LIST, help="Cells that stay in cross."),
    click.option("--dead-cells", type=_LIST, help="Cells that carry no light."),
)


@click.command()
@with_options(FABRIC_OPTIONS)
@click.option("--rack", is_flag=True, help="A rack of 64 chips, 60 of them in five jobs.")
@click.option(
    "--fibres", type=click.IntRange(min=0), help="Of the rack, to each neighbour.  [default: 8]"
)
@click.option(
    "--busy",
    type=click.IntRange(min=0),
    help="Ports in use, matched at random.  [default: all but an eighth]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the matching."
)
@click.option(
    "--state", type=click.Path(), help="A state from a file, or after the answer in it, instead."
)
@with_options(_FAILURES)
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

    Failures are added to those that a --state has already.
    """
    shape = {name: options.pop(name) for name in _FABRIC_NAMES}
    if state is not None:
        running = _read_state(state)
    elif rack:
        from optmatch.solvers.reroutes.states import fill_rack

        running = fill_rack(RackFabric() if fibres is None else RackFabric(fibres=fibres))
    else:
        running = _hold(build_fabric(type_, shape), busy, seed)
    failed: dict[str, Any] = {
        name: (*getattr(running, name), *parts) for name, parts in options.items() if parts
    }
    write_problem(replace(running, **failed), output, force)


def _read_state(path: str) -> Reroute:
    found = load(path)
    if isinstance(found, Solution) and isinstance(found.problem, Reroute):
        answered = isinstance(found.answer, Transition)
        return found.problem.after(found.answer) if answered else found.problem
    if not isinstance(found, Reroute):
        raise InputError("holds no running state", path=path)
    return found


def _hold(fabric: Any, busy: int | None, seed: int) -> Reroute:
    from optmatch.solvers.reroutes.states import hold_matching

    n = fabric.n_ports
    count = n - max(2, n // 8) if busy is None else busy
    if count > n:
        raise click.UsageError(f"--busy {count}: the fabric has {n} ports")
    order = np.random.default_rng(seed).permutation(n)[: count - count % 2].reshape(2, -1)
    matching = np.full(n, -1)
    matching[order[0]] = order[1]
    if fabric.bidirectional:
        matching[order[1]] = order[0]
    return hold_matching(fabric, matching.tolist(), seed=seed)


COMMANDS = (reroute,)
