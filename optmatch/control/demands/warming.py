"""Kernels of schedulers, compiled before their first call."""

from __future__ import annotations

from typing import Any

from optmatch.control.demands.rolling import RollingSchedule
from optmatch.control.demands.schedules import decompose, schedule
from optmatch.fabrics import Benes, HexMesh, IdealSwitch


def warm_schedulers() -> None:
    """Schedule and decompose one small matrix by each rule, so that all kernels are compiled.

    Rolling schedules run on a switch of each kind: an ideal one, a mesh, and a rearrangeable
    network. They count steps instead of time, since on a busy machine the usual limit could end
    before the first plan. The answers are thrown away.
    """
    matrix: Any = [[0, 9, 2, 1], [4, 0, 6, 3], [5, 1, 0, 7], [2, 8, 3, 0]]
    schedule(matrix, 0.5)
    decompose(matrix, fill=True)
    for fabric in (IdealSwitch(4), HexMesh(4, 4, ports=4), Benes(4)):
        rolling = RollingSchedule(fabric, 0.5, time_limit_s=None)
        rolling.add(matrix)
        rolling.next_slot()
