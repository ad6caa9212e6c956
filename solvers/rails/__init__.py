"""Rails of training jobs: what each rail holds when, policies, timetables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from optmatch.problems import RailJob
from optmatch.solvers.method import Method, Run

if TYPE_CHECKING:
    from optmatch.solvers.rails.methods import Simple

_SIMPLE: dict[Simple, str] = {
    "prefetch": "what each rail holds when: circuits that stay, forward data, or change early",
    "provisioned": "circuits changed once no communication is left before the next one",
    "on-demand": "circuits changed when all who need them are ready",
    "static": "ports split once, by the square root of traffic",
    "ilp": "prefetch, by the name of a method that is gone: deprecated",
}


def _simple(name: Simple) -> Run:
    """Return the function that solves a rail job by a method.

    Its module, which has kernels, is imported only when it is run.
    """
    from optmatch.solvers.rails.methods import solve_by

    return partial(solve_by, name)


METHODS = tuple(
    Method(name, RailJob, partial(_simple, name), told, warm=name == "prefetch")
    for name, told in _SIMPLE.items()
)
"""Methods for rail jobs; the first is the default."""


def small_problems() -> tuple[RailJob, ...]:
    """Return small problems of which the default methods call all of their kernels.

    They are solved once to compile these kernels ahead of time.

    Returns
    -------
    tuple of RailJob
        A pipeline of two GPUs, and two of them with data parallelism between.
    """
    from optmatch.problems import Parallelism, RailNetwork, TransformerModel, Workload

    model = TransformerModel(layers=2, hidden=8, heads=1, sequence=8, vocabulary=8, ffn=8)
    workload = Workload(model=model, batch=2)
    network = RailNetwork(gpus_per_server=1)
    return (
        RailJob(parallelism=Parallelism(pp=2), network=network, workload=workload),
        RailJob(parallelism=Parallelism(pp=2, dp=2), network=network, workload=workload),
    )
