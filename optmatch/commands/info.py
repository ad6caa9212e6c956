"""`optmatch info`, `methods` and `warm-up`: a fabric, the machine, the methods, the kernels."""

from __future__ import annotations

import os
import platform
from dataclasses import fields
from difflib import get_close_matches
from inspect import getdoc
from itertools import takewhile
from math import isfinite
from textwrap import indent
from typing import TYPE_CHECKING, Any, get_type_hints

import click

from optmatch.commands.shared.options import (
    JSON,
    JSON_LINES,
    NETLIST_OPTIONS,
    NETLIST_PORT_OPTIONS,
    fabric_of,
    with_options,
)
from optmatch.commands.shared.outcome import SOLVED, for_each, name_of, print_object, print_rows
from optmatch.commands.shared.progress import listening
from optmatch.fabrics import Fabric, Faulty, Netlist
from optmatch.model.declarations import Plain, form_of

if TYPE_CHECKING:
    from optmatch.kinds import Kind
    from optmatch.solvers.method import Method

_SHOWN = 8
_PACKAGES = ("numpy", "scipy", "numba", "ortools", "networkx", "protobuf", "click", "matplotlib")


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@with_options(NETLIST_OPTIONS)
@with_options(NETLIST_PORT_OPTIONS)
@with_options((JSON_LINES,))
@click.pass_context
def info(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show the abilities of the fabric of each FILE: a netlist, a problem or a schedule.

    Without a FILE: versions, platform and the folder of compiled kernels.
    """
    if files:
        ctx.exit(for_each(files, lambda file: _show(file, options, as_json), as_json=as_json))
    found = collect()
    if as_json:
        print_object("info", found)
        return
    print_rows({name: found[name] or "not installed" for name in found}, indent=0)


def _show(file: str, options: dict[str, Any], as_json: bool) -> int:
    fabric = fabric_of(file, options)
    found = describe_fabric(fabric)
    ports = list_ports(fabric)
    if as_json:
        print_object("fabric", {"file": file, **found, **({"port_table": ports} if ports else {})})
        return SOLVED
    click.echo(f"{name_of(file)}: {found.pop('type')}")
    if "dead_pairs" in found:
        dead = found.pop("dead_pairs")
        found["dead_pairs"] = f"{len(dead)}" + "".join(f", {i}-{j}" for i, j in dead[:_SHOWN])
        if len(dead) > _SHOWN:
            found["dead_pairs"] += " and more"
    print_rows(found)
    for row in ports:
        reached = ", ".join(row["reaches"]) or "no port"
        click.echo(f"  port {row['port']} {row['name']}: at {row['at']}, reaches {reached}")
    return SOLVED


def list_ports(fabric: Fabric) -> list[dict[str, Any]]:
    """List the ports of a netlist: number, name, terminals, and the ports that each can reach.

    Where no name tells which ports send, those that can reach each other lie on different sides.
    """
    inner = fabric.fabric if isinstance(fabric, Faulty) else fabric
    if not isinstance(inner, Netlist):
        return []
    dead = set(fabric.dead_pairs())
    if fabric.bidirectional:
        dead |= {(j, i) for i, j in dead}
    rows = []
    for port, name in enumerate(fabric.port_names):
        ends = [int(fabric.source_terminals[port]), int(fabric.destination_terminals[port])]
        at = [inner.graph.terminal_name(terminal) for terminal in dict.fromkeys(ends)]
        reaches = [
            other_name
            for other, other_name in enumerate(fabric.receiver_names)
            if (port, other) not in dead and not (fabric.bidirectional and other == port)
        ]
        rows.append({"port": port, "name": name, "at": ", ".join(at), "reaches": reaches})
    return rows


def describe_fabric(fabric: Fabric) -> dict[str, Any]:
    """Return what a fabric is and can do; matchings are counted for few ports only."""
    found = {"type": fabric.type, **fabric.facts()}
    if fabric.graph is None:
        return found
    from optmatch.solvers.routing.reachable import count_matchings

    counted = count_matchings(fabric)
    if counted is not None:
        kind = "pairings" if fabric.bidirectional else "permutations"
        found |= {kind: counted.total, f"{kind}_held": counted.held}
        if counted.held + counted.refuted < counted.total:
            found[f"{kind}_open"] = counted.total - counted.held - counted.refuted
    return found


def collect() -> dict[str, Any]:
    """Return names and values; None for a package that is not installed."""
    from optmatch import __version__

    return {
        "optmatch": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "numba_cache": _cache_folder(),
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cache_folder() -> str:
    """Return where compiled kernels are kept, and whether they can be."""
    from optmatch.solvers.kernels.folders import kernel_folder

    folder = kernel_folder()
    made = next(place for place in (folder, *folder.parents) if place.exists())
    return str(folder) if made.is_dir() and os.access(made, os.W_OK) else f"{folder} (read-only)"


@click.command()
@click.argument("name", metavar="[NAME|KIND]", required=False)
@JSON
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, by the kind of problem that they accept.

    With the NAME of a method, print all about it; with a KIND of problems, the methods for it.
    """
    from optmatch.kinds import all_kinds, all_methods, check_method_name

    kinds = [kind.problem.kind for kind in all_kinds()]
    of_kind = name in kinds
    if of_kind:
        listed = [method for method in all_methods() if method.solves.kind == name]
    else:
        close_kinds = get_close_matches(str(name), kinds, n=1)
        if close_kinds and name not in {method.name for method in all_methods()}:
            raise click.UsageError(f"{name!r}: no method, no kind; perhaps {close_kinds[0]!r}")
        if name is not None:
            check_method_name(name)
        listed = [method for method in all_methods() if name in (None, method.name)]
    if as_json:
        print_object("methods", {"methods": [_method_object(method) for method in listed]})
        return
    for kind in all_kinds():
        methods_of_kind = [method for method in listed if method.solves is kind.problem]
        if methods_of_kind:
            click.echo(f"{kind.problem.kind}:")
            _print_methods(kind, methods_of_kind, in_full=name is not None and not of_kind)


def _method_object(method: Method) -> dict[str, Any]:
    """Return what `--json` prints about a method."""
    return {
        "kind": method.solves.kind,
        "name": method.name,
        "exact": method.exact,
        "deterministic": method.deterministic,
        "summary": method.summary,
        "params": _list_params(method),
    }


def _print_methods(kind: Kind, methods: list[Method], *, in_full: bool) -> None:
    """Print a line for each method of a kind; in full also its parameters and its docstring."""
    default = next(method.name for method in kind.methods if method.suits is None)
    # Methods before the default that suit some problems only are the default for those.
    default_where_fitting = {
        method.name for method in takewhile(lambda method: method.suits, kind.methods)
    }
    width = max(len(method.name) for method in methods)
    for method in methods:
        marks = []
        if method.name in default_where_fitting:
            marks.append("default where it fits")
        if method.name == default:
            marks.append("default")
        if method.exact:
            marks.append("exact")
        marked = f" ({', '.join(marks)})" if marks else ""
        click.echo(f"  {method.name:<{width}}  {method.summary}{marked}")
        if in_full:
            _print_in_full(method)


def _print_in_full(method: Method) -> None:
    """Print the parameters of a method, and the docstring of its function."""
    for param in _list_params(method):
        most = " or more" if param["most"] is None else f" to {param['most']:g}"
        span = f"{param['type']}, {param['least']:g}{most}; {param['default']} by default"
        click.echo(f"    --param {param['name']}=...  {param['summary']} ({span})")
    run = method.load()
    docstring = getdoc(getattr(run, "func", run)) or ""
    if docstring:
        text = docstring.partition("\nReferences")[0].strip()
        click.echo("\n" + indent(text, "    ") + "\n")


def _list_params(method: Method) -> list[dict[str, Any]]:
    if method.params is None:
        return []
    hints = get_type_hints(method.params, include_extras=True)
    return [
        {
            "name": field.name,
            "type": form.type.__name__,
            "default": field.default,
            "least": form.span.least,
            "most": form.span.most if isfinite(form.span.most) else None,
            "summary": hints[field.name].__metadata__[-1],
        }
        for field in fields(method.params)
        if isinstance(form := form_of(hints[field.name]), Plain)
    ]


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
