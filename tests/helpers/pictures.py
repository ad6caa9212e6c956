"""Problems and answers of every kind in three sizes, for the tests of their pictures.

Small ones are those of `tests.helpers.answers`. Those of about 100 and of about 2,000 ports, ranks
or resources are answered by quick methods: their pictures matter here, not how good they are.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.problems import Jobs, Resources
from optmatch.solvers.reroutes.states import fill_rack
from tests.helpers.answers import answer_named, problem_named
from tests.helpers.modes import limits_in_cpu_time

SIZES = "small", "100", "2000"


class Sized(NamedTuple):
    """How the problem of a kind is made in a size, and by which method it is answered."""

    make: Callable[[], Any]
    method: str | None = None
    time_limit_s: float = 30.0


def _matching(n_ports: int) -> list[int]:
    """Return a random matching of all ports."""
    return [int(port) for port in np.random.default_rng(0).permutation(n_ports)]


def _demand(n_ports: int, flows_per_port: int) -> om.Demand:
    """Return a demand in which each port sends to some others, a few times much."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((n_ports, n_ports))
    for source in range(n_ports):
        others = np.delete(np.arange(n_ports), source)
        destinations = rng.choice(others, flows_per_port, replace=False)
        matrix[source, destinations] = rng.pareto(1.5, flows_per_port) * 1e6
    return om.Demand(om.IdealSwitch(n_ports), matrix, rate_bytes_per_s=50e9, delay_s=2e-5)


def _library(name: str) -> Any:
    """Return a problem of the library."""
    from optmatch.sweeps import Library

    return Library().problem(name)


def _reroute(racks: int) -> Any:
    """Return racks in use, a chip of which fails."""
    return replace(fill_rack(om.RackFabric(racks=racks)), failed_chips=(21,))


def _slice(racks: int, shape: tuple[int, int, int]) -> om.SliceAllocation:
    """Return racks of which some servers are reserved, and a slice that is wanted."""
    fabric = om.RackFabric(racks=racks, joined=True)
    reserved = tuple(range(0, fabric.n_servers, 3))
    return om.SliceAllocation(fabric, shape, reserved=reserved)


def _sharing(n_resources: int, n_jobs: int) -> om.PortSharing:
    """Return resources of several speeds, and jobs that want some of them."""
    rng = np.random.default_rng(0)
    speeds = rng.choice([100.0, 200.0, 400.0, 800.0], n_resources)
    wanted = rng.integers(1, 2 * n_resources // n_jobs + 2, n_jobs)
    least = rng.choice([100.0, 200.0, 400.0], n_jobs)
    return om.PortSharing(Resources([speeds]), Jobs(wanted, [least]))


def _collective(operation: Any, n_ranks: int) -> om.Collective:
    """Return a collective of a megabyte."""
    return om.Collective(operation, n_ranks, 1e6, alpha_s=2.7e-6, delay_s=1e-5)


SIZED: dict[str, dict[str, Sized]] = {
    "all-to-all": {
        "100": Sized(lambda: om.AllToAll(om.IdealSwitch(100))),
        "2000": Sized(lambda: om.AllToAll(om.IdealSwitch(2000))),
    },
    "routing": {
        "100": Sized(lambda: om.Routing(om.Benes(128), _matching(128)), "constructive"),
        "2000": Sized(lambda: om.Routing(om.Benes(2048), _matching(2048)), "constructive"),
    },
    "demand": {
        "100": Sized(lambda: _demand(100, 40), "solstice"),
        "2000": Sized(lambda: _demand(2000, 4), "tms"),
    },
    "rail-job": {
        "100": Sized(lambda: _library("rails/dense-128"), "provisioned"),
        "2000": Sized(lambda: _library("rails/dense-2048"), "provisioned"),
    },
    "reroute": {
        "100": Sized(lambda: _reroute(2)),
        "2000": Sized(lambda: _reroute(32)),
    },
    "slice-allocation": {
        "100": Sized(lambda: _slice(6, (4, 4, 4))),
        "2000": Sized(lambda: _slice(128, (8, 8, 8))),
    },
    "collective": {
        "100": Sized(lambda: _collective("all-to-all", 64), "bruck"),
        "2000": Sized(lambda: _collective("broadcast", 2000), "pipelined"),
    },
    "port-sharing": {
        "100": Sized(lambda: _sharing(100, 10)),
        "2000": Sized(lambda: _sharing(2000, 300), "fifo"),
    },
}


@cache
def sized_problem(kind: str, size: str) -> Any:
    """Return the problem of a kind in a size of `SIZES`."""
    return problem_named(kind) if size == "small" else SIZED[kind][size].make()


@cache
def sized_answer(kind: str, size: str) -> om.Solution:
    """Return an answer to `sized_problem`."""
    if size == "small":
        return answer_named(kind)
    sized = SIZED[kind][size]
    problem = sized_problem(kind, size)
    with limits_in_cpu_time():
        return om.solve(problem, sized.method, seed=0, time_limit_s=sized.time_limit_s)
