"""What a solution can be written as for other tools: one table of exporters, by format.

To add one: an entry in `EXPORTERS`, with the kinds of problems it takes and ``module:function``.
The function takes a `Solution` and returns text; or a mapping of endings to contents, where one
file is not enough: ``{".0.et": ..., ".1.et": ...}`` for ``-o run`` becomes ``run.0.et`` and
``run.1.et``. It raises `InputError` for what it cannot write. `optmatch export` needs no more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from optmatch.io.files import check_target, replace_file
from optmatch.model import InputError, Solution

Exported = str | Mapping[str, str | bytes]


class Exporter(NamedTuple):
    """A format that solutions can be written in."""

    what: str
    """One line for the manual."""
    kinds: tuple[str, ...]
    """Kinds of problems; empty for all with a schedule, or a plan of rails."""
    function: str
    """``module:function``, loaded when it is needed."""
    cells: bool = False
    """Whether it writes cell states, so only schedules that have some."""

    def write(self, solution: Solution) -> Exported:
        """Write a solution.

        Raises
        ------
        InputError
            If it is of another kind.
        """
        kind = solution.problem.kind
        if self.kinds and kind not in self.kinds:
            raise InputError(
                f"a solution of kind {kind}: this format is for {', '.join(self.kinds)}"
            )
        module, name = self.function.split(":")
        written: Exported = getattr(import_module(module), name)(solution)
        return written


_JOB = ("rail-job",)

EXPORTERS: dict[str, Exporter] = {
    "csv": Exporter(
        "phases theta and phi of all set cells, with their convention; of a switch without cells"
        " and of a plan the timeline", (), "optmatch.io.netlists.cell_states:write_csv",
    ),
    "perfetto": Exporter(
        "the same as trace events, for ui.perfetto.dev",
        (),
        "optmatch.io.rails.timeline:trace_events",
    ),
    "astra-bw": Exporter(
        "astra-sim circuit schedules: blocks BW of GB/s",
        (),
        "optmatch.io.astra.files:bandwidths",
    ),
    "astra-lt": Exporter(
        "their latencies: blocks LT of ns",
        (),
        "optmatch.io.astra.files:latencies",
    ),
    "astra-network": Exporter(
        "network.yml of astra-sim, with the reconfiguration time",
        (),
        "optmatch.io.astra.files:network",
    ),
    "astra-log": Exporter(
        "when astra-sim would switch to which topology, as its log", (),
        "optmatch.io.astra.files:reconfigurations",
    ),
    "astra-groups": Exporter(
        "communicator groups, JSON",
        _JOB,
        "optmatch.io.astra.files:communicators",
    ),
    "astra-mapping": Exporter(
        "pg-2-schedule.yml: the topology of each group",
        _JOB,
        "optmatch.io.astra.files:group_topologies",
    ),
    "chakra": Exporter(
        "the step as Chakra traces, a file for each rank",
        _JOB,
        "optmatch.io.astra.files:traces",
    ),
    "openoptics": Exporter(
        "OpenOptics circuits: [time_slice, node1, node2, port1, port2], JSON", (),
        "optmatch.io.rails.openoptics:circuit_list",
    ),
    "openoptics-matrix": Exporter(
        "OpenOptics from_schedule: peers by slice and port, text", (),
        "optmatch.io.rails.openoptics:peer_matrix",
    ),
    "timeline": Exporter(
        "operations, circuits and reconfigurations with their times, CSV", (),
        "optmatch.io.rails.timeline:timeline_csv",
    ),
    "json": Exporter(
        "phases theta and phi of all set cells, with their convention", (),
        "optmatch.io.netlists.cell_states:write_phases_json", cells=True,
    ),
    "smartlight": Exporter(
        'a line for each slot: [cell, "x" | "="] of all set cells, JSON', (),
        "optmatch.io.netlists.cell_states:write_smartlight", cells=True,
    ),
    "netlist": Exporter(
        "netlist of gdsfactory and sax, cell states as settings, a file for each slot", (),
        "optmatch.io.netlists.gdsfactory:write_netlist", cells=True,
    ),
}  # fmt: skip
"""Exporters by the name of their format."""


def export(
    solution: Solution, to: str, path: str | os.PathLike[str], *, force: bool = False
) -> list[str]:
    """Write a solution as a file, or as files, of another tool.

    Parameters
    ----------
    solution
        What is to be written.
    to
        A name in `EXPORTERS`.
    path
        The file; of formats with several files what their names begin with.
    force
        Whether files that are there may be replaced.

    Returns
    -------
    list of str
        The names of the files.

    Raises
    ------
    InputError
        If the format is unknown or does not suit the solution, or a file cannot be written;
        nothing is written then.
    """
    written = exported(solution, to)
    files = {"": written} if isinstance(written, str) else written
    targets = [check_target(os.fspath(path) + ending, force=force) for ending in files]
    for target, content in zip(targets, files.values(), strict=True):
        replace_file(target, content.encode() if isinstance(content, str) else content)
    return [os.fspath(path) + ending for ending in files]


def exported(solution: Solution, to: str) -> Exported:
    """Return what `export` writes.

    Raises
    ------
    InputError
        If the format is unknown or does not suit the solution.
    """
    if to not in EXPORTERS:
        raise InputError(f"format {to!r}: known are {', '.join(EXPORTERS)}")
    return EXPORTERS[to].write(solution)
