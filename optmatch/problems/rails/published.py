"""The jobs of the published step times, from the sizes that their simulation used.

Step times are in ``instances/rails/published-step-times.csv``. Model, batch and rates are those of
``run_stg_exp_fg_pp.sh`` and ``run_stg_exp_fg_pp_GB200.sh`` in
https://github.com/EricDinging/astra-sim-hybrid-parallelism. The computations and messages of a
layer are in https://github.com/astra-sim/symbolic_tensor_graph, which wrote the workloads
(``models/stage1/gpt_model.py``, ``sharding_spreadsheets/module3/tpsp_gpt``).
"""

from __future__ import annotations

from optmatch.model import InputError
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.workload import TransformerModel, Workload

_GB = 2.0**30
"""The gigabyte of the simulator, in bytes."""
CASES = {
    "h200-dp2": (2, 50),
    "h200-dp4": (4, 50),
    "h200-dp8": (8, 50),
    "gb200-dp4": (4, 50),
    "gb200-dp4-25": (4, 25),
    "gb200-dp4-200": (4, 200),
}
"""Replicas of each case, and GB/s of a port."""


def published_job(
    case: str, *, efficiency: float = 1.0, electrical: bool = False, delay_s: float = 0.0
) -> RailJob:
    """Return the job of a published case.

    Parameters
    ----------
    case
        One of `CASES`.
    efficiency
        The factor of compute (`optmatch.problems.rails.calibration.calibrate`).
    electrical
        Whether gradients go beside other communication, as over electrical links. The optical
        network of the simulator is drained before its links change, so that one thing at a time
        is communicated.
    delay_s
        The reconfiguration delay.

    Raises
    ------
    InputError
        Naming all cases, if there is none of this name.

    Notes
    -----
    The simulation differs from real training, and the job with it. Sizes are numbers of elements,
    taken as bytes. A multiplication and its addition are one operation, so the peak is twice the
    one that is given. Attention itself is a few operations an element, whatever the sequence. The
    optimiser moves one byte a weight.

    The script of GB200 names 450 GB/s inside a server. With that the collectives of tensor
    parallelism alone would take longer than the published steps. The job has the 1,800 GB/s of
    NVLink 5 instead.

    Examples
    --------
    >>> published_job("h200-dp2").n_gpus
    64
    """
    if case not in CASES:
        raise InputError(f"case = {case!r}: one of {', '.join(CASES)}", where="case")
    replicas, rate = CASES[case]
    h200 = case.startswith("h200")
    tp = 8 if h200 else 32
    model = TransformerModel(
        layers=96,
        hidden=8192,
        heads=64,
        sequence=4096,
        vocabulary=32000,
        ffn=28672,
        ffn_matrices=2,
        attended=1,
    )
    return RailJob(
        parallelism=Parallelism(dp=replicas, tp=tp, pp=4, sequence_parallel=True),
        network=RailNetwork(
            gpus_per_server=tp,
            port_bytes_per_s=rate * _GB,
            scale_up_bytes_per_s=(450 if h200 else 1800) * _GB,
            delay_s=delay_s,
        ),
        workload=Workload(
            model=model,
            batch=256,
            peak_flops_per_s=2 * (989e12 if h200 else 1250e12),
            efficiency=efficiency,
            memory_bytes_per_s=4.8e12 if h200 else 8e12,
            width_bytes=1.0,
            gradient_width_bytes=1.0,
            optimizer_bytes=1.0,
            one_stream=not electrical,
        ),
    )
