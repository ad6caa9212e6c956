"""The inter-rack switches of joined racks, one by one: their ports, and what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics.racks.rack import RackFabric
from optmatch.model import InputError, Schedule, integer


def fibres_of_switch(rack: RackFabric, switch: int, port: int | None = None) -> tuple[int, ...]:
    """List the fibres that fail with an inter-rack switch, or with one of its ports.

    Parameters
    ----------
    rack
        Joined racks.
    switch
        As in ``rack.rack_switches``.
    port
        Its input and output of this number; None for all. They count rack by rack, in each the
        fibres of the low face first.

    Examples
    --------
    Cube 3 sits at ports 6 (its low face) and 7 of each switch:

    >>> pod = RackFabric.tpu_v4()
    >>> len(fibres_of_switch(pod, 0)), fibres_of_switch(pod, 0, port=6)
    (256, (1443, 1824))
    """
    into, out_of = _ports(rack, _below("switch", switch, rack.n_rack_switches))
    if port is not None:
        at = _below("port", port, len(into))
        into, out_of = into[[at]], out_of[[at]]
    return tuple(sorted([*into.tolist(), *out_of.tolist()]))


def switch_schedules(rack: RackFabric, uses: ArrayLike) -> tuple[Schedule, ...]:
    """Return what each inter-rack switch holds, as a schedule of one slot without an end.

    Parameters
    ----------
    rack
        Joined racks.
    uses
        ``uses[use] = circuit, fibre``, of each circuit in the order of its light, as the `fibres`
        of an `Allocation`; those of several slices one after the other.

    Returns
    -------
    tuple of Schedule
        By switch; ``matchings[0, input] = output``, which count as for `fibres_of_switch`. The
        slot lasts 1 s.
    """
    circuit, fibre = np.asarray(uses, dtype=np.int64).reshape(-1, 2).T
    passes = np.flatnonzero(circuit[1:] == circuit[:-1])
    found = []
    for switch in range(rack.n_rack_switches):
        into, out_of = _ports(rack, switch)
        matching = np.full((1, len(into)), -1, dtype=np.int32)
        here = passes[np.isin(fibre[passes], into)]
        matching[0, np.searchsorted(into, fibre[here])] = np.searchsorted(out_of, fibre[here + 1])
        found.append(Schedule(matchings=matching, durations_s=np.ones(1), delay_s=0.0))
    return tuple(found)


def _below(name: str, given: int, count: int) -> int:
    number = integer(name, given, at_least=0)
    if number >= count:
        raise InputError(f"{name} = {number}: there are {count}", where=name)
    return number


def _ports(rack: RackFabric, switch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fibres of the inputs and of the outputs of a switch, ascending."""
    tails, heads = rack.edges[rack.edge_of_fibre].T
    node = rack.n_servers + switch
    return np.flatnonzero(heads == node), np.flatnonzero(tails == node)
