"""Answers with circuits as files for switches: what each holds, and what changes in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from optmatch.io.switches import sonic
from optmatch.io.switches.circuits import CrossConnect, Difference, difference_between
from optmatch.io.switches.planned import PlannedSwitch
from optmatch.io.switches.plans import list_planned_switches
from optmatch.io.switches.ports import PortTable, read_port_tables
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

    A file of `read_port_tables` has a table for each switch or one for all; without a file port p
    has the sides ``(p + 1)A`` and ``(p + 1)B``.
    """
    if ports is None:
        return tuple(
            NamedSwitch(plan, PortTable.numbered(plan.matchings.shape[1], plan.labels))
            for plan in plans
        )
    # Names of ports are those of the fabric, which its switches share; racks have others.
    labels = {plan.labels for plan in plans}
    tables = read_port_tables(ports, *(labels if len(labels) == 1 else ()))
    return tuple(NamedSwitch(plan, _table_of(plan, tables, path_name(ports))) for plan in plans)


def _table_of(plan: PlannedSwitch, tables: dict[str, PortTable], path: str) -> PortTable:
    """Return the table of port names of a switch: its own, or the one for all.

    Tables stand by the name of a switch (``rail 3``) or of its file (``rail-3``), the one for all
    by the empty name.
    """
    table = tables.get(plan.name, tables.get(plan.file_name, tables.get("")))
    if table is None:
        raise InputError(f"there are no ports of switch {plan.name!r}", path=path)
    n_ports = plan.matchings.shape[1]
    if table.n_ports < n_ports:
        raise InputError(f"{plan.name}: {table.n_ports} ports, {n_ports} are needed", path=path)
    return table


def write_sonic_configs(
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write what each switch holds as ``config_db.json``, or changes as JSON patches.

    Only `slot` is written, or all slots if it is None. With `from_slot` patches are written in
    place of whole configurations: from this slot to `slot`, or with ``"previous"`` from the slot
    before each, the first from a dark switch. Contents stand by the endings of file names, such as
    ``.rail-3.slot-002.json``; a single file is a text.
    """
    files = {}
    switches = name_switches(solution, ports)
    for switch in switches:
        for state in _chosen_states(switch, slot):
            place = _place(switch.plan, state, several_switches=len(switches) > 1)
            if from_slot is None:
                circuits = switch.circuits(state)
                files[f"{place}.json"] = sonic.write_config(circuits, switch.ports)
            else:
                before = _state_before(switch, state, from_slot)
                files[f"{place}.patch.json"] = sonic.write_patch(switch.change(before, state))
    return _unless_single(files)


def _chosen_states(switch: NamedSwitch, slot: int | None) -> range:
    """Return the numbers of the states that are asked for: one that the switch has, or all."""
    n_states = switch.plan.n_states
    if slot is None:
        return range(n_states)
    if not 0 <= slot < n_states:
        raise InputError(
            f"slot {slot}: {switch.plan.name} has slots 0 .. {n_states - 1}", where="slot"
        )
    return range(slot, slot + 1)


def _state_before(switch: NamedSwitch, state: int, from_slot: int | str | None) -> int | None:
    """Return the state that a change to `state` begins with; None if the switch is dark then.

    `from_slot` is a number, ``"previous"`` for the one before `state`, which is a dark switch for
    state 0, or None for a dark switch.
    """
    if from_slot is None:
        return None
    if from_slot == "previous":
        return state - 1 if state > 0 else None
    n_states = switch.plan.n_states
    if not isinstance(from_slot, int) or not 0 <= from_slot < n_states:
        raise InputError(
            f"from_slot {from_slot!r}: 'previous', or one of 0 .. {n_states - 1} of"
            f" {switch.plan.name}",
            where="from_slot",
        )
    return from_slot


def _place(plan: PlannedSwitch, state: int, *, several_switches: bool) -> str:
    """Return the middle of a file's name: the switch, if there are several, and the state."""
    switch = f".{plan.file_name}" if several_switches else ""
    return f"{switch}.slot-{state:03}" if plan.n_states > 1 else switch


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
        for state in _chosen_states(switch, slot):
            # Of all slots each follows the one before; of one slot the comment says what it does.
            before = _state_before(switch, state, "previous" if slot is None else from_slot)
            begin = ""
            if slot is not None:
                begin = f", from slot {before}" if before is not None else ", from a dark switch"
            start_s = float(switch.plan.starts_s[state])
            lines.append(f"# {switch.plan.name}, slot {state}, at {start_s:.9g} s{begin}")
            lines += lines_of(switch.change(before, state), switch.ports.n_ports)
        files[f".{switch.plan.file_name}.txt"] = "".join(f"{line}\n" for line in lines)
    return _unless_single(files)
