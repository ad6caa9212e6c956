"""Slices: the question, the search and its proofs, the verifier, files and commands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.plotting import save_picture, slice_data
from optmatch.problems import LoadProof
from optmatch.problems.slices.problem import draw_occupancy
from optmatch.problems.slices.server_routes import pool_routes
from optmatch.problems.slices.shape import cut_shape, orient
from optmatch.solvers.slices.ilp import find_cut
from optmatch.solvers.slices.kernels import (
    EXHAUSTED,
    FOUND,
    BestRoutes,
    RackLoads,
    RouteTable,
    offer_routes,
)
from optmatch.solvers.slices.pod import Pod, aligned_blocks, tell_apart
from optmatch.solvers.slices.search import Rack, SliceSearch
from optmatch.testing import slice_problems
from optmatch.verify.slices.bounds import check_load_proof, measure
from tests.helpers.command import call
from tests.helpers.exhaustive.slices import best_slice
from tests.helpers.modes import compiled_only

pytestmark = pytest.mark.kernels

few = settings(max_examples=25, deadline=None, database=None)
RACK = om.RackFabric()


def occupied(seed: int = 1, fibres: int = 4) -> om.SliceAllocation:
    """Return a rack with two slices on random servers, asked for a third one."""
    fabric = om.RackFabric(fibres=fibres)
    placed = draw_occupancy(fabric, [(2, 2, 4), (2, 2, 2)], np.random.default_rng(seed))
    return om.SliceAllocation(fabric, (2, 2, 4), placed=placed)


# -- the question --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": (2, 2)}, "a list of 3 is expected"),
        ({"shape": (2, 0, 4)}, r"shape\[1\] = 0: must be >= 1"),
        ({"reserved": (3, 3)}, r"reserved\[1\]: server 3 is taken by reserved\[0\]"),
        ({"reserved": (16,)}, r"reserved\[0\]: server 16: there are 16"),
        ({"routes": 0}, "routes = 0: must be >= 1"),
        ({"fabric": om.RackFabric(ports_per_chip=4)}, "a chip of a torus needs 6"),
        (
            {
                "fabric": om.RackFabric(
                    (1, 1, 2), (1, 1, 1), fibres=1, wrap=False, interposer=om.Benes(7)
                )
            },
            "racks with ideal interposers are expected",
        ),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], text: str) -> None:
    fields: dict[str, Any] = {"fabric": RACK, "shape": (2, 2, 4)}
    with pytest.raises(om.InputError, match=text):
        om.SliceAllocation(**(fields | change))


def test_two_slices_never_share_a_server_or_a_fibre() -> None:
    one = Pod(RACK).allocate((2, 2, 2), "optical")
    assert one is not None
    with pytest.raises(om.InputError, match=r"placed\[1\]: server 0 is taken by placed\[0\]"):
        om.SliceAllocation(RACK, (2, 2, 2), placed=(one, one))
    moved = replace(one, servers=one.servers + 1)
    with pytest.raises(om.InputError, match=r"placed\[1\]: fibre \d+ is taken by placed\[0\]"):
        om.SliceAllocation(RACK, (2, 2, 2), placed=(one, moved))


@given(st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from([(2, 2, 1), (1, 1, 1), (2, 1, 2)]))
@few
def test_a_torus_is_cut_into_servers_the_same_way_twice(
    shape: tuple[int, int, int], server: tuple[int, int, int]
) -> None:
    plan, torus = cut_shape(shape, server), measure(shape, server)
    assert plan.n_slots == torus.slots
    pairs = [tuple(pair) for pair in plan.pairs.tolist()]
    assert dict(zip(pairs, plan.weights.tolist(), strict=True)) == torus.weights
    links = sum(1 if side == 2 else 2 for side in shape if side > 1)
    assert len(plan.circuits) == links * np.prod(shape)
    senders = plan.circuits[:, :3].tolist()
    assert len({tuple(row) for row in senders}) == len(senders)


def test_a_slice_is_turned_onto_the_fewest_servers() -> None:
    """2x2x1 lies flat on one server; 8x2x1 has no place in a rack of four along each axis."""
    assert orient(RACK, (1, 2, 2)) == ((2, 2, 1),)
    assert orient(RACK, (8, 2, 1)) == ()
    assert "does not fit" in om.SliceAllocation(RACK, (8, 2, 1)).dead_end()


def test_offered_routes_are_simple_short_and_have_room() -> None:
    """In the order that the documentation states, against a count of all simple routes."""
    problem = occupied()
    pool = pool_routes(problem.fabric)
    edges, room = problem.fabric.edges, problem.fabric.edge_fibres - problem.loads
    for u, v in ((0, 1), (0, 13), (5, 10)):
        ranks = []
        for route in problem.candidates(u, v, weight=4):
            servers = [int(edges[route[0], 0]), *edges[list(route), 1].tolist()]
            assert (servers[0], servers[-1], len(set(servers))) == (u, v, len(servers))
            assert (room[list(route)] >= 4).all()
            ranks.append((len(route), int(problem.loads[list(route)].max())))
        assert ranks == sorted(ranks)
        assert len(ranks) <= problem.routes
        assert (np.diff(pool.hops[u, v]) >= 0).all()


# -- the search ----------------------------------------------------------------------------------


def together(problem: om.SliceAllocation) -> Rack:
    """Return the first rack, or all as one if they are joined."""
    pod = Pod.of(problem)
    return pod.rack(*range(problem.fabric.racks if problem.fabric.joined else 1))


@compiled_only
@given(slice_problems())
@few
def test_the_kernel_offers_what_the_problem_offers(problem: om.SliceAllocation) -> None:
    rack = together(problem)
    count = len(rack.servers)
    routes = np.full((count, count, problem.routes, rack.pool.edges.shape[3]), -1, np.int32)
    lengths = np.zeros((count, count, problem.routes), np.int16)
    compute: Any = offer_routes  # numba finds its types
    loads = RackLoads(rack.n_rack_edges, rack.loads, rack.fibres, rack.servers)
    best = BestRoutes(np.empty(problem.routes, np.int64), np.empty(problem.routes, np.int64))
    compute(rack.pool, loads, 2, RouteTable(routes, lengths), best)
    for a in range(min(count, 2)):
        for b in range(count):
            found = [
                tuple(routes[a, b, k, : lengths[a, b, k]].tolist())
                for k in range(problem.routes)
                if lengths[a, b, k]
            ]
            source, destination = int(rack.servers[a]), int(rack.servers[b])
            assert found == ([] if a == b else problem.candidates(source, destination, 2))


@given(slice_problems(tiny=True), st.integers(1, 8))
@few
def test_the_search_decides_as_trying_everything_does(
    problem: om.SliceAllocation, largest: int
) -> None:
    best = best_slice(problem)
    answers = []
    rack = together(problem)
    for plan in problem.slice_shapes:
        if plan.n_slots > len(problem.free_servers):
            continue
        whole = SliceSearch(rack, plan, problem.routes, largest)
        answers.append(whole.run(10**9))
        parts, budget = SliceSearch(rack, plan, problem.routes, largest), 0
        while (status := parts.run(budget)) not in (FOUND, EXHAUSTED):
            budget += 3
        assert (status, parts.nodes) == (answers[-1], whole.nodes)
    assert (FOUND in answers) == (best is not None and best <= largest)


@compiled_only
@given(slice_problems(tiny=True), st.integers(1, 8))
@few
def test_a_cut_never_refutes_what_is_there(problem: om.SliceAllocation, largest: int) -> None:
    best = best_slice(problem)
    rack = together(problem)
    for plan in problem.slice_shapes if not problem.dead_end() else ():
        cut = find_cut(rack, plan, problem.fabric.server, largest)
        if cut is not None:
            assert best is None or best > largest
            proof = LoadProof(bound=largest + 1, cuts=(tuple(cut),))
            assert check_load_proof(problem, proof) >= min(
                largest + 1, int(problem.fabric.edge_fibres.max())
            )


def test_turned_slices_that_are_the_same_are_searched_once() -> None:
    plans = list(om.SliceAllocation(RACK, (2, 4, 4)).slice_shapes)
    for table in (plans[0].pairs, plans[0].weights, plans[0].circuits):  # kept for all problems
        assert not table.flags.writeable
    assert len(plans) == 3
    assert len(tell_apart(plans)) == 1
    odd = list(om.SliceAllocation(RACK, (3, 3, 2)).slice_shapes)
    assert len(tell_apart(odd)) == len(odd)


@compiled_only
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("rule", ["first-fit", "optical"])
def test_slices_come_and_go_without_a_trace(rule: str, joined: bool) -> None:
    fabric = om.RackFabric(racks=2, joined=joined)
    spans = 0
    pod, rng = Pod(fabric), np.random.default_rng(0)
    live: list[om.Allocation] = []
    for _ in range(60):
        shape = [(2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4)][rng.integers(4)]
        problem = om.SliceAllocation(fabric, shape, placed=tuple(live))
        found = pod.allocate(shape, rule)
        if found is None:
            if live:
                pod.remove(live.pop(int(rng.integers(len(live)))))
            continue
        report = om.verify(problem, found)
        assert report.ok, report.violations
        spans += len(set((found.servers // 16).tolist())) > 1
        assert (
            pod.loads[fabric.edge_of_fibre[found.fibres[:, 1]]].max(initial=0)
            == (report.figures["worst_load"])
        )
        live.append(found)
        if rule != "optical":
            local = found.servers - found.servers[0] // 16 * 16
            grids = [cut_shape(t, fabric.server).grid for t in orient(fabric, shape)]
            blocks = [b for g in grids for b in aligned_blocks(fabric.server_grid, g).tolist()]
            assert local.tolist() in blocks
    assert (spans > 0) == (joined and rule == "optical")
    for slice_ in live:
        pod.remove(slice_)
    assert pod.free.all()
    assert not pod.lit.any()
    assert not pod.loads.any()


def test_scattered_servers_do_where_no_block_is_free() -> None:
    busy = tuple(s for s, (_, x, y, z) in enumerate(RACK.server_coordinates) if (x + y + z) % 2)
    problem = om.SliceAllocation(RACK, (2, 2, 4), reserved=busy)
    assert om.solve(problem, "first-fit", seed=0).status is om.Status.UNKNOWN
    solution = om.solve(problem, "optical", seed=0)
    assert solution.stats["longest_route_hops"] == 2


def test_ilp_proves_with_a_cut_that_the_verifier_counts() -> None:
    """Two servers with two fibres each way cannot exchange four circuits."""
    fabric = om.RackFabric(chips=(2, 2, 2), fibres=1)
    problem = om.SliceAllocation(fabric, (2, 2, 2))
    solution = om.solve(problem, "ilp", seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert solution.certificate.cuts
    assert "bound_by" not in solution.stats


# -- files, pictures, commands -------------------------------------------------------------------


@compiled_only
def test_a_picture_shows_who_is_where(tmp_path: Path) -> None:
    problem = occupied()
    solution = om.solve(problem, "ilp", seed=0)
    data = slice_data(solution)
    assert [int(np.flatnonzero(data.slot == k)[0]) for k in range(4)] == (
        solution.answer.servers.tolist()
    )
    assert set(np.flatnonzero(data.owner == 1)) == set(problem.placed[0].servers.tolist())
    used = data.new > 0
    assert (data.new + data.before)[used].max() == solution.objective
    assert save_picture(solution, tmp_path / "slice.svg").stat().st_size > 1000
    with pytest.raises(om.InputError, match="kind demand: this picture is of slice-allocation"):
        slice_data(om.solve(om.Demand.from_matrix([[1]], delay_s=0.0), seed=0))


@compiled_only
def test_a_slice_from_the_command_line(tmp_path: Path) -> None:
    file, answer = str(tmp_path / "s.json"), str(tmp_path / "s.schedule.json")
    options = ("--shape", "2x2x4", "--placed", "2x2x4,2x2x2", "--seed", "1")
    call("generate", "slice-allocation", *options, "-o", file)
    done = call("solve", file, "--seed", "0", "-o", answer)
    assert "circuits" in done.output
    call("verify", answer)
    joined = str(tmp_path / "joined.json")
    two = ("--racks", "2", "--joined", "--shape", "8x4x4")
    call("generate", "slice-allocation", *two, "-o", joined)
    assert json.loads(call("solve", joined, "--json").stdout)["stats"]["racks"] == 2
    assert call("info", joined).output.count("inter rack switches") == 1
    big = str(tmp_path / "big.json")
    call("generate", "slice-allocation", "--shape", "4x4x8", "-o", big)
    refused = call("solve", big, "--json", code=3)
    assert "does not fit into a rack" in json.loads(refused.stdout)["stats"]["reason"]
    for words in (("--shape", "2x2"), ("--shape", "2x2x1", "--reserved", "77")):
        call("generate", "slice-allocation", *words, "-o", str(tmp_path / "no.json"), code=2)
    assert not (tmp_path / "no.json").exists()
