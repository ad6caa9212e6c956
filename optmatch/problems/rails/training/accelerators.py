"""What accelerators compute and move per second, as published, and what training reaches."""

from __future__ import annotations

from typing import Any, NamedTuple

from optmatch.model import InputError


class Accelerator(NamedTuple):
    """One GPU."""

    peak_flops_per_s: float
    """Dense bf16."""
    memory_bytes_per_s: float
    efficiency: float
    """The part of the peak that large training runs reach."""
    source: str


ACCELERATORS = {
    "A100": Accelerator(
        *(312e12, 2.039e12, 0.52),
        "NVIDIA A100 80GB SXM data sheet; 163 Tflop/s per GPU, doi 10.1145/3458817.3476209",
    ),
    "H100": Accelerator(
        *(989e12, 3.35e12, 0.41),
        "NVIDIA H100 SXM data sheet; 400 to 430 Tflop/s per GPU, arXiv 2407.21783, table 4",
    ),
    "H200": Accelerator(
        *(989e12, 4.8e12, 0.41), "NVIDIA H200 SXM data sheet; efficiency of H100, an assumption"
    ),
    "B200": Accelerator(
        *(2250e12, 7.7e12, 0.41), "NVIDIA HGX B200 data sheet; efficiency of H100, an assumption"
    ),
    "GB200": Accelerator(
        *(2500e12, 8e12, 0.41), "NVIDIA GB200 NVL72 data sheet; efficiency of H100, an assumption"
    ),
}
"""By name. Data sheets name peaks with sparsity: dense ones are half of those."""


def describe_accelerator(name: str) -> dict[str, Any]:
    """Return the fields of a `Workload` that an accelerator tells."""
    if name not in ACCELERATORS:
        raise InputError(
            f"accelerator = {name!r}: one of {', '.join(ACCELERATORS)}", where="accelerator"
        )
    found = ACCELERATORS[name]._asdict()
    del found["source"]
    return found
