"""The order in which a stage of a pipeline goes through its micro-batches."""

from __future__ import annotations

from typing import NamedTuple

from optmatch.problems.rails.parallelism import PipelineSchedule


class Pass(NamedTuple):
    """A pass of one micro-batch through one part of the model."""

    forward: bool
    part: int
    """Which part of the model at this stage."""
    batch: int


def list_passes(
    schedule: PipelineSchedule, pp: int, stage: int, parts: int, micro_batches: int
) -> list[Pass]:
    """List forward and backward passes of a stage in the order of its schedule.

    Parameters
    ----------
    schedule
        ``"gpipe"``: all forward, then all backward. ``"1f1b"``: as few forward as fill the
        pipeline, then one of each in turn. ``"interleaved"``: the same with several parts of the
        model at each stage (https://doi.org/10.1145/3458817.3476209).
    pp, stage
        How many stages there are, and which one this is.
    parts
        Parts of the model at a stage.
    micro_batches
        How many; of ``"interleaved"`` a multiple of `pp`.

    Examples
    --------
    >>> [f"{'FB'[not forward]}{batch}" for forward, _, batch in list_passes("1f1b", 2, 0, 1, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total = parts * micro_batches
    ahead = [_pass(True, k, pp, parts) for k in range(total)]
    back = [_pass(False, k, pp, parts) for k in range(total)]
    if schedule == "gpipe":
        return ahead + back
    early = pp - stage - 1
    if schedule == "interleaved":
        early = 2 * early + (parts - 1) * pp
    early = min(early, total)
    steady = [one for pair in zip(ahead[early:], back, strict=False) for one in pair]
    return ahead[:early] + steady + back[total - early :]


def _pass(forward: bool, k: int, pp: int, parts: int) -> Pass:
    """Return pass k: with several parts, `pp` micro-batches go through one, then the next."""
    if parts == 1:
        return Pass(forward, 0, k)
    part = k // pp % parts
    return Pass(forward, part if forward else parts - 1 - part, k // (pp * parts) * pp + k % pp)
