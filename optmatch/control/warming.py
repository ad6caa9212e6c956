"""Kernels compiled before a service takes its first call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optmatch.entrances import solve
from optmatch.fabrics import (
    Benes,
    Clements,
    Crossbar,
    DilatedBenes,
    Fabric,
    HexMesh,
    IdealSwitch,
    Piloss,
    SpankeBenes,
    SwitchAndSelect,
)
from optmatch.kinds import KIND_NAMES, kind_named
from optmatch.model import CellDevice, Limits, OnEvent, ignore
from optmatch.model.declarations import Word, form_of
from optmatch.model.numbers import list_entries

_ITERATIONS = 60
"""Iterations of one method, enough to call each of its kernels."""


def warm_up(
    kinds: str | Iterable[str] | None = None,
    *,
    controllers: bool = False,
    on_event: OnEvent = ignore,
) -> None:
    """Compile the kernels that default methods need, and on request those of controllers.

    First calls then take no longer than later ones. Compiled kernels are kept on disk, in the
    folder that ``optmatch info`` names; where they are there already this loads them, which takes
    a second or two.

    Parameters
    ----------
    kinds
        The kinds of problems by name, as ``"demand"``; None for all, an empty sequence for none.
    controllers
        Whether to compile too what `Router`, `Rerouter`, `fill_rack`, `schedule`, `decompose` and
        `RollingSchedule` call, and to collect garbage.
    on_event
        Called with the events of the methods.

    Raises
    ------
    InputError
        If there is no kind of such a name, or an argument is of another type.

    See Also
    --------
    Router : ``warm=True`` prepares one router for its fabric.

    Examples
    --------
    >>> import optmatch as om
    >>> om.warm_up("slice-allocation")
    >>> om.warm_up("mesh")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    optmatch.model.errors.InputError: kinds[0] = 'mesh': one of ...
    """
    form_of(bool).check("controllers", controllers)
    form_of(Callable).check("on_event", on_event)
    for name in _names(kinds):
        for problem in kind_named(name).small_problems():
            solve(problem, seed=0, limits=Limits(iterations=_ITERATIONS), on_event=on_event)
    if controllers:
        from optmatch.control import Rerouter, RollingSchedule, Router
        from optmatch.control.demands.schedules import decompose, schedule

        # Small fabrics of each type: kernels are compiled for types of arrays, whatever their
        # size. A router compiles, or loads, its kernels as it is made, and is then thrown away.
        small_fabrics: tuple[Fabric, ...] = (
            HexMesh(4, 4, ports=8),
            HexMesh(4, 4, tx=[0, 4, 8, 12], rx=[2, 6, 10, 14]),
            Benes(8),
            DilatedBenes(4),
            SpankeBenes(4),
            Crossbar(4),
            Piloss(4),
            SwitchAndSelect(4),
            Clements(4),
        )
        for fabric in small_fabrics:
            Router(fabric, check=True, warm=True)
            cells = CellDevice.of("smartlight", fabric.n_cells)
            for aim in ("worst-loss-db", "worst-snr-db", "power-mw"):
                Router(fabric, prefer=aim, cells=cells, warm=True)
        Rerouter.warm_up()

        # Schedules count steps instead of time, since on a busy machine the usual limit could end
        # before the first plan. They run on a switch of each kind.
        matrix: Any = [[0, 9, 2, 1], [4, 0, 6, 3], [5, 1, 0, 7], [2, 8, 3, 0]]
        schedule(matrix, 0.5)
        decompose(matrix, fill=True)
        for switch in (IdealSwitch(4), HexMesh(4, 4, ports=4), Benes(4)):
            rolling = RollingSchedule(switch, 0.5, time_limit_s=None)
            rolling.add(matrix)
            rolling.next_slot()

        # Python looks through all that was loaded now; else it does so within one of the first
        # calls of a service, which then takes some 50 ms longer.
        gc.collect()


def _names(kinds: str | Iterable[str] | None) -> Sequence[str]:
    """Check the names of kinds of problems, one or several; None for all."""
    if kinds is None:
        return KIND_NAMES
    names = [kinds] if isinstance(kinds, str) else list_entries("kinds", kinds, "names of kinds")
    known = Word(KIND_NAMES)
    return [known.check(f"kinds[{k}]", name) for k, name in enumerate(names)]
