"""Small rail jobs as hypothesis strategies and as lists."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from optmatch.fabrics import IdealSwitch
from optmatch.problems import Parallelism, RailJob, RailNetwork, TransformerModel, Workload


@st.composite
def rail_problems(draw: st.DrawFn, *, tiny: bool = False) -> RailJob:
    """Draw a training job of a few ranks with a pipeline, replicas, or both.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether all orders of its communications can be tried: one port, at most two ranks or one
        pipeline of three on a rail, few communications.

    Returns
    -------
    RailJob
        A small transformer, divided over `dp` replicas (data parallel), `tp` GPUs of a server
        (tensor parallel) and `pp` stages of a pipeline.

    Examples
    --------
    >>> rail_problems(tiny=True)
    rail_problems(tiny=True)
    """
    sizes = [(1, 2), (2, 1), (1, 3)] if tiny else [(1, 2), (2, 1), (2, 2), (1, 3)]
    dp, pp = draw(st.sampled_from(sizes))
    tp = 1
    ports = 1
    layers_per_stage = 1
    if not tiny:
        tp = draw(st.sampled_from([1, 2]))
        ports = draw(st.sampled_from([1, 1, 2]))
        layers_per_stage = draw(st.sampled_from([1, 2]))

    # Each stage of the pipeline gets equally many layers.
    model = TransformerModel(
        layers=pp * layers_per_stage,
        hidden=16,
        heads=2,
        sequence=8,
        vocabulary=draw(st.sampled_from([10, 200])),
        ffn=32,
    )
    zero_stage = 0
    if not tiny:
        zero_stage = draw(st.sampled_from([0, 1, 3]))
    return RailJob(
        parallelism=Parallelism(dp=dp, tp=tp, pp=pp, zero_stage=zero_stage),
        network=RailNetwork(
            gpus_per_server=tp,
            ports_per_gpu=ports,
            port_bytes_per_s=1e9,
            fabric=IdealSwitch(dp * pp * ports),
            delay_s=draw(st.sampled_from([0.0, 1e-6, 1e-5, 1e-4])),
        ),
        workload=Workload(
            model=model, batch=dp, peak_flops_per_s=draw(st.sampled_from([1e9, 1e12]))
        ),
    )


def smallest_rails() -> Iterator[RailJob]:
    """Yield jobs in which next to nothing rides a rail: one GPU, one server, or two replicas.

    Yields
    ------
    RailJob
        A job of a model of one layer.
    """
    model = TransformerModel(layers=1, hidden=4, heads=1, sequence=2, vocabulary=4, ffn=4)
    for split, gpus_per_server, ports in (
        (Parallelism(), 1, 1),
        (Parallelism(tp=2), 2, 1),
        (Parallelism(dp=2), 1, 2),
    ):
        yield RailJob(
            parallelism=split,
            network=RailNetwork(gpus_per_server=gpus_per_server, fabric=IdealSwitch(ports)),
            workload=Workload(model=model, batch=split.dp),
        )
