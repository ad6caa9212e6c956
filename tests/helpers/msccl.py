"""A small interpreter of MSCCL programs, which knows nothing of how they were made."""

from collections import defaultdict
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray


def run_program(text: str) -> tuple[NDArray[np.int32], int]:
    """Run a program as early as its steps allow.

    A send and its receive are in the same round; received data are there for other blocks in the
    next one. Returns the sends as in a `CollectivePlan`, and how many chunks there are.

    Raises
    ------
    AssertionError
        If ends do not fit, steps wait for ever, or a rank sends what it has not.
    """
    top = ElementTree.fromstring(text)
    n, exchange = int(top.attrib["ngpus"]), top.attrib["coll"] == "alltoall"
    steps: dict[tuple[int, int, int], Any] = {}
    after: dict[Any, list[Any]] = defaultdict(list)
    queues: dict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for gpu in top.iter("gpu"):
        for block in gpu.iter("tb"):
            rank, number, told = int(gpu.attrib["id"]), int(block.attrib["id"]), block.attrib
            for step in block:
                key = rank, number, int(step.attrib["s"])
                steps[key], kind = step.attrib, step.attrib["type"]
                assert kind in ("s", "r", "rrc", "cpy", "nop") and step.attrib["cnt"] == "1"
                after[key] = [(rank, number, key[2] - 1)] if key[2] else []
                if step.attrib["depid"] != "-1":
                    after[key].append((rank, int(step.attrib["depid"]), int(step.attrib["deps"])))
                if kind == "s":
                    queues[rank, int(told["send"]), told["chan"]][0].append(key)
                elif kind in ("r", "rrc"):
                    queues[int(told["recv"]), rank, told["chan"]][1].append(key)
    sent: dict[Any, Any] = {}
    for sends, receives in queues.values():
        assert len(sends) == len(receives)
        sent |= dict(zip(receives, sends, strict=True))
    turn = dict.fromkeys(steps, 0)
    for _ in range(len(sent) + 2):
        before = dict(turn)
        for key in steps:
            heard = ((other, steps[other]["type"] in ("r", "rrc")) for other in after[key])
            waits = (turn[other] + (late and other[:2] != key[:2]) for other, late in heard)
            turn[key] = max(turn[key], *waits, turn[sent[key]] if key in sent else 0)
            if key in sent:
                turn[sent[key]] = turn[key]
    assert turn == before, "steps wait for each other"
    holds = {(s, ("i", d)): s * n + d for s in range(n) for d in range(n)} if exchange else {}
    rows: list[tuple[int, ...]] = []
    for now in range(max(turn.values()) + 1):
        found: dict[Any, int] = {}
        for key in (key for key in sent if turn[key] == now):
            at, to = sent[key][0], steps[key]
            slot = steps[sent[key]]["srcbuf"], int(steps[sent[key]]["srcoff"])
            chunk = holds[at, slot] if exchange else slot[1]
            found[key[0], (to["dstbuf"], int(to["dstoff"]))] = chunk
            assert exchange or slot[1] == int(to["dstoff"]), "another chunk"
            rows.append((now, at, key[0], chunk, int(to["type"] == "rrc")))
        holds |= found
    blocks = ((s, d) for s in range(n) for d in range(n) if s != d and exchange)
    assert all(holds[d, ("o", s)] == s * n + d for s, d in blocks)
    return np.array(rows, dtype=np.int32), n * n if exchange else int(top.attrib["nchunksperloop"])
