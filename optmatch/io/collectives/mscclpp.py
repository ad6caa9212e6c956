"""Plans of collectives as execution plans of MSCCL++, JSON.

A rank does its rounds one after another: it puts data into buffers of others, signals them, waits
for the signals of those that put data into its own, and adds these up or copies them. A buffer
that may still be read is not written from outside: what comes goes to scratch first. A thread
block has few operations and peers, so a rank has several, of which each waits for the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from optmatch.io.collectives.layouts import Layout, Send, Slot
from optmatch.model import InputError, Solution
from optmatch.problems.collectives.plan import REDUCE

# Limits of the executor of MSCCL++ 0.9.
MOST_OPERATIONS = 64
"""Operations of a thread block."""
_MOST_PEERS = 16
"""Peers of a thread block, and remote buffers that it writes."""
MOST_AT_ONCE = 8
"""Channels of one operation."""
_MOST_SEMAPHORES = 16
"""Semaphores of a rank, each of which lets a thread block wait for another one."""
_RESERVED_OPERATIONS = 4
"""Operations of a thread block that wait for the block before, and release the next one."""

_COLLECTIVES = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reducescatter",
    "all-to-all": "alltoall",
    "broadcast": "broadcast",
}
"""Names of collectives, by our names of operations; an uneven all-to-all ends in ``v``."""


class _RemoteEnd(NamedTuple):
    """A place in a buffer of another rank."""

    rank: int
    slot: Slot
    n_units: int


class Operation(NamedTuple):
    """An operation of a rank, before its channels and remote buffers have numbers."""

    name: str
    """MSCCL++'s name: ``put``, ``signal``, ``wait``, ``flush``, ``copy``, ``re`` or ``nop``."""
    peers: tuple[int, ...] = ()
    """The ranks at the other ends of its channels, in their order."""
    sources: tuple[tuple[Slot, int], ...] = ()
    """Places of its own rank that it reads, with their units."""
    target: tuple[Slot, int] | None = None
    """The place of its own rank that it writes, with its units."""
    remote_ends: tuple[_RemoteEnd, ...] = ()
    """Places of `peers` that it writes, or that it flushes, in the order of `peers`."""


_NOTHING = Operation("nop")
"""Lets all threads of a block wait for each other."""


def write_mscclpp(solution: Solution) -> str:
    """Write the sends of a plan as an execution plan of MSCCL++.

    Each rank gets a program of thread blocks, which put data into buffers of other ranks and wait
    for signals. Returned is the JSON text.
    """
    layout = Layout("MSCCL++", solution)
    n_ranks = layout.problem.n_ranks
    rounds = list(layout.rounds())
    programs = [_begin_program(layout, rank, rounds) for rank in range(n_ranks)]
    filled = _filled_at_first(layout)
    for sends in rounds:
        _add_round(layout, programs, sends, filled)
    buffer_units = [layout.buffer_units(rank) for rank in range(n_ranks)]
    if not np.all(buffer_units):
        raise InputError("MSCCL++: each rank has to send and to receive something")

    # Buffers are sized in units, which MSCCL++ calls chunks.
    gpus = []
    for rank, (n_input, n_output) in enumerate(buffer_units):
        buffers = {
            "id": rank,
            "input_chunks": n_input,
            "output_chunks": n_output,
            "scratch_chunks": layout.scratch[rank],
        }
        gpus.append(buffers | _format_rank(_cut_into_blocks(rank, programs[rank])))
    collective = _COLLECTIVES[layout.problem.operation]
    tree = {
        "name": f"optmatch-{layout.problem.operation}",
        "collective": f"{collective}v" if layout.is_uneven else collective,
        "protocol": "Simple",
        "inplace": not layout.is_all_to_all,
        "reuse_resources": False,
        "gpus": gpus,
    }
    return json.dumps(tree, indent=1) + "\n"


def _begin_program(layout: Layout, rank: int, rounds: Sequence[Sequence[Send]]) -> list[Operation]:
    """Return the first operations of a rank: it copies its own block, and tells that it is ready.

    Its buffers may be written from outside once it runs: it signals those that will send to it,
    and waits for those that it will send to.
    """
    pairs = {(send.source, send.target) for sends in rounds for send in sends}
    sources = sorted(source for source, target in pairs if target == rank)
    targets = sorted(target for source, target in pairs if source == rank)
    program = []
    own_block = layout.own_block(rank)
    if own_block is not None:
        source = (own_block.source, own_block.n_units)
        target = (own_block.target, own_block.n_units)
        program.append(Operation("copy", sources=(source,), target=target))
    program += _notify("signal", sources)
    program += _notify("wait", targets)
    program.append(_NOTHING)
    return program


