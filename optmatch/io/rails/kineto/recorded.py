"""What the profiler recorded at one rank: computation, communication, and the ranks of groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from optmatch.io.rails.chakra.traces import MISSING


class Activity(NamedTuple):
    """Something that ran, on the device if there is one; times in microseconds."""

    start_us: float
    end_us: float
    event: int
    """Its index in ``traceEvents``."""
    memory: bool = False
    """Whether it only copies or sets memory."""


class Call(NamedTuple):
    """One communication at one rank; times in microseconds."""

    start_us: float
    end_us: float
    event: int
    """The index in ``traceEvents`` of the event that tells its arguments."""
    kind: str
    """A value of `optmatch.io.rails.kineto.events.KINDS`."""
    group: str
    size_bytes: int
    """As in Chakra: of an all-gather the shard, of others the whole buffer of a rank."""
    peer: int = MISSING
    """The other rank of a message."""
    root: int = MISSING
    """The rank that has all data before (broadcast, scatter) or after (reduce, gather)."""
    sent_bytes: tuple[int, ...] = ()
    """Of a collective whose parts differ, what this rank sends to each rank of its group, in their
    order, 0 to itself; empty where all parts are alike."""
    sequence: int = MISSING
    """The number of a collective in its group, which all its ranks count alike."""


@dataclass
class Recording:
    """The trace of one rank.

    Parameters
    ----------
    path
        The file.
    rank, world
        The rank, and the number of ranks of the job; `MISSING` if the trace does not tell them.
    members
        The ranks of each group that communicates, in their order. Empty for the group of all ranks
        if their number is not told.
    calls
        The communications, by begin.
    computing
        What else ran, by begin.
    talking
        The kernels of NCCL, or the events of Gloo.
    """

    path: str
    rank: int
    world: int
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    computing: list[Activity] = field(default_factory=list)
    talking: list[Activity] = field(default_factory=list)
