"""`optmatch cost`: cost and power of the networks of a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from optmatch.commands.shared.options import (
    FORCE,
    JSON,
    NUMBERS,
    take,
    without_none,
)
from optmatch.commands.shared.outcome import print_object, print_table, say
from optmatch.io.text import csv_text

PRICE_LISTS = ("h200", "gb200")
"""The names of `PRICES`, which are read from a file only when the command runs."""
_COLUMNS = ("design", "switch_ports", "ocs_ports", "transceivers", "cost_usd", "power_w")


@click.command()
@click.option(
    "--gpus",
    type=NUMBERS,
    default="128,256,512,1024,2048,4096,8192,16384",
    help="Numbers of GPUs, each a cluster.",
)
@click.option("--hardware", type=click.Choice(PRICE_LISTS), default="h200", help="Price list.")
@click.option("--gpus-per-server", type=int, help="Also the number of rails.  [default: 8, or 32]")
@click.option(
    "--transceiver-usd", type=click.FloatRange(min=0), help="Replace the price of a transceiver."
)
@click.option(
    "--ocs-port-usd",
    type=click.FloatRange(min=0),
    help="Replace the price of an optical switch port.",
)
@click.option(
    "--ocs-port-watts", type=click.FloatRange(min=0), help="Replace the power of such a port."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a row for each size and design.")
@JSON
@click.option("-o", "--output", type=click.Path(), help="Also draw a picture: x.png, .svg or .pdf")
@FORCE
def cost(
    gpus: list[int],
    hardware: str,
    as_csv: bool,
    as_json: bool,
    output: str | None,
    force: bool,
    **changes: Any,
) -> None:
    """Compare fat tree, electrical rails and photonic rails: parts, cost and power.

    Each number of GPUs is a cluster of its own.
    """
    # `gpus` lists the sizes of clusters, and `hardware` is the name of a list of prices, of which
    # `changes` replace some. `output` is the file of a picture, None for none.
    if as_csv and as_json:
        raise click.UsageError("either --csv or --json")
    from optmatch.problems.costs import PRICES, compare_costs

    # Parts with a new price, or a new power, name the command line as their source.
    new_figures = {
        "transceiver": {"usd": changes["transceiver_usd"]},
        "ocs_port": {"usd": changes["ocs_port_usd"], "watts": changes["ocs_port_watts"]},
    }
    prices = replace(PRICES[hardware], **without_none(take(changes, ["gpus_per_server"])))
    for part, figures in new_figures.items():
        stated: dict[str, Any] = without_none(figures)
        if stated:
            new_part = replace(getattr(prices, part), **stated, source="given at the command line")
            prices = replace(prices, **{part: new_part})

    # The picture goes to its file, and the figures to stdout.
    comparisons = compare_costs(gpus, prices)
    if output is not None:
        from optmatch.plotting import plot_costs, save_figure

        save_figure(lambda: plot_costs(comparisons), output, force=force)
        say(f"{output}: written")
    lines: list[list[Any]] = []
    for comparison in comparisons:
        for network in comparison.networks:
            lines.append([comparison.n_gpus, *(getattr(network, name) for name in _COLUMNS)])
    if as_json:
        from optmatch.io.fields import to_object

        sizes = [to_object(comparison) for comparison in comparisons]
        print_object("cost", {"prices": to_object(prices), "sizes": sizes})
    elif as_csv:
        click.echo(csv_text([("n_gpus", *_COLUMNS), *lines]), nl=False)
    else:
        rows = [["GPUs", "design", "switch ports", "OCS ports", "transceivers", "M$", "kW"]]
        for *parts, cost_usd, power_w in lines:
            rows.append([*map(str, parts), f"{cost_usd / 1e6:.3f}", f"{power_w / 1e3:.1f}"])
        print_table(rows)

        # Below the table, the photonic design against the electrical one at each size.
        for comparison in comparisons:
            click.echo(
                f"{comparison.n_gpus} GPUs: photonic against electrical rail:"
                f" {comparison.cost_ratio:.2f}x cheaper, {comparison.power_ratio:.2f}x less power"
            )
