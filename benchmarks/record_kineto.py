"""Record a job of four processes with PyTorch's profiler: ``python record_kineto.py FOLDER``.

Two stages of two replicas, two micro-batches, on Gloo. It writes ``gloo.RANK.json.gz``, of which
only what optmatch reads is left. PyTorch is needed for this script alone: ``pip install torch``.
The files of ``tests/data/kineto`` are from PyTorch 2.14.1, with two cores.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, record_function

RANKS, BATCH, WIDTH, MICRO_BATCHES = 4, 256, 192, 2
KEPT = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
ARGS = ("Concrete Inputs", "Input type", "Input Dims")


@contextmanager
def within(group):
    """Name the group of a call: Gloo's events do not."""
    with record_function(f"process_group:{group.group_name}"):
        yield


def run_step(stage, weight, replicas, pair, other):
    """Run one step: forwards, backwards, experts, sharded gradients, and the loss of all."""
    weight.grad = None
    for _ in range(MICRO_BATCHES):
        given = torch.randn(BATCH, WIDTH, requires_grad=True)
        if stage:
            with within(pair), torch.no_grad():
                dist.recv(given, other, group=pair)
        made = torch.nn.functional.gelu(given @ weight)
        tokens = torch.empty(BATCH, WIDTH)
        with within(replicas):
            dist.all_to_all_single(tokens, made.detach(), group=replicas)
        (made + tokens @ weight).square().mean().backward()
        with within(pair):
            if stage:
                dist.send(given.grad, other, group=pair)
            else:
                dist.send(made.detach(), other, group=pair)
        if not stage:
            with within(pair):
                dist.recv(tokens, other, group=pair)
    part = torch.empty(WIDTH // 2, WIDTH)
    with within(replicas):
        dist.reduce_scatter_single(part, weight.grad, group=replicas)
    with within(replicas):
        work = dist.all_gather_single(weight.data, part, group=replicas, async_op=True)
    loss = (tokens @ tokens.T).sum()
    work.wait()
    with within(dist.group.WORLD):
        dist.all_reduce(loss)
    with within(dist.group.WORLD):
        dist.barrier()


def run_rank(rank, folder, store):
    """Run one rank, and write its trace."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    stage, replica = divmod(rank, 2)
    replicas = [dist.new_group([0, 1]), dist.new_group([2, 3])][stage]
    pair = [dist.new_group([0, 2]), dist.new_group([1, 3])][replica]
    weight = torch.randn(WIDTH, WIDTH).requires_grad_()
    told = (stage, weight, replicas, pair, 2 * (1 - stage) + replica)
    run_step(*told)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run_step(*told)
    recorded.export_chrome_trace(f"{store}.{rank}.json")
    trace = json.loads(Path(f"{store}.{rank}.json").read_text())
    events = []
    for event in trace["traceEvents"]:
        if event.get("cat") not in ("cpu_op", "user_annotation"):
            continue
        kept = {name: event[name] for name in KEPT}
        args = {name: event["args"][name] for name in ARGS if name in event["args"]}
        if event["name"].startswith(("c10d::", "gloo:")):
            kept["args"] = args
        events.append(kept)
    least = {name: trace[name] for name in ("schemaVersion", "distributedInfo")}
    text = json.dumps({**least, "traceEvents": events}, separators=(",", ":"))
    with gzip.GzipFile(f"{folder}/gloo.{rank}.json.gz", "wb", mtime=0) as file:
        file.write(text.encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(run_rank, (sys.argv[1], f"{scratch}/store"), nprocs=RANKS)
