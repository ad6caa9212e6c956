"""Where no light passes chips: a rack takes over all of another, and nothing is searched."""

from __future__ import annotations

import numpy as np

from optmatch.model import InfeasibleError
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.running import Damage
from optmatch.problems.reroutes.transition import RAISE
from optmatch.solvers.reroutes.impossible import explain_bound

Levels = tuple[int, int, int, int, int]


def replace_racks(state: Reroute, damage: Damage) -> tuple[Transition, Levels]:
    """Let the first racks that are free take over from those that are lost, chip by chip.

    All racks are alike, and fibres and ports count rack by rack, so each circuit of a lost rack
    has the same ports and fibres in the other one. A part that lies in a third rack stays there.
    Raises `InfeasibleError` if too few racks are free: no other rack can hold what light does not
    pass.
    """
    # Numbers of chips, ports and fibres are shifted by whole racks.
    rack = state.units
    size = rack.n_chips
    n_racks = rack.racks
    per_rack = size // n_racks
    lost = damage.lost[::per_rack]
    free = damage.spares[::per_rack]
    if len(lost) > len(free):
        raise InfeasibleError(explain_bound(len(damage.lost), len(damage.spares)))

    # How many racks further on the rack is that takes over, by lost rack.
    shift = np.zeros(n_racks, dtype=np.int64)  # in racks
    for old, new in zip(lost, free, strict=False):
        shift[old // per_rack] = (new - old) // per_rack

    # Ports and fibres of hit circuits move along with their racks.
    changed = np.flatnonzero(damage.hit)
    ports = state.circuits[changed].astype(np.int64)
    ports_per_rack = state.fabric.n_ports // n_racks
    fibres_per_rack = rack.n_fibres // n_racks
    ports += shift[ports // ports_per_rack] * ports_per_rack
    routes = []
    for circuit in changed.tolist():
        fibres = np.array(state.routes[circuit], dtype=np.int64)
        fibres += shift[fibres // fibres_per_rack] * fibres_per_rack
        routes.append(tuple(fibres.tolist()))

    # The transition: which units move where, and all circuits raised anew; no cell is set.
    units = np.array(damage.lost, dtype=np.int64).reshape(-1, 1)
    transition = Transition(
        moves=np.hstack([units, units + shift[units // per_rack] * per_rack]).astype(np.int32),
        changed=changed.astype(np.int32),
        circuits=ports.astype(np.int32),
        routes=tuple(routes),
        steps=np.array([(RAISE, k, -1) for k in changed], dtype=np.int32).reshape(-1, 3),
    )
    lengths = [len(route) for route in routes]
    worst = max(lengths, default=0) * state.loss_units[1]
    return transition, (0, len(changed), 0, worst, sum(lengths))