def _add_round(
    layout: Layout,
    programs: Sequence[list[Operation]],
    sends: Sequence[Send],
    filled: set[tuple[int, Slot]],
) -> None:
    """Add what all ranks do in one round of a plan to their programs.

    In a round each rank puts data into the buffers of others, waits for those that send to it, and
    then adds or copies what has arrived. Data that may not overwrite its place at once arrives in
    a scratch buffer first.

    `sends` are the chunks that ranks send in this round. ``programs[rank]`` has the operations of
    earlier rounds, and gets those of this one. `filled` has the places (rank, slot) that hold data
    already; those of this round are added to it. A slot is a place in a buffer, and its size is
    counted in units of `layout`.
    """
    # For each rank: what it puts elsewhere, what it does afterwards with data in scratch, and from
    # whom data comes. Places that are filled in this round count from the next one on.
    n_ranks = len(programs)
    puts: list[list[tuple[Slot, _RemoteEnd]]] = [[] for _ in range(n_ranks)]
    local_operations: list[list[Operation]] = [[] for _ in range(n_ranks)]
    sources_of_rank: list[set[int]] = [set() for _ in range(n_ranks)]
    newly_filled = set()
    for send in sends:
        n_units = int(layout.units[send.chunk])
        slot = layout.find_slot(send.target, send.chunk)
        landing = slot
        is_reduced = send.kind == REDUCE
        if (send.target, slot) in filled or is_reduced:
            # The data at this place may still be wanted: what comes goes to scratch first.
            landing = layout.reserve_scratch(send.target, n_units)
            arrived = (landing, n_units)
            target = (slot, n_units)
            if is_reduced:
                operation = Operation("re", sources=(target, arrived), target=target)
            else:
                operation = Operation("copy", sources=(arrived,), target=target)
            local_operations[send.target].append(operation)
        # The sender puts its chunk where it lands: at its place, or in scratch.
        newly_filled.add((send.target, slot))
        sources_of_rank[send.target].add(send.source)
        remote_end = _RemoteEnd(send.target, landing, n_units)
        puts[send.source].append((layout.find_slot(send.source, send.chunk), remote_end))
    filled |= newly_filled

    for rank, program in enumerate(programs):
        program += _put(puts[rank])
        program += _notify("wait", sorted(sources_of_rank[rank]))
        if puts[rank] or sources_of_rank[rank]:
            program += [_NOTHING, *local_operations[rank]]
        if local_operations[rank]:
            program.append(_NOTHING)


def _put(puts: Sequence[tuple[Slot, _RemoteEnd]]) -> Iterator[Operation]:
    """Put data into buffers of other ranks, tell them, and wait until all is done.

    ``puts`` are pairs of where data are here and where they go. One operation puts to
    `MOST_AT_ONCE` ends at most; then each peer is signalled, and flushed, once.
    """
    if not puts:
        return
    for first in range(0, len(puts), MOST_AT_ONCE):
        part = puts[first : first + MOST_AT_ONCE]
        yield Operation(
            name="put",
            peers=tuple(remote_end.rank for _, remote_end in part),
            sources=tuple((slot, remote_end.n_units) for slot, remote_end in part),
            remote_ends=tuple(remote_end for _, remote_end in part),
        )
    end_of_peer = {remote_end.rank: remote_end for _, remote_end in puts}
    peers = sorted(end_of_peer)
    yield _NOTHING
    yield from _notify("signal", peers)
    # The executor of MSCCL++ 0.9 counts the channels of a flush by its outputs: without any it
    # would not wait, and data could change before they are sent.
    for operation in _notify("flush", peers):
        ends = tuple(end_of_peer[peer] for peer in operation.peers)
        yield operation._replace(remote_ends=ends)


def _filled_at_first(layout: Layout) -> set[tuple[int, Slot]]:
    """List the places of ranks that have data before the collective begins."""
    n_ranks = layout.problem.n_ranks
    chunks = np.arange(layout.n_chunks)
    owners = {
        "all-gather": chunks // max(1, layout.n_chunks // n_ranks),
        "all-to-all": chunks // n_ranks,
        "broadcast": np.full(layout.n_chunks, layout.problem.root),
    }
    owner_of_chunk = owners.get(layout.problem.operation)
    filled = set()
    for rank in range(n_ranks):
        # Before a reduction each rank has a share of every chunk.
        own_chunks = chunks if owner_of_chunk is None else chunks[owner_of_chunk == rank]
        filled |= {(rank, layout.find_slot(rank, chunk)) for chunk in own_chunks.tolist()}
    return filled


def _notify(name: str, peers: Sequence[int]) -> Iterator[Operation]:
    """Yield signals, waits or flushes for some ranks, a few in each operation."""
    for first in range(0, len(peers), MOST_AT_ONCE):
        yield Operation(name, peers=tuple(peers[first : first + MOST_AT_ONCE]))


