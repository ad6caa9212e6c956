"""Solves of the command line of all kinds, each with its options."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.model import CellDevice, Problem
from tests.helpers.command import INSTANCES


class Flow(NamedTuple):
    """A solve of the command line."""

    name: str
    problem: Callable[[], Problem[Any]]
    options: str = ""


def of_instance(path: str, **changes: Any) -> Callable[[], Problem[Any]]:
    """Return what reads an instance of the library, with some fields changed."""

    def read() -> Problem[Any]:
        loaded: Any = om.load(INSTANCES / f"{path}.json")
        problem: Problem[Any] = replace(loaded, **changes) if changes else loaded
        return problem

    return read


def on_a_chip(objective: Any, *, size: int, ports: int) -> Callable[[], Problem[Any]]:
    """Return what makes a routing problem on a chip of which each cell is known."""

    def make() -> Problem[Any]:
        rng = np.random.default_rng(size)
        mesh = om.HexMesh(size, size, ports=ports)
        order = rng.permutation(ports)
        matching = np.empty(ports, dtype=np.int32)
        matching[order[::2]] = order[1::2]
        matching[order[1::2]] = order[::2]
        by_cell = {
            cell: {"bar_loss_db": loss, "bar_extinction_db": extinction}
            for cell, (loss, extinction) in enumerate(
                zip(
                    rng.uniform(0.2, 0.8, mesh.n_cells),
                    rng.uniform(20.0, 40.0, mesh.n_cells),
                    strict=True,
                )
            )
        }
        cells = CellDevice.of("smartlight", mesh.n_cells, by_cell)
        return om.Routing(mesh, matching, objective=objective, cells=cells)

    return make


FLOWS = (
    Flow("all-to-all", of_instance("all-to-all/hex-7x7-32"), "--time-limit 1"),
    Flow("all-to-all of two classes", of_instance("all-to-all/square-5x5-tx-rx-6")),
    Flow("all-to-all, exact", of_instance("all-to-all/hex-4x4-8"), "--method ilp --time-limit 2"),
    Flow("routing", of_instance("routing/hex-9x9-32-random-1"), "--time-limit 1"),
    Flow("routing, 64 ports", of_instance("routing/hex-17x17-64-random-1")),
    Flow(
        "routing, exact",
        of_instance("routing/hex-9x9-32-random-1"),
        "--method ilp --time-limit 1",
    ),
    Flow(
        "routing, longest",
        of_instance("routing/hex-17x17-64-random-1", objective="worst-cells"),
        "--time-limit 1",
    ),
    Flow(
        "routing, losses",
        of_instance("routing/hex-9x9-32-random-1", objective="loss-db"),
        "--method ilp --time-limit 1",
    ),
    Flow("routing, power", on_a_chip("power-mw", size=4, ports=8), "--method ilp"),
    Flow("routing, worst loss", on_a_chip("worst-loss-db", size=6, ports=12), "--time-limit 1"),
    Flow("routing, few cells", on_a_chip("total-cells", size=8, ports=24), "--time-limit 1"),
    Flow("routing, Benes", of_instance("routing/benes-32-random-5"), "--time-limit 1"),
    Flow("demand", of_instance("demand/gravity-16"), "--time-limit 1"),
    Flow("demand, exact", of_instance("demand/permutations-6"), "--method ilp --time-limit 1"),
    Flow("demand, two planes", of_instance("demand/solstice-32-two-planes"), "--time-limit 1"),
    Flow("collective", of_instance("collectives/all-reduce-8"), "--time-limit 1"),
    Flow("rail job", of_instance("rails/dense-32"), "--time-limit 1"),
    Flow("reroute", of_instance("reroute/hex-9x9-32-two-ports")),
    Flow("reroute, exact", of_instance("reroute/hex-9x9-32-two-ports"), "--method ilp"),
    Flow("slices", of_instance("slices/joined-racks"), "--time-limit 1"),
    Flow("slices, exact", of_instance("slices/rack-hard"), "--method ilp --time-limit 1"),
    Flow("port sharing", of_instance("sharing/devices-120-fair"), "--time-limit 1"),
    Flow("port sharing, in order", of_instance("sharing/devices-120-whole"), "--time-limit 1"),
)
