"""The jobs of the published step times, from the sizes that their simulation used.

The figures are in ``optmatch/problems/data/published.toml``, and the step times in
``instances/rails/published-step-times.csv``. The computations and messages of a layer are in
https://github.com/astra-sim/symbolic_tensor_graph, which wrote the workloads
(``models/stage1/gpt_model.py``, ``sharding_spreadsheets/module3/tpsp_gpt``).
"""

from __future__ import annotations

from dataclasses import dataclass

from optmatch.model import Count, InputError, Positive, Value
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.workload import TransformerModel, Workload
from optmatch.problems.records import build_records, from_object, read_tables

_GIGABYTE = 2.0**30
"""The gigabyte of the simulator, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedCase(Value):
    """A case: its hardware, its replicas, and the rate of a port.

    Parameters
    ----------
    hardware
        The name of its generation of hardware.
    dp
        The degree of data parallelism.
    port_gigabytes_per_s
        The rate of a port of a GPU, in gigabytes of 2**30 bytes per second.
    """

    hardware: str
    dp: Count
    port_gigabytes_per_s: Positive


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedHardware(Value):
    """The hardware of some cases: servers, and the rates of a GPU.

    Parameters
    ----------
    tp
        The GPUs of a server, which are also the degree of tensor parallelism.
    scale_up_gigabytes_per_s
        The rate of a GPU inside its server, in gigabytes of 2**30 bytes per second.
    multiply_adds_per_s
        The peak of a GPU; a multiplication and its addition are one.
    memory_bytes_per_s
        The rate of its memory.
    source
        Where the figures are from.
    """

    tp: Count
    scale_up_gigabytes_per_s: Positive
    multiply_adds_per_s: Positive
    memory_bytes_per_s: Positive
    source: str


_TABLES = read_tables("published.toml")
CASES = build_records(PublishedCase, _TABLES["cases"])
"""The cases, by name."""
HARDWARE = build_records(PublishedHardware, _TABLES["hardware"])
"""The generations of hardware, by name."""
_MODEL = from_object(TransformerModel, _TABLES["model"], "/model")


def published_job(
    case: str, *, efficiency: float = 1.0, electrical: bool = False, delay_s: float = 0.0
) -> RailJob:
    """Return the job of a published case: a training step whose time was simulated and published.

    A case states the hardware, the replicas and the rate of a port; the model is the same in all.

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
        The reconfiguration delay, in seconds.

    Returns
    -------
    RailJob
        The job with the model, servers and rates that the simulation used.

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
    published = CASES[case]
    hardware = HARDWARE[published.hardware]
    return RailJob(
        parallelism=Parallelism(
            dp=published.dp, tp=hardware.tp, pp=_TABLES["pp"], sequence_parallel=True
        ),
        network=RailNetwork(
            gpus_per_server=hardware.tp,
            port_bytes_per_s=published.port_gigabytes_per_s * _GIGABYTE,
            scale_up_bytes_per_s=hardware.scale_up_gigabytes_per_s * _GIGABYTE,
            delay_s=delay_s,
        ),
        # Sizes are numbers of elements, which are taken as bytes.
        workload=Workload(
            model=_MODEL,
            batch=_TABLES["batch"],
            peak_flops_per_s=2 * hardware.multiply_adds_per_s,
            efficiency=efficiency,
            memory_bytes_per_s=hardware.memory_bytes_per_s,
            width_bytes=1.0,
            gradient_width_bytes=1.0,
            optimizer_bytes=1.0,
            one_stream=not electrical,
        ),
    )
