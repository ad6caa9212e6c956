"""Formats for other tools: one table of exporters, by format.

To add one: an entry in `EXPORTERS`, with the kinds of problems it takes and a function.
The function takes a `Solution` and returns text; or a mapping of endings to contents, where one
file is not enough: ``{".0.et": ..., ".1.et": ...}`` for ``-o run`` becomes ``run.0.et`` and
``run.1.et``; or a `Document`, a JSON tree whose large arrays go to a file beside it. It raises
`InputError` for what it cannot write. `optmatch export` needs no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from optmatch.io import cells
from optmatch.io.cells import write_drive_table
from optmatch.io.collectives import write_msccl, write_mscclpp, write_traces
from optmatch.io.files import detach, save_tree
from optmatch.io.netlists import gdsfactory
from optmatch.io.rails import timeline
from optmatch.io.rails.triggers import TRIGGER_FORMAT, trigger_tree
from optmatch.io.switches.plans import NamedSwitch, write_commands, write_sonic_configs
from optmatch.io.text import csv_text, layout
from optmatch.model import CellDevice, InputError, Solution
from optmatch.model.display import view_of_solution
from optmatch.model.errors import nearest_name
from optmatch.model.files import check_target, is_stream, path_name, replace_file
from optmatch.problems.rails.execution.triggers import TriggerPlan

Exported = str | Mapping[str, str | bytes]


class FormatOptions(TypedDict, total=False):
    """Options of some formats; what a format does not take is refused by name."""

    component: str
    """netlist, gdsfactory: the name of a cell."""
    pins: Sequence[str]
    """netlist, gdsfactory: the names of its four terminals a1, a2, b1 and b2."""
    ports: str | os.PathLike[str]
    """Switches: a table of their ports."""
    slot: int
    """Switches: the number of the only slot to write."""
    from_slot: int | str
    """Switches: the slot from which the switch changes, or ``"previous"``."""
    heaters: str | os.PathLike[str]
    """heaters: a file of calibrations."""
    most_mw: float
    """heaters: the most power of all heaters."""
    cells: CellDevice
    """heaters: the device of each cell."""
    dialect: str
    """msccl: the runtime that is to read the program."""


class Document(NamedTuple):
    """A JSON file of ours, whose large arrays go to a file beside it."""

    tree: dict[str, Any]


class Exporter(NamedTuple):
    """A format that solutions can be written in."""

    what: str
    """One line for the manual."""
    kinds: tuple[str, ...]
    """Kinds of problems; empty for all with a schedule, or a plan of rails."""
    function: Callable[..., Exported | Document]
    cells: bool = False
    """Whether the format holds cell states, which the schedule then needs."""
    record: tuple[type[Any], str] | None = None
    """The class of a document, and the name of its format; None for other formats."""

    options: tuple[str, ...] = ()
    """Keyword arguments of the function that users may give."""
    rated: bool = False
    """Whether the function takes a rate too, for problems without bytes."""


_JOB = ("rail-job",)
_CELL_NAMES = ("component", "pins")


def _csv(solution: Solution) -> str:
    """Write the phases of cells; without cells the timeline, and without times the table."""
    if solution.schedule is not None and solution.schedule.cell_states is not None:
        return cells.write_phases_csv(solution)
    if solution.schedule is None and solution.answer is not None:
        columns = view_of_solution(solution).tabulate(solution)
        if "what" not in columns:  # a timeline says what begins and ends
            values = [np.asarray(column, dtype=object).tolist() for column in columns.values()]
            return csv_text([list(columns), *map(list, zip(*values, strict=True))])
    return timeline.timeline_csv(solution)


def _traces(solution: Solution) -> Exported:
    """Write the sends of a collective, or the step of a rail job."""
    if solution.problem.kind == "collective":
        return write_traces(solution)
    return timeline.traces(solution)


EXPORTERS: dict[str, Exporter] = {
    "csv": Exporter(
        "phases theta and phi of all set cells, with their convention; of a switch without cells"
        " and of a plan the timeline; without one the table of `to_dataframe`",
        (),
        _csv,
    ),
    "perfetto": Exporter(
        "the same as trace events, for ui.perfetto.dev", (), timeline.trace_events
    ),
    "astra-bw": Exporter(
        "astra-sim circuit schedules: blocks BW of GB/s", (), timeline.bandwidths, rated=True
    ),
    "astra-lt": Exporter("their latencies: blocks LT of ns", (), timeline.latencies),
    "astra-network": Exporter(
        "network.yml of astra-sim, with the delay", (), timeline.network, rated=True
    ),
    "astra-groups": Exporter("communicator groups, JSON", _JOB, timeline.communicators),
    "triggers": Exporter(
        "what the controller of each rail waits for, and what it then sets, JSON",
        _JOB,
        lambda solution: Document(trigger_tree(solution)),
        record=(TriggerPlan, TRIGGER_FORMAT),
    ),
    "chakra": Exporter(
        "the step, or the sends of a collective, as Chakra traces, a file for each rank",
        (*_JOB, "collective"),
        _traces,
    ),
    "openoptics": Exporter(
        "OpenOptics circuits: [time_slice, node1, node2, port1, port2], JSON",
        (),
        timeline.circuit_list,
    ),
    "timeline": Exporter(
        "operations, circuits and reconfigurations with their times, CSV",
        (),
        timeline.timeline_csv,
    ),
    "msccl": Exporter(
        "sends of a collective as a program of MSCCL, XML; of its circuits it knows nothing",
        ("collective",),
        write_msccl,
        options=("dialect",),
    ),
    "mscclpp": Exporter(
        "the same as an execution plan of MSCCL++, JSON", ("collective",), write_mscclpp
    ),
    "json": Exporter(
        "phases theta and phi of all set cells, with their convention",
        (),
        cells.write_phases_json,
        cells=True,
    ),
    "heaters": Exporter(
        "drive table: which heater gets which voltage in which order, from --heaters; CSV",
        (),
        write_drive_table,
        cells=True,
        options=("heaters", "most_mw", "cells"),
    ),
    "smartlight": Exporter(
        'a line for each slot: [cell, "x" | "="] of all set cells, JSON',
        (),
        cells.write_smartlight,
        cells=True,
    ),
    "netlist": Exporter(
        "netlist of sax and of ours, cell states as settings, a file for each slot",
        (),
        partial(gdsfactory.write_slots, gdsfactory.netlist_tree),
        cells=True,
        options=_CELL_NAMES,
    ),
    "gdsfactory": Exporter(
        "layout for gf.read.from_yaml, cell states under info, a file for each slot",
        (),
        partial(gdsfactory.write_slots, gdsfactory.layout_tree),
        cells=True,
        options=_CELL_NAMES,
    ),
    "sonic-ocs": Exporter(
        "SONiC optical switches: OCS_CROSS_CONNECT and OCS_PORT of config_db.json for each switch"
        " and slot; with --from-slot the change as a JSON patch",
        (),
        write_sonic_configs,
        options=("ports", "slot", "from_slot"),
    ),
    "sonic-cli": Exporter(
        "the same as commands `config ocs cross-connect`, slot after slot",
        (),
        partial(write_commands, NamedSwitch.command_lines),
        options=("ports", "slot", "from_slot"),
    ),
    "polatis-scpi": Exporter(
        "SCPI commands of Polatis switches, slot after slot",
        (),
        partial(write_commands, NamedSwitch.scpi_lines),
        options=("ports", "slot", "from_slot"),
    ),
}
"""Exporters by the name of their format."""


def export(
    solution: Solution,
    to: str,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    rate_bytes_per_s: float | None = None,
    **options: Unpack[FormatOptions],
) -> list[str]:
    """Write a solution as a file, or several files, that another tool reads.

    Parameters
    ----------
    solution
        The solution.
    to
        The format, a name in `EXPORTERS`.
    path
        The file, or what the names of several begin with; of these, their ending may be there.
    force
        Whether files that are there are replaced.
    rate_bytes_per_s
        The bandwidth of a circuit, for problems that state none.
    **options
        Those of the format, see `FormatOptions`.

    Returns
    -------
    list of str
        The names of the files.

    Raises
    ------
    InputError
        If the format is unknown or does not suit the solution, a file is there (without `force`),
        or one cannot be written. Nothing is written then.
    """
    written = _write(solution, to, rate_bytes_per_s, options)
    if isinstance(written, Document):
        return save_tree(written.tree, path, force=force)
    files = {"": written} if isinstance(written, str) else written
    if len(files) > 1 and is_stream(path):
        raise InputError(
            f"{to}: {len(files)} files cannot go into one stream", path=path_name(path)
        )

    # Of several files a name with their ending is the name before it: ``a.json`` becomes
    # ``a.slot-000.json``.
    begin = path_name(path)
    if len(files) > 1:
        begin = begin.removesuffix(PurePath(next(iter(files))).suffix)
    names = [begin + ending for ending in files]
    targets = [check_target(name, force=force) for name in names]
    # If one file cannot be written, those that are new are taken away again.
    new = [target for target in targets if not target.exists()]
    try:
        for target, content in zip(targets, files.values(), strict=True):
            replace_file(target, content.encode() if isinstance(content, str) else content)
    except BaseException:
        for target in new:
            target.unlink(missing_ok=True)
        raise
    return names


def exported(
    solution: Solution,
    to: str,
    rate_bytes_per_s: float | None = None,
    **options: Unpack[FormatOptions],
) -> Exported:
    """Return what `export` writes, as text with all arrays in it, or contents by endings."""
    written = _write(solution, to, rate_bytes_per_s, options)
    if isinstance(written, Document):
        return layout(detach(written.tree, None)[0]) + "\n"
    return written


def _write(
    solution: Solution, to: str, rate_bytes_per_s: float | None, options: FormatOptions
) -> Exported | Document:
    """Write a solution in a format, after a check that it answers its problem.

    Options and kinds of problems that do not suit the format are refused. The rate of a circuit is
    for formats that are `rated` (they have no options); None if the problem states it.
    """
    if to not in EXPORTERS:
        raise InputError(f"format {to!r}: {nearest_name(str(to), EXPORTERS)}")
    solution.check_fits()
    exporter = EXPORTERS[to]
    for option in options:
        if option not in exporter.options:
            takers = [name for name, other in EXPORTERS.items() if option in other.options]
            raise InputError(
                f"{option}: not for this format, only for {', '.join(takers) or 'none'}",
                where=option,
            )
    kind = solution.problem.kind
    if exporter.kinds and kind not in exporter.kinds:
        listed = ", ".join(exporter.kinds)
        raise InputError(f"a solution of kind {kind}: this format is for {listed}")

    if exporter.rated:
        written = exporter.function(solution, rate_bytes_per_s)
    else:
        written = exporter.function(solution, **options)
    if isinstance(written, Mapping) and not written:
        raise InputError(f"{to}: there is nothing to write, as the answer has no slots")
    return written


def to_dataframe(solution: Solution) -> Any:
    """Return the answer of a solution as a table of pandas, as `Solution.to_dataframe` does."""
    return solution.to_dataframe()
