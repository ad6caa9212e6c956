"""Buffers of runtimes before and after a collective, and ranks that are processes."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

import optmatch as om

RANK = Path(__file__).with_name("msccl_rank.py")
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


@contextmanager
def ranks(most: int) -> Iterator[Any]:
    """Start processes; yield a function that lets them do a program and returns their buffers."""
    pairs = {(a, b): socket.socketpair() for a in range(most) for b in range(most) if a != b}
    workers: list[Any] = []
    for rank in range(most):
        ends = {f"to {b}": s.fileno() for (a, b), (s, _) in pairs.items() if a == rank}
        ends |= {f"from {a}": r.fileno() for (a, b), (_, r) in pairs.items() if b == rank}
        command = [sys.executable, "-S", "-E", str(RANK), str(rank), json.dumps(ends)]
        pipe: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers.append(subprocess.Popen(command, pass_fds=list(ends.values()), **pipe))
    for s, r in pairs.values():
        s.close()
        r.close()

    def do(program: str, first: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for worker, buffers in zip(workers, first, strict=False):
            told = {name: values.tolist() for name, values in buffers.items()}
            worker.stdin.write(json.dumps({"program": program, "buffers": told}) + "\n")
            worker.stdin.flush()
        answers = [
            json.loads(worker.stdout.readline()) for worker, _ in zip(workers, first, strict=False)
        ]
        assert not any(answer["wrong"] for answer in answers), answers
        return [answer["buffers"] for answer in answers]

    try:
        yield do
    finally:
        for worker in workers:
            worker.stdin.close()
            worker.kill()
            worker.wait()
            worker.stdout.close()


def scratch_of(program: str) -> list[int]:
    """Return the chunks of scratch that each rank of a program of MSCCL has."""
    return [int(gpu.attrib["s_chunks"]) for gpu in ElementTree.fromstring(program).iter("gpu")]
