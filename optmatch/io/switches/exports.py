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
    """Return the switches of an answer with their port names.

    Parameters
    ----------
    solution
        A solution with circuits.
    ports
        A file of `read_port_tables`; None for ``1A``, ``1B`` and on.

    Raises
    ------
    InputError
        If the answer has no circuits, or the file lacks a switch or a port.
    """
    return name_ports(list_planned_switches(solution), ports)


def name_ports(
    plans: Sequence[PlannedSwitch], ports: str | os.PathLike[str] | None
) -> tuple[NamedSwitch, ...]:
    """Give planned switches the names of their ports.

    Parameters
    ----------
    plans
        Switches with their circuits by the numbers of ports.
    ports
        A file of `read_port_tables`, with a table for each switch or one for all; None: port p has
        the sides ``(p + 1)A`` and ``(p + 1)B``.

    Returns
    -------
    tuple of NamedSwitch
        The switches in the same order, each with its table of port names.

    Raises
    ------
    InputError
        If the file lacks a switch or a port.
    """
    if ports is None:
        return tuple(
            NamedSwitch(plan, PortTable.numbered(plan.matchings.shape[1], plan.labels))
            for plan in plans
        )
    tables = read_port_tables(ports)
    return tuple(NamedSwitch(plan, _table_of(plan, tables, path_name(ports))) for plan in plans)


def _table_of(plan: PlannedSwitch, tables: dict[str, PortTable], path: str) -> PortTable:
    """Return the table of port names of a switch: its own, or the one for all.

    Parameters
    ----------
    plan
        The planned switch; ``matchings`` has the shape (states, ports).
    tables
        Tables by the name of a switch (``rail 3``) or of its file (``rail-3``); the one under the
        empty name is for all switches without their own.
    path
        The name of the file of the tables in messages.

    Raises
    ------
    InputError
        If there is no table, or it has fewer ports than the switch.
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

    Parameters
    ----------
    solution
        A solution with circuits.
    ports
        A table of port names.
    slot
        Only this slot, rail state or step; None for all.
    from_slot
        Write patches in place of whole configurations: from this slot to `slot`, or with
        ``"previous"`` from the slot before each, the first from a dark switch.

    Returns
    -------
    dict or str
        Contents by the endings of file names, such as ``.rail-3.slot-002.json``; of a single file
        its text.
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
    """Return the numbers of the states that are asked for.

    Parameters
    ----------
    switch
        A switch of the plan.
    slot
        The only state that is asked for, counted from 0; None for all.

    Raises
    ------
    InputError
        If the switch has no such state.
    """
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
    """Return the circuits that a change to a state begins with; none on a dark switch.

    Parameters
    ----------
    switch
        A switch of the plan.
    state
        The state that the change leads to, from 0.
    from_slot
        The number of the state before the change, or ``"previous"``; None for a dark switch.
    """
    before = _state_before(switch, state, from_slot)
    return () if before is None else switch.circuits(before)


def _state_before(switch: NamedSwitch, state: int, from_slot: int | str | None) -> int | None:
    """Return the state that a change to `state` begins with; None if the switch is dark then.

    Parameters
    ----------
    switch
        A switch of the plan.
    state
        The state that the change leads to, counted from 0.
    from_slot
        The number of the state before the change, or ``"previous"`` for the one before `state`,
        which is a dark switch for state 0; None for a dark switch.

    Raises
    ------
    InputError
        If `from_slot` is something else, or the switch has no such state.
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

    Parameters
    ----------
    solution
        A solution with circuits.
    ports
        A table of port names.
    slot
        Only the commands that lead to this slot, rail state or step; None for all in order.
    from_slot
        The slot that the switch holds before `slot`, or ``"previous"`` for the one before it; None
        for a dark switch. All slots in order follow one another, so that ``"previous"`` alone goes
        with them.

    Returns
    -------
    dict or str
        Contents by the endings of file names; of a single file its text.
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

    Parameters
    ----------
    solution
        A solution with circuits.
    ports
        A file with the names of ports; None: port p has the sides ``(p + 1)A`` and ``(p + 1)B``.
    slot
        Only the commands that lead to this slot, rail state or step; None for all in order.
    from_slot
        The slot that the switch holds before `slot`, or ``"previous"`` for the one before it; None
        for a dark switch.

    Returns
    -------
    dict or str
        Contents by the endings of file names; of a single file its text.
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

    Parameters
    ----------
    switches
        The switches of the plan, with the names of their ports.
    slot
        Only the commands that lead to this state, from 0; None for all in order.
    from_slot
        The state that the switch holds before `slot`, or ``"previous"``; None for a dark switch.
    lines_of
        Returns the commands for a change, given the number of ports.

    Returns
    -------
    dict or str
        Contents by the endings of file names; of a single file its text.
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
    """Yield the changes of a switch that are asked for.

    Parameters
    ----------
    switch
        A switch of the plan; a state is what it holds for some time.
    slot
        The only state whose change is asked for; None for all states in order, the first from a
        dark switch.
    from_slot
        The state before `slot`, or ``"previous"``; None for a dark switch.

    Yields
    ------
    state : int
        The number of the state that the change leads to.
    begin : str
        Words on where the change begins, for a comment; empty where that is the state before.
    difference : Difference
        The circuits to remove and to add.
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
