"""Traces whose sends do not wait for receives: a ring that waits for itself, and one that must."""

from pathlib import Path

import pytest

import optmatch as om
from optmatch.io.rails.chakra import COMPUTE, RECEIVE, SEND, Node, TraceOptions, read_step
from optmatch.simulation.rails.replay import simulate_rails
from tests.helpers.chakra import trace
from tests.helpers.rails import make_job

RANKS, ROUNDS, CHUNK = 4, 6, 10**6


def ring(*, receive_first: bool) -> list[list[Node]]:
    """Return the rounds of an all-reduce on a ring, one message after another at each rank.

    Each receive waits for the send of its round and what is reduced for both, as in the custom
    collectives of astra-sim; or each send for the receive of its round.
    """
    found = []
    for rank in range(RANKS):
        nodes: list[Node] = []
        ends = {SEND: {"comm_src": rank, "comm_dst": (rank + 1) % RANKS}}
        ends[RECEIVE] = {"comm_src": (rank - 1) % RANKS, "comm_dst": rank}
        for turn in range(ROUNDS):
            for kind in (RECEIVE, SEND) if receive_first else (SEND, RECEIVE):
                last = [len(nodes) - 1] if nodes else []
                told: dict[str, int | str] = {"comm_size": CHUNK, "comm_tag": turn}
                nodes.append(Node(len(nodes), kind, "", last, 0, told | ends[kind]))
            nodes.append(Node(len(nodes), COMPUTE, "", [len(nodes) - 1], 5))
        found.append(nodes)
    return found


def ring_job(folder: Path, *, receive_first: bool) -> om.RailJob:
    """Return the job of such traces."""
    prefix = trace(folder, *ring(receive_first=receive_first))[0]
    step = read_step(prefix, options=TraceOptions())
    return make_job(
        gpus_per_server=1, recorded=step, port_bytes_per_s=1e9, latency_s=0.0, delay_s=1e-3
    )


def test_ranks_that_all_send_before_they_receive_wait_for_nobody(tmp_path: Path) -> None:
    """A round lasts as long as a chunk and its sum; the circuits are those of one ring."""
    job = ring_job(tmp_path, receive_first=False)
    assert simulate_rails(job, "all-links").step_s == pytest.approx(ROUNDS * 1.005e-3)
    for method in ("on-demand", "prefetch"):
        solution = om.solve(job, method, seed=0)
        assert solution.status is om.Status.OPTIMAL
        assert solution.objective == pytest.approx(ROUNDS * 1.005e-3)
        assert om.verify(job, solution).ok


def test_ranks_that_all_receive_before_they_send_are_refused(tmp_path: Path) -> None:
    """Nobody can send what it has not received; all messages of the circle are named."""
    job = ring_job(tmp_path, receive_first=True)
    with pytest.raises(om.InputError, match="waits for itself, by way of") as refused:
        om.solve(job, "prefetch", seed=0)
    assert all(
        f"in group pair.{pair}" in str(refused.value) for pair in ("0-1", "1-2", "2-3", "0-3")
    )
