"""The order in which a stage of a pipeline goes through its micro-batches.

The model is cut into parts, which a micro-batch passes one after the other, forward and then
backward. A stage has one part, or several: `part` counts those of a stage from 0, and *where* a
part is, is its number in the whole model. A *pass* takes one micro-batch through one part.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Literal, NamedTuple

from optmatch.model import InputError
from optmatch.problems.rails.training.parallelism import PipelineSchedule

Kind = Literal["F", "B", "I", "W"]
_TURNS: tuple[tuple[Kind, int], ...] = (
    ("I", 0), ("F", 1), ("I", 1), ("F", 0), ("W", 1), ("W", 0),
)  # fmt: skip
"""The passes that ``"zb-v"`` does first, and the part of each. A pass that has turned round makes
room for another one."""


class Pass(NamedTuple):
    """A pass of one micro-batch, number `batch` from 0, through one part of the model."""

    kind: Kind
    """``"F"`` forward, ``"B"`` backward; or backward in two: ``"I"`` for the gradients of inputs,
    which the part before waits for, and ``"W"`` for those of weights."""
    part: int
    """The part of the model, counted at this stage."""
    batch: int


def list_passes(
    schedule: PipelineSchedule, pp: int, stage: int, parts: int, micro_batches: int
) -> list[Pass]:
    """List forward and backward passes of a stage in the order of its schedule.

    The model is cut into parts, and a stage (the GPUs of one place in the pipeline) has one part
    or several. A pass takes one micro-batch through one part.

    Parameters
    ----------
    schedule
        The name of the schedule:

        - ``"gpipe"``: all forward passes, then all backward passes;
        - ``"1f1b"``: as few forward passes as fill the pipeline, then one of each in turn;
        - ``"interleaved"``: the same with several parts of the model at each stage
          (https://doi.org/10.1145/3458817.3476209);
        - ``"zb-h1"``: as 1f1b, with gradients of weights in the gaps
          (https://arxiv.org/abs/2401.10241);
        - ``"zb-v"``: the same source; each stage has two parts, which micro-batches pass there
          and back;
        - ``"dualpipe"``: micro-batches come from both ends of the pipeline, so that each stage has
          two parts (https://arxiv.org/abs/2412.19437).
    pp, stage
        The number of stages, and the stage, from 0.
    parts
        The parts of the model at each stage.
    micro_batches
        The number of micro-batches of a step.

    Returns
    -------
    list of Pass
        All passes of the stage in their order. A pass takes one micro-batch (`batch`) through one
        part of the model (`part`, counted at the stage), of `kind` "F" forward, "B" backward, "I"
        backward for gradients of inputs or "W" for those of weights.
    """
    if schedule == "dualpipe":
        return _two_streams(pp, stage, micro_batches)
    if schedule == "zb-v":
        return [*_there_and_back(pp, micro_batches)[stage]]

    # In all other schedules forward passes have a fixed order among themselves, and so have
    # backward passes. The schedule says how both are mixed.
    total = parts * micro_batches
    ahead = [_pass("F", k, pp, parts) for k in range(total)]
    back = [_pass("B", k, pp, parts) for k in range(total)]
    if schedule == "gpipe":
        return ahead + back

    # Forward passes that fill the pipeline, then one forward and one backward in turn, then the
    # backward passes that are left. With 4 stages, stage 1 does 2 forward passes first: as many as
    # there are stages behind it.
    early = pp - stage - 1
    if schedule == "interleaved":
        early = 2 * early + (parts - 1) * pp
    early = min(early, total)
    steady = []
    for forward_pass, backward_pass in zip(ahead[early:], back, strict=False):
        steady += [forward_pass, backward_pass]
    passes = ahead[:early] + steady + back[total - early :]
    if schedule == "zb-h1":
        return _delay_weights(passes, stage)
    return passes


def check_batches(schedule: PipelineSchedule, pp: int, micro_batches: int) -> None:
    """Refuse micro-batches of which a schedule has no order.

    A schedule says in which order the stages of a pipeline go through the micro-batches of a step.

    Parameters
    ----------
    schedule
        The order in which stages go through micro-batches: ``"gpipe"``, ``"1f1b"``,
        ``"interleaved"``, ``"zb-h1"``, ``"zb-v"`` or ``"dualpipe"``.
    pp
        The number of stages.
    micro_batches
        The number of micro-batches of a step.

    Raises
    ------
    InputError
        If the number of micro-batches, or of stages, is none that the schedule can have.
    """
    needed = ""
    if schedule == "interleaved" and micro_batches % pp:
        needed = f"a multiple of pp = {pp}"
    if schedule == "dualpipe" and (micro_batches % 2 or micro_batches < 2 * pp):
        needed = f"an even number, at least {2 * pp} = 2 pp"
    if needed:
        text = f"{micro_batches} micro-batches: {schedule} needs {needed}"
        raise InputError(text, where="workload.micro_batch")
    if schedule == "dualpipe" and pp % 2:
        text = f"pp = {pp}: dualpipe needs an even number of stages"
        raise InputError(text, where="parallelism.pp")


def find_part(schedule: PipelineSchedule, pp: int, stage: int, part: int) -> int:
    """Return which part of the model a part at a stage is, its number from 0.

    The layers of a model are cut into parts, numbered in the order in which data pass them
    forward. With ``"zb-v"`` parts go through the stages and back: the last stage has two that
    follow each other, and stage 0 the first and the last one. With ``"dualpipe"`` the second part
    of a stage is the first one of the opposite stage. Else part 1 of stage 0 comes after part 0 of
    the last stage.

    Parameters
    ----------
    schedule
        The order of passes in the pipeline.
    pp
        The number of stages.
    stage
        The number of the stage, from 0.
    part
        The part, counted at the stage from 0.
    """
    if part == 1 and schedule in ("zb-v", "dualpipe"):
        return (2 * pp if schedule == "zb-v" else pp) - 1 - stage
    return part * pp + stage


def find_stage(schedule: PipelineSchedule, pp: int, where: int, part: int) -> int:
    """Return the stage that has the part number `where` of the model.

    Parameters
    ----------
    schedule
        The order of passes in the pipeline.
    pp
        The number of stages.
    where
        The number of the part in the whole model, from 0.
    part
        With ``"dualpipe"`` two stages have each part: the result is the one in the stream of
        micro-batches with this number, 0 or 1. It has no meaning with other schedules.

    Returns
    -------
    int
        The number of the stage, from 0.
    """
    if schedule == "zb-v":
        return min(where, 2 * pp - 1 - where)
    return pp - 1 - where if schedule == "dualpipe" and part else where % pp


def _pass(kind: Kind, k: int, pp: int, parts: int) -> Pass:
    """Return pass number k, from 0, of a stage with so many parts, of all of one kind.

    With several parts, `pp` micro-batches go through one part, then through the next one; backward
    the last part comes first.

    Parameters
    ----------
    kind
        "F" forward or "B" backward.
    k
        The number of the pass among those of its kind at the stage.
    pp
        The number of stages.
    parts
        The parts of the model at each stage.

    Returns
    -------
    Pass
        With the part, counted at the stage, and the micro-batch.
    """
    # With 2 stages of 2 parts each, passes 0 to 7 are of the parts 0 0 1 1 0 0 1 1 and of the
    # micro-batches 0 1 0 1 2 3 2 3.
    if parts == 1:
        return Pass(kind, 0, k)
    part = k // pp % parts
    return Pass(kind, part if kind == "F" else parts - 1 - part, k // (pp * parts) * pp + k % pp)


def _delay_weights(passes: list[Pass], stage: int) -> list[Pass]:
    """Split backward passes in two halves, of which the second one is done later.

    The first half, "I", makes the gradients of inputs, for which the stage before waits. The
    second half, "W", makes the gradients of weights, for which nobody waits: it fills gaps. It is
    done `stage` micro-batches later; what is left after the last backward pass comes at the end.
    This makes the schedule zb-h1 of 1f1b. For example, stage 1 does F B F B as F I F I W W: the
    gradients of weights of micro-batch 0 come after the "I" of micro-batch 1.

    Parameters
    ----------
    passes
        Forward ("F") and backward ("B") passes of a stage with one part, in order.
    stage
        The number of the stage, from 0.

    Returns
    -------
    list of Pass
        The passes in order; each "B" is "I", for gradients of inputs, and a later "W", for those
        of weights.
    """
    split_passes: list[Pass] = []
    n_weights = 0
    n_backward = 0
    for one_pass in passes:
        if one_pass.kind != "B":
            split_passes.append(one_pass)
            continue
        n_backward += 1
        split_passes.append(one_pass._replace(kind="I"))
        if one_pass.batch >= stage:
            split_passes.append(Pass("W", one_pass.part, one_pass.batch - stage))
            n_weights += 1
    return split_passes + [Pass("W", 0, batch) for batch in range(n_weights, n_backward)]


@lru_cache(maxsize=16)
def _there_and_back(pp: int, micro_batches: int) -> tuple[tuple[Pass, ...], ...]:
    """List in which order the stages of a "zb-v" pipeline do their passes.

    The model is cut into 2 pp parts, which go through the stages and back: with pp = 4, stage 0
    has the parts 0 and 7, stage 1 the parts 1 and 6, and so on. A pass takes one micro-batch
    through one part: "F" forward, "I" backward for gradients of inputs, "W" for those of weights.

    The order is found by simulation, in turns that are equally long. In each turn every stage does
    one pass: the first one that is ready in the list of preferences `_TURNS`, whose entries are a
    kind and which of the two parts of the stage. Memory is limited: a stage begins no forward pass
    while it keeps the activations of 2 pp passes. Each part has half of the layers of a stage, and
    this is as much memory as pp passes take in the schedule 1f1b.

    Parameters
    ----------
    pp
        The number of stages.
    micro_batches
        The number of micro-batches of a step.

    Returns
    -------
    tuple of tuples of Pass
        By stage its passes in order.
    """
    # ``done[kind, where]`` counts the micro-batches that were through with such a pass of part
    # `where` of the model before this turn. They go in order, so it is also the next micro-batch.
    top = 2 * pp - 1
    done: Counter[tuple[Kind, int]] = Counter()
    order: list[list[Pass]] = [[] for _ in range(pp)]
    while any(done["W", where] < micro_batches for where in range(top + 1)):
        chosen: list[tuple[Kind, int]] = []
        for stage in range(pp):
            # Micro-batches whose activations the stage keeps: those that are through forward, but
            # not yet through with gradients of weights.
            parts_of_stage = stage, top - stage
            n_kept = sum(done["F", where] - done["W", where] for where in parts_of_stage)
            # A pass is ready if the micro-batch is through with the pass `before` it: forward that
            # of the part before; backward that of the part after or, in the last part, the forward
            # pass; for gradients of weights that for gradients of inputs.
            for kind, part in _TURNS:
                where = parts_of_stage[part]
                batch = done[kind, where]
                before: dict[Kind, tuple[Kind, int]] = {
                    "F": ("F", where - 1),
                    "I": ("I", where + 1) if where < top else ("F", top),
                    "W": ("I", where),
                }
                is_first = kind == "F" and where == 0
                is_ready = batch < micro_batches and (is_first or done[before[kind]] > batch)
                if is_ready and (kind != "F" or n_kept < 2 * pp):
                    chosen.append((kind, where))
                    order[stage].append(Pass(kind, part, batch))
                    break
        done.update(chosen)
    return tuple(map(tuple, order))


def _two_streams(pp: int, stage: int, micro_batches: int) -> list[Pass]:
    """List in which order a stage does its passes in a pipeline that is fed from both ends.

    This is DualPipe: half of the micro-batches go from stage 0 to the last stage, the other half
    from the last stage to stage 0. Each stage therefore holds two parts of the model, part 0 for
    the first half and part 1 for the second. A pass takes one micro-batch through one part:

    - "F": forward;
    - "B": backward;
    - "I", "W": the two halves of "B", for gradients of inputs and for those of weights.

    Opposite stages, such as the first and the last, do the same with their parts exchanged.

    Parameters
    ----------
    pp, stage
        The number of stages, which is even, and the stage, from 0.
    micro_batches
        The number of micro-batches, even and at least twice that of stages.

    Returns
    -------
    list of Pass
        All passes in their order, each with its kind, part and micro-batch. The micro-batches of
        part 0 are those of the first half of the numbers, those of part 1 the second half.

    Notes
    -----
    The order is first written in turns such as "F0": the kind of the pass, and the end of the
    pipeline from which its micro-batch comes, 0 for the end nearer to this stage and 1 for the
    other one. A turn "W" does the oldest gradients of weights that an "I" has put off. For
    example, stage 0 of 4 has these turns for 8 micro-batches (early = late = main = 1)::

        F0 F0   F0 F1   I1 W F1   F0 B1 F1 B0   B1 F1 B0   B1   I0   W I0   W

    The counts are those of the DualPipe paper (https://arxiv.org/abs/2412.19437). The sum of
    `early` and `late` is pp / 2. The nearer end has 2 * early + late + main = micro_batches / 2
    turns "F0", which gives `main`. There are as many turns "W" as "I".
    """
    # A stage in the middle (`early` = 0) is reached by both streams at once. One at an end has
    # two forward turns more for each stage between it and the middle, before the other stream
    # comes.
    half = pp // 2
    stages_to_end = min(stage, pp - 1 - stage)
    early = half - stages_to_end - 1
    late = stages_to_end + 1
    main = micro_batches // 2 - pp + late

    # Filling: forward of the near stream, then of both, then the far stream begins to return.
    # Then the steady turns, and emptying, in which backward passes are split (the second half of
    # `last_turns`, and what follows) so that gradients of weights fill the gaps.
    turns = ["F0"] * (2 * early) + ["F0", "F1"] * late + ["I1", "W", "F1"] * early
    turns += ["F0", "B1", "F1", "B0"] * main + ["B1", "F1", "B0"] * early
    last_turns = ["B1", "B0"] * late
    turns += last_turns[:late] + [turn.replace("B", "I") for turn in last_turns[late:]]
    turns += ["W", "I0"] * early + ["W"] * late

    # Turns become passes. In the second half of the pipeline the nearer end is the last stage, so
    # that turns "F0" are of part 1 (`swap` is 1). The micro-batches of part 1 are numbered from
    # micro_batches / 2 on. ``count[is forward, part]`` is how many have had a turn. Passes "W"
    # wait in the queue `put_off` from the turn "I" of their micro-batch on.
    swap = int(stage >= half)
    count: Counter[tuple[bool, int]] = Counter()
    passes: list[Pass] = []
    put_off: list[Pass] = []
    for turn in turns:
        if turn == "W":
            passes.append(put_off.pop(0))
            continue
        kind: Kind = turn[0]  # type: ignore[assignment]
        part = int(turn[1]) ^ swap
        way = kind == "F", part
        passes.append(Pass(kind, part, part * micro_batches // 2 + count[way]))
        count[way] += 1
        if kind == "I":
            put_off.append(passes[-1]._replace(kind="W"))
    return passes
