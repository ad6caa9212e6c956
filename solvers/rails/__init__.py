"""Rails of training jobs: what each rail holds when, policies, timetables.

Words of this room:

Seat
    A GPU of the one rail that stands for all rails that are alike, in all replicas (`seats`): a
    class of ranks that do the same. With 8 rails of 16 GPUs that all do the same there are 16
    seats, each of 8 ranks.
Replica
    A block of data-parallel ranks that does the same as all others on other GPUs (`replicas`).
Node
    A computation of a seat, or one communication of several seats, which are its *members*. It
    *rides* a rail, or is beside all rails. A communication *crosses* if it goes around the members
    of all replicas.
Place
    The position of a member in its group, from 0; of a seat in an order of seats.
Circuit
    From a seat to another one, which is named by its number if it is in the same replica, and by
    this number plus the number of seats if it is in the next one: the circuit *crosses*. Of a job
    that is not split into replicas no circuit crosses.
Bundle
    Some ports of every GPU that always hold the same circuits: with four ports, two bundles may
    have three ports and one. A bundle has one sending and one receiving side at each seat.
Lane
    The port of one number at every GPU, or two of them where ports are bidirectional.
Ring
    A permutation of the seats, of one cycle or of several. Data that go over a ring pass from
    seat to seat, and the seats between two members of a communication *forward* them. The
    *initial* ring of a bundle is up when the step begins, and again when it ends.
Stride
    How many places further on in its group a member sends over a circuit.
Chord
    A bundle of one port whose initial ring leads one stride further on in each group of an
    all-to-all. A chord of stride 2 among 8 members leads from place 0 to 2, and from 7 to 1.
Block
    The data of one member for one other in an all-to-all: each of n members sends n - 1 blocks.
"""

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
    """Return the small problems of a warm-up: to solve them compiles all kernels of `prefetch`.

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
