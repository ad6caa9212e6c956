"""`optmatch generate reroute`: a running state, and a failure in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    BROKEN_CELLS,
    FABRIC_NAMES,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    LABELS,
    NUMBERS,
    build_fabric,
    count,
    number_parts,
    take,
    with_options,
    write_problem,
)
from optmatch.fabrics import RackFabric
from optmatch.io import load
from optmatch.model import InputError, Solution
from optmatch.problems import Reroute, Transition


@click.command()
@with_options(FABRIC_OPTIONS)
@click.option("--rack", is_flag=True, help="Take a rack of 64 chips, 60 of them in five jobs.")
@count("--fibres", None, "Fibres from a server of the rack to each neighbour.  [default: 8]")
@count("--busy", None, "Number of ports in use, matched at random.  [default: all but an eighth]")
@count("--seed", 0, "Seed of the matching.")
@click.option(
    "--state", type=click.Path(), help="Take the state from a file, or that after its answer."
)
@click.option("--failed-chips", type=NUMBERS, help="Chips of a rack that have failed: 3,14")
@click.option("--failed-ports", type=LABELS, help="Ports that have failed.")
@click.option("--failed-fibres", type=NUMBERS, help="Fibres of a rack that have failed.")
@with_options(BROKEN_CELLS)
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
    shape = take(options, FABRIC_NAMES)
    if state is not None:
        running = _read_state(state)
    elif rack:
        from optmatch.solvers.reroutes.states import fill_rack

        running = fill_rack(RackFabric() if fibres is None else RackFabric(fibres=fibres))
    else:
        running = _hold(build_fabric(type_, shape), busy, seed)
    given = {name: parts for name, parts in options.items() if parts}
    failed: dict[str, Any] = {
        name: (*getattr(running, name), *numbers)
        for name, numbers in number_parts(running.fabric, given).items()
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
