"""Collectives for Chakra, astra-sim and Perfetto: bytes, order, rates and times are the plan's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io import read_chakra
from optmatch.io.exports import export, exported
from optmatch.io.rails.chakra import read_trace
from tests.helpers.readers import check_trace, circuit_schedules

RATE = 25e9


def solved(operation: Any, n: int, method: str, **fields: Any) -> om.Solution:
    """Return the plan of a method."""
    costs: dict[str, Any] = {"alpha_s": 1e-6, "delay_s": 1e-5, "rate_bytes_per_s": RATE}
    return om.solve(om.Collective(operation, n, n * 1000.0, **(costs | fields)), method, seed=0)


@pytest.mark.parametrize(
    ("operation", "method", "n"),
    [
        ("all-reduce", "halving-doubling", 8),
        ("all-to-all", "bruck", 6),
        ("all-gather", "direct", 5),
    ],
)
def test_traces_send_what_the_plan_sends(
    operation: str, method: str, n: int, tmp_path: Path
) -> None:
    solution = solved(operation, n, method, ports=2 if method == "direct" else 1)
    plan = solution.answer
    paths = [Path(name) for name in export(solution, "chakra", tmp_path / "run")]
    wanted = np.zeros((n, n))
    np.add.at(wanted, tuple(plan.sends[:, 1:3].T), plan.chunk_bytes[plan.sends[:, 3]])
    assert np.array_equal(read_chakra(paths), wanted)
    for trace in map(read_trace, paths):
        assert len(trace.tag) == 2 * len(np.unique(plan.sends[:, :3], axis=0)) / n
        for node, turn in enumerate(trace.tag.tolist()):
            last = trace.tag[trace.tag < turn].max(initial=-1)
            assert set(trace.parent[trace.child == node]) == set(np.flatnonzero(trace.tag == last))


def test_circuits_have_the_rate_of_the_problem_and_ports_their_rank() -> None:
    solution = solved("all-to-all", 5, "direct", ports=2)
    plan = solution.answer
    blocks = circuit_schedules(str(exported(solution, "astra-bw")))
    assert len(blocks) == plan.n_epochs
    for epoch, rates in blocks.items():
        wanted = np.zeros((5, 5))
        lane, rank = np.nonzero(plan.circuits[epoch] >= 0)
        np.add.at(wanted, (rank, plan.circuits[epoch][lane, rank]), RATE / 1e9)
        assert np.array_equal(rates, wanted)
    assert "npus_count: [5]" in str(exported(solution, "astra-network"))


def test_nodes_are_ranks_and_a_link_has_the_time_of_a_round(tmp_path: Path) -> None:
    costs = {"alpha_s": 2e-6, "hop_s": 5e-7}
    solution = solved("all-gather", 4, "direct", ports=2, fabric=om.IdealSwitch(11), **costs)
    assert len(export(solution, "chakra", tmp_path / "run")) == 4
    network = str(exported(solution, "astra-network"))
    assert "npus_count: [4]\n" in network and "latency: [2500]  # ns\n" in network
    for to, kind in (("astra-bw", "BW"), ("astra-lt", "LT")):
        blocks = circuit_schedules(str(exported(solution, to)), kind)
        assert [matrix.shape for matrix in blocks.values()] == [(4, 4)] * len(blocks)
    assert all(set(np.unique(matrix)) == {0.0, 2500.0} for matrix in blocks.values())

    # Circuits at ports that no rank has are no circuits of the plan.
    schedule = solution.schedule
    assert schedule is not None
    for source, destination in ((8, 9), (0, 8), (8, 0)):
        matchings = np.full_like(schedule.matchings, -1)
        matchings[0, source] = destination
        forged = replace(solution, schedule=replace(schedule, matchings=matchings))
        with pytest.raises(om.InputError, match="ports of no rank"):
            exported(forged, "astra-bw")


def test_links_inside_islands_are_always_there() -> None:
    costs = {"island": 2, "island_rate_bytes_per_s": 4e11, "island_alpha_s": 5e-7}
    solution = solved("all-reduce", 4, "best", **costs)
    rates = circuit_schedules(str(exported(solution, "astra-bw")))
    latencies = circuit_schedules(str(exported(solution, "astra-lt")), "LT")
    assert rates
    for topology, matrix in rates.items():
        for source, destination in np.ndindex(4, 4):
            is_inside = source != destination and source // 2 == destination // 2
            assert (matrix[source, destination] == 400.0) == is_inside
            assert (latencies[topology][source, destination] == 500.0) == is_inside


def test_planes_are_drawn_as_they_change() -> None:
    solution = solved("all-to-all", 5, "overlap", planes=2, start="dark")
    plan = solution.answer
    lasts = check_trace(str(exported(solution, "perfetto")))
    changes = [event["dur"] for event in lasts if event["name"].startswith("to state")]
    circuits = sum(event["dur"] for event in lasts) - sum(changes)
    assert changes == pytest.approx([10.0] * len(changes)) and len(changes) >= 2
    used = plan.shares_bytes > 0
    assert circuits == pytest.approx(5e6 * (plan.end_s - plan.start_s)[used].sum(), rel=1e-3)


@pytest.mark.parametrize("to", ["chakra", "perfetto", "astra-bw"])
def test_steps_from_outside_have_nothing_to_write(to: str) -> None:
    solution = solved("all-reduce", 4, "overlap", steps=[[1, 10.0], [2, 10.0]], planes=2)
    with pytest.raises(om.InputError, match="status"):
        exported(solution, to)


@pytest.mark.parametrize("to", ["chakra", "msccl"])
@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("sends", (0, 2), 9, "sends.0.: destination 9 given, less than 4"),
        ("sends", (-1, 0), 3, r"sends.\d+.: round 3 given, less than 3"),
        ("sends", (0, 3), 4, "sends.0.: chunk 4 given, less than 4"),
        ("epoch_of_round", 0, 7, "epoch_of_round.0.: epoch 7 given, less than 1"),
    ],
)
def test_sends_that_cannot_be_are_not_written(
    to: str, name: str, place: Any, value: int, message: str
) -> None:
    solution = solved("all-gather", 4, "ring")
    array = getattr(solution.answer, name).copy()
    array[place] = value
    wrong = replace(solution, answer=replace(solution.answer, **{name: array}))
    with pytest.raises(om.InputError, match=message):
        exported(wrong, to)
