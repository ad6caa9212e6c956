"""A configuration of a switch beside what a plan says that it holds."""

from __future__ import annotations

import os
from typing import NamedTuple

from optmatch.io.switches.circuits import CrossConnect, Difference, difference_between
from optmatch.io.switches.exports import name_switches
from optmatch.io.switches.sonic import read_config
from optmatch.model import Solution


class NearestState(NamedTuple):
    """The state of a plan that a configuration is nearest to."""

    switch: str
    state: int
    difference: Difference
    """What would have to change on the switch to reach the state; empty if it is there."""


def compare_with_config(
    solution: Solution,
    config: str | os.PathLike[str],
    *,
    ports: str | os.PathLike[str] | None = None,
) -> NearestState:
    """Return the switch and state of a plan whose circuits differ least from a configuration.

    Circuits with no side of the plan's switch are others' and do not count.

    Parameters
    ----------
    solution
        A solution with circuits.
    config
        A ``config_db.json``.
    ports
        A table of the sides of ports.

    Raises
    ------
    InputError
        If the plan has no circuits, or a file cannot be read.
    """
    present = read_config(config).circuits
    nearest: NearestState | None = None
    fewest_changes = float("inf")
    for switch in name_switches(solution, ports):
        own_circuits = _with_a_side_of(present, switch.ports.port_of_side)
        for state in range(switch.plan.n_states):
            difference = difference_between(own_circuits, switch.circuits(state))
            n_changes = len(difference.removals) + len(difference.additions)
            if n_changes < fewest_changes:
                fewest_changes = n_changes
                nearest = NearestState(switch.plan.name, state, difference)
    assert nearest is not None  # a plan with circuits has a state
    return nearest


def _with_a_side_of(
    circuits: tuple[CrossConnect, ...], port_of_side: dict[str, int]
) -> list[CrossConnect]:
    """Return the circuits that have a side of one of our ports."""
    return [
        circuit
        for circuit in circuits
        if circuit.a_side in port_of_side or circuit.b_side in port_of_side
    ]
