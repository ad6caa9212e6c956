"""Answers with circuits as files for switches, or beside what a switch holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from optmatch.io.switches import sonic
from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    PortTable,
    difference_between,
    read_port_tables,
    with_a_side_of,
)
from optmatch.io.switches.plans import PlannedSwitch, list_planned_switches
from optmatch.io.switches.sonic import read_config
from optmatch.model import InputError, Solution
from optmatch.model.files import path_name


class NamedSwitch(NamedTuple):
    """A switch of an answer, with the names of its ports."""

    plan: PlannedSwitch
    ports: PortTable

    def circuits(self, state: int | None) -> tuple[CrossConnect, ...]:
        """Return the circuits that the switch holds in a state; None is a dark switch."""
        return () if state is None else self.ports.circuits_of(self.plan.matchings[state])

    def change(self, before: int | None, after: int) -> Difference:
        """Return what leads from one state, or from a dark switch, to another."""
        return difference_between(self.circuits(before), self.circuits(after))


def name_switches(
    solution: Solution, ports: str | os.PathLike[str] | None = None
) -> tuple[NamedSwitch, ...]:
    """Return the switches of an answer with port names: of a file, or ``1A``, ``1B`` and on."""
    return name_ports(list_planned_switches(solution), ports)


def name_ports(
    plans: Sequence[PlannedSwitch], ports: str | os.PathLike[str] | None
) -> tuple[NamedSwitch, ...]:
    """Give planned switches the names of their ports, in the same order.

    A planned switch has the states that it goes through, and `ports` is the file of names. A file
    of `read_port_tables` has a table for each switch or one for all; without a file port p has the
    sides ``(p + 1)A`` and ``(p + 1)B``.
    """
    if ports is None:
        return tuple(
            NamedSwitch(plan, PortTable.numbered(plan.matchings.shape[1], plan.labels))
            for plan in plans
        )
    # Names of ports are those of the fabric, which its switches share; racks have others.
    labels = {plan.labels for plan in plans}
    tables = read_port_tables(ports, *(labels if len(labels) == 1 else ()))

    # A switch has its own table, by its name (``rail 3``) or that of its file (``rail-3``), or
    # the one for all.
    named = []
    for plan in plans:
        path = path_name(ports)
        table = tables.get(plan.name, tables.get(plan.file_name, tables.get("")))
        if table is None:
            raise InputError(f"there are no ports of switch {plan.name!r}", path=path)
        n_ports = plan.matchings.shape[1]
        if table.n_ports < n_ports:
            raise InputError(
                f"{plan.name}: {table.n_ports} ports, {n_ports} are needed", path=path
            )
        named.append(NamedSwitch(plan, table))
    return tuple(named)


def write_sonic_configs(
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write what each switch holds as ``config_db.json``, or changes as JSON patches.

    `ports` is a file with the names of ports, None for ports as numbered. Only `slot` is written,
    or all slots if it is None. With `from_slot` patches are written in place of whole
    configurations: from this slot to `slot`, or with ``"previous"`` from the slot before each, the
    first from a dark switch. Contents stand by the endings of file names, such as
    ``.rail-3.slot-002.json``; a single file is a text.
    """
    files = {}
    switches = name_switches(solution, ports)
    for switch in switches:
        for before, state in _chosen_changes(switch, slot, from_slot):
            place = f".{switch.plan.file_name}" if len(switches) > 1 else ""
            if switch.plan.n_states > 1:
                place += f".slot-{state:03}"
            if from_slot is None:
                circuits = switch.circuits(state)
                files[f"{place}.json"] = sonic.write_config(circuits, switch.ports)
            else:
                files[f"{place}.patch.json"] = sonic.write_patch(switch.change(before, state))
    return _unless_single(files)


def _chosen_changes(
    switch: NamedSwitch, slot: int | None, from_slot: int | str | None
) -> Iterator[tuple[int | None, int]]:
    """Yield the state before and the state after each change that is asked for.

    The state after is `slot`, or each one if it is None. The one before is `from_slot`, with
    ``"previous"`` the one before in the order of the plan, and None for a dark switch.
    """
    n_states = switch.plan.n_states
    if slot is not None and not 0 <= slot < n_states:
        raise InputError(
            f"slot {slot}: {switch.plan.name} has slots 0 .. {n_states - 1}", where="slot"
        )
    for state in range(n_states) if slot is None else (slot,):
        if from_slot is None or (from_slot == "previous" and state == 0):
            yield None, state
        elif from_slot == "previous":
            yield state - 1, state
        elif not isinstance(from_slot, int) or not 0 <= from_slot < n_states:
            raise InputError(
                f"from_slot {from_slot!r}: 'previous', or one of 0 .. {n_states - 1} of"
                f" {switch.plan.name}",
                where="from_slot",
            )
        else:
            yield from_slot, state


def _unless_single(files: dict[str, str]) -> str | dict[str, str]:
    """Return the text of a single file, which gets the name that the user chose."""
    if len(files) == 1:
        return next(iter(files.values()))
    return files


def write_commands(
    lines_of: Callable[[Difference, int], list[str]],
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write the changes of each switch as commands, a file for each switch.

    `lines_of` returns the commands for a change, given the number of ports; a comment with its
    time begins each state. With `slot` only the commands that lead to it are written, from
    `from_slot`, ``"previous"`` or a dark switch. All slots in order follow one another, so that
    ``"previous"`` alone goes with them.
    """
    if slot is None and from_slot not in (None, "previous"):
        raise InputError(
            f"from_slot {from_slot!r}: only with a slot that the commands lead to; those of all"
            " slots begin with a dark switch",
            where="from_slot",
        )

    files = {}
    for switch in name_switches(solution, ports):
        lines = []
        # Of all slots each follows the one before; of one slot the comment says what it does.
        start = "previous" if slot is None else from_slot
        for before, state in _chosen_changes(switch, slot, start):
            begin = ""
            if slot is not None:
                begin = f", from slot {before}" if before is not None else ", from a dark switch"
            start_s = float(switch.plan.starts_s[state])
            lines.append(f"# {switch.plan.name}, slot {state}, at {start_s:.9g} s{begin}")
            lines += lines_of(switch.change(before, state), switch.ports.n_ports)
        files[f".{switch.plan.file_name}.txt"] = "".join(f"{line}\n" for line in lines)
    return _unless_single(files)


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
