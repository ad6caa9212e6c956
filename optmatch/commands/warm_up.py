"""`optmatch warm-up`: compile what first calls would wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import click
import numpy as np

from optmatch.commands.shared.progress import listening
from optmatch.model import Limits, Problem

_STEPS = 12  # of one method: enough for each of its kernels to be called


@click.command("warm-up")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def warm_up(quiet: bool) -> None:
    """Compile the kernels of the default methods of all kinds of problems.

    First calls then take no longer than others. What is compiled is kept in the folder that
    `optmatch info` names.
    """
    from optmatch.entrances import solve
    from optmatch.solvers.kernels.compiler import kernel_folder

    problems = list(_problems())
    for number, problem in enumerate(problems, 1):
        name = f"{problem.kind} ({number} of {len(problems)})"
        with listening(name, quiet=quiet) as listen:
            solve(problem, seed=0, limits=Limits(iterations=_STEPS), on_event=listen)
    click.echo(f"kernels: {kernel_folder()}")


def _problems() -> Iterator[Problem]:
    """Yield small problems whose default methods call all of their kernels."""
    from optmatch.fabrics import Benes, HexMesh, IdealSwitch, RackFabric
    from optmatch.problems import AllToAll, Collective, Demand, RailJob, Routing, SliceAllocation
    from optmatch.problems.rails.training.network import RailNetwork
    from optmatch.problems.rails.training.parallelism import Parallelism
    from optmatch.problems.rails.training.workload import TransformerModel, Workload
    from optmatch.solvers.reroutes.states import fill_rack

    mesh = HexMesh(4, 4, ports=8)
    yield AllToAll(mesh)
    yield Routing(mesh, np.array([4, 3, 6, 1, 0, 7, 2, 5], dtype=np.int32))
    yield AllToAll(Benes(8))
    matrix = [[0, 9, 2, 1], [4, 0, 6, 3], [5, 1, 0, 7], [2, 8, 3, 0]]
    yield Demand.from_matrix(matrix, fabric=IdealSwitch(4), delay_s=0.5)
    yield Demand.from_matrix(
        matrix, delay_s=0.5, objective="weighted-completion-s", groups=np.arange(16).reshape(4, 4)
    )
    rack = RackFabric()
    yield replace(fill_rack(rack), failed_chips=(21,))
    yield SliceAllocation(rack, (4, 4, 2))
    yield Collective("all-to-all", 8, 1e6, alpha_s=2.7e-6, delay_s=1e-5)
    late = {"15": 0.01}
    yield Collective("all-reduce", 16, 1e6, alpha_s=2.7e-6, two_way=True, late_s=late)
    model = TransformerModel(layers=2, hidden=8, heads=1, sequence=8, vocabulary=8, ffn=8)
    yield RailJob(
        parallelism=Parallelism(pp=2),
        network=RailNetwork(gpus_per_server=1),
        workload=Workload(model=model, batch=2),
    )
