"""Known GPUs: their peak rates, and how much of them training reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optmatch.model import InputError, Positive, Value
from optmatch.problems.records import build_records, read_tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accelerator(Value):
    """One GPU: its peak rates, and how much of them is reached.

    Parameters
    ----------
    peak_flops_per_s
        The dense bf16 operations per second, at its peak.
    memory_bytes_per_s
        The bytes that it reads and writes in its memory, per second.
    efficiency
        The part of the peak that large training runs reach.
    source
        Where the figures are from.
    """

    peak_flops_per_s: Positive
    memory_bytes_per_s: Positive
    efficiency: Positive
    source: str


ACCELERATORS = build_records(Accelerator, read_tables("accelerators.toml"))
"""By name; the file is ``optmatch/problems/data/accelerators.toml``."""


def describe_accelerator(name: str) -> dict[str, Any]:
    """Return the fields of a `Workload` that an accelerator tells, by name.

    Parameters
    ----------
    name
        A name of `ACCELERATORS`.

    Returns
    -------
    dict
        ``"peak_flops_per_s"``, ``"memory_bytes_per_s"`` and ``"efficiency"``, the part of the peak
        that is reached.

    Raises
    ------
    InputError
        Naming all accelerators, if there is none of this name.
    """
    if name not in ACCELERATORS:
        raise InputError(
            f"accelerator = {name!r}: one of {', '.join(ACCELERATORS)}", where="accelerator"
        )
    accelerator = ACCELERATORS[name]
    return {
        "peak_flops_per_s": accelerator.peak_flops_per_s,
        "memory_bytes_per_s": accelerator.memory_bytes_per_s,
        "efficiency": accelerator.efficiency,
    }
