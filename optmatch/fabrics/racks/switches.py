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
        Joined racks: switches between them join their faces.
    switch
        The number of the inter-rack switch, a row of ``rack.rack_switches``.
    port
        Its input and output of this number; None for all. They count rack by rack, in each the
        fibres of the low face first.

    Returns
    -------
    tuple of int
        The numbers of the fibres that arrive or leave there, ascending.

    Raises
    ------
    InputError
        If there is no such switch or port.

    Examples
    --------
    Cube 3 sits at ports 6 (its low face) and 7 of each switch:

    >>> pod = RackFabric.tpu_v4()
    >>> len(fibres_of_switch(pod, 0)), fibres_of_switch(pod, 0, port=6)
    (256, (1443, 1824))
    """
    switch = _check_number("switch", switch, rack.n_rack_switches)
    inputs, outputs = _ports(rack, switch)
    if port is not None:
        place = _check_number("port", port, len(inputs))
        inputs = inputs[[place]]
        outputs = outputs[[place]]
    return tuple(sorted([*inputs.tolist(), *outputs.tolist()]))


def switch_schedules(rack: RackFabric, uses: ArrayLike) -> tuple[Schedule, ...]:
    """Return which input each switch between racks connects to which output, as a schedule.

    A circuit passes fibres one after the other. Where it arrives at a switch by one fibre and
    leaves it by the next one, the switch has to connect the two. Circuits stay, so that there is
    one slot.

    Parameters
    ----------
    rack
        Joined racks: switches between them join their faces.
    uses
        ``uses[use] = circuit, fibre``, of each circuit in the order of its light; circuits of
        several slices one after the other. Shape (uses, 2).

    Returns
    -------
    tuple of Schedule
        One for each switch; ``matchings[0, input] = output``, -1 where idle. Inputs and outputs of
        a switch are the fibres that arrive and that leave, in the order of their numbers. The slot
        lasts 1 s.
    """
    circuit, fibre = np.asarray(uses, dtype=np.int64).reshape(-1, 2).T
    # Light goes on from one use to the next where both are of one circuit.
    continued = np.flatnonzero(circuit[1:] == circuit[:-1])
    schedules = []
    for switch in range(rack.n_rack_switches):
        inputs, outputs = _ports(rack, switch)
        # A circuit enters the switch by one fibre and leaves it by the next of its uses.
        entering = continued[np.isin(fibre[continued], inputs)]
        input_place = np.searchsorted(inputs, fibre[entering])
        output_place = np.searchsorted(outputs, fibre[entering + 1])
        matching = np.full((1, len(inputs)), -1, dtype=np.int32)
        matching[0, input_place] = output_place
        schedules.append(Schedule(matchings=matching, durations_s=np.ones(1), delay_s=0.0))
    return tuple(schedules)


def _check_number(name: str, value: int, count: int) -> int:
    """Return a number from 0 to count - 1, or raise `InputError`."""
    number = integer(name, value, at_least=0)
    if number >= count:
        raise InputError(f"{name} = {number}: there are {count}", where=name)
    return number


def _ports(rack: RackFabric, switch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fibres of the inputs and of the outputs of a switch, ascending."""
    tails, heads = rack.edges[rack.edge_of_fibre].T
    node = rack.n_servers + switch
    return np.flatnonzero(heads == node), np.flatnonzero(tails == node)
