"""What the ranks of a pipeline stage do in one step, in program order, from the model's sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import frozen
from optmatch.problems.rails.layout import SPLITS, beside, coordinates, members, memberships
from optmatch.problems.rails.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COMPUTE,
    RECV,
    REDUCE_SCATTER,
    SEND,
    Step,
)

if TYPE_CHECKING:
    from optmatch.problems.rails.model import TransformerModel
    from optmatch.problems.rails.problem import RailJob

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
Turn = tuple[bool, int, int]
"""Whether forward, which part of the model at this rank, which micro-batch."""


def pipeline_turns(
    schedule: PipelineSchedule, pp: int, stage: int, parts: int, micro_batches: int
) -> list[Turn]:
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
    >>> [f"{'FB'[not ahead]}{batch}" for ahead, _, batch in pipeline_turns("1f1b", 2, 0, 1, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total = parts * micro_batches
    ahead = [_turn(True, k, pp, parts) for k in range(total)]
    back = [_turn(False, k, pp, parts) for k in range(total)]
    if schedule == "gpipe":
        return ahead + back
    early = pp - stage - 1
    if schedule == "interleaved":
        early = 2 * early + (parts - 1) * pp
    early = min(early, total)
    steady = [turn for pair in zip(ahead[early:], back, strict=False) for turn in pair]
    return ahead[:early] + steady + back[total - early :]


def _turn(forward: bool, k: int, pp: int, parts: int) -> Turn:
    """With several parts, `pp` micro-batches go through one part, then through the next."""
    if parts == 1:
        return forward, 0, k
    part = k // pp % parts
    return forward, part if forward else parts - 1 - part, k // (pp * parts) * pp + k % pp


class _Sizes:
    """Bytes and seconds of one micro-batch, at one rank."""

    def __init__(self, job: RailJob, model: TransformerModel) -> None:
        sequences = job.batch / job.dp / job.micro_batches
        tokens = sequences * model.sequence / job.cp
        flops_per_s = job.peak_flops_per_s * job.efficiency * job.tp
        matrices = model.ffn_matrices * model.hidden * model.ffn
        attention = 4 * model.hidden**2
        self.words = model.hidden * model.vocabulary / job.tp
        self.dense = (attention + (matrices if model.experts == 1 else 0)) / job.tp
        self.sparse = matrices * model.experts / job.ep / job.tp if model.experts > 1 else 0.0
        scores = 4 * model.sequence * model.hidden
        self.attention_s = tokens * (2 * attention + scores) / flops_per_s
        self.ffn_s = tokens * 2 * matrices * model.active_experts / flops_per_s
        self.head_s = tokens * 2 * self.words * job.tp / flops_per_s
        self.activation = tokens * model.hidden * job.width_bytes
        self.message = self.activation / job.tp
        self.dispatch = self.message * model.active_experts


class _Program:
    """The operations of the ranks of one stage; numbers of operations count from 0."""

    def __init__(self, job: RailJob, model: TransformerModel, stage: int) -> None:
        self.job, self.stage = job, stage
        self.sizes = _Sizes(job, model)
        self.layers = model.layers // (job.pp * job.virtual_stages)
        self.kind: list[int] = []
        self.key: list[str] = []  # which family of groups
        self.size: list[float] = []
        self.duration: list[float] = []
        self.toward: list[int] = []  # the other stage of a message
        self.tag: list[int] = []
        self.deps: list[tuple[int, ...]] = []
        self.last = -1  # what the next computation needs
        self.waiting: list[int] = []  # and what else it needs: messages, weights
        self.gathered: list[int] = []  # what the layers before needed, for FSDP
        parts = job.virtual_stages
        order = pipeline_turns(job.schedule, job.pp, stage, parts, job.micro_batches)
        left = dict.fromkeys(range(parts), job.micro_batches)
        for forward, part, batch in order:
            where = part * job.pp + stage
            if forward:
                self._forward(where, batch)
            else:
                left[part] -= 1
                self._backward(where, batch, is_last=left[part] == 0)
        if job.zero_stage in (1, 2):
            for _ in range(parts * self.layers):
                self._sync(ALL_GATHER, job.width_bytes, after=())
            self._sync_words(ALL_GATHER, job.width_bytes)

    def _forward(self, where: int, batch: int) -> None:
        self._message(RECV, where - 1, where, batch)
        for _ in range(self.layers):
            self._gather()
            self._context(ALL_GATHER)
            self._layer(1.0)
        if where == self._n_parts - 1:
            self._compute(self.sizes.head_s)
        self._message(SEND, where, where + 1, batch)

    def _backward(self, where: int, batch: int, *, is_last: bool) -> None:
        syncs = is_last or self.job.zero_stage >= 2
        kind = REDUCE_SCATTER if self.job.zero_stage else ALL_REDUCE
        self._message(RECV, where + 1, where, batch)
        if where == self._n_parts - 1:
            self._compute(2 * self.sizes.head_s)
            if syncs:
                self._sync_words(kind, self.job.gradient_width_bytes)
        for layer in range(self.layers):
            self._gather()
            self._layer(2.0)
            self._context(REDUCE_SCATTER)
            if layer == self.layers - 1:
                self._message(SEND, where, where - 1, batch)
            if syncs:
                self._sync(kind, self.job.gradient_width_bytes, after=(self.last,))
        if where == 0 and self._n_parts > 1 and syncs:
            self._sync_words(kind, self.job.gradient_width_bytes)

    @property
    def _n_parts(self) -> int:
        return self.job.pp * self.job.virtual_stages

    def _layer(self, effort: float) -> None:
        """Compute one layer: tensor-parallel sums after attention and feed-forward, in one."""
        sizes = self.sizes
        if self.job.ep == 1:
            self._compute(effort * (sizes.attention_s + sizes.ffn_s))
            self._talk(ALL_REDUCE, "tp", 2 * sizes.activation)
            return
        self._compute(effort * sizes.attention_s)
        self._talk(ALL_REDUCE, "tp", sizes.activation)
        self._talk(ALL_TO_ALL, "ep", sizes.dispatch)
        self._compute(effort * sizes.ffn_s)
        self._talk(ALL_TO_ALL, "ep", sizes.dispatch)
        self._talk(ALL_REDUCE, "tp", sizes.activation)

    def _context(self, kind: int) -> None:
        """Keys and values of the other parts of a sequence; backward, their gradients."""
        both = 2 * self.sizes.message
        self._talk(kind, "cp", both if kind == ALL_GATHER else both * self.job.cp)

    def _gather(self) -> None:
        """Bring the weights of a layer together, no earlier than one layer ahead."""
        if self.job.zero_stage == 3:
            self.gathered.append(self.last)
            ahead = self.gathered[-2:-1] if len(self.gathered) > 1 else []
            before = tuple(op for op in ahead if op >= 0)
            self.waiting += self._sync(ALL_GATHER, self.job.width_bytes, after=before)

    def _sync(self, kind: int, width: float, after: tuple[int, ...]) -> list[int]:
        """Let all ranks with the same weights talk about those of one layer."""
        made: list[int] = []
        for key, words in (("dp", self.sizes.dense), ("edp", self.sizes.sparse)):
            made += self._add(kind, key, self._synced(kind, key, words * width), after)
        return made

    def _sync_words(self, kind: int, width: float) -> None:
        if self.stage in (0, self.job.pp - 1):
            after = () if kind == ALL_GATHER else (self.last,)
            self._add(kind, "dp", self._synced(kind, "dp", self.sizes.words * width), after)

    def _synced(self, kind: int, key: str, size: float) -> float:
        return size / members(self.job, key) if kind == ALL_GATHER else size

    def _compute(self, duration_s: float) -> None:
        after = tuple(op for op in (self.last, *self.waiting) if op >= 0)
        self.waiting = []
        self._put(COMPUTE, "", 0.0, duration_s, -1, -1, after)
        self.last = len(self.kind) - 1

    def _talk(self, kind: int, key: str, size: float) -> None:
        """Communicate what the next computation needs."""
        for made in self._add(kind, key, size, (self.last,) if self.last >= 0 else ()):
            self.last = made

    def _add(self, kind: int, key: str, size: float, after: tuple[int, ...]) -> list[int]:
        if size == 0 or members(self.job, key) == 1:
            return []
        self._put(kind, key, size, 0.0, -1, -1, after)
        return [len(self.kind) - 1]

    def _message(self, kind: int, source: int, destination: int, batch: int) -> None:
        """Send to or receive from the part of the model before or after this one."""
        low, high = min(source, destination), max(source, destination)
        if low < 0 or high >= self._n_parts or self.job.pp == 1:
            return
        other = (destination if kind == SEND else source) % self.job.pp
        tag = (low * self.job.micro_batches + batch) * 2 + (source > destination)
        after = (self.last,) if kind == SEND else ()
        self._put(kind, "pp", self.sizes.message, 0.0, other, tag, after)
        if kind == RECV:
            self.waiting.append(len(self.kind) - 1)

    def _put(
        self,
        kind: int,
        key: str,
        size: float,
        duration_s: float,
        toward: int,
        tag: int,
        deps: tuple[int, ...],
    ) -> None:
        self.kind.append(kind)
        self.key.append(key)
        self.size.append(size)
        self.duration.append(duration_s)
        self.toward.append(toward)
        self.tag.append(tag)
        self.deps.append(deps)


def build_step(job: RailJob) -> Step:
    """Derive the operations of one step from model and degrees.

    Notes
    -----
    All ranks of a pipeline stage have the same program, which is written once. What is sent: at
    the end of each layer all activations by all-reduce (tensor parallel, twice a layer, put
    together in one operation), keys and values (context parallel), tokens to experts and back;
    between stages the activations, of which each tensor-parallel rank sends its part; gradients
    layer by layer as soon as they are there, those of the layer that a stage computes last after
    the message to the stage before. The backward pass takes twice the time of the forward pass.
    """
    assert job.model is not None  # checked when the job was made
    programs = [_Program(job, job.model, stage) for stage in range(job.pp)]
    stage_of = coordinates(job)[:, SPLITS.index("pp")]
    lengths = np.array([len(program.kind) for program in programs])[stage_of]
    start = np.concatenate([[0], np.cumsum(lengths)])
    counts = [np.array([len(deps) for deps in program.deps], np.int64) for program in programs]
    columns = _Columns(job, int(start[-1]), 2 * max(map(len, counts)) + _n_tags(job))
    for stage, program in enumerate(programs):
        ranks = np.flatnonzero(stage_of == stage)
        columns.place(program, ranks, start[ranks], counts[stage])
    dep_start = np.concatenate([[0], np.cumsum(columns.n_deps)])
    dep = np.zeros(int(dep_start[-1]), np.int64)
    for stage, program in enumerate(programs):
        ranks = np.flatnonzero(stage_of == stage)
        local = np.array([op for deps in program.deps for op in deps], np.int64)
        if len(local):
            first = dep_start[start[ranks]]
            dep[first[:, None] + np.arange(len(local))] = start[ranks][:, None] + local
    _, match = np.unique(columns.match, return_inverse=True)
    match = match.reshape(-1) - bool((columns.match == -1).any())
    return Step(
        groups=job.groups(),
        rank=frozen("rank", np.repeat(np.arange(job.n_gpus), lengths), 1, np.int32),
        kind=columns.kind,
        group=columns.group,
        size_bytes=columns.size,
        duration_s=columns.duration,
        peer=columns.peer,
        match=match.astype(np.int32),
        dep_start=dep_start,
        dep=dep,
    )


class _Columns:
    """The columns of all ranks, filled stage by stage."""

    def __init__(self, job: RailJob, n: int, n_matches: int) -> None:
        self.group_of, self.beside = memberships(job), beside(job)
        self.n_matches = n_matches  # more than any group has
        self.kind = np.zeros(n, np.int8)
        self.group = np.full(n, -1, np.int32)
        self.size = np.zeros(n)
        self.duration = np.zeros(n)
        self.peer = np.full(n, -1, np.int32)
        self.match = np.full(n, -1, np.int64)
        self.n_deps = np.zeros(n, np.int64)

    def place(
        self,
        program: _Program,
        ranks: NDArray[np.int64],
        start: NDArray[np.int64],
        n_deps: NDArray[np.int64],
    ) -> None:
        at = start[:, None] + np.arange(len(program.kind))
        self.kind[at] = program.kind
        self.size[at] = program.size
        self.duration[at] = program.duration
        self.n_deps[at] = n_deps
        keys = np.array(program.key)
        for key in _without_empty(program.key):
            chosen = np.flatnonzero(keys == key)
            groups = self.group_of[key][ranks][:, None]
            self.group[at[:, chosen]] = groups
            tag = np.arange(len(chosen)) if key != "pp" else np.array(program.tag)[chosen]
            self.match[at[:, chosen]] = groups * self.n_matches + tag
            if key == "pp":
                toward = np.array(program.toward)[chosen]
                self.peer[at[:, chosen]] = self.beside[ranks][:, toward]


def _n_tags(job: RailJob) -> int:
    return 2 * job.micro_batches * job.pp * job.virtual_stages


def _without_empty(keys: Sequence[str]) -> Iterator[str]:
    return (key for key in dict.fromkeys(keys) if key)
