"""`optmatch faults`: how likely a schedule survives random faults, and which cells matter."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
    FORCE,
    JSON,
    QUIET,
    Duration,
    SectionedCommand,
    count,
    executing,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    SOLVED,
    csv_text,
    name_of,
    print_object,
    read,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import Limit, Solution, naming

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optmatch.fabrics import Fabric
    from optmatch.studies.all_to_all import YieldStudy

_KINDS = ("stuck-bar", "stuck-cross", "dead-cell")

# Critical cells that are printed.
_MAX_CELLS = 10


@click.command(cls=SectionedCommand)
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "-k",
    "--faults",
    "n_faults",
    type=click.IntRange(min=0),
    default=1,
    help="How many cells break in each sample.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    help="Draw this kind of fault; repeatable.  [default: all]",
)
@count("--samples", 1000, "Number of samples.")
@count("--seed", None, "Seed of the faults.  [default: drawn and reported]")
@click.option("--time-limit", "time_limit_s", type=Duration(), help="Stop after so many seconds.")
@click.option("--fixed", is_flag=True, help="No pair may move to another slot.")
@click.option("-o", "--output", type=click.Path(), help="Write figures by cell: x.json or x.csv.")
@click.option("--plot", "picture", type=click.Path(), help="Draw a heat map: x.png, .svg or .pdf.")
@with_options((*EXECUTOR_OPTIONS, FORCE, JSON, QUIET))
@click.pass_context
@unbroken()
def faults(
    ctx: click.Context,
    /,
    file: str,
    n_faults: int,
    output: str | None,
    picture: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    jobs: int | None,
    dask: str | None,
    **options: Any,
) -> None:
    """Break random cells again and again, and count how often the schedule can be repaired.

    FILE is a schedule, or an all-to-all or routing problem, which is solved first. `-` is stdin.
    Ctrl-C reports what was done so far.
    """
    from optmatch.model.files import PICTURES, check_target, replace_file
    from optmatch.plotting.drawing import blank_figure
    from optmatch.studies.all_to_all import study_yield

    # Files that cannot be written are refused before the work.
    table_file = None
    if output is not None:
        table_file = check_target(output, force=force, endings=(".json", ".csv"))
    if picture is not None:
        check_target(picture, force=force, endings=PICTURES)
        blank_figure(1.0, 1.0)  # raises an error where matplotlib is missing

    subject = read(file)
    options["kinds"] = options["kinds"] or _KINDS
    with (
        naming(name_of(file)),
        executing(jobs, dask) as executor,
        listening(name_of(file), quiet=quiet) as listen,
    ):
        study = study_yield(subject, n_faults, executor=executor, on_event=listen, **options)

    problem = subject.problem if isinstance(subject, Solution) else subject
    fabric = problem.fabric
    if as_json:
        print_object("yield", {"file": file, **to_tree(study, fabric)})
    else:
        _print_study(name_of(file), study, fabric)
    if table_file is not None:
        content = _file_content(study, fabric, PurePath(str(output)).suffix)
        replace_file(table_file, content.encode())
        say(f"{output}: written")
    if picture is not None:
        _draw_heat_map(study, fabric, picture, force=force)

    is_interrupted = study.limit is Limit.INTERRUPTED
    if is_interrupted:
        say("interrupted: the figures are of what was done")
    ctx.exit(INTERRUPTED if is_interrupted else SOLVED)


def _draw_heat_map(study: YieldStudy, fabric: Fabric, picture: str, *, force: bool) -> None:
    """Draw the chip, each cell in the colour of the share of samples that are lost with it.

    Parameters
    ----------
    study
        The study of yield, with the share of each cell: of the samples in which it is broken,
        those that no repair has saved.
    fabric
        The chip.
    picture
        The file, whose ending says the format.
    force
        Whether a file that is there is replaced.
    """
    from optmatch.plotting import plot_heat, save_figure

    label = "share of samples lost with this cell broken"
    share_lost = study.share_lost()

    def draw() -> Figure:
        """Draw the figure, once it is known that the file can be written."""
        ax = plot_heat(fabric, share_lost, label=label)
        figure: Figure = ax.get_figure(root=True)  # type: ignore[assignment]
        return figure

    save_figure(draw, picture, force=force)
    say(f"{picture}: written")


# Whether the schedule survives a single fault, as arrays of a study encode it.
_WORD_OF_ALONE = {1: "survives", 0: "fails", -1: None}


def to_tree(study: YieldStudy, fabric: Fabric) -> dict[str, Any]:
    """Return a study of yield as a JSON object; cells in the order of their ranking.

    A sample is a fabric with some cells broken at random. It has survived if the schedule can
    still be realised, failed if that is proved impossible, and is unrepaired if no repair was
    found.

    Parameters
    ----------
    study
        The study: arrays `broken`, `lost` (failed) and `open_` (unrepaired) of shape (cells,
        kinds) count samples in which the cell has a fault of this kind; ``alone[cell, kind]`` says
        whether the schedule survives this fault alone (1 yes, 0 no, -1 unknown).
    fabric
        The fabric. A cell of a netlist has its ``name`` beside its number.

    Returns
    -------
    dict
        Numbers of samples, the 95 % interval of the yield, and a list of the cells that any sample
        has broken.
    """
    low, high = study.interval
    share_lost = study.share_lost().tolist()

    # Cells that no sample has broken are left out.
    cells = []
    for cell in study.ranking():
        if not study.broken[cell].any():
            continue
        figures_of_kind = {}
        for k, kind in enumerate(study.kinds):
            figures_of_kind[kind] = {
                "broken": int(study.broken[cell, k]),
                "failed": int(study.lost[cell, k]),
                "unrepaired": int(study.open_[cell, k]),
                "alone": _WORD_OF_ALONE[int(study.alone[cell, k])],
            }
        entry = {"cell": cell, "share_lost": share_lost[cell], "kinds": figures_of_kind}
        if _has_names(fabric):
            entry["name"] = fabric.cell_names[cell]
        cells.append(entry)

    return {
        "faults": study.n_faults,
        "kinds": list(study.kinds),
        "slots": study.slots,
        "samples": study.samples,
        "survived": study.survived,
        "failed": study.failed,
        "unrepaired": study.unrepaired,
        "yield_low": low,
        "yield_high": high,
        "confidence": 0.95,
        "how": dict(study.how),
        "seed": study.seed,
        "limit": None if study.limit is None else study.limit.value,
        "time_s": study.time_s,
        "cells": cells,
    }


def _has_names(fabric: Fabric) -> bool:
    """Tell whether cells are called by names, as in a netlist, not by numbers."""
    return fabric.graph is not None and fabric.graph.names is not None


def _file_content(study: YieldStudy, fabric: Fabric, suffix: str) -> str:
    """Return the figures of a study as the text of a file.

    Parameters
    ----------
    study
        The study of yield.
    fabric
        The fabric, whose cells are called by their names if they have some, else by their numbers.
    suffix
        ``.json`` for one object with all figures, ``.csv`` for a table with a row for each cell
        and kind of fault.
    """
    tree = to_tree(study, fabric)
    if suffix == ".json":
        from optmatch.io.text import layout

        return layout({"format": "optmatch/yield/1", **tree}) + "\n"
    rows: list[list[Any]] = [["cell", "kind", "broken", "failed", "unrepaired", "alone"]]
    for entry in tree["cells"]:
        for kind, figures in entry["kinds"].items():
            rows.append([entry.get("name", entry["cell"]), kind, *figures.values()])
    return csv_text(rows)


def _print_study(name: str, study: YieldStudy, fabric: Fabric) -> None:
    """Print how many samples survived, the yield with its interval, and the worst cells.

    Parameters
    ----------
    name
        The name of the schedule file.
    study
        The study: a sample has broken cells, and has survived, failed (no repair exists) or is
        unrepaired (none was found). Arrays of shape (cells, kinds of faults) count samples.
    fabric
        The fabric, which names its cells.
    """
    broken = "1 cell" if study.n_faults == 1 else f"{study.n_faults} cells"
    click.echo(f"{name}: {broken} broken, {study.samples} samples, seed {study.seed}")
    for outcome in ("survived", "failed", "unrepaired"):
        n_samples = getattr(study, outcome)
        share = n_samples / max(1, study.samples)
        click.echo(f"  {outcome:<10}  {n_samples:>7}  {share:>6.1%}")
    low, high = study.interval
    click.echo(f"  yield       {low:.1%} to {high:.1%} (95 %), in {study.slots} slots")
    decided_by = ", ".join(f"{rule} {n_samples}" for rule, n_samples in study.how.items())
    click.echo(f"  decided by  {decided_by}")

    # A sample is lost if no repair exists, or none was found.
    n_lost = (study.lost + study.open_).sum(axis=1)
    n_broken = study.broken.sum(axis=1)
    critical_cells = [cell for cell in study.ranking()[:_MAX_CELLS] if n_lost[cell]]
    if not critical_cells:
        return
    click.echo("  critical cells  (samples lost of those with the cell broken; alone fatal)")
    for cell in critical_cells:
        fatal_kinds = [kind for k, kind in enumerate(study.kinds) if study.alone[cell, k] == 0]
        cell_name = fabric.cell_names[cell] if _has_names(fabric) else str(cell)
        line = f"    cell {cell_name:<5} {n_lost[cell]:>6} of {n_broken[cell]:<6}"
        click.echo(f"{line} {', '.join(fatal_kinds)}".rstrip())
