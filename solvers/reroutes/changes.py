"""From a plan to the transition that carries it out: ports, routes, and the steps in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Transition
from optmatch.problems.reroutes.transition import RAISE, SET
from optmatch.solvers.reroutes.board import Board
from optmatch.solvers.reroutes.naming import name_paths
from optmatch.solvers.reroutes.repair import Case, Plan
from optmatch.solvers.reroutes.steps import Step, Way, order_steps

Path = NDArray[np.int32]


def make_transition(board: Board, case: Case, plan: Plan) -> Transition:
    """Name the ports and fibres of a plan, and order its changes.

    Parameters
    ----------
    board
        The state, with all that has failed taken out.
    case
        Whom the failure hits.
    plan
        What will be done.
    """
    order = sorted(range(len(plan.changed)), key=plan.changed.__getitem__)
    changed = [plan.changed[k] for k in order]
    paths = [plan.paths[k] for k in order]
    lit = set(changed).difference(case.hit)
    named = name_paths(
        board.ways,
        board.users,
        board.first_fibre,
        paths,
        [board.circuits[circuit] for circuit in changed],
        leaving=set(changed),
        lit=lit,
    )
    cells = [board.cells_of(path) for path in paths]
    if lit:
        steps = _order(board, case, changed, paths, cells, named)
    else:
        steps = _set_and_raise(board, changed, cells)
    moved = [*zip(case.lost, plan.handover, strict=True)]
    return Transition(
        moves=np.array(moved, dtype=np.int32).reshape(-1, 2),
        changed=np.array(changed, dtype=np.int32),
        circuits=np.array(named.circuits, dtype=np.int32).reshape(-1, 2),
        routes=tuple(named.routes),
        steps=np.array(steps, dtype=np.int32).reshape(-1, 3),
    )


def _set_and_raise(
    board: Board, changed: Sequence[int], cells: Sequence[Sequence[tuple[int, int]]]
) -> list[Step]:
    """Without light on what changes, nothing has to wait."""
    steps: list[Step] = []
    done: set[int] = set()
    for circuit, passed in zip(changed, cells, strict=True):
        for cell, state in passed:
            if cell not in done and board.now[cell] != state:
                steps.append((SET, cell, state))
                done.add(cell)
        steps.append((RAISE, circuit, -1))
    return steps


def _order(
    board: Board,
    case: Case,
    changed: Sequence[int],
    paths: Sequence[Path],
    cells: Sequence[Sequence[tuple[int, int]]],
    named: Any,
) -> list[Step]:
    old, new = {}, {}
    for k, circuit in enumerate(changed):
        before = board.paths[circuit]
        ends = board.circuits[circuit]
        way = board.old_routes[circuit]
        old[circuit] = Way(_parts(board, before, ends, way), dict(board.cells_of(before)))
        new[circuit] = Way(
            _parts(board, paths[k], named.circuits[k], named.routes[k]), dict(cells[k])
        )
    now = {cell: int(board.now[cell]) for passed in cells for cell, _ in passed}
    return order_steps(old, new, case.hit, now)


def _parts(
    board: Board, path: Path, ends: tuple[int, int], route: Sequence[int]
) -> frozenset[tuple[str, int]]:
    """Name what a circuit has for itself."""
    if board.first_fibre:
        fibres = [("fibre", fibre) for fibre in route]
        return frozenset([*fibres, ("out", ends[0]), ("in", ends[1])])
    return frozenset(("link", int(link)) for link in board.ways.resource[path[1:-1]])
