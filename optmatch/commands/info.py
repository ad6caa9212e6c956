"""`optmatch info`, `methods` and `warm-up`: a fabric, the machine, the methods, the kernels."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from inspect import getdoc, unwrap
from math import isfinite
from textwrap import indent
from typing import TYPE_CHECKING, Any, get_type_hints

import click
import numpy as np

from optmatch.commands.shared.options import (
    JSON,
    JSON_LINES,
    NETLIST_OPTIONS,
    NETLIST_PORT_OPTIONS,
    describe_problem,
    read_fabric_and_content,
    with_options,
)
from optmatch.commands.shared.outcome import (
    SOLVED,
    STDIN,
    for_each,
    name_of,
    print_object,
    print_rows,
    print_table,
)
from optmatch.commands.shared.progress import listening
from optmatch.fabrics import UNREACHED, Fabric, Netlist, RackFabric
from optmatch.model.accounts import accounting
from optmatch.model.declarations import Plain, form_of
from optmatch.model.errors import nearest_name
from optmatch.model.files import is_stream

if TYPE_CHECKING:
    from optmatch.kinds import Kind
    from optmatch.problems import RailJob, Reroute, Transition
    from optmatch.solvers.method import Method

# Dead pairs of ports, and names of ports, that are printed.
_MAX_LISTED = 8
_PACKAGES = ("numpy", "scipy", "numba", "ortools", "networkx", "protobuf", "click", "matplotlib")


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@with_options(NETLIST_OPTIONS)
@with_options(NETLIST_PORT_OPTIONS)
@with_options((JSON_LINES,))
@click.pass_context
def info(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show what each FILE asks, and what its fabric can do: a problem, a schedule or a netlist.

    Of traffic and traces of a rank, show what they hold. Of all that other programs wrote, show
    what was used and what was passed over.

    Without a FILE: versions, platform and the folder of compiled kernels.
    """
    if files:
        ctx.exit(for_each(files, lambda file: _show_file(file, options, as_json), as_json=as_json))
    facts = collect()
    if as_json:
        print_object("info", facts)
        return
    print_rows({name: value or "not installed" for name, value in facts.items()}, indent=0)


def _show_file(file: str, options: dict[str, Any], as_json: bool) -> int:
    """Print the facts of the fabric of one file, and return the exit code.

    Of a netlist all ports follow. Of a file in a format of other programs it is told which of its
    fields were used and which were passed over (`account`). `options` are those of `optmatch
    info`, by name. A file of data, such as a matrix, has facts but no fabric; nor has a training
    job.
    """
    from optmatch.problems import RailJob, Reroute

    fabric: Fabric | None = None
    with accounting(name_of(file)) as account:
        facts = _describe_data(file)
        ports: list[dict[str, Any]] = []
        changed: list[dict[str, Any]] = []
        tag = "data"
        if facts is None:
            # A problem comes before what is known of its fabric; a training job has none.
            tag = "fabric"
            fabric, content = read_fabric_and_content(file, options)
            problem: Any = getattr(content, "problem", content)
            facts = {}
            if problem is not None:
                facts = {"type": problem.kind, "problem": describe_problem(problem)}
            if isinstance(problem, RailJob):
                facts |= _describe_job(problem)
            if isinstance(problem, Reroute):
                changed = _list_changed_circuits(problem, getattr(content, "answer", None))

            # The kind of the fabric takes the place of that of the problem.
            if fabric is not None:
                facts |= _describe_fabric(fabric)
                ports = list_ports(fabric)
    if as_json:
        # Data have no table of ports, and fabrics of our own files no account of what was read.
        tree = {"file": file, **facts}
        for key, table in (("port_table", ports), ("changed_circuits", changed)):
            if table:
                tree[key] = table
        if account.lines() or tag == "data":
            tree["read"] = account.lines()
        print_object(tag, tree)
        return SOLVED

    click.echo(f"{name_of(file)}: {facts.pop('type')}")

    # Degrees are a table in JSON, and words here.
    if "degrees" in facts:
        facts["degrees"] = ", ".join(f"{name} {size}" for name, size in facts["degrees"].items())
    if "dead_pairs" in facts:
        # The row moves to the end, since it is the longest one.
        pairs = [f"{source}-{destination}" for source, destination in facts.pop("dead_pairs")]
        facts["dead_pairs"] = _count_and_list(pairs)
    if (
        fabric is not None
        and not ports
        and fabric.labels != tuple(map(str, range(fabric.n_ports)))
    ):
        facts["ports"] = _count_and_list(fabric.labels)
    print_rows(facts)

    # Tables of ports and circuits, and what was read of files of others.
    for row in ports:
        reached_ports = ", ".join(row["reaches"]) or "no port"
        click.echo(f"  port {row['port']} {row['name']}: at {row['at']}, reaches {reached_ports}")
    if changed:
        print_table(
            [
                ["changed circuit", "before", "after"],
                *([str(value) for value in row.values()] for row in changed),
            ],
            indent=2,
        )
    for line in account.lines():
        click.echo(f"  read: {line}")
    return SOLVED


