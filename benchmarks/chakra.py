"""Reading Chakra traces: nodes per second, of several mixtures of nodes.

    python benchmarks/chakra.py [--nodes 1000000] [--runs 3]

Traces are written to a temporary folder and read back from there. A *mixed* trace is two thirds
computations with their operation counts, a third collectives of 16 sizes in 4 groups. The others
are *collectives* only, or *messages* only, each with a tag of its own. Times are of the process,
the best of several runs.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from optmatch.io.rails.chakra import (
    COLLECTIVE,
    COMPUTE,
    SEND,
    Node,
    TraceOptions,
    read_trace,
    step_of,
    trace_bytes,
)


def nodes(kind: str, count: int) -> Iterator[Node]:
    """Make a trace in which each node waits for the one before it."""
    for k in range(count):
        what = COMPUTE
        attributes: dict[str, bool | int | str] = {"is_cpu_op": False}
        if kind == "messages":
            what = SEND
            attributes |= {"comm_size": 2**20, "comm_src": 0, "comm_dst": 1, "comm_tag": k}
        elif kind == "collectives" or k % 3 == 0:
            what, size, group = COLLECTIVE, 2 ** (10 + k % 16), str(1 + k % 4)
            type_ = (0, 2, 7)[k // 3 % 3]  # all-reduce, all-gather, reduce-scatter
            attributes |= {"comm_type": type_, "comm_size": size, "pg_name": group}
        else:
            attributes |= {"num_ops": 10**9, "tensor_size": 4096}
        parents = [k - 1] if k else []
        yield Node(k, what, f"node_{k}", parents, k % 1000, attributes)


def measure(kind: str, count: int, runs: int, folder: Path) -> None:
    """Print a row."""
    path = folder / f"{kind}.0.et"
    path.write_bytes(trace_bytes(nodes(kind, count)))
    times = []
    for _ in range(runs):
        started = time.process_time()
        nodes_read = read_trace(path)
        times.append(time.process_time() - started)
    assert len(nodes_read.node_id) == count
    row = f"{kind:12} {path.stat().st_size / 2**20:6.0f} MiB {count / min(times):10,.0f} nodes/s"
    if kind != "messages":  # of one rank they have no other end
        started = time.process_time()
        step = step_of(nodes_read, {str(k): [0] for k in range(1, 5)}, TraceOptions())
        row += f", as a step in {time.process_time() - started:.2f} s"
        assert step.n_operations == count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{row}, {peak:.0f} MiB at most so far", flush=True)


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("mixed", "collectives", "messages"):
            measure(kind, given.nodes, given.runs, Path(folder))


if __name__ == "__main__":
    main()
