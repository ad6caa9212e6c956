"""A configuration of a switch beside what a plan says that it holds."""

from __future__ import annotations

import os
from typing import NamedTuple

from optmatch.io.switches.circuits import Difference, difference_between, with_a_side_of
from optmatch.io.switches.exports import name_switches
from optmatch.io.switches.sonic import read_config
from optmatch.model import InputError, Solution


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
    """Return the switch and state of a plan that differ least from a SONiC ``config_db.json``.

    The difference is the number of circuits to remove and to add; of equal ones the first counts.
    Circuits with no side of the plan's switch are others' and do not count. Without a file of
    names, port p has the sides ``(p + 1)A`` and ``(p + 1)B``.
    """
    present = read_config(config).circuits
    nearest: NearestState | None = None
    fewest_changes = float("inf")

    # The first of the states with the fewest changes is kept.
    for switch in name_switches(solution, ports):
        own_circuits = with_a_side_of(present, switch.ports.port_of_side.keys())
        for state in range(switch.plan.n_states):
            difference = difference_between(own_circuits, switch.circuits(state))
            n_changes = len(difference.removals) + len(difference.additions)
            if n_changes < fewest_changes:
                fewest_changes = n_changes
                nearest = NearestState(switch.plan.name, state, difference)
    if nearest is None:
        raise InputError("the plan has no slots, so that there is nothing to compare")
    return nearest
