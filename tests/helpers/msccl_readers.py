"""The rules by which today's runtimes of MSCCL read a program: msccl-executor-nccl and RCCL.

Written after ``msccl_parser.cc`` and ``msccl_struct.h`` of Azure/msccl-executor-nccl at c6f6b36d
(December 2024) and of ROCm/rccl at 0cbce2a7 (October 2024). Both read XML letter by letter, and
with fixed sizes of all tables.
"""

import re
from collections import Counter
from typing import Any, NamedTuple

COLLECTIVES = {
    *("reduce", "broadcast", "allreduce", "reducescatter", "allgather", "send", "recv"),
    *("gather", "scatter", "alltoall", "alltoallv"),
}
TRANSFERS = {
    # Which ends a transfer has, and which of its places are checked.
    "s": ("send", "src"),
    "r": ("recv", "dst"),
    "rcs": ("send recv", "dst"),
    "rrs": ("send recv", "src"),
    "rrc": ("recv", ""),
    "rrcs": ("send recv", "src dst"),
    "cpy": ("", "src dst"),
    "re": ("", "src dst"),
}
MOST_LETTERS, MOST_ATTRIBUTES, MOST_CHILDREN, MOST_NODES = 254, 16, 1024, 4095
MOST_STEPS, MOST_COUNT, MOST_PEERS_OF_CHANNEL = 64, 71, 32


class Runtime(NamedTuple):
    """The sizes of the tables of a runtime."""

    blocks: int
    channels: int


RUNTIMES = {"msccl-executor-nccl": Runtime(32 * 32, 32), "rccl": Runtime(64, 128)}


class Node(NamedTuple):
    """An element with what is in it."""

    name: str
    attributes: dict[str, str]
    children: list["Node"]

    def number(self, name: str) -> int:
        """Return an attribute that has to be there, as a number."""
        return int(self.attributes[name])


def parse(text: str) -> Node:
    """Read XML as these runtimes do: one space before each attribute, double quotes, no more."""
    root = Node("", {}, [])
    open_nodes = [root]
    at = 0
    while at < len(text):
        if text[at] in " \n\r":
            at += 1
            continue
        found = re.compile(r"<(/?)([^\s=<>/]+)((?: [^\s=<>/]+=\"[^\"<>]*\")*) ?(/?)>").match(
            text, at
        )
        assert found, text[at : at + 40]
        at = found.end()
        closes, name, listed, is_single = found.groups()
        if closes:
            assert open_nodes.pop().name == name
            continue
        attributes = dict(re.findall(r" ([^=]+)=\"([^\"]*)\"", listed))
        assert len(attributes) < MOST_ATTRIBUTES  # a blank before the slash counts as one
        assert all(len(part) <= MOST_LETTERS for pair in attributes.items() for part in pair)
        node = Node(name, attributes, [])
        open_nodes[-1].children.append(node)
        assert len(open_nodes[-1].children) <= MOST_CHILDREN
        if not is_single:
            open_nodes.append(node)
    assert open_nodes == [root]
    return root


def check_program(text: str, dialect: str) -> None:
    """Read a program as each of its ranks does."""
    runtime = RUNTIMES[dialect]
    (algo,) = parse(text).children
    assert algo.name == "algo"
    assert algo.attributes["coll"] in COLLECTIVES
    assert algo.attributes["proto"] in ("Simple", "LL128", "LL")
    for name in ("nchunksperloop", "nchannels", "ngpus", "minBytes", "maxBytes"):
        assert algo.number(name) >= 0
    # Without one of the two the runtime never takes the program.
    assert algo.number("inplace") + algo.number("outofplace") >= 1
    assert [gpu.number("id") for gpu in algo.children] == list(range(algo.number("ngpus")))
    for gpu in algo.children:
        n_nodes = 1 + len(algo.children) + sum(1 + len(block.children) for block in gpu.children)
        assert n_nodes <= MOST_NODES
        _check_gpu(gpu, runtime)


def _check_gpu(gpu: Node, runtime: Runtime) -> None:
    """Check the thread blocks of a rank."""
    rank = gpu.number("id")
    chunks = {name: gpu.number(f"{name}_chunks") for name in "ios"}
    assert min(chunks.values()) >= 0
    assert [block.number("id") for block in gpu.children] == list(range(len(gpu.children)))
    assert len(gpu.children) <= runtime.blocks
    n_peers = Counter[tuple[int, str]]()
    for block in gpu.children:
        ends = {"send": block.number("send"), "recv": block.number("recv")}
        assert all(end >= -1 and end != rank for end in ends.values())
        assert 0 <= block.number("chan") <= runtime.channels
        n_peers.update((block.number("chan"), name) for name, end in ends.items() if end >= 0)
        waiting = 0
        for step in block.children:
            assert 0 <= step.number("s") < MOST_STEPS
            assert step.attributes["srcbuf"] in "ios" and step.attributes["dstbuf"] in "ios"
            waits = step.number("depid") >= 0
            assert step.number("deps") >= 0 or not waits
            waiting += waits
            if step.attributes["type"] == "nop":
                continue
            needed, checked = TRANSFERS[step.attributes["type"]]
            assert all(ends[name] >= 0 for name in needed.split())
            assert 0 <= step.number("cnt") <= MOST_COUNT
            for side in checked.split():
                offset = step.number(f"{side}off")
                assert -1 <= offset < chunks[step.attributes[f"{side}buf"]]
            # Of a chain of waits the last one belongs to the step that is done after them.
            assert waits or not waiting
            waiting = 0
            assert step.number("hasdep") in (0, 1)
        assert not waiting
    assert max(n_peers.values(), default=0) <= MOST_PEERS_OF_CHANNEL


def without_dialect(text: str) -> Any:
    """Return the rank programs alone, which are the same in each dialect."""
    return parse(text).children[0].children
