"""The rules of the reader of MSCCL++ 0.9, and a machine that does what a plan says, in any order.

The rules are those of ``execution_plan.cc``, ``execution_common.hpp`` and
``execution_kernel.hpp`` of microsoft/mscclpp at 1f5f065d (August 2026).
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

OPERATIONS, CHANNELS, AT_ONCE, SEMAPHORES = 64, 16, 8, 16
KNOWN = {"nop", "put", "copy", "signal", "wait", "flush", "re", "sem_acquire", "sem_release"}


def read(text: str) -> dict[str, Any]:
    """Check what the reader and the executor check, and that numbers stay within their lists."""
    tree: dict[str, Any] = json.loads(text)
    for name in ("name", "collective", "protocol", "inplace", "gpus"):
        assert name in tree
    assert tree["protocol"] in ("Simple", "LL") and isinstance(tree["inplace"], bool)
    linked = Counter[tuple[int, int]]()
    for rank, gpu in enumerate(tree["gpus"]):
        assert gpu["id"] == rank
        # It divides by both, and wants chunks of one size in input and output.
        assert gpu["input_chunks"] > 0 and gpu["output_chunks"] > 0
        for channel in gpu["channels"]:
            assert channel["channel_type"] == "port"
            linked.update((rank, peer) for peer in channel["connected_to"])
        assert len(gpu["semaphores"]) <= SEMAPHORES
        for number, block in enumerate(gpu["threadblocks"]):
            assert block["id"] == number and len(block["ops"]) <= OPERATIONS
            _check_block(tree, gpu, block)
    assert all(linked[pair] == linked[pair[::-1]] == 1 for pair in linked)
    return tree


def _check_block(tree: dict[str, Any], gpu: dict[str, Any], block: dict[str, Any]) -> None:
    peers = gpu["channels"][0]["connected_to"]
    ids, refs = (
        block["channels"][0]["channel_ids"],
        block["remote_buffer_refs"][0]["remote_buffer_ids"],
    )
    assert max(len(ids), len(refs)) <= CHANNELS
    assert all(0 <= k < len(peers) for k in ids)
    assert all(0 <= k < len(gpu["remote_buffers"]) for k in refs)
    for op in block["ops"]:
        assert op["name"] in KNOWN
        assert all(0 <= k < len(ids) for k in op.get("channel_ids", ()))
        assert len(op.get("channel_ids", ())) <= AT_ONCE
        assert all(0 <= k < len(gpu["semaphores"]) for k in op.get("semaphore_ids", ()))
        for end in (*op.get("src_buff", ()), *op.get("dst_buff", ())):
            owner, buffer = gpu, end.get("type")
            if "buffer_id" in end:
                far = gpu["remote_buffers"][refs[end["buffer_id"]]]
                assert "port" in far["access_channel_types"] and op["channel_type"] == "port"
                owner, buffer = tree["gpus"][far["rank"]], far["type"]
            names = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
            assert end["index"] >= 0 and end["index"] + end["size"] <= owner[names[buffer]]
        if op["name"] == "flush":  # it counts its channels by its outputs
            assert len(op["dst_buff"]) == len(op["channel_ids"])
        if op["name"] == "put":
            assert len(op["src_buff"]) == len(op["dst_buff"]) == len(op["channel_ids"])
            far_ranks = [
                gpu["remote_buffers"][refs[d["buffer_id"]]]["rank"] for d in op["dst_buff"]
            ]
            assert far_ranks == [peers[ids[k]] for k in op["channel_ids"]]


class Machine:
    """Ranks, their thread blocks, and proxies that put data when they like."""

    def __init__(self, tree: dict[str, Any], buffers: list[dict[str, Any]], seed: int) -> None:
        self.gpus, self.buffers = tree["gpus"], buffers
        self.rng = np.random.default_rng(seed)
        self.signals = Counter[tuple[int, int]]()
        self.semaphores = [[each["init_value"] for each in gpu["semaphores"]] for gpu in self.gpus]
        self.posted: dict[tuple[int, int], deque[Callable[[], None]]] = {}

    def run(self) -> None:
        """Let blocks and proxies take turns by chance until all blocks are done."""
        blocks = [self._do(gpu, block) for gpu in self.gpus for block in gpu["threadblocks"]]
        idle = 0
        while blocks:
            waiting = [queue for queue in self.posted.values() if queue]
            pick = int(self.rng.integers(len(blocks) + len(waiting)))
            if pick >= len(blocks):
                waiting[pick - len(blocks)].popleft()()
                idle = 0
                continue
            state = next(blocks[pick], None)
            if state is None:
                del blocks[pick]
            idle = idle + 1 if state == "waits" else 0
            assert idle < 1000 * (len(blocks) + 1), "thread blocks wait for ever"
        while any(self.posted.values()):
            for queue in self.posted.values():
                while queue:
                    queue.popleft()()

    def _do(self, gpu: dict[str, Any], block: dict[str, Any]) -> Iterator[str]:
        """Do the operations of a block; yield before each, and while it waits."""
        rank, peers = gpu["id"], gpu["channels"][0]["connected_to"]
        ids = block["channels"][0]["channel_ids"]
        refs = block["remote_buffer_refs"][0]["remote_buffer_ids"]
        for op in block["ops"]:
            yield "goes"
            far = [peers[ids[k]] for k in op.get("channel_ids", ())]
            for number in op.get("semaphore_ids", ()):
                while op["name"] == "sem_acquire" and not self.semaphores[rank][number]:
                    yield "waits"
                self.semaphores[rank][number] += 1 if op["name"] == "sem_release" else -1
            if op["name"] == "flush":
                far = far[: len(op.get("dst_buff", ()))]
            for k, peer in enumerate(far):
                queue = self.posted.setdefault((rank, peer), deque())
                if op["name"] == "put":
                    end = op["dst_buff"][k]
                    buffer = gpu["remote_buffers"][refs[end["buffer_id"]]]
                    into = buffer["rank"], buffer["type"], end["index"], end["size"]
                    source = op["src_buff"][k]
                    own = rank, source["type"], source["index"], source["size"]
                    queue.append(partial(self._copy, own, into, False))
                elif op["name"] == "signal":
                    queue.append(partial(self.signals.update, [(rank, peer)]))
                elif op["name"] == "flush":
                    while queue:
                        yield "waits"
                elif op["name"] == "wait":
                    while not self.signals[peer, rank]:
                        yield "waits"
                    self.signals[peer, rank] -= 1
            if op["name"] in ("copy", "re"):
                ends = [
                    (rank, end["type"], end["index"], end["size"])
                    for end in (*op["src_buff"], *op["dst_buff"])
                ]
                if op["name"] == "re":
                    assert ends[0] == ends[-1]
                self._copy(ends[-2], ends[-1], op["name"] == "re")

    def _copy(self, own: Any, into: Any, add: bool) -> None:
        came = self.buffers[own[0]][own[1]][own[2] : own[2] + own[3]].copy()
        there = self.buffers[into[0]][into[1]][into[2] : into[2] + into[3]]
        there[:] = came + there if add else came
