"""Buffers of runtimes before and after a collective, and a machine for programs of MSCCL."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np

import optmatch as om

EMPTY = -(1 << 40)


def make(problem: om.Collective, chunks: int, units: Any, scratch: list[int]) -> Any:
    """Return the buffers of each rank at first, and what they hold at last; None: anything."""
    n, rng = problem.n_ranks, np.random.default_rng(chunks)
    first: list[dict[str, Any]] = []
    blocks = [[rng.integers(1, 1 << 20, units[s][d]) for d in range(n)] for s in range(n)]
    own = rng.integers(1, 1 << 20, (n, chunks))
    owner = np.arange(chunks) // max(1, chunks // n)
    last: list[dict[str, Any]] = []
    for rank in range(n):
        empty = np.full(chunks, EMPTY)
        buffers = {"i": own[rank].copy(), "o": empty.copy()}
        result: dict[str, Any] = {"i": own.sum(axis=0)}
        if problem.operation == "all-to-all":
            buffers = {"i": np.concatenate(blocks[rank])}
            result = {"o": np.concatenate([blocks[source][rank] for source in range(n)])}
            buffers["o"] = np.full(len(result["o"]), EMPTY)
        elif problem.operation in ("all-gather", "broadcast"):
            of = owner if problem.operation == "all-gather" else np.full(chunks, problem.root)
            buffers = {"i": empty, "o": np.where(of == rank, own[rank], EMPTY)}
            result = {"o": own[of, np.arange(chunks)]}
        elif problem.operation == "reduce-scatter":
            result = {"i": np.where(owner == rank, result["i"], EMPTY)}
        first.append(buffers | {"s": np.full(scratch[rank], EMPTY)})
        last.append(result)
    return first, last


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Tell whether buffers hold what they should."""
    pairs = [(np.asarray(found[name]), values) for name, values in wanted.items()]
    return all(bool(((a == b) | (b == EMPTY)).all()) for a, b in pairs)


def units_of(problem: om.Collective) -> Any:
    """Return the units of each block."""
    if problem.demand_bytes is None:
        return np.ones((problem.n_ranks, problem.n_ranks), dtype=int)
    demand = problem.demand.astype(int)
    return demand // np.gcd.reduce(demand.reshape(-1))


def run_msccl(program: str, buffers: list[dict[str, Any]], seed: int) -> None:
    """Do a program of MSCCL in the buffers of its ranks: thread blocks take turns by chance.

    A send never waits, as where channels have room; a receive waits for its data.
    """
    done: dict[tuple[int, int], int] = {}
    sent: dict[tuple[str, str, str], deque[Any]] = defaultdict(deque)

    def do(rank: str, block: Any) -> Iterator[None]:
        """Do the steps of a block; yield before each, and while it waits."""
        held, ends = buffers[int(rank)], block.attrib
        for step in block:
            told = step.attrib
            yield
            awaited = int(rank), int(told["depid"])
            while awaited[1] >= 0 and done.get(awaited, -1) < int(told["deps"]):
                yield
            count = int(told["cnt"])
            source = held[told["srcbuf"]][int(told["srcoff"]) :][:count]
            target = held[told["dstbuf"]][int(told["dstoff"]) :][:count]
            if told["type"] == "s":
                sent[rank, ends["send"], ends["chan"]].append(source.copy())
            elif told["type"] in ("r", "rrc"):
                arriving = sent[ends["recv"], rank, ends["chan"]]
                while not arriving:
                    yield
                target[:] = arriving.popleft() + source * (told["type"] == "rrc")
            elif told["type"] == "cpy":
                target[:] = source
            elif told["type"] == "re":
                target += source
            done[int(rank), int(ends["id"])] = int(told["s"])

    gpus = ElementTree.fromstring(program).findall("gpu")
    running = [do(gpu.attrib["id"], block) for gpu in gpus for block in gpu]
    rng = np.random.default_rng(seed)
    turns = 0
    while running:
        block = running[int(rng.integers(len(running)))]
        if next(block, "done") == "done":
            running.remove(block)
            turns = 0
        turns += 1
        assert turns < 10_000 * len(gpus), "thread blocks wait for ever"
    assert not any(sent.values()), "data that nobody receives"


def scratch_of(program: str) -> list[int]:
    """Return the chunks of scratch that each rank of a program of MSCCL has."""
    return [int(gpu.attrib["s_chunks"]) for gpu in ElementTree.fromstring(program).iter("gpu")]
