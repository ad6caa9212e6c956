"""Losses of placements: what each circuit of the hosts loses on their ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.blocks import draw_blocks, explain_blocks, merge_blocks
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import scene
from optmatch.problems import HostPlacement, HostPorts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class LossData(NamedTuple):
    """The circuits of a placement."""

    source_host: NDArray[np.int64]
    """``source_host[circuit]``"""
    destination_host: NDArray[np.int64]
    """``destination_host[circuit]``"""
    loss_db: NDArray[np.float64]
    """``loss_db[circuit]``"""


def loss_data(solution: Solution) -> LossData:
    """List what each circuit between hosts loses on the ports that a placement gives them.

    Parameters
    ----------
    solution
        The solution of a `HostPlacement`, with an answer.

    Returns
    -------
    LossData
        Arrays of shape (circuits,): source host, destination host, and loss in dB.

    Raises
    ------
    InputError
        If it is of another kind, or has no answer.

    Examples
    --------
    >>> import optmatch as om
    >>> switch = om.IdealSwitch(3, loss_db=[[1, 3, 2], [3, 1, 3], [1, 3, 1]])
    >>> data = loss_data(om.solve(om.problems.HostPlacement(switch, 2), seed=0))
    >>> data.source_host.tolist(), sorted(data.loss_db.tolist())
    ([0, 1], [1.0, 2.0])
    """
    problem, answer = answered(solution, HostPlacement, HostPorts)
    sources, destinations = problem.pairs.astype(np.int64).T
    ports = answer.port_of_host
    loss_db = problem.usable_loss_db[ports[sources], ports[destinations]]
    return LossData(sources, destinations, np.asarray(loss_db))


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each host: its port, and the worst loss of its circuits.

    Returns
    -------
    dict
        Columns of equal length; a host without circuits has a worst loss of 0 dB.
    """
    data = loss_data(solution)
    answer: Any = solution.answer
    worst_db = np.zeros(len(answer.port_of_host))

    # A circuit counts for both its hosts.
    np.maximum.at(worst_db, data.source_host, data.loss_db)
    np.maximum.at(worst_db, data.destination_host, data.loss_db)
    return {
        "host": np.arange(len(worst_db)),
        "port": answer.port_of_host,
        "worst_loss_db": worst_db,
    }


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw how many circuits lose how much, and the bound of the worst.

    Parameters
    ----------
    solution
        The solution of a host placement, with an answer.
    slot
        None; a placement has no slots.

    Returns
    -------
    Figure
        A histogram of losses in dB.

    Raises
    ------
    InputError
        If a slot is asked for, or there is no answer.
    """
    if slot is not None:
        raise InputError("a placement has no slots", where="slot")
    from matplotlib.ticker import MaxNLocator

    data = loss_data(solution)
    figure = blank_figure(6.0, 3.6)
    axes = figure.add_subplot(xlabel="loss of a circuit (dB)", ylabel="circuits")

    # A wrong answer may have circuits that cannot be used: their loss is infinite.
    finite_db = data.loss_db[np.isfinite(data.loss_db)]
    n_bins = min(40, max(1, len(finite_db)))
    axes.hist(finite_db, bins=n_bins, color=palette.circuit_colour(0))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    hosts: Any = solution.answer
    n_hosts = len(hosts.port_of_host)
    n_ports = solution.problem.fabric.n_ports
    axes.set_title(
        f"{len(data.loss_db):,} circuits of {n_hosts:,} hosts on {n_ports:,} ports; "
        f"worst {float(data.loss_db.max(initial=0.0)):.2f} dB",
        fontsize=10,
    )
    problem: Any = solution.problem
    if problem.objective == "worst-loss-db" and np.isfinite(solution.lower_bound):
        bound_db = float(solution.lower_bound)
        name = "lower bound of the worst"
        axes.axvline(bound_db, color=palette.INK, linestyle="--", label=name)
        axes.legend(frameon=False, fontsize=9)
        axes.set_ymargin(0.2)
        axes.autoscale_view()
    return figure


_MOST_LINKS = 600  # circuits that a page draws; more would be a grey disk


def page(solution: Solution) -> dict[str, Any]:
    """Collect what a web page shows of a host placement: at which port of a switch each host is.

    Hosts stand on a circle, with the numbers of their ports. Lines are the circuits between hosts
    that lose most light. The page has two steps: all of these, and the worst of them marked.

    Parameters
    ----------
    solution
        The solution of a host placement, with an answer.

    Returns
    -------
    dict
        The page as `viewer_page` embeds it, plain values of JSON. Its lists are

        - `nodes`: x, y, width, height, text, kind, name of each host;
        - `links`: two places in `nodes`, kind, width, name;
        - `steps`: `say` is the caption; `links` maps places in that list, as strings, to new
          kinds.

        A kind is a place in `legend`, which has its colour.
    """
    # Hosts on a circle, the larger the more there are.
    data = loss_data(solution)
    answer: Any = solution.answer
    ports = answer.port_of_host.tolist()
    angles = np.linspace(0.0, 2 * np.pi, len(ports), endpoint=False)
    radius = max(2.0, 0.4 * len(ports))
    nodes: list[list[Any]] = []
    for host, (angle, port) in enumerate(zip(angles.tolist(), ports, strict=True)):
        x = radius * (1 + float(np.cos(angle)))
        y = radius * (1 + float(np.sin(angle)))
        nodes.append([x, y, 1.6, 0.8, f"{host}: {port}", 0, f"host {host} on port {port}"])

    # The circuits that lose most are drawn. Those that lose as much as the worst one are marked
    # in the last step.
    order = np.argsort(-data.loss_db, kind="stable")[:_MOST_LINKS]
    links: list[list[Any]] = []
    for circuit in order.tolist():
        ends = int(data.source_host[circuit]), int(data.destination_host[circuit])
        title = f"host {ends[0]} to host {ends[1]}: {data.loss_db[circuit]:.2f} dB"
        links.append([*ends, 1, 0.03, title])
    worst_db = float(data.loss_db.max(initial=0.0))
    worst = {
        str(number): 2
        for number, circuit in enumerate(order.tolist())
        if data.loss_db[circuit] == worst_db
    }
    return scene(
        solution,
        bounds=[-0.4, -0.4, 2 * radius + 2.4, 2 * radius + 1.6],
        nodes=[[*(round(size, 2) for size in node[:4]), *node[4:]] for node in nodes],
        links=links,
        legend=[
            ("host", palette.CIRCUIT_COLOURS[0]),
            ("circuit", palette.FAINT_INK),
            ("worst circuit", palette.BROKEN),
        ],
        steps=[
            {"say": f"{len(ports)} hosts, each with its port; {len(data.loss_db)} circuits"},
            {"say": f"the worst circuit loses {worst_db:.2f} dB", "links": worst},
        ],
    )


def tabulate_problem(problem: Any) -> dict[str, Any]:
    """List a row for each circuit of a switch: its ports, its loss, and whether it may be used.

    Returns
    -------
    dict
        Columns of ports * ports entries: source and destination, loss in dB, and "usable", false
        for circuits that lose too much, of dead ports, and from a port to itself.
    """
    sources, destinations = np.indices((problem.fabric.n_ports,) * 2).reshape(2, -1)
    return {
        "source": sources,
        "destination": destinations,
        "loss_db": np.asarray(problem.fabric.circuit_loss_db)[sources, destinations],
        "usable": np.isfinite(problem.usable_loss_db[sources, destinations]),
    }


def draw_problem(problem: Any) -> Figure:
    """Draw the losses of all circuits of a switch that can be used.

    Parameters
    ----------
    problem
        A `HostPlacement`: ``usable_loss_db[source, destination]`` is infinite for a circuit
        that loses too much, of a dead port, or from a port to itself.

    Returns
    -------
    Figure
        Source ports down, destination ports across; blocks of ports where these are many.
    """
    figure = blank_figure(6.0, 4.6)
    axes = figure.add_subplot(xlabel="destination port", ylabel="source port")
    n_ports = problem.fabric.n_ports
    loss_db = np.where(np.isfinite(problem.usable_loss_db), problem.usable_loss_db, np.nan)
    blocks = merge_blocks(loss_db, "mean")
    label = "loss (dB)" if blocks.size == 1 else "loss (dB), the mean of a square"
    draw_blocks(axes, blocks, n_ports, label)
    square = explain_blocks(blocks.size, "pairs of ports")
    title = f"{problem.n_hosts:,} hosts want ports of {n_ports:,}; white: not usable"
    axes.set_title(f"{title}\n{square}".strip(), fontsize=10)
    return figure
