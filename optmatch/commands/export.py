"""`optmatch export` and `optmatch plot`: a solution for other tools, and for eyes."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.shared.chip import DEVICE, DEVICE_CELLS, choose_cells
from optmatch.commands.shared.options import (
    FORCE,
    RATE,
    Parsed,
    listed,
    with_options,
    without_none,
)
from optmatch.commands.shared.outcome import STDIN, name_of, read, read_solution, say
from optmatch.model import InputError, naming


def _complete_format(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """List the formats whose names begin so, for the completion of a shell."""
    from optmatch.io.exports import EXPORTERS

    return [name for name in EXPORTERS if name.startswith(incomplete)]


class Export(click.Command):
    """A command whose help ends with the list of formats."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the formats, with the example below."""
        from optmatch.io.exports import EXPORTERS

        with formatter.section("Formats"):
            formatter.write_dl([(name, exporter.what) for name, exporter in EXPORTERS.items()])
        super().format_epilog(ctx, formatter)


_MOST_DIGITS = 9
"""The digits of the number of a slot; Python refuses to read numbers of thousands of digits."""


def _read_slot_before(text: str) -> int | str:
    """Read the number of a slot, or the word ``previous``; else it is a `ValueError`."""
    if text == "previous":
        return text
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ValueError(text)
    return int(text)


_SLOT_BEFORE = Parsed("slot", _read_slot_before, "the number of a slot, or previous")


@click.command(cls=Export)
@click.argument("file", metavar="SCHEDULE", type=click.Path())
@click.option(
    "--to",
    metavar="FORMAT",
    required=True,
    shell_complete=_complete_format,
    help="Name of the format, see below.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default="-",
    show_default="stdout",
    help="File to write; if there are several, how their names begin.",
)
@click.option(
    "--rate",
    type=RATE,
    help="Bytes per second of a circuit, or as 100Gbit/s, for bandwidths of problems without"
    " bytes.",
)
@click.option("--component", help="Name of a cell.  [default: as of the format]")
@click.option(
    "--pins",
    type=listed(str, "four names"),
    help="Names of its pins a1, a2, b1 and b2.  [default: as of the format]",
)
@click.option(
    "--ports",
    type=click.Path(),
    help="CSV with the sides of each port of a switch: port,A,B and perhaps switch,label."
    "  [default: 1A and 1B for port 0, and on]",
)
@click.option(
    "--slot",
    type=click.IntRange(min=0),
    help="sonic-ocs, sonic-cli, polatis-scpi: write this slot alone; the first is 0. Commands lead"
    " to it from a dark switch, or with --from-slot from another slot.",
)
@click.option(
    "--from-slot",
    type=_SLOT_BEFORE,
    help="With the same formats: write the change from this slot, or from the `previous` one, as a"
    " patch or as commands.",
)
@click.option(
    "--heaters",
    type=click.Path(),
    help="CSV or JSON with the calibration of each heater: cell, arm, a_rad, b_rad_per_v2, ...",
)
@click.option(
    "--most-mw",
    type=click.FloatRange(min=0),
    help="With --heaters: the power that all of them may take at any time.",
)
@click.option(
    "--dialect",
    type=click.Choice(["msccl", "msccl-executor-nccl", "rccl"]),
    help="The runtime that is to read a program of MSCCL.  [default: msccl]",
)
@with_options((DEVICE, DEVICE_CELLS))
@FORCE
def export(
    file: str,
    to: str,
    output: str,
    rate: float | None,
    component: str | None,
    pins: list[str] | None,
    device: str | None,
    device_cells: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Write a schedule or a plan of rails for other tools. `-` is stdin.

    A format of several files writes one for each slot, rank or switch. With --to csv, an answer
    without a timeline is written as the table that `to_dataframe` returns in Python.
    """
    # `file` has the solution, `to` is the name of the format, and `output` the file that is
    # written, "-" for stdout. `rate` is that of a circuit in bytes per second. `device` and
    # `device_cells` say which device each cell is. All others but
    # `force` are options of some formats alone, None if they are not set.
    from optmatch.io.exports import export as write, exported

    if pins is not None and (len(pins) != 4 or len(set(pins)) != 4):
        raise click.UsageError(f"--pins {','.join(pins)}: four different names")

    solution = read_solution(file)

    # Options that are not set are left out, since most formats take none of them.
    format_options = without_none({**options, "component": component or None, "pins": pins})
    if device is not None or device_cells is not None:
        format_options["cells"] = choose_cells(device, device_cells, solution.problem.fabric)
    # A format of one file can go to stdout.
    with naming(name_of(file)):
        if output == STDIN:
            content = exported(solution, to, rate, **format_options)
            if not isinstance(content, str):
                raise InputError(f"{to}: several files; -o says how their names begin")
            click.echo(content, nl=False)
            return
        files = write(solution, to, output, force=force, rate_bytes_per_s=rate, **format_options)
    if len(files) == 1:
        say(f"{files[0]}: written")
    else:
        say(f"{files[0]} to {files[-1]}, {len(files)} files: written")


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="x.png, .svg, .pdf or .html"
)
@click.option(
    "--slot",
    type=click.IntRange(min=0),
    help="Draw this slot alone; the first is 0, as in files.  [default: all]",
)
@click.option("--title", help="What stands above it.  [default: what it shows]")
@click.option(
    "--width",
    "width_mm",
    metavar="MM",
    type=click.FloatRange(min=20),
    help="Its width, as 85 for a column of a paper.  [default: what it needs]",
)
@FORCE
def plot(file: str, output: str, force: bool, **options: Any) -> None:
    """Draw a schedule file, or what a problem file asks; .html is a page to click through."""
    # `output` is the picture or page, and `options` are its slot, title and width.
    from optmatch.plotting import save_picture

    content = read(file)
    with naming(name_of(file)):
        save_picture(content, output, force=force, **options)
    say(f"{output}: written")