def _count_and_list(words: Sequence[str]) -> str:
    """Return how many words there are, and the first of them, as ``2, 0-3, 1-4``."""
    more = " and more" if len(words) > _MAX_LISTED else ""
    return ", ".join([str(len(words)), *words[:_MAX_LISTED]]) + more


def _list_changed_circuits(problem: Reroute, answer: Transition | None) -> list[dict[str, Any]]:
    """List the circuits that a reroute changes, with their ends before and after it, in words.

    Ends are chips of a rack, else ports, by the names that somebody gave them.
    """
    if answer is None:
        return []
    noun = "port"
    ports_per_end = 1
    names: Sequence[Any] = problem.fabric.labels
    if isinstance(problem.fabric, RackFabric):
        noun = "chip"
        ports_per_end = problem.fabric.ports_per_chip
        names = range(problem.fabric.n_chips)

    rows = []
    for circuit, ports in zip(answer.changed.tolist(), answer.circuits.tolist(), strict=True):
        row: dict[str, Any] = {"circuit": circuit}
        for name, ends in (("before", problem.circuits[circuit].tolist()), ("after", ports)):
            source, destination = (names[end // ports_per_end] for end in ends)
            row[name] = f"{noun} {source} to {noun} {destination}"
        rows.append(row)
    return rows


def _describe_data(file: str) -> dict[str, Any] | None:
    """Return the facts of a file of traffic or of the trace of a rank; None of other files.

    Facts are numbers by name, after ``"type"``. A stream is left alone, since it could not be read
    again.
    """
    from optmatch.io.matrices import holds_traffic, read_traffic
    from optmatch.io.rails.chakra import is_trace, read_trace
    from optmatch.io.rails.kineto import is_recording, read_recording

    if file == STDIN or is_stream(file):
        return None
    if is_trace(file):
        nodes = read_trace(file)
        (rank,) = nodes.path_of_rank
        return {"type": "Chakra trace", "rank": rank, "nodes": len(nodes.node_id)}
    if is_recording(file):
        recording = read_recording(file)
        return {
            "type": "trace of PyTorch's profiler",
            "rank": recording.rank,
            "communications": len(recording.calls),
            "computations": len(recording.computing),
        }
    if not holds_traffic(file):
        return None
    traffic = read_traffic(file)
    rows, columns = traffic.demand_bytes.shape
    return {
        "type": "traffic",
        "sources": rows,
        "destinations": columns,
        "entries": int((traffic.demand_bytes != 0).sum()),
        "total_bytes": float(traffic.demand_bytes.sum()),
    }


def list_ports(fabric: Fabric) -> list[dict[str, Any]]:
    """List the ports of a netlist: where each is, and which ports it can reach.

    A row is a dict: "port" and "name", its terminals ("at"), and under "reaches" the ports that
    receive its light in some state of the cells. There are none for a fabric that is no netlist.
    """
    netlist = fabric.intact
    if not isinstance(netlist, Netlist):
        return []

    # Neither a dead port nor a bidirectional one can reach itself.
    is_reached = fabric.route_cells() != UNREACHED
    is_reached[list(fabric.dead_ports)] = False
    if fabric.bidirectional:
        np.fill_diagonal(is_reached, False)

    rows = []
    for port, name in enumerate(fabric.port_names):
        # A bidirectional port sends and receives at the same terminal, which is named once.
        terminals = (fabric.source_terminals[port], fabric.destination_terminals[port])
        terminal_names = [netlist.graph.terminal_name(int(terminal)) for terminal in terminals]
        receivers = np.flatnonzero(is_reached[port]).tolist()
        reaches = [fabric.receiver_names[receiver] for receiver in receivers]
        place = ", ".join(dict.fromkeys(terminal_names))
        rows.append({"port": port, "name": name, "at": place, "reaches": reaches})
    return rows


def _describe_job(job: RailJob) -> dict[str, Any]:
    """Return the GPUs, degrees of parallelism, servers and rails of a training job, by name."""
    from optmatch.problems.rails.training.step import DIMENSIONS

    # A recorded step has groups, but no degrees.
    groups = job.groups()
    degrees: dict[str, int] = {}
    for dimension in DIMENSIONS:
        size = getattr(job.parallelism, dimension, 1)
        if job.workload.recorded is not None:
            sizes = [len(group.ranks) for group in groups if group.dimension == dimension]
            size = max(sizes, default=1)
        if size > 1:
            degrees[dimension] = size
    return {
        "gpus": job.n_gpus,
        "degrees": degrees,
        "gpus_per_server": job.network.gpus_per_server,
        "rails": len({group.rail for group in groups} - {-1}),
    }


def _describe_fabric(fabric: Fabric) -> dict[str, Any]:
    """Return what a fabric is and can do; matchings are counted for few ports only.

    ``permutations`` (of bidirectional ports ``pairings``) is the number of all full matchings,
    ``..._held`` of those that some state of the cells holds, and ``..._open`` of those for which
    neither was proved.
    """
    facts = {"type": fabric.type, **fabric.facts()}
    if fabric.graph is None:
        return facts
    from optmatch.solvers.routing.reachable import count_matchings

    counts = count_matchings(fabric)
    if counts is not None:
        kind = "pairings" if fabric.bidirectional else "permutations"
        facts[kind] = counts.total
        facts[f"{kind}_held"] = counts.held
        n_undecided = counts.total - counts.held - counts.refuted
        if n_undecided > 0:
            facts[f"{kind}_open"] = n_undecided
    return facts


def collect() -> dict[str, Any]:
    """Collect the versions and the surroundings that a report of an error needs, by name.

    The version of a package that is not installed is None.
    """
    from importlib.metadata import PackageNotFoundError, version

    from optmatch import __version__
    from optmatch.solvers.kernels.folders import kernel_folder

    versions: dict[str, str | None] = dict.fromkeys(_PACKAGES)
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)

    # The folder of kernels is made with the first one: until then its first existing parent says
    # whether it can be written.
    folder = kernel_folder()
    existing = folder
    while not existing.exists():
        existing = existing.parent
    is_writable = existing.is_dir() and os.access(existing, os.W_OK)
    return {
        "optmatch": __version__,
        "python": platform.python_version(),
        **versions,
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "numba_cache": str(folder) if is_writable else f"{folder} (read-only)",
    }


@click.command()
@click.argument("name", metavar="[NAME|KIND]", required=False)
@JSON
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, by the kind of problem that they accept.

    With the NAME of a method, print all about it; with a KIND of problems, the methods for it.
    """
    from optmatch.kinds import KIND_NAMES, all_kinds, all_methods

    selected = [m for m in all_methods() if name in (None, m.name, m.solves.kind)]
    if name is not None and name not in KIND_NAMES and not selected:
        known_names = [*KIND_NAMES, *(method.name for method in all_methods())]
        hint = nearest_name(name, known_names, "`optmatch methods` lists both")
        raise click.UsageError(f"{name!r}: no method, no kind; {hint}")

    if as_json:
        objects = [
            {
                "kind": method.solves.kind,
                "name": method.name,
                "exact": method.exact,
                "deterministic": method.deterministic,
                "summary": method.summary,
                "params": _list_params(method),
            }
            for method in selected
        ]
        print_object("methods", {"methods": objects})
        return
    for kind in all_kinds():
        methods_of_kind = [method for method in selected if method.solves is kind.problem]
        if methods_of_kind:
            click.echo(f"{kind.problem.kind}:")
            is_method = name is not None and name not in KIND_NAMES
            _print_methods(kind, methods_of_kind, in_full=is_method)


def _print_methods(kind: Kind, methods: list[Method], *, in_full: bool) -> None:
    """Print a line for each method of a kind: name, summary, and if it is exact or the default.

    Methods stand in the order in which the default is chosen; with `in_full` their parameters and
    docstrings follow.
    """
    # The first method that suits all problems is the default. Methods before it are the default
    # for the problems that they suit.
    suits_all = [method.suits is None for method in kind.methods]
    n_first = [*suits_all, True].index(True)
    names = [method.name for method in kind.methods]

    # A line for each method, with its marks in brackets.
    width = max(len(method.name) for method in methods)
    for method in methods:
        marks = []
        if method.name in names[:n_first]:
            marks.append("default where it fits")
        elif method.name in names[: n_first + 1]:
            marks.append("default")
        if method.exact:
            marks.append("exact")
        suffix = f" ({', '.join(marks)})" if marks else ""
        click.echo(f"  {method.name:<{width}}  {method.summary}{suffix}")
        if not in_full:
            continue

        # The parameters of the method, and the docstring of its function without references.
        for param in _list_params(method):
            upper_end = " or more" if param["most"] is None else f" to {param['most']:g}"
            values = (
                f"{param['type']}, {param['least']:g}{upper_end}; {param['default']} by default"
            )
            click.echo(f"    --param {param['name']}=...  {param['summary']} ({values})")
        run = unwrap(method.load())
        docstring = getdoc(getattr(run, "func", run)) or ""
        if docstring:
            text = docstring.partition("\nReferences")[0].strip()
            click.echo("\n" + indent(text, "    ") + "\n")


def _list_params(method: Method) -> list[dict[str, Any]]:
    """List the parameters of a method that are numbers, with type, default, range and summary."""
    if method.params is None:
        return []
    hints = get_type_hints(method.params, include_extras=True)
    params = []
    for field in fields(method.params):
        hint = hints[field.name]
        form = form_of(hint)
        if isinstance(form, Plain):
            param = {
                "name": field.name,
                "type": form.type.__name__,
                "default": field.default,
                "least": form.span.least,
                "most": form.span.most if isfinite(form.span.most) else None,
                "summary": hint.__metadata__[-1],  # the sentence is the last annotation
            }
            params.append(param)
    return params


@click.command("warm-up")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def warm_up(quiet: bool) -> None:
    """Compile the kernels of the default methods of all kinds of problems.

    First calls then take no longer than later ones. Compiled kernels are kept in the folder that
    `optmatch info` names.
    """
    from optmatch.control.warming import warm_up as warm_up_kernels
    from optmatch.kinds import KIND_NAMES
    from optmatch.solvers.kernels.folders import kernel_folder

    for number, kind in enumerate(KIND_NAMES, 1):
        with listening(f"{kind} ({number} of {len(KIND_NAMES)})", quiet=quiet) as listen:
            warm_up_kernels(kind, on_event=listen)
    click.echo(f"kernels: {kernel_folder()}")
