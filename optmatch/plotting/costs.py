"""Cost and power of networks against the size of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure
from optmatch.problems.costs import DESIGNS, CostComparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CostsData(NamedTuple):
    """Curves by design: a row for each of `DESIGNS`, a column for each size."""

    n_gpus: NDArray[np.int64]
    cost_usd: NDArray[np.float64]
    power_w: NDArray[np.float64]


def costs_data(rows: Sequence[CostComparison]) -> CostsData:
    """Lay out comparisons as curves, sizes ascending.

    Examples
    --------
    >>> from optmatch.problems.costs import PRICES, compare_costs
    >>> costs_data(compare_costs([2048, 1024], PRICES["h200"])).n_gpus.tolist()
    [1024, 2048]
    """
    ordered = sorted(rows, key=lambda row: row.n_gpus)
    networks = [row.networks for row in ordered]
    return CostsData(
        n_gpus=np.array([row.n_gpus for row in ordered], dtype=np.int64),
        cost_usd=np.array([[network.cost_usd for network in row] for row in networks]).T,
        power_w=np.array([[network.power_w for network in row] for row in networks]).T,
    )


def plot_costs(rows: Sequence[CostComparison], *, fig: Figure | None = None) -> Figure:
    """Draw cost and power side by side, on logarithmic axes.

    Parameters
    ----------
    rows
        Comparisons of `compare_costs`.
    fig
        Where to draw; None makes a new figure.

    Returns
    -------
    Figure
        Millions of dollars at the left, kilowatts at the right, by number of GPUs.
    """
    data = costs_data(rows)
    fig = fig if fig is not None else blank_figure(9.0, 3.6)
    panels = fig.subplots(1, 2)
    sides = (
        (data.cost_usd / 1e6, "cost in million US dollars"),
        (data.power_w / 1e3, "power in kW"),
    )
    for ax, (values, label) in zip(panels, sides, strict=True):
        for k, design in enumerate(DESIGNS):
            ax.loglog(
                data.n_gpus,
                values[k],
                marker="os^"[k],
                color=palette.circuit_colour(k),
                label=design.replace("-", " "),
            )
        ax.set_xlabel("GPUs")
        ax.set_ylabel(label)
        ax.set_xticks(data.n_gpus, [f"{size:,}" for size in data.n_gpus], fontsize=7, rotation=45)
        ax.minorticks_off()
        ax.grid(color=palette.FAINT_INK, alpha=0.25)
    panels[0].legend(frameon=False, fontsize=8)
    return fig
