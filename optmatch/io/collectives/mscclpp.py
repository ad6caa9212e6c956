"""Plans of collectives as execution plans of MSCCL++, JSON.

A rank does its rounds one after another: it puts data into buffers of others, signals them, waits
for the signals of those that put data into its own, and adds these up or copies them. A buffer
that may still be read is not written from outside: what comes goes to scratch first. A thread
block has few operations and peers, so a rank has several, of which each waits for the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from optmatch.io.collectives.msccl import NAMES, Layout, Slot
from optmatch.model import InputError, Solution
from optmatch.problems.collectives.plan import REDUCE

# Limits of the executor.
MOST_OPERATIONS = 64
"""Operations of a thread block."""
MOST_PEERS = 16
"""Peers of a thread block."""
MOST_AT_ONCE = 8
"""Ends of an operation."""
MOST_SEMAPHORES = 16

Operation = dict[str, Any]
"""An operation, whose ends are still ranks and buffers of ranks, not numbers."""


def write_mscclpp(solution: Solution) -> str:
    """Write the sends of a plan as an execution plan of MSCCL++.

    Takes what `write_msccl` takes. What the executor cannot hold raises `InputError`.
    """
    layout = Layout("MSCCL++", solution)
    n = layout.problem.n_ranks
    programs = _list_operations(layout)
    sizes = [layout.sizes(rank) for rank in range(n)]
    if not np.all(sizes):
        raise InputError("MSCCL++: each rank has to send and to receive something")
    tree = {
        "name": f"optmatch-{layout.problem.operation}",
        "collective": NAMES[layout.problem.operation].replace("_", "") + "v" * layout.is_uneven,
        "protocol": "Simple",
        "inplace": not layout.is_all_to_all,
        "reuse_resources": False,
        "gpus": [
            {"id": rank, "input_chunks": sizes[rank][0], "output_chunks": sizes[rank][1]}
            | {"scratch_chunks": layout.scratch[rank], **_split(rank, programs[rank])}
            for rank in range(n)
        ],
    }
    return json.dumps(tree, indent=1) + "\n"


def _list_operations(layout: Layout) -> list[list[Operation]]:
    """List the operations of each rank."""
    n = layout.problem.n_ranks
    rounds = list(layout.rounds())
    pairs = {(source, target) for rows in rounds for source, target, *_ in rows}
    filled = _fill(layout)
    programs: list[list[Operation]] = [[] for _ in range(n)]
    for rank, program in enumerate(programs):
        own_block = layout.own_block(rank)
        if own_block is not None:
            source_slot, target_slot, units = own_block
            program.append(_move("copy", [(source_slot, units)], (target_slot, units)))
        heard = [source for source in range(n) if (source, rank) in pairs]
        told = [target for target in range(n) if (rank, target) in pairs]
        program += _tell("signal", heard)  # the buffers are ready for what comes
        program += _tell("wait", told)
        program.append({"name": "nop"})
    for rows in rounds:
        puts: list[list[Operation]] = [[] for _ in range(n)]
        moves: list[list[Operation]] = [[] for _ in range(n)]
        came_from: list[set[int]] = [set() for _ in range(n)]
        then = set()
        for source, target, chunk, kind in rows:
            units, slot = int(layout.units[chunk]), layout.place(target, chunk)
            into = slot
            if (target, slot) in filled or kind == REDUCE:  # its data may still be wanted
                into = "s", layout.scratch[target]
                layout.scratch[target] += units
                came = [(slot, units)] * (kind == REDUCE) + [(into, units)]
                does = "re" if kind == REDUCE else "copy"
                moves[target].append(_move(does, came, (slot, units)))
            then.add((target, slot))
            came_from[target].add(source)
            end = _end(into, units) | {"rank": target}
            puts[source].append({"src": _end(layout.place(source, chunk), units), "dst": end})
        filled |= then
        for rank, program in enumerate(programs):
            ends = puts[rank]
            for k in range(0, len(ends), MOST_AT_ONCE):
                some = ends[k : k + MOST_AT_ONCE]
                program.append(
                    {
                        "name": "put",
                        "src_buff": [each["src"] for each in some],
                        "dst_buff": [each["dst"] for each in some],
                        **{"peers": [each["dst"]["rank"] for each in some]},
                        "channel_type": "port",
                    }
                )
            if ends:
                peers = sorted({each["dst"]["rank"] for each in ends})
                program += [{"name": "nop"}, *_tell("signal", peers), *_tell("flush", peers)]
            program += _tell("wait", sorted(came_from[rank]))
            if ends or came_from[rank]:
                program += [{"name": "nop"}, *moves[rank]]
            if moves[rank]:
                program.append({"name": "nop"})
    return programs


def _fill(layout: Layout) -> set[tuple[int, Slot]]:
    """Return the places of ranks that have something at first."""
    n, operation = layout.problem.n_ranks, layout.problem.operation
    chunks = np.arange(layout.n_chunks)
    owner = {
        "all-gather": chunks // max(1, layout.n_chunks // n),
        "all-to-all": chunks // n,
        "broadcast": np.full(layout.n_chunks, layout.problem.root),
    }.get(operation)
    return {
        (rank, layout.place(rank, chunk))
        for rank in range(n)
        for chunk in chunks[(owner == rank) if owner is not None else slice(None)].tolist()
    }


def _end(slot: Slot, units: int) -> dict[str, Any]:
    return {"type": slot[0], "index": slot[1], "size": units}


def _move(name: str, sources: list[tuple[Slot, int]], target: tuple[Slot, int]) -> Operation:
    """Return an operation within a rank."""
    ends = {"src_buff": [_end(*each) for each in sources]}
    ends["dst_buff"] = [_end(*target)]
    return {"name": name, **ends, **({"reduce_op": "sum"} if name == "re" else {})}


def _tell(name: str, peers: list[int]) -> Iterator[Operation]:
    for k in range(0, len(peers), MOST_AT_ONCE):
        yield {"name": name, "peers": peers[k : k + MOST_AT_ONCE], "channel_type": "port"}


def _split(rank: int, program: list[Operation]) -> dict[str, Any]:
    """Cut the operations of a rank into thread blocks, and number their ends."""
    blocks: list[list[Operation]] = [[]]
    ends = [set[Any]()]
    for operation in program:
        more = {*operation.get("peers", ())}
        more |= {(end["rank"], end["type"]) for end in _remote(operation)}
        kinds = [
            {each for each in ends[-1] | more if isinstance(each, kind)} for kind in (int, tuple)
        ]
        if len(blocks[-1]) >= MOST_OPERATIONS - 4 or max(map(len, kinds)) > MOST_PEERS:
            blocks.append([])
            ends.append(set())
        blocks[-1].append(operation)
        ends[-1] |= more
    if len(blocks) > MOST_SEMAPHORES + 1:
        told = f"rank {rank} needs {len(blocks)} thread blocks, {MOST_SEMAPHORES + 1} are possible"
        raise InputError(f"MSCCL++: {told}")
    peers = sorted({each for some in ends for each in some if isinstance(each, int)})
    buffers = sorted({each for some in ends for each in some if isinstance(each, tuple)})
    found = []
    for number, (operations, some) in enumerate(zip(blocks, ends, strict=True)):
        mine = sorted(each for each in some if isinstance(each, int))
        far = sorted(each for each in some if isinstance(each, tuple))
        before = [{"name": "sem_acquire", "semaphore_ids": [number - 1]}, {"name": "nop"}]
        after = [{"name": "nop"}, {"name": "sem_release", "semaphore_ids": [number]}]
        found.append(
            {
                "id": number,
                "ops": before * (number > 0)
                + [_number(each, mine, far) for each in operations]
                + after * (number < len(blocks) - 1),
                "channels": [
                    {"channel_type": "port", "channel_ids": [peers.index(each) for each in mine]}
                ],
                "remote_buffer_refs": [
                    {
                        "access_channel_type": "port",
                        "remote_buffer_ids": [buffers.index(each) for each in far],
                    }
                ],
            }
        )
    return {
        "threadblocks": found,
        "channels": [{"channel_type": "port", "connected_to": peers}],
        "remote_buffers": [
            {"rank": peer, "type": buffer, "access_channel_types": ["port"]}
            for peer, buffer in buffers
        ],
        "semaphores": [{"init_value": 0}] * (len(blocks) - 1),
    }


def _remote(operation: Operation) -> list[dict[str, Any]]:
    return [end for end in operation.get("dst_buff", ()) if "rank" in end]


def _number(operation: Operation, peers: list[int], buffers: list[Any]) -> Operation:
    """Put numbers of the thread block for ranks and their buffers."""
    told = {name: value for name, value in operation.items() if name != "peers"}
    if "peers" in operation:
        told["channel_ids"] = [peers.index(each) for each in operation["peers"]]
    if _remote(operation):
        told["dst_buff"] = [
            {
                "buffer_id": buffers.index((end["rank"], end["type"])),
                **{name: end[name] for name in ("index", "size")},
            }
            for end in operation["dst_buff"]
        ]
    return told