@dataclass
class _Block:
    """The operations of a thread block, and what they reach."""

    operations: list[Operation] = field(default_factory=list)
    peers: set[int] = field(default_factory=set)
    remote_buffers: set[tuple[int, str]] = field(default_factory=set)
    """Rank and buffer."""

    def has_room_for(self, operation: Operation) -> bool:
        """Tell whether one more operation is within the limits of a thread block."""
        if len(self.operations) >= MOST_OPERATIONS - _RESERVED_OPERATIONS:
            return False
        n_peers = len(self.peers.union(operation.peers))
        n_buffers = len(self.remote_buffers | _remote_buffers(operation))
        return max(n_peers, n_buffers) <= _MOST_PEERS

    def append(self, operation: Operation) -> None:
        """Add an operation."""
        self.operations.append(operation)
        self.peers |= set(operation.peers)
        self.remote_buffers |= _remote_buffers(operation)


def _remote_buffers(operation: Operation) -> set[tuple[int, str]]:
    """Return rank and buffer of the places of others that an operation writes."""
    return {(end.rank, end.slot.buffer) for end in operation.remote_ends}


def _cut_into_blocks(rank: int, program: Iterable[Operation]) -> list[_Block]:
    """Cut the operations of a rank into thread blocks, each as full as it may be."""
    blocks = [_Block()]
    for operation in program:
        if not blocks[-1].has_room_for(operation):
            blocks.append(_Block())
        blocks[-1].append(operation)
    most_blocks = _MOST_SEMAPHORES + 1
    if len(blocks) > most_blocks:
        rule = f"rank {rank} needs {len(blocks)} thread blocks, {most_blocks} are possible"
        raise InputError(f"MSCCL++: {rule}")
    return blocks


def _format_rank(blocks: Sequence[_Block]) -> dict[str, Any]:
    """Return the entries of a rank in the plan: its thread blocks, channels and remote buffers.

    Thread blocks number their own peers and remote buffers, and refer to those of the rank.
    """
    peers = sorted(set[int]().union(*(block.peers for block in blocks)))
    buffers = sorted(set[tuple[int, str]]().union(*(block.remote_buffers for block in blocks)))
    threadblocks = []
    for number, block in enumerate(blocks):
        own_peers = sorted(block.peers)
        own_buffers = sorted(block.remote_buffers)
        channels = {
            "channel_type": "port",
            "channel_ids": [peers.index(peer) for peer in own_peers],
        }
        references = {
            "access_channel_type": "port",
            "remote_buffer_ids": [buffers.index(buffer) for buffer in own_buffers],
        }
        threadblocks.append(
            {
                "id": number,
                "ops": _format_operations(block, number, len(blocks)),
                "channels": [channels],
                "remote_buffer_refs": [references],
            }
        )
    # The semaphores between neighbouring blocks are taken at first.
    return {
        "threadblocks": threadblocks,
        "channels": [{"channel_type": "port", "connected_to": peers}],
        "remote_buffers": [
            {"rank": rank, "type": buffer, "access_channel_types": ["port"]}
            for rank, buffer in buffers
        ],
        "semaphores": [{"init_value": 0}] * (len(blocks) - 1),
    }


def _format_operations(block: _Block, number: int, n_blocks: int) -> list[dict[str, Any]]:
    """Return the operations of a thread block for JSON, between those of its semaphores.

    All blocks but the first one wait for the semaphore of the block before them, and all but the
    last one release their own. A `nop` keeps the operations of a block from passing these.
    """
    peers = sorted(block.peers)
    buffers = sorted(block.remote_buffers)
    operations = [_format_operation(operation, peers, buffers) for operation in block.operations]
    nothing: dict[str, Any] = {"name": "nop"}
    if number > 0:
        acquire = {"name": "sem_acquire", "semaphore_ids": [number - 1]}
        operations = [acquire, nothing, *operations]
    if number < n_blocks - 1:
        release = {"name": "sem_release", "semaphore_ids": [number]}
        operations = [*operations, nothing, release]
    return operations


def _format_operation(
    operation: Operation, peers: Sequence[int], buffers: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    """Return an operation for JSON, with the numbers that its thread block gives to peers.

    `peers` and `buffers` are those of the thread block: their places there are the ids of channels
    and buffers. The buffer of a remote end is named by (rank, buffer).
    """
    entry: dict[str, Any] = {"name": operation.name}
    if operation.sources:
        entry["src_buff"] = [_local_end(slot, n_units) for slot, n_units in operation.sources]
    if operation.target is not None:
        entry["dst_buff"] = [_local_end(*operation.target)]

    # Ranks at the other end, and where data land there, have numbers of the thread block.
    if operation.name == "re":
        entry["reduce_op"] = "sum"
    if operation.peers:
        entry["channel_type"] = "port"
        entry["channel_ids"] = [peers.index(peer) for peer in operation.peers]
    if operation.remote_ends:
        entry["dst_buff"] = [
            {
                "buffer_id": buffers.index((end.rank, end.slot.buffer)),
                "index": end.slot.first_unit,
                "size": end.n_units,
            }
            for end in operation.remote_ends
        ]
    return entry


def _local_end(slot: Slot, n_units: int) -> dict[str, Any]:
    """Return a place of the own rank, as the plan has it."""
    return {"type": slot.buffer, "index": slot.first_unit, "size": n_units}
