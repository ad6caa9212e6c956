"""The order in which a stage of a pipeline goes through its micro-batches.

The model is cut into parts, which a micro-batch passes one after the other, forward and then
backward. A stage has one part, or several: `part` counts those of a stage from 0, and *where* a
part is, is its number in the whole model. A *pass* takes one micro-batch through one part.
"""

from __future__ import annotations

from collections import Counter, deque
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
    """List the passes of a stage in the order of a schedule.

    The pipeline has `pp` stages, and `parts` is how many parts of the model each has. GPipe does
    all forward passes first; 1F1B and its interleaved form alternate as soon as the pipeline is
    full; ZB-H1 puts off gradients of weights; ZB-V and DualPipe have orders of their own.
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
    """Refuse numbers of micro-batches or stages that a schedule cannot have."""
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
    """Return where a part of a stage is in the model.

    With interleaving, part 1 of stage 2 of 4 is number 6, counted from 0; in V-shaped schedules it
    is the mirrored one.
    """
    if part == 1 and schedule in ("zb-v", "dualpipe"):
        return (2 * pp if schedule == "zb-v" else pp) - 1 - stage
    return part * pp + stage


def find_stage(schedule: PipelineSchedule, pp: int, where: int, part: int) -> int:
    """Return the stage that has a part of the model; the inverse of `find_part`."""
    if schedule == "zb-v":
        return min(where, 2 * pp - 1 - where)
    return pp - 1 - where if schedule == "dualpipe" and part else where % pp


def _pass(kind: Kind, k: int, pp: int, parts: int) -> Pass:
    """Return pass number k of one kind: `pp` micro-batches go through each part in turn.

    With 2 stages of 2 parts, passes 0 to 7 are of the parts 0 0 1 1 0 0 1 1 and the micro-batches
    0 1 0 1 2 3 2 3.
    """
    part = k // pp % parts
    return Pass(kind, part if kind == "F" else parts - 1 - part, k // (pp * parts) * pp + k % pp)


def _delay_weights(passes: list[Pass], stage: int) -> list[Pass]:
    """Split backward passes; gradients of weights come later, by the stages before.

    A pass "B" becomes "I", and behind it "W" of the micro-batch `stage` before (ZB-H1). At stage
    1, B0 B1 B2 becomes I0, I1 W0, I2 W1, W2.
    """
    split_passes: list[Pass] = []
    put_off = deque[Pass]()
    for one_pass in passes:
        if one_pass.kind != "B":
            split_passes.append(one_pass)
            continue
        split_passes.append(one_pass._replace(kind="I"))
        put_off.append(one_pass._replace(kind="W"))
        if len(put_off) > stage:
            split_passes.append(put_off.popleft())
    return [*split_passes, *put_off]


@lru_cache(maxsize=16)
def _there_and_back(pp: int, micro_batches: int) -> tuple[tuple[Pass, ...], ...]:
    """List the passes of all stages of the V-shaped schedule (ZB-V).

    The pipeline has `pp` stages and two parts for each: stage s has the parts s and 2 pp - 1 - s
    of the model. In each turn a stage does the first pass of `_TURNS` that is ready, which prefers
    gradients of inputs to forward passes and these to gradients of weights; it keeps activations
    of 2 pp micro-batches at most. Returned are by stage its passes, in order.
    """
    # ``done[kind, part_of_model]`` counts the micro-batches that were through with such a pass of
    # the part `part_of_model` before this turn. They go in order, so it is also the next
    # micro-batch.
    top = 2 * pp - 1
    done: Counter[tuple[Kind, int]] = Counter()
    order: list[list[Pass]] = [[] for _ in range(pp)]
    while any(done["W", part_of_model] < micro_batches for part_of_model in range(top + 1)):
        chosen: list[tuple[Kind, int]] = []
        for stage in range(pp):
            # Micro-batches whose activations the stage keeps: those that are through forward, but
            # not yet through with gradients of weights.
            parts_of_stage = stage, top - stage
            n_kept = sum(
                done["F", part_of_model] - done["W", part_of_model]
                for part_of_model in parts_of_stage
            )
            # `_TURNS` are (kind, part of this stage), the most urgent first. A pass is ready if
            # the micro-batch is through with the pass `before` it: forward that of the part
            # before; backward that of the part after or, in the last part, the forward pass; for
            # gradients of weights that for gradients of inputs.
            for kind, part in _TURNS:
                part_of_model = parts_of_stage[part]
                batch = done[kind, part_of_model]
                before: dict[Kind, tuple[Kind, int]] = {
                    "F": ("F", part_of_model - 1),
                    "I": ("I", part_of_model + 1) if part_of_model < top else ("F", top),
                    "W": ("I", part_of_model),
                }
                is_first = kind == "F" and part_of_model == 0
                is_ready = batch < micro_batches and (is_first or done[before[kind]] > batch)
                if is_ready and (kind != "F" or n_kept < 2 * pp):
                    chosen.append((kind, part_of_model))
                    order[stage].append(Pass(kind, part, batch))
                    break
        done.update(chosen)
    return tuple(map(tuple, order))


def _two_streams(pp: int, stage: int, micro_batches: int) -> list[Pass]:
    """List the passes of a stage in DualPipe, in which micro-batches come from both ends.

    A stage has two parts: part 0 belongs to the stream that enters at stage 0, with the first half
    of the micro-batches, part 1 to the one that enters at the last stage, with the second half. A
    turn such as ``"F0"`` is a pass of the kind F for the stream whose end is nearer to the stage;
    ``"W"`` is the oldest gradient of weights that was put off. With ``pp = 4`` and 8
    micro-batches, stage 0 begins with forward passes of the batches 0, 1 and 2 in part 0, and
    batch 4 in part 1.
    """
    # A stage in the middle (`early` = 0) is reached by both streams at once. One at an end has
    # two forward turns more for each stage between it and the middle, before the other stream
    # comes. `main` is how often the four steady turns come. With pp = 4 and 8 micro-batches, stage
    # 0 has early = late = main = 1: its turns begin with F0 F0, F0 F1, I1 W F1, F0 B1 F1 B0.
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

        # A pass takes the next micro-batch of its part and direction.
        kind: Kind = turn[0]  # type: ignore[assignment]
        part = int(turn[1]) ^ swap
        way = kind == "F", part
        passes.append(Pass(kind, part, part * micro_batches // 2 + count[way]))
        count[way] += 1
        if kind == "I":
            put_off.append(passes[-1]._replace(kind="W"))
    return passes
