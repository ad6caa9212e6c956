"""Answers with circuits as files for switches: what each holds, and what changes in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from optmatch.io.switches import polatis, sonic
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

    def circuits(self, state: int) -> tuple[CrossConnect, ...]:
        """Return the circuits that the switch holds in a state."""
        return self.ports.circuits_of(self.plan.matchings[state])

    def changes(self) -> Iterator[tuple[int, Difference]]:
        """Yield each state with the change that leads to it, the first from a dark switch."""
        before: tuple[CrossConnect, ...] = ()
        for state in range(self.plan.n_states):
            after = self.circuits(state)
            yield state, difference_between(before, after)
            before = after


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
            circuits = switch.circuits(state)
            place = _place(switch.plan, state, several_switches=len(switches) > 1)
            if from_slot is None:
                files[f"{place}.json"] = sonic.write_config(circuits, switch.ports)
                continue

            before = _circuits_before(switch, state, from_slot)
            difference = difference_between(before, circuits)
            files[f"{place}.patch.json"] = sonic.write_patch(difference)
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


def _circuits_before(
    switch: NamedSwitch, state: int, from_slot: int | str | None
) -> tuple[CrossConnect, ...]:
    """Return the circuits that a change to a state begins with; none on a dark switch."""
    before = _state_before(switch, state, from_slot)
    return () if before is None else switch.circuits(before)


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


def write_sonic_commands(
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write the commands of a SONiC switch, a file for each switch.

    With `slot` only the commands that lead to it are written, from `from_slot`, ``"previous"`` or
    a dark switch. All slots in order follow one another, so that ``"previous"`` alone goes with
    them.
    """
    switches = name_switches(solution, ports)
    return _scripts(
        switches, slot, from_slot, lambda change, _n_ports: sonic.command_lines(change)
    )


def write_polatis_commands(
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write the SCPI commands of a Polatis switch, a file for each switch.

    Slots are chosen as for the commands of SONiC.
    """
    switches = name_switches(solution, ports)
    return _scripts(switches, slot, from_slot, polatis.command_lines)


def _scripts(
    switches: Sequence[NamedSwitch],
    slot: int | None,
    from_slot: int | str | None,
    lines_of: Callable[[Difference, int], list[str]],
) -> str | dict[str, str]:
    """Write changes of each switch as lines, each state begun by a comment with its time.

    `lines_of` returns the commands for a change, given the number of ports.
    """
    if slot is None and from_slot not in (None, "previous"):
        raise InputError(
            f"from_slot {from_slot!r}: only with a slot that the commands lead to; those of all"
            " slots begin with a dark switch",
            where="from_slot",
        )

    files = {}
    for switch in switches:
        lines = []
        for state, begin, change in _list_changes(switch, slot, from_slot):
            start_s = float(switch.plan.starts_s[state])
            lines.append(f"# {switch.plan.name}, slot {state}, at {start_s:.9g} s{begin}")
            lines += lines_of(change, switch.ports.n_ports)
        files[f".{switch.plan.file_name}.txt"] = "".join(f"{line}\n" for line in lines)
    return _unless_single(files)


def _list_changes(
    switch: NamedSwitch, slot: int | None, from_slot: int | str | None
) -> Iterator[tuple[int, str, Difference]]:
    """Yield the changes of a switch that are asked for: state, words, and circuits to change.

    The words say for a comment where the change begins; they are empty where that is the state
    before.
    """
    if slot is None:
        for state, change in switch.changes():
            yield state, "", change
        return

    for state in _chosen_states(switch, slot):
        state_before = _state_before(switch, state, from_slot)
        begin = "a dark switch" if state_before is None else f"slot {state_before}"
        before = _circuits_before(switch, state, from_slot)
        yield state, f", from {begin}", difference_between(before, switch.circuits(state))
